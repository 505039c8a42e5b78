"""Prompts for multi-turn dialogues and for follow-up questions about a judgment.

A sample's dialogue is in `metadata["turns"]`, with one object per turn:

    {"question": "...", "answers": ["...", "..."], "reference": "..."}

The last turn contains the sample's `question` and `answers`. Labels such as `[Turn 1]` and the note on which answers
are judged are ours; single-turn dialogues have neither.

Source: MT-bench (Zheng et al. 2023), multi-turn prompts; JudgeLM, Figures 3 to 5, section 6, and Figure 19.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from judgelm.errors import ConfigError, InputError
from judgelm.prompts.catalog import Layout, Template, fill, grading_family, read_texts, sha_of
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.records import Prompt, Role, Sample, Span, SpanKind

WHOLE = "dialogue"
"""`DialogueView.part` if all turns are judged together."""

_LABEL = "[Turn {n}]\n"
_BETWEEN = "\n\n"
_NOTES = read_texts(Path(__file__).with_name("dialogue_notes.toml"))
_MARKERS = ("[Turn {n}]", "[Note]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueTurn:
    """The user's question, one answer per assistant, and a reference, if any."""

    question: str
    answers: tuple[str, ...]
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueView:
    """The part of a dialogue shown in one prompt.

    Attributes:
        part: `turn 2`, or `dialogue`.
        turns: all turns up to and including the judged turn.
        whole: whether all turns are judged together.
    """

    part: str
    turns: tuple[DialogueTurn, ...]
    whole: bool = False

    @property
    def referenced(self) -> bool:
        """Whether the judged turn, or any turn of a whole dialogue, has a reference."""
        judged = self.turns if self.whole else self.turns[-1:]
        return any(turn.reference is not None for turn in judged)

    @property
    def anchored(self) -> bool:
        """Whether every turn has a reference, so that one assistant can be judged against the references."""
        return all(turn.reference is not None for turn in self.turns)


def dialogue_of(sample: Sample, *, referenced: bool = True) -> tuple[DialogueTurn, ...]:
    """Return the turns of a sample's dialogue, without references if `referenced` is False.

    The sample's reference overrides the reference of the last turn.

    Raises:
        InputError: `turns` has the wrong format, or its last turn differs from the sample.
    """
    turns = tuple(_turns(sample, sample.metadata.get("turns")))
    if turns[-1].question != sample.question or turns[-1].answers != sample.answers:
        raise _wrong(sample, "", "the last turn differs from the question and answers; use the same text in both")
    if not referenced:
        return tuple(replace(turn, reference=None) for turn in turns)
    return (*turns[:-1], replace(turns[-1], reference=sample.reference or turns[-1].reference))


def turn_view(turns: Sequence[DialogueTurn], turn: int) -> DialogueView:
    """Return the view of one turn; `turn` counts from 1."""
    return DialogueView(part=f"turn {turn}", turns=tuple(turns[:turn]))


def whole_view(turns: Sequence[DialogueTurn]) -> DialogueView:
    """Return the view of all turns together."""
    return DialogueView(part=WHOLE, turns=tuple(turns), whole=True)


def flat_sample(view: DialogueView, sample_id: str) -> Sample:
    """Return a dialogue as a question with the assistants' answers, for word readings.

    If there are several turns, each answer is the whole dialogue with one assistant.
    """
    last = view.turns[-1]
    answers = last.answers
    if len(view.turns) > 1:
        answers = tuple(_transcript(view.turns, index) for index in range(len(last.answers)))
    return Sample(id=sample_id, question=last.question, answers=answers, reference=last.reference)


def flat_samples(view: DialogueView, sample_id: str) -> list[Sample]:
    """Return one sample per assistant, for templates that show one answer.

    The last answer is judged, and everything before it is the question. A whole dialogue counts as one answer.
    """
    last, earlier = view.turns[-1], view.turns[:-1]
    if view.whole or not earlier:
        flat = flat_sample(view, sample_id)
        return [replace(flat, answers=(answer,)) for answer in flat.answers]
    samples = []
    for index, answer in enumerate(last.answers):
        question = f"{_transcript(earlier, index)}\n\nUser: {last.question}"
        samples.append(Sample(id=sample_id, question=question, answers=(answer,), reference=last.reference))
    return samples


