"""Correctness of short answers, determined by an exact match with the gold answer or otherwise by a judge.

`qa-6-shot` is the paper's prompt (Table 9), except for two of its six examples. We wrote these two examples and the
prompt's variants. `qa-6-shot-released` uses the layout from the authors' code.

Source: QA-Judge, sections 4.2, 5.2, and 6.3, Tables 8, 9, and 11.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import failure_of, judged, labelled, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.labels import ask_probabilities
from judgelm.modes.mode import SampledMode, check_above_zero, sampling_for, unreferenced
from judgelm.parsing.short_answers import QaRules, exact_match, golds_of
from judgelm.parsing.verdicts import QaLabelRule, label_by, read_label
from judgelm.prompts.catalog import PromptText, read_texts, sha_of
from judgelm.records import Completion, LabelVerdict, Request, Sample, Shown, SpanKind, Unparsed

QaWording = Literal["paper", "reworded", "released"]
Shots = Literal[0, 2, 6]

# kind "question", so that the context is never cut, because the answer may be at its end
_KINDS: Mapping[str, SpanKind] = {
    "question": "question",
    "gold": "reference",
    "predicted": "answer",
    "context": "question",
}
_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))
_LABELS = {"correct": "CORRECT", "incorrect": "INCORRECT"}
EXAMPLES = {0: (), 2: (_TEXTS["examples"][0], _TEXTS["examples"][3]), 6: tuple(_TEXTS["examples"])}
"""Examples by number of shots. The paper does not say which examples it uses for 2 shots; we use one per label."""


@dataclass(frozen=True, kw_only=True)
class QaTemplate(PromptText):
    """A prompt with slots for the question, the gold answer, the predicted answer, and the context."""

    id: str

    @cached_property
    def sha(self) -> str:
        """SHA-256 (hex) of the ID, the chat prompt, and the plain prompt."""
        return sha_of({"id": self.id, "system": self.system, "text": self.text, "plain_ending": self.after})


def _template(template_id: str, text: str, *, after: str = "\n* Label:", delimiters: Sequence[str] = ()) -> QaTemplate:
    system = _TEXTS["system"]
    return QaTemplate(
        id=template_id,
        text=text,
        kinds=_KINDS,
        delimiters=tuple(delimiters or _TEXTS["delimiters"]),
        system=system,
        before=f"{system}\n\n",
        after=after,
    )


QA_ANSWERING = _template("qa-answering", **_TEXTS["answering"], after="\n* Answer:")
"""Prompt for the model whose answers are judged (QA-Judge, Table 8)."""


@cache
def qa_template(shots: Shots, with_context: bool, wording: QaWording = "paper") -> QaTemplate:
    """The judge's prompt.

    Source: QA-Judge, Table 9 and section 6.3; Alab-NII/llm-judge-extract-qa at 65ba47b,
    `prompts/judge_prompt_template.py` (`released`).
    """
    if wording == "released":
        if shots != 6 or not with_context:
            raise ConfigError("wording released requires shots=6 and with_context=true")
        released = _TEXTS["released"]
        examples = "\n".join(_examples(released["example"], shots))
        return _template("qa-6-shot-released", released["text"].replace("{examples}", examples))
    texts = _TEXTS[wording]
    examples = "".join(_examples(_TEXTS["example"], shots))
    text = (
        texts["text"]
        .replace("{refer}", texts["refer"] if with_context else "")
        .replace("{ambiguous}", texts["ambiguous"] if with_context else "")
        .replace("{examples}", f"Here are some examples:\n\n{examples}" if examples else "")
    )
    template_id = f"qa-{shots}-shot{'' if with_context else '-no-context'}{'' if wording == 'paper' else f'-{wording}'}"
    return _template(template_id, text + ("\n* Context: {context}" if with_context else ""))


def _examples(form: str, shots: Shots) -> Iterator[str]:
    for rank, example in enumerate(EXAMPLES[shots], 1):
        yield form.format(rank=rank, **example)


@dataclass(frozen=True, slots=True, kw_only=True)
class QaCorrectness(SampledMode):
    """Judge a predicted answer as `correct` or `incorrect`.

    `sample.reference` is the gold answer. `metadata` can contain `references` (all validated answers),
    `reference_spans` (their spans), and `context`. As in the original code, blank answers are marked as incorrect
    without asking the judge.

    Attributes:
        shots: number of examples in the prompt: 0, 2, or 6.
        with_context: include the question's context in the prompt.
        wording: the paper's wording (`paper`), our wording (`reworded`), or the layout from the authors' code
            (`released`; requires six shots with context).
        judge_all: ask the judge even if there is an exact match.
        exact: exact-match rules; the original code uses the HotpotQA rules for all datasets.
        validated: accept a match with any validated answer; the original code accepts only the first.
        labels: how to extract the label from a reply.
        distribution: request P(correct) at the label; requires labels `strict`.
    """

    name: ClassVar[str] = "qa"
    answers: ClassVar[tuple[int, int | None]] = (1, 1)
    reference: ClassVar[Literal["use"]] = "use"
    shown_fields: ClassVar[tuple[str, ...]] = ("context",)
    reasons_first: ClassVar[bool] = True

    shots: Shots = 0
    with_context: bool = False
    wording: QaWording = "paper"
    judge_all: bool = False
    exact: QaRules = "hotpotqa"
    validated: bool = True
    labels: QaLabelRule = "strict"
    distribution: bool = False
    chat: bool = True
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        qa_template(self.shots, self.with_context, self.wording)  # raises an error if the options are invalid
        if self.distribution and self.labels != "strict":
            raise ConfigError(f"distribution requires labels strict, but labels is {self.labels}; change one of them")
        check_above_zero(self, "max_tokens")

    @property
    def prompt(self) -> QaTemplate:
        """The judge's prompt."""
        return qa_template(self.shots, self.with_context, self.wording)

    @property
    def template(self) -> str:
        """ID of the prompt."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of the prompt."""
        return self.prompt.sha

    def check(self, sample: Sample) -> None:
        """Check that the sample has one answer, a reference, and, if required, a context."""
        if len(sample.answers) != 1 or not golds_of(sample):
            raise unreferenced(sample)
        if self.with_context:
            context_of(sample)

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        golds = golds_of(sample)
        if not self.judge_all and exact_match(sample.answers[0], golds[: None if self.validated else 1], self.exact):
            return judged(self, sample, (), LabelVerdict(label="correct"), decided_by="exact_match")
        if not sample.answers[0].strip():
            return judged(self, sample, (), LabelVerdict(label="incorrect"), decided_by="blank_answer")
        values = {"question": sample.question, "gold": sample.reference or "", "predicted": sample.answers[0]}
        if self.with_context:
            values["context"] = context_of(sample)
        prompt, room = self.prompt.render(values, chat=self.chat), self.max_tokens
        sampling = sampling_for(self, sample.id, room)
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        shown = self._read(completion)
        probability = None
        if self.distribution:
            [probability] = yield from ask_probabilities([shown], [prompt], _LABELS, read_label, max_tokens=room)
        return replace(labelled(self, sample, shown), probability=probability, decided_by="judge")

    def _read(self, completion: Completion) -> Shown:
        parse = partial(label_by, self.labels)
        needs_end = self.labels == "strict" or isinstance(parse("".join(completion.texts)), Unparsed)
        shown = read_reply(completion, parse, max_tokens=self.max_tokens, referenced=True, needs_end=needs_end)
        neither = self.labels != "strict" and shown.failure is not None and failure_of(completion) is None
        return replace(shown, label="incorrect") if neither else shown


def context_of(sample: Sample) -> str:
    """Return a sample's context."""
    context = sample.metadata.get("context")
    if not isinstance(context, str) or not context.strip():
        raise InputError(f'sample {sample.id}: it has no "context"; add one to each row, or set with_context to false')
    return context
