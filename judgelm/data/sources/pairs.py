"""Pairs with labels of people or of the makers: PandaLM, LLMBar, JudgeBench, Auto-J, FairEval."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from judgelm.data.readers.fields import optional_text, required_id, row_id, text_field
from judgelm.data.readers.rows import OnReject, Row, reject_row, row_error
from judgelm.data.sources.layouts import llmbar_label, llmbar_sample, pandalm_label, pandalm_sample
from judgelm.data.sources.source import Entry, Shape, choice_field, convert_file, plain_row
from judgelm.errors import InputError
from judgelm.records import Label, Sample, Winner

PANDALM = Shape(
    name="PandaLM's test set",
    needs=("instruction", "response1", "response2", "annotator1", "annotator2", "annotator3"),
)


def pandalm_entry(row: Row, row_number: int) -> Entry:
    """Instruction and input stay apart in the metadata, since PandaLM's own prompt shows them apart."""
    sample = pandalm_sample(row)
    context = optional_text(row, "input")
    if context:
        parts = {"instruction": text_field(row, "instruction", "instruction"), "input": context}
        sample = replace(sample, metadata={**sample.metadata, **parts})
    return Entry(plain_row(sample, pandalm_label(row, False)))


LLMBAR = Shape(name="LLMBar", needs=("input", "output_1", "output_2", "label"))


def llmbar_entry(row: Row, row_number: int) -> Entry:
    """A row of one set, which the folder of its file names."""
    subset = Path(row.file).resolve().parent.name
    label = llmbar_label(row, False)
    if label is None or label.winner == "tie":
        raise row_error(row, "LLMBar's labels are 1 or 2, and this row has neither; leave the row out")
    sample = replace(llmbar_sample(row), id=f"{subset}-{row_number}", category=subset)
    return Entry(plain_row(sample, label))


_JUDGEBENCH_LABELS: Mapping[object, Winner] = {"A>B": 1, "B>A": 2}
_JUDGEBENCH_CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
JUDGEBENCH = Shape(name="JudgeBench", needs=("pair_id", "source", "question", "response_A", "response_B", "label"))


def judgebench_sample(row: Row) -> Sample:
    """JudgeBench: `question`, `response_A`, `response_B`; the category goes by the source's name."""
    needs = ", ".join(JUDGEBENCH.needs)
    source = text_field(row, "source", needs)
    category = next((name for start, name in _JUDGEBENCH_CATEGORIES.items() if source.startswith(start)), None)
    if category is None:
        known = ", ".join(_JUDGEBENCH_CATEGORIES)
        raise row_error(row, f'field "source": "{source}" begins with none of {known}; correct the row')
    model = optional_text(row, "response_model")
    return Sample(
        id=text_field(row, "pair_id", needs),
        question=text_field(row, "question", needs),
        answers=(text_field(row, "response_A", needs), text_field(row, "response_B", needs)),
        answer_models=() if model is None else (model, model),
        category=category,
        metadata={"source": source, "original_id": row_id(row, ("original_id",))},
    )


def judgebench_label(row: Row, with_reference: bool) -> Label:
    """JudgeBench's `label`: the answer that is objectively right."""
    return Label(sample_id="", winner=choice_field(row, "label", _JUDGEBENCH_LABELS))


AUTO_J_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Summarization": ("post_summarization", "text_summarization", "note_summarization"),
    "Exam Questions": ("math_reasoning", "solving_exam_question_with_math", "solving_exam_question_without_math"),
    "Code": (
        *("code_simplification", "code_generation", "explaining_code", "code_correction_rewriting"),
        "code_to_code_translation",
    ),
    "Rewriting": (
        *("text_simplification", "language_polishing", "instructional_rewriting", "text_correction", "paraphrasing"),
    ),
    "Creative Writing": (
        *("writing_song_lyrics", "writing_social_media_post", "writing_blog_post", "writing_personal_essay"),
        *("creative_writing", "writing_advertisement", "writing_marketing_materials", "writing_presentation_script"),
        "counterfactual",
    ),
    "Functional Writing": (
        *("writing_product_description", "writing_job_application", "writing_news_article", "writing_biography"),
        *("writing_email", "writing_legal_document", "writing_technical_document", "writing_scientific_paper"),
        *("functional_writing", "writing_cooking_recipe"),
    ),
    "General Communication": (
        *("asking_how_to_question", "open_question", "analyzing_general", "explaining_general", "seeking_advice"),
        *("recommendation", "value_judgement", "verifying_fact", "chitchat", "roleplay", "planning", "brainstorming"),
    ),
    "NLP Tasks": (
        *("ranking", "text_to_text_translation", "data_analysis", "classification_identification", "title_generation"),
        *("question_generation", "reading_comprehension", "keywords_extraction", "information_extraction"),
        *("topic_modeling", "others"),
    ),
}
"""Auto-J's 58 scenarios by the 8 groups in which its makers report them."""

