"""Criteria of graded answers: JUDGE-BENCH's rated properties, Prometheus' grading prompts, MM-Vet, and checklists.

JUDGE-BENCH is not JudgeBench, whose pairs have one right answer (`judgelm.data.sources.pairs`). MM-Vet is read in three
shapes:

- `mm-vet.json` (and `mm-vet-v2.json`): one JSON object, id -> `imagename`, `question`, `answer`, `capability`; the
  images are in `images/` beside it, and of version 2 their names are in the question between `<IMG>`s;
- a model's answers: one JSON object, id -> text;
- the original JudgeLM code's judge samples: JSON lines of the first with `answer1_body` and a `question_id` (the row's
  index in the file).

Checklists are questions with criteria for their answers (`CHECKLISTS`), which mode `checklist` judges by once there are
answers: HealthBench, Rubrics as Rewards, WildBench, InFoBench.

Source: MM-Vet (Yu et al. 2023), section 3 and its evaluator; baaivision/JudgeLM, `data/MM-Vet`.
"""

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from judgelm.data.readers.files import read_json, read_rows
from judgelm.data.readers.formats import WRAPPERS
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, raise_reject, reject_row
from judgelm.data.readers.values import describe, list_value
from judgelm.data.sources.dialogues import read_turns, render_turns
from judgelm.data.sources.source import Entry, Shape, model_from_filename, plain_row
from judgelm.errors import ConfigError, InputError
from judgelm.modes.checklist import CRITERIA_FIELD, parse_criteria
from judgelm.modes.single import read_gold
from judgelm.records import Label, Sample

DATA_SET_FIELD, PROPERTY_FIELD = "data_set", "property"
_INSTANCE = "{{ instance }}"
_RATED = ("graded", "continuous")
_JUDGE_BENCH_NAMES = {
    "meta_evaluation_recipes": "recipe-crowd-sourcing-data",
    "dailydialog-acceptability": "dailydialog",
    "switchboard-acceptability": "switchboard",
    **{f"roscoe-{part}-overall": f"roscoe-{part}" for part in ("cosmos", "drop", "esnli", "gsm8k")},
}
"""Names of data sets in the authors' tables, where their files have others."""


def load_judge_bench(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """The graded and continuous properties of JUDGE-BENCH's data sets."""
    for path in files:
        content = _content(path)
        stem = Path(path).stem
        data_set = _JUDGE_BENCH_NAMES.get(stem, stem.replace("_", "-"))
        used = False
        for annotation in content["annotations"]:
            for line, instance in enumerate(content["instances"], 1):
                row = Row(path, line, instance if isinstance(instance, dict) else {"instance": instance})
                try:
                    entry = _judge_bench_entry(row, annotation, data_set)
                except InputError as error:
                    on_reject(reject_row(row, error))
                    continue
                used = True
                yield entry
        if not used:
            raise InputError(f"{path}: no graded or continuous property of a text; give another data set")


def _content(path: str) -> Mapping[str, Any]:
    try:
        content = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); give a published file of JUDGE-BENCH") from error
    parts = [content.get(name) if isinstance(content, dict) else None for name in ("annotations", "instances")]
    lists = [part for part in parts if isinstance(part, list) and part]
    if len(lists) < len(parts) or not all(isinstance(annotation, dict) for annotation in lists[0]):
        first = content[0] if isinstance(content, list) and content else content
        fields = ", ".join(map(str, first)) if isinstance(first, dict) and first else "none"
        finding = f"no file of JUDGE-BENCH: it needs annotations and instances, and has the fields {fields}"
        raise InputError(f"{path}: {finding}; give the published file")
    return dict(content)


