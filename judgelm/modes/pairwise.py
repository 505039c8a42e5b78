"""Two answers side by side, scored on one line, in one order or both.

Source: JudgeLM, section 3.2 (grading, judging, reasoning), Figures 3 and 4; both orders as in section 6.1.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

from judgelm.modes.flow import Flow
from judgelm.parsing import parse_pair
from judgelm.prompts.catalog import get_template
from judgelm.records import (
    Completion,
    Judgment,
    PairVerdict,
    Prompt,
    Request,
    Sample,
    Sampling,
    Shown,
    Unparsed,
    Winner,
)

_GIVEN, _SWAPPED = (0, 1), (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """Judge a pair of answers.

    Attributes:
        template: id of the pair template.
        both_orders: show the answers a second time, exchanged.
        order_rule: two orders into one verdict: `mean` compares the mean scores, `tie` calls a conflict a tie (the
            PandaLM protocol).
        accept_one_order: when one of two orders failed, take the verdict of the other instead of failing.
        reference: `auto` shows a reference where the sample has one, `use` expects one, `ignore` never shows it.
        scale: lowest and highest score of the judge.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the score line.
    """

    template: str = "judgelm-v1"
    both_orders: bool = False
    order_rule: Literal["mean", "tie"] = "mean"
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    scale: tuple[float, float] = (1, 10)
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 24

    def __call__(self, sample: Sample) -> Flow:
        """Ask for the score line of each order and put the scores back in sample order."""
        orders = (_GIVEN, _SWAPPED) if self.both_orders else (_GIVEN,)
        prompts = [self._prompt(sample, order) for order in orders]
        sampling = self._sampling(sample)
        completions = yield [
            Request(key=str(place), prompt=prompt, sampling=sampling) for place, prompt in enumerate(prompts)
        ]
        shown = tuple(self._read(order, completion) for order, completion in zip(orders, completions, strict=True))
        return self._conclude(sample, shown, prompts, completions)

    def _prompt(self, sample: Sample, order: tuple[int, int]) -> Prompt:
        reference = None if self.reference == "ignore" else sample.reference
        return get_template(self.template).render(sample, order, reference)

    def _sampling(self, sample: Sample) -> Sampling:
        if self.temperature == 0:
            return Sampling(max_tokens=self.max_tokens, stop=("\n",))
        digest = hashlib.blake2b(f"{self.seed}:{sample.id}".encode(errors="surrogatepass"), digest_size=4).digest()
        seed = int.from_bytes(digest, "big")
        return Sampling(max_tokens=self.max_tokens, stop=("\n",), temperature=self.temperature, seed=seed)

    def _read(self, order: tuple[int, int], completion: Completion) -> Shown:
        """One reply, parsed; a reply that was cut off is a failure even where its beginning looks like scores."""
        reason = completion.finish_reasons[0]
        if reason == "error":
            return Shown(order=order, text="", failure=Unparsed("engine", completion.error), cut=completion.cut)
        if reason == "too_long":
            return Shown(order=order, text="", failure=Unparsed("too_long", "", completion.error))
        text = completion.texts[0]
        if reason == "length":
            why = f"no end of line within {self.max_tokens} tokens"
            return Shown(order=order, text=text, failure=Unparsed("truncated", text, why), cut=completion.cut)
        parsed = parse_pair(text, self.scale)
        if isinstance(parsed, Unparsed):
            return Shown(order=order, text=text, failure=parsed, cut=completion.cut)
        return Shown(order=order, text=text, scores=parsed.values, cut=completion.cut)

    def _conclude(
        self, sample: Sample, shown: tuple[Shown, ...], prompts: list[Prompt], completions: list[Completion]
    ) -> Judgment:
        by_order = [in_sample_order(one) for one in shown]
        read = [scores for scores in by_order if scores is not None]
        failure = next((one.failure for one in shown if one.failure is not None), None)
        if read and self.accept_one_order:
            failure = None
        scores = None if failure else (_mean(read, 0), _mean(read, 1))
        winners = [winner_of(pair) for pair in read]
        verdict = None
        if scores is not None:
            conflict = self.order_rule == "tie" and len(set(winners)) > 1
            verdict = PairVerdict(winner="tie" if conflict else winner_of(scores))
        return Judgment(
            sample_id=sample.id,
            mode="pair",
            verdict=verdict,
            shown=shown,
            scores=scores,
            consistent=winners[0] == winners[1] if len(winners) == 2 else None,
            failure=failure,
            neutralised=sum(prompt.neutralised for prompt in prompts) + sum(one.neutralised for one in completions),
            prompt_tokens=sum(one.prompt_tokens for one in completions),
            completion_tokens=sum(one.completion_tokens for one in completions),
        )


def in_sample_order(shown: Shown) -> tuple[float, float] | None:
    """The scores of a shown pair, put back in sample order; None where there are none."""
    if shown.scores is None:
        return None
    first, second = shown.scores
    return (first, second) if shown.order == _GIVEN else (second, first)


def winner_of(scores: tuple[float, float]) -> Winner:
    """Which of two scores is higher."""
    if scores[0] == scores[1]:
        return "tie"
    return 1 if scores[0] > scores[1] else 2


def _mean(pairs: list[tuple[float, float]], place: int) -> float:
    return sum(pair[place] for pair in pairs) / len(pairs)
