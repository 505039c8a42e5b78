"""MM-Vet as its makers publish it, and as the original JudgeLM code joins it with answers.

Three shapes are read:

- `mm-vet.json` (and `mm-vet-v2.json`): one JSON object, id -> `imagename`, `question`, `answer`, `capability`; the
  images lie in `images/` beside it, and of version 2 their names stand in the question between `<IMG>`s;
- a model's answers: one JSON object, id -> text;
- the original's judge samples: JSON lines of the first with `answer1_body` and a `question_id` (the place in the file).

Nothing of the data comes with judgelm.

Source: MM-Vet (Yu et al. 2023), section 3 and its evaluator; baaivision/JudgeLM, `data/MM-Vet`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from judgelm.data.fields import described, field_error, row_error, row_id, text_field
from judgelm.data.readers import read_rows
from judgelm.data.rows import Reject, Row
from judgelm.errors import InputError
from judgelm.prompts.multimodal import read_gold

_IMAGES = "images"
_IMAGE_MARK = "<IMG>"
_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_NEEDS = "question, answer, capability"
_IDS = ("id", "question_id")


class VisualQuestion(NamedTuple):
    """What a study needs to know of a question besides its judgment.

    Attributes:
        capabilities: what answering takes, sorted.
        image: what tells questions about one image from others; None where the file does not say.
        model: whose answer is judged, where the row says so: a file can hold several models' answers.
    """

    capabilities: tuple[str, ...]
    image: str | None
    model: str | None = None


def mm_vet_rows(path: Path, answers: Path | None = None) -> Iterator[dict[str, object]]:
    """The questions as rows of judgelm's plain format: `id`, `question`, `reference`, `images`, `capabilities`.

    The reference keeps its `<OR>` and `<AND>`, which mode `multimodal` reads. `images` are relative to the folder of
    `path`.

    Args:
        path: questions, in the first or the third shape.
        answers: a model's answers to all of them, in the second shape; they become `answer`, `answer_models` the
            file's name. Without it rows have the answers that their own file holds, if any.

    Raises:
        InputError: a file or a question cannot be used, or a question has no answer in `answers`.
    """
    given = None if answers is None else _answers(answers)
    for row in _rows(path):
        plain = _plain(row)
        if given is not None:
            name = str(plain["id"])
            if name not in given:
                raise InputError(f"{answers}: no answer to question {name} of {path}; check that they belong together")
            plain |= {"answer": given[name], "answer_models": [answers.stem if answers else ""]}
        yield plain


def read_capabilities(path: Path) -> dict[str, VisualQuestion]:
    """Each question's capabilities by its id, from MM-Vet's own file or from any rows that have them.

    Rows have `id` and `capabilities` or `capability`, a list of texts or one text; `image`, `images` or `imagename`
    tells which questions are about one image, `answer_models` whose answer is judged.

    Raises:
        InputError: the file cannot be read, a row lacks its capabilities, or an id comes twice.
    """
    found: dict[str, VisualQuestion] = {}
    for row in _rows(path):
        name = row_id(row, _IDS)
        if name is None:
            raise row_error(row, f"no id; each row needs one of {', '.join(_IDS)}")
        if name in found:
            raise row_error(row, f"id {json.dumps(name)} appeared before in this file; ids must be unique")
        models = row.data.get("answer_models")
        model = models[0] if isinstance(models, list) and len(models) == 1 and isinstance(models[0], str) else None
        found[name] = VisualQuestion(_capabilities(row), _image_name(row), model)
    return found


def _rows(path: Path) -> Iterator[Row]:
    """Rows of either shape; the questions of one object by their keys, with the key as the id."""
    if path.suffix == ".json" and (questions := _json_object(path)) is not None:
        for number, (name, question) in enumerate(questions.items(), 1):
            if not isinstance(question, dict):
                raise InputError(f"{path}: question {name}: expected an object, got {described(question)}")
            yield Row(str(path), number, {"id": name, **question})
        return
    for row in read_rows(str(path)):
        if isinstance(row, Reject):
            raise InputError(row.message)
        yield row


def _json_object(path: Path) -> dict[str, object] | None:
    """The file's one object; None where it is a list."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read: {error}; check that it is MM-Vet's JSON file") from error
    return found if isinstance(found, dict) else None


def _answers(path: Path) -> Mapping[str, str]:
    found = _json_object(path)
    if not found:
        raise InputError(f"{path}: expected one JSON object, id -> answer, as MM-Vet's results are")
    for name, answer in found.items():
        if not isinstance(answer, str):
            raise InputError(f"{path}: answer to {name}: expected text, got {described(answer)}")
    return {name: str(answer) for name, answer in found.items()}


def _plain(row: Row) -> dict[str, object]:
    gold = text_field(row, "answer", _NEEDS)
    if not read_gold(gold).alternatives:
        raise field_error(row, "answer", f"has tags and no answer: {described(gold)}")
    question, inside = _without_images(text_field(row, "question", _NEEDS))
    images = [*([str(row.data["imagename"])] if row.data.get("imagename") else []), *inside]
    plain: dict[str, object] = {
        "id": row_id(row, _IDS) or f"{row.line - 1}",
        "question": question,
        "reference": gold,
        "images": [f"{_IMAGES}/{name}" for name in images],
        "capabilities": list(_capabilities(row)),
    }
    return plain | ({"answer": text_field(row, "answer1_body", _NEEDS)} if "answer1_body" in row.data else {})


def _without_images(question: str) -> tuple[str, list[str]]:
    """The question with `(image 1)` where version 2 has an image's name, and these names."""
    if _IMAGE_MARK not in question:
        return question, []
    pieces, names = [], list[str]()
    for piece in (one.strip() for one in question.split(_IMAGE_MARK)):
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
    if not isinstance(values, list) or not values or not all(isinstance(one, str) and one for one in values):
        raise field_error(row, name, f'expected a list of texts such as ["ocr", "math"], got {described(value)}')
    return tuple(sorted(set(values)))


def _image_name(row: Row) -> str | None:
    """What tells an image from others; of several images the list of them."""
    for name in ("imagename", "image", "images"):
        if value := row.data.get(name):
            return value if isinstance(value, str) else json.dumps(value)
    return None
