"""Dialogues of several turns, shown in the blocks of a template that judges of single answers were trained on.

A dialogue comes with its sample as `metadata["turns"]`, one object for each turn in their order:

    {"question": "...", "answers": ["...", "..."], "reference": "..."}

`answers` are the assistants' (two for a pair, one to be graded) and `reference` may be missing or null; the sample's
own `question` and `answers` are the last turn's. A sample without `turns` is a dialogue of one turn.

The blocks stay what the template's bytes say they are. The question block holds the user's turns, each assistant's
block its own answers, the reference block the references, all under labels:

    [Turn 1]
    ...

    [Turn 2]
    ...

Behind the user's turns a note says which answers are judged. Labels and note are ours; a judge that was trained on the
template has not seen them. A dialogue of one turn has neither: it has the bytes of a pair, or of a single answer. The
user's turns stand there once, not once for each assistant as in MT-Bench, so that both orders begin alike and the
longest texts are not doubled.

Follow-up questions about a judgment come behind the judge's prompt and its reply. For a chat template the turns are
messages: what the judge read is the first user message, what it wrote the assistant's answer to it, and so on. A plain
template continues in the form in which it opens its reply:

- `judgelm-v1` ends `### Response:`, as Alpaca's prompts do, so a question stands under `### Instruction:`;
- `judgelm-paper` names its blocks, so a question stands in a `[Question]` block and the reply in a `[Response]` block;
- `judgelm-compact` has its short markers `[Q]` and `[S]`.

The papers do not say how plain turns were written, so this is ours, and the released judges were trained on a single
turn. No end-of-sequence token stands between plain turns.

Source: MT-bench (Zheng et al. 2023), its multi-turn prompts, for what is shown; JudgeLM, Figures 3 to 5, for the
blocks, and section 6 and Figure 19 for talk about judgments.
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
"""Names the view of all turns, judged together."""

_LABEL = "[Turn {n}]\n"
_BETWEEN = "\n\n"
_NOTES = read_texts(Path(__file__).with_name("dialogue_notes.toml"))
_MARKERS = ("[Turn {n}]", "[Note]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueTurn:
    """The user's question, each assistant's answer, and a good answer as reference."""

    question: str
    answers: tuple[str, ...]
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueView:
    """The part of a dialogue that one prompt shows.

    Attributes:
        part: `turn 2`, or `dialogue`.
        turns: those that are shown, up to the one that is judged.
        whole: all of them are judged together, not the last one only.
    """

    part: str
    turns: tuple[DialogueTurn, ...]
    whole: bool = False

    @property
    def referenced(self) -> bool:
        """True if references are shown: where the judged turn has one, or of a whole dialogue any turn."""
        judged = self.turns if self.whole else self.turns[-1:]
        return any(turn.reference is not None for turn in judged)

    @property
    def anchored(self) -> bool:
        """True if the references make a dialogue of their own, which a single one can be judged against."""
        return all(turn.reference is not None for turn in self.turns)


def dialogue_of(sample: Sample, *, referenced: bool = True) -> tuple[DialogueTurn, ...]:
    """The turns of a sample's dialogue; references are left out where `referenced` is False.

    The sample's own reference is the last turn's, and goes before the one in `turns`.

    Raises:
        InputError: `turns` is no such list, or its last turn is not what the sample says.
    """
    turns = tuple(_turns(sample, sample.metadata.get("turns")))
    if turns[-1].question != sample.question or turns[-1].answers != sample.answers:
        raise _wrong(sample, "", "the last turn is not the sample's question and answers; write the same texts in both")
    if not referenced:
        return tuple(replace(turn, reference=None) for turn in turns)
    return (*turns[:-1], replace(turns[-1], reference=sample.reference or turns[-1].reference))


def turn_view(turns: Sequence[DialogueTurn], turn: int) -> DialogueView:
    """Turn `number` (from 1) with those before it; what comes after it is not shown."""
    return DialogueView(part=f"turn {turn}", turns=tuple(turns[:turn]))


def whole_view(turns: Sequence[DialogueTurn]) -> DialogueView:
    """All turns, to be judged together."""
    return DialogueView(part=WHOLE, turns=tuple(turns), whole=True)


def flat_sample(view: DialogueView, sample_id: str) -> Sample:
    """A dialogue as one question and the assistants' answers to it, for templates that read words.

    The question is that of the last turn. Of several turns each answer is the whole dialogue with that assistant.

    Args:
        view: the part that is shown.
        sample_id: of the sample that is made.
    """
    last = view.turns[-1]
    answers = last.answers
    if len(view.turns) > 1:
        answers = tuple(_transcript(view.turns, index) for index in range(len(last.answers)))
    return Sample(id=sample_id, question=last.question, answers=answers, reference=last.reference)


def flat_samples(view: DialogueView, sample_id: str) -> list[Sample]:
    """A dialogue with each assistant by itself, for templates that show one answer.

    The last answer is judged, and all that comes before it is the question; a whole dialogue is one answer.

    Args:
        view: the part that is shown.
        sample_id: of the samples that are made.
    """
    last, earlier = view.turns[-1], view.turns[:-1]
    if view.whole or not earlier:
        flat = flat_sample(view, sample_id)
        return [replace(flat, answers=(answer,)) for answer in flat.answers]
    return [
        Sample(
            id=sample_id,
            question=f"{_transcript(earlier, index)}\n\nUser: {last.question}",
            answers=(answer,),
            reference=last.reference,
        )
        for index, answer in enumerate(last.answers)
    ]


def _transcript(turns: Sequence[DialogueTurn], assistant: int) -> str:
    return "\n\n".join(f"User: {turn.question}\n\nAssistant: {turn.answers[assistant]}" for turn in turns)


def dialogue_prompt(
    template: Template, view: DialogueView, order: tuple[int, ...], *, scale: tuple[float, float] = (1, 10)
) -> Prompt:
    """Two dialogues in the template's blocks for a pair, or one behind the dialogue of its references.

    Each answer is a span of its own, so the length policy cuts answers and nothing else: `Cut.answer` counts the turns
    of the assistant shown first, then those of the other.

    Args:
        template: of the judge.
        view: the part that is shown; for one assistant it must be `anchored`.
        order: of the assistants, as indices into each turn's answers; one index or two.
        scale: of the judge, see `Template.render`.

    Raises:
        ValueError: one assistant's dialogue, and a turn without reference.
    """
    if len(order) == 1 and not view.anchored:
        raise ValueError("one dialogue alone is shown behind its references, and a turn has none")
    if len(view.turns) == 1:
        [turn] = view.turns
        sample = Sample(id=view.part, question=turn.question, answers=turn.answers)
        return template.render(sample, order, turn.reference, scale=scale)
    filled = _fill(template.layout(len(order)), view, order, assistants=2, chat=template.chat)
    return replace(filled, prefill=f"{scale[1]:g}" if len(order) == 1 else "", compares=len(order))


def grading_prompt(template: Template, view: DialogueView, *, scale: tuple[float, float]) -> Prompt:
    """One assistant's dialogue in the blocks of a plain grade, for where not every turn has a reference.

    Args:
        template: of the judge; it decides whether this is a chat.
        view: the part that is shown.
        scale: lowest and highest score, named in the prompt.
    """
    layout = _grading_layout(scale, chat=template.chat)
    return _fill(layout, view, (0,), assistants=1, chat=template.chat)


def reward_prompt(sample: Sample, assistant: int) -> Prompt:
    """The dialogue of one assistant as chat messages, which a reward model reads without any other word.

    Args:
        sample: with its turns, where it has several.
        assistant: index of the answers.

    Raises:
        InputError: as `dialogue_of`.
    """
    spans: list[Span] = []
    for turn in dialogue_of(sample, referenced=False):
        spans += [Span(turn.question, "question", "user"), Span(turn.answers[assistant], "answer", "assistant")]
    return Prompt(spans=tuple(spans), chat=True)


def dialogue_sha(template: Template) -> str:
    """sha256 (hex) over all bytes that dialogues are judged with under a template."""
    grades = [_grading_layout((1, 10), chat=chat).with_reference for chat in (False, True)]
    words = {
        "label": _LABEL,
        "between": _BETWEEN,
        "notes": _NOTES,
        "grades": grades,
        "grade": grading_family((1, 10)).sha,
    }
    return sha_of([template.sha, template.sha_for(1), words])


def _fill(layout: Layout, view: DialogueView, order: tuple[int, ...], *, assistants: int, chat: bool) -> Prompt:
    """The layout with its slots filled: under labels, and with a note, where there are several turns."""
    turns = view.turns
    texts: dict[str, tuple[SpanKind, list[str | None]]] = {
        "question": ("question", [turn.question for turn in turns]),
        "reference": ("reference", [turn.reference for turn in turns]),
        **{
            f"answer_{rank}": ("answer", [turn.answers[index] for turn in turns]) for rank, index in enumerate(order, 1)
        },
    }
    slots = {slot: list(_block(kind, shown)) for slot, (kind, shown) in texts.items()}
    if len(turns) > 1:
        part = f"{'whole' if view.whole else 'turn'} of {'one' if assistants == 1 else 'two'}"
        note = _NOTES[part].replace("{count}", str(len(turns)))
        slots["question"].append(Span(_BETWEEN + note))
    sanitizer = sanitizer_for((*layout.delimiters, *_MARKERS))
    return fill(layout.messages(referenced=view.referenced), slots, sanitizer, chat=chat)


def _block(kind: SpanKind, texts: Sequence[str | None]) -> Iterator[Span]:
    """The spans of a slot: the text of each turn that has one, under labels where there are several turns."""
    between = ""
    for turn, text in enumerate(texts, 1):
        if text is None:
            continue
        if len(texts) > 1:
            yield Span(between + _LABEL.replace("{n}", str(turn)))
        yield Span(text, kind)
        between = _BETWEEN


@cache
def _grading_layout(scale: tuple[float, float], *, chat: bool) -> Layout:
    """A plain grade's prompt as a layout, which can show a reference too."""
    given = grading_family(scale).texts["chat" if chat else "plain"]
    role: Role | None = "user" if chat else None
    referenced = given.text.replace("{question}\n\n", "{question}\n\n[Reference Answer]\n{reference}\n\n")
    referenced = referenced.replace("Please rate", "Based on the reference answer, please rate")
    return Layout(
        plain=((role, given.text),),
        with_reference=((role, referenced),),
        delimiters=(*given.delimiters, "[Reference Answer]"),
    )


