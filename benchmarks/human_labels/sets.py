"""The six sets: who labelled them, their protocols, what is published, and their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from judgelm.data.labelled_pair import uniform_hash
from judgelm.data.labelled_set import read_labels
from judgelm.records import Sample
from judgelm.studies.pair_labels import label_of

Protocol = Literal["conflict_is_tie", "mean_of_orders", "vote", "every_order", "probability"]
PROTOCOL_WORDS: dict[Protocol, str] = {
    "conflict_is_tie": "a conflict of the orders is a tie; agreement over 1, 2 and tie",
    "mean_of_orders": "mean of the two orders' accuracies",
    "vote": "each order votes; right where the right answer has more votes",
    "every_order": "right where both orders give the label",
    "probability": "mean P(first better) of both orders",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure of another judge on the same set, in percent, by the set's own protocol unless `note` says more."""

    judge: str
    percent: float
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanSet:
    """One set.

    Attributes:
        name: of its file in the data folder.
        title: as tables show it.
        labels: the origin of its labels.
        ties: whether labels can be ties, so that the judge's verdicts can be ties too.
        protocol: the authors' way from two orders to a figure.
    """

    name: str
    title: str
    labels: str
    ties: bool
    protocol: Protocol
    published: tuple[Published, ...] = ()


_LLMBAR = "princeton-nlp/LLMBar, Dataset/*/evaluators/*/*/statistics.json (correct_average, summed over sets)"
_JUDGEBENCH = "ScalerLab/JudgeBench, outputs/, counted by utils/metrics.py"
_AUTO_J = "GAIR-NLP/auto-j, README.md, table of pairwise comparison"
_PANDALM = "WeOpenML/PandaLM, README.md and data/*-testset-v1.json"
SETS = (
    HumanSet(
        name="pandalm",
        title="PandaLM",
        labels="majority of 3 people",
        ties=True,
        protocol="conflict_is_tie",
        published=(
            Published(judge="GPT-3.5", percent=71.07, source=_PANDALM),
            Published(judge="PandaLM-7B", percent=66.77, source=_PANDALM),
        ),
    ),
    HumanSet(
        name="llmbar",
        title="LLMBar",
        labels="written and checked by the authors",
        ties=False,
        protocol="mean_of_orders",
        published=(
            Published(judge="GPT-4, Vanilla", percent=84.49, source=_LLMBAR),
            Published(judge="PaLM 2, Vanilla", percent=69.81, source=_LLMBAR),
            Published(judge="Falcon-180B, Vanilla", percent=56.44, source=_LLMBAR),
            Published(judge="LLaMA-2-70B, Vanilla", percent=44.15, source=_LLMBAR),
            Published(judge="ChatGPT, Vanilla", percent=39.98, source=_LLMBAR),
        ),
    ),
    HumanSet(
        name="auto-j",
        title="Auto-J pairwise",
        labels="one person each",
        ties=True,
        protocol="every_order",
        published=(
            Published(judge="GPT-4", percent=62.28, source=_AUTO_J),
            Published(judge="Auto-J-13B", percent=54.96, source=_AUTO_J),
            Published(judge="ChatGPT", percent=42.74, source=_AUTO_J),
            Published(judge="PandaLM-7B", percent=39.44, source=_AUTO_J),
            Published(judge="LLaMA-2-13B-Chat", percent=29.81, source=_AUTO_J),
        ),
    ),
    HumanSet(
        name="judgebench",
        title="JudgeBench",
        labels="objective: which answer is right",
        ties=False,
        protocol="vote",
        published=(
            Published(judge="o1-mini", percent=65.71, source=_JUDGEBENCH, note="350 pairs by GPT-4o"),
            Published(judge="Skywork-Reward-Llama-3.1-8B", percent=62.29, source=_JUDGEBENCH, note="the same 350"),
            Published(judge="GRM-Gemma-2B", percent=59.43, source=_JUDGEBENCH, note="the same 350"),
            Published(judge="Claude 3 Haiku", percent=32.22, source=_JUDGEBENCH, note="270 pairs by Claude 3.5 Sonnet"),
        ),
    ),
    HumanSet(
        name="mt-bench",
        title="MT-bench, turn 1",
        labels="majority of people's votes, no ties (LLMBar's sample)",
        ties=False,
        protocol="mean_of_orders",
        published=(
            Published(judge="GPT-4, Vanilla without rules", percent=81.0, source=_LLMBAR),
            Published(judge="LLaMA-2-70B, Vanilla without rules", percent=72.0, source=_LLMBAR),
            Published(judge="ChatGPT, Vanilla without rules", percent=71.25, source=_LLMBAR),
            Published(judge="PaLM 2, Vanilla without rules", percent=70.25, source=_LLMBAR),
        ),
    ),
    HumanSet(
        name="alpaca-eval",
        title="AlpacaEval, held out",
        labels="judges of GPT-4's class, not people",
        ties=False,
        protocol="probability",
    ),
)
DEV_SET = HumanSet(
    name="dev",
    title="AlpacaEval, development",
    labels="judges of GPT-4's class, not people",
    ties=False,
    protocol="probability",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Labelled pairs.

    Attributes:
        samples: n pairs.
        truth: shape (n,), +1 first better, 0 tie, -1 second better.
    """

    samples: tuple[Sample, ...]
    truth: NDArray[np.int_]

    @property
    def questions(self) -> list[str]:
        """The question of each pair: pairs of one are resampled together."""
        return [sample.question for sample in self.samples]

    def part(self, chosen: NDArray[np.int_]) -> "Rows":
        """Some of the pairs, by index."""
        return Rows(samples=tuple(self.samples[index] for index in chosen), truth=self.truth[chosen])

    def subset(self, limit: int | None, seed: int) -> "Rows":
        """A fixed subset of at most `limit` pairs, in order; None: all.

        A pair's id and the seed decide whether it is in a subset, so that a smaller one is part of a larger one.
        """
        ranks = [uniform_hash(seed, sample.id, "human labels") for sample in self.samples]
        return self.part(np.sort(np.argsort(ranks, kind="stable")[:limit]))


def read_rows(path: Path, *, limit: int | None, seed: int) -> Rows:
    """The labelled pairs of a file, or a fixed subset of `limit` of them (`Rows.subset`)."""
    labelled = read_labels(str(path))
    pairs = [
        (sample, label_of(label.winner))
        for key, sample in labelled.samples.items()
        if (label := labelled.labels.get(key)) is not None and label.winner is not None
    ]
    rows = Rows(samples=tuple(sample for sample, _ in pairs), truth=np.array([label for _, label in pairs], dtype=int))
    return rows.subset(limit, seed)


def estimated_tokens(samples: Sequence[Sample], overhead: int = 190) -> int:
    """Prompt tokens of both orders at four characters a token, with `overhead` tokens of template (judgelm-chat)."""
    characters = sum(len(sample.question) + sum(map(len, sample.answers)) for sample in samples)
    return 2 * (characters // 4 + overhead * len(samples))
