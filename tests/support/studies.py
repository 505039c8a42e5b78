"""Judgments of one line, and tables of a study's result, for the tests of studies."""

from judgelm.metrics.resampling import Estimate
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Shown, Unparsed
from judgelm.reports.study import study_files

FAILURE = Unparsed("off_grammar", "I cannot say")


def judged_pair(key, winner, **fields):
    """A judgment of a pair in one order; without a winner it failed."""
    failure = None if winner else FAILURE
    verdict = PairVerdict(winner=winner) if winner else None
    shown = (Shown(order=(0, 1), text="", failure=failure),)
    return Judgment(sample_id=key, mode="pair", verdict=verdict, failure=failure, **({"shown": shown} | fields))


def graded(key, grade, mode="single"):
    """A grade of one answer; without one it failed."""
    if grade is None:
        return Judgment(sample_id=key, mode=mode, verdict=None, shown=(), failure=FAILURE)
    return Judgment(sample_id=key, mode=mode, verdict=GradeVerdict(score=grade), shown=(), scores=(grade,))


def table(result, name):
    """The rows of a result's table, by column key."""
    [found] = [one for one in result.tables if one.name == name]
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


def value(cell):
    """An estimate's value, or the cell itself."""
    return cell.value if isinstance(cell, Estimate) else cell


def render_study(result):
    """The page of a study alone."""
    return study_files(result)["report.html"].decode()
