"""Explanations of judgments. The judge continues its reply; the verdict does not change.

Source: JudgeLM, section 3.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from judgelm.modes.completions import cut_off, failure_of
from judgelm.modes.flow import Flow
from judgelm.records import Completion, Judgment, Prompt, Request, Sampling, Shown, Unparsed

Reasons = Literal["none", "all", "close", "flips"]
"""Which pairs to explain. `close`: if P(first better) is near 0.5. `flips`: if the two orders disagree."""

Explained = Literal["none", "all"]


def to_explain(judgment: Judgment, reasons: Reasons, close_threshold: float = 0) -> list[int]:
    """Return the indices of the prompts to explain: the first with a parseable reply, or both orders for `flips`."""
    if judgment.verdict is None:
        return []
    if reasons == "flips":
        return list(range(len(judgment.shown))) if judgment.consistent is False else []
    near = judgment.probability is not None and abs(judgment.probability - 0.5) <= close_threshold + 1e-9
    if reasons == "all" or (reasons == "close" and near):
        return [index for index, shown in enumerate(judgment.shown) if shown.failure is None][:1]
    return []


def _continued(prompt: Prompt, text: str) -> Prompt:
    return replace(prompt, prefill=f"{prompt.prefill}{text}\n")


def explain(
    judgment: Judgment,
    indices: Sequence[int],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    ask: Callable[[Prompt, str], Prompt] = _continued,
) -> Flow:
    """Request reasons for these prompts and add them to the judgment.

    `ask` builds the prompt for a reason from the original prompt and the reply. By default, the judge continues its
    reply on the next line.
    """
    if not indices:
        return judgment
    completions = yield [
        Request(key=str(index), prompt=ask(prompts[index], judgment.shown[index].text), sampling=sampling)
        for index in indices
    ]
    shown = list(judgment.shown)
    for index, completion in zip(indices, completions, strict=True):
        shown[index] = _explained(shown[index], completion, sampling.max_tokens)
    return replace(judgment, shown=tuple(shown))


def _explained(shown: Shown, completion: Completion, max_tokens: int) -> Shown:
    if (failure := failure_of(completion)) is not None:
        return replace(shown, reason_failure=failure)
    reason = completion.texts[0].strip()
    if not reason:
        return replace(shown, reason_failure=Unparsed("off_grammar", "", "there is no text after the score line"))
    failure = cut_off(completion, max_tokens)
    if failure is None and completion.truncations != shown.truncations:
        failure = Unparsed("too_long", "", "the answers had to be cut further to make room for the reason")
    return replace(shown, reason=reason, reason_failure=failure)
