"""Read exports from labelling tools: Label Studio, Argilla, Prodigy, and doccano.

A task is a question with two answers, which are detected by field name (`prompt`; `answer1` and `answer2`, ...).
Submitted annotations are counted as votes. Sources: Label Studio's converter (`label_studio_sdk/converter`), Argilla's
`records/_io`, and Prodigy's `choice` interface.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from judgelm.data.label_codes import WORDS, FieldCode, label_text
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import describe, list_value
from judgelm.data.sources.layouts import plain_label, plain_sample
from judgelm.data.sources.source import Source
from judgelm.records import Sample

Votes = list[object]
_QUESTIONS = ("question", "prompt", "instruction", "input", "query", "text")
ANSWER_FIELD = re.compile(
    r"(answer|response|output|completion|generation|reply|option|text)[-_ ]?([1-9a-d])", re.IGNORECASE
)
_SIDES = ("first", "second")
_TASK = "the task's fields"
_PLACES = {"1": 0, "a": 0, "2": 1, "b": 1}
_WAY_OUT = "rename them to question, answer_1, and answer_2, or, for flat exports, assign them with --column"


def label_studio_sample(row: Row) -> Sample:
    """Read a task from Label Studio's JSON export."""
    return _sample(row, row.typed("data", dict, _TASK), row.id(("id",)))


def label_studio_votes(row: Row) -> Row:
    """Read votes from a task's annotations: the side in a `Pairwise` tag, else the only choice in a `Choices` tag."""
    annotations = row.typed("annotations", list, "a list of annotations")
    kept = [each for each in _objects(annotations) if not each.get("was_cancelled") and not each.get("skipped")]
    return _with_votes(row, label_studio_sample(row), [vote for each in kept for vote in _results(row, each)])


def _results(row: Row, annotation: Mapping[str, object]) -> Votes:
    by_type: dict[str, dict[object, object]] = {"pairwise": {}, "choices": {}}
    for result in _objects(annotation.get("result")):
        value = result.get("value")
        if isinstance(value, dict) and result.get("type") in by_type:
            chosen = value.get("selected") if "selected" in value else value.get("choices")
            by_type[result["type"]][result.get("from_name")] = chosen
    votes = by_type["pairwise"] or by_type["choices"]
    if len(votes) > 1:
        names = ", ".join(map(str, votes))
        raise row.field_error("annotations", f"the vote is ambiguous: tags {names}; keep one")
    return [_single(row, "annotations", vote) for vote in votes.values()]


def plain_task_sample(row: Row) -> Sample:
    """Read a task from Label Studio's flat JSON-MIN or CSV export."""
    return _sample(row, row.data, row.id(("id",)))


def label_studio_min_votes(row: Row) -> Row:
    """Read the vote from `winner`, or else from the only field that contains `left` or `right`."""
    sides: dict[str, object]
    sides = {name: side for name, value in row.data.items() if (side := _side(value)) in ("left", "right")}
    if row.has("winner"):
        sides = {"winner": _side(row.data["winner"]) or row.data["winner"]}
    if len(sides) > 1:
        raise row.error(
            f"the vote is ambiguous, because several fields match: {', '.join(sides)}; choose one with "
            f"--column winner=NAME"
        )
    return _with_votes(row, plain_task_sample(row), [*sides.values()])


def _side(value: object) -> object:
    value = list_value(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0].get("selected")
    return value if isinstance(value, str) else None


def argilla_sample(row: Row) -> Sample:
    """Read an Argilla record, with its fields in `fields` (to_json) or in columns (to_datasets)."""
    data = row.typed("fields", dict, _TASK) if "fields" in row.data else row.data
    return _sample(row, data, row.id(("id", "_server_id")))


def argilla_votes(row: Row) -> Row:
    """Read the submitted responses to the question about the better answer, which is detected by its values."""
    sample, asked = argilla_sample(row), dict[str, Votes]()
    for name, value, status in _responses(row):
        if status is None:
            raise row.error("submitted and discarded responses cannot be distinguished; export with to_datasets()")
        if status == "submitted":
            asked.setdefault(name, []).append(_ranked(row, name, value))
    votes = {name: values for name, values in asked.items() if all(map(_names_answer, values))}
    if len(votes or asked) > 1:
        raise row.error(
            f"the vote is ambiguous, because there are several questions: {', '.join(votes or asked)}; export only one"
        )
    return _with_votes(row, sample, [vote for values in (votes or asked).values() for vote in values])


def _responses(row: Row) -> Iterator[tuple[str, object, object]]:
    responses = row.data.get("responses")
    if isinstance(responses, dict):
        for name, given in responses.items():
            for each in _objects(given):
                yield name, each.get("value"), each.get("status")
    for each in _objects(responses):
        values = each.get("values")
        for name, given in values.items() if isinstance(values, dict) else ():
            yield name, given.get("value") if isinstance(given, dict) else given, each.get("status")
    for column in [column for column in row.data if column.endswith(".responses")]:
        values, statuses = row.data[column] or [], row.data.get(f"{column}.status") or []
        if isinstance(values, list) and isinstance(statuses, list):
            padded = [*statuses, *[None] * (len(values) - len(statuses))]
            yield from ((column.removesuffix(".responses"), *each) for each in zip(values, padded, strict=False))