def _judge_bench_entry(row: Row, annotation: Mapping[str, Any], data_set: str) -> Entry:
    name, kind = str(annotation.get("metric")), annotation.get("category")
    if kind not in _RATED:
        raise row.error(f"property {name} is {kind or 'of no category'}, and no rating; it is left out")
    prompt, text = annotation.get("prompt"), row.data.get("instance")
    if not isinstance(prompt, str) or prompt.count(_INSTANCE) != 1 or not isinstance(text, str):
        raise row.error(f"property {name}: its prompt does not show one text as {_INSTANCE}; it is left out")
    sample = Sample(
        id=f"{data_set}-{row.data.get('id', row.line)}-{name}",
        question=prompt.replace(_INSTANCE, "").strip(),
        answers=(text,),
        category=f"{data_set}: {name}",
        metadata={DATA_SET_FIELD: data_set, PROPERTY_FIELD: name},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=(_rating(row, annotation, name),))))


def _rating(row: Row, annotation: Mapping[str, Any], name: str) -> float:
    """People's mean, negated where the best value is the smaller one."""
    annotations = row.data.get("annotations")
    entry = annotations.get(name) if isinstance(annotations, dict) else None
    rating = entry.get("mean_human") if isinstance(entry, dict) else None
    if isinstance(rating, bool) or not isinstance(rating, int | float) or not math.isfinite(rating):
        raise row.error(f"property {name}: no mean_human; leave the row out")
    try:
        rising = float(annotation["best"]) > float(annotation["worst"])
    except (KeyError, TypeError, ValueError) as error:
        raise row.error(f"property {name}: worst and best are no numbers; correct the file") from error
    return float(rating) if rising else -float(rating)


SCORES_FIELD = "gpt4_score"

PROMETHEUS = Shape(name="Prometheus' absolute grading", needs=("instruction", SCORES_FIELD))
_HEADINGS = {
    "question": "###The instruction to evaluate:\n",
    "answer": "###Response to evaluate:\n",
    "reference": "###Reference Answer (Score 5):\n",
    "rubric": "###Score Rubrics:\n",
}
_END = "###Feedback:"


def prometheus_entry(row: Row, row_number: int) -> Entry:
    """One of Prometheus' grading prompts, named by its file and number."""
    parts = _parts(row, row.text("instruction", ", ".join(PROMETHEUS.needs)))
    scores = row.data[SCORES_FIELD]
    known = isinstance(scores, list) and all(type(score) is int and 1 <= score <= 5 for score in scores)
    if not isinstance(scores, list) or not scores or not known:
        raise row.field_error(SCORES_FIELD, f"expected a list of scores from 1 to 5, got {scores!r}")
    source = row.optional_text("response_source")
    sample = Sample(
        id=f"{model_from_filename(row.file)}-{row_number}",
        question=parts["question"],
        answers=(parts["answer"],),
        reference=parts.get("reference"),
        answer_models=(source,) if source else (),
        category=row.optional_text("category"),
        metadata={"rubric": parts["rubric"], SCORES_FIELD: scores},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=(fmean(scores),))))


def _parts(row: Row, prompt: str) -> dict[str, str]:
    """The texts below the prompt's headings, each once and in order; the reference may be missing."""
    headings = {name: heading for name, heading in _HEADINGS.items() if name != "reference" or heading in prompt}
    starts = [prompt.find(heading) for heading in headings.values()]
    ends = [*starts[1:], prompt.rfind(_END)]
    once = all(prompt.count(heading) == 1 for heading in headings.values())
    if not once or starts + ends[-1:] != sorted({*starts, *ends}):
        raise row.field_error("instruction", "expected one grading prompt with instruction, response and rubric")
    return {
        name: prompt[start + len(heading) : end].removesuffix("\n").removesuffix("\n")
        for (name, heading), start, end in zip(headings.items(), starts, ends, strict=True)
    }


_IMAGES = "images"
_IMAGE_MARK = "<IMG>"
_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_NEEDS = "question, answer, capability"
_IDS = ("id", "question_id")


