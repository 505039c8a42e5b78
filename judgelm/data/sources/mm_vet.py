"""Read MM-Vet and MM-Vet v2: questions about images, with model answers.

Questions are in rows or in a JSON object (id -> question). Each model's answers are in a JSON object (id -> text).
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence

from judgelm.data.readers.files import read_json, read_rows
from judgelm.data.readers.json_lists import WRAPPERS
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, raise_reject
from judgelm.data.readers.values import describe
from judgelm.data.sources.source import Entry, Source, model_from_filename
from judgelm.errors import InputError
from judgelm.modes.multimodal import read_gold

_IMAGE_MARK = "<IMG>"
_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_NEEDS = "question, answer, capability"


def mm_vet_rows(
    questions: str, answers: Sequence[str] = (), on_reject: OnReject = raise_reject
) -> Iterator[dict[str, object]]:
    """Yield plain rows with `capabilities` and `images`, whose paths are relative to the folder of `questions`.

    `<OR>` and `<AND>` stay in the reference, for mode `multimodal`. `answers` lists one file per model, named after the
    model. If there are several files, the model is appended to the id.
    """
    by_model: dict[str, tuple[str, Mapping[str, str]]] = {}
    for path in answers:
        if (model := model_from_filename(path)) in by_model:
            raise InputError(f"{path}: has the same model name as {by_model[model][0]}; rename one")
        by_model[model] = path, _answers(path)

    alone = len(by_model) == 1

    def convert(row: Row) -> list[dict[str, object]]:
        plain = _plain(row)
        name = str(plain["id"])
        return [plain | _answered(row, name, model, *by_model[model], alone=alone) for model in by_model] or [plain]

    for rows in convert_rows(_rows(questions), convert, path=questions, expected=_NEEDS, on_reject=on_reject):
        yield from rows


def _holds_answers(path: str) -> bool:
    content = _json_object(path) if _is_json(path) else None
    return bool(content and all(isinstance(text, str) for text in content.values()))


def _rows(path: str) -> Iterator[Row | Reject]:
    questions = _json_object(path) if _is_json(path) else None
    if questions is not None and not any(isinstance(questions.get(name), list) for name in WRAPPERS):
        for row_number, (name, question) in enumerate(questions.items(), 1):
            if not isinstance(question, dict):
                raise InputError(f"{path}: question {name}: expected an object, got {describe(question)}")
            yield Row(path, row_number, {"id": name, **question})
        return
    yield from read_rows(path)


def _is_json(path: str) -> bool:
    return path.lower().removesuffix(".gz").endswith(".json")


def _json_object(path: str) -> dict[str, object] | None:
    try:
        value = read_json(path)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot read: {error}; expected MM-Vet's JSON file") from error
    return value if isinstance(value, dict) else None


def _answers(path: str) -> Mapping[str, str]:
    answers = _json_object(path)
    if not answers:
        raise InputError(f"{path}: expected a JSON object (id -> answer), as in MM-Vet's results")
    for name, answer in answers.items():
        if not isinstance(answer, str):
            raise InputError(f"{path}: answer to {name}: expected text, got {describe(answer)}")
    return {name: str(answer) for name, answer in answers.items()}


def _answered(
    row: Row, name: str, model: str, path: str, answers: Mapping[str, str], *, alone: bool
) -> dict[str, object]:
    if name not in answers:
        raise row.error(f"{path} contains no answer to {name}; pass matching files")
    return {"id": name if alone else f"{name}/{model}", "answer": answers[name], "answer_models": [model]}


def _plain(row: Row) -> dict[str, object]:
    gold = row.text("answer", _NEEDS)
    if not read_gold(gold):
        raise row.field_error("answer", f"expected an answer, but found only tags: {describe(gold)}")
    question, inside = _without_images(row.text("question", _NEEDS))
    images = [*([str(row.data["imagename"])] if row.data.get("imagename") else []), *inside]
    if not images:
        raise row.error("no image; expected an imagename field, or a file name between <IMG> tags in the question")
    capabilities = _capabilities(row)
    plain: dict[str, object] = {
        "id": row.id(("id", "question_id")) or f"{row.line - 1}",
        "question": question,
        "reference": gold,
        "category": "+".join(capabilities),
        "images": [f"images/{name}" for name in images],
        "capabilities": list(capabilities),
    }
    return plain | ({"answer": row.text("answer1_body", _NEEDS)} if "answer1_body" in row.data else {})


def _without_images(question: str) -> tuple[str, list[str]]:
    if _IMAGE_MARK not in question:
        return question, []
    pieces, names = [], list[str]()
    for piece in (part.strip() for part in question.split(_IMAGE_MARK)):
        if piece.lower().endswith(_IMAGE_ENDINGS) and " " not in piece:
            names.append(piece)
            piece = f"(image {len(names)})"
        if piece:
            pieces.append(piece)
    return " ".join(pieces), names


def _capabilities(row: Row) -> tuple[str, ...]:
    name = "capabilities" if "capabilities" in row.data else "capability"
    value = row.data.get(name)
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(item, str) and item for item in values):
        raise row.field_error(name, f'expected a list of strings such as ["ocr", "math"], got {describe(value)}')
    return tuple(sorted(set(values)))


def load_mm_vet(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read MM-Vet's questions along with each model's answers."""
    answers = [path for path in files if _holds_answers(path)]
    questions = [path for path in files if path not in answers]
    if len(questions) != 1:
        finding = f"expected mm-vet.json and files of answers (id -> text), got {len(questions)} and {len(answers)}"
        raise InputError(f"mm-vet: {finding}; pass the published files")
    for row in mm_vet_rows(questions[0], answers, on_reject):
        yield Entry(row)


SOURCES = (Source(name="mm-vet", load=load_mm_vet),)
