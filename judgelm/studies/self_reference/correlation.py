"""Self-Reference's instance-level analysis: partial correlations (Table 3), and what self-reference adds (Table 4)."""

from collections import Counter
from collections.abc import Mapping

from judgelm.metrics.correlation import Correlation, GenerationJudgment, band, generation_judgment, partial_change
from judgelm.metrics.resampling import Estimate
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.self_reference.aligned_votes import METHOD_NAMES, AlignedVotes, answer_arrays
from judgelm.studies.self_reference.truth import Method

Correlations = Mapping[tuple[str, str, Method], GenerationJudgment]
"""(data set, judge, method) -> its correlations."""


def correlations(votes: AlignedVotes) -> Correlations:
    """Equations 13 and 14 for every data set, judge and method."""
    results = {}
    for dataset, judge, method in votes.runs():
        arrays = answer_arrays(votes.of(judge, method, dataset))
        results[dataset, judge, method] = generation_judgment(*arrays.triple(), arrays.questions, votes.resampling)
    return results


def band_counts(results: Correlations, method: Method) -> Counter[str]:
    """Numbers of a method's cases by strength: weak (below 0.3), moderate, strong (0.5 and more) or undefined."""
    values = [result.g_j_given_a.estimate for (_, _, judged_with), result in results.items() if judged_with == method]
    return Counter("undefined" if value is None else band(value.value) for value in values)


def correlation_table(results: Correlations) -> Table:
    """All four correlations, both intervals of the partial one, and its band."""
    rows: list[Row] = []
    for (dataset, judge, method), result in results.items():
        partial = result.g_j_given_a
        plain = (result.g_j.estimate, result.g_a.estimate, result.j_a.estimate)
        strength = "undefined" if partial.estimate is None else band(partial.estimate.value)
        remark = _remark(partial)
        keys = (dataset, judge, METHOD_NAMES[method], result.n)
        rows.append((*keys, *plain, partial.estimate, partial.fisher, strength, remark))
    return table(
        rows,
        columns("text", dataset="data set", judge="judge", method="method"),
        columns("count", n="n"),
        columns("number", r_gj="r(G, J)", r_ga="r(G, A)", r_ja="r(J, A)", r_gj_given_a="r(G, J | A)"),
        columns("number", fisher="the same, Fisher's interval"),
        columns("text", band="strength", remark="remark"),
        name="partial-correlation",
        title="Generation and judgment, the agent's correctness held fixed",
        source="Self-Reference, equations 13 and 14, Tables 3, 9 and 4",
        note="G: the judge's own answer is right; J: its judgment is; A: the agent's answer is. Intervals resample "
        "whole questions; Fisher's take the rows for independent. Weak is below 0.3, strong 0.5 and more. A "
        "correlation with a constant is undefined; the paper prints 0.0000 for one.",
    )


def gains(votes: AlignedVotes) -> dict[tuple[str, str], Estimate | None]:
    """Gain in r_GJ|A by self-reference, over the answers that both methods judged, by data set and judge."""
    changes = {}
    for dataset, judge in votes.cells():
        both = votes.both(judge, dataset)
        if both.n:
            changes[dataset, judge] = partial_change(both.triple(0), both.triple(1), both.questions, votes.resampling)
    return changes


def gain_table(results: Correlations, gained: Mapping[tuple[str, str], Estimate | None]) -> Table:
    """Table 4: r_GJ|A under both methods and the gain."""
    rows: list[Row] = []
    for (dataset, judge), gain in gained.items():
        cot, guided = (results[dataset, judge, method].g_j_given_a.estimate for method in ("cot", "guided"))
        strength = "undefined" if guided is None else band(guided.value)
        rows.append((dataset, judge, cot, guided, gain, strength))
    return table(
        rows,
        columns("text", dataset="data set", judge="judge"),
        columns("number", cot="CoT", guided="self-reference", gain="gain"),
        columns("text", band="strength with self-reference"),
        name="partial-correlation-gain",
        title="Partial correlation with self-reference, and the gain over CoT",
        source="Self-Reference, Tables 4, 11 and 12",
        note="The gain is over the answers that both methods judged, so that it need not be the difference of the "
        "other two columns where one method failed on some.",
    )


def mean_gain(gained: Mapping[tuple[str, str], Estimate | None]) -> tuple[float, int] | None:
    """The plain mean of the defined gains and their number; None without any (section 5.2: 0.35)."""
    values = [gain.value for gain in gained.values() if gain is not None]
    return (sum(values) / len(values), len(values)) if values else None


def _remark(correlation: Correlation) -> str:
    if correlation.estimate is None:
        return correlation.why
    if correlation.undefined_resamples:
        return f"undefined in {100 * correlation.undefined_resamples:.1f} % of the resamples"
    return ""
