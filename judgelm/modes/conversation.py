"""Dialogues of several turns: two assistants' with the same user as a pair, or one assistant's graded.

`judgelm.prompts.conversation` describes the form of dialogues in samples and prompts.

Source: MT-bench (Zheng et al. 2023), section 3: each turn is judged, the second with the whole dialogue before the
judge's eyes; a model's score is the mean over turns. JudgeLM, section 3.2, for the score line and both orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import ClassVar, Literal

from judgelm.errors import InputError
from judgelm.modes.completions import first_failure, graded, grades_of, read_reply, with_usage
from judgelm.modes.flow import Flow, interleave
from judgelm.modes.options import check_choices, sampling_for
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.reasons import explain, to_explain
from judgelm.parsing.scores import parse_scores, score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import (
    WHOLE,
    DialogueView,
    dialogue_of,
    dialogue_prompt,
    dialogue_sha,
    grading_prompt,
    turn_view,
    whole_view,
)
from judgelm.records import PairDistribution, Prompt, Request, Sample, Shown

Turns = Literal["each", "last", "whole"]

FOLLOW_UP = "follow-up"
"""Begins the `Shown.part` of a question that was asked about a judgment (`judgelm.modes.chat`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Pairwise):
    """Judge dialogues; a sample of two answers is a pair of them, a sample of one answer is graded.

    `Judgment.shown` has one entry for each turn and order, named by `part` (`turn 1`, or `dialogue`). What each order
    says of the dialogue is the mean of its turns' scores (`per_order`), and from there on a pair of dialogues is
    concluded as any pair: order rule, tie threshold, consistency and probability. An order one of whose turns failed
    has failed: a mean over the other turns would be of another dialogue.

    One dialogue is graded behind the dialogue of its references where every turn shown has one, as JudgeLM grades a
    single answer (the references have the full score, and the judge continues it); else in the prompt of a plain
    grade (`judgelm.prompts.catalog`). The verdict is the mean over turns; `distribution` gives each turn's
    `Shown.grades`. Orders and retries are of pairs and do not concern it.

    Attributes:
        turns: `each` judges every turn, shown with those before it, as MT-Bench does; `last` only the last one; `whole`
            all of them in one judgment.

    The others are those of `Pairwise`; `reasons` are asked for turn by turn.

    Raises:
        ConfigError: options that do not exist or do not fit together.
    """

    name: ClassVar[str] = "conversation"
    answers: ClassVar[tuple[int, int]] = (1, 2)

    turns: Turns = "each"

    def __post_init__(self) -> None:
        """Check the options of pairs, and which turns."""
        Pairwise.__post_init__(self)
        check_choices(self, turns=Turns)

    @property
    def template_sha(self) -> str:
        """Hash of the template's bytes and of what dialogues add to them."""
        return dialogue_sha(get_template(self.template))

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge the turns concurrently and merge them.

        Raises:
            InputError: as `check`.
        """
        self.check(sample)
        single = len(sample.answers) == 1
        views = self.views(sample)
        parts = yield from interleave([(self._grade if single else self._compare)(sample, view) for view in views])
        shown = tuple(
            replace(reply, part=view.part, referenced=view.referenced)
            for view, part in zip(views, parts, strict=True)
            for reply in part.shown
        )
        merged = per_order(shown)
        judgment = graded(self, sample, merged[0]) if single else self._conclude(sample, merged)
        return replace(judgment, shown=shown)

    def check(self, sample: Sample) -> None:
        """See that a sample holds one dialogue or two.

        Raises:
            InputError: it does not.
        """
        if len(sample.answers) not in (1, 2):
            raise InputError(
                f"sample {sample.id}: expected 1 or 2 answers, got {len(sample.answers)}; use another mode"
            )
        dialogue_of(sample)

    def views(self, sample: Sample) -> list[DialogueView]:
        """The parts of the dialogue that are judged, each in one prompt (or in two orders).

        Raises:
            InputError: the sample's turns are no dialogue.
        """
        turns = dialogue_of(sample, referenced=self.reference != "ignore")
        if self.turns == "whole":
            return [whole_view(turns)]
        first = len(turns) if self.turns == "last" else 1
        return [turn_view(turns, count) for count in range(first, len(turns) + 1)]

    def prompt_of(self, sample: Sample, order: tuple[int, ...], part: str = "") -> Prompt:
        """The prompt of `part`, as `Shown.part` names it; of the first part where it is empty."""
        views = self.views(sample)
        return self._prompt(next((view for view in views if view.part == part), views[0]), order)

    def _prompt(self, view: DialogueView, order: tuple[int, ...]) -> Prompt:
        template = get_template(self.template)
        if len(order) == 1 and not view.anchored:
            return grading_prompt(template, view, scale=self.scale)
        return dialogue_prompt(template, view, order, full_score=self.scale[1])

    def _compare(self, sample: Sample, view: DialogueView) -> Flow:
        """Both assistants, in all orders."""
        return self.ask(_seeded(sample, view), [self._prompt(view, order) for order in self.orders])

    def _grade(self, sample: Sample, view: DialogueView) -> Flow:
        """One assistant, and the reason where one is asked for."""
        seeded, prompt = _seeded(sample, view), self._prompt(view, (0,))
        sampling = sampling_for(self, seeded.id, self.max_tokens, stop=("\n",))
        lines = self._grade_lines(prompt) if self.distribution else {}
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling, candidates=tuple(lines))]
        shown = read_reply(completion, partial(parse_scores, count=1, scale=self.scale), max_tokens=self.max_tokens)
        judgment = graded(self, sample, replace(shown, grades=grades_of(tuple(lines.values()), completion)))
        sampling = sampling_for(self, seeded.id, self.reason_tokens, reserve=self.max_tokens)
        return (
            yield from explain(judgment, to_explain(judgment, self.reasons, self.close_threshold), [prompt], sampling)
        )

    def _grade_lines(self, prompt: Prompt) -> dict[str, float]:
        """Every reply that is a grade, and the grade; behind the references' score a blank comes first."""
        blank = " " if prompt.prefill else ""
        return {f"{blank}{value:g}": value for value in score_lines(self.scale, self.step).values}


