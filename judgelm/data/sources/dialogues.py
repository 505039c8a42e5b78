"""Parse dialogues in a row's fields, and convert two dialogues to a question with two answers.

A field may contain chat messages (`role` and `content`, or ShareGPT's `from` and `value`), an HH-RLHF string, or a
plain string. If there is only one user turn, its text is the question. Longer dialogues are formatted as `User: ...`
and `Assistant: ...`, separated by blank lines.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import cell_value, content_id, describe, list_value
from judgelm.data.sources.source import known_fields
from judgelm.errors import InputError
from judgelm.jsonl import parse_json
from judgelm.prompts.conversation import dialogue_of
from judgelm.records import Role, Sample

_ROLES: Mapping[str, Role] = {
    **{"user": "user", "human": "user", "prompter": "user"},
    **{"assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant"},
    **{"bing": "assistant", "bard": "assistant", "function_call": "assistant"},
    "system": "system",
}
_HH_TURN = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message in a dialogue, and its images."""

    role: Role
    text: str
    images: tuple[str, ...] = ()


def read_turns(row: Row, name: str, *, alone: Role, needs: str) -> tuple[Turn, ...]:
    """Parse the turns in a field (at least one). A plain string is a single turn with the role `alone`."""
    value = row.data.get(name)
    messages = message_list([value] if isinstance(value, dict) and {"role", "from"} & value.keys() else value)
    if messages is not None:
        if not messages:
            raise row.field_error(name, "expected chat messages, got none; remove the row")
        return tuple(_read_turn(row, f"{name}[{index}]", message) for index, message in enumerate(messages))
    if isinstance(value, list | dict):
        finding = f"expected text or a list of chat messages, got {describe(value)}"
        raise row.field_error(name, f'{finding}; write it as a string or as [{{"role": ..., "content": ...}}]')
    text = row.text(name, needs)
    return _hh_turns(text) or (Turn(alone, text),)


def message_list(value: object) -> list[dict[str, object]] | None:
    """Return a list of objects, parsing JSON and Python literals, or None if the value is not a list of objects."""
    if isinstance(value, str):
        text, value = value, list_value(value)
        if not isinstance(value, list) and text.lstrip().startswith("[{"):
            with suppress(ValueError):
                value = cell_value(text)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    return None


def _read_turn(row: Row, location: str, message: dict[str, object]) -> Turn:
    role_name, text_name = ("from", "value") if "from" in message else ("role", "content")
    role = message.get(role_name)
    if not isinstance(role, str) or role.lower() not in _ROLES:
        finding = f"expected user, assistant or system, got {describe(role)}"
        way_out = "remove the row; use --mode trajectory for dialogues with tool results"
        raise row.field_error(f"{location}.{role_name}", f"{finding}; {way_out}")
    where = f"{location}.{text_name}"
    content, images = message.get(text_name), tuple[str, ...]()
    if isinstance(content, list):
        parts = [_part(row, where, part) for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str))
        images = tuple(image for part in parts if isinstance(part, tuple) for image in part)
    if images and _ROLES[role.lower()] == "assistant":
        raise row.field_error(where, "answers with images cannot be judged; remove the row")
    if calls := _calls(message):
        content = f"{content}\n\n{calls}" if content else calls
    return Turn(_ROLES[role.lower()], row.with_data({where: content}).text(where, "a text per message"), images)


def _part(row: Row, where: str, part: object) -> str | tuple[str, ...]:
    if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text"):
        if isinstance(text := part.get("text"), str):
            return text
    elif isinstance(part, dict) and part.get("type") in ("image", "image_url", "input_image"):
        image = part.get("image_url", part.get("image"))
        image = image.get("url") if isinstance(image, dict) else image
        if image is not None or row.data.get("images") or row.data.get("image"):
            return () if image is None else (row.image(where, image),)
    raise row.field_error(where, f"expected text or image parts, got {describe(part)}; remove the row")


def _calls(message: Mapping[str, object]) -> str:
    listed = message.get("tool_calls") or ([message["function_call"]] if message.get("function_call") else [])
    calls: list[object] = []
    for call in listed if isinstance(listed, list) else [listed]:
        call = call.get("function", call) if isinstance(call, dict) else call
        if isinstance(call, dict) and isinstance(arguments := call.get("arguments"), str):
            with suppress(ValueError):
                call = call | {"arguments": parse_json(arguments)}
        calls.append(call)
    return json.dumps(calls, ensure_ascii=False) if calls else ""


def _hh_turns(text: str) -> tuple[Turn, ...]:
    if not text.lstrip().startswith("Human:") or "\n\nAssistant:" not in text:
        return ()
    parts = _HH_TURN.split(text)[1:]
    names, texts = parts[::2], parts[1::2]
    return tuple(
        Turn("user" if name == "Human" else "assistant", text.strip()) for name, text in zip(names, texts, strict=True)
    )