def _turns(sample: Sample, given: object) -> Iterator[DialogueTurn]:
    if given is None:
        yield DialogueTurn(question=sample.question, answers=sample.answers)
        return
    if not isinstance(given, list) or not given:
        raise _wrong(sample, "", "expected a list of one turn or more; leave it out for a single turn")
    for index, turn in enumerate(given):
        if not isinstance(turn, dict):
            raise _wrong(sample, f"[{index}]", 'expected {"question": ..., "answers": [...]}')
        question, answers, reference = turn.get("question"), turn.get("answers"), turn.get("reference")
        if not isinstance(question, str):
            raise _wrong(sample, f"[{index}].question", "expected a text")
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise _wrong(sample, f"[{index}].answers", "expected a list of texts, one for each assistant")
        if len(answers) != len(sample.answers):
            raise _wrong(
                sample, f"[{index}].answers", f"expected {len(sample.answers)}, as the sample has, got {len(answers)}"
            )
        if reference is not None and not isinstance(reference, str):
            raise _wrong(sample, f"[{index}].reference", "expected a text or null")
        blank = reference is None or not reference.strip()
        yield DialogueTurn(question=question, answers=tuple(answers), reference=None if blank else reference)


def _wrong(sample: Sample, where: str, finding: str) -> InputError:
    return InputError(f"sample {sample.id}: turns{where}: {finding}")


