"""Runs of `judgelm-batch` over the sets, and their verdicts."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.human_labels.measures import Verdicts
from benchmarks.human_labels.sets import Rows
from judgelm.records import Judgment
from judgelm.runs.run_files import read_judgments
from judgelm.studies.pair_labels import orders_of

_BATCH = (str(Path(sys.executable).parent / "judgelm-batch"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """A judge of `judges.yaml`.

    Attributes:
        name: of its folder of verdicts, and in tables.
        options: of `judgelm-batch`, by their flags' names.
        rows: of a fixed subset of each set that it judges; None: all.
        beside: a judge that it is compared with, by name; None: only with the first.
    """

    name: str
    rows: int | None
    beside: str | None
    options: Mapping[str, Any]

    @property
    def arguments(self) -> list[str]:
        """Those of `judgelm-batch`; a flag is `true`."""
        return [
            part
            for name, value in self.options.items()
            for part in ([f"--{name}"] if value is True else [f"--{name}", str(value)])
        ]


def read_judges(path: Path) -> list[JudgeOptions]:
    """The judges of a YAML list: `name`, `rows`, `beside`, and options of `judgelm-batch`."""
    rows: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [
        JudgeOptions(name=row.pop("name"), rows=row.pop("rows", None), beside=row.pop("beside", None), options=row)
        for row in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSet:
    """A judge's verdicts on a set, and how the run went.

    Attributes:
        rows: the pairs, which can be a part of the set.
        verdicts: P(first better) of each order, whatever the share of the probability; where each answer is judged by
            itself, that of the pair in both places.
        failures: code -> judgments that `judgelm-batch` reports as failed, and `missing`.
        cut: pairs of which an answer was cut to the judge's window.
        assigned: mean probability of all replies that can be read; None without any distribution.
        consistent: share of pairs whose greedy score lines name the same winner in both orders; None without any.
        prompt_tokens: of all prompts of all pairs.
        reply_tokens: generated for all pairs; None where it was not recorded.
        seconds: that judging took, without loading; None where it was not recorded.
    """

    rows: Rows
    verdicts: Verdicts
    failures: dict[str, int]
    cut: int
    assigned: float | None
    consistent: float | None
    prompt_tokens: int
    reply_tokens: int | None = None
    seconds: float | None = None

    @property
    def is_order_free(self) -> bool:
        """True where each answer was judged by itself."""
        verdicts = self.verdicts
        return self.consistent is None and bool(np.array_equal(verdicts.given, verdicts.swapped, equal_nan=True))


def read_verdicts(path: Path, rows: Rows, seed: int = 0) -> JudgedSet:
    """The verdicts of an earlier run on the same pairs, or on a smaller fixed subset; it can be of another machine.

    Raises:
        SystemExit: they are of other pairs.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    pairs = record.pop("first_better")
    rows = rows.subset(len(pairs), seed)
    if set(pairs) != {sample.id for sample in rows.samples}:
        sys.exit(f"error: {path}: verdicts of other pairs; delete it to judge the set again")
    sides = np.array([pairs[sample.id] for sample in rows.samples], dtype=np.float64)
    return JudgedSet(rows=rows, verdicts=Verdicts(given=sides[:, 0], swapped=sides[:, 1]), **record)


def write_verdicts(path: Path, judged_set: JudgedSet) -> None:
    """Store verdicts by id, without any text of the set: P(first better) in each order, null where it failed."""
    record: dict[str, Any] = {
        field.name: getattr(judged_set, field.name)
        for field in fields(judged_set)
        if field.name not in ("rows", "verdicts")
    }
    verdicts = judged_set.verdicts
    sides = np.stack([verdicts.given, verdicts.swapped], axis=1).astype(object)
    sides[np.isnan(sides.astype(np.float64))] = None
    record["first_better"] = dict(zip((sample.id for sample in judged_set.rows.samples), sides.tolist(), strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")


def judge_set(judge: JudgeOptions, rows: Rows, pairs: Path, out: Path) -> JudgedSet:
    """Judge a set in both orders, or go on with the run that is there.

    Args:
        judge: the judge.
        rows: the pairs.
        pairs: the file that they are written to, without labels.
        out: the run file.
    """
    pairs.parent.mkdir(parents=True, exist_ok=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    names = ("id", "question", "answer_1", "answer_2")
    lines = [json.dumps(dict(zip(names, (s.id, s.question, *s.answers), strict=True))) for s in rows.samples]
    pairs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [*_BATCH, str(pairs), "--out", str(out), "--max-failure-rate", "1", *judge.arguments]
    subprocess.run(command, check=True)
    manifest = json.loads(out.with_suffix(".run.json").read_text(encoding="utf-8"))
    seconds = sum(session["judge_s"] for session in manifest["sessions"])
    return replace(judged(rows, read_judgments(out)), seconds=seconds)


def judged(rows: Rows, judgments: dict[str, Judgment]) -> JudgedSet:
    """The verdicts of a run in the rows' order."""
    sides = np.full((2, len(rows.samples)), np.nan)
    assigned: list[float] = []
    alike: list[bool] = []
    failures: Counter[str] = Counter()
    for index, sample in enumerate(rows.samples):
        judgment = judgments.get(sample.id)
        if judgment is None:
            failures["missing"] += 1
            continue
        if judgment.failure is not None:
            failures[judgment.failure.code] += 1
        if not judgment.compared and judgment.probability is not None:
            sides[:, index] = judgment.probability
        for shown in judgment.shown:
            if shown.distribution is not None:
                swapped, first = int(shown.order == (1, 0)), shown.distribution.first_better
                sides[swapped, index] = 1 - first if swapped else first
            if (distribution := shown.distribution or shown.grades) is not None:
                assigned.append(1 - distribution.unassigned)
        orders = orders_of(judgment)
        if orders is not None and orders.swapped is not None and None not in (orders.given.label, orders.swapped.label):
            alike.append(orders.given.label == orders.swapped.label)
    standing = [judgments[sample.id] for sample in rows.samples if sample.id in judgments]
    return JudgedSet(
        rows=rows,
        verdicts=Verdicts(given=sides[0], swapped=sides[1]),
        failures=dict(failures),
        cut=sum(any(shown.truncations for shown in judgment.shown) for judgment in standing),
        assigned=float(np.mean(assigned)) if assigned else None,
        consistent=float(np.mean(alike)) if alike else None,
        prompt_tokens=sum(judgment.prompt_tokens for judgment in standing),
        reply_tokens=sum(judgment.completion_tokens for judgment in standing),
    )
