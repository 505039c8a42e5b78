"""Judgments of one line, imported benchmarks, studies run by their commands, and tables of a study's result."""

import json

import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.engines.scripted import ScriptedEngine
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.modes import Pairwise
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Shown, Unparsed
from judgelm.reports.study import study_files
from judgelm.runs.runner import judge
from judgelm.studies.pair_labels import by_id
from tests.support.jsonl_files import write_rows as write_rows

FAILURE = Unparsed("off_grammar", "I cannot say")
HOW = Resampling(resamples=200)


def judged_pair(key, winner, **fields):
    failure, verdict = (None, PairVerdict(winner=winner)) if winner else (FAILURE, None)
    shown = (Shown(order=(0, 1), text="", failure=failure),)
    return Judgment(sample_id=key, mode="pair", verdict=verdict, failure=failure, **({"shown": shown} | fields))


def both_orders(key, given, swapped, winner=1, **fields):
    """A judgment of scores, labels or a failure (None) in each order, as shown."""

    def shown(order, reply):
        name = "failure" if reply is None else "label" if isinstance(reply, str) else "scores"
        return Shown(order=order, text="", **{name: FAILURE if reply is None else reply})

    return judged_pair(key, winner, shown=(shown((0, 1), given), shown((1, 0), swapped)), **fields)


def graded(key, grade, mode="single"):
    if grade is None:
        return Judgment(sample_id=key, mode=mode, verdict=None, shown=(), failure=FAILURE)
    return Judgment(sample_id=key, mode=mode, verdict=GradeVerdict(score=grade), shown=(), scores=(grade,))


def judged_in_both_orders(samples, replies):
    """Judgments of pairs by a scripted judge, by sample id."""
    return by_id(judge(samples, Pairwise(both_orders=True), ScriptedEngine(replies)))


def import_rows(name, folder, files):
    """The labelled rows of a benchmark, imported from files of these contents: texts, or what JSON writes."""
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    import_benchmark(name, [str(folder / file) for file in files], folder / "rows.jsonl", overwrite=True)
    return read_labels(str(folder / "rows.jsonl"))


def run_study(command, folder, *arguments):
    app = typer.Typer()
    add_command(app, command, "study")
    options = ("-o", folder / "study", "--bootstrap", 100, "--json", "-")
    done = CliRunner().invoke(app, [*map(str, (*arguments, *options))], catch_exceptions=False)
    return json.loads(done.stdout)


def table(result, name):
    [found] = [one for one in result.tables if one.name == name]
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


def cells(result, name, column=1):
    [found] = [one for one in result.tables if one.name == name]
    return {row[0]: value(row[column]) for row in found.rows}


def value(cell):
    return cell.value if isinstance(cell, Estimate) else cell


def render_study(result):
    return study_files(result)["report.html"].decode()
