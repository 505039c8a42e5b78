"""Correctness of one answer, with the judge's own answer as the reference or without.

Source: Self-Reference, equation 6 (pointwise judgment), section 5.1 (self-reference), Figures 3 and 8 to 11.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from judgelm.modes.completions import labelled, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.label_probability import ask_missing_labels, ask_probabilities
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.modes.self_answers import Solver, stops
from judgelm.parsing.short_answers import Task
from judgelm.parsing.verdicts import read_verdict
from judgelm.prompts.self_reference import SELF_REFERENCE, judging_prompt
from judgelm.records import Judgment, Request, Sample, Unparsed

SelfReference = Literal["cot", "guided"]

LABELS: Mapping[str, str] = {"correct": "Correct", "incorrect": "Incorrect"}
"""Labels, and the words that the prompts ask for."""

_read = partial(read_verdict, labels=LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctness:
    """Judge one answer: `correct` or `incorrect`.

    The verdict is a `LabelVerdict`, and `probability` is P(correct). The answer is never cut to fit the window, since
    what is judged stands at its end: a prompt that does not fit is a `too_long` failure. A reference that the sample
    has is never shown: here it is the truth that judgments are measured with.

    Attributes:
        task: `number` and `choice` judge an answer to the question. `preference` is the meta-judge: the answer is a
            judge's verdict `[[A]]`, `[[B]]` or `[[C]]` on the two answers in the sample's `pair`.
        self_reference: `cot` shows no reference (Figures 8, 9). `guided` lets the judge answer the question first, or
            takes the first of the sample's own `solves`, and shows the whole of that answer, its
            reasoning included, as the reference (Figures 10, 11).
        chat: one user message for the tokenizer's chat template; else plain text, for base models.
        distribution: ask for P(correct) where the label stands, in a second request that continues the reply.
        retry_unparseable: ask for the more probable label behind a reply that has no readable verdict.
        temperature: of solve and judgment; 0 is greedy, as in the paper; otherwise each sample draws with its own
            seed, made of `seed` and its id.
        max_tokens: room for a judgment, its reasoning included.
        solve_tokens: room for the judge's own answer.

    Raises:
        ConfigError: options that do not exist.
    """

    name: ClassVar[str] = "correctness"
    retry_needs_grammar: ClassVar[bool] = False
    reference: ClassVar[Literal["ignore"]] = "ignore"
    answers: ClassVar[tuple[int, int]] = (1, 1)
    template: ClassVar[str] = SELF_REFERENCE.id
    template_sha: ClassVar[str] = SELF_REFERENCE.sha

    task: Task = "choice"
    self_reference: SelfReference = "cot"
    chat: bool = True
    distribution: bool = False
    retry_unparseable: bool = False
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024
    solve_tokens: int = 1024

    def __post_init__(self) -> None:
        check_choices(self, self_reference=SelfReference)
        check_above_zero(self, "max_tokens")
        self._solver()  # raises where its options do not fit

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Solve where asked to, judge, and look at the label's probability where asked to.

        Raises:
            InputError: the sample has not exactly one answer, or lacks what the task needs.
        """
        solved = (yield from self._solver()(sample)) if self.self_reference == "guided" else ()
        if isinstance(solved, Unparsed):  # a judge that cannot answer the question is not shown the answer
            return Judgment(sample_id=sample.id, mode=self.name, verdict=None, shown=(), failure=solved)
        reference = solved[0].text if solved else None
        prompt = judging_prompt(sample, self.task, reference, chat=self.chat)
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stops(chat=self.chat))
        [reply] = yield [Request(key="judge", prompt=prompt, sampling=sampling)]
        shown = read_reply(reply, _read, max_tokens=self.max_tokens, referenced=reference is not None)
        if self.retry_unparseable:
            [shown] = yield from ask_missing_labels([shown], [prompt], [LABELS], max_tokens=self.max_tokens)
        probability = None
        if self.distribution:
            [probability] = yield from ask_probabilities([shown], [prompt], LABELS, _read, max_tokens=self.max_tokens)
        judgment = labelled(self, sample, shown)
        return replace(judgment, probability=probability, self_answers=solved, own_reference=reference)

    def check(self, sample: Sample) -> None:
        """See that the sample has what the task needs.

        Raises:
            InputError: it has not.
        """
        judging_prompt(sample, self.task, None, chat=self.chat)
        self._solver().request(sample)

    def _solver(self) -> Solver:
        return Solver(
            task=self.task,
            count=1,
            temperature=self.temperature,
            max_tokens=self.solve_tokens,
            seed=self.seed,
            chat=self.chat,
        )
