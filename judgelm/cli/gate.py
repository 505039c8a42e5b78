"""`judgelm gate`: fail a CI job if a run is worse than its baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from judgelm.cli.console import PlainConsole, Results, console, result_table, write_text
from judgelm.cli.options import LabelOptions
from judgelm.errors import ConfigError, InputError
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, PairVerdict

_POSITIVE = ("yes", "correct", "supported", "true", "pass", "match")
_EXIT = {"passed": 0, "failed": 3, "undecided": 4}
_JUDGE = ("model", "template", "mode")
"""Parts of the fingerprint that must be the same in both runs."""


def gate_command(
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE")],
    new: Annotated[Path, typer.Argument(metavar="NEW")],
    max_drop: Annotated[float | None, typer.Option(metavar="POINTS", min=0)] = None,
    labels: Annotated[Path | None, typer.Option("--labels", "-l", metavar="FILE")] = None,
    min_agreement: Annotated[float | None, typer.Option(min=0, max=1)] = None,
    max_failures: Annotated[int | None, typer.Option(min=0)] = None,
    max_flips: Annotated[int | None, typer.Option(min=0)] = None,
    positive: Annotated[str | None, typer.Option(metavar="LABEL")] = None,
    answer: Annotated[int, typer.Option(min=1, max=2)] = 1,
    undecided: Literal["pass", "fail"] | None = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows: LabelOptions,
    results: Results,
) -> None:
    """Compare a run with its baseline, and set the exit code for CI.

    Both runs must be by the same judge, over the same samples. The drop is the baseline minus the new run, paired by
    ID: in points of the scale for grades, and in percentage points for labels and win rates. A check passes or fails
    only if its whole 95 % interval is on one side of the limit. Otherwise it is undecided, and the table shows the
    number of pairs that would decide it.

    Options:
        baseline: Run file of the baseline.
        new: Run file of the new version.
        max_drop: Maximum drop.
        labels: Labels of the new run's samples, for --min-agreement.
        min_agreement: Minimum share of verdicts that agree with the labels, from 0 to 1.
        max_failures: Maximum number of samples of the baseline that the new run failed to judge.
        max_flips: Maximum number of samples with different verdicts.
        positive: Label that counts as 100 %. Default: yes, correct, supported, true, pass, or match.
        answer: For pairs, the answer whose win rate is compared.
        undecided: Treat undecided checks as passed or failed.
        markdown: Also write the table as Markdown, such as to $GITHUB_STEP_SUMMARY.

    Examples:
        judgelm gate main.jsonl branch.jsonl --max-drop 3 --max-failures 0
        judgelm gate main.jsonl branch.jsonl -l labelled.jsonl --min-agreement 0.7

    Exit codes: 0 passed, 1 usage or input error, or another judge, 3 failed, 4 undecided.
    """
    if all(limit is None for limit in (max_drop, min_agreement, max_failures, max_flips)):
        raise ConfigError("nothing to check; pass --max-drop, --min-agreement, --max-failures, or --max-flips")
    if (labels is None) != (min_agreement is None):
        raise ConfigError("--labels and --min-agreement require each other; pass both")
    from judgelm.runs.run_files import read_judgments

    _check_same_judge(baseline, new)
    before, after = read_judgments(baseline), read_judgments(new)
    _check_same_questions(before, after, new)
    both = [name for name, each in before.items() if each.verdict and name in after and after[name].verdict]
    lines: list[dict[str, Any]] = []
    if max_drop is not None:
        lines.append(_drop(before, after, both, max_drop, _scale(new), positive, answer))
    if min_agreement is not None and labels is not None:
        lines.append(_agreement(after, labels, rows, min_agreement, positive))
    if max_failures is not None:
        lost = sum(name not in after or after[name].verdict is None for name in before)
        lines.append(_counted("failures", lost, max_failures, len(before)))
    if max_flips is not None:
        flips = sum(before[name].verdict != after[name].verdict for name in both)
        lines.append(_counted("flips", flips, max_flips, len(both)))
    outcomes = {line["outcome"] for line in lines}
    outcome = next(each for each in ("failed", "undecided", "passed") if each in outcomes)
    table = [_row(line) for line in lines]
    unpaired = f"{len(both):,} of {len(before):,} baseline samples have verdicts in both runs"
    if results.write({"outcome": outcome, "paired": len(both), "baseline": len(before), "checks": lines}):
        out = PlainConsole()
        out.print(result_table("gate", _COLUMNS, table))
        out.print(f"{outcome}; {unpaired}")
    if markdown is not None:
        write_text(markdown, _markdown(table, f"**{outcome}**; {unpaired}"))
    if outcome == "undecided" and undecided is not None:
        console.message(f"undecided counts as {undecided}ed (--undecided {undecided})")
        outcome = {"pass": "passed", "fail": "failed"}[undecided]
    raise typer.Exit(_EXIT[outcome])


_COLUMNS = ("check", "value", "95 % interval", "limit", "outcome", "pairs", "pairs needed")


def _check_same_judge(baseline: Path, new: Path) -> None:
    from judgelm.runs.run_files import brief, differences, required_manifest

    way_out = "judge the samples with judgelm-batch"
    sides = [required_manifest(path, way_out).get("fingerprint", {}) for path in (baseline, new)]
    for key in _JUDGE:
        for name, old, now in differences(key, sides[0].get(key), sides[1].get(key)):
            finding = f"{name} is {brief(now)}, but {brief(old)} in {baseline}"
            raise InputError(f"{new}: {finding}; judge both versions with the same judge and options")


def _check_same_questions(before: Mapping[str, Judgment], after: Mapping[str, Judgment], new: Path) -> None:
    if not before.keys() & after.keys():
        raise InputError(f"{new}: has no sample ID in common with the baseline; give rows an `id`, and keep it")
    for name in before.keys() & after.keys():
        old, now = before[name].hashes, after[name].hashes
        if old is not None and now is not None and old.question != now.question:
            raise InputError(
                f"{new}: sample {name} has another question than in the baseline; compare the same samples"
            )


def _scale(run: Path) -> tuple[float, float]:
    from judgelm.runs.run_files import read_manifest

    mode = (read_manifest(run) or {}).get("fingerprint", {}).get("mode", {})
    low, high = mode.get("scale") or (1.0, 10.0)
    return float(low), float(high)


def _value(judgment: Judgment, positive: str | None, answer: int) -> float | None:
    """Return a grade, or 0 to 100 for labels and pairs; None if the judge abstained."""
    match judgment.verdict:
        case GradeVerdict(score=score):
            return score
        case LabelVerdict(label=label):
            return 100.0 * (label in _POSITIVE if positive is None else label == positive.lower())
        case PairVerdict(winner=winner):
            return 50.0 if winner == "tie" else 100.0 * (winner == answer)
    if judgment.abstained:
        return None
    raise InputError(
        f"judgment {judgment.sample_id}: mode {judgment.mode} ranks answers; compare grades, labels, or pairs"
    )


def _question(judgment: Judgment) -> str:
    return judgment.sample_id if judgment.hashes is None else judgment.hashes.question


def _drop(
    before: Mapping[str, Judgment],
    after: Mapping[str, Judgment],
    both: Sequence[str],
    limit: float,
    scale: tuple[float, float],
    positive: str | None,
    answer: int,
) -> dict[str, Any]:
    import numpy as np

    from judgelm.studies.gate import check_mean

    graded = any(isinstance(before[name].verdict, GradeVerdict) for name in both)
    labels = {
        each.verdict.label
        for name in both
        for each in (before[name], after[name])
        if isinstance(each.verdict, LabelVerdict)
    }
    if labels and not labels & {(positive or "").lower(), *(() if positive else _POSITIVE)}:
        listed = ", ".join(sorted(labels))
        raise ConfigError(f"the labels are {listed}; pass the one that counts as 100 % as --positive")
    values = [(_value(before[name], positive, answer), _value(after[name], positive, answer)) for name in both]
    known = [
        (name, old - now) for name, (old, now) in zip(both, values, strict=True) if old is not None and now is not None
    ]
    reach = scale[1] - scale[0] if graded else 100.0
    check = check_mean(
        "drop",
        np.array([drop for _, drop in known]),
        [_question(before[name]) for name, _ in known],
        limit=limit,
        bounds=(-reach, reach),
        is_maximum=True,
    )
    return asdict(check)


def _agreement(
    run: Mapping[str, Judgment], path: Path, rows: LabelOptions, limit: float, positive: str | None
) -> dict[str, Any]:
    import numpy as np

    from judgelm.cli.tuning_job import read_items
    from judgelm.data.labelled_set import match_labels
    from judgelm.studies.gate import check_mean
    from judgelm.studies.pair_labels import pair_winner

    labelled, kind = read_items(path, rows, None)
    if kind not in ("pair", "label"):
        raise ConfigError(f"{path}: agreement requires labels of pairs (winner) or yes-no labels (label), got {kind}s")
    labelled, _ = match_labels(dict(run), labelled, name=str(path))
    names = [name for name in labelled.labels if name in run and run[name].verdict is not None]
    agree = []
    for name in names:
        label = labelled.labels[name]
        if kind == "pair":
            agree.append(run[name].winner == pair_winner(label))
        else:
            agree.append(_value(run[name], positive, 1) == 100 * (label.scores or (0.0,))[0])
    check = check_mean(
        "agreement",
        np.array(agree, dtype=np.float64),
        [_question(run[name]) for name in names],
        limit=limit,
        bounds=(0.0, 1.0),
        is_maximum=False,
    )
    return asdict(check)


def _counted(name: str, count: int, limit: int, n: int) -> dict[str, Any]:
    outcome = "passed" if count <= limit else "failed"
    return {"name": name, "value": count, "low": None, "high": None, "limit": limit, "outcome": outcome, "n": n}


def _row(line: Mapping[str, Any]) -> list[str]:
    spread = "-" if line["low"] is None else f"{line['low']:.2f} to {line['high']:.2f}"
    needed = f"{line['needed']:,}" if line.get("needed") else "none" if line["outcome"] == "undecided" else "-"
    sign = "≥" if line["name"] == "agreement" else "≤"
    value = f"{line['value']:,}" if isinstance(line["value"], int) else f"{line['value']:.2f}"
    return [line["name"], value, spread, f"{sign} {line['limit']:g}", line["outcome"], f"{line['n']:,}", needed]


def _markdown(table: Sequence[Sequence[str]], sentence: str) -> str:
    rows = [_COLUMNS, ["---"] * len(_COLUMNS), *table]
    return "\n".join(["## judgelm gate", "", *(f"| {' | '.join(row)} |" for row in rows), "", f"{sentence}.", ""])
