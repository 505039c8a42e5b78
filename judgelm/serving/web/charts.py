"""Score distributions drawn as SVG: one hue from faint to full, probabilities as numbers, axes named.

The drawings scale with their column and take their colours from the page's style, so they fit dark and light. What they
show stands beside them as a table too, for those who cannot see them or want the digits.
"""

from collections.abc import Sequence

from judgelm.records import GradeDistribution, PairDistribution

_SIDE, _LEFT, _BOTTOM, _TOP = 300, 52, 46, 10
_NUMBERED = 12
"""Most scores on an axis that leave room for a probability in each cell."""
_MOST_TICKS = 12
_LEAST_SHOWN = 0.005
_LISTED = 8
_CAPTION = "Probability of each score line in percent. Above the dashed line answer 2 is better, below it answer 1."


def heat_map(found: PairDistribution, order: tuple[int, ...], values: Sequence[float]) -> str:
    """P(score of answer 1, score of answer 2), in sample order whichever stood first.

    Args:
        found: in the order shown.
        order: in which the answers were shown.
        values: the judge's scores, ascending: n columns from left to right and n rows from bottom to top.
    """
    masses = {((s1, s2) if order == (0, 1) else (s2, s1)): mass for s1, s2, mass in found.likeliest}
    cell = _SIDE / len(values)
    most = max(masses.values(), default=1.0)
    place = {value: number for number, value in enumerate(values)}
    cells = []
    for (first, second), mass in masses.items():
        x, y = _LEFT + place[first] * cell, _TOP + _SIDE - (place[second] + 1) * cell
        strength = 0.08 + 0.92 * mass / most
        cells.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" class="jl-heat" '
            f'fill-opacity="{strength:.3f}"><title>answer 1: {first:g}, answer 2: {second:g}: {_percent(mass)}'
            "</title></rect>"
        )
        if len(values) <= _NUMBERED and mass >= _LEAST_SHOWN:
            inside = "jl-on" if strength > 0.55 else "jl-off"
            cells.append(_text(x + cell / 2, y + cell / 2 + 3.5, f"{100 * mass:.0f}", f"jl-number {inside}"))
    right, low = _LEFT + _SIDE, _TOP + _SIDE
    frame = f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" class="jl-frame"/>'
    equal = f'<path d="M{_LEFT} {low}L{right} {_TOP}" class="jl-equal"/>'
    label = f"Probabilities of the score lines in percent. {_likeliest_in_words(masses)}"
    drawing = "".join([frame, *cells, equal, *_ticks(values, cell)])
    names = _text(_LEFT + _SIDE / 2, low + 38, "score of answer 1", "jl-axis") + _upright("score of answer 2")
    caption = f'<p class="jl-small">{_CAPTION}</p>'
    rows = [(f"{first:g}", f"{second:g}", mass) for (first, second), mass in masses.items()]
    table = _table(("answer 1", "answer 2"), rows)
    return _svg(label, drawing + names, height=_TOP + _SIDE + _BOTTOM) + caption + table


def grade_bars(found: GradeDistribution, values: Sequence[float]) -> str:
    """P(score) of one answer, a bar for each of the judge's scores."""
    masses = dict(found.likeliest)
    most = max(masses.values(), default=1.0)
    height, step = 160, _SIDE / len(values)
    bars = []
    for number, value in enumerate(values):
        mass = masses.get(value, 0.0)
        tall = (height - 16) * mass / most
        x = _LEFT + number * step
        bars.append(
            f'<rect x="{x + step * 0.12:.1f}" y="{_TOP + height - tall:.1f}" width="{step * 0.76:.1f}" '
            f'height="{tall:.1f}" class="jl-heat"><title>{value:g}: {_percent(mass)}</title></rect>'
        )
        if mass >= most / 100 and len(values) <= _NUMBERED:
            digits = 0 if mass >= 0.01 else 2
            bars.append(_text(x + step / 2, _TOP + height - tall - 4, f"{100 * mass:.{digits}f}", "jl-number jl-off"))
    base = f'<path d="M{_LEFT} {_TOP + height}H{_LEFT + _SIDE}" class="jl-frame"/>'
    ticks = [_text(_LEFT + (n + 0.5) * step, _TOP + height + 16, f"{values[n]:g}", "jl-tick") for n in _ticked(values)]
    names = _text(_LEFT + _SIDE / 2, _TOP + height + 38, "score", "jl-axis")
    side = _upright("probability in %", middle=_TOP + height / 2)
    likeliest = f"Probabilities of the scores in percent. Likeliest: {_grade_in_words(masses)}"
    drawing = "".join([base, *bars, *ticks, names, side])
    return _svg(likeliest, drawing, height=_TOP + height + _BOTTOM) + _table(
        ("score",), [(f"{value:g}", mass) for value, mass in masses.items()]
    )


