"""Swap augmentation, reference support and reference drop: training rows made of clean pairs, which never change.

Every draw depends on (seed, id, epoch) alone, so a pair comes out the same in every order and on any number of
workers, and one epoch's pair never touches another's. A row's id says where the row comes from: `17`, `17:swapped`
(written in both orders), `17:e1` (the second epoch), `17:c1` (the second copy of a resampled pair).

Rows for other tasks (one answer, three or four answers, chat) are derived from the same pairs. No teacher judges again,
so a row holds no more information than its pairs. Those of one answer and of several are plain rows, which training
reads beside those of pairs; chat rows are for other trainers.

Source: JudgeLM, section 5 (swap augmentation 5.1, reference support 5.2, reference drop 5.3), Figures 5 (a single
answer), 6 (multiple answers), 15 and 16.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.labelled_pair import LabelledPair, score_line, swapped_preference, training_scores, uniform_hash
from judgelm.data.readers.values import content_id
from judgelm.data.sources.source import json_scores
from judgelm.data.swap_names import Ambiguous, OnAmbiguous, swap_names
from judgelm.errors import ConfigError
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import Template
from judgelm.prompts.truncation import chat_messages
from judgelm.records import Label, Winner

_PAIR_ORDER = (1, 0)
_MIRRORED: Mapping[Winner, Winner] = {1: 2, 2: 1, "tie": "tie"}
_NUMBERED = re.compile(r"((?:answer|response|output|model|generator)_?)([12])(?=_|$)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedPair:
    """A pair with its answers swapped, and the ambiguous reasons.

    Attributes:
        pair: the new pair, or the old one where the swap was not possible.
        ambiguous: one finding for each ambiguous reason.
    """

    pair: LabelledPair
    ambiguous: tuple[Ambiguous, ...] = ()


def swap_answers(pair: LabelledPair, on_ambiguous: OnAmbiguous = "keep") -> SwappedPair:
    """Swap answers, models, scores, winner, votes, preference (p becomes 1 - p) and the names in both reasons.

    Swapping what was swapped gives the pair back, unless a reason was dropped.

    Args:
        pair: a pair of two answers.
        on_ambiguous: treatment of a reason that does not say clearly which answer it is about.
    """
    sample = pair.sample
    quotable = (*sample.answers, sample.question, *([sample.reference] if sample.reference is not None else []))
    swapped_labels = [_mirrored(label, quotable) for label in (pair.plain, pair.referenced)]
    ambiguous = tuple(problem for _, problem in swapped_labels if problem is not None)
    if ambiguous and on_ambiguous == "keep":
        return SwappedPair(pair=pair, ambiguous=ambiguous)
    swapped = replace(
        pair,
        sample=replace(
            sample,
            answers=sample.answers[::-1],
            answer_models=sample.answer_models[::-1],
            metadata=_swapped_keys(sample.metadata),
        ),
        plain=swapped_labels[0][0],
        referenced=swapped_labels[1][0],
        swapped=not pair.swapped,
    )
    return SwappedPair(pair=swapped, ambiguous=ambiguous)


def should_swap(pair: LabelledPair, probability: float, *, seed: int, epoch: int) -> bool:
    """True if this epoch shows the pair with its answers swapped."""
    return uniform_hash(seed, pair.sample.id, "swap", epoch) < probability


def drop_reference(pair: LabelledPair, probability: float, *, seed: int, epoch: int) -> LabelledPair:
    """One of the two judgments that a pair with a reference carries, prompt and target chosen together.

    With `probability` the reference and the judgment made with it are dropped; otherwise the judgment made without it.
    A pair that has only one of them keeps that one.
    """
    if pair.referenced is None:
        return pair.without_reference()
    if pair.plain is None or uniform_hash(seed, pair.sample.id, "reference", epoch) >= probability:
        return replace(pair, plain=None)
    return pair.without_reference()


def replace_reference(pair: LabelledPair, reference: str) -> LabelledPair:
    """The pair with another reference, without the judgment that was made with the old one (Figure 16)."""
    if reference == pair.sample.reference:
        return pair
    return replace(pair, sample=replace(pair.sample, reference=reference), referenced=None)


def _mirrored(label: Label | None, quotable: tuple[str, ...]) -> tuple[Label | None, Ambiguous | None]:
    """The label of the swapped answers; an ambiguous reason is dropped and its finding returned."""
    if label is None:
        return None, None
    assert label.winner is not None, "a pair's label names its winner"
    mirrored = replace(
        label,
        winner=_MIRRORED[label.winner],
        scores=None if label.scores is None else label.scores[::-1],
        votes=tuple(_MIRRORED[vote] for vote in label.votes),
        preference=None if label.preference is None else swapped_preference(label.preference),
    )
    if label.reason is None:
        return mirrored, None
    reason = swap_names(label.reason, _PAIR_ORDER, quotable)
    if isinstance(reason, Ambiguous):
        return replace(mirrored, reason=None), reason
    return replace(mirrored, reason=reason.text), None


def _swapped_keys(metadata: Mapping[str, object]) -> Mapping[str, object]:
    """Metadata with `answer1_metadata` and similar keys under the other number."""
    swapped = {}
    for key, value in metadata.items():
        match = _NUMBERED.fullmatch(key)
        swapped[key if match is None else f"{match[1]}{3 - int(match[2])}{match[3]}"] = value
    return swapped


def augment(pair: LabelledPair, options: BuildOptions, epoch: int, counts: BuildCounts) -> Iterator[LabelledPair]:
    """The rows of a pair in one epoch of the training set.

    Args:
        pair: a clean pair; it is not changed.
        options: probabilities of the draws.
        epoch: from 0.
        counts: the outcomes are added here.
    """
    for copy in range(_copies(pair, options, epoch)):
        current = pair.with_id(f"{pair.sample.id}:c{copy}") if copy else pair  # each copy draws for itself
        swaps = options.swap == "both" or (
            options.swap == "draw" and should_swap(current, options.swap_prob, seed=options.seed, epoch=epoch)
        )
        if options.reference == "draw":
            current = drop_reference(current, options.reference_drop_prob, seed=options.seed, epoch=epoch)
        current = _without_reasons(current, options, epoch)
        current = replace(current.with_id(f"{current.sample.id}:e{epoch}"), epoch=epoch) if epoch else current
        swapped_pair = _swapped(current, options, counts) if swaps else None
        if not swaps:
            counts.swapped["left as it was"] += 1
        if swapped_pair is None or options.swap == "both":
            yield current
        if swapped_pair is not None:
            yield swapped_pair


def _copies(pair: LabelledPair, options: BuildOptions, epoch: int) -> int:
    """Number of copies of a pair in an epoch: one, or as its winner is resampled."""
    assert pair.label is not None, "a clean pair has a judgment"
    share = next((share for winner, share in options.resample.items() if winner == str(pair.label.winner)), 1.0)
    whole = int(share)
    return whole + (uniform_hash(options.seed, pair.sample.id, "resample", epoch) < share - whole)


def _swapped(pair: LabelledPair, options: BuildOptions, counts: BuildCounts) -> LabelledPair | None:
    """The swapped pair, or None where its reason is ambiguous."""
    result = swap_answers(pair, options.ambiguous)
    for problem in result.ambiguous:
        counts.ambiguous[problem.code] += 1
    if result.pair.swapped == pair.swapped:
        counts.swapped["kept, its reason is ambiguous"] += 1
        return None
    counts.swapped["swapped without an ambiguous reason" if result.ambiguous else "swapped"] += 1
    after = result.pair
    return after.with_id(f"{after.sample.id}:swapped") if options.swap == "both" else after


def _without_reasons(pair: LabelledPair, options: BuildOptions, epoch: int) -> LabelledPair:
    if options.reason_prob == 1 or uniform_hash(options.seed, pair.sample.id, "reason", epoch) < options.reason_prob:
        return pair
    plain, referenced = (
        None if label is None else replace(label, reason=None) for label in (pair.plain, pair.referenced)
    )
    return replace(pair, plain=plain, referenced=referenced)


MIN_ANSWERS, MAX_ANSWERS = 3, 4
"""Answers in a row of several."""


def single_row(pair: LabelledPair, *, seed: int) -> dict[str, Any] | None:
    """One of the two answers, with the score that it got in the judgment made with the reference.

    The teacher scored both answers together and did not see the reference as an answer with full marks, as the row
    shows it. The reason is about both answers and is left out.

    Args:
        pair: a clean pair with its answers as the source has them; which place is drawn depends on its id alone.
        seed: another seed draws anew.

    Returns:
        A plain row of `answer`, `score` and `reference`; None where nothing was judged with a reference.
    """
    sample, label = pair.sample, pair.referenced
    if sample.reference is None or label is None or label.scores is None:
        return None
    index = int(uniform_hash(seed, sample.id, "single") * 2)
    return {
        "id": f"{sample.id}:single",
        "question": sample.question,
        "answer": sample.answers[index],
        "score": json_scores(label.scores)[index],
        "reference": sample.reference,
        "answer_models": [sample.answer_models[index]] if sample.answer_models else None,
        "category": sample.category,
        "source": pair.source,
    }


def multi_rows(
    pairs: Iterable[LabelledPair], *, seed: int, scale: tuple[float, float] = (1, 10), step: float = 1
) -> Iterator[dict[str, Any]]:
    """Three or four answers to one question, out of pairs of one source that were judged without reference.

    An answer's score is the mean of those that it got, on the nearest step of the scale, the higher of two as near.
    The scores come from different pairs: an answer compared with weak ones may rank above a better one compared with
    strong ones. There is no reason. Each answer is in at most one row; of five answers one is left out.

    Args:
        pairs: clean pairs of one question; those of another source or other words of the question stay apart.
            Answers are the same where their texts are.
        seed: another seed puts other answers together.
        scale: lowest and highest score.
        step: spacing of the scores.

    Returns:
        Plain rows of `answers` and `scores`, named by the first id of their question's pairs, in text order.

    Raises:
        ConfigError: the step does not fit the scale.
    """
    values = score_lines(scale, step).values
    groups: dict[tuple[str, str], list[LabelledPair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda pair: pair.sample.id):
        if pair.plain is not None and pair.plain.scores is not None:
            groups[pair.source, pair.sample.question].append(pair)
    for group in groups.values():
        yield from _rows_of(group, seed, values)


def _rows_of(pairs: Sequence[LabelledPair], seed: int, values: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    first = pairs[0]
    scores_of: dict[str, list[float]] = defaultdict(list)
    models: dict[str, str | None] = {}
    for pair in pairs:
        assert pair.plain is not None, "the caller has left out those without"
        for answer, score in zip(pair.sample.answers, pair.plain.scores or (), strict=True):
            scores_of[answer].append(score)
        for answer, model in zip(pair.sample.answers, pair.sample.answer_models or (None, None), strict=True):
            models.setdefault(answer, model)
    question = first.sample.question
    drawn = iter(
        sorted(
            scores_of, key=lambda answer: (uniform_hash(seed, content_id(question, (answer,), None), "multi"), answer)
        )
    )
    for row_number, size in enumerate(_sizes(len(scores_of)), 1):
        answers = [next(drawn) for _ in range(size)]
        names = [models[answer] for answer in answers]
        yield {
            "id": f"{first.sample.id}:multi{row_number}",
            "question": question,
            "answers": answers,
            "scores": json_scores(tuple(_mean_on(values, scores_of[answer]) for answer in answers)),
            "answer_models": None if None in names else names,
            "category": first.sample.category,
            "source": first.source,
        }


def _sizes(answers: int) -> list[int]:
    """Number of answers of each row: 3 -> 3; 5 -> 4; 7 -> 4, 3; 10 -> 4, 3, 3."""
    rows = min(math.ceil(answers / MAX_ANSWERS), answers // MIN_ANSWERS)
    shared = min(answers, rows * MAX_ANSWERS)
    return [shared // rows + (row < shared % rows) for row in range(rows)]


def _mean_on(values: tuple[float, ...], scores: list[float]) -> float:
    """The value nearest to the mean of the scores; of two equally near values the higher."""
    mean = math.fsum(scores) / len(scores)
    return min(values, key=lambda value: (abs(value - mean), -value))


def chat_rows(pair: LabelledPair, template: Template, scale: tuple[float, float] = (1, 10)) -> Iterator[dict[str, Any]]:
    """The pair's judgments as conversations, in TRL's conversational prompt-completion format.

    Only the template's own delimiters are sanitized: a tokenizer that reads `<|im_end|>` and the like in a text as
    special is not known here.

    Args:
        pair: a clean pair.
        template: one of chat messages.
        scale: lowest and highest score, for a judgment that has a preference alone.

    Returns:
        `prompt` and `completion`, each a list of messages of `role` and `content`, for the judgment without the
        reference and for that with it.

    Raises:
        ConfigError: the template is plain text.
    """
    if not template.chat:
        raise ConfigError(f"template {template.id} is plain text; a row of messages needs one such as judgelm-chat")
    for label, reference in ((pair.plain, None), (pair.referenced, pair.sample.reference)):
        scores = None if label is None else training_scores(label, scale)
        if label is not None and scores is not None:
            prompt = template.render(pair.sample, (0, 1), reference)
            reply = score_line(scores) + (f"\n{label.reason}" if label.reason else "")
            yield {"prompt": chat_messages(prompt.spans), "completion": [{"role": "assistant", "content": reply}]}
