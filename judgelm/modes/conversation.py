"""Multi-turn dialogues, graded or judged as a pair; see `judgelm.prompts.conversation` for their format.

Source: MT-bench (Zheng et al. 2023), section 3.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import ClassVar, Literal

from judgelm.errors import InputError
from judgelm.modes.completions import first_failure, graded, grades_of, read_reply, with_usage
from judgelm.modes.flow import Flow, RequestFlow, interleave
from judgelm.modes.mode import BatchMode, pair_orders, sampling_for
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.readings import Readout, conclude_pair, explain_word, read_words, reading_of
from judgelm.modes.reasons import explain, to_explain
from judgelm.parsing.scores import parse_scores, score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import (
    WHOLE,
    DialogueView,
    dialogue_of,
    dialogue_prompt,
    dialogue_sha,
    flat_sample,
    flat_samples,
    grading_prompt,
    turn_view,
    whole_view,
)
from judgelm.records import Judgment, PairDistribution, Prompt, Request, Sample, Shown

Turns = Literal["each", "last", "whole"]

FOLLOW_UP = "follow-up"
"""Prefix of `Shown.part` for follow-up questions about a judgment (`judgelm.modes.follow_up`)."""
VOTE = "vote"
"""Prefix of `Shown.part` for one of several votes (`judgelm.modes.votes`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Pairwise):
    """Judge two dialogues as a pair, or grade one.

    `Judgment.shown` has one entry per turn and order (`part` is `turn 1` or `dialogue`). The verdict is based on the
    mean scores over all turns, as for a pair. If every shown turn has a reference, a single dialogue is graded against
    a dialogue made up of its references. With word readings, each answer is shown by itself after the earlier turns,
    but `letters` shows both dialogues.

    Attributes:
        turns: `each` judges every turn in the context of the earlier turns, as MT-Bench does. `last` judges only the
            last turn. `whole` judges all turns at once.
    """

    name: ClassVar[str] = "conversation"
    answers: ClassVar[tuple[int, int]] = (1, 2)
    takes_rewards: ClassVar[bool] = False

    turns: Turns = "each"

    @property
    def template_sha(self) -> str:
        """Hash of the template and the text added for dialogues."""
        return dialogue_sha(get_template(self.template))

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        single = len(sample.answers) == 1
        views = self.views(sample)
        if reading_of(self).reads_words:
            return (yield from self._read_words(sample, views))
        parts = yield from interleave([(self._grade if single else self._compare)(sample, view) for view in views])
        shown = _of_parts(views, parts)
        merged = per_order(shown)
        judgment = graded(self, sample, merged[0]) if single else self._conclude(sample, merged)
        return replace(judgment, shown=shown)

    def _read_words(self, sample: Sample, views: Sequence[DialogueView]) -> Flow:
        if len(sample.answers) == 1 and reading_of(self).reading == "letters":
            raise InputError(
                f"sample {sample.id}: reading letters requires two dialogues; use --reading yes-no for a single one"
            )
        readouts = yield from interleave([self._read_view(sample, view) for view in views])
        shown = _of_parts(views, readouts)
        strengths = [readout.strengths for readout in readouts if readout.strengths is not None]
        means = tuple(map(fmean, zip(*strengths, strict=True))) if len(strengths) == len(views) else None
        merged, prompts = per_order(shown), tuple(prompt for readout in readouts for prompt in readout.prompts)
        if len(sample.answers) == 1:
            judgment = graded(self, sample, merged[0])
        else:
            judgment = conclude_pair(self, sample, Readout(shown=merged, prompts=prompts, strengths=means))
        return (yield from explain_word(self, replace(judgment, shown=shown), prompts, self.close_threshold))

    def _read_view(self, sample: Sample, view: DialogueView) -> RequestFlow[Readout]:
        if not reading_of(self).reads_alone:
            return (yield from read_words(self, flat_sample(view, sample.id), pair_orders(True)))
        alone = yield from interleave([read_words(self, flat, ()) for flat in flat_samples(view, sample.id)])
        strengths = [readout.strengths[0] for readout in alone if readout.strengths is not None]
        return Readout(
            shown=tuple(replace(readout.shown[0], order=(index,)) for index, readout in enumerate(alone)),
            prompts=tuple(readout.prompts[0] for readout in alone),
            strengths=tuple(strengths) if len(strengths) == len(alone) else None,
        )

    def check(self, sample: Sample) -> None:
        """Check that the sample consists of one or two dialogues."""
        BatchMode.check(self, sample)
        dialogue_of(sample)

    def views(self, sample: Sample) -> list[DialogueView]:
        """Return the parts to judge, each with separate prompts."""
        turns = dialogue_of(sample, referenced=self.reference != "ignore")
        if self.turns == "whole":
            return [whole_view(turns)]
        first = len(turns) if self.turns == "last" else 1
        return [turn_view(turns, count) for count in range(first, len(turns) + 1)]

    def prompt_of(self, sample: Sample, order: tuple[int, ...], part: str = "") -> Prompt:
        """Return the prompt for one order. `part` is a `Shown.part`; if it is empty, the first part is used."""
        views = self.views(sample)
        return self._prompt(next((view for view in views if view.part == part), views[0]), order)

    def _prompt(self, view: DialogueView, order: tuple[int, ...]) -> Prompt:
        template = get_template(self.template)
        if template.reads_alone:
            return self.reading_prompt(flat_samples(view, view.part)[order[0]], (0,))
        if template.reads_words:
            return self.reading_prompt(flat_sample(view, view.part), order)
        if len(order) == 1 and not view.anchored:
            return grading_prompt(template, view, scale=self.scale)
        return dialogue_prompt(template, view, order, scale=self.scale)

    def _compare(self, sample: Sample, view: DialogueView) -> Flow:
        seeded = replace(sample, id=f"{sample.id} {view.part}")
        return self.ask(seeded, [self._prompt(view, order) for order in self.orders])

    def _grade(self, sample: Sample, view: DialogueView) -> Flow:
        seed, prompt = f"{sample.id} {view.part}", self._prompt(view, (0,))
        sampling = sampling_for(self, seed, self.max_tokens, stop=("\n",))
        blank = " " if prompt.prefill else ""  # follows the prefilled score of the references
        values = score_lines(self.scale, self.step).values if self.distribution else ()
        candidates = tuple(f"{blank}{value:g}" for value in values)
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling, candidates=candidates)]
        shown = read_reply(completion, partial(parse_scores, count=1, scale=self.scale), max_tokens=self.max_tokens)
        judgment = graded(self, sample, replace(shown, grades=grades_of(values, completion)))
        sampling = sampling_for(self, seed, self.reason_tokens, reserve=self.max_tokens)
        indices = to_explain(judgment, self.reasons, self.close_threshold)
        return (yield from explain(judgment, indices, [prompt], sampling))


