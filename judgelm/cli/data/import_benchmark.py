"""`judgelm data import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli import completion
from judgelm.cli.console import console, echo
from judgelm.cli.options import LabelOptions
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.data.readers.rows import RejectCounts
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.data.sources.importer import ImportResult


def import_command(
    name: Annotated[str | None, typer.Argument(autocompletion=completion.benchmarks)] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...")] = None,
    out: Path | None = None,
    overwrite: bool = False,
    *,
    rows_as: LabelOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Read a published benchmark into rows that judgelm-batch judges and judgelm eval compares with.

    PandaLM, LLMBar, JudgeBench, Auto-J, MT-Bench, FairEval, RewardBench 1 and 2, RMB, RM-Bench, preference sets,
    JUDGE-BENCH (judge-bench-nlp), EVOUNA, WMT side by side, GSM8K, MMLU-Pro, HotpotQA, 2WikiMultiHopQA, DROP, Quoref,
    MM-Vet, AlpacaEval's judgments. How each one's metric is taken is printed
    and kept in OUT.protocol.json; a file of another shape is refused.

    Options:
        name: Benchmark; without it, all are listed.
        files: Its published files.
        out: Rows as JSONL; the protocol is written beside it.
        overwrite: Replace an earlier import.

    Examples:
        judgelm data import
        judgelm data import pandalm testset-v1.json -o pandalm.jsonl

    The first lists all benchmarks and the files that each takes. Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.sources.registry import benchmarks, get_benchmark
    from judgelm.data.sources.source import protocol_of

    if name is None:
        write_json(json_out, {known: protocol_of(listed).files for known, listed in benchmarks().items()})
        if not is_stdout(json_out):
            for known, listed in benchmarks().items():
                echo(f"{known:16} {protocol_of(listed).files}")
        return
    protocol = protocol_of(get_benchmark(name))
    if not files:
        raise ConfigError(f"{name}: no file given; it takes {protocol.files}")
    if out is None:
        raise ConfigError(f"-o is missing; name the file for the rows, such as -o {name}.jsonl")
    from judgelm.data.sources.importer import import_benchmark

    result = import_benchmark(name, [str(file) for file in files], out, overwrite=overwrite, reading=rows_as.reading)
    write_json(json_out, _row(result))
    if not quiet:
        _show(result)


def _row(result: "ImportResult") -> dict[str, Any]:
    from judgelm.data.sources.source import protocol_of

    return {
        "benchmark": result.benchmark.name,
        "rows": result.rows,
        "labels": dict(result.winners),
        "without_label": result.unlabelled,
        "with_a_known_truth": result.truths,
        "categories": dict(result.categories),
        "rejected": len(result.rejects),
        "rejected_by_reason": dict(RejectCounts(result.rejects).by_reason.most_common()),
        "protocol": protocol_of(result.benchmark).metric,
        "written": result.paths,
    }


def _show(result: "ImportResult") -> None:
    from judgelm.data.sources.source import protocol_of

    protocol = protocol_of(result.benchmark)
    labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(result.winners.items()))
    counts = [f"{result.rows:,} rows"]
    counts += [f"labels {labels}"] if labels else []
    counts += [f"{result.unlabelled:,} without label"] if result.unlabelled and labels else []
    counts += [f"{result.truths:,} with a known truth"] if result.truths else []
    count = len(result.categories)
    counts += [f"{count:,} {'category' if count == 1 else 'categories'}"] if count else []
    _print(f"{result.benchmark.name}: {', '.join(counts)}")
    if result.rejects:
        _print(f"{len(result.rejects):,} rows rejected; they are in the rejects file:")
    for line in RejectCounts(result.rejects).lines():
        _print(f"  {line}")
    _print(f"protocol: {protocol.metric}")
    if protocol.unverified:
        _print(f"unverified: {protocol.unverified}")
    if protocol.judge_with:
        _print(f"judge with: judgelm-batch {protocol.judge_with}")
    _print(f"written: {', '.join(str(path) for path in result.paths)}")


def _print(text: str) -> None:
    """Plain text: file names and rows may hold what Rich would read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