def mm_vet_rows(
    questions: str, answers: Sequence[str] = (), on_reject: OnReject = raise_reject
) -> Iterator[dict[str, object]]:
    """Plain rows: `id`, `question`, `answer`, `answer_models`, `reference`, `category`, `images`, `capabilities`.

    The reference keeps its `<OR>` and `<AND>`, which mode `multimodal` reads. `images` are relative to the folder of
    `questions`. A row's id is its question's; with several models, the model's name is appended.

    Args:
        questions: in the first or the third shape.
        answers: files of the second shape, each one model's answers to all questions, the model named after the
            file. Without any, rows have the answers that their own file holds, if it holds some.
        on_reject: called with each question that cannot be used, or that a file has no answer to. By default the
            first one is raised as an error.

    Raises:
        InputError: a file cannot be read, or two files of answers have one name.
    """
    by_model: dict[str, tuple[str, Mapping[str, str]]] = {}
    for path in answers:
        if (model := model_from_filename(path)) in by_model:
            raise InputError(f"{path}: {by_model[model][0]} has the same name, which names the model; rename one")
        by_model[model] = path, _answers(path)

    alone = len(by_model) == 1

    def convert(row: Row) -> list[dict[str, object]]:
        plain = _plain(row)
        name = str(plain["id"])
        return [plain | _answered(row, name, model, *by_model[model], alone=alone) for model in by_model] or [plain]

    for rows in convert_rows(_rows(questions), convert, path=questions, expected=_NEEDS, on_reject=on_reject):
        yield from rows


def _holds_answers(path: str) -> bool:
    """True for an object of texts, which holds a model's answers; any other file holds questions."""
    content = _json_object(path) if _is_json(path) else None
    return bool(content and all(isinstance(text, str) for text in content.values()))


def _rows(path: str) -> Iterator[Row | Reject]:
    """Rows of either shape; the questions of one object by their keys, with the key as the id."""
    if _is_json(path) and (questions := _json_object(path)) is not None and not _holds_rows(questions):
        for row_number, (name, question) in enumerate(questions.items(), 1):
            if not isinstance(question, dict):
                raise InputError(f"{path}: question {name}: expected an object, got {describe(question)}")
            yield Row(path, row_number, {"id": name, **question})
        return
    yield from read_rows(path)


def _holds_rows(questions: Mapping[str, object]) -> bool:
    """True if an object holds a list of rows under a name that `read_rows` knows."""
    return any(isinstance(questions.get(name), list) for name in WRAPPERS)


def _is_json(path: str) -> bool:
    return path.lower().removesuffix(".gz").endswith(".json")


def _json_object(path: str) -> dict[str, object] | None:
    """The file's one object; None where it is a list."""
    try:
        value = read_json(path)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot read: {error}; check that it is MM-Vet's JSON file") from error
    return value if isinstance(value, dict) else None


def _answers(path: str) -> Mapping[str, str]:
    answers = _json_object(path)
    if not answers:
        raise InputError(f"{path}: expected one JSON object, id -> answer, as MM-Vet's results are")
    for name, answer in answers.items():
        if not isinstance(answer, str):
            raise InputError(f"{path}: answer to {name}: expected text, got {describe(answer)}")
    return {name: str(answer) for name, answer in answers.items()}


def _answered(
    row: Row, name: str, model: str, path: str, answers: Mapping[str, str], *, alone: bool
) -> dict[str, object]:
    if name not in answers:
        raise row.error(f"{path} has no answer to {name}; check that the files belong together")
    return {"id": name if alone else f"{name}/{model}", "answer": answers[name], "answer_models": [model]}


