"""The better of two responses, with the judge's own answer beside them only where its answers agree.

Source: SSR-Judge, sections 3.2 to 3.4 and 4.1 (k = 5, temperature 0.7, tau = 4/5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import compared, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.label_probability import ask_missing_labels, ask_probabilities, mean_probability
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.modes.self_answers import Solver, stops
from judgelm.parsing.short_answers import Task, majority
from judgelm.parsing.verdicts import read_verdict
from judgelm.prompts.self_reference import SSR, comparing_prompt
from judgelm.records import Judgment, Request, Sample, SelfAnswer, Unparsed

When = Literal["selective", "always", "never"]

LABELS: Mapping[str, str] = {"1": "1", "2": "2"}
"""In `Shown.label`: the place, in the order shown, of the better response."""

_read = partial(read_verdict, labels=LABELS)

_GIVEN, _SWAPPED = (0, 1), (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveSelfReference:
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
        check_choices(self, when=When)
        if self.task == "preference":
            raise ConfigError("task preference has no answers that could agree; use choice or number")
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"tau is {self.tau}; it is a share of the solves, 0 to 1")
        check_above_zero(self, "max_tokens")
        self._solver()  # raises where its options do not fit

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Solve where that is needed, choose the reference, ask for each order, conclude.

        Raises:
            InputError: the sample has not exactly two answers, or has too few solves of its own.
        """
        if len(sample.answers) != 2:
            raise InputError(f"sample {sample.id}: expected 2 answers, got {len(sample.answers)}; ssr judges pairs")
        solver = self._solver()
        solved = (solver.saved(sample) or ()) if self.when == "never" else (yield from solver(sample))
        if isinstance(solved, Unparsed):  # a judge that cannot answer the question is not shown the answers
            return Judgment(sample_id=sample.id, mode=self.name, verdict=None, shown=(), failure=solved)
        reference = self.reference_of(solved)
        orders = (_GIVEN, _SWAPPED) if self.both_orders else (_GIVEN,)
        prompts = [comparing_prompt(sample, order, reference, chat=self.chat) for order in orders]
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stops(chat=self.chat))
        replies = yield [
            Request(key=str(index), prompt=prompt, sampling=sampling) for index, prompt in enumerate(prompts)
        ]
        shown = [
            read_reply(reply, _read, max_tokens=self.max_tokens, order=order, referenced=reference is not None)
            for order, reply in zip(orders, replies, strict=True)
        ]
        if self.retry_unparseable:
            shown = yield from ask_missing_labels(shown, prompts, [LABELS] * len(shown), max_tokens=self.max_tokens)
        judgment = compared(self, sample, shown, accept_one_order=self.accept_one_order)
        judgment = replace(judgment, self_answers=solved, own_reference=reference)
        if not self.distribution:
            return judgment
        values = yield from ask_probabilities(shown, prompts, LABELS, _read, max_tokens=self.max_tokens)
        probability = mean_probability(shown, values, accept_one_order=self.accept_one_order)
        return replace(judgment, probability=None if judgment.failure else probability)

    def check(self, sample: Sample) -> None:
        """See that the sample has what the task needs.

        Raises:
            InputError: it has not.
        """
        comparing_prompt(sample, _GIVEN, None, chat=self.chat)
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
