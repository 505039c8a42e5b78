"""Records of training rows: options, a row of tokens, and statistics of the data."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""The label of a token without loss, as torch's cross entropy takes it."""

Kind = Literal["single", "pair", "multi"]
"""Kind of a row by its number of answers: one, two, more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Options that turn labelled answers into rows.

    Attributes:
        template: id of the template.
        window: most tokens of a row.
        scale: targets outside it are left out; its highest is the score of a single answer's reference.
        swap_prob: probability that a pair is shown with its answers exchanged, scores and reason with them.
        reference_drop_prob: probability that answers judged with a reference are shown without; a single one never is.
        reason_prob: share of rows with a reason after the score line.
        loss_on_prompt: whether the prompt's tokens count too (pre-training of a base).
        seed: of all draws, with a sample's id and the epoch, so no row depends on its position.
    """

    template: str
    window: int
    scale: tuple[float, float] = (1, 10)
    swap_prob: float = 0.0
    reference_drop_prob: float = 0.5
    reason_prob: float = 1.0
    loss_on_prompt: bool = False
    seed: int = 0


@dataclass(slots=True)
class RowCounts:
    """Statistics of the data: rows by kind, scores, and left-out rows by reason.

    `swapped` counts pairs shown the other way round; `not_swapped` pairs that were drawn for it, but whose reason does
    not say clearly which answer it means; `with_reference` prompts with a block for the reference, so no single
    answers, which stand beside theirs; `files` the rows of each file.
    """

    made: int = 0
    files: Counter[str] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    swapped: int = 0
    not_swapped: int = 0
    with_reference: int = 0
    with_reason: int = 0
    cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    scores: set[float] = field(default_factory=set)

    def add(self, other: "RowCounts") -> None:
        """Add statistics of more data."""
        for name in (each.name for each in fields(self)):
            mine, more = getattr(self, name), getattr(other, name)
            setattr(self, name, mine | more if isinstance(mine, set) else mine + more)

    @property
    def step(self) -> float:
        """The widest of 1, 0.5 and 0.25 of which every score is a multiple, else 0.1."""
        return next((step for step in (1, 0.5, 0.25) if all(score % step == 0 for score in self.scores)), 0.1)

    def __str__(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.most_common()) or "none"
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return (
            f"{self.made} rows ({kinds}), {self.swapped} swapped, {self.with_reference} with reference, "
            f"{self.with_reason} with reason, {self.cut} with an answer cut; left out: {left_out}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One training row.

    Attributes:
        sample_id: of its sample.
        input_ids: shape (tokens,), int32.
        labels: shape (tokens,), int32; `IGNORED` where there is no loss.
    """

    sample_id: str
    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]
