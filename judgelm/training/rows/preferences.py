r"""Rows of preferences: two judgments of one prompt (DPO), both orders of a pair and P(first better), or its winner.

Prompts, length policy, swap and reference drop are those of `judgelm.training.rows.builder`.

The rows of `train/dpo.py` have a better and a worse judgment. They come from two sources, and files of both kinds may
be mixed:

- a labelled pair and a judge's own reply to it, in a run of `judgelm-batch`, joined by sample id. Chosen is the
  teacher's judgment for the order and the reference that the judge was shown, rejected is the judge's reply. A reply
  that is right, by its winner or by its scores, is left out and counted;
- a row with both judgments: a plain or JudgeLM pair with `chosen` and `rejected`, each a score line with or without a
  reason after it. Judgments that were made with the row's reference stand in `chosen_w_reference` and
  `rejected_w_reference`, as JudgeLM names its labels:

      {"id": "1", "question": "2 + 2?", "answer_1": "4", "answer_2": "5", "chosen": "9 2\nRight.", "rejected": "4 7"}

A judge's own replies keep the reference they were made with. Either both texts are swapped or none. Either both have a
reason and the end-of-sequence token after it, or both end with their score line, so that length does not decide the
preference; a reason that is drawn to be dropped stays where the score lines are alike. An unparseable reply is rejected
as written and never swapped.

The rows of `train/preference.py` have the prompts of both orders, or of each answer by itself, as the template shows
them, and the label's `preference`, else 1, 0 or 0.5 by its winner or scores. Those of `train/grpo.py` have the prompts
of both orders and the better answer; the judge writes the reasons itself, and ties are left out: no verdict on them is
right in both orders. Those of `train/reward.py` have the chats of the better and the worse answer, without ties.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from judgelm.data.augmentation import swap_answers
from judgelm.data.judged_texts import difference, text_hashes
from judgelm.data.labelled_pair import LabelledPair, preference_of, score_line, scores_by_preference, uniform_hash
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.layouts import split_review
from judgelm.errors import InputError
from judgelm.jsonl import parse_json
from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import reward_prompt
from judgelm.prompts.truncation import TokenizedPrompt
from judgelm.records import Label, Prompt, Sample, Shown, TextHashes, Unparsed, Winner, failure_name, winner_of
from judgelm.runs.run_files import iter_judgments
from judgelm.training.rows.builder import RowBuilder, RowOptions, SFTRowBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A judge's reply to one prompt.

    Attributes:
        shown: order of the answers, and the reply.
        reference: whether the run showed references.
        hashes: of the texts judged; None where an earlier version judged them.
    """

    shown: Shown
    reference: bool
    hashes: TextHashes | None = None

    @property
    def scores(self) -> tuple[float, ...] | None:
        """In the order shown; None where the judge's own reply is unparseable."""
        return self.shown.scores if self.shown.repaired is None else None

    @property
    def text(self) -> str | None:
        """Score line, and the reason where one was requested and is complete; None where no reply is complete.

        With a constrained retry it is the first, unparseable reply.
        """
        failure = self.shown.repaired or self.shown.failure
        if failure is not None:
            return failure.text if failure.code in ("off_grammar", "out_of_range") else None
        reason = self.shown.reason if self.shown.reason_failure is None else None
        return f"{self.shown.text}\n{reason}" if reason else self.shown.text


def read_replies(path: str, *, template: str, scale: tuple[float, float]) -> dict[str, tuple[JudgeReply, ...]]:
    """Read the replies of a run of `judgelm-batch` by sample id; those of the last judgment of each sample.

    Args:
        path: the judgments, beside the run's manifest.
        template: id of the template that the run must have.
        scale: lowest and highest score that the run must have.

    Raises:
        InputError: no manifest, another template or scale, another mode, or a line that is no judgment.
    """
    reference = _shows_references(path, template, scale)
    return {
        judgment.sample_id: tuple(
            JudgeReply(shown=shown, reference=reference, hashes=judgment.hashes) for shown in judgment.shown
        )
        for judgment in iter_judgments(path)
    }