class PlainTurns(NamedTuple):
    """What stands between a reply and the next question of a plain template, and between that and its reply."""

    before: str
    after: str

    @property
    def markers(self) -> tuple[str, str]:
        """What begins a turn; confusables in what was said are sanitized."""
        return self.before.strip(), self.after.strip()


_PLAIN = {
    "judgelm-v1": PlainTurns("\n\n### Instruction:\n", "\n\n### Response:"),
    "judgelm-paper": PlainTurns("\n\n[Question]\n", "\n\n[Response]\n"),
    "judgelm-compact": PlainTurns("\n[Q] ", "\n[S]"),
}


def plain_turns(template: Template) -> PlainTurns:
    """The turns of a plain template.

    Raises:
        ConfigError: this one has none.
    """
    if template.id not in _PLAIN:
        there_are = ", ".join(_PLAIN)
        raise ConfigError(f"template {template.id}: no turns to follow a reply; choose one of {there_are}, or a chat's")
    return _PLAIN[template.id]


def stops(template: Template) -> tuple[str, ...]:
    """Stop strings of a reply to a follow-up question, with which a judge would begin another; a chat has none."""
    return () if template.chat else (f"\n{plain_turns(template).before.strip()}",)


def talk_sha(template: Template) -> str:
    """sha256 (hex) over the template's bytes for a pair and those between turns; a chat has none of its own."""
    return sha_of([template.sha, None if template.chat else list(plain_turns(template))])


def follow_up_prompt(template: Template, judged: Prompt, texts: Sequence[str]) -> Prompt:
    """The judge's prompt with all that was said since.

    Only the answers under judgment may be cut when it all grows too long for the window. What the judge wrote is
    treated as untrusted, since it may quote an answer.

    Args:
        template: that the judge was asked with.
        judged: what it read; the prefill of its reply is expected at the beginning of `texts`.
        texts: its reply, a question, its reply, ... and at last the question that is open: an even number.

    Raises:
        ConfigError: a plain template without turns.
        ValueError: an odd number of texts, or none.
    """
    if not texts or len(texts) % 2:
        raise ValueError(f"expected the judge's reply, then questions and replies in turn, got {len(texts)} texts")
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
