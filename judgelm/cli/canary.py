"""`judgelm canary record|check`, and the check at the start of `judgelm-batch` and `judgelm serve`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import EXIT_DRIFT, JsonOut, Quiet, console, echo, is_stdout, watch, write_json
from judgelm.cli.options import CanaryOptions, ColumnOptions, Config, JudgeOptions
from judgelm.errors import ConfigError
from judgelm.package import EVERYDAY_PAIRS

if TYPE_CHECKING:
    from judgelm.judge import Judge
    from judgelm.metrics.drift import DriftLimits
    from judgelm.records import Judgment
    from judgelm.runs.canary import Canary, CanaryPair
    from judgelm.studies.canary import CanaryCheck

Model = Annotated[str | None, typer.Option("--model", "-m")]


def record_command(
    out: Annotated[Path, typer.Option(metavar="FILE")],
    model: Model = None,
    pairs: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    tolerance: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.02,
    max_changed: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05,
    overwrite: bool = False,
    *,
    columns: ColumnOptions,
    judge_options: JudgeOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Record a judge's verdicts and probabilities on a fixed set of pairs, in both orders.

    Options:
        out: The canary, a JSON file.
        model: Local folder, GGUF file, hub id or name (judgelm judges) of the judge, or its name on a server; default:
            qwen-1.5b.
        pairs: Pairs to judge; default: 60 everyday pairs of judgelm.
        limit: Only the first N pairs.
        tolerance: Benign mean difference of P(first better), for later checks.
        max_changed: Benign share of changed verdicts, for later checks.
        overwrite: Replace an earlier canary.

    Examples:
        judgelm canary record -o canary.json
        judgelm canary record -o canary.json --model my-judge --pairs pairs.jsonl

    The file holds the pairs, so a check needs nothing else. Exit codes: 0 done, 1 usage or input error, or no judge to
    ask, 3 the judge drifted, 130 interrupted.
    """
    from judgelm.cli.run import loaded_judge
    from judgelm.metrics.drift import DriftLimits
    from judgelm.runs.canary import read_pairs, write_canary

    if out.exists() and not overwrite:
        raise ConfigError(f"-o {out}: exists already; add --overwrite to replace it, or choose another -o")
    if not out.resolve().parent.is_dir():
        raise ConfigError(f"-o {out}: no such folder; create {out.parent} first")
    read = read_pairs(pairs or str(EVERYDAY_PAIRS), limit=limit, reading=columns.reading)
    limits = DriftLimits(tolerance=tolerance, max_changed=max_changed)
    with loaded_judge(model, judge_options.engine, quiet=quiet, **judge_options.judge_arguments()) as judge:
        canary = _judged(judge, read, limits, quiet=quiet)
    write_canary(out, canary)
    if not quiet:
        console.print(_summary(canary))
        console.message(f"canary in {out}")


