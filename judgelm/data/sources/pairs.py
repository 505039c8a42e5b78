"""Read pairs labelled by humans or by the authors: PandaLM, LLMBar, JudgeBench, Auto-J, and FairEval."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from judgelm.bounds import read_text
from judgelm.data.label_codes import LLMBAR_CODE, ZERO_IS_TIE, FieldCode
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.rows import OnReject, Row, reject_row
from judgelm.data.sources.layouts import llmbar_label, llmbar_sample, pandalm_label, pandalm_sample
from judgelm.data.sources.source import Entry, Shape, Source, choice_field, convert_file, layout_facts, sample_of
from judgelm.errors import InputError
from judgelm.records import Label, Sample, Winner

PANDALM = Shape(
    name="PandaLM's test set", needs=("instruction", "response1", "response2", "annotator1", "annotator2", "annotator3")
)


def pandalm_entry(row: Row, row_number: int) -> Entry:
    """Convert a row; the metadata stores the instruction and input separately, as in PandaLM's prompt."""
    sample = pandalm_sample(row)
    context = row.optional_text("input")
    if context:
        parts = {"instruction": row.text("instruction", "instruction"), "input": context}
        sample = replace(sample, metadata={**sample.metadata, **parts})
    return Entry(plain_row(sample, pandalm_label(row, False)))


LLMBAR = Shape(name="LLMBar", needs=("input", "output_1", "output_2", "label"))


def llmbar_entry(row: Row, row_number: int) -> Entry:
    """Convert a row; the folder name is the name of the set."""
    subset = Path(row.file).resolve().parent.name
    label = llmbar_label(row, False)
    if label is None or label.winner == "tie":
        raise row.error("expected the label 1 or 2; remove the row")
    return Entry(plain_row(replace(llmbar_sample(row), id=f"{subset}-{row_number}", category=subset), label))


_JUDGEBENCH_LABELS: Mapping[object, Winner] = {"A>B": 1, "B>A": 2}
_JUDGEBENCH_CATEGORIES = {"mmlu-pro": "knowledge", "livebench-reasoning": "reasoning"}
_JUDGEBENCH_CATEGORIES |= {"livebench-math": "math", "livecodebench": "coding"}
JUDGEBENCH = Shape(name="JudgeBench", needs=("pair_id", "source", "question", "response_A", "response_B", "label"))


def judgebench_sample(row: Row) -> Sample:
    """Read `question`, `response_A`, and `response_B`; the category is determined by `source`."""
    names = ("pair_id", "source", "question", "response_A", "response_B")
    name, source, question, *answers = row.texts(*names, needs=JUDGEBENCH.needs)
    category = next((name for start, name in _JUDGEBENCH_CATEGORIES.items() if source.startswith(start)), None)
    if category is None:
        known = ", ".join(_JUDGEBENCH_CATEGORIES)
        finding = f'expected text that begins with one of {known}, got "{source}"; correct the row'
        raise row.field_error("source", finding)
    model = row.optional_text("response_model")
    models = () if model is None else (model, model)
    metadata = {"source": source, "original_id": row.id(("original_id",))}
    return sample_of(name, question, answers, models=models, category=category, metadata=metadata)


def judgebench_label(row: Row, with_reference: bool) -> Label:
    """Read `label`, the objectively correct answer."""
    return Label(sample_id="", winner=choice_field(row, "label", _JUDGEBENCH_LABELS))


AUTO_J_GROUPS: Mapping[str, Sequence[str]] = layout_facts()["auto-j"]["details"]["groups"]
"""Auto-J's 58 scenarios in the 8 groups reported by the authors."""

AUTO_J_LABELS: Mapping[object, Winner] = {0: 1, 1: 2, 2: "tie"}
AUTO_J = Shape(name="Auto-J's pairwise test set", needs=("scenario", "label", "prompt", "response 1", "response 2"))


def auto_j_sample(row: Row) -> Sample:
    """Read `prompt`, `response 1`, and `response 2`; the id is the line number."""
    names = ("prompt", "response 1", "response 2", "scenario")
    question, *answers, scenario = row.texts(*names, needs=AUTO_J.needs)
    return Sample(id=f"auto-j-{row.line}", question=question, answers=tuple(answers), category=scenario)


