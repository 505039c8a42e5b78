"""Judging with the judge's own answers: correctness of one answer (Self-Reference) or pairs (SSR-Judge).

Answers from an earlier run are reused if `metadata["solves"]` lists them as `{"text": ..., "answer": ...}`.

Source: Self-Reference, equations 2 and 6, section 5.1, Figures 3 and 8 to 11; SSR-Judge, sections 3.2 to 3.4 and 4.1 (k
= 5, temperature 0.7, tau = 4/5), equations 1 and 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import failure_of, labelled, read_reply, thinking_of, with_usage
from judgelm.modes.flow import Flow, RequestFlow
from judgelm.modes.labels import PLACES, LabelPairMode, ask_missing_labels, ask_probabilities, compare_by_label
from judgelm.modes.mode import BatchMode, SampledMode, check_above_zero, pair_orders, sampling_for
from judgelm.parsing.short_answers import Task, final_answer, majority
from judgelm.parsing.verdicts import read_verdict
from judgelm.prompts.self_reference import (
    SELF_REFERENCE,
    SSR,
    comparing_prompt,
    judging_prompt,
    question_of,
    solving_prompt,
)
from judgelm.records import Judgment, Request, Sample, SelfAnswer, Unparsed

_NEXT_QUESTION = ("\nThe question is:", "\nQuestion:", "\n[System]", "\n[Question]", "\n[User Question]")
"""Base models do not end their reply but start another question."""


@dataclass(frozen=True, slots=True)
class Solver:
    """Ask the judge the question `count` times (k in the papers) in a single request."""

    task: Task
    count: int
    temperature: float
    max_tokens: int
    seed: int = 0
    chat: bool = True

    def __post_init__(self) -> None:
        if self.count > 1 and self.temperature == 0:
            raise ConfigError(f"{self.count} solves at temperature 0 would be identical; set a temperature above 0")

    def __call__(self, sample: Sample) -> RequestFlow[tuple[SelfAnswer, ...] | Unparsed]:
        """Return the sample's saved answers, or else generate new ones."""
        if (saved := self.saved(sample)) is not None:
            return saved
        [completion] = yield [self.request(sample)]
        if (failure := failure_of(completion)) is not None:
            return failure
        letters = question_of(sample).letters
        return tuple(
            SelfAnswer(
                text=text,
                answer=final_answer(text, self.task, letters=letters, finished=reason == "stop"),
                thinking=thinking_of(completion, index),
            )
            for index, (text, reason) in enumerate(zip(completion.texts, completion.finish_reasons, strict=True))
        )

    def request(self, sample: Sample) -> Request:
        """Return the request for `count` replies."""
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stops(chat=self.chat))
        prompt = solving_prompt(sample, self.task, chat=self.chat)
        return Request(key="solve", prompt=prompt, sampling=replace(sampling, n=self.count))

    def saved(self, sample: Sample) -> tuple[SelfAnswer, ...] | None:
        """Return the first `count` answers saved by an earlier run, if any.

        Raises:
            InputError: the format of the saved answers is wrong, or fewer than `count` are saved.
        """
        solves = sample.metadata.get("solves")
        if solves is None:
            return None
        if not isinstance(solves, Sequence) or isinstance(solves, str):
            raise _wrong(sample, "expected a list of {text, answer} objects")
        if len(solves) < self.count:
            raise _wrong(sample, f"expected {self.count} solves, got {len(solves)}")
        letters = question_of(sample).letters
        return tuple(self._read(sample, solve, letters) for solve in solves[: self.count])

    def _read(self, sample: Sample, solve: object, letters: int) -> SelfAnswer:
        if isinstance(solve, SelfAnswer):
            return solve
        text = solve.get("text") if isinstance(solve, Mapping) else None
        if not isinstance(solve, Mapping) or not isinstance(text, str):
            raise _wrong(sample, "one of the solves has no text")
        answer = solve["answer"] if "answer" in solve else final_answer(text, self.task, letters=letters)
        if answer is not None and not isinstance(answer, str):
            raise _wrong(sample, "the answer of one of the solves is not a string")
        return SelfAnswer(text=text, answer=answer)


def stops(*, chat: bool) -> tuple[str, ...]:
    """Return the stop strings, which prevent base models from starting another question."""
    return () if chat else _NEXT_QUESTION


def _wrong(sample: Sample, finding: str) -> InputError:
    return InputError(f'sample {sample.id}: field "solves": {finding}; correct or remove the field')


SelfReference = Literal["cot", "guided"]

LABELS: Mapping[str, str] = {"correct": "Correct", "incorrect": "Incorrect"}

