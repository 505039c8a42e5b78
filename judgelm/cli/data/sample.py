"""`judgelm data sample`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from judgelm.cli.console import echo
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.data.readers.rows import RejectCounts
from judgelm.data.readers.streams import input_files
from judgelm.data.samples import Subset, draw_subset
from judgelm.errors import ConfigError, RunError
from judgelm.jsonl import parse_json, whole_file
from judgelm.runs.run_files import check_output_is_no_input, input_identities


def sample_command(
    file: Annotated[str, typer.Argument(metavar="FILE")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    per: Annotated[tuple[str, int] | None, typer.Option(metavar="FIELD N")] = None,
    size: Annotated[int | None, typer.Option(metavar="N")] = None,
    seed: int = 0,
    overwrite: bool = False,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Draw a seeded sample of a file's rows: so many for each value of a field, or of the whole file.

    Values with fewer rows are kept whole and named. OUT.sample.json records the draw.

    Options:
        file: Rows with ids: a file, a folder, or a pattern.
        out: The rows drawn, unchanged.
        per: At most N rows for each value of a field, such as category 100.
        size: At most N rows of the whole file.
        seed: Another seed draws others; a larger sample holds the smaller.
        overwrite: Replace another sample.

    Examples:
        judgelm data sample mmlu-pro.jsonl --per category 100 -o sampled.jsonl
        judgelm data sample questions.jsonl --size 1000 --seed 1 -o sampled.jsonl

    The same command again finds its file finished and draws nothing. Exit codes: 0 done, 1 usage or input error.
    """
    if (per is None) == (size is None):
        raise ConfigError("give --per FIELD N, or --size N for the whole file")
    files = input_files(file)
    check_output_is_no_input(out, [file, *files])
    field, most = (None, size) if per is None else per
    assert most is not None
    record = {"per": field, "size": most, "seed": seed, "input": input_identities(files)}
    path = out.with_name(f"{out.name.removesuffix('.jsonl')}.sample.json")
    if not overwrite and _is_finished(out, path, record):
        if not quiet:
            echo(f"{out}: holds this sample already")
        return
    rejects = RejectCounts()
    subset = draw_subset(file, field=field, size=most, seed=seed, on_reject=rejects)
    with whole_file(out) as target:
        for row in subset.rows:
            target.write(row)
    counts = {value: {"drawn": drawn, "of": total} for value, (drawn, total) in subset.counts.items()}
    path.write_text(json.dumps({**record, "counts": counts}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    write_json(json_out, {"rows": len(subset.rows), "counts": counts})
    if not (quiet or is_stdout(json_out)):
        _show(subset, most, rejects, out)


def _is_finished(out: Path, path: Path, record: dict[str, Any]) -> bool:
    """True if the file holds this sample.

    Raises:
        RunError: it holds another one, or something else.
    """
    if not out.exists():
        return False
    try:
        earlier = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    if {name: earlier.get(name) for name in record} == record:
        return True
    raise RunError(f"{out}: holds something else than this sample; choose another -o, or pass --overwrite")


def _show(subset: Subset, most: int, rejects: RejectCounts, out: Path) -> None:
    for line in rejects.lines():
        echo(f"left out {line}", err=True)
    short = {value: drawn for value, (drawn, _) in subset.counts.items() if drawn < most}
    echo(f"{len(subset.rows):,} rows of {sum(total for _, total in subset.counts.values()):,} in {out}")
    for value, drawn in short.items():
        echo(f"short: {value} has {drawn:,} rows, not {most:,}")