def per_order(shown: Sequence[Shown]) -> tuple[Shown, ...]:
    """Merge the turns of each order into one `Shown` for the whole dialogue.

    Scores, expected scores and probabilities are means over the turns; the failure is that of the first turn that
    failed; the unassigned probability is that of the turn with most of it, so that an order has a P(first better) only
    where each turn has. Texts stand below each other. An order shown once is given as it is, and follow-up questions,
    which judge nothing, are left out; so this can be had of any judgment of a pair.
    """
    judged = [reply for reply in shown if not reply.part.startswith(FOLLOW_UP)]
    orders = list(dict.fromkeys(reply.order for reply in judged))
    return tuple(_merged([reply for reply in judged if reply.order == order]) for order in orders)


def _merged(turns: Sequence[Shown]) -> Shown:
    if len(turns) == 1:
        return turns[0]
    scores = [turn.scores for turn in turns if turn.scores is not None]
    distributions = [turn.distribution for turn in turns if turn.distribution is not None]
    failure = first_failure(turns)
    return Shown(
        order=turns[0].order,
        text="\n".join(turn.text for turn in turns),
        part=WHOLE,
        scores=None if failure is not None else tuple(fmean(values) for values in zip(*scores, strict=True)),
        referenced=all(turn.referenced for turn in turns),
        failure=failure,
        repaired=next((turn.repaired for turn in turns if turn.repaired is not None), None),
        distribution=_mean_distribution(distributions) if len(distributions) == len(turns) else None,
    )


def _mean_distribution(turns: Sequence[PairDistribution]) -> PairDistribution:
    return PairDistribution(
        expected=(fmean(turn.expected[0] for turn in turns), fmean(turn.expected[1] for turn in turns)),
        first_better=fmean(turn.first_better for turn in turns),
        tie=fmean(turn.tie for turn in turns),
        unassigned=max(turn.unassigned for turn in turns),
        likeliest=(),
        approximation="; ".join(dict.fromkeys(turn.approximation for turn in turns if turn.approximation)),
    )


def _seeded(sample: Sample, view: DialogueView) -> Sample:
    """The sample under an id of the part's own, so that drawn replies to several turns are not drawn alike."""
    return replace(sample, id=f"{sample.id} {view.part}")
