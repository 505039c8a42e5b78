"""Load the YAML file for `judgelm study judgelm`, which assigns runs to rows of the paper's tables."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from judgelm.cli.evaluation import ScoredRun, load_labels, read_run, score
from judgelm.cli.options import ScoringOptions
from judgelm.data.labelled_set import match_labels
from judgelm.data.samples import Reading
from judgelm.errors import ConfigError
from judgelm.metrics.resampling import Resampling
from judgelm.parsing.scores import LabelRule
from judgelm.records import Judgment
from judgelm.runs.teacher import Prices
from judgelm.studies.evaluation import Evaluation, EvaluationOptions, evaluate
from judgelm.studies.judgelm_tables import CostPrices, TableRun, Timing, heads_of, read_as_authors
from judgelm.yaml_files import read_yaml


class _Row(BaseModel, extra="allow"):
    """One row; `reversed` is a run with swapped answers. Other keys contain the text for the first columns."""

    judgments: Path
    reversed: Path | None = None
    labels: Path | None = None
    scale: str = Field(default="1-10", pattern=r"^(any|-?[0-9.]+-[0-9.]+)$")
    gpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class _Table(BaseModel, extra="forbid"):
    table: Literal[1, 2, 3, 4, 5, 6]
    runs: list[_Row]


class _Prices(BaseModel, extra="forbid"):
    """Prices in USD."""

    gpu_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    api_prompt_1k: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    api_reply_1k: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class _File(BaseModel, extra="forbid"):
    labels: Path | None = None
    prices: _Prices = _Prices()
    tables: list[_Table]


def read_table_runs(
    path: Path, resampling: Resampling, *, folder: Path | None, labels: Path | None
) -> tuple[dict[int, list[TableRun]], CostPrices]:
    """Score the runs in the file; return the results by table number, and the prices for Table 3.

    Paths are relative to `folder`, which defaults to the folder of the file. `labels` overrides the labels in the file.
    """
    file, base = _read(path), folder or path.parent
    cost_prices = _cost_prices(path, file)
    runs_of_table: dict[int, list[TableRun]] = {}
    for table in file.tables:
        if table.table in runs_of_table:
            raise ConfigError(f"{path}: table {table.table} appears twice; merge the two entries")
        runs = []
        for row in table.runs:
            labels_of_row = row.labels or file.labels
            paths = {
                "judgments": base / row.judgments,
                "reversed": row.reversed and base / row.reversed,
                "labels": labels or (labels_of_row and base / labels_of_row),
            }
            runs.append(_run(path, table.table, row.model_copy(update=paths), resampling))
        runs_of_table[table.table] = runs
    if not any(runs_of_table.values()):
        raise ConfigError(f"{path}: no runs; list the runs for each table")
    return {number: runs for number, runs in runs_of_table.items() if runs}, cost_prices


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(read_yaml(path))
    except ValidationError as error:
        finding = error.errors()[0]
        location = ".".join(map(str, finding["loc"])) or "the file"
        raise ConfigError(f"{path}: {location}: {finding['msg']}, got {finding['input']!r}") from error


def _cost_prices(path: Path, file: _File) -> CostPrices:
    prices = file.prices
    third = [row for table in file.tables if table.table == 3 for row in table.runs]
    if prices.model_fields_set and not third:
        raise ConfigError(f"{path}: prices are only used for Table 3, which has no runs in this file")
    if prices.gpu_hour is not None and (unknown := [row for row in third if row.gpus is None]):
        raise ConfigError(f"{path}: table 3, {unknown[0].judgments}: if prices.gpu_hour is set, each row requires gpus")
    prompt, reply = prices.api_prompt_1k, prices.api_reply_1k
    if (prompt is None) != (reply is None):
        raise ConfigError(f"{path}: prices: set both api_prompt_1k and api_reply_1k; 0 is allowed")
    api = None if prompt is None or reply is None else Prices(prompt=1000 * prompt, reply=1000 * reply)
    return CostPrices(gpu_hour=prices.gpu_hour, api=api)


def _run(path: Path, table_number: int, row: _Row, resampling: Resampling) -> TableRun:
    place = f"{path}: table {table_number}, {row.judgments}"
    heads = {key: _text(value) for key, value in (row.model_extra or {}).items()}
    wanted = heads_of(table_number)
    if heads.keys() != wanted.keys():
        got = ", ".join(heads) or "no texts"
        raise ConfigError(f"{place}: expected {', '.join(wanted)} next to judgments and labels, got {got}")
    if row.labels is None:
        raise ConfigError(f"{place}: no labels; add labels to the row or to the file")
    if row.reversed is not None and table_number == 3:
        raise ConfigError(f"{place}: table 3 measures the time of one run; move the reversed run to another row")
    if row.reversed is not None and row.reversed.resolve() == row.judgments.resolve():
        raise ConfigError(
            f"{place}: judgments and reversed are the same file; reversed must be the run with the answers swapped"
        )
    began = time.monotonic()
    # Table 2 uses PandaLM's rule (conflicting orders are a tie); None uses the run's rule
    rule: LabelRule | None = "given" if table_number != 2 else "tie" if row.reversed else None
    options = ScoringOptions(
        judgments=row.judgments,
        reversed_=row.reversed,
        labels=row.labels,
        protocol="pandalm" if table_number == 2 else "judgelm",
        order_rule=rule,
        scale=row.scale,
        bootstrap=resampling.resamples,
        seed=resampling.seed,
    )
    scored = score(options)
    reverse = read_run(row.reversed, scale=row.scale) if row.reversed else {}
    judged = scored.judgments.keys() & scored.labelled.labels.keys()
    return TableRun(
        heads=heads,
        evaluation=scored.evaluation,
        authors=scored.evaluation if table_number == 2 else _as_authors(scored, row.labels, reverse, resampling),
        timing=_timing(scored, time.monotonic() - began, row.gpus),
        unpaired=len(judged - reverse.keys()) if row.reversed else 0,
    )


def _as_authors(scored: ScoredRun, labels: Path, reverse: Mapping[str, Judgment], resampling: Resampling) -> Evaluation:
    clusters = {sample.id: sample.question for sample in scored.labelled.samples.values()}
    read = load_labels(labels, "auto", scored.manifest, Reading(as_authors=True))
    labelled, _ = match_labels(scored.judgments, read, name=str(labels))
    return evaluate(
        read_as_authors(scored.judgments),
        labelled.labels,
        reverse=read_as_authors(reverse),
        clusters=clusters or None,
        options=EvaluationOptions(failures="as_tie", order_rule="given", resampling=resampling),
    )


def _text(value: object) -> str:
    """Return the text as written, because YAML parses a bare `no` as false."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _timing(scored: ScoredRun, metrics_s: float, gpus: float | None) -> Timing:
    manifest, judgments = scored.manifest, scored.judgments.values()
    sessions = [session for session in manifest.get("sessions", []) if "engine" in session]  # sessions that judged
    workers = [str(session["engine"]["workers"]) for session in sessions if "workers" in session["engine"]]
    return Timing(
        pairs=len(judgments),
        load_s=sum(session["load_s"] for session in sessions) if sessions else None,
        judge_s=sum(session["judge_s"] for session in sessions) if sessions else None,
        metrics_s=metrics_s,
        reasons=manifest.get("fingerprint", {}).get("mode", {}).get("reasons", "none") != "none",
        workers=workers[-1] if workers else "one engine",
        gpus=gpus,
        prompt_tokens=sum(judgment.prompt_tokens for judgment in judgments),
        reply_tokens=sum(judgment.completion_tokens for judgment in judgments),
    )
