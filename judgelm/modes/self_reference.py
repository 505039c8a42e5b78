"""Judgments beside the judge's own answers: correctness of one answer (Self-Reference), the better of two (SSR-Judge).

All `k` own answers to a question are one request, so the engine reads the question once. What an earlier run answered
is used again: a sample whose `metadata["solves"]` holds a list of `{"text": ..., "answer": ...}`, as the rows of run
files have it under `solves`, is not asked anything.

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
from judgelm.modes.mode import BatchMode, check_above_zero, pair_orders, sampling_for
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
"""A base model, which knows no end, begins another question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """Ask the judge the question itself.

    Attributes:
        task: what the question asks for; it decides prompt and extraction.
        count: how many answers, k in the papers.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: most tokens of an answer; one that has no end by then rarely has a final answer (None).
        chat: one user message for the tokenizer's chat template; else plain text, for base models.

    Raises:
        ConfigError: no such task, no answers, or several greedy ones, which would all be the same.
    """

    task: Task
    count: int
    temperature: float
    max_tokens: int
    seed: int = 0
    chat: bool = True

    def __post_init__(self) -> None:
        if self.count < 1 or self.max_tokens < 1:
            raise ConfigError(f"{self.count} solves of {self.max_tokens} tokens: both must be 1 or more")
        if not self.temperature >= 0:
            raise ConfigError(f"solve temperature is {self.temperature}; it must be 0 or above")
        if self.count > 1 and self.temperature == 0:
            raise ConfigError(f"{self.count} solves at temperature 0 are all the same; set a temperature above 0")

    def __call__(self, sample: Sample) -> RequestFlow[tuple[SelfAnswer, ...] | Unparsed]:
        """The sample's own solves, else those of one request, in the order drawn.

        Raises:
            InputError: the sample lacks what the task needs, or has too few solves of its own.
        """
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
        """One prompt, `count` replies."""
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stops(chat=self.chat))
        prompt = solving_prompt(sample, self.task, chat=self.chat)
        return Request(key="solve", prompt=prompt, sampling=replace(sampling, n=self.count))

    def saved(self, sample: Sample) -> tuple[SelfAnswer, ...] | None:
        """The first `count` of the solves that an earlier run left with the sample; None where it left none.

        A solve without the field `answer` has its answer extracted from the text.

        Raises:
            InputError: they are no solves, or fewer than `count`, so that a share of them would mean something else.
        """
        solves = sample.metadata.get("solves")
        if solves is None:
            return None
        if not isinstance(solves, Sequence) or isinstance(solves, str):
            raise _wrong(sample, "expected a list of {text, answer}")
        if len(solves) < self.count:
            raise _wrong(sample, f"expected {self.count} solves, got {len(solves)}")
        letters = question_of(sample).letters
        return tuple(self._read(sample, solve, letters) for solve in solves[: self.count])

    def _read(self, sample: Sample, solve: object, letters: int) -> SelfAnswer:
        if isinstance(solve, SelfAnswer):
            return solve
        text = solve.get("text") if isinstance(solve, Mapping) else None
        if not isinstance(solve, Mapping) or not isinstance(text, str):
            raise _wrong(sample, "a solve has no text")
        answer = solve["answer"] if "answer" in solve else final_answer(text, self.task, letters=letters)
        if answer is not None and not isinstance(answer, str):
            raise _wrong(sample, "a solve's answer is no text")
        return SelfAnswer(text=text, answer=answer)


def stops(*, chat: bool) -> tuple[str, ...]:
    """Stop strings of a reply that reasons first: a base model's ends where it begins another question."""
    return () if chat else _NEXT_QUESTION


def _wrong(sample: Sample, finding: str) -> InputError:
    return InputError(f'sample {sample.id}: field "solves": {finding}; correct it, or leave it out to solve anew')


SelfReference = Literal["cot", "guided"]

LABELS: Mapping[str, str] = {"correct": "Correct", "incorrect": "Incorrect"}
"""Labels, and the words that the prompts ask for."""