_AUTO_J_LABELS: Mapping[object, Winner] = {0: 1, 1: 2, 2: "tie"}
AUTO_J = Shape(name="Auto-J's pairwise test set", needs=("scenario", "label", "prompt", "response 1", "response 2"))


def auto_j_sample(row: Row) -> Sample:
    """Auto-J's test set: `prompt`, `response 1`, `response 2`; named by the row's line."""
    needs = ", ".join(AUTO_J.needs)
    return Sample(
        id=f"auto-j-{row.line}",
        question=text_field(row, "prompt", needs),
        answers=(text_field(row, "response 1", needs), text_field(row, "response 2", needs)),
        category=text_field(row, "scenario", needs),
    )


def auto_j_label(row: Row, with_reference: bool) -> Label:
    """Auto-J's `label`: 0 is the first response, 1 the second, 2 a tie."""
    return Label(sample_id="", winner=choice_field(row, "label", _AUTO_J_LABELS))


def auto_j_entry(row: Row, row_number: int) -> Entry:
    """A row, named by its number."""
    return Entry(plain_row(replace(auto_j_sample(row), id=f"auto-j-{row_number}"), auto_j_label(row, False)))


_ALIASES = {"chatgpt": "gpt35turbo"}


_FAIREVAL = Shape(name="FairEval's questions or answers", needs=("question_id", "text"))


def load_faireval(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """FairEval's pairs with people's labels."""
    labels_path, tables = _faireval_files(files, on_reject)
    questions = [rows for rows in tables if "model_id" not in rows[0].data]
    answers = [rows for rows in tables if "model_id" in rows[0].data]
    if len(questions) != 1 or len(answers) != 2:
        counts = f"{len(questions)} files of questions and {len(answers)} of answers"
        raise InputError(f"faireval: expected one file of questions, two of answers and the labels, got {counts}")
    labels = _faireval_labels(labels_path, [_faireval_model(rows) for rows in answers], len(questions[0]))
    sides = [{_question_id(row): row for row in rows} for rows in answers]
    for row, winner in zip(questions[0], labels, strict=True):
        try:
            name = _question_id(row)
            if any(name not in side for side in sides):
                raise row_error(row, f"no answer to question {name} in one of the two files; give the published files")
            sample = Sample(
                id=f"faireval-{name}",
                question=text_field(row, "text", "question_id, text"),
                answers=(_faireval_text(sides[0][name]), _faireval_text(sides[1][name])),
                answer_models=(_faireval_model(answers[0]), _faireval_model(answers[1])),
                category=optional_text(row, "category"),
            )
            yield Entry(plain_row(sample, Label(sample_id="", winner=winner)))
        except InputError as error:
            on_reject(reject_row(row, error))


def _faireval_files(files: Sequence[str], on_reject: OnReject) -> tuple[str, list[list[Row]]]:
    """The file of labels, and the rows of the others."""
    texts = [path for path in files if path.lower().endswith(".txt")]
    if len(texts) != 1:
        raise InputError(f"faireval: expected one .txt file of people's labels, got {len(texts)}; give it too")
    tables: list[list[Row]] = []
    for path in files:
        if path == texts[0]:
            continue
        tables.append(list(convert_file(path, _FAIREVAL, lambda row, _: row, on_reject)))
    return texts[0], tables


def _faireval_labels(path: str, models: list[str], expected: int) -> list[Winner]:
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}; give FairEval's review_..._human.txt") from error
    if len(lines) != expected:
        raise InputError(f"{path}: {len(lines)} labels for {expected} questions; they are joined line by line")
    return [_faireval_winner(f"{path}:{line_number}", line, models) for line_number, line in enumerate(lines, 1)]


def _faireval_winner(location: str, name: str, models: list[str]) -> Winner:
    plain = _letters(name)
    if plain == "tie":
        return "tie"
    matches = [index for index, model in enumerate(models) if _letters(model).startswith(_ALIASES.get(plain, plain))]
    if len(matches) != 1:
        raise InputError(
            f'{location}: "{name}" names neither TIE nor one of {" and ".join(models)}; give their answers'
        )
    return 1 if matches[0] == 0 else 2


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _question_id(row: Row) -> str:
    return required_id(row, "question_id", "questions and answers are joined by it")


def _faireval_text(row: Row) -> str:
    return text_field(row, "text", "question_id, text, model_id")


def _faireval_model(rows: list[Row]) -> str:
    return text_field(rows[0], "model_id", "question_id, text, model_id")
