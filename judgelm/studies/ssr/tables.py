"""SSR-Judge's tables: the comparison at every tau, the four slices, categories, calibration and cost."""

from collections.abc import Mapping, Sequence

import numpy as np

from judgelm.metrics.correctness import calibration_curve, thresholds
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.ssr.items import SPLIT_RULES, SplitRule, SsrItem, SsrItems

CONDITIONS = ("no reference (A)", "always (B)", "selective (C)")
SLICES = ("on, majority right", "on, majority wrong", "off, majority right", "off, majority wrong")


def all_taus(items: SsrItems) -> tuple[float, ...]:
    """Every threshold at which the gate changes for these items, lowest first."""
    return thresholds([item.majority.k for item in items.items])


def comparison_table(items: SsrItems, tau: float, resampling: Resampling) -> Table:
    """Table 1 at one tau: each condition under each rule for a split, all columns by the same gate."""
    on, gate = items.on(tau), items.gate(tau, resampling)
    undecided = np.isnan(items.credits("tie", tau)).sum(axis=0).tolist()
    rows: list[Row] = []
    for rule in SPLIT_RULES:
        whole, gains = items.accuracies(rule, tau, ((0, 0), (1, 0), (2, 0), (2, 1)), resampling)
        parts = [items.where(mask).accuracies(rule, tau, (), resampling)[0] for mask in (on, ~on)]
        for index, name in enumerate(CONDITIONS):
            gain = None if index == 0 else gains[index]
            over_always = gains[3] if index == 2 else None
            shares = (whole[index], parts[0][index], parts[1][index], gain, over_always)
            rows.append((name, rule, *shares, undecided[index], gate.rate, gate.precision))
    return table(
        rows,
        columns("text", condition="condition", split="a split counts as"),
        columns("share", accuracy="PreferenceAcc", accuracy_on="gate on", accuracy_off="gate off"),
        columns("share", gain="gain over A", gain_over_always="gain over B"),
        columns("count", splits="splits"),
        columns("share", gate_on_rate="gate-on rate", gate_precision="gate precision"),
        name="comparison",
        title=f"Never, always and selective self-reference on the same self-solves, tau = {tau:g}",
        source="SSR-Judge, Table 1",
        note="A split: the two orders name different answers. It counts as wrong, as half right, or as a tie, which "
        "decides nothing and is left out of the accuracy. All columns use the gate of this tau, unlike the paper's.",
    )


def tau_table(items: SsrItems, rule: SplitRule, resampling: Resampling) -> Table:
    """Precision, coverage and PreferenceAcc of selective self-reference at every tau."""
    rows: list[Row] = []
    for tau in all_taus(items):
        on, gate = items.on(tau), items.gate(tau, resampling)
        whole, gains = items.accuracies(rule, tau, ((2, 0), (2, 1)), resampling)
        on_part, off_part = (items.where(mask).accuracies(rule, tau, (), resampling)[0] for mask in (on, ~on))
        slices = (on_part[0], on_part[1], off_part[0], off_part[1])
        rows.append((tau, int(on.sum()), gate.rate, gate.precision, whole[2], *gains, *slices))
    return table(
        rows,
        columns("number", tau="tau"),
        columns("count", n_on="gate on, n"),
        columns("share", gate_on_rate="gate-on rate", gate_precision="gate precision", accuracy="PreferenceAcc (C)"),
        columns("share", gain="gain over A", gain_over_always="gain over B", never_on="A, gate on"),
        columns("share", always_on="B, gate on", never_off="A, gate off", always_off="B, gate off"),
        name="every-tau",
        title=f"Selective self-reference at every tau, a split counts as {rule}",
        source="SSR-Judge, sections 3.3 and 4.2",
        note="C takes B's verdict where the gate is on and A's where it is off, so that its slices are theirs. The "
        "gate is never on where no answer could be extracted. A gain of 0 whose interval has no width is one of two "
        "conditions that are the same there.",
    )


