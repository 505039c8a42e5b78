"""Read preference sets: chosen and rejected answers, arena battles, and response pairs."""

import hashlib
from dataclasses import replace

from judgelm.data.label_codes import PAIR_CODE, FieldCode, winner_field
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import ID_FIELDS, describe, list_value
from judgelm.data.sources.dialogues import Turn, dialogue_sample, full_dialogue, question_and_answers, read_turns
from judgelm.data.sources.layouts import LABELS, games_label, plain_pair_label
from judgelm.data.sources.source import Source, known_fields, sample_of, with_stated_fields
from judgelm.records import Label, Sample, Winner

QUESTION_FIELDS = ("prompt", "question", "instruction")

_PREFERENCE_NEEDS = (
    "chosen, rejected and a prompt (or question, instruction), or whole dialogues as chosen and rejected"
)
_ARENA_NEEDS = "conversation_a, conversation_b"
_RESPONSES_NEEDS = "prompt (or question, instruction), response_a, response_b"
_BOTH_BAD = ("tie (bothbad)", "both_bad")
_WINNER_COLUMNS: tuple[tuple[str, Winner], ...] = (("winner_model_a", 1), ("winner_model_b", 2), ("winner_tie", "tie"))


def _asked(row: Row, needs: str) -> tuple[tuple[Turn, ...], set[str]]:
    chats = ("conversations", "messages") if isinstance(row.data.get("chosen"), dict) else ("conversations",)
    name = next((name for name in (*QUESTION_FIELDS, *chats) if row.has(name)), None)
    turns: tuple[Turn, ...] = ()
    used = set[str]()
    if name is not None:
        used.add(name)
        turns = read_turns(row, name, alone="user", needs=needs)
        if len(turns) > 1 and turns[-1] == Turn("assistant", ""):
            turns = turns[:-1]
        context = row.optional_text("input") if name == "instruction" else None
        if context:
            used.add("input")
            turns = (*turns[:-1], replace(turns[-1], text=f"{turns[-1].text}\n\n{context}"))
    system = row.optional_text("system")
    return ((Turn("system", system), *turns) if system and system.strip() else turns), used


def answer_rank(question: str, answer: str) -> bytes:
    """Hash a question and an answer. Answers are sorted by this hash so that judges do not learn a position bias."""
    return hashlib.blake2b(f"{len(question)} {question}{answer}".encode(), digest_size=16).digest()


def _chosen_first(question: str, chosen: str, rejected: str) -> bool:
    return answer_rank(question, chosen) < answer_rank(question, rejected)


def _preference(row: Row) -> tuple[str, str, str, set[str], tuple[str, ...]]:
    prompt, used = _asked(row, _PREFERENCE_NEEDS)
    chosen, rejected = (
        full_dialogue(prompt, read_turns(row, name, alone="assistant", needs=_PREFERENCE_NEEDS), row, name)
        for name in ("chosen", "rejected")
    )
    if not prompt and len(chosen) == len(rejected) == 1:
        raise row.error(f'field "prompt" is missing; each row must contain {_PREFERENCE_NEEDS}')
    question, answers, images = question_and_answers(row, ("chosen", "rejected"), (chosen, rejected))
    if answers[0] == answers[1]:
        raise row.error("chosen and rejected are equal, so there is no preference; remove the row")
    return question, *answers, used, images


def preference_sample(row: Row) -> Sample:
    """Read `chosen` and `rejected` (strings, HH-RLHF dialogues, or chat messages), sorted by `answer_rank`.

    RewardBench's ids are unique only within a subset, so the subset is part of the sample's id.
    """
    question, chosen, rejected, used, images = _preference(row)
    first = _chosen_first(question, chosen, rejected)
    answers = (chosen, rejected) if first else (rejected, chosen)
    models = row.optional_texts("chosen_model", "rejected_model")
    reference = row.reference()
    metadata = row.extras(known_fields("preference") | used)
    if metadata.get("messages") == row.data["chosen"]:
        del metadata["messages"]  # in UltraFeedback, a third copy of the chosen side
    name, subset = row.id(), row.optional_text("subset")
    name = f"{subset}-{name}" if name is not None and subset else name
    models, category = models if first else models[::-1], row.optional_text("category") or subset
    return sample_of(
        name, question, answers, reference, models=models, images=images, category=category, metadata=metadata
    )