def check_command(
    canary: Annotated[Path, typer.Argument(metavar="FILE")],
    model: Model = None,
    tolerance: Annotated[float | None, typer.Option(min=0.0, max=1.0)] = None,
    max_changed: Annotated[float | None, typer.Option(min=0.0, max=1.0)] = None,
    *,
    judge_options: JudgeOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    r"""Check that a judge still is the one that was recorded: another version, engine, type, quantization or server.

    Options:
        canary: The file of judgelm canary record.
        model: Local folder, GGUF file, hub id or name (judgelm judges) of the judge, or its name on a server; default:
            qwen-1.5b.
        tolerance: Benign mean difference of P(first better); default: as recorded.
        max_changed: Benign share of changed verdicts; default: as recorded.

    Examples:
        judgelm canary check canary.json
        judgelm canary check canary.json --model my-judge --dtype bfloat16
        judgelm canary check canary.json --json check.json && ./deploy.sh
        judgelm canary check canary.json -m NAME --engine openai \
            --engine-arg base_url=http://localhost:8000/v1

    Exit codes: 0 done, 1 usage or input error, or no judge to ask, 3 the judge drifted, 130 interrupted.
    """
    from judgelm.cli.run import loaded_judge
    from judgelm.runs.canary import read_canary

    recorded = read_canary(canary)
    given = {"tolerance": tolerance, "max_changed": max_changed}
    limits = replace(recorded.limits, **{name: value for name, value in given.items() if value is not None})
    with loaded_judge(model, judge_options.engine, quiet=quiet, **judge_options.judge_arguments()) as judge:
        check = _checked(judge, recorded, limits, quiet=quiet)
    write_json(json_out, check.to_json())
    if not (quiet or is_stdout(json_out)):
        for line in _lines(check):
            echo(line)
    elif check.drifted and not is_stdout(json_out):
        console.message(check.conclusion)
    if check.drifted:
        raise typer.Exit(EXIT_DRIFT)


def check_canary_options(options: CanaryOptions, *, cascade: str | None = None) -> None:
    """Refuse a canary that cannot be used, before a model is loaded.

    Raises:
        ConfigError: two judges.
        InputError: it cannot be read, or is no canary.
    """
    if options.canary is None:
        return
    from judgelm.runs.canary import read_canary

    if cascade is not None:
        raise ConfigError("--canary is of one judge and --cascade has two; check each of them: judgelm canary check")
    read_canary(options.canary)


def check_at_start(judge: "Judge", options: CanaryOptions, *, quiet: bool) -> None:
    """Check a loaded judge against its canary; a drifted one ends the command with exit code 3, or is a warning."""
    if options.canary is None:
        return
    from judgelm.runs.canary import read_canary

    recorded = read_canary(options.canary)
    check = _checked(judge, recorded, recorded.limits, quiet=quiet)
    if check.drifted or not quiet:
        style = "yellow" if check.drifted else ""
        console.print(f"canary {options.canary}: {check.conclusion}", style=style, soft_wrap=True)
    if check.drifted and options.on_drift == "refuse":
        console.message(f"judgelm canary check {options.canary} shows how; --on-drift warn continues anyway")
        raise typer.Exit(EXIT_DRIFT)


def _checked(judge: "Judge", recorded: "Canary", limits: "DriftLimits", *, quiet: bool) -> "CanaryCheck":
    from judgelm.studies.canary import compare_canaries

    return compare_canaries(recorded, _judged(judge, recorded.pairs, limits, quiet=quiet), limits=limits)


def _judged(judge: "Judge", pairs: "Sequence[CanaryPair]", limits: "DriftLimits", *, quiet: bool) -> "Canary":
    """The pairs judged in both orders, with probabilities where the judge writes score lines."""
    from judgelm.runs.canary import judge_canary
    from judgelm.runs.session import RunStats

    writes_scores = judge.released is None or bool(judge.released.template)
    mode = judge.mode("pair", both_orders=True, **({"distribution": True} if writes_scores else {}))
    stats = RunStats()
    with watch(len(pairs), quiet=quiet) as update:

        def count(judgment: "Judgment") -> None:
            stats.add(judgment)
            update(stats, judgment)

        return judge_canary(pairs, mode, judge.engine, limits=limits, on_judgment=count)


def _summary(canary: "Canary") -> str:
    """The number of pairs, failures, and pairs with probabilities."""
    failed = sum(pair.failure is not None for pair in canary.pairs)
    probable = sum(None not in pair.probabilities for pair in canary.pairs)
    return f"{len(canary.pairs)} pairs in both orders, {failed} failed, {probable} with P(first better)"


def _lines(check: "CanaryCheck") -> list[str]:
    """The check as lines of text."""
    from judgelm.runs.run_files import brief

    lines = [check.conclusion]
    drift, verdicts = check.probabilities, check.verdicts
    if drift is not None:
        size, shift = drift.size, drift.shift
        interval = f"({size.low:.4f} to {size.high:.4f})"
        lines.append(f"  mean |difference of P|    {size.value:.4f} {interval}, largest {drift.largest:.4f}")
        interval = f"({shift.low:+.4f} to {shift.high:+.4f})"
        lines.append(f"  shift to the first shown  {shift.value:+.4f} {interval}, p = {drift.shift_p:.2g}")
    changed = verdicts.changed
    lines.append(
        f"  changed verdicts          {verdicts.count} of {changed.n}: {100 * changed.value:.1f} % "
        f"({100 * changed.low:.1f} to {100 * changed.high:.1f} %); {verdicts.to_first} to the first answer, "
        f"{verdicts.to_second} to the second, p = {verdicts.sign_p:.2g}"
    )
    if (right := verdicts.right) is not None:
        before, after = right.both + right.only_first, right.both + right.only_second
        of_all = before + right.only_second + right.neither
        lines.append(f"  right by the labels       {before} before, {after} now, of {of_all}; p = {right.p_value:.2g}")
    if check.without_probability:
        lines.append(f"  without probability       {check.without_probability} pairs")
    for name, (old, new) in check.identity.items():
        lines.append(f"  {name}: {brief(old)} when recorded, {brief(new)} now")
    return lines