def auto_j_label(row: Row, with_reference: bool) -> Label:
    """Read `label`: 0 is the first response, 1 the second, and 2 a tie."""
    return Label(sample_id="", winner=choice_field(row, "label", AUTO_J_LABELS))


def auto_j_entry(row: Row, row_number: int) -> Entry:
    """Convert a row; the id is the row number."""
    return Entry(plain_row(replace(auto_j_sample(row), id=f"auto-j-{row_number}"), auto_j_label(row, False)))


_ALIASES = {"chatgpt": "gpt35turbo"}
_FAIREVAL = Shape(name="FairEval's questions or answers", needs=("question_id", "text"))
_FAIREVAL_ANSWERS = "question_id, text, model_id"


def load_faireval(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read FairEval's pairs with human labels, which are joined to the questions by line."""
    texts = [path for path in files if path.lower().endswith(".txt")]
    if len(texts) != 1:
        raise InputError(f"faireval: expected one .txt file of human labels, got {len(texts)}; add it")
    paths = [path for path in files if path != texts[0]]
    tables = [list(convert_file(path, _FAIREVAL, lambda row, _: row, on_reject)) for path in paths]
    questions = [rows for rows in tables if "model_id" not in rows[0].data]
    answers = [rows for rows in tables if "model_id" in rows[0].data]
    if len(questions) != 1 or len(answers) != 2:
        counts = f"{len(questions)} files of questions and {len(answers)} files of answers"
        raise InputError(f"faireval: expected one file of questions, two of answers, and the labels, got {counts}")
    models = tuple(rows[0].text("model_id", _FAIREVAL_ANSWERS) for rows in answers)
    labels = _faireval_labels(texts[0], models, len(questions[0]))
    sides = [{_question_id(row): row for row in rows} for rows in answers]
    for row, winner in zip(questions[0], labels, strict=True):
        try:
            name = _question_id(row)
            if any(name not in side for side in sides):
                raise row.error(f"question {name} has no answer in one of the two files; pass the published files")
            sample = Sample(
                id=f"faireval-{name}",
                question=row.text("text", "question_id, text"),
                answers=tuple(side[name].text("text", _FAIREVAL_ANSWERS) for side in sides),
                answer_models=models,
                category=row.optional_text("category"),
            )
            yield Entry(plain_row(sample, Label(sample_id="", winner=winner)))
        except InputError as error:
            on_reject(reject_row(row, error))


def _faireval_labels(path: str, models: tuple[str, ...], expected: int) -> list[Winner]:
    try:
        lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}; pass FairEval's review_..._human.txt") from error
    if len(lines) != expected:
        raise InputError(f"{path}: {len(lines)} labels for {expected} questions; they are joined line by line")
    return [_faireval_winner(f"{path}:{line_number}", line, models) for line_number, line in enumerate(lines, 1)]


def _faireval_winner(location: str, name: str, models: tuple[str, ...]) -> Winner:
    plain = _letters(name)
    if plain == "tie":
        return "tie"
    winners: tuple[Winner, ...] = (1, 2)
    prefix = _ALIASES.get(plain, plain)
    matches = [winner for winner, model in zip(winners, models, strict=True) if _letters(model).startswith(prefix)]
    if len(matches) != 1:
        known = " and ".join(models)
        raise InputError(f'{location}: "{name}" is neither TIE nor one of {known}; pass the matching answers')
    return matches[0]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _question_id(row: Row) -> str:
    return row.required_id("question_id", "it is required to join questions and answers")


SOURCES = (
    Source(name="judgebench", needs=JUDGEBENCH.needs, sample=judgebench_sample, label=judgebench_label),
    Source(name="auto-j", needs=AUTO_J.needs, sample=auto_j_sample, label=auto_j_label, entry=auto_j_entry),
    Source(
        name="pandalm",
        sample=pandalm_sample,
        label=pandalm_label,
        code=(FieldCode(fields=("annotator*",), values=ZERO_IS_TIE),),
        shape=PANDALM,
        entry=pandalm_entry,
    ),
    Source(name="llmbar", sample=llmbar_sample, label=llmbar_label, code=LLMBAR_CODE, shape=LLMBAR, entry=llmbar_entry),
    Source(name="faireval", load=load_faireval),
)
