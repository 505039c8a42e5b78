"""Labelled pairs: the record, its file, splits by question, ties, and the mixtures that are trained on.

    python -m benchmarks.reading_training.pairs --pools FOLDER --out FOLDER    # mixtures and development sets

Standard library only: this runs on the GPU machine too.
"""

import argparse
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

DEV_SHARE = 0.15
"""Share of the questions that are held out for development."""
SHARES = {
    "all": {
        "objective": 2000, "longer": 1250, "preference": 1000, "limits": 400, "safety": 130, "facts": 100, "ties": 250,
    },
    "permissive": {"objective": 2200, "longer": 1100, "limits": 900, "safety": 200, "facts": 250, "ties": 250},
}  # fmt: skip
"""Pairs of each family in a mixture, at most: about 40, 25, 20, 10 and 5 %."""
DEV_MOST = 400
OVERLAPS = (
    "imaginary world where AI language models have not been trained",  # near a question of LLMBar
    "it has been a rough year here",  # near one of Auto-J
    "capital of Australia",  # in the everyday pairs
    "he first movie is 1 hour and 30 minutes long while",  # these three: passages of 13 words in GSM8K's test questions
    "miles in 3 hours. At the same rate",
    "bought stamps at the post office. Some of the stamps had a snowflake",
)
"""Parts of questions that `judgelm data overlap` found in the sets to be reported; such questions are left out."""
OPENINGS = ("Sure! ", "Here is my answer.\n", "")
CLOSINGS = ("", "\n", " I hope this helps.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A question with two answers and the preference between them.

    Attributes:
        label: probability that the first answer is better; 0.5 is a tie.
        family: `objective`, `longer`, `preference`, `limits`, `safety`, `facts`, `ties` or `everyday`.
        kind: part of the family.
        split: `train` or `dev`; pairs of a question are in the same one.
        licence: `permissive` or `non-commercial`.
    """

    id: str
    question: str
    answers: tuple[str, str]
    label: float
    family: str
    kind: str
    split: str
    licence: str = "permissive"

    @property
    def longer_is_better(self) -> bool | None:
        """None where there is no winner or the answers have equal length."""
        difference = len(self.answers[0]) - len(self.answers[1])
        return None if self.label == 0.5 or not difference else (difference > 0) == (self.label > 0.5)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(pair), ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8")


def read_pairs(path: Path) -> list[Pair]:
    """Pairs of a file, in its order."""
    return [Pair(**row | {"answers": tuple(row["answers"])}) for row in json_lines(path)]


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a file, one a line; lines end at a line feed alone, since texts hold other separators."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


def split_of(question: str) -> str:
    """`dev` for a fixed share of all questions."""
    return "dev" if uniform(question) < DEV_SHARE else "train"


def uniform(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def placed(better: str, worse: str, draw: random.Random, confidence: float = 1.0) -> tuple[tuple[str, str], float]:
    """The answers with the better one at a random place, and the label."""
    return ((better, worse), confidence) if draw.random() < 0.5 else ((worse, better), 1 - confidence)


def balanced_by_length(pairs: Sequence[Pair], draw: random.Random, most: int, longer_share: float = 0.5) -> list[Pair]:
    """At most `most` decided pairs, of which the given share has the longer answer as the better one."""
    shuffled = draw.sample(list(pairs), len(pairs))
    longer = [pair for pair in shuffled if pair.longer_is_better]
    shorter = [pair for pair in shuffled if pair.longer_is_better is False]
    count = int(min(most, len(longer) / max(longer_share, 1e-9), len(shorter) / max(1 - longer_share, 1e-9)))
    n_longer = round(count * longer_share)
    return longer[:n_longer] + shorter[: count - n_longer]


def ties(pairs: Sequence[Pair], draw: random.Random, most: int) -> list[Pair]:
    """Pairs of an answer with itself, or with itself in other trimmings: nothing to choose between."""
    chosen = draw.sample(list(pairs), min(most, len(pairs)))
    tied = []
    for pair in chosen:
        answer = draw.choice(pair.answers)
        other = draw.choice(OPENINGS) + answer + draw.choice(CLOSINGS)
        answers, _ = placed(answer, other, draw)
        tied.append(replace(pair, id=f"tie-{pair.id}", answers=answers, label=0.5, family="ties", kind="reworded"))
    return tied


def mixture(pools: Sequence[Pair], name: str, draw: random.Random) -> list[Pair]:
    """The training pairs of a set, kinds of a family in equal parts as far as they reach, shuffled."""
    licences = {"permissive"} if name == "permissive" else {"permissive", "non-commercial"}
    usable = [pair for pair in pools if pair.split == "train" and pair.licence in licences]
    chosen: list[Pair] = []
    for family, most in SHARES[name].items():
        if family == "ties":
            chosen += ties(chosen, draw, most)
            continue
        by_kind: dict[str, list[Pair]] = defaultdict(list)
        for pair in draw.sample(usable, len(usable)):
            if pair.family == family:
                by_kind[pair.kind].append(pair)
        chosen += _in_turn(by_kind, most)
    return draw.sample(chosen, len(chosen))


def _in_turn(by_kind: dict[str, list[Pair]], most: int) -> list[Pair]:
    taken: list[Pair] = []
    while by_kind and len(taken) < most:
        for kind in sorted(by_kind):
            taken.append(by_kind[kind].pop())
            if not by_kind[kind]:
                del by_kind[kind]
    return taken[:most]


def development(pools: Sequence[Pair], draw: random.Random) -> list[Pair]:
    """Held-out pairs, at most `DEV_MOST` of a kind."""
    held_out = [pair for pair in draw.sample(list(pools), len(pools)) if pair.split == "dev"]
    seen: Counter[str] = Counter()
    chosen = []
    for pair in held_out:
        seen[pair.kind] += 1
        if seen[pair.kind] <= DEV_MOST:
            chosen.append(pair)
    decided = [pair for pair in chosen if pair.family != "everyday"]
    return chosen + ties(decided, draw, 100)


def main() -> None:
    """Write `train_all.jsonl`, `train_permissive.jsonl` and `dev.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=Path, required=True, help="folder of *.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    pools = [pair for path in sorted(options.pools.glob("*.jsonl")) for pair in read_pairs(path)]
    pools = [pair for pair in pools if pair.family == "everyday" or not any(part in pair.question for part in OVERLAPS)]
    sets = {f"train_{name}": mixture(pools, name, random.Random(0)) for name in SHARES}
    sets["dev"] = development(pools, random.Random(1))
    for name, pairs in sets.items():
        write_pairs(options.out / f"{name}.jsonl", pairs)
        kinds = Counter(f"{pair.family}/{pair.kind}" for pair in pairs)
        decided = [pair.longer_is_better for pair in pairs if pair.longer_is_better is not None]
        print(f"{name}: {len(pairs)} pairs, longer answer better in {sum(decided)} of {len(decided)}; {dict(kinds)}")


if __name__ == "__main__":
    main()