def full_dialogue(prompt: tuple[Turn, ...], side: tuple[Turn, ...], row: Row, name: str) -> tuple[Turn, ...]:
    """Return the full dialogue of one side; its field may or may not include the prompt."""
    if not prompt or side[0].role == "assistant":
        return prompt + side
    prompt_texts = [turn.text.strip() for turn in prompt if turn.role != "system"]
    side_texts = [turn.text.strip() for turn in side if turn.role != "system"]
    users = [turn.text.strip() for turn in side if turn.role == "user"]
    if side_texts[: len(prompt_texts)] == prompt_texts or (len(prompt_texts) == 1 and prompt_texts[0] in users):
        has_system = any(turn.role == "system" for turn in side)
        return side if has_system else tuple(turn for turn in prompt if turn.role == "system") + side
    raise row.field_error(name, "the dialogue lacks the prompt; remove the prompt field, or keep only the answer")


def question_and_answers(
    row: Row, names: tuple[str, str], sides: tuple[tuple[Turn, ...], tuple[Turn, ...]]
) -> tuple[str, tuple[str, str], tuple[str, ...]]:
    """Return the shared dialogue as the question, the last turn of each side as the answers, and the images."""
    for name, side in zip(names, sides, strict=True):
        if side[-1].role != "assistant":
            finding = f"the last turn must be the assistant's, got the {side[-1].role}'s"
            raise row.field_error(name, f"{finding}; truncate the dialogue after an answer, or remove the row")
    first, second = sides
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    if len(first) != len(second) or shared < len(first) - 1:
        finding = f"{names[0]} and {names[1]} differ at turn {shared + 1} of {len(first)} and {len(second)}"
        raise row.error(f"{finding}, before the last turn; truncate both after that turn, or remove the row")
    if not any(turn.role == "user" for turn in first[:-1]):
        raise row.error(f"no question before the answers in {names[0]} and {names[1]}; add a prompt")
    images = tuple(image for turn in first[:-1] for image in turn.images)
    return render_turns(first[:-1]), (first[-1].text, second[-1].text), images or row.images()


def render_turns(turns: tuple[Turn, ...]) -> str:
    """Return a single user turn unchanged; otherwise, label turns with their speakers."""
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].text
    return "\n\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in turns)


_SIDES = ("conversation_a", "conversation_b")
_DIALOGUE_NEEDS = "turns, or conversation_a and conversation_b"


def dialogue_sample(row: Row) -> Sample:
    """Read a dialogue. The turns become metadata; question, answers, and reference are from the last turn."""
    turns = row.data["turns"] if "turns" in row.data else turns_of_sides(row)
    last = turns[-1] if isinstance(turns, list) and turns else None
    if not isinstance(last, dict) or not isinstance(last.get("answers"), list) or not last["answers"]:
        finding = f'expected a list of {{"question": ..., "answers": [...]}}, got {describe(turns)}'
        raise row.field_error("turns", f"{finding}; store the answers together with their question")
    last_turn = {"question": last.get("question"), "answers": last["answers"], "reference": last.get("reference")}
    whole = row.with_data(last_turn | {name: row.data[name] for name in last_turn if row.data.get(name) is not None})
    answers, reference = whole.text_list("answers"), whole.reference()
    sample = Sample(
        id="",
        question=whole.text("question", "a question in each turn"),
        answers=answers,
        reference=reference,
        answer_models=_dialogue_models(row, len(answers)),
        category=row.optional_text("category"),
        metadata={**row.extras(known_fields("dialogue")), "turns": turns},
    )
    try:
        dialogue = dialogue_of(sample)
    except InputError as error:
        raise row.error(str(error).removeprefix("sample : ")) from error
    texts = [text for turn in dialogue for text in (turn.question, *turn.answers)]
    return replace(sample, id=row.id() or content_id(texts[0], texts[1:], reference))


def turns_of_sides(row: Row) -> list[dict[str, object]]:
    """Merge the dialogues of two assistants with the same user turns.

    `turn` is the user turn after which the vote was cast; later turns are dropped.
    """
    sides = [_asked_and_answered(row, name) for name in _SIDES]
    voted = row.data.get("turn")
    if isinstance(voted, int) and not isinstance(voted, bool) and voted >= 1:
        sides = [side[:voted] for side in sides]
    first, second = sides
    if [question for question, _ in first] != [question for question, _ in second]:
        raise row.error(f"{' and '.join(_SIDES)}: the user's turns differ; remove the row")
    return [
        {"question": question, "answers": [answer, other]}
        for (question, answer), (_, other) in zip(first, second, strict=True)
    ]


def _asked_and_answered(row: Row, name: str) -> list[tuple[str, str]]:
    turns = list(read_turns(row, name, alone="assistant", needs=_DIALOGUE_NEEDS))
    if len(turns) > 1 and turns[0].role == "system":
        turns[:2] = [Turn(turns[1].role, f"{turns[0].text}\n\n{turns[1].text}")]
    roles = [turn.role for turn in turns]
    if roles != ["user", "assistant"] * (len(turns) // 2):
        raise row.field_error(name, "expected alternating user and assistant turns, answer last; remove the row")
    return [(question.text, answer.text) for question, answer in zip(turns[::2], turns[1::2], strict=True)]


def _dialogue_models(row: Row, count: int) -> tuple[str, ...]:
    if row.data.get("answer_models"):
        return row.text_list("answer_models", count)
    for names in (("model_a", "model_b"), ("model_1", "model_2")):
        models = [row.optional_text(name) for name in names]
        if count == 2 and None not in models:
            return tuple(model for model in models if model is not None)
    return ()
