"""Dialects for the judge prompts in prompt files (`judgelm.prompts.prompt_file`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from judgelm.dialects import replies
from judgelm.dialects.contract import (
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    Render,
    Reply,
    ambiguity_note,
    sample_of,
)
from judgelm.dialects.splits import Pattern, TemplateSplit, literal, resolve_split
from judgelm.errors import ConfigError
from judgelm.prompts.judge_prompt import FIELDS, JudgePrompt, Piece, ReplyForm, line_of
from judgelm.prompts.prompt_file import read_prompts
from judgelm.records import TokenLogprobs


def read_dialects(path: str | Path, known: Sequence[str] = ()) -> tuple[Dialect, ...]:
    """Load dialects from a prompt file. `known` lists names that are already in use.

    Raises:
        ConfigError: the file cannot be read, or a prompt is invalid or cannot be split unambiguously.
    """
    dialects = []
    for prompt in read_prompts(path, known):
        try:
            dialects.append(custom_dialect(prompt))
        except ConfigError as error:
            raise ConfigError(f"{path}: {prompt.name}: {error}") from None
    return tuple(dialects)


def custom_dialect(prompt: JudgePrompt) -> Dialect:
    """Create a dialect from a prompt.

    Raises:
        ConfigError: there is no fixed text between two slots.
    """
    roles = tuple(message.role for message in prompt.prompt)
    names = {slot: f"slot_{index}" for index, slot in enumerate(prompt.slots)}
    patterns = [_pattern(pieces, prompt.source, names) for pieces in prompt.pieces]

    def recognise(request: ChatRequest) -> JudgeTask | None:
        texts = request.only(*roles) or (request.only("prompt") if roles == ("user",) else None)
        if texts is None:
            return None
        splits = [_split(pattern, text) for pattern, text in zip(patterns, texts, strict=True)]
        matches = [split for split in splits if split is not None]
        if len(matches) < len(splits):
            return None
        texts_by_name = {name: text for split in matches for name, text in split.values.items()}
        values = {slot: texts_by_name[name] for slot, name in names.items()}
        return _task(prompt, values, ambiguity_note(*matches))

    return Dialect(
        name=prompt.name,
        recognise=recognise,
        render=_render(prompt.reply),
        templates=tuple(patterns),
        prompt=prompt if prompt.ask == "prompt" else None,
    )


def _pattern(pieces: Sequence[Piece], source: str, names: Mapping[str, str]) -> Pattern:
    """Give slots names that a pattern can have, and repeated slots unique names. Their texts must be identical."""
    seen: dict[str, int] = {}
    parts = []
    for piece in pieces:
        if piece.is_slot:
            seen[piece.text] = seen.get(piece.text, 0) + 1
            name = names[piece.text]
            parts.append(f"{{{name if seen[piece.text] == 1 else f'{name}__{seen[piece.text]}'}}}")
        else:
            parts.append(literal(piece.text))
    for first, second in pairwise(pieces):
        if first.is_slot and second.is_slot:
            line = line_of(source, f"{{{first.text}}}{{{second.text}}}")
            finding = f"{line}there is no fixed text between {{{first.text}}} and {{{second.text}}}"
            raise ConfigError(f"{finding}, so a request cannot be split; add some, or use the prompt without serve")
    return Pattern("".join(parts))


def _split(pattern: Pattern, text: str) -> TemplateSplit | None:
    if not pattern.slots:
        return TemplateSplit(values={}, ambiguous=False) if text == pattern.anchors[0] else None
    repeated = {slot: _plain(slot) for slot in pattern.slots if slot != _plain(slot)}
    return resolve_split(pattern, text, same=repeated)


def _plain(slot: str) -> str:
    return slot.partition("__")[0]


def _task(prompt: JudgePrompt, values: Mapping[str, str], doubt: str) -> JudgeTask:
    others = {slot: values[slot] for slot in prompt.fields}
    shown = [values[slot] for slot in prompt.answers]
    asks_judge = prompt.ask == "judge"
    named = {slot: text for slot, text in others.items() if not slot.startswith("ignored")} if asks_judge else {}
    sample = sample_of(values.get("question", ""), shown, values.get("reference"))
    sample = replace(sample, metadata=named if asks_judge else {FIELDS: others})
    kind = prompt.reply.kind
    scale = prompt.reply.scale if kind == "grade" else None
    facts = {} if asks_judge else {"prompt": prompt}
    return JudgeTask(dialect=prompt.name, kind=kind, sample=sample, scale=scale, facts=facts, doubt=doubt)


def _render(form: ReplyForm) -> Render:
    def render(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
        results = replies.results_per_reply(request, result)
        parts = [_reply_parts(form, task, request, drawn) for drawn in results]
        texts = tuple("".join(each) for each in parts)
        verdicts = tuple(_verdict(form, task, drawn) for drawn in results)
        if form.json and request.forced_tool is not None:
            return Reply(tool=request.forced_tool, arguments=texts[0])
        before, verdict, after = parts[0]
        if not request.logprobs or verdict not in (shares := _shares(form, result)):
            return Reply(texts=texts, verdicts=verdicts)
        tokens = replies.verdict_logprobs(before + verdict, verdict, shares, request.top_logprobs)
        rest = (TokenLogprobs(token=after, logprob=0.0, candidates=((after, 0.0),)),) if after else ()
        return Reply(texts=texts, verdicts=verdicts, logprobs=(*tokens, *rest))

    return render


def _shares(form: ReplyForm, result: JudgeResult) -> dict[str, float]:
    if form.pair is not None:
        words, first = list(form.words), replies.probability_first(result)
        return {words[0]: first, words[1]: 1 - first}
    if form.label is not None and result.correct is not None:
        fulfilled, failed = form.words
        return {fulfilled: result.correct, failed: 1 - result.correct}
    return {}


def _reply_parts(form: ReplyForm, task: JudgeTask, request: ChatRequest, result: JudgeResult) -> tuple[str, str, str]:
    fields = _fields(form, task, result)
    room = replies.room_for_words(request, len("".join(_filled(form, fields | {"reason": ""}))))
    return _filled(form, fields | {"reason": replies.scores_and_reason(result, room)})


def _filled(form: ReplyForm, fields: Mapping[str, Any]) -> tuple[str, str, str]:
    if form.json:
        return json.dumps({name: fields[field] for name, field in form.json.items()}, ensure_ascii=False), "", ""
    before, verdict, after = (form.text if form.text is not None else "{verdict}").partition("{verdict}")
    for name, value in fields.items():
        shown = value if isinstance(value, str) else replies.format_number(float(value), 4)
        before, verdict, after = (part.replace(f"{{{name}}}", shown) for part in (before, verdict, after))
    return before.lstrip(), verdict, after.rstrip()


def _fields(form: ReplyForm, task: JudgeTask, result: JudgeResult) -> dict[str, Any]:
    fields: dict[str, Any] = {"verdict": _verdict(form, task, result)}
    if task.kind == "pair":
        fields["probability"] = round(replies.probability_first(result), 4)
    elif result.correct is not None:
        fields["probability"] = round(result.correct, 4)
    for index, score in enumerate(result.scores[:2]):
        fields[f"score_{index + 1}"] = round(score, 2)
    return fields | {"score": fields["verdict"] if task.kind == "grade" else fields.get("score_1")}


def _verdict(form: ReplyForm, task: JudgeTask, result: JudgeResult) -> str | float:
    words = list(form.words)
    if form.pair is not None:
        winner = replies.winner_with_ties(task, result, ties=form.pair.tie is not None)
        return words[{1: 0, 2: 1, "tie": 2}[winner]]
    if form.choice is not None:
        return words[replies.best_answer(task, result)]
    if form.label is not None:
        return words[0] if replies.is_fulfilled(result) else words[1]
    grade = replies.rescale(replies.expected_grade(result), form.scale)
    if isinstance(grades := form.grade, dict):
        return min(grades, key=lambda word: abs(grades[word] - grade))
    return round(grade) if form.whole else round(grade, 2)
