"""`judgelm data import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli import completion
from judgelm.cli.console import console
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.data.readers.rejects import RejectCounts
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.data.benchmarks.importer import ImportResult

EPILOG = """
Examples:

  judgelm data import

  judgelm data import pandalm testset-v1.json -o pandalm.jsonl

The first lists all benchmarks and the files that each takes. Exit codes: 0 done, 1 usage or input error.
"""


def import_command(
    name: Annotated[
        str | None,
        typer.Argument(help="Which benchmark; without it, all are listed.", autocompletion=completion.benchmarks),
    ] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...", help="Its published files.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Rows as JSONL; the protocol stands beside.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace an earlier import.")] = False,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Read a published benchmark into rows that judgelm-batch judges and judgelm eval compares with.

    PandaLM, LLMBar, JudgeBench, Auto-J, MT-Bench, FairEval, RewardBench 1 and 2, preference sets, GSM8K, MMLU-Pro,
    HotpotQA, 2WikiMultiHopQA, DROP, Quoref, MM-Vet. How each one's metric is taken is printed and kept in
    OUT.protocol.json; a file of another shape is refused.
    """
    from judgelm.data.benchmarks.catalog import BENCHMARKS, get_benchmark

    if name is None:
        write_json(json_out, {known: listed.files for known, listed in BENCHMARKS.items()})
        if not is_stdout(json_out):
            for known, listed in BENCHMARKS.items():
                typer.echo(f"{known:14} {listed.files}")
        return
    benchmark = get_benchmark(name)
    if not files:
        raise ConfigError(f"{name}: no file given; it takes {benchmark.files}")
    if out is None:
        raise ConfigError(f"-o is missing; name the file for the rows, such as -o {name}.jsonl")
    from judgelm.data.benchmarks.importer import import_benchmark

    done = import_benchmark(name, [str(file) for file in files], out, overwrite=overwrite)
    write_json(json_out, _row(done))
    if not quiet:
        _show(done)


def _row(done: "ImportResult") -> dict[str, Any]:
    return {
        "benchmark": done.benchmark.name,
        "rows": done.rows,
        "labels": dict(done.winners),
        "without_label": done.unlabelled,
        "with_a_known_truth": done.truths,
        "categories": dict(done.categories),
        "rejected": len(done.rejects),
        "rejected_by_reason": dict(RejectCounts(done.rejects).by_reason.most_common()),
        "protocol": done.benchmark.protocol,
        "written": done.paths,
    }


def _show(done: "ImportResult") -> None:
    labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(done.winners.items()))
    counts = [f"{done.rows:,} rows"]
    counts += [f"labels {labels}"] if labels else []
    counts += [f"{done.unlabelled:,} without label"] if done.unlabelled and labels else []
    counts += [f"{done.truths:,} with a known truth"] if done.truths else []
    count = len(done.categories)
    counts += [f"{count:,} {'category' if count == 1 else 'categories'}"] if count else []
    _print(f"{done.benchmark.name}: {', '.join(counts)}")
    if done.rejects:
        _print(f"{len(done.rejects):,} rows rejected; they are in the rejects file:")
    for line in RejectCounts(done.rejects).lines():
        _print(f"  {line}")
    _print(f"protocol: {done.benchmark.protocol}")
    if done.benchmark.judge_with:
        _print(f"judge with: judgelm-batch {done.benchmark.judge_with}")
    _print(f"written: {', '.join(str(path) for path in done.paths)}")


def _print(text: str) -> None:
    """Plain text: file names and rows may hold what Rich would read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
