"""The plan: bases, fine-tunings, and the table of the paper in which each of them stands.

JudgeLM fine-tunes Vicuna 7B, 13B and 33B on 3.5K to 100K judgments of GPT-4. Here small Llamas that have read the
synthetic world's text stand for Vicuna, the world's teacher for GPT-4. As in the paper, Tables 5 and 6 are made with
the smallest base and the smallest data, Table 4 with a plain judge (no technique), Table 1 with all three techniques.
"""

from dataclasses import dataclass
from itertools import product
from typing import Literal

Reference = Literal["never", "always", "drop"]
"""Which rows of a fine-tuning show a reference: none, all, or a half that every epoch draws anew."""

Shown = Literal["without", "with"]
"""Whether a judge is tested without or with references."""

PREFERENCE = 0.4
"""Share of close pairs in which the teacher gives the answer that it reads first a point more. It is a minority: a
judge that were sure of all would still call such pairs ties, so what is measured is a lean of the judge's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base model, and the peak learning rate of pre-training it and of fine-tuning judges from it."""

    name: str
    hidden_size: int
    layers: int
    heads: int
    learning_rate: float


BASES = (
    Base(name="S", hidden_size=64, layers=2, heads=4, learning_rate=3e-3),
    Base(name="M", hidden_size=128, layers=2, heads=8, learning_rate=2e-3),
    Base(name="L", hidden_size=192, layers=2, heads=8, learning_rate=1.5e-3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One fine-tuning; the seed draws its data, their order, and what is swapped or dropped."""

    base: str
    rows: int
    seed: int
    swap: bool = False
    reference: Reference = "never"

    @property
    def name(self) -> str:
        """A folder's name."""
        return f"{self.base}-{self.rows}-{'swap' if self.swap else 'plain'}-{self.reference}-{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Amount of work.

    Attributes:
        documents: what each base reads.
        scales: rows to fine-tune on, smallest first.
        seeds: fine-tunings of each row of Tables 4 and 1, and of Tables 5 and 6.
        ablation: base and rows of Tables 5 and 6.
        test: held-out pairs, the same for every judge.
        epochs: passages through the rows, as in Table 7 of the paper.
        batch: rows of a step.
    """

    name: str
    documents: int
    scales: tuple[int, ...]
    seeds: tuple[int, int]
    ablation: tuple[str, int]
    test: int
    bases: tuple[Base, ...] = BASES
    epochs: int = 3
    batch: int = 32

    def cell(self, base: str, rows: int, *, swap: bool = False, reference: Reference = "never") -> list[Run]:
        """The runs of one row of a table, one for each seed."""
        seeds = self.seeds[(base, rows) == self.ablation]
        return [Run(base=base, rows=rows, seed=seed, swap=swap, reference=reference) for seed in range(seeds)]

    def formats(self, run: Run) -> tuple[Shown, ...]:
        """Prompt formats that test a run's judge; only Table 4's other judges are not asked with references."""
        ablated = (run.base, run.rows) == self.ablation
        return ("without", "with") if ablated or run.reference != "never" else ("without",)

    def runs(self) -> list[Run]:
        """Every fine-tuning once, those of Tables 5, 6 and 1 first."""
        ablated, few = self.ablation
        cells = [self.cell(ablated, few, swap=swap) for swap in (False, True)]
        cells += [self.cell(ablated, few, reference=reference) for reference in ("always", "drop")]
        cells += [self.cell(base.name, self.scales[-1], swap=True, reference="drop") for base in self.bases]
        cells += [self.cell(base.name, rows) for base, rows in product(self.bases, self.scales)]
        return list(dict.fromkeys(run for cell in cells for run in cell))


PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            name="full",
            documents=204_800,
            scales=(1_000, 2_000, 4_000, 8_000),
            seeds=(3, 6),
            ablation=("M", 4_000),
            test=2_000,
        ),
        Plan(name="quick", documents=38_400, scales=(1_000, 4_000), seeds=(2, 2), ablation=("S", 4_000), test=500),
        Plan(name="smoke", documents=640, scales=(64, 128), seeds=(1, 1), ablation=("S", 64), test=20, bases=BASES[:1]),
    )
}
