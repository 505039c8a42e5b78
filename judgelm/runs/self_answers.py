"""A judge's own answers from an earlier run, reused for the samples of another."""

from dataclasses import replace
from typing import Any

from judgelm.data.readers.fields import row_error
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import convert_rows
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.records import Sample

SelfAnswers = dict[str, list[dict[str, Any]]]
"""Sample id -> `{"text": ..., "answer": ...}` of each of the judge's own answers, as run files have them."""


def read_self_answers(path: str) -> SelfAnswers:
    """Read the judge's own answers from a run file of a mode that asks for them.

    Raises:
        InputError: the file cannot be read, holds none, or has rows that are no judgments.
    """
    answers: SelfAnswers = {}
    for name, solves in convert_rows(read_rows(path), _solves, path=path, expected="id, solves"):
        if solves:
            answers[name] = solves
    if not answers:
        raise InputError(
            f"{path}: no judgment has own answers (solves); give the run file of a mode that asks for them"
        )
    return answers


def with_self_answers(sample: Sample, solves: SelfAnswers) -> Sample:
    """The sample with its own answers, where there are any; modes use them instead of asking."""
    if sample.id not in solves:
        return sample
    return replace(sample, metadata={**sample.metadata, "solves": solves[sample.id]})


def _solves(row: Row) -> tuple[str, list[dict[str, Any]]]:
    """The judgment's id and own answers."""
    solves = row.data.get("solves", [])
    texts = (
        [answer.get("text") if isinstance(answer, dict) else None for answer in solves]
        if isinstance(solves, list)
        else [None]
    )
    if "id" not in row.data or not isinstance(solves, list) or not all(isinstance(text, str) for text in texts):
        raise row_error(row, "expected a judgment with id and solves, each with a text; give a run file")
    return str(row.data["id"]), solves
