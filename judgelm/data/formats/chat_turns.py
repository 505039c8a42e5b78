r"""Dialogues in a row's fields, and the one question with two answers that two of them make.

A field holds chat messages (`role` and `content`, or ShareGPT's `from` and `value`), an HH-RLHF text
(`\n\nHuman: ...\n\nAssistant: ...`) or one text. A question of one user turn is that turn's text; a longer dialogue is
written turn by turn as `User: ...`, `Assistant: ...` and `System: ...` with a blank line between: no turn is lost.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from judgelm.data.readers.fields import describe, field_error, row_error, text_field
from judgelm.data.readers.rows import Row
from judgelm.jsonl import parse_json
from judgelm.records import Role

_ROLES: Mapping[str, Role] = {
    **{"user": "user", "human": "user", "prompter": "user"},
    **{"assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant"},
    **{"bing": "assistant", "bard": "assistant"},
    "system": "system",
}
_HH_TURN = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a dialogue."""

    role: Role
    text: str


def read_turns(row: Row, name: str, *, alone: Role, needs: str) -> tuple[Turn, ...]:
    """The turns that a field holds, at least one.

    Args:
        row: the row.
        name: the field.
        alone: role of a text that is no dialogue.
        needs: what each row needs, for the error when the field is missing.

    Raises:
        InputError: the field holds neither text nor messages.
    """
    value = row.data.get(name)
    messages = message_list(value)
    if messages is not None:
        if not messages:
            raise field_error(row, name, "expected chat messages, got none; leave the row out")
        return tuple(_turn(row, f"{name}[{index}]", message) for index, message in enumerate(messages))
    if isinstance(value, list | dict):
        finding = f"expected a text or a list of chat messages, got {describe(value)}"
        raise field_error(row, name, f'{finding}; write it as one text or as [{{"role": ..., "content": ...}}]')
    text = text_field(row, name, needs)
    return _hh_turns(text) or (Turn(alone, text),)


def message_list(value: object) -> list[dict[str, object]] | None:
    """A list of objects, also as the JSON text that a table holds; None for anything else."""
    if isinstance(value, str):
        value = json_list(value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    return None


def json_list(text: str) -> list[object] | None:
    """The JSON list that a text holds, or None."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None


def _turn(row: Row, location: str, message: dict[str, object]) -> Turn:
    role_name, text_name = ("from", "value") if "from" in message else ("role", "content")
    role = message.get(role_name)
    if not isinstance(role, str) or role.lower() not in _ROLES:
        known = "user, assistant or system"
        raise field_error(row, f"{location}.{role_name}", f"expected {known}, got {describe(role)}; leave the row out")
    where = f"{location}.{text_name}"
    content = message.get(text_name)
    if isinstance(content, list):
        content = "\n".join(_part(row, where, part) for part in content)
    return Turn(
        _ROLES[role.lower()], text_field(Row(row.file, row.line, {where: content}), where, "a text per message")
    )


def _part(row: Row, where: str, part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise field_error(row, where, f"expected parts of text only, got {describe(part)}; leave the row out")
    return text


def _hh_turns(text: str) -> tuple[Turn, ...]:
    """The turns of an HH-RLHF dialogue without the blanks around them; none where the text is no such dialogue."""
    if not text.lstrip().startswith("Human:") or "\n\nAssistant:" not in text:
        return ()
    parts = _HH_TURN.split(text)[1:]
    names, texts = parts[::2], parts[1::2]
    return tuple(
        Turn("user" if name == "Human" else "assistant", text.strip()) for name, text in zip(names, texts, strict=True)
    )


def full_dialogue(prompt: tuple[Turn, ...], side: tuple[Turn, ...], row: Row, name: str) -> tuple[Turn, ...]:
    """The whole dialogue of one side; its field holds the answer alone, or the prompt and the answer.

    Raises:
        InputError: the side holds a dialogue without the prompt.
    """
    if not prompt or side[0].role == "assistant":
        return prompt + side
    prompt_texts = [turn.text.strip() for turn in prompt if turn.role != "system"]
    side_texts = [turn.text.strip() for turn in side if turn.role != "system"]
    users = [turn.text.strip() for turn in side if turn.role == "user"]
    if side_texts[: len(prompt_texts)] == prompt_texts or (len(prompt_texts) == 1 and prompt_texts[0] in users):
        has_system = any(turn.role == "system" for turn in side)
        return side if has_system else tuple(turn for turn in prompt if turn.role == "system") + side
    raise field_error(
        row, name, "its dialogue does not hold the prompt; leave the prompt out, or keep the answer alone"
    )


def question_and_answers(
    row: Row, names: tuple[str, str], sides: tuple[tuple[Turn, ...], tuple[Turn, ...]]
) -> tuple[str, tuple[str, str]]:
    """The dialogue that both sides share, as a question, and the last turn of each as the answers.

    Raises:
        InputError: a side does not end with the assistant, they differ before the last turn, or no user turn exists.
    """
    for name, side in zip(names, sides, strict=True):
        if side[-1].role != "assistant":
            finding = f"its last turn is the {side[-1].role}'s, expected the assistant's"
            raise field_error(row, name, f"{finding}; cut the dialogue after an answer, or leave the row out")
    first, second = sides
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    if len(first) != len(second) or shared < len(first) - 1:
        location = f"{names[0]} and {names[1]} part at turn {shared + 1} of {len(first)} and {len(second)}"
        way_out = "a pair is one dialogue with two last answers, so cut both after that turn or leave the row out"
        raise row_error(row, f"{location}, before the last one; {way_out}")
    if not any(turn.role == "user" for turn in first[:-1]):
        raise row_error(row, f"no question before the answers in {names[0]} and {names[1]}; add a prompt")
    return render_turns(first[:-1]), (first[-1].text, second[-1].text)


def render_turns(turns: tuple[Turn, ...]) -> str:
    """A dialogue as a question: one user turn as it is, more turns with their speakers before them."""
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].text
    return "\n\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in turns)
