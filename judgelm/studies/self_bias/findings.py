"""Findings of the self-bias study in sentences, each with its numbers."""

from collections.abc import Iterator

from judgelm.metrics.resampling import Estimate
from judgelm.metrics.self_bias import BiasFit, Term, TermKind
from judgelm.studies.result import Table
from judgelm.studies.self_bias.regressions import LENGTH_BY_PROMPT, Fits

_KINDS: tuple[tuple[TermKind, str], ...] = (("self", "Self-bias"), ("family", "Family-bias"))


def findings(fits: Fits, powered: Table) -> Iterator[str]:
    """The main results, then by slice, then whether the checks agree, then what labels save."""
    for kind, title in _KINDS:
        yield from _signs(fits.main, kind, title, "")
    if any(fits.main.of("indicator")):
        yield from _signs(fits.main, "indicator", "The indicator's effect", "")
    for fit in fits.slices:
        if fit.fit is not None:
            yield from _signs(fit.fit, "self", "Self-bias", f" in {fit.column} {fit.name}")
    for kind, title in _KINDS:
        yield from _agreeing(fits, kind, title)
    yield from _length(fits)
    yield from _widths(powered)


def _signs(fit: BiasFit, kind: TermKind, title: str, where_suffix: str) -> Iterator[str]:
    """Levels above 0, below 0, and not distinguishable from 0."""
    known = [term for term in fit.of(kind) if term.estimate is not None]
    if not known:
        return
    above = [term for term in known if term.significant and _value(term) > 0]
    below = [term for term in known if term.significant and _value(term) < 0]
    rest = [term.level for term in known if not term.significant]
    parts = []
    if above:
        parts.append(f"positive for {_listed(sorted(above, key=_value, reverse=True))}")
    if below:
        parts.append(f"negative for {_listed(sorted(below, key=_value))}")
    if rest:
        parts.append(f"not distinguishable from 0 for {', '.join(rest)}")
    level = f"{100 * _estimate(known[0]).level:g} % intervals"
    yield f"{title}{where_suffix} is {'; '.join(parts)} ({level}, {fit.n:,} ratings)."


def _agreeing(fits: Fits, kind: TermKind, title: str) -> Iterator[str]:
    """Of each significant main estimate, in how many checks its sign stays, and its significance."""
    agreements = []
    for term in fits.main.of(kind):
        if not fits.checks or not term.significant:
            continue
        others = [
            other for check in fits.checks if (other := check.term(kind, term.level)) and other.estimate is not None
        ]
        same = [other for other in others if _value(other) * _value(term) > 0]
        strong = sum(other.significant for other in same)
        agreements.append(f"{term.level} {len(same)} of {len(others)} ({strong} significant)")
    if agreements:
        yield f"{title} keeps its sign under the checks on rows, reference, length and errors: {', '.join(agreements)}."


def _length(fits: Fits) -> Iterator[str]:
    check = fits.check(LENGTH_BY_PROMPT)
    if check is None or check.fit is None:
        return
    known = [term for term in check.fit.of("length") if term.estimate is not None]
    if known:
        low, high = min(known, key=_value), max(known, key=_value)
        yield (
            f"Beside the reference, length moves ratings by {_value(low):+.3f} ({low.level}) to {_value(high):+.3f} "
            f"({high.level}) per unit of tanh(z)."
        )


def _widths(powered: Table) -> Iterator[str]:
    widths = zip(powered.column("width"), powered.column("judge"), strict=True)
    known = sorted((width, str(judge)) for width, judge in widths if isinstance(width, float) and width == width)
    if known:
        yield (
            "With few human labels, stratified prediction-powered intervals are "
            f"{known[0][0]:.2f} ({known[0][1]}) to {known[-1][0]:.2f} ({known[-1][1]}) times as wide as labels alone."
        )


def _listed(terms: list[Term]) -> str:
    estimates = [(term.level, _estimate(term)) for term in terms]
    return ", ".join(f"{name} {each.value:+.3f} [{each.low:+.3f}, {each.high:+.3f}]" for name, each in estimates)


def _estimate(term: Term) -> Estimate:
    assert term.estimate is not None
    return term.estimate


def _value(term: Term) -> float:
    return _estimate(term).value
