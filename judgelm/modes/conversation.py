"""Dialogues of several turns: two assistants' with the same user as a pair, or one assistant's graded.

How a dialogue stands in a sample and in the prompt is said in `judgelm.prompts.conversation`.

Source: MT-bench (Zheng et al. 2023), section 3: each turn is judged, the second with the whole dialogue before the
judge's eyes; a model's score is the mean over turns. JudgeLM, section 3.2, for the score line and both orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError, InputError
from judgelm.modes.flow import Asking, Flow, Result
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.reasons import explain, places_to_explain
from judgelm.modes.score_replies import grade_distribution, read_scores
from judgelm.parsing.distribution import score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import (
    WHOLE,
    View,
    dialogue_of,
    dialogue_prompt,
    dialogue_sha,
    grading_prompt,
    turn_view,
    whole_view,
)
from judgelm.records import Completion, GradeVerdict, Judgment, PairDistribution, Prompt, Request, Sample, Shown

Turns = Literal["each", "last", "whole"]

FOLLOW_UP = "follow-up"
"""Begins the `Shown.part` of a question that was asked about a judgment (`judgelm.modes.chat`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Pairwise):
    """Judge dialogues; a sample of two answers is a pair of them, a sample of one answer is graded.

    `Judgment.shown` has one entry for each turn and order, named by `part` (`turn 1`, or `dialogue`). What each order
    says of the dialogue is the mean of its turns' scores (`per_order`), and from there on a pair of dialogues is
    concluded as any pair: order rule, tie band, consistency and probability. An order one of whose turns failed has
    failed: a mean over the other turns would be of another dialogue.

    One dialogue is graded behind the dialogue of its references where every turn shown has one, as JudgeLM grades a
    single answer (the references have the full score, and the judge goes on from it); else in the prompt of a plain
    grade (`judgelm.prompts.grading`). The verdict is the mean over turns; `distribution` gives each turn's
    `Shown.grades`. Orders and repair are of pairs and do not concern it.

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
        if self.turns not in get_args(Turns):
            raise ConfigError(f"turns {self.turns!r} does not exist; there are: {', '.join(get_args(Turns))}")

    @property
    def template_sha(self) -> str:
        """Hash of the template's bytes and of what dialogues add to them."""
        return dialogue_sha(get_template(self.template))

    def __call__(self, sample: Sample) -> Flow:
        """Judge the turns side by side, and make them one.

        Raises:
            InputError: as `check`.
        """
        self.check(sample)
        graded = len(sample.answers) == 1
        views = self.views(sample)
        parts = yield from side_by_side([(self._grade if graded else self._compare)(sample, view) for view in views])
        shown = tuple(
            replace(one, part=view.part, referenced=view.referenced)
            for view, part in zip(views, parts, strict=True)
            for one in part.shown
        )
        merged = per_order(shown)
        return replace(
            self._graded(sample, merged) if graded else self._conclude(sample, merged),
            shown=shown,
            sanitized=sum(part.sanitized for part in parts),
            prompt_tokens=sum(part.prompt_tokens for part in parts),
            completion_tokens=sum(part.completion_tokens for part in parts),
        )

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

    def views(self, sample: Sample) -> list[View]:
        """What of the dialogue is judged, one prompt (or two orders of it) for each.

        Raises:
            InputError: the sample's turns are no dialogue.
        """
        turns = dialogue_of(sample, referenced=self.reference != "ignore")
        if self.turns == "whole":
            return [whole_view(turns)]
        first = len(turns) if self.turns == "last" else 1
        return [turn_view(turns, number) for number in range(first, len(turns) + 1)]

    def prompt_of(self, sample: Sample, order: tuple[int, ...], part: str = "") -> Prompt:
        """What the judge sees of `part`, as `Shown.part` names it; the first part where it is empty."""
        views = self.views(sample)
        return self._prompt(next((view for view in views if view.part == part), views[0]), order)

    def _prompt(self, view: View, order: tuple[int, ...]) -> Prompt:
        template = get_template(self.template)
        if len(order) == 1 and not view.anchored:
            return grading_prompt(template, view, scale=self.scale)
        return dialogue_prompt(template, view, order, full_score=self.scale[1])

    def _compare(self, sample: Sample, view: View) -> Flow:
        """Both assistants, in all orders."""
        return self.ask(_seeded(sample, view), [self._prompt(view, order) for order in self.orders])

    def _grade(self, sample: Sample, view: View) -> Flow:
        """One assistant, and the reason where one is asked for."""
        seeded, prompt = _seeded(sample, view), self._prompt(view, (0,))
        sampling = self._sampling(seeded, self.max_tokens, stop=("\n",))
        lines = self._grade_lines(prompt) if self.distribution else {}
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling, candidates=tuple(lines))]
        shown = read_scores((0,), completion, count=1, scale=self.scale, max_tokens=self.max_tokens)
        if lines:
            shown = replace(shown, grades=grade_distribution(tuple(lines.values()), completion))
        judgment = replace(
            self._graded(sample, (shown,)),
            sanitized=prompt.sanitized + completion.sanitized,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )
        places = places_to_explain(judgment, self.reasons, self.close_band)
        # the reason goes on from the whole score line, the references' forced score included
        line = replace(shown, text=prompt.prefill + shown.text)
        going_on = replace(self._sampling(seeded, self.reason_tokens, stop=()), reserve=self.max_tokens)
        explained = yield from explain(replace(judgment, shown=(line,)), places, [prompt], going_on)
        return replace(explained, shown=(replace(explained.shown[0], text=shown.text),))

    def _grade_lines(self, prompt: Prompt) -> dict[str, float]:
        """Every reply that is a grade, and the grade; behind the references' score a blank comes first."""
        blank = " " if prompt.prefill else ""
        return {f"{blank}{value:g}": value for value in score_lines(self.scale, self.step).values}

    def _graded(self, sample: Sample, shown: Sequence[Shown]) -> Judgment:
        [one] = shown
        verdict = None if one.scores is None else GradeVerdict(score=one.scores[0])
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=verdict,
            shown=tuple(shown),
            scores=one.scores,
            failure=one.failure,
        )


