"""FastChat's MT-bench judge: pairs and single answers, each with or without a reference, of one turn or of two.

Pairs are asked for `[[A]]`, `[[B]]` or `[[C]]` (a tie) in the system's message; a single answer's instruction asks for
`[[rating]]`. RewardBench shows the same blocks and knows no `[[C]]`. A dialogue shows the user's turns once for each
assistant, and once more for the reference, so that a question which imitates a turn is found out.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from judgelm.dialects.ambiguity import resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, TaskKind
from judgelm.dialects.patterns import Pattern, Split
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.text import scores_and_reason, words_and_verdict
from judgelm.dialects.verdicts import (
    each_reply,
    grade_text,
    winner_with_ties,
)

_SCALE = (1.0, 10.0)
_PAIR_LABELS = ("[[A]]", "[[B]]", "[[C]]")
_GRADE_LABEL = "[[rating]]"
_TELLS_OF_REFERENCE = "reference answer"

_QUESTION = "[User Question]\n{question}\n\n"
_REFERENCE = "[The Start of Reference Answer]\n{reference}\n[The End of Reference Answer]\n\n"
_ANSWERS = (
    "[The Start of Assistant A's Answer]\n{first}\n[The End of Assistant A's Answer]\n\n"
    "[The Start of Assistant B's Answer]\n{second}\n[The End of Assistant B's Answer]"
)
_PAIR = {False: Pattern(_QUESTION + _ANSWERS), True: Pattern(_QUESTION + _REFERENCE + _ANSWERS)}

_INSTRUCTION = "[Instruction]\n{instruction}\n\n[Question]\n{question}\n\n"
_ANSWER = "[The Start of Assistant's Answer]\n{first}\n[The End of Assistant's Answer]"
_SINGLE = {False: Pattern(_INSTRUCTION + _ANSWER), True: Pattern(_INSTRUCTION + _REFERENCE + _ANSWER)}

_BLOCKS = tuple(
    (f"[The Start of {name} Answer]", f"[The End of {name} Answer]")
    for name in ("Reference", "Assistant's", "Assistant A's", "Assistant B's")
)


def _dialogue(slot: str, block: str, speaker: str) -> str:
    """The template of one conversation of two turns; its slots are `<slot>_1`, `<slot>_question_1` and so on."""
    turns = "".join(
        f"### User:\n{{{slot}_question_{turn}}}\n\n### {speaker}:\n{{{slot}_{turn}}}\n\n" for turn in (1, 2)
    )
    return f"<|The Start of {block}|>\n\n{turns}<|The End of {block}|>"


def _dialogues(*slots: str) -> tuple[Pattern, dict[str, str]]:
    """The template of conversations one after another, and which of its slots hold the same question."""
    shown = {
        "reference": _dialogue("reference", "Reference Answer", "Reference answer"),
        "first": _dialogue("first", "Assistant A's Conversation with User", "Assistant A"),
        "second": _dialogue("second", "Assistant B's Conversation with User", "Assistant B"),
    }
    same = {f"{slot}_question_{turn}": f"{slots[0]}_question_{turn}" for slot in slots[1:] for turn in (1, 2)}
    return Pattern("\n\n\n".join(shown[slot] for slot in slots)), same


_PAIR_TURNS = {False: _dialogues("first", "second"), True: _dialogues("reference", "first", "second")}
_SINGLE_TURNS = {False: _dialogues("first"), True: _dialogues("reference", "first")}


def _pair(request: ChatRequest, *, referenced: bool) -> Split | None:
    """Blocks of a question and two answers; the system's message tells whether there is a reference."""
    texts = request.only("system", "user")
    if texts is None or not _offers(texts[0], *_PAIR_LABELS):
        return None
    return _with_or_without(_PAIR, texts[1], lambda split: texts[0], referenced=referenced)


def _single(request: ChatRequest, *, referenced: bool) -> Split | None:
    """The instruction, a question and one answer in the user's message."""
    texts = request.only("system", "user")
    if texts is None:
        return None
    split = _with_or_without(_SINGLE, texts[1], lambda split: split.values["instruction"], referenced=referenced)
    return split if split is not None and _offers(split.values["instruction"], _GRADE_LABEL) else None