def _ranked(row: Row, name: str, value: object) -> object:
    if not isinstance(value, list):
        return value
    if len(value) != 2 or not all(isinstance(each, dict) and isinstance(each.get("rank"), int) for each in value):
        raise row.error(f"expected the ranks of two answers in the ranking {name}; include ranks in the export")
    first, second = sorted(value, key=lambda each: each["rank"])
    return "tie" if first["rank"] == second["rank"] else first.get("value")


def _names_answer(value: object) -> bool:
    return isinstance(value, str) and (ANSWER_FIELD.fullmatch(value) is not None or label_text(value) in WORDS)


def prodigy_sample(row: Row) -> Sample:
    """Read a task from Prodigy's `choice` interface; the answers are the two options that are not a tie."""
    answers = [option.get("text") for option in _options(row) if not _is_tie(option)]
    if len(answers) != 2:
        raise row.field_error("options", f"expected two answers, got {len(answers)}")
    data = row.data | {"answer_1": answers[0], "answer_2": answers[1]}
    del data["options"]
    return _sample(row, data, row.id(("id", "_task_hash")))


def prodigy_votes(row: Row) -> Row:
    """Read the accepted option as a vote, if `answer` is `accept`."""
    accepted = row.data.get("accept")
    if row.data.get("answer") != "accept" or not accepted:
        return _with_votes(row, prodigy_sample(row), [])
    chosen = _single(row, "accept", accepted)
    answers = [option for option in _options(row) if not _is_tie(option)]
    votes: Votes = [side for side, option in zip(_SIDES, answers, strict=False) if option.get("id") == chosen]
    votes += ["tie" for option in _options(row) if _is_tie(option) and option.get("id") == chosen]
    if len(votes) != 1:
        raise row.field_error("accept", f"expected the id of an option, got {describe(chosen)}")
    return _with_votes(row, prodigy_sample(row), votes)


def _options(row: Row) -> list[Mapping[str, object]]:
    options = list_value(row.data.get("options"))
    if not isinstance(options, list) or not all(isinstance(option, dict) for option in options):
        raise row.field_error("options", f"expected a list of options with id and text, got {describe(options)}")
    return options


def _is_tie(option: Mapping[str, object]) -> bool:
    return "tie" in (WORDS.get(label_text(option.get(name, ""))) for name in ("id", "text"))


def doccano_votes(row: Row) -> Row:
    """Read doccano's labels; each annotator's label is counted as a vote."""
    labels = row.data.get("label")
    labels = labels.split("#") if isinstance(labels, str) else labels
    votes = [label for label in labels if label != ""] if isinstance(labels, list) else []
    if len(set(map(str, votes))) > 1:
        finding = f"contains {describe(votes)}, which could be from one or several annotators"
        raise row.field_error("label", f"{finding}; export labels per annotator, or keep only one")
    return _with_votes(row, plain_task_sample(row), votes)


def _sample(row: Row, data: Mapping[str, object], name: str | None) -> Sample:
    groups: dict[str, dict[int, str]] = {}
    more = []
    for field in data:
        if match := ANSWER_FIELD.fullmatch(field):
            place = _PLACES.get(match[2].lower())
            groups.setdefault(match[1].lower(), {})[2 if place is None else place] = field
            more += [field] if place is None else []
    pairs = [places for places in groups.values() if {0, 1} <= places.keys()]
    question = next((field for field in _QUESTIONS if data.get(field) not in (None, "")), None)
    if len(pairs) != 1 or 2 in pairs[0] or question is None:
        raise row.error(f"found no question with two answers in the fields {', '.join(data)}; {_WAY_OUT}")
    first, second = pairs[0][0], pairs[0][1]
    rest = {field: value for field, value in data.items() if field not in (question, first, second)}
    fields = {"question": data[question], "answer_1": data[first], "answer_2": data[second], "id": name}
    return plain_sample(row.with_data(rest | fields))


def _with_votes(row: Row, sample: Sample, votes: Votes) -> Row:
    question, (first, second) = sample.question, sample.answers
    fields: dict[str, object] = {"id": sample.id, "question": question, "answer_1": first, "answer_2": second}
    for number, vote in enumerate(votes, 1):
        side = ANSWER_FIELD.fullmatch(vote) if isinstance(vote, str) else None
        place = side and _PLACES.get(side[2].lower())
        fields[f"annotator{number}"] = vote if place is None else _SIDES[place]
    return row.with_data(fields)


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _single(row: Row, name: str, value: object) -> object:
    if not isinstance(value, list):
        return value
    if len(value) != 1:
        raise row.field_error(name, f"expected one choice, got {describe(value)}; remove the row")
    return value[0]


_CODE = (FieldCode(fields=("annotator*",)),)  # the meaning of numbers is not defined
SOURCES = tuple(
    Source(name=name, sample=sample, votes=votes, label=plain_label, code=_CODE, task_votes=True)
    for name, (sample, votes) in {
        "label-studio": (label_studio_sample, label_studio_votes),
        "label-studio-min": (plain_task_sample, label_studio_min_votes),
        "argilla": (argilla_sample, argilla_votes),
        "argilla-columns": (argilla_sample, argilla_votes),
        "prodigy": (prodigy_sample, prodigy_votes),
        "doccano": (plain_task_sample, doccano_votes),
    }.items()
)