def _shows_references(path: str, template: str, scale: tuple[float, float]) -> bool:
    """Check the run's mode, template and scale; whether it showed references."""
    fingerprint = _fingerprint(path)
    mode, used = fingerprint["mode"], fingerprint["template"]
    if mode.get("name") != "pair":
        raise InputError(f"{path}: holds judgments of mode {mode.get('name')!r}; only pairs can be tuned on")
    if (used["id"], used["sha"]) != (template, get_template(template).sha):
        other = "other bytes of it" if used["id"] == template else repr(used["id"])
        raise InputError(
            f"{path}: the run has template {other}, the training has {template!r}; judge the pairs again "
            "with the training's template"
        )
    if tuple(mode["scale"]) != scale:
        raise InputError(f"{path}: the run has scale {mode['scale']}, the training has {scale}")
    if len(fingerprint["input"]) != 1:
        raise InputError(
            f"{path}: was made of {len(fingerprint['input'])} files, so its prompts cannot be rebuilt from the "
            "labelled one; judge the labelled file itself, with its references in its rows"
        )
    return bool(mode["reference"] != "ignore")


def _fingerprint(path: str) -> dict[str, Any]:
    """The run's fingerprint, from the manifest beside it."""
    manifest = Path(path).with_name(Path(path).name.removesuffix(".jsonl") + ".run.json")
    try:
        fingerprint = parse_json(manifest.read_text(encoding="utf-8"))["fingerprint"]
        mode, template = fingerprint["mode"], fingerprint["template"]
        mode["scale"], mode["reference"], template["id"], template["sha"], fingerprint["input"]
    except OSError as error:
        raise InputError(
            f"{path}: cannot read {manifest.name} beside it ({error.strerror}), which names template and scale; "
            "keep the files of a run together"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{manifest}: not the manifest of a run of judgelm-batch ({error!r})") from error
    return dict(fingerprint)


_PAIR_FORMATS = ("judgelm", "plain")
_CHOSEN = ("chosen", "chosen_w_reference")
_REJECTED = ("rejected", "rejected_w_reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRowOptions(RowOptions):
    """Options that turn two judgments into a row.

    Attributes:
        judgments: the input files that hold a judge's own judgments.
        min_distance: a judge's reply is rejected if one of its scores is at least this far from the teacher's, whoever
            wins; None rejects it if its winner differs.
    """

    judgments: tuple[str, ...] = ()
    min_distance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentPair:
    """Two judgments of one sample, in the order in which its answers stand.

    A label without scores holds a text that cannot be read as a judgment, under `reason`.
    """

    chosen: LabelledPair
    rejected: LabelledPair


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow:
    """One training row; each of the lists has shape (tokens,), int32.

    Attributes:
        sample_id: of its sample.
        prompt_ids: the prompt of both.
        chosen_ids: the better judgment.
        rejected_ids: the worse.
    """

    sample_id: str
    prompt_ids: NDArray[np.int32]
    chosen_ids: NDArray[np.int32]
    rejected_ids: NDArray[np.int32]


class PreferenceRowBuilder(RowBuilder):
    """Builds the rows of `train/dpo.py` from pairs of judgments."""

    row: ClassVar[type] = PreferenceRow
    options_type = PreferenceRowOptions
    options: PreferenceRowOptions

    def items(self, paths: Sequence[str]) -> Iterator[JudgmentPair]:
        """Pairs of judgments, from labelled files and from runs on them.

        Raises:
            InputError: a file cannot be read, or a run has another template, scale or mode, or judged other texts.
        """
        unjoined = set(self._replies)
        for path in self._labelled(paths):
            stream = SampleStream([path], on_reject=self._reject)
            for row, sample in stream.pairs():
                unjoined.discard(sample.id)
                self._check_texts(path, sample)
                yield from self._pairs(stream, row, sample)
        if unjoined:
            self.counts.left_out["judgment of no labelled pair"] += len(unjoined)

    def check(self, paths: Sequence[str]) -> None:
        """Refuse files without any pair of judgments.

        Raises:
            InputError: names them.
        """
        if not self.counts.made:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts.left_out.items()) or "no rows"
            labelled = ", ".join(self._labelled(paths))
            raise InputError(
                f"{labelled}: no two judgments to tune on ({reasons}); give judgments of these pairs by "
                "judgelm-batch, or rows with chosen and rejected judgments"
            )

    def _labelled(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path not in self.options.judgments]

    def _row(self, item: JudgmentPair, epoch: int) -> Any | str:
        pair = self._swap(item, epoch)
        sample = pair.chosen.sample
        chosen, reference = self._choose(sample, pair.chosen.plain, pair.chosen.referenced, epoch)
        rejected, _ = self._choose(sample, pair.rejected.plain, pair.rejected.referenced, epoch)
        if chosen is None or chosen.scores is None or rejected is None:
            return "no teacher scores"
        texts = self._texts(sample, chosen, rejected, epoch)
        if problem := self._problem(sample, chosen.scores) or (texts[0] == texts[1] and "chosen and rejected alike"):
            return problem
        prompt = self._prompt(sample, reference)
        tokens = self._tokens(prompt, tuple(texts))
        if isinstance(tokens, Unparsed):
            return failure_name(tokens.code)
        tokenized, targets = tokens
        self._count(sample, "", reference, tokenized, with_reason=bool(texts[0][1]))
        self.counts.scores.update(chosen.scores)
        ids = [np.array(each, dtype=np.int32) for each in (tokenized.ids, *targets)]
        return PreferenceRow(sample_id=sample.id, prompt_ids=ids[0], chosen_ids=ids[1], rejected_ids=ids[2])

    def _pairs(self, stream: SampleStream, row: Row, sample: Sample) -> Iterator[JudgmentPair]:
        """Pairs of judgments from a row and the judges' replies to its pair."""
        replies = self._replies.get(sample.id, ())
        stated = stream.source.name in _PAIR_FORMATS and any(row.data.get(name) is not None for name in _CHOSEN)
        if len(sample.answers) != 2 or not (replies or stated):
            self.counts.left_out["without two judgments" if len(sample.answers) == 2 else "not a pair"] += 1
            return
        try:
            pairs: list[JudgmentPair | str] = [_stated(row, sample)] if stated else []
            if replies:
                plain, referenced = stream.labels(row, False, True)
                labelled = LabelledPair(sample=sample, plain=plain, referenced=referenced)
                pairs += [self._against(labelled, reply) for reply in replies]
        except InputError:
            pairs = ["unreadable label"]
        for pair in pairs:
            if isinstance(pair, JudgmentPair):
                yield pair
            else:
                self.counts.left_out[pair] += 1

    def _against(self, labelled: LabelledPair, reply: JudgeReply) -> JudgmentPair | str:
        """The teacher's judgment and a judge's reply to the same prompt, or the reason why none is rejected."""
        if reply.text is None:
            return "no reply of the judge"
        if reply.reference and labelled.sample.reference is not None:
            side = replace(labelled, plain=None)
        else:
            side = labelled.without_reference()
        if reply.shown.order != (0, 1):
            side = swap_answers(side, "drop_reason").pair
        if side.label is None or side.label.scores is None:
            return "no teacher scores"
        if reply.scores is not None and self._right(reply.scores, side.label.scores):
            return "judge was right"
        written = _judgment(reply.text, verbatim=True)
        return _paired(side, side.plain and written, side.referenced and written)

    def _right(self, scores: tuple[float, ...], taught: tuple[float, ...]) -> bool:
        if self.options.min_distance is None:
            return _winner(scores) == _winner(taught)
        return max(abs(score - other) for score, other in zip(scores, taught, strict=True)) < self.options.min_distance

    def _swap(self, pair: JudgmentPair, epoch: int) -> JudgmentPair:
        """Both judgments with answers exchanged where this epoch draws so and both can be; else unchanged."""
        drawn = (
            uniform_hash(self.options.seed, pair.chosen.sample.id, "swap while training", epoch)
            < self.options.swap_prob
        )
        if not drawn:
            return pair
        sides = (pair.chosen, pair.rejected)
        labels = [label for side in sides for label in (side.plain, side.referenced) if label is not None]
        turned = [swap_answers(side).pair for side in sides] if all(label.winner for label in labels) else list(sides)
        swapped = all(after.swapped != before.swapped for before, after in zip(sides, turned, strict=True))
        self.counts.swapped += swapped
        self.counts.not_swapped += not swapped
        return JudgmentPair(chosen=turned[0], rejected=turned[1]) if swapped else pair

    def _texts(self, sample: Sample, chosen: Label, rejected: Label, epoch: int) -> list[tuple[str, str]]:
        """First line and reason of either judgment."""
        texts = [_line_and_reason(label) for label in (chosen, rejected)]
        drawn = uniform_hash(self.options.seed, sample.id, "reason", epoch) < self.options.reason_prob
        keep = drawn or texts[0][0] == texts[1][0]
        return [
            (self._truncator.sanitize(line)[0] + "\n", self._truncator.sanitize(reason)[0] if keep else "")
            for line, reason in texts
        ]

    def _check_texts(self, path: str, sample: Sample) -> None:
        """Refuse replies about other texts than the sample of the same id has."""
        for judged in {reply.hashes for reply in self._replies.get(sample.id, ())} - {None}:
            if judged is not None and (part := difference(judged, text_hashes(sample))):
                raise InputError(
                    f"{path}: id {json.dumps(sample.id, ensure_ascii=False)}: {part} differs from what was judged "
                    "under this id; judge this file again"
                )

    @cached_property
    def _replies(self) -> dict[str, list[JudgeReply]]:
        """The judges' replies to each sample, from all files of judgments."""
        by_id: dict[str, list[JudgeReply]] = {}
        for path in self.options.judgments:
            replies = read_replies(path, template=self.options.template, scale=self.options.scale)
            for sample_id, of_sample in replies.items():
                by_id.setdefault(sample_id, []).extend(of_sample)
        return by_id


def _stated(row: Row, sample: Sample) -> JudgmentPair:
    """The judgments of a row itself, without those that lack their partner."""
    sides: list[list[Label | None]] = [[], []]
    for names in zip(_CHOSEN, _REJECTED, strict=True):
        texts = [row.optional_text(name) for name in names]
        for side, text in zip(sides, texts, strict=True):
            side.append(None if None in texts or text is None else _judgment(text))
    (plain, referenced), rejected = sides
    return _paired(LabelledPair(sample=sample, plain=plain, referenced=referenced), *rejected)


def _paired(chosen: LabelledPair, plain: Label | None, referenced: Label | None) -> JudgmentPair:
    """Both judgments; a reason stays only where both have one."""
    matched = [_matched(*labels) for labels in ((chosen.plain, plain), (chosen.referenced, referenced))]
    sides = (replace(chosen, plain=matched[0][side], referenced=matched[1][side]) for side in (0, 1))
    return JudgmentPair(chosen=next(sides), rejected=next(sides))


def _matched(chosen: Label | None, rejected: Label | None) -> tuple[Label | None, Label | None]:
    if chosen is None or rejected is None:
        return None, None
    if chosen.scores is not None and rejected.scores is not None and chosen.reason and rejected.reason:
        return chosen, rejected
    bare = (label if label.scores is None else replace(label, reason=None) for label in (chosen, rejected))
    return next(bare), next(bare)


def _judgment(text: str, *, verbatim: bool = False) -> Label:
    """Parse a judgment; without a score line it has the text as its reason, and no scores.

    So has a `verbatim` one whose line is not written as judges learn to write it.
    """
    scores, reason = split_review(text)
    if scores is None or (verbatim and text.split("\n")[0] != score_line(scores)):
        return Label(sample_id="", winner=None, reason=text)
    return Label(sample_id="", winner=_winner(scores), scores=scores, reason=reason.strip() or None)


def _line_and_reason(label: Label) -> tuple[str, str]:
    if label.scores is None:
        return label.reason or "", ""
    return score_line(label.scores), (label.reason or "").strip()


def _winner(scores: tuple[float, ...]) -> Winner:
    first, second = scores
    return winner_of((first, second))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRowOptions(RowOptions):
    """Options that turn a labelled pair into a row.

    Attributes:
        both_orders: whether a row has the prompt with the answers swapped as well; no matter where the template shows
            each answer by itself.
    """

    both_orders: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """One training row.

    Attributes:
        sample_id: of its sample.
        prompt_ids: shape (tokens,), int32; of the given order, or of the first answer by itself.
        second_ids: shape (tokens,), int32; of the answers swapped (empty without both orders), or of the second answer
            by itself.
        preference: P(the first answer of `prompt_ids` is better), in [0, 1].
        first_right: the first answer's score, from 0 for the lowest to 1 for the highest; NaN where it has none.
        second_right: that of the second.
    """

    sample_id: str
    prompt_ids: NDArray[np.int32]
    second_ids: NDArray[np.int32]
    preference: float
    first_right: float
    second_right: float


class PairRowBuilder(SFTRowBuilder):
    """Builds the rows of `train/preference.py` from labelled pairs."""

    row: ClassVar[type] = PairRow
    options_type = PairRowOptions
    options: PairRowOptions

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        if len(item.sample.answers) != 2:
            return "not a pair"
        pair = self._swap(item, epoch)
        label, reference = self._choose(pair.sample, pair.plain, pair.referenced, epoch)
        if label is None or label.preference is None:
            return "no preference, scores or winner"
        # a judge that is read off a word writes no score line
        scores = () if self._template.reads_words else scores_by_preference(label.preference, self.options.scale)
        line = score_line(scores) + "\n" if scores else ""
        tokens = [self._tokens(prompt, ((line, ""),)) for prompt in self._prompts(pair.sample, reference)]
        if unfit := next((each for each in tokens if isinstance(each, Unparsed)), None):
            return failure_name(unfit.code)
        prompts = [each[0] for each in tokens if not isinstance(each, Unparsed)]
        longest = next((prompt for prompt in prompts if prompt.truncations), prompts[0])
        self._count(pair.sample, item.source, reference, longest, with_reason=False)
        self.counts.scores.update(scores)
        ids = [np.array(prompt.ids, dtype=np.int32) for prompt in prompts]
        right = self._right(label)
        return PairRow(
            sample_id=pair.sample.id,
            prompt_ids=ids[0],
            second_ids=ids[1] if len(ids) > 1 else np.array([], dtype=np.int32),
            preference=label.preference,
            first_right=right[0],
            second_right=right[1],
        )

    def _prompts(self, sample: Sample, reference: str | None) -> list[Prompt]:
        """Each answer by itself, or the order as given and the other one."""
        orders: list[tuple[int, ...]] = [(0, 1), (1, 0)] if self.options.both_orders else [(0, 1)]
        orders = [(0,), (1,)] if self._template.reads_alone else orders
        return [self._template.render(sample, order, reference, scale=self.options.scale) for order in orders]

    def _right(self, label: Label) -> tuple[float, float]:
        """The place of each score on the scale, 0 to 1; NaN where a score is missing or outside it."""
        low, high = self.options.scale
        first, second = (
            (score - low) / (high - low) if low <= score <= high else math.nan
            for score in label.scores or (math.nan, math.nan)
        )
        return first, second

    def _scored(self, label: Label | None) -> Label | None:
        """The label with its preference.

        It has no reason, which is not learned here and could keep its pair from being swapped.
        """
        preference = None if label is None else preference_of(label)
        return None if label is None or preference is None else replace(label, preference=preference, reason=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRowOptions(PairRowOptions):
    """Options that turn a labelled pair into two chats.

    Attributes:
        margin_weight: margin of a preference of 1, see `RewardRow.margin`.
    """

    margin_weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRow:
    """One training row; both lists have shape (tokens,), int32.

    Attributes:
        sample_id: of its sample.
        chosen_ids: the chat with the better answer.
        rejected_ids: that with the worse.
        margin: by which the better one's reward should be above the other's: 2 P(better) - 1, times the weight.
    """

    sample_id: str
    chosen_ids: NDArray[np.int32]
    rejected_ids: NDArray[np.int32]
    margin: float


class RewardRowBuilder(PairRowBuilder):
    """Builds the rows of `train/reward.py` from labelled pairs; dialogues with all their turns."""

    row: ClassVar[type] = RewardRow
    options_type = RewardRowOptions
    options: RewardRowOptions

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        label = item.plain or item.referenced
        if len(item.sample.answers) != 2:
            return "not a pair"
        if label is None or label.preference is None:
            return "no preference, scores or winner"
        if label.preference == 0.5:
            return "a tie"
        try:
            chats = [self._truncator.truncate(reward_prompt(item.sample, index), 1) for index in (0, 1)]
        except InputError:
            return "turns that are no dialogue"
        if unfit := next((chat for chat in chats if isinstance(chat, Unparsed)), None):
            return failure_name(unfit.code)
        first, second = (chat for chat in chats if not isinstance(chat, Unparsed))
        if first.ids == second.ids:
            return failure_name("equal_after_cut")
        self._count(item.sample, item.source, None, first if first.truncations else second, with_reason=False)
        chosen, rejected = (first, second) if label.preference > 0.5 else (second, first)
        return RewardRow(
            sample_id=item.sample.id,
            chosen_ids=np.array(chosen.ids, dtype=np.int32),
            rejected_ids=np.array(rejected.ids, dtype=np.int32),
            margin=self.options.margin_weight * abs(2 * label.preference - 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPromptOptions(RowOptions):
    """Options that turn a labelled pair into prompts.

    Attributes:
        reply_tokens: room for the reply, its reasoning included; the prompt gets the rest of the window.
    """

    reply_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPrompts:
    """One training row.

    Attributes:
        sample_id: of its sample.
        prompt: the text that the judge continues, with the answers in the given order.
        swapped: the same with the answers exchanged.
        winner: the better answer in the given order, 1 or 2.
    """

    sample_id: str
    prompt: str
    swapped: str
    winner: int


class JudgingPromptBuilder(SFTRowBuilder):
    """Builds the rows of `train/grpo.py` from labelled pairs."""

    row: ClassVar[type] = JudgingPrompts
    options_type = JudgingPromptOptions
    options: JudgingPromptOptions

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        if len(item.sample.answers) != 2:
            return "not a pair"
        label, reference = self._choose(item.sample, item.plain, item.referenced, epoch)
        if label is None or label.winner not in (1, 2):
            return "no winner" if label is None or label.winner is None else "a tie"
        swapped = replace(item.sample, answers=item.sample.answers[::-1])
        prompts = [self._prompt_text(sample, reference) for sample in (item.sample, swapped)]
        if unfit := next((prompt for prompt in prompts if isinstance(prompt, Unparsed)), None):
            return failure_name(unfit.code)
        first, second = (prompt for prompt in prompts if not isinstance(prompt, Unparsed))
        self._count(item.sample, item.source, reference, first, with_reason=True)  # its own
        return JudgingPrompts(
            sample_id=item.sample.id, prompt=first.text, swapped=second.text, winner=int(label.winner)
        )

    def _prompt_text(self, sample: Sample, reference: str | None) -> TokenizedPrompt | Unparsed:
        return self._truncator.truncate(self._prompt(sample, reference), self.options.reply_tokens)

    def _scored(self, label: Label | None) -> Label | None:
        """The label without its reason, which the judge does not learn from."""
        return None if label is None else replace(label, reason=None)