def preference_label(row: Row, with_reference: bool) -> Label | None:
    """Label the chosen answer as the winner."""
    first = _chosen_first(*_preference(row)[:3])
    reason = row.optional_text("reason") or None
    if not row.has("score_chosen") and not row.has("score_rejected"):
        return Label(sample_id="", winner=1 if first else 2, reason=reason)
    chosen, rejected = row.number("score_chosen"), row.number("score_rejected")
    if chosen == rejected:
        raise row.error(f"score_chosen and score_rejected are both {chosen:g}: no preference; remove the row")
    if chosen < rejected:
        finding = f"score_chosen {chosen:g} is lower than score_rejected {rejected:g}"
        raise row.error(f"{finding}; correct the row, or remove its scores")
    scores = (chosen, rejected) if first else (rejected, chosen)
    return Label(sample_id="", winner=1 if first else 2, scores=scores, reason=reason)


def pair_id(row: Row) -> str | None:
    """Build a pair's id from the question, the two models, and the judge and turn, if any."""
    question = row.id(("question_id",))
    if question is None:
        return None
    models = ("model_a", "model_b") if row.data.get("model_a") is not None else ("model_1", "model_2")
    parts = (row.data.get(name) for name in (*models, "judge", "turn"))
    return ":".join([question, *(str(part) for part in parts if isinstance(part, str | int))])


def _battle_id(row: Row) -> str | None:
    """Return `id` or `question_id`. Numeric question ids are not unique, so the model names are appended."""
    name = row.id(("id",))
    question = row.id(("question_id",))
    if name is not None or question is None:
        return name or row.id()
    return pair_id(row) if question.isdecimal() else question


def _battle(
    row: Row, shown: tuple[str, tuple[str, str], tuple[str, ...]], used: set[str], more: dict[str, object]
) -> Sample:
    question, answers, images = shown
    reference = row.reference()
    metadata = row.extras(known_fields("battle") | used) | more
    if row.data.get("winner") in _BOTH_BAD:
        metadata["both_bad"] = True
    name, models, category = _battle_id(row), row.optional_texts("model_a", "model_b"), row.optional_text("category")
    return sample_of(
        name, question, answers, reference, models=models, images=images, category=category, metadata=metadata
    )


def arena_sample(row: Row) -> Sample:
    """Read LMSYS arena and MT-bench votes on `conversation_a` and `conversation_b`, in this order.

    MT-bench's `turn` is the user turn after which the vote was cast. Later messages are dropped; their number is stored
    in `metadata["messages_after_vote"]`.
    """
    order = row.data.get("evaluation_order")
    if isinstance(order, int) and order > 1:
        finding = f"this is vote {order} of a session, but the conversations do not contain the earlier turns"
        raise row.field_error("evaluation_order", f"{finding}; add them, or remove the row")
    names = ("conversation_a", "conversation_b")
    first, second = (read_turns(row, name, alone="assistant", needs=_ARENA_NEEDS) for name in names)
    cut = _until(first, row.data.get("turn")), _until(second, row.data.get("turn"))
    shown = question_and_answers(row, names, cut)
    cut_off = len(first) - len(cut[0]) + len(second) - len(cut[1])
    return _battle(row, shown, set(), {"messages_after_vote": cut_off} if cut_off else {})


def _until(turns: tuple[Turn, ...], turn: object) -> tuple[Turn, ...]:
    if not isinstance(turn, int) or isinstance(turn, bool) or turn < 1:
        return turns
    user_turns = [index for index, message in enumerate(turns) if message.role == "user"]
    return turns[: user_turns[turn]] if len(user_turns) > turn else turns