_read = partial(read_verdict, labels=LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctness(BatchMode):
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
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024
    solve_tokens: int = 1024

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens")
        self._solver()  # raises where its options do not fit

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return True for guided self-reference."""
        return options.get("self_reference") == "guided"

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


When = Literal["selective", "always", "never"]


_read_ssr = partial(read_verdict, labels=PLACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveSelfReference(LabelPairMode):
    """Judge a pair; the judge's own majority answer is the reference where enough of its answers agree.

    The judge answers the question `solves` times in one request. The gate is on where the share of the most common
    answer among all of them, those without an answer included, is at least `tau`. Then that answer alone, not its
    reasoning, stands in the prompt; else there is no reference. Of equally common answers the one drawn first counts.

    Both orders must name the same response; where each names another, the vote is one to one: the winner is `tie` and
    `consistent` is False. Neither response is cut to fit the window, since its final answer stands at its end: a prompt
    that does not fit is a `too_long` failure. A reference that the sample has is never shown.

    Attributes:
        when: `selective`, or the two it is compared with: `always` shows the majority answer whatever the agreement
            (and none where no solve has one), `never` shows none, and asks for no solves of its own.
        task: `choice` or `number`, what a solve ends in.
        solves: how many answers the judge gives, k. Where the sample has `solves` of an earlier run, the first
            k of them are used and none are drawn, so that all ways and every tau can be compared on the same ones.
        tau: least agreement for the gate to be on, in [0, 1].
        solve_temperature: of the solves, above 0 where there are several.
        solve_tokens: room for each.
        both_orders: show the responses a second time, exchanged.
        accept_one_order: where one of two orders failed, take the other's verdict instead of failing.
        chat: one user message for the tokenizer's chat template; else plain text, for base models.
        distribution: ask for P(first better) where the verdict stands, in requests that continue the replies; the
            judgment's is the mean over the orders.
        retry_unparseable: ask for the more probable label behind a reply that has no readable verdict.
        temperature: of the judgments; 0 is greedy.
        seed: each sample draws with its own seed, made of this and its id.
        max_tokens: room for a judgment, its reasoning included.

    Raises:
        ConfigError: options that do not exist or do not fit together.
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
    accept_one_order: bool = False
    chat: bool = True
    distribution: bool = False
    retry_unparseable: bool = False
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.task == "preference":
            raise ConfigError("task preference has no answers that could agree; use choice or number")
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"tau is {self.tau}; it is a share of the solves, 0 to 1")
        check_above_zero(self, "max_tokens")
        self._solver()  # raises where its options do not fit

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return True."""
        return True

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Solve where that is needed, choose the reference, ask for each order, conclude.

        Raises:
            InputError: the sample has not exactly two answers, or has too few solves of its own.
        """
        BatchMode.check(self, sample)
        solver = self._solver()
        solved = (solver.saved(sample) or ()) if self.when == "never" else (yield from solver(sample))
        if isinstance(solved, Unparsed):  # a judge that cannot answer the question is not shown the answers
            return Judgment(sample_id=sample.id, mode=self.name, verdict=None, shown=(), failure=solved)
        reference = self.reference_of(solved)
        orders = pair_orders(self.both_orders)
        prompts = [comparing_prompt(sample, order, reference, chat=self.chat) for order in orders]
        judgment = yield from compare_by_label(
            self, sample, prompts, _read_ssr, stop=stops(chat=self.chat), referenced=reference is not None
        )
        return replace(judgment, self_answers=solved, own_reference=reference)

    def check(self, sample: Sample) -> None:
        """See that the sample has what the task needs.

        Raises:
            InputError: it has not.
        """
        comparing_prompt(sample, (0, 1), None, chat=self.chat)
        self._solver().request(sample)

    def reference_of(self, solved: Sequence[SelfAnswer]) -> str | None:
        """The majority answer where it is to be shown."""
        if self.when == "never" or not solved:
            return None
        common = majority([solve.answer for solve in solved])
        return common.answer if self.when == "always" or common.passes(self.tau) else None

    def _solver(self) -> Solver:
        return Solver(
            task=self.task,
            count=self.solves,
            temperature=self.solve_temperature,
            max_tokens=self.solve_tokens,
            seed=self.seed,
            chat=self.chat,
        )
