"""Training pairs derived from judged pairs of the same questions, without asking a judge again.

    python -m benchmarks.derived_pairs judged.jsonl -o derived.jsonl --exclude test.jsonl    # the small judge's rows

- **same baseline**: two answers that one judge compared with the same third answer. Under the model of Bradley and
  Terry the log odds subtract: logit P(a beats b) = logit P(a beats c) - logit P(b beats c). No judgment counts as surer
  than 0.9, so a clear win and a clear loss give 0.988. Pairs below 0.8 are left out: they say little.
- **other question**: an answer to the question is better than one to another question, however good that is. Of some
  drawn questions the one with the most words in common is taken. A judge that learns from these reads the question.
  Where a limit of characters is set, both answers are cut to fit, at the same length: their beginnings tell enough.

Both kinds are balanced by length as training sets are (`judgelm.data.builder.splits`), and the better answer stands
first in half of them. Draws depend on the seed and the texts alone, not on the order of the rows.

Source: Bradley and Terry, Rank Analysis of Incomplete Block Designs (1952); answers to a neighbouring question as worse
ones: Zeng et al., Evaluating Large Language Models at Evaluating Instruction Following (2024), section 3.1.
"""

import argparse
import hashlib
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from judgelm.data.builder.balance import LENGTH_STRATA, over_balance, pair_facts
from judgelm.data.duplicates import normalised
from judgelm.data.labelled_pair import (
    LabelledPair,
    judgelm_row,
    preference_of,
    rounded_preference,
    winner_by_preference,
)
from judgelm.data.labelled_set import read_labelled
from judgelm.data.overlap import ExcludedQuestions
from judgelm.jsonl import atomic_write
from judgelm.records import Label, Sample

_SUREST = 0.9
_MIN_CONFIDENCE = 0.8
_DRAWS = 8  # drawn pairs for each one wanted: many are unsure, too long, or left out for balance
_QUESTIONS_DRAWN = 20
_MIN_ROOM = 50


class _Answer(NamedTuple):
    text: str
    model: str | None
    of: str  # id of the pair that it comes from


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """Options of derived pairs.

    Attributes:
        same_baseline: pairs drawn for each question, judge and baseline, before balancing.
        other_question: pairs drawn for each question, before balancing.
        longer_share: how often the longer answer is the better one among pairs of the same baseline; one half among
            those of another question.
        max_characters: of question and both answers. None is no limit.
        seed: another seed draws other pairs.
    """

    same_baseline: int
    other_question: int
    longer_share: float = 0.5
    max_characters: int | None = None
    seed: int = 0


class _Question:
    """All that the judged pairs have on one question."""

    def __init__(self, sample: Sample) -> None:
        self.text = sample.question
        self.category = sample.category
        self.words = frozenset(normalised(sample.question).split())
        self.answers: dict[str, _Answer] = {}
        self.against: dict[tuple[str, str], dict[_Answer, float]] = defaultdict(dict)

    def add(self, pair: LabelledPair, preference: float) -> None:
        """Note both answers, each as the other's baseline."""
        judge = str(pair.sample.metadata.get("annotator") or pair.source)
        models: Sequence[str | None] = pair.sample.answer_models or (None, None)
        both = [_Answer(text, model, pair.sample.id) for text, model in zip(pair.sample.answers, models, strict=True)]
        for answer in both:
            self.answers.setdefault(answer.text, answer)
        self.against[judge, both[1].text][both[0]] = preference
        self.against[judge, both[0].text][both[1]] = 1 - preference


def derived_pairs(pairs: Iterable[LabelledPair], options: Derivation) -> Iterator[LabelledPair]:
    """Derive pairs, those of the same baseline first; all pairs are read and held in memory.

    Args:
        pairs: with a winner or a preference each; others, and those with a reference, are passed over.
        options: numbers, balance and seed.

    Yields:
        Pairs with a preference in [0, 1]; `metadata` says by which rule they were derived and from which pairs.
    """
    questions: dict[str, _Question] = {}
    for pair in pairs:
        preference = None if pair.label is None else preference_of(pair.label)
        if preference is not None and unused_because(pair) is None:
            questions.setdefault(normalised(pair.sample.question), _Question(pair.sample)).add(pair, preference)
    ordered = [question for _, question in sorted(questions.items())]
    same = [pair for question in ordered for pair in _same_baseline(question, options)]
    other = [pair for question in ordered for pair in _other_question(question, ordered, options)]
    seen: set[str] = set()
    for pair in chain(_balanced(same, options.longer_share, options.seed), _balanced(other, 0.5, options.seed)):
        if pair.sample.id not in seen:  # two judges may have compared the same answers
            seen.add(pair.sample.id)
            yield pair


def unused_because(pair: LabelledPair) -> str | None:
    """Name why no pair is derived from a judged pair; None where one can be."""
    if pair.sample.reference is not None:
        return "with a reference"
    return "without a winner or a preference" if pair.label is None or preference_of(pair.label) is None else None