def _transcript(turns: Sequence[DialogueTurn], assistant: int) -> str:
    return "\n\n".join(f"User: {turn.question}\n\nAssistant: {turn.answers[assistant]}" for turn in turns)


def dialogue_prompt(
    template: Template, view: DialogueView, order: tuple[int, ...], *, scale: tuple[float, float] = (1, 10)
) -> Prompt:
    """Return two dialogues in the template's pair blocks, or one dialogue after its references.

    `Truncation.answer` counts the turns of the first assistant shown, then the turns of the second.
    """
    if len(order) == 1 and not view.anchored:
        raise ValueError("a single dialogue is shown after its references, but a turn has no reference")
    if len(view.turns) == 1:
        [turn] = view.turns
        sample = Sample(id=view.part, question=turn.question, answers=turn.answers)
        return template.render(sample, order, turn.reference, scale=scale)
    filled = _fill(template.layout(len(order)), view, order, assistants=2, chat=template.chat)
    return replace(filled, prefill=f"{scale[1]:g}" if len(order) == 1 else "", compares=len(order))


def grading_prompt(template: Template, view: DialogueView, *, scale: tuple[float, float]) -> Prompt:
    """Return one assistant's dialogue in a plain grading prompt, for dialogues with missing references."""
    layout = _grading_layout(scale, chat=template.chat)
    return _fill(layout, view, (0,), assistants=1, chat=template.chat)


def reward_prompt(sample: Sample, assistant: int) -> Prompt:
    """Return one assistant's dialogue as chat messages for a reward model."""
    spans: list[Span] = []
    for turn in dialogue_of(sample, referenced=False):
        spans += [Span(turn.question, "question", "user"), Span(turn.answers[assistant], "answer", "assistant")]
    return Prompt(spans=tuple(spans), chat=True)


def dialogue_sha(template: Template) -> str:
    """Return the SHA-256 (hex) of all text used to judge dialogues with a template."""
    grades = [_grading_layout((1, 10), chat=chat).with_reference for chat in (False, True)]
    words = {"label": _LABEL, "between": _BETWEEN, "notes": _NOTES, "grades": grades}
    words |= {"grade": grading_family((1, 10)).sha}
    return sha_of([template.sha, template.sha_for(1), words])


def _fill(layout: Layout, view: DialogueView, order: tuple[int, ...], *, assistants: int, chat: bool) -> Prompt:
    turns = view.turns
    slots = {
        "question": _block("question", [turn.question for turn in turns]),
        "reference": _block("reference", [turn.reference for turn in turns]),
    }
    for rank, index in enumerate(order, 1):
        slots[f"answer_{rank}"] = _block("answer", [turn.answers[index] for turn in turns])
    if len(turns) > 1:
        part = f"{'whole' if view.whole else 'turn'} of {'one' if assistants == 1 else 'two'}"
        note = _NOTES[part].replace("{count}", str(len(turns)))
        slots["question"].append(Span(_BETWEEN + note))
    sanitizer = sanitizer_for((*layout.delimiters, *_MARKERS))
    return fill(layout.messages(referenced=view.referenced), slots, sanitizer, chat=chat)


def _block(kind: SpanKind, texts: Sequence[str | None]) -> list[Span]:
    spans: list[Span] = []
    for turn, text in enumerate(texts, 1):
        if text is None:
            continue
        if len(texts) > 1:
            spans.append(Span((_BETWEEN if spans else "") + _LABEL.replace("{n}", str(turn))))
        spans.append(Span(text, kind))
    return spans


@cache
def _grading_layout(scale: tuple[float, float], *, chat: bool) -> Layout:
    given = grading_family(scale).texts["chat" if chat else "plain"]
    role: Role | None = "user" if chat else None
    referenced = given.text.replace("{question}\n\n", "{question}\n\n[Reference Answer]\n{reference}\n\n")
    referenced = referenced.replace("Please rate", "Based on the reference answer, please rate")
    delimiters = (*given.delimiters, "[Reference Answer]")
    return Layout(plain=((role, given.text),), with_reference=((role, referenced),), delimiters=delimiters)