def responses_sample(row: Row) -> Sample:
    """Read `response_a` and `response_b`: strings, or lists with one string per turn (Kaggle)."""
    prompt_field = next((name for name in QUESTION_FIELDS if row.has(name)), "prompt")
    names = ("response_a", "response_b")
    prompts, *sides = (_texts(row, name) for name in (prompt_field, *names))
    used = {prompt_field}
    if prompts is not None and sides[0] is not None and sides[1] is not None:
        first, second = _interleaved(row, names[0], prompts, sides[0]), _interleaved(row, names[1], prompts, sides[1])
    else:
        prompt, used = _asked(row, _RESPONSES_NEEDS)
        if not prompt:
            row.text(prompt_field, _RESPONSES_NEEDS)
        first, second = (
            full_dialogue(prompt, read_turns(row, name, alone="assistant", needs=_RESPONSES_NEEDS), row, name)
            for name in names
        )
    return _battle(row, question_and_answers(row, names, (first, second)), used, {})


def _texts(row: Row, name: str) -> list[object] | None:
    value = list_value(row.data.get(name))
    if isinstance(value, list) and value and all(text is None or isinstance(text, str) for text in value):
        return value
    return None


def _interleaved(row: Row, name: str, prompts: list[object], replies: list[object]) -> tuple[Turn, ...]:
    if len(prompts) != len(replies):
        finding = f"expected {len(prompts)} strings, one per prompt, got {len(replies)}"
        raise row.field_error(name, f"{finding}; remove the row")
    turns: list[Turn] = []
    for index, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        for where, text in ((f"prompt[{index}]", prompt), (f"{name}[{index}]", reply)):
            if text is None:
                raise row.field_error(where, "expected text, got null; remove the row")
            checked = row.with_data({where: text}).text(where, _RESPONSES_NEEDS)
            turns.append(Turn("assistant" if len(turns) % 2 else "user", checked))
    return tuple(turns)


def battle_label(row: Row, with_reference: bool) -> Label | None:
    """Read `winner_model_a`, `winner_model_b`, and `winner_tie`, one of which is 1, or else `winner` and scores."""
    columns = [name for name, _ in _WINNER_COLUMNS if row.has(name)]
    if not columns:
        return plain_pair_label(row, with_reference)
    marked: list[Winner] = []
    for name, winner in _WINNER_COLUMNS:
        if name not in columns and name != "winner_tie":
            raise row.field_error(name, f"expected 0 or 1, got {describe(row.data.get(name))}; fill it in")
        if name in columns and _marked(row, name):
            marked.append(winner)
    if len(marked) != 1:
        raise row.error(f"exactly one of winner_model_a, winner_model_b, and winner_tie must be 1, got {len(marked)}")
    return Label(sample_id="", winner=marked[0], reason=row.optional_text("reason") or None)


def _marked(row: Row, name: str) -> bool:
    flag = row.data[name] if isinstance(row.data[name], bool) else row.number(name)
    if flag not in (0, 1):
        raise row.field_error(name, f"expected 0 or 1, got {describe(row.data[name])}; fix it")
    return bool(flag)


def pair_label_alone(row: Row) -> Sample:
    """Return a sample without answers for a label that is identified by a question and two models."""
    name = pair_id(row)
    if name is None:
        raise row.error("no question_id, which is required for labels of two models' answers")
    metadata = row.extras({"label", "g1_winner", "g2_winner", "category", *ID_FIELDS})
    return Sample(id=name, question="", answers=(), category=row.optional_text("category"), metadata=metadata)


def pair_label(row: Row, with_reference: bool) -> Label | None:
    """Read `label` (A, B, or tie), or FastChat's two games."""
    return Label(sample_id="", winner=winner_field(row, "label")) if row.has("label") else games_label(row)


SOURCES = (
    Source(name="dialogue", sample=dialogue_sample, label=battle_label, code=PAIR_CODE),
    Source(name="preference", sample=preference_sample, label=preference_label),
    Source(name="arena", sample=arena_sample, label=battle_label, code=PAIR_CODE),
    Source(name="responses", sample=responses_sample, label=battle_label, code=PAIR_CODE),
)
PAIR_LABELS = with_stated_fields(
    replace(LABELS, sample=pair_label_alone, label=pair_label, code=(FieldCode(fields=("label",)),)), "pair-labels"
)
"""Labels of pairs that are identified by a question and two models; the answers are in a different file."""
