"""Which of two responses is better, with the judge's own answer beside them only where its answers agree.

Source: SSR-Judge, sections 3.2 to 3.4 and 4.1 (k = 5, temperature 0.7, tau = 4/5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError, InputError
from judgelm.modes.flow import Flow
from judgelm.modes.self_answers import Solved, Solving, judging_sampling
from judgelm.modes.verdicts import LabelProbabilities, ask_probabilities, read_labelled
from judgelm.parsing.final_answers import Task
from judgelm.parsing.majority import majority
from judgelm.prompts.ssr import SSR, comparing_prompt
from judgelm.records import Completion, Judgment, PairVerdict, Prompt, Request, Sample, Sampling, Shown, Winner

When = Literal["selective", "always", "never"]

LABELS: Mapping[str, str] = {"1": "1", "2": "2"}
"""In `Shown.label`: the place, in the order shown, of the better response."""

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
        solves: how many answers the judge gives, k. Where the sample brings along `solves` of an earlier run, the first
            k of them are used and none are drawn, so that all ways and every tau can be compared on the same ones.
        tau: least agreement for the gate to be on, in [0, 1].
        solve_temperature: of the solves, above 0 where there are several.
        solve_tokens: room for each.
        both_orders: show the responses a second time, exchanged.
        accept_one_order: where one of two orders failed, take the other's verdict instead of failing.
        chat: one user message for the tokenizer's chat template; else plain text, for base models.
        distribution: ask for P(first better) where the verdict stands, in requests that go on from the replies; the
            judgment's is the mean over the orders.
        temperature: of the judgments; 0 is greedy.
        seed: each sample draws with its own seed, made of this and its id.
        max_tokens: room for a judgment, its reasoning included.

    Raises:
        ConfigError: options that do not exist or do not fit together.
    """

    name: ClassVar[str] = "ssr"
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
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.when not in get_args(When):
            raise ConfigError(f"when {self.when!r} does not exist; there are: {', '.join(get_args(When))}")
        if self.task == "preference":
            raise ConfigError("task preference has no answers that could agree; use choice or number")
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"tau is {self.tau}; it is a share of the solves, 0 to 1")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it must be above 0")
        self._solving()  # raises where its options do not fit

    def __call__(self, sample: Sample) -> Flow:
        """Solve where that is needed, choose the reference, ask for each order, conclude.

        Raises:
            InputError: the sample has not exactly two answers, or brings along too few solves.
        """
        if len(sample.answers) != 2:
            raise InputError(f"sample {sample.id}: expected 2 answers, got {len(sample.answers)}; ssr judges pairs")
        solving = self._solving()
        if self.when == "never":
            solved = Solved(self_answers=solving.saved(sample) or ())
        else:
            solved = yield from solving(sample)
        if solved.failure is not None:
            return self._conclude(sample, solved, _Judged())
        reference = self.reference_of(solved)
        orders = (_GIVEN, _SWAPPED) if self.both_orders else (_GIVEN,)
        prompts = [comparing_prompt(sample, order, reference, chat=self.chat) for order in orders]
        sampling = self._sampling(sample)
        replies = yield [
            Request(key=str(place), prompt=prompt, sampling=sampling) for place, prompt in enumerate(prompts)
        ]
        shown = tuple(
            read_labelled(order, one, LABELS, max_tokens=self.max_tokens, referenced=reference is not None)
            for order, one in zip(orders, replies, strict=True)
        )
        labels = LabelProbabilities(values=(None,) * len(shown))
        if self.distribution:
            labels = yield from ask_probabilities(shown, prompts, LABELS, max_tokens=self.max_tokens)
        judged = _Judged(
            shown=shown, prompts=tuple(prompts), replies=tuple(replies), reference=reference, labels=labels
        )
        return self._conclude(sample, solved, judged)

    def check(self, sample: Sample) -> None:
        """See that the sample has what the task needs.

        Raises:
            InputError: it has not.
        """
        comparing_prompt(sample, _GIVEN, None, chat=self.chat)
        self._solving().request(sample)

    def reference_of(self, solved: Solved) -> str | None:
        """The majority answer where it is to be shown."""
        if self.when == "never" or not solved.self_answers:
            return None
        found = majority([solve.answer for solve in solved.self_answers])
        return found.answer if self.when == "always" or found.passes(self.tau) else None

    def _solving(self) -> Solving:
        return Solving(
            task=self.task,
            count=self.solves,
            temperature=self.solve_temperature,
            max_tokens=self.solve_tokens,
            seed=self.seed,
            chat=self.chat,
        )

    def _sampling(self, sample: Sample) -> Sampling:
        return judging_sampling(
            sample, temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens, chat=self.chat
        )

    def _conclude(self, sample: Sample, solved: Solved, judged: "_Judged") -> Judgment:
        winners = [winner for one in judged.shown if (winner := winner_shown(one)) is not None]
        failure = solved.failure or next((one.failure for one in judged.shown if one.failure is not None), None)
        if winners and self.accept_one_order:
            failure = None
        agreed: Winner = winners[0] if len(set(winners)) == 1 else "tie"
        asked = (*solved.completions, *judged.replies, *judged.labels.completions)
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if failure is not None else PairVerdict(winner=agreed),
            shown=judged.shown,
            consistent=winners[0] == winners[1] if len(winners) == 2 else None,
            probability=None if failure is not None else self._probability(judged),
            failure=failure,
            sanitized=solved.sanitized
            + sum(prompt.sanitized for prompt in judged.prompts)
            + sum(reply.sanitized for reply in judged.replies),
            prompt_tokens=sum(one.prompt_tokens for one in asked),
            completion_tokens=sum(one.completion_tokens for one in asked),
            self_answers=solved.self_answers,
            own_reference=judged.reference,
        )

    def _probability(self, judged: "_Judged") -> float | None:
        """P(the sample's first is better), the mean over all orders, or over those read where one is enough."""
        values = [
            value if value is None or one.order == _GIVEN else 1 - value
            for one, value in zip(judged.shown, judged.labels.values, strict=True)
        ]
        known = [value for value in values if value is not None]
        if not known or (len(known) < len(values) and not self.accept_one_order):
            return None
        return sum(known) / len(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What was shown; nothing where the judge could not even answer the question."""

    shown: tuple[Shown, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    replies: tuple[Completion, ...] = ()
    reference: str | None = None
    labels: LabelProbabilities = field(default_factory=lambda: LabelProbabilities(values=()))


def winner_shown(shown: Shown) -> Winner | None:
    """The better response of one order, in sample order; None where that order failed."""
    if shown.label is None:
        return None
    return 1 if shown.order[int(shown.label) - 1] == 0 else 2
