"""Join MT-Bench's two-turn questions, model answers, reference answers, and human votes.

Rows with `turns` are questions. Rows with `choices` are answers, or references if the file or folder name contains
`reference`. Rows with `winner`, `judge`, and `turn` are votes. There is one row per question, pair of models, and turn.
Only votes by judges named `expert...` are counted; other votes are stored in `metadata["other_votes"]`. If there are no
votes, all pairs of models become unlabelled rows.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path

from judgelm.data.label_codes import majority, winner_field
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import read_converted
from judgelm.data.readers.rows import OnReject, Row, reject_row
from judgelm.data.readers.values import describe
from judgelm.data.sources.dialogues import read_turns
from judgelm.data.sources.source import Entry, Source
from judgelm.errors import InputError
from judgelm.records import Label, Sample, Winner

_NEEDS = "question_id with turns, choices, or winner, judge and turn"
_TURNS = 2
_PEOPLE = "expert"
_FIRST = 81
_CATEGORIES = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")

Answers = dict[tuple[str, str], tuple[str, ...]]
"""(question, model) -> the answers, one per turn."""

_Pair = tuple[str, str, str, int]
"""The question, the two models sorted by name, and the 1-based turn."""


@dataclass(slots=True, kw_only=True)
class _Tables:
    questions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    categories: dict[str, str] = field(default_factory=dict)
    references: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    votes: dict[_Pair, list[tuple[str, Winner]]] = field(default_factory=dict)
    places: dict[_Pair, Row] = field(default_factory=dict)


def load_mt_bench(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read MT-Bench's pairs of models for all questions and turns."""
    tables = _Tables()
    for path in files:
        _read(path, tables, on_reject)
    if not tables.questions or not tables.answers:
        lacking = "questions" if not tables.questions else "answers"
        way_out = "pass votes that include the conversations, or question.jsonl and one answer file per model"
        raise InputError(f"mt-bench: no {lacking} in {', '.join(files)}; {way_out}")
    pairs = list(tables.votes) or [
        (question, *models, turn)
        for question in tables.questions
        for models in combinations(tables.models, 2)
        if all((question, model) in tables.answers for model in models)
        for turn in range(1, len(tables.questions[question]) + 1)
    ]
    for pair in pairs:
        try:
            yield Entry(_row(pair, tables))
        except InputError as error:
            row = tables.places.get(pair, Row(files[0], 0, {"question_id": pair[0], "models": pair[1:3]}))
            on_reject(reject_row(row, error))


def _read(path: str, tables: _Tables, on_reject: OnReject) -> None:
    called_reference = any("reference" in part for part in Path(path).resolve().parts[-2:])
    take = partial(_take, tables=tables, called_reference=called_reference)
    deque(read_converted(path, take, expected=_NEEDS, on_reject=on_reject), maxlen=0)


def _take(row: Row, tables: _Tables, called_reference: bool) -> None:
    question = row.id(("question_id",))
    if question is None:
        raise row.error(f"no question_id; found the fields {', '.join(row.data) or 'none'}")
    if "winner" in row.data and "turn" in row.data:
        _take_vote(row, question, tables)
    elif "choices" in row.data:
        texts = _choice(row)
        if called_reference:
            tables.references[question] = texts
        else:
            model = row.text("model_id", "question_id, model_id, choices")
            tables.models[model] = None
            tables.answers[question, model] = texts
    elif "turns" in row.data:
        tables.questions[question] = _texts(row, "turns", row.data["turns"])
        if (category := row.optional_text("category")) is not None:
            tables.categories[question] = category
        if row.data.get("reference") is not None:
            tables.references.setdefault(question, _texts(row, "reference", row.data["reference"]))
    elif "g1_winner" in row.data:
        raise row.error("contains a judge's verdicts, not human votes; pass this file to `judgelm eval` as labels")
    else:
        raise row.error(f"not an MT-Bench question, answer, or vote; found the fields {', '.join(row.data)}")