def _same_baseline(question: _Question, options: Derivation) -> Iterator[LabelledPair]:
    for (judge, baseline), preferences in sorted(question.against.items()):
        if len(preferences) < 2:
            continue
        draw = random.Random(f"{options.seed}:{judge}:{baseline}:{question.text}")
        answers = sorted(preferences)
        drawn: set[frozenset[str]] = set()
        for _ in range(_DRAWS * options.same_baseline):
            first, second = draw.sample(answers, 2)
            preference = _subtracted(preferences[first], preferences[second])
            texts = frozenset((first.text, second.text))
            sure = max(preference, 1 - preference) >= _MIN_CONFIDENCE
            if not sure or len(texts) == 1 or texts in drawn or not _fits(question, first, second, options):
                continue
            drawn.add(texts)
            yield _pair(question, first, second, preference, f"same baseline, {judge}")
            if len(drawn) == options.same_baseline:
                break


def _other_question(question: _Question, others: Sequence[_Question], options: Derivation) -> Iterator[LabelledPair]:
    draw = random.Random(f"{options.seed}:other:{question.text}")
    answers = sorted(question.answers.values())
    room = None if options.max_characters is None else (options.max_characters - len(question.text)) // 2
    if room is not None and room < _MIN_ROOM:
        return
    made = 0
    for _ in range(_DRAWS * options.other_question):
        if made == options.other_question:
            break
        candidates = draw.sample(others, min(_QUESTIONS_DRAWN, len(others)))
        other = max(candidates, key=lambda candidate: (_alike(question, candidate), candidate.text))
        right, wrong = (_cut(draw.choice(each), room) for each in (answers, sorted(other.answers.values())))
        if other is question or right.text == wrong.text:
            continue
        made += 1
        if draw.random() < 0.5:
            yield _pair(question, right, wrong, 1.0, "other question")
        else:
            yield _pair(question, wrong, right, 0.0, "other question")


def _balanced(pairs: Sequence[LabelledPair], longer_share: float, seed: int) -> Iterator[LabelledPair]:
    """The pairs that a balance by length leaves."""
    facts = [(index, pair_facts(pair, b"")) for index, pair in enumerate(pairs)]
    out = over_balance(facts, ("length",), LENGTH_STRATA, seed=seed, longer_share=longer_share)
    return (pair for index, pair in enumerate(pairs) if index not in out)


def _pair(question: _Question, first: _Answer, second: _Answer, preference: float, rule: str) -> LabelledPair:
    name = hashlib.blake2b("\0".join((question.text, first.text, second.text)).encode(), digest_size=8).hexdigest()
    known = first.model is not None and second.model is not None
    sample = Sample(
        id=f"derived-{name}",
        question=question.text,
        answers=(first.text, second.text),
        answer_models=(str(first.model), str(second.model)) if known else (),
        category=question.category,
        metadata={"rule": rule, "of": [first.of, second.of]},
    )
    preference = rounded_preference(preference)
    label = Label(sample_id=sample.id, winner=winner_by_preference(preference), preference=preference)
    return LabelledPair(sample=sample, plain=label, referenced=None)


def _cut(answer: _Answer, room: int | None) -> _Answer:
    """The answer, up to the last blank within `room` characters."""
    if room is None or len(answer.text) <= room:
        return answer
    beginning = answer.text[:room]
    return answer._replace(text=beginning[: beginning.rfind(" ")] if " " in beginning else beginning)


def _fits(question: _Question, first: _Answer, second: _Answer, options: Derivation) -> bool:
    characters = len(question.text) + len(first.text) + len(second.text)
    return options.max_characters is None or characters <= options.max_characters


def _subtracted(first: float, second: float) -> float:
    """P(a beats b) of P(a beats c) and P(b beats c)."""
    return 1 / (1 + math.exp(_log_odds(second) - _log_odds(first)))


def _log_odds(preference: float) -> float:
    sure = min(_SUREST, max(1 - _SUREST, preference))
    return math.log(sure / (1 - sure))


def _alike(question: _Question, other: _Question) -> float:
    """Jaccard similarity of the questions' words, in [0, 1]; below any other for the question itself."""
    if other is question:
        return -1.0
    return len(question.words & other.words) / max(1, len(question.words | other.words))


def main() -> None:
    """Write the derived pairs as rows for training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judged", type=Path, help="labelled pairs, in any format of samples")
    parser.add_argument("-o", "--out", required=True, type=Path, help="derived pairs, as rows for training")
    parser.add_argument("--exclude", action="append", default=[], help="file of test questions, which are not used")
    parser.add_argument("--same-baseline", type=int, default=4, help="pairs by question, judge and third answer")
    parser.add_argument("--other-question", type=int, default=4, help="pairs by question")
    parser.add_argument("--longer-share", type=float, default=0.5, help="share in which the longer answer is better")
    parser.add_argument("--max-characters", type=int, help="of question and both answers")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    options = Derivation(
        same_baseline=arguments.same_baseline,
        other_question=arguments.other_question,
        longer_share=arguments.longer_share,
        max_characters=arguments.max_characters,
        seed=arguments.seed,
    )
    excluded = ExcludedQuestions(arguments.exclude)
    judged = read_labelled(str(arguments.judged), source=arguments.judged.stem)
    usable = (pair for pair in judged if not excluded.find(pair.sample.question) and unused_because(pair) is None)
    counts: Counter[str] = Counter()
    with atomic_write(arguments.out) as file:
        for pair in derived_pairs(usable, options):
            rule = str(pair.sample.metadata["rule"])
            counts[rule] += 1
            file.write(judgelm_row(pair) | {"source": f"{arguments.judged.stem}: {rule}"})
    print(dict(counts))


if __name__ == "__main__":
    main()
