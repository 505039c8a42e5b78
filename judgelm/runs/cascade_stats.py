"""What a cascade of two judges has done, in counts: what the large judge was spared, and where it decided otherwise."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class CascadeStats:
    """A cascade in counts.

    Attributes:
        pairs: judged by the small judge.
        passed_on: of them to the large judge: those it was unsure of, and `passed_on_failed`, which it could not judge.
        waiting: of those passed on, not yet judged by the large judge, and so not in the joined file.
        small_tokens: prompt tokens that the small judge read, `small_tokens_passed_on` of them for pairs passed on.
        large_tokens: prompt tokens that the large judge read.
        compared: passed on, with a verdict of both judges; of them `changed` have another winner.
        mended: passed on without a verdict of the small judge, and given one by the large.
        small_parameters: weights that a prompt token is multiplied with; None where they are not known.
    """

    pairs: int = 0
    passed_on: int = 0
    passed_on_failed: int = 0
    waiting: int = 0
    small_tokens: int = 0
    small_tokens_passed_on: int = 0
    large_tokens: int = 0
    compared: int = 0
    changed: int = 0
    mended: int = 0
    small_parameters: int | None = None
    large_parameters: int | None = None

    @property
    def pairs_spared(self) -> float | None:
        """Share of the pairs that the large judge was not shown; None of no pairs."""
        return 1 - self.passed_on / self.pairs if self.pairs else None

    @property
    def tokens_spared(self) -> float | None:
        """Share of the prompt tokens that it was not shown, as the small judge counts them."""
        return 1 - self.small_tokens_passed_on / self.small_tokens if self.small_tokens else None

    @property
    def operations_saved(self) -> float | None:
        """1 less the operations of both judges (2 x parameters x prompt tokens) over those of the large one alone.

        What the large judge alone would have read is its own tokens, or the small judge's where it saw none, scaled up
        by the share of tokens that it was shown. Below 0 where the cascade costs more; None where it is not known.
        """
        if not (self.small_parameters and self.large_parameters and self.small_tokens) or self.waiting:
            return None
        shown = self.small_tokens_passed_on / self.small_tokens
        alone = self.large_tokens / shown if shown else self.small_tokens
        if not alone:  # it was shown pairs and could read none of them
            return None
        spent = self.small_parameters * self.small_tokens + self.large_parameters * self.large_tokens
        return 1 - spent / (self.large_parameters * alone)