def per_order(shown: Sequence[Shown]) -> tuple[Shown, ...]:
    """What each order says of the whole dialogue: one `Shown` for all of its turns.

    Scores, expected scores and probabilities are means over the turns; the failure is that of the first turn that
    failed; the unassigned probability is that of the turn with most of it, so that an order has a P(first better) only
    where each turn has. Texts stand below each other. An order shown once is given as it is, and follow-up questions,
    which judge nothing, are left out; so this can be had of any judgment of a pair.
    """
    judged = [one for one in shown if not one.part.startswith(FOLLOW_UP)]
    orders = list(dict.fromkeys(one.order for one in judged))
    return tuple(_merged([one for one in judged if one.order == order]) for order in orders)


def _merged(turns: Sequence[Shown]) -> Shown:
    if len(turns) == 1:
        return turns[0]
    scores = [one.scores for one in turns if one.scores is not None]
    distributions = [one.distribution for one in turns if one.distribution is not None]
    failure = next((one.failure for one in turns if one.failure is not None), None)
    return Shown(
        order=turns[0].order,
        text="\n".join(one.text for one in turns),
        part=WHOLE,
        scores=None if failure is not None else tuple(fmean(values) for values in zip(*scores, strict=True)),
        referenced=all(one.referenced for one in turns),
        failure=failure,
        repaired=next((one.repaired for one in turns if one.repaired is not None), None),
        distribution=_mean_distribution(distributions) if len(distributions) == len(turns) else None,
    )


def _mean_distribution(turns: Sequence[PairDistribution]) -> PairDistribution:
    return PairDistribution(
        expected=(fmean(one.expected[0] for one in turns), fmean(one.expected[1] for one in turns)),
        first_better=fmean(one.first_better for one in turns),
        tie=fmean(one.tie for one in turns),
        unassigned=max(one.unassigned for one in turns),
        likeliest=(),
        approximation="; ".join(dict.fromkeys(one.approximation for one in turns if one.approximation)),
    )


def side_by_side(flows: Sequence[Asking[Result]]) -> Asking[list[Result]]:
    """Several flows as one: each round asks what all of them ask next, so that none waits for another to end.

    Returns:
        Their results, in the flows' order.
    """
    results: dict[int, Result] = {}
    received: dict[int, list[Completion] | None] = dict.fromkeys(range(len(flows)))
    while received:
        asked: dict[int, list[Request]] = {}
        for place, completions in received.items():
            try:
                asked[place] = next(flows[place]) if completions is None else flows[place].send(completions)
            except StopIteration as finished:
                results[place] = finished.value
        if not asked:
            break
        answered = iter((yield [request for requests in asked.values() for request in requests]))
        received = {place: list(islice(answered, len(requests))) for place, requests in asked.items()}
    return [results[place] for place in range(len(flows))]


def _seeded(sample: Sample, view: View) -> Sample:
    """The sample under an id of the part's own, so that drawn replies to several turns are not drawn alike."""
    return replace(sample, id=f"{sample.id} {view.part}")
