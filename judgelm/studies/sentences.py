"""Format numbers and names for findings, warnings, and file names."""

import math
from collections.abc import Callable

from judgelm.metrics.resampling import Estimate

_OPENING = 160


def format_share(estimate: Estimate | None) -> str:
    """Format as `71.1 % (95 % interval 68.2 to 73.9, n = 300)`."""
    return "undefined" if estimate is None else f"{100 * estimate.value:.1f} % ({_interval(estimate, 100, '.1f')})"


def format_points(estimate: Estimate) -> str:
    """Format a difference of shares as `+3.1 points (95 % interval -0.2 to +6.4, n = 300)`."""
    return f"{100 * estimate.value:+.1f} points ({_interval(estimate, 100, '+.1f')})"


def format_number(estimate: Estimate | None, form: str = ".3f") -> str:
    """Format as `0.412 (95 % interval 0.380 to 0.447, n = 300)`."""
    return "undefined" if estimate is None else f"{estimate.value:{form}} ({_interval(estimate, 1, form)})"


def format_percents(estimate: Estimate) -> str:
    """Format the interval in percent: `68.2 to 73.9`."""
    return f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def by_sign(difference: Estimate, above: str, below: str, neither: str) -> str:
    """Choose a phrase depending on whether the interval is above, below, or around 0."""
    return above if difference.low > 0 else below if difference.high < 0 else neither


def few_pairs_sentence(n: int, kind: str = "pairs") -> str:
    """Return a warning about a small number of pairs."""
    return f"There are only {n:,} {kind}; rely on the intervals rather than on the point estimates."


def excerpt(text: str) -> str:
    """Return the beginning of a text on a single line."""
    line = " ".join(text.split())
    return line if len(line) <= _OPENING else f"{line[: _OPENING - 1]}…"


def file_slug(group: str) -> str:
    """Convert a name for use in a file name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in group.lower())


def format_bounds(estimate: Estimate, written: Callable[[float], str]) -> str:
    """Format as `0.380 to 0.447`, or `from 0.380, no upper bound` if infinite, or `no interval` if NaN."""
    low, high = estimate.low, estimate.high
    if math.isnan(low) or math.isnan(high):
        return "no interval"
    if math.isinf(low) and math.isinf(high):
        return "no bounds"
    if math.isinf(high):
        return f"from {written(low)}, no upper bound"
    if math.isinf(low):
        return f"to {written(high)}, no lower bound"
    return f"{written(low)} to {written(high)}"


def _interval(estimate: Estimate, times: float, form: str) -> str:
    bounds = format_bounds(estimate, lambda bound: f"{times * bound:{form}}")
    interval = bounds if bounds.startswith("no ") else f"{100 * estimate.level:g} % interval {bounds}"
    return f"{interval}, n = {estimate.n:,}"