def _texts(row: Row, name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise row.field_error(name, f"expected one text per turn, got {describe(value)}; correct the row")
    return tuple(str(text) for text in value)


def _choice(row: Row) -> tuple[str, ...]:
    choices = row.data["choices"]
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict):
        raise row.field_error("choices", f'expected a list of objects with "turns", got {describe(choices)}')
    return _texts(row, "choices[0].turns", first.get("turns"))


def _take_vote(row: Row, question: str, tables: _Tables) -> None:
    first, second = (row.text(name, "model_a, model_b, winner, judge, turn") for name in ("model_a", "model_b"))
    turn = row.typed("turn", int, "1 or 2", accept=lambda turn: 1 <= turn <= _TURNS)
    winner = winner_field(row)
    # Sort the models by name, since annotators saw them in either order.
    if first > second and winner != "tie":
        winner = 2 if winner == 1 else 1
    pair = (question, min(first, second), max(first, second), turn)
    for model, name in ((first, "conversation_a"), (second, "conversation_b")):
        if row.data.get(name) is not None:
            _take_conversation(row, name, question, model, tables)
    tables.votes.setdefault(pair, []).append((str(row.data.get("judge")), winner))
    tables.places.setdefault(pair, row)


def _take_conversation(row: Row, name: str, question: str, model: str, tables: _Tables) -> None:
    turns = read_turns(row, name, alone="assistant", needs="conversation_a, conversation_b")
    user_texts = tuple(turn.text for turn in turns if turn.role == "user")
    answered = tuple(turn.text for turn in turns if turn.role == "assistant")
    if not user_texts or len(user_texts) != len(answered):
        raise row.field_error(name, f"found {len(user_texts)} user turns but {len(answered)} answers; remove the row")
    tables.questions.setdefault(question, user_texts)
    tables.models[model] = None
    known = tables.answers.setdefault((question, model), answered)
    if len(answered) > len(known) and answered[: len(known)] == known:
        tables.answers[question, model] = answered
    elif known[: len(answered)] != answered:
        raise row.field_error(name, f"the answers of {model} differ from an earlier row; keep only one set of answers")


def _row(pair: _Pair, tables: _Tables) -> dict[str, object]:
    question, first, second, turn = pair
    user_texts = tables.questions.get(question, ())
    sides = [tables.answers[question, model] for model in (first, second) if (question, model) in tables.answers]
    if len(user_texts) < turn or len(sides) < 2:
        lacking = "question" if len(user_texts) < turn else "answers of both models"
        raise InputError(f"no {lacking} for question {question}, turn {turn}; add its file")
    if any(len(side) < turn for side in sides):
        raise InputError(f"question {question}: one of the models has no answer to turn {turn}; remove the vote")
    references = tables.references.get(question, ())
    known = [*references, *[None] * turn]
    dialogue = [
        {"question": user_texts[index], "answers": [side[index] for side in sides], "reference": known[index]}
        for index in range(turn)
    ]
    votes = tables.votes.get(pair, [])
    people = tuple(winner for judge, winner in votes if judge.startswith(_PEOPLE))
    others = {judge: winner for judge, winner in votes if not judge.startswith(_PEOPLE)}
    metadata = {"question_id": question, "turn": turn, "turns": dialogue}
    sample = Sample(
        id=f"{question}:{first}:{second}:{turn}",
        question=user_texts[turn - 1],
        answers=(sides[0][turn - 1], sides[1][turn - 1]),
        reference=known[turn - 1],
        answer_models=(first, second),
        category=tables.categories.get(question, _category(question)),
        metadata=metadata | ({"other_votes": others} if others else {}),
    )
    return plain_row(sample, Label(sample_id="", winner=majority(people), votes=people))


def _category(question: str) -> str | None:
    question_number = int(question) if question.isdecimal() else 0
    return _CATEGORIES[(question_number - _FIRST) // 10] if _FIRST <= question_number < _FIRST + 80 else None


SOURCES = (Source(name="mt-bench", load=load_mt_bench),)
