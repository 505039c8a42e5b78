r"""DPO rows, each with two judgments of one prompt.

You can mix two kinds of files:

- a labelled pair and a judge's reply from a `judgelm-batch` run, joined by sample ID: the label for the shown order
and reference is chosen, and a wrong reply is rejected;
- a row with two judgments, each a score line with an optional reason (for judgments with the reference:
`chosen_w_reference` and `rejected_w_reference`):

      {"id": "1", "question": "2 + 2?", "answer_1": "4", "answer_2": "5", "chosen": "9 2\nRight.", "rejected": "4 7"}

Reasons are used only if both judgments have reasons, so that length does not decide the preference. Unparseable replies
are never swapped.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from judgelm.data.augmentation import swap_answers
from judgelm.data.judged_texts import difference, text_hashes
from judgelm.data.labelled_pair import LabelledPair, score_line, uniform_hash
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.layouts import split_review
from judgelm.errors import InputError
from judgelm.jsonl import parse_json
from judgelm.prompts.catalog import get_template
from judgelm.records import Label, Sample, Shown, TextHashes, Unparsed, Winner, failure_name, winner_of
from judgelm.runs.run_files import iter_judgments
from judgelm.training.rows.builder import RowBuilder, RowOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A judge's reply to one prompt. `reference` is true if the run's prompts included references."""

    shown: Shown
    reference: bool
    hashes: TextHashes | None = None

    @property
    def scores(self) -> tuple[float, ...] | None:
        """Scores in the shown order, or None if the first reply is unparseable."""
        return self.shown.scores if self.shown.repaired is None else None

    @property
    def text(self) -> str | None:
        """The score line and any complete reason, or the unparseable first reply (None if it was cut off)."""
        failure = self.shown.repaired or self.shown.failure
        if failure is not None:
            return failure.text if failure.code in ("off_grammar", "out_of_range") else None
        reason = self.shown.reason if self.shown.reason_failure is None else None
        return f"{self.shown.text}\n{reason}" if reason else self.shown.text


def read_replies(path: str, *, template: str, scale: tuple[float, float]) -> dict[str, tuple[JudgeReply, ...]]:
    """Return a run's replies by sample ID, using the last judgment of each sample."""
    reference = _shows_references(path, template, scale)
    replies: dict[str, tuple[JudgeReply, ...]] = {}
    for judgment in iter_judgments(path):
        new = (JudgeReply(shown=shown, reference=reference, hashes=judgment.hashes) for shown in judgment.shown)
        replies[judgment.sample_id] = tuple(new)
    return replies


def _shows_references(path: str, template: str, scale: tuple[float, float]) -> bool:
    fingerprint = _fingerprint(path)
    mode, used = fingerprint["mode"], fingerprint["template"]
    if mode.get("name") != "pair":
        raise InputError(f"{path}: contains judgments from mode {mode.get('name')!r}; expected mode 'pair'")
    if (used["id"], used["sha"]) != (template, get_template(template).sha):
        other = "another version of the template" if used["id"] == template else f"template {used['id']!r}"
        raise InputError(f"{path}: the pairs were judged with {other}; judge them with template {template!r}")
    if tuple(mode["scale"]) != scale:
        raise InputError(f"{path}: the pairs were judged on scale {mode['scale']}; judge them on {list(scale)}")
    if len(fingerprint["input"]) != 1:
        raise InputError(f"{path}: the run has {len(fingerprint['input'])} input files; rerun it on the labelled file")
    return bool(mode["reference"] != "ignore")


def _fingerprint(path: str) -> dict[str, Any]:
    manifest = Path(path).with_name(Path(path).name.removesuffix(".jsonl") + ".run.json")
    try:
        fingerprint = parse_json(manifest.read_text(encoding="utf-8"))["fingerprint"]
        mode, template = fingerprint["mode"], fingerprint["template"]
        mode["scale"], mode["reference"], template["id"], template["sha"], fingerprint["input"]
    except OSError as error:
        finding = f"cannot read {manifest.name} ({error.strerror})"
        raise InputError(f"{path}: {finding}; keep all files of a run together") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{manifest}: not a valid judgelm-batch manifest ({error!r})") from error
    return dict(fingerprint)


