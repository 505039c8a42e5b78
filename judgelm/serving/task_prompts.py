"""What the judge is asked about a client's case. Pure: nothing is asked here.

What stands beside the question in a client's prompt (a criterion, a context) stands in the question that the judge
reads, under headings; of a dialogue in its last turn.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.text import digest
from judgelm.records import Sample
from judgelm.serving.tasks import ModeTask

REASON_TOKENS = 256
"""Room for a reason; replies hold 600 characters of it."""

_LEAST_WORDS = 20
"""Fewer words of a reason are not worth its decoding."""

_NOT_TEXT = ("turns", "batch")
_HEADINGS = {"criterion": "Evaluation criterion"}


def mode_tasks(case: JudgeTask, *, both_orders: bool = False, explained: bool = False) -> tuple[ModeTask, ...]:
    """The questions that answer a case: none for one to prepare, one for each pair of a batch, else one.

    Args:
        case: what the client wants judged.
        both_orders: show a pair in both orders, and each of three and more answers once at each place.
        explained: have the judge give its reason.
    """
    if case.kind == "prepare":
        return ()
    samples = case.facts.get("batch", (case.sample,))
    reasons = {"reasons": "all", "reason_tokens": REASON_TOKENS} if explained else {}
    return tuple(_question(case, _shown(sample), reasons, both_orders=both_orders) for sample in samples)


def headed_question(sample: Sample) -> str:
    """The question with all that stands beside it under headings, the criterion last; those of `inputs` by their names.

    A sample with nothing beside its question has the question's bytes.
    """
    parts = [sample.question] if sample.question else []
    for name in sorted(sample.metadata, key=lambda name: name == "criterion"):
        value = sample.metadata[name]
        if name not in _NOT_TEXT:
            parts += [
                f"{_heading(one)}:\n{text}" for one, text in (value if isinstance(value, tuple) else [(name, value)])
            ]
    return "\n\n".join(parts)


def has_room_for_reason(dialect: Dialect, case: JudgeTask, asked: ChatRequest) -> bool:
    """Whether a reply would hold the judge's own words: found out by rendering one with words and looking for them.

    A made-up verdict stands in that reply, which nobody sees.
    """
    if case.kind == "prepare" or "batch" in case.facts:
        return False
    count = len(case.sample.answers)
    scores = tuple(float(5 + place) for place in range(min(count, 2))) + (5.0,) * (count - 2)
    made_up = JudgeResult(
        winner=2 if count == 2 else None,
        scores=scores,
        first_better=0.0 if count == 2 else None,
        tie=0.0 if count == 2 else None,
        grades=((5.0, 1.0),),
        correct=1.0,
        reason="zqz " * 2 * _LEAST_WORDS,
    )
    reply = dialect.render(case, replace(asked, n=1, logprobs=False), made_up)
    return "".join((*reply.texts, reply.arguments)).count("zqz") >= _LEAST_WORDS


def _question(case: JudgeTask, sample: Sample, reasons: Mapping[str, Any], *, both_orders: bool) -> ModeTask:
    if case.kind == "choice":
        orders = {"permutations": len(sample.answers)} if both_orders else {}
        return ModeTask(sample=sample, mode="multi", options={**orders, **reasons})
    options: dict[str, Any] = {"distribution": True, **reasons}
    if case.kind == "pair" and both_orders:
        options["both_orders"] = True
    if "turns" in sample.metadata:  # a client asks for each turn by itself
        return ModeTask(sample=sample, mode="conversation", options=options | {"turns": "last"})
    return ModeTask(sample=sample, mode="pair" if case.kind == "pair" else "single", options=options)


def _shown(sample: Sample) -> Sample:
    """The sample as the judge is to see it, its id made of all its texts."""
    question = headed_question(sample)
    turns = [
        {"question": turn["question"], "answers": list(turn["answers"]), "reference": turn.get("reference")}
        for turn in _turns(sample)
    ]
    if turns:
        turns[-1]["question"] = question
    texts = [question, *sample.answers, str(sample.reference), str(turns)]
    return Sample(
        id=digest("\0".join(texts))[:16],
        question=question,
        answers=sample.answers,
        reference=sample.reference,
        metadata={"turns": turns} if turns else {},
    )


def _turns(sample: Sample) -> tuple[Mapping[str, Any], ...]:
    found = sample.metadata.get("turns", ())
    assert isinstance(found, tuple | list), "dialects give turns in a row"
    return tuple(found)


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name.replace("_", " ").capitalize())