def probability_bar(first_better: float) -> str:
    """P(first better) as a bar between the two answers; the words beside it say the number."""
    share = 100 * first_better
    return (
        f'<div class="jl-balance" role="img" aria-label="P(first better) {first_better:.2f}">'
        f"<span>answer 1<br>{share:.0f} %</span>"
        f'<div class="jl-track"><div class="jl-fill" style="width:{share:.1f}%"></div></div>'
        f"<span>answer 2<br>{100 - share:.0f} %</span></div>"
    )


def score_bars(scores: Sequence[float], scale: tuple[float, float]) -> str:
    """The score of each answer on the judge's scale, one below the other."""
    low, high = scale
    rows = "".join(
        f'<li><span>answer {number}</span><div class="jl-track"><div class="jl-fill" '
        f'style="width:{max(0.0, min(1.0, (score - low) / (high - low))):.1%}"></div></div><b>{score:g}</b></li>'
        for number, score in enumerate(scores, 1)
    )
    return f'<ul class="jl-scores">{rows}</ul>'


def _ticks(values: Sequence[float], cell: float) -> list[str]:
    found = []
    for number in _ticked(values):
        middle = (number + 0.5) * cell
        found.append(_text(_LEFT + middle, _TOP + _SIDE + 16, f"{values[number]:g}", "jl-tick"))
        found.append(_text(_LEFT - 8, _TOP + _SIDE - middle + 4, f"{values[number]:g}", "jl-tick jl-end"))
    return found


def _ticked(values: Sequence[float]) -> range:
    """Which scores are named on an axis: all of a few, else every so many."""
    return range(0, len(values), -(-len(values) // _MOST_TICKS))


def _svg(label: str, drawing: str, *, height: float) -> str:
    width = _LEFT + _SIDE + 10
    return (
        f'<svg class="jl-chart" viewBox="0 0 {width} {height:g}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg">{drawing}</svg>'
    )


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def _upright(words: str, middle: float = _TOP + _SIDE / 2) -> str:
    return f'<text transform="translate(14 {middle:g}) rotate(-90)" class="jl-axis">{words}</text>'


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str | float, ...]]) -> str:
    """The likeliest in digits, folded away."""
    head = "".join(f"<th>{one}</th>" for one in (*heads, "probability"))
    body = "".join(
        f"<tr>{''.join(f'<td>{one}</td>' for one in row[:-1])}<td>{_percent(float(row[-1]))}</td></tr>"
        for row in rows[:_LISTED]
    )
    return (
        f'<details class="jl-digits"><summary>The likeliest in digits</summary><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></details>"
    )


def _likeliest_in_words(masses: dict[tuple[float, float], float]) -> str:
    if not masses:
        return "No score line has any."
    (first, second), mass = max(masses.items(), key=lambda one: one[1])
    return f"Likeliest: {first:g} for answer 1 and {second:g} for answer 2, {_percent(mass)}."


def _grade_in_words(masses: dict[float, float]) -> str:
    if not masses:
        return "none."
    value, mass = max(masses.items(), key=lambda one: one[1])
    return f"{value:g}, {_percent(mass)}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