def _turns(sample: Sample, given: object) -> Iterator[DialogueTurn]:
    if given is None:
        yield DialogueTurn(question=sample.question, answers=sample.answers)
        return
    if not isinstance(given, list) or not given:
        raise _wrong(sample, "", "expected a list of one or more turns; remove the field if there is only one turn")
    for index, turn in enumerate(given):
        if not isinstance(turn, dict):
            raise _wrong(sample, f"[{index}]", 'expected {"question": ..., "answers": [...]}')
        question, answers, reference = turn.get("question"), turn.get("answers"), turn.get("reference")
        if not isinstance(question, str):
            raise _wrong(sample, f"[{index}].question", "expected a string")
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise _wrong(sample, f"[{index}].answers", "expected a list of strings, one per assistant")
        if len(answers) != len(sample.answers):
            raise _wrong(sample, f"[{index}].answers", f"expected {len(sample.answers)} answers, got {len(answers)}")
        if reference is not None and not isinstance(reference, str):
            raise _wrong(sample, f"[{index}].reference", "expected a string or null")
        blank = reference is None or not reference.strip()
        yield DialogueTurn(question=question, answers=tuple(answers), reference=None if blank else reference)


def _wrong(sample: Sample, where: str, finding: str) -> InputError:
    return InputError(f"sample {sample.id}: turns{where}: {finding}")


class PlainTurns(NamedTuple):
    """Text around a follow-up question in a plain-text template."""

    before: str
    after: str

    @property
    def markers(self) -> tuple[str, str]:
        """Markers at the start of turns; their confusables in the conversation are sanitized."""
        return self.before.strip(), self.after.strip()


_PLAIN = {
    "judgelm-v1": PlainTurns("\n\n### Instruction:\n", "\n\n### Response:"),
    "judgelm-paper": PlainTurns("\n\n[Question]\n", "\n\n[Response]\n"),
    "judgelm-compact": PlainTurns("\n[Q] ", "\n[S]"),
}


def plain_turns(template: Template) -> PlainTurns:
    """Return the text around follow-up questions in a plain-text template."""
    if template.id not in _PLAIN:
        there_are = ", ".join(_PLAIN)
        raise ConfigError(f"template {template.id} has no follow-up questions; use {there_are} or a chat template")
    return _PLAIN[template.id]


def stops(template: Template) -> tuple[str, ...]:
    """Return the strings that stop the judge before it writes a question."""
    return () if template.chat else (f"\n{plain_turns(template).before.strip()}",)


def talk_sha(template: Template) -> str:
    """Return the SHA-256 (hex) of the template and the text between plain-text turns."""
    return sha_of([template.sha, None if template.chat else list(plain_turns(template))])


def follow_up_prompt(template: Template, judged: Prompt, texts: Sequence[str]) -> Prompt:
    """Return the judge's prompt, extended by the conversation so far.

    `texts` starts with the judge's reply, alternates between questions and replies, and ends with the unanswered
    question. Replies are untrusted, because they may quote answers.
    """
    if not texts or len(texts) % 2:
        raise ValueError(f"expected a reply, then alternating questions and replies, but got {len(texts)} texts")
    opened = replace(judged, prefill="")
    if template.chat:
        spans = [Span(text, "question", "user" if index % 2 else "assistant") for index, text in enumerate(texts)]
        return replace(opened, spans=(*judged.spans, *spans))
    turns = plain_turns(template)
    added: list[Span] = []
    sanitized = judged.sanitized
    for index, text in enumerate(texts):
        harmless, count = sanitizer_for(turns.markers)(text)
        sanitized += count
        span = Span(harmless, "question")
        added += [Span(turns.before), span, Span(turns.after)] if index % 2 else [span]
    return replace(opened, spans=(*judged.spans, *added), sanitized=sanitized)