_PAIR_FORMATS = ("judgelm", "plain")


_CHOSEN = ("chosen", "chosen_w_reference")


_REJECTED = ("rejected", "rejected_w_reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRowOptions(RowOptions):
    """Options for building DPO rows; see `DPOArguments`."""

    judgments: tuple[str, ...] = ()
    min_distance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentPair:
    """Two judgments of one sample; an unparseable judgment is stored as the `reason` of a label without scores."""

    chosen: LabelledPair
    rejected: LabelledPair


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow:
    """Token IDs of a prompt, its chosen judgment, and its rejected judgment."""

    sample_id: str
    prompt_ids: NDArray[np.int32]
    chosen_ids: NDArray[np.int32]
    rejected_ids: NDArray[np.int32]


class PreferenceRowBuilder(RowBuilder):
    """Builds the rows for `train/dpo.py` from pairs of judgments."""

    row: ClassVar[type] = PreferenceRow
    options_type = PreferenceRowOptions
    options: PreferenceRowOptions

    def items(self, paths: Sequence[str]) -> Iterator[JudgmentPair]:
        """Yield pairs of judgments."""
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
        """Raise InputError if there are no usable pairs."""
        if not self.counts.made:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts.left_out.items()) or "no rows"
            labelled = ", ".join(self._labelled(paths))
            way_out = "judge these pairs with judgelm-batch"
            raise InputError(f"{labelled}: no usable pairs of judgments ({reasons}); {way_out}")

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
        sample_id = pair.chosen.sample.id
        if uniform_hash(self.options.seed, sample_id, "swap while training", epoch) >= self.options.swap_prob:
            return pair
        sides = (pair.chosen, pair.rejected)
        labels = [label for side in sides for label in (side.plain, side.referenced) if label is not None]
        turned = [swap_answers(side).pair for side in sides] if all(label.winner for label in labels) else list(sides)
        swapped = all(after.swapped != before.swapped for before, after in zip(sides, turned, strict=True))
        self.counts.swapped += swapped
        self.counts.not_swapped += not swapped
        return JudgmentPair(chosen=turned[0], rejected=turned[1]) if swapped else pair

    def _texts(self, sample: Sample, chosen: Label, rejected: Label, epoch: int) -> list[tuple[str, str]]:
        texts = [_line_and_reason(label) for label in (chosen, rejected)]
        drawn = uniform_hash(self.options.seed, sample.id, "reason", epoch) < self.options.reason_prob
        keep = drawn or texts[0][0] == texts[1][0]
        return [
            (self._truncator.sanitize(line)[0] + "\n", self._truncator.sanitize(reason)[0] if keep else "")
            for line, reason in texts
        ]

    def _check_texts(self, path: str, sample: Sample) -> None:
        for judged in {reply.hashes for reply in self._replies.get(sample.id, ())} - {None}:
            if judged is not None and (part := difference(judged, text_hashes(sample))):
                name = json.dumps(sample.id, ensure_ascii=False)
                raise InputError(f"{path}: id {name}: {part} differs from the judged text; judge this file again")

    @cached_property
    def _replies(self) -> dict[str, list[JudgeReply]]:
        by_id: dict[str, list[JudgeReply]] = {}
        for path in self.options.judgments:
            replies = read_replies(path, template=self.options.template, scale=self.options.scale)
            for sample_id, of_sample in replies.items():
                by_id.setdefault(sample_id, []).extend(of_sample)
        return by_id


def _stated(row: Row, sample: Sample) -> JudgmentPair:
    sides: list[list[Label | None]] = [[], []]
    for names in zip(_CHOSEN, _REJECTED, strict=True):
        texts = [row.optional_text(name) for name in names]
        for side, text in zip(sides, texts, strict=True):
            side.append(None if None in texts or text is None else _judgment(text))
    (plain, referenced), rejected = sides
    return _paired(LabelledPair(sample=sample, plain=plain, referenced=referenced), *rejected)


def _paired(chosen: LabelledPair, plain: Label | None, referenced: Label | None) -> JudgmentPair:
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
