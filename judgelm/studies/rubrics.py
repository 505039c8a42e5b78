"""Criteria that a model writes: the prompts, its replies taken apart, and their worth on labelled pairs.

A model is asked about pairs with labels (what the better answer has and the other lacks), about a guide, or about each
question. Its criteria are merged where they say the same, and judged on training pairs: a criterion is dropped where it
separates nothing (in no pair do the two P(yes) differ by 0.05 or more), where it prefers the wrong answer (its P(yes)
is on the mean not higher for the better answer), and where no pair could be read. What is left is measured on held-out
pairs, of other questions, beside the same judge's plain yes-no. P(yes) is compared rather than yes and no: a small
judge says yes to most answers, and is surer of the better one.

Source: Rubrics as Rewards (Gunjal et al. 2025) and TICK (Cook et al. 2024) for criteria of each question;
OpenRubrics (Liu et al. 2025, contrastive rubric generation) for criteria of what the preferred answer does. The prompts
and the rules for dropping are ours.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import numpy as np

from judgelm.data.duplicates import TextIndex
from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import InputError
from judgelm.jsonl import parse_json
from judgelm.metrics.agreement import paired_difference
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.prompts.catalog import read_texts
from judgelm.records import Judgment, Sample

RubricSource = Literal["pairs", "question", "guide"]
"""The source that criteria are written from."""

_PROMPTS = read_texts(Path(__file__).parents[1] / "prompts" / "rubrics.toml")
_ITEM = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.):])\s+(.*\S)")
_LIST = re.compile(r"\[.*\]", re.DOTALL)
_COMPARES = re.compile(r"\b(?:preferred|rejected|better|worse|first|second|other|both)\s+(?:answer|response)s?\b", re.I)
_PREFERRED = re.compile(r"\b(the) (?:preferred|better)(?= (?:answer|response)\b)", re.IGNORECASE)
"""The name of the answer in the prompt, which says nothing to a judge of one answer."""
_LENGTHS = range(3, 61)
"""Words of a criterion that says something, and one thing."""
_SEPARATED = 0.05
"""Least difference of two P(yes) that tells two answers apart."""


def writing_prompt(source: RubricSource, name: str, count: int, question: str, answers: Sequence[str] = ()) -> Sample:
    """A question to the model that writes criteria.

    Args:
        source: what it is shown.
        name: id of the prompt.
        count: criteria to write.
        question: the question, or the guide.
        answers: of `pairs`, the better one first.
    """
    numbered = {f"answer_{index}": text for index, text in enumerate(answers, 1)}
    text = _PROMPTS[source].format(question=question, count=count, **numbered)
    return Sample(id=name, question=text, answers=())


def written_criteria(reply: str) -> tuple[list[str], int]:
    """The criteria of a reply: a JSON list, the items of a list, or lines; and how many of them cannot be used.

    "The preferred answer" is made "the answer". A criterion cannot be used where it compares answers, or has fewer than
    3 or more than 60 words.
    """
    texts = _of_json(reply) or [match[1] for line in reply.splitlines() if (match := _ITEM.match(line))]
    if not texts:
        texts = [line for line in reply.splitlines() if line.strip() and not line.rstrip().endswith(":")]
    plain = [" ".join(_PREFERRED.sub(r"\1", text.replace("**", "")).strip().strip('"').split()) for text in texts]
    usable = [text for text in plain if len(text.split()) in _LENGTHS and not _COMPARES.search(text)]
    return usable, len(plain) - len(usable)


def _of_json(reply: str) -> list[str]:
    match = _LIST.search(reply)
    try:
        items = parse_json(match[0]) if match else None
    except ValueError:
        return []
    items = items if isinstance(items, list) else []
    texts = (next(iter(item.values()), None) if isinstance(item, dict) else item for item in items)
    return [text for text in texts if isinstance(text, str)]


def merged(texts: Sequence[str]) -> list[str]:
    """The texts without those that say the same as an earlier one: of 4 words and more, 0.7 of all words in common."""
    index, distinct = TextIndex(shingle=1, least_words=4), list[str]()
    for text in texts:
        if index.find(text) is None:
            index.add(text, text)
            distinct.append(text)
    return distinct


def split_pairs(labelled: LabelledSet, held_out: float, seed: int) -> tuple[list[str], list[str]]:
    """Ids of the training pairs and of the held-out pairs; pairs of one question are on one side, ties on none.

    Raises:
        InputError: one side would be empty.
    """
    decided = [name for name in labelled.samples if name in labelled.labels and labelled.labels[name].winner in (1, 2)]
    questions = sorted({labelled.samples[name].question for name in decided})
    held = set(Random(seed).sample(questions, round(held_out * len(questions))))
    sides = [[name for name in decided if (labelled.samples[name].question in held) is side] for side in (False, True)]
    if not all(sides):
        raise InputError(
            f"{len(decided)} pairs with a winner, of {len(questions)} questions: too few to write criteria from some "
            "and to measure them on others; label more pairs, or choose another --held-out"
        )
    return sides[0], sides[1]


class Separation(NamedTuple):
    """A criterion on training pairs.

    Attributes:
        pairs: those in which it could be read for both answers.
        separated: those of them in which the two P(yes) differ by 0.05 or more.
        lead: mean P(yes) of the better answer minus that of the other, in [-1, 1]; 0 without a pair.
    """

    pairs: int
    separated: int
    lead: float

    @property
    def outcome(self) -> str:
        """`kept`, or why it is dropped."""
        if not self.separated:
            return "separates nothing" if self.pairs else "could not be read"
        return "kept" if self.lead > 0 else "prefers the wrong answer"


def separation(criterion: str, judgments: Mapping[str, Judgment], labelled: LabelledSet) -> Separation:
    """A criterion's readings on the judged pairs; `criterion` is the `part` of what was shown."""
    pairs = []
    for name, judgment in judgments.items():
        values = {
            shown.order[0]: shown.scores[0] for shown in judgment.shown if shown.part == criterion and shown.scores
        }
        if len(values) == 2:
            better = 0 if labelled.labels[name].winner == 1 else 1
            pairs.append((values[better], values[1 - better]))
    return Separation(
        pairs=len(pairs),
        separated=sum(abs(better - other) >= _SEPARATED for better, other in pairs),
        lead=sum(better - other for better, other in pairs) / len(pairs) if pairs else 0.0,
    )


def rubric_scores(
    checklist: Mapping[str, Judgment], plain: Mapping[str, Judgment], labelled: LabelledSet, names: Sequence[str]
) -> dict[str, Estimate]:
    """Shares of pairs that are ordered as labelled; a failure is wrong.

    Args:
        checklist: judgments by the criteria.
        plain: judgments by the same judge's plain yes-no.
        labelled: the labels.
        names: ids of the held-out pairs.

    Returns:
        `checklist`, `yes-no`, and `gain`, the first minus the second over the same pairs.
    """
    questions = [labelled.samples[name].question for name in names]
    first, second = (
        np.array([name in run and run[name].winner == labelled.labels[name].winner for name in names])
        for run in (checklist, plain)
    )
    return {
        "checklist": share(first, questions, Resampling()),
        "yes-no": share(second, questions, Resampling()),
        "gain": paired_difference(first, second, questions, Resampling()),
    }
