"""Rows of dialogues as samples of the mode `conversation`, checked before any judge is asked.

A row has `turns` as `judgelm.prompts.conversation` says (`question` and `answers` beside them may be left out), or two
whole dialogues with the same user as `conversation_a` and `conversation_b`, which an MT-Bench vote or an arena battle
has. Other modes cannot judge the second kind where the dialogues part before their last turn.
"""

from dataclasses import replace

from judgelm.data.formats.chat_turns import Turn, read_turns
from judgelm.data.readers.fields import (
    ID_FIELDS,
    content_id,
    describe,
    extra_fields,
    field_error,
    optional_text,
    reference_field,
    row_error,
    row_id,
    text_field,
    texts_field,
)
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.prompts.conversation import dialogue_of
from judgelm.records import Sample

_SIDES = ("conversation_a", "conversation_b")
_NEEDS = "turns, or conversation_a and conversation_b"
_FIELDS = frozenset(
    {"turns", "question", "answers", "reference", "category", "answer_models", *_SIDES, *ID_FIELDS}
    | {"model_a", "model_b", "model_1", "model_2", "turn", "winner", "votes", "score", "scores", "reason"}
    | {"score_1", "score_2", "score_a", "score_b"}
)


def dialogue_sample(row: Row) -> Sample:
    """A dialogue with its turns in the metadata; question, answers and reference are the last turn's.

    Raises:
        InputError: turns that are none, with the row's place.
    """
    turns = row.data["turns"] if "turns" in row.data else turns_of_sides(row)
    last = turns[-1] if isinstance(turns, list) and turns else None
    if not isinstance(last, dict) or not isinstance(last.get("answers"), list) or not last["answers"]:
        finding = f'expected a list of {{"question": ..., "answers": [...]}}, got {describe(turns)}'
        raise field_error(row, "turns", f"{finding}; put each assistant's answer beside its question")
    last_turn = {"question": last.get("question"), "answers": last["answers"], "reference": last.get("reference")}
    whole = Row(
        row.file, row.line, last_turn | {name: row.data[name] for name in last_turn if row.data.get(name) is not None}
    )
    answers, reference = texts_field(whole, "answers"), reference_field(whole)
    sample = Sample(
        id="",
        question=text_field(whole, "question", "a question in each turn"),
        answers=answers,
        reference=reference,
        answer_models=_models(row, len(answers)),
        category=optional_text(row, "category"),
        metadata={**extra_fields(row, _FIELDS), "turns": turns},
    )
    try:
        dialogue = dialogue_of(sample)
    except InputError as error:
        raise row_error(row, str(error).removeprefix("sample : ")) from error
    texts = [text for turn in dialogue for text in (turn.question, *turn.answers)]
    return replace(sample, id=row_id(row) or content_id(texts[0], texts[1:], reference))


def turns_of_sides(row: Row) -> list[dict[str, object]]:
    """Two assistants' whole dialogues as turns, where the user said the same to both.

    `turn`, where the row has it, says after which of the user's turns the vote was given; what follows does not count.

    Raises:
        InputError: a side is no dialogue of questions and answers in turn, or the user said something else to each.
    """
    sides = [_asked_and_answered(row, name) for name in _SIDES]
    voted = row.data.get("turn")
    if isinstance(voted, int) and not isinstance(voted, bool) and voted >= 1:
        sides = [side[:voted] for side in sides]
    first, second = sides
    if [question for question, _ in first] != [question for question, _ in second]:
        finding = "the user's turns are not the same in both, so this is no pair of dialogues"
        raise row_error(row, f"{' and '.join(_SIDES)}: {finding}; leave the row out")
    return [
        {"question": question, "answers": [answer, other]}
        for (question, answer), (_, other) in zip(first, second, strict=True)
    ]


def _asked_and_answered(row: Row, name: str) -> list[tuple[str, str]]:
    """(question, answer) of each turn; a system message goes before the first question."""
    turns = list(read_turns(row, name, alone="assistant", needs=_NEEDS))
    if len(turns) > 1 and turns[0].role == "system":
        turns[:2] = [Turn(turns[1].role, f"{turns[0].text}\n\n{turns[1].text}")]
    roles = [turn.role for turn in turns]
    if roles != ["user", "assistant"] * (len(turns) // 2):
        raise field_error(row, name, "expected the user and the assistant in turn, an answer last; leave the row out")
    return [(question.text, answer.text) for question, answer in zip(turns[::2], turns[1::2], strict=True)]


def _models(row: Row, count: int) -> tuple[str, ...]:
    if row.data.get("answer_models"):
        return texts_field(row, "answer_models", count)
    for names in (("model_a", "model_b"), ("model_1", "model_2")):
        models = [optional_text(row, name) for name in names]
        if count == 2 and None not in models:
            return tuple(model for model in models if model is not None)
    return ()