def _with_or_without(
    patterns: Mapping[bool, Pattern], text: str, instruction: Callable[[Split], str], *, referenced: bool
) -> Split | None:
    """A split at the template with a reference where the instruction tells of one, else at the one without."""
    split = resolve_split(patterns[True], text, blocks=_BLOCKS)
    if split is None or _TELLS_OF_REFERENCE not in instruction(split).lower():
        return None if referenced else resolve_split(patterns[False], text, blocks=_BLOCKS)
    return split if referenced else None


def _pair_turns(request: ChatRequest, *, referenced: bool) -> Split | None:
    """Two conversations of two turns, in which the user says the same."""
    return _turns(request, _PAIR_TURNS[referenced], _PAIR_LABELS)


def _single_turns(request: ChatRequest, *, referenced: bool) -> Split | None:
    """One conversation of two turns."""
    return _turns(request, _SINGLE_TURNS[referenced], (_GRADE_LABEL,))


def _turns(request: ChatRequest, dialogues: tuple[Pattern, dict[str, str]], labels: tuple[str, ...]) -> Split | None:
    texts = request.only("system", "user")
    if texts is None or not _offers(texts[0], *labels):
        return None
    pattern, same = dialogues
    return resolve_split(pattern, texts[1], same=same)


def _offers(instruction: str, *labels: str) -> bool:
    return all(label in instruction for label in labels)


def _task(name: str, split: Split | None) -> JudgeTask | None:
    """The task in the slots; the sample of a dialogue is its last turn, as everywhere in this package."""
    if split is None:
        return None
    pair = "second" in split.values or "second_1" in split.values
    kind: TaskKind = "pair" if pair else "grade"
    scale = None if pair else _SCALE
    return task_from_split(name, kind, _last_turn(split), scale=scale, turns=_turn_rows(split.values))


def _last_turn(split: Split) -> Split:
    """A dialogue's slots of the last turn under the names of a single turn; other splits as they are."""
    values = dict(split.values)
    if "first_1" in values:
        values["question"] = values["first_question_2"]
        values |= {slot: values[f"{slot}_2"] for slot in ("first", "second", "reference") if f"{slot}_2" in values}
    return replace(split, values=values)


def _turn_rows(shown: Mapping[str, str]) -> list[dict[str, Any]] | None:
    slots = [slot for slot in ("first", "second") if f"{slot}_1" in shown]
    turns = [
        {
            "question": shown[f"first_question_{turn}"],
            "answers": [shown[f"{slot}_{turn}"] for slot in slots],
            "reference": shown.get(f"reference_{turn}"),
        }
        for turn in (1, 2)
        if slots
    ]
    return turns or None


def _verdict(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Words, and `[[A]]`, `[[B]]` or `[[C]]` below them."""
    labels = {1: "[[A]]", 2: "[[B]]", "tie": "[[C]]"}
    return words_and_verdict(request, scores_and_reason(result, None), labels[winner_with_ties(task, result)])


def _rating(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Words, and the expected grade in two brackets below them."""
    rating = f"[[{grade_text(result, _SCALE)}]]"
    return words_and_verdict(request, scores_and_reason(result, None), rating, "{words}\n\nRating: {verdict}")


def _dialect(
    name: str, split: Callable[..., Split | None], template: Pattern, *, referenced: bool, pair: bool
) -> Dialect:
    return Dialect(
        name=name,
        recognise=lambda request: _task(name, split(request, referenced=referenced)),
        render=each_reply(_verdict if pair else _rating),
        templates=(template,),
    )


DIALECTS: tuple[Dialect, ...] = (
    _dialect("fastchat-pair", _pair, _PAIR[False], referenced=False, pair=True),
    _dialect("fastchat-pair-math", _pair, _PAIR[True], referenced=True, pair=True),
    _dialect("fastchat-pair-mt", _pair_turns, _PAIR_TURNS[False][0], referenced=False, pair=True),
    _dialect("fastchat-pair-math-mt", _pair_turns, _PAIR_TURNS[True][0], referenced=True, pair=True),
    _dialect("fastchat-single", _single, _SINGLE[False], referenced=False, pair=False),
    _dialect("fastchat-single-math", _single, _SINGLE[True], referenced=True, pair=False),
    _dialect("fastchat-single-mt", _single_turns, _SINGLE_TURNS[False][0], referenced=False, pair=False),
    _dialect("fastchat-single-math-mt", _single_turns, _SINGLE_TURNS[True][0], referenced=True, pair=False),
)