def slice_table(items: SsrItems, taus: Sequence[float], rule: SplitRule, resampling: Resampling) -> Table:
    """Table 2 at several taus: gate on or off by majority right or wrong, of items where this is known."""
    right, known = items.right(), items.known()
    rows: list[Row] = []
    for tau in taus:
        on = items.on(tau)
        masks = [gate & (right == correct) & known for gate in (on, ~on) for correct in (True, False)]
        for name, mask in zip(SLICES, masks, strict=True):
            accuracy, differences = items.where(mask).accuracies(rule, tau, ((1, 0),), resampling)
            matches = "B" if name.startswith("on") else "A"
            rows.append((tau, name, int(mask.sum()), float(mask.mean()), *accuracy, differences[0], matches))
    return table(
        rows,
        columns("number", tau="tau"),
        columns("text", slice="gate and majority answer"),
        columns("count", n="n"),
        columns("share", share="share of items", never="no reference (A)", always="always (B)"),
        columns("share", selective="selective (C)", difference="B minus A"),
        columns("text", matches="C is"),
        name="four-slices",
        title=f"Where self-reference helps and where it passes an error on, a split counts as {rule}",
        source="SSR-Judge, Table 2 and Figure 2",
        note="The paper calls the slices of tau = 0.8 unanimous; unanimity is tau = 1.",
    )


def calibration_table(items: SsrItems, resampling: Resampling) -> Table:
    """Figure 3 in numbers: how often the majority answer is right at each level of agreement."""
    known = items.where(items.known())
    agreement = np.array([item.majority.agreement for item in known.items])
    curve = calibration_curve(agreement, known.right(), known.questions, resampling)
    return table(
        [(level.agreement, level.n, level.right) for level in curve],
        columns("number", agreement="agreement"),
        columns("count", n="n"),
        columns("share", right="majority answer right"),
        name="calibration",
        title="Agreement of the self-solves against the majority answer's correctness",
        source="SSR-Judge, section 4.4 and Figure 3",
        note="An agreement of 0 is that of items whose self-solves hold no extractable answer.",
    )


def category_table(items: SsrItems, tau: float, rule: SplitRule, resampling: Resampling) -> Table:
    """Section 4.5: gains and gate precision by category, the largest gain over no reference first."""
    rows = []
    for name, part in by_category(items).items():
        accuracy, gains = part.accuracies(rule, tau, ((2, 0), (2, 1)), resampling)
        gate = part.gate(tau, resampling)
        rows.append((name, len(part.items), *accuracy, *gains, gate.rate, gate.precision))
    rows.sort(key=lambda row: -row[5].value if isinstance(row[5], Estimate) else 1.0)
    return table(
        rows,
        columns("text", category="category"),
        columns("count", n="n"),
        columns("share", never="no reference (A)", always="always (B)", selective="selective (C)"),
        columns("share", gain="gain over A", gain_over_always="gain over B", gate_on_rate="gate-on rate"),
        columns("share", gate_precision="gate precision"),
        name="categories",
        title=f"By category, tau = {tau:g}, a split counts as {rule}",
        source="SSR-Judge, section 4.5",
    )


def cost_table(items: SsrItems, never: Mapping[str, Judgment], always: Mapping[str, Judgment], tau: float) -> Table:
    """Calls and tokens of each condition over the items compared."""
    on = [item.majority.passes(tau) for item in items.items]
    used = {
        CONDITIONS[0]: [never[item.id] for item in items.items],
        CONDITIONS[1]: [always[item.id] for item in items.items],
        CONDITIONS[2]: [(always if gate else never)[item.id] for item, gate in zip(items.items, on, strict=True)],
    }
    solves = sum(item.majority.k for item in items.items)
    rows: list[Row] = []
    for name, judgments in used.items():
        calls = sum(sum(len(shown.order) == 2 for shown in judgment.shown) for judgment in judgments)
        tokens = (
            sum(judgment.prompt_tokens for judgment in judgments),
            sum(judgment.completion_tokens for judgment in judgments),
        )
        needed = 0 if name == CONDITIONS[0] else solves
        rows.append((name, len(judgments), solves, needed, calls, calls / len(judgments), *tokens))
    return table(
        rows,
        columns("text", condition="condition"),
        columns("count", n="items", solves="self-solves, compute-matched", solves_needed="self-solves it needs"),
        columns("count", calls="judge calls"),
        columns("number", calls_per_item="judge calls per item"),
        columns("count", prompt_tokens="prompt tokens", completion_tokens="reply tokens"),
        name="cost",
        title=f"Cost over the same items, tau = {tau:g}",
        source="SSR-Judge, sections 4.1 and 5",
        note="Tokens are those that the run files state for the judgments used; self-solves that a run reused are not "
        "in its tokens. Without reference no self-solve is needed; comparing at equal cost counts them all the same.",
    )


def by_category(items: SsrItems) -> dict[str, SsrItems]:
    """The items of each category, in the order met; the counts stay those of all."""
    groups: dict[str, list[SsrItem]] = {}
    for item in items.items:
        groups.setdefault(item.category, []).append(item)
    return {name: SsrItems(items=tuple(part), counts=items.counts) for name, part in groups.items()}
