"""FairEval: 80 Vicuna questions, two models' answers, and one label of people for each, in files of their own.

The labels are a text of a line each, in the questions' order: `TIE`, or the winner's name (`CHATGPT`, `VICUNA13B`).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, convert_file, plain_row
from judgelm.data.readers.fields import optional_text, required_id, row_error, text_field
from judgelm.data.readers.rejects import OnReject, reject_row
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.records import Label, Sample, Winner

_ALIASES = {"chatgpt": "gpt35turbo"}


_TABLE = Shape(name="FairEval's questions or answers", needs=("question_id", "text"))


def _load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    labels_path, tables = _sorted(files, on_reject)
    questions = [rows for rows in tables if "model_id" not in rows[0].data]
    answers = [rows for rows in tables if "model_id" in rows[0].data]
    if len(questions) != 1 or len(answers) != 2:
        counts = f"{len(questions)} files of questions and {len(answers)} of answers"
        raise InputError(f"faireval: expected one file of questions, two of answers and the labels, got {counts}")
    labels = _labels(labels_path, [_model(rows) for rows in answers], len(questions[0]))
    sides = [{_question_id(row): row for row in rows} for rows in answers]
    for row, winner in zip(questions[0], labels, strict=True):
        try:
            name = _question_id(row)
            if any(name not in side for side in sides):
                raise row_error(row, f"no answer to question {name} in one of the two files; give the published files")
            sample = Sample(
                id=f"faireval-{name}",
                question=text_field(row, "text", "question_id, text"),
                answers=(_text(sides[0][name]), _text(sides[1][name])),
                answer_models=(_model(answers[0]), _model(answers[1])),
                category=optional_text(row, "category"),
            )
            yield Entry(plain_row(sample, Label(sample_id="", winner=winner)))
        except InputError as error:
            on_reject(reject_row(row, error))


def _sorted(files: Sequence[str], on_reject: OnReject) -> tuple[str, list[list[Row]]]:
    """The file of labels, and the rows of the others."""
    texts = [path for path in files if path.lower().endswith(".txt")]
    if len(texts) != 1:
        raise InputError(f"faireval: expected one .txt file of people's labels, got {len(texts)}; give it too")
    tables: list[list[Row]] = []
    for path in files:
        if path == texts[0]:
            continue
        tables.append(list(convert_file(path, _TABLE, lambda row, _: row, on_reject)))
    return texts[0], tables


def _labels(path: str, models: list[str], expected: int) -> list[Winner]:
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}; give FairEval's review_..._human.txt") from error
    if len(lines) != expected:
        raise InputError(f"{path}: {len(lines)} labels for {expected} questions; they are joined line by line")
    return [_winner(f"{path}:{line_number}", line, models) for line_number, line in enumerate(lines, 1)]


def _winner(location: str, name: str, models: list[str]) -> Winner:
    plain = _plain(name)
    if plain == "tie":
        return "tie"
    matches = [index for index, model in enumerate(models) if _plain(model).startswith(_ALIASES.get(plain, plain))]
    if len(matches) != 1:
        raise InputError(
            f'{location}: "{name}" names neither TIE nor one of {" and ".join(models)}; give their answers'
        )
    return 1 if matches[0] == 0 else 2


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _question_id(row: Row) -> str:
    return required_id(row, "question_id", "questions and answers are joined by it")


def _text(row: Row) -> str:
    return text_field(row, "text", "question_id, text, model_id")


def _model(rows: list[Row]) -> str:
    return text_field(rows[0], "model_id", "question_id, text, model_id")


FAIREVAL = Benchmark(
    name="faireval",
    files="question.jsonl, the answers of the first and of the second model, and review_..._human.txt",
    protocol="The judge's scores of both orders are averaged (the paper draws three replies of each), equal means "
    "are a tie; accuracy and Cohen's kappa against the one released label of people (`judgelm study benchmark`).",
    judge_with="--both-orders --order-rule mean",
    source="Wang et al. 2023, Large Language Models are not Fair Evaluators; i-Eval/FairEval",
    load=_load,
)