_read = partial(read_verdict, labels=LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctness(SampledMode):
    """Judge one answer as `correct` or `incorrect`.

    The answer is never cut, because its end contains the part to judge. A prompt that does not fit fails as `too_long`.
    The sample's reference is never shown to the judge.

    Attributes:
        task: for `number` and `choice`, the sample's answer is an answer to the question. For `preference` (the
            meta-judge), it is another judge's verdict (`[[A]]`, `[[B]]`, or `[[C]]`) on the sample's `pair` of answers.
        self_reference: `cot` shows no reference (Figures 8 and 9). `guided` shows the judge's own complete answer as
            the reference (Figures 10 and 11): the first of the sample's `solves`, or else a newly generated answer.
        distribution: request P(correct) at the label's position.
        solve_tokens: token limit for the judge's own answer.
    """

    name: ClassVar[str] = "correctness"
    shown_fields: ClassVar[tuple[str, ...]] = ("options", "pair")
    reasons_first: ClassVar[bool] = True
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
    max_tokens: int = 1024
    solve_tokens: int = 1024

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens", "solve_tokens")

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return whether self-reference is guided."""
        return options.get("self_reference") == "guided"

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        solved = (yield from self._solver()(sample)) if self.self_reference == "guided" else ()
        if isinstance(solved, Unparsed):  # there is no reference without the judge's own answer
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
        """Check that the sample has all required inputs."""
        judging_prompt(sample, self.task, None, chat=self.chat)
        self._solver().request(sample)

    def _solver(self) -> Solver:
        return Solver(self.task, 1, self.temperature, self.solve_tokens, self.seed, self.chat)


When = Literal["selective", "always", "never"]


_read_ssr = partial(read_verdict, labels=PLACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveSelfReference(LabelPairMode):
    """Judge a pair, using the judge's own majority answer as the reference if enough of its answers agree.

    The judge answers the question `solves` times. If the share of the most common final answer is at least `tau`, this
    answer is presented as correct, without its reasoning. Among equally common answers, the first is used.
    If the two orders disagree, the verdict is a tie. Responses are never cut, because their final answer is at the end.
    The sample's reference is never shown.

    Attributes:
        when: `selective` shows the answer if enough answers agree. For comparison, `always` shows it regardless of
            agreement, and `never` does not show it.
        task: `choice` or `number`.
        solves: number of answers to generate (k). If the sample has saved `solves`, they are used instead.
        tau: minimum share of answers that must agree, in [0, 1].
        solve_temperature: temperature for generating these answers; must be above 0 if there are several.
        solve_tokens: token limit for each of these answers.
        distribution: request P(first better) at the verdict's position, averaged over both orders.
    """

    name: ClassVar[str] = "ssr"
    shown_fields: ClassVar[tuple[str, ...]] = ("options",)
    retry_needs_grammar: ClassVar[bool] = False
    reference: ClassVar[Literal["ignore"]] = "ignore"
    answers: ClassVar[tuple[int, int]] = (2, 2)
    template: ClassVar[str] = SSR.id
    template_sha: ClassVar[str] = SSR.sha

    when: When = "selective"
    task: Task = "choice"
    solves: int = 5
    tau: float = 0.8
    solve_temperature: float = 0.7
    solve_tokens: int = 1024
    both_orders: bool = True
    chat: bool = True

    def __post_init__(self) -> None:
        if self.task == "preference":
            raise ConfigError("task preference has no final answers to compare; use task choice or number")
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"tau is {self.tau}; it must be between 0 and 1")
        check_above_zero(self, "max_tokens", "solves", "solve_tokens")
        self._solver()  # raises an error if the options are invalid

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return True."""
        return True

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        BatchMode.check(self, sample)
        solver = self._solver()
        solved = (solver.saved(sample) or ()) if self.when == "never" else (yield from solver(sample))
        if isinstance(solved, Unparsed):
            return Judgment(sample_id=sample.id, mode=self.name, verdict=None, shown=(), failure=solved)
        reference = self.reference_of(solved)
        orders = pair_orders(self.both_orders)
        prompts = [comparing_prompt(sample, order, reference, chat=self.chat) for order in orders]
        judgment = yield from compare_by_label(
            self, sample, prompts, _read_ssr, stop=stops(chat=self.chat), referenced=reference is not None
        )
        return replace(judgment, self_answers=solved, own_reference=reference)

    def check(self, sample: Sample) -> None:
        """Check that the sample has all required inputs."""
        comparing_prompt(sample, (0, 1), None, chat=self.chat)
        self._solver().request(sample)

    def reference_of(self, solved: Sequence[SelfAnswer]) -> str | None:
        """Return the majority answer, or None if it is not shown."""
        if self.when == "never" or not solved:
            return None
        common = majority([solve.answer for solve in solved])
        return common.answer if self.when == "always" or common.passes(self.tau) else None

    def _solver(self) -> Solver:
        return Solver(self.task, self.solves, self.solve_temperature, self.solve_tokens, self.seed, self.chat)