def _of_parts(views: Sequence[DialogueView], parts: Sequence[Judgment | Readout]) -> tuple[Shown, ...]:
    return tuple(
        replace(reply, part=view.part, referenced=view.referenced)
        for view, part in zip(views, parts, strict=True)
        for reply in part.shown
    )


def per_order(shown: Sequence[Shown]) -> tuple[Shown, ...]:
    """Merge the turns of each order into one `Shown`.

    Scores and probabilities are averaged over the turns. The first failure and the maximum unassigned probability are
    kept. Follow-up questions are omitted.
    """
    judged = [reply for reply in shown if not reply.part.startswith(FOLLOW_UP)]
    orders = list(dict.fromkeys(reply.order for reply in judged))
    return tuple(_merged([reply for reply in judged if reply.order == order]) for order in orders)


def _merged(turns: Sequence[Shown]) -> Shown:
    if turns[0].part.startswith(VOTE):  # failed votes do not count
        turns = [turn for turn in turns if turn.failure is None] or turns
    if len(turns) == 1:
        return turns[0]
    labels = Counter(turn.label for turn in turns if turn.label is not None).most_common(2)
    split = len(labels) == 2 and labels[0][1] == labels[1][1]
    scores = [turn.scores for turn in turns if turn.scores is not None]
    distributions = [turn.distribution for turn in turns if turn.distribution is not None]
    log_odds = [turn.log_odds for turn in turns if turn.log_odds is not None]
    failure = first_failure(turns)
    return Shown(
        order=turns[0].order,
        text="\n".join(turn.text for turn in turns),
        part=WHOLE,
        scores=None if failure is not None or not scores else tuple(map(fmean, zip(*scores, strict=True))),
        label="tie" if split else labels[0][0] if labels else None,
        referenced=all(turn.referenced for turn in turns),
        failure=failure,
        repaired=next((turn.repaired for turn in turns if turn.repaired is not None), None),
        distribution=_mean_distribution(distributions) if len(distributions) == len(turns) else None,
        log_odds=fmean(log_odds) if len(log_odds) == len(turns) else None,
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