def _plain(row: Row) -> dict[str, object]:
    gold = row.text("answer", _NEEDS)
    if not read_gold(gold).alternatives:
        raise row.field_error("answer", f"has tags and no answer: {describe(gold)}")
    question, inside = _without_images(row.text("question", _NEEDS))
    images = [*([str(row.data["imagename"])] if row.data.get("imagename") else []), *inside]
    if not images:
        raise row.error("no image: neither imagename nor a file name between <IMG> in the question")
    capabilities = _capabilities(row)
    plain: dict[str, object] = {
        "id": row.id(_IDS) or f"{row.line - 1}",
        "question": question,
        "reference": gold,
        "category": "+".join(capabilities),
        "images": [f"{_IMAGES}/{name}" for name in images],
        "capabilities": list(capabilities),
    }
    return plain | ({"answer": row.text("answer1_body", _NEEDS)} if "answer1_body" in row.data else {})


def _without_images(question: str) -> tuple[str, list[str]]:
    """The question with `(image 1)` where version 2 has an image's name, and these names."""
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
        raise row.field_error(name, f'expected a list of texts such as ["ocr", "math"], got {describe(value)}')
    return tuple(sorted(set(values)))


def load_mm_vet(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """MM-Vet's questions with each model's answers."""
    answers = [path for path in files if _holds_answers(path)]
    questions = [path for path in files if path not in answers]
    if len(questions) != 1:
        finding = f"expected mm-vet.json and files of answers (id -> text), got {len(questions)} and {len(answers)}"
        raise InputError(f"mm-vet: {finding}; give the published files")
    for row in mm_vet_rows(questions[0], answers, on_reject):
        yield Entry(row)


class ChecklistForm(NamedTuple):
    """The fields of a published set of questions with criteria for their answers.

    Attributes:
        question: fields whose texts, or messages, make the question together; those that hold nothing are left out.
        criteria: field with the list of criteria.
        text: key of a criterion's text; None where the criteria are texts.
        weight: key of its weight; None where all weigh the same.
        id: field with the id; None names rows by their number.
        category: field with the category.
        reference: field with a reference answer.
    """

    question: tuple[str, ...]
    criteria: str
    text: str | None = None
    weight: str | None = None
    id: str | None = None
    category: str | None = None
    reference: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that each row has."""
        named = (self.id, *self.question, self.criteria, self.category, self.reference)
        return tuple(name for name in named if name is not None)


CHECKLISTS: Mapping[str, ChecklistForm] = {
    "healthbench": ChecklistForm(("prompt",), "rubrics", "criterion", "points", id="prompt_id"),
    "rubrics-as-rewards": ChecklistForm(
        ("question",), "rubric", "description", "weight", category="question_source", reference="reference_answer"
    ),
    "wildbench": ChecklistForm(("conversation_input",), "checklist", id="session_id", category="primary_tag"),
    "infobench": ChecklistForm(("instruction", "input"), "decomposed_questions", id="id", category="category"),
}
"""Sets whose rows are a question with criteria and have no answer yet."""


def checklist_entry(form: ChecklistForm, row: Row, row_number: int) -> Entry:
    """A question with its criteria, for an answering run."""
    needs = ", ".join(form.needs)
    turns = [read_turns(row, name, alone="user", needs=needs) for name in form.question if row.data[name] != ""]
    items = list_value(row.data[form.criteria])
    try:
        criteria = parse_criteria([_criterion(form, item) for item in items] if isinstance(items, list) else items)
    except ConfigError as error:
        raise row.field_error(form.criteria, str(error)) from error
    sample = Sample(
        id=f"{model_from_filename(row.file)}-{row_number}" if form.id is None else row.required_id(form.id, needs),
        question="\n\n".join(map(render_turns, turns)),
        answers=(),
        reference=None if form.reference is None else row.reference(form.reference),
        category=None if form.category is None else row.optional_text(form.category),
        metadata={CRITERIA_FIELD: [asdict(criterion) for criterion in criteria]},
    )
    return Entry(plain_row(sample))


def _criterion(form: ChecklistForm, item: object) -> object:
    if form.text is None or not isinstance(item, dict):
        return item
    return {"text": item.get(form.text), "weight": item.get(str(form.weight))}
