"""The file of `judgelm study judgelm`, which puts runs into the rows of the paper's tables."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from judgelm.cli.eval import ScoringOptions
from judgelm.cli.evaluation import score
from judgelm.errors import ConfigError
from judgelm.metrics.resampling import Resampling
from judgelm.studies.judgelm_tables import LAYOUTS, TableRun, Timing
from judgelm.yaml_files import read_yaml


class _Row(BaseModel):
    """One row; further keys are the texts before its numbers."""

    model_config = ConfigDict(extra="allow")

    judgments: Path
    labels: Path | None = None


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table: Literal[1, 2, 3, 4, 5, 6]
    runs: list[_Row]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    labels: Path | None = None
    tables: list[_Table]


def read_table_runs(
    path: Path, resampling: Resampling, *, folder: Path | None = None, labels: Path | None = None
) -> dict[int, list[TableRun]]:
    """Read the file, and score every run that it names.

    Args:
        path: YAML: `labels`, and `tables`, each with its number and its `runs`.
        resampling: seed and number of resamples.
        folder: where paths in the file start; None is the file's own folder.
        labels: of all runs, in place of those in the file.

    Raises:
        ConfigError: the file is not of that form, or a row lacks what its table shows.
        InputError: a run or its labels cannot be read.
    """
    file, base = _read(path), folder or path.parent
    runs_of_table: dict[int, list[TableRun]] = {}
    for table in file.tables:
        if table.table in runs_of_table:
            raise ConfigError(f"{path}: table {table.table} appears twice; put its runs together")
        runs_of_table[table.table] = [
            _run(
                path,
                table.table,
                row,
                judgments=base / row.judgments,
                labels=labels or _below(base, row.labels or file.labels),
                resampling=resampling,
            )
            for row in table.runs
        ]
    if not any(runs_of_table.values()):
        raise ConfigError(f"{path}: names no run; give each table its runs")
    return {table_number: runs for table_number, runs in runs_of_table.items() if runs}


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(read_yaml(path))
    except ValidationError as error:
        finding = error.errors()[0]
        location = ".".join(map(str, finding["loc"])) or "the file"
        raise ConfigError(f"{path}: {location}: {finding['msg']}, got {finding['input']!r}") from error


def _below(base: Path, path: Path | None) -> Path | None:
    return None if path is None else base / path


def _run(
    path: Path, table_number: int, row: _Row, *, judgments: Path, labels: Path | None, resampling: Resampling
) -> TableRun:
    heads = {key: _text(value) for key, value in (row.model_extra or {}).items()}
    wanted = LAYOUTS[table_number].heads
    if heads.keys() != wanted.keys():
        raise ConfigError(
            f"{path}: table {table_number}, {row.judgments}: a row has {', '.join(wanted)}, judgments and, if not the "
            f"file's, labels; found {', '.join(heads) or 'nothing else'}"
        )
    if labels is None:
        raise ConfigError(
            f"{path}: table {table_number}, {row.judgments}: no labels, neither there nor for the whole file"
        )
    began = time.monotonic()
    scored = score(
        ScoringOptions(
            judgments=judgments,
            labels=labels,
            protocol="pandalm" if table_number == 2 else "judgelm",
            order_rule=None if table_number == 2 else "given",
            bootstrap=resampling.resamples,
            seed=resampling.seed,
        )
    )
    timing = _timing(scored.manifest, len(scored.judgments), time.monotonic() - began)
    return TableRun(heads=heads, evaluation=scored.evaluation, timing=timing)


def _text(value: object) -> str:
    """The text as written: YAML reads a bare `no` as false."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _timing(manifest: Mapping[str, Any], pairs: int, metrics_s: float) -> Timing:
    sessions = [session for session in manifest.get("sessions", []) if "load_s" in session and "judge_s" in session]
    workers = [str(session["engine"]["workers"]) for session in sessions if "workers" in session["engine"]]
    return Timing(
        pairs=pairs,
        load_s=sum(session["load_s"] for session in sessions) if sessions else None,
        judge_s=sum(session["judge_s"] for session in sessions) if sessions else None,
        metrics_s=metrics_s,
        reasons=manifest.get("fingerprint", {}).get("mode", {}).get("reasons", "none") != "none",
        workers=workers[-1] if workers else "one engine",
    )
