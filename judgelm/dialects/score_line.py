"""Prompts of Vicuna's review and what came out of it: the reply opens with a line of two scores.

`vicuna-review` is FastChat's first GPT-4 review (for general, coding and mathematical questions), `alpaca-eval-lmsys`
is alpaca_eval's copy, which stops at equal scores, and `judgelm` is JudgeLM's plain prompt, with or without a
reference, which JudgeBench sends with other line ends. A score line has one space, nothing before and nothing behind.
"""

import re
from functools import partial

from judgelm.dialects.ambiguity import resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern, Split
from judgelm.dialects.recognition import ambiguity_note, sample_of, task_from_split
from judgelm.dialects.text import safe_reason, words_and_verdict
from judgelm.dialects.verdicts import consistent_scores, each_reply, winner_sentence

_BLOCKS_SHOWN = (
    "[Question]\n{question}\n\n[The Start of Assistant 1's Answer]\n{first}\n\n[The End of Assistant 1's Answer]\n\n"
    "[The Start of Assistant 2's Answer]\n{second}\n\n[The End of Assistant 2's Answer]\n\n[System]\n{instruction}"
)
_REVIEW = Pattern(_BLOCKS_SHOWN)
_JUDGELM = Pattern(
    f"You are a helpful and precise assistant for checking the quality of the answer.\n{_BLOCKS_SHOWN}\n\n### Response:"
)
_BLOCKS = tuple((f"[The Start of Assistant {n}'s Answer]", f"[The End of Assistant {n}'s Answer]") for n in "12")
_REFERENCE = "\n\n[Reference Answer]\n"
_SCORE_LINE = re.compile(r"single\s+line\s+containing|Python\s+tuple\s+containing")
_SCORES = re.compile(r"\bscores?\b", re.IGNORECASE)


def _review(name: str, request: ChatRequest) -> JudgeTask | None:
    """A chat of either client; only the first one's template ends with a blank line."""
    texts = request.only("system", "user")
    if texts is None:
        return None
    own = "vicuna-review" if texts[1].endswith("\n\n") else "alpaca-eval-lmsys"
    split = resolve_split(_REVIEW, texts[1], blocks=_BLOCKS)
    if own != name or split is None or not _wants_score_line(split):
        return None
    return task_from_split(name, "pair", split)


def _judgelm(name: str, request: ChatRequest) -> JudgeTask | None:
    """A plain prompt; a reference is what stands in its block before the first answer's."""
    texts = request.only("prompt") or request.only("user")
    split = None if texts is None else resolve_split(_JUDGELM, texts[0], blocks=_BLOCKS)
    if split is None or not _wants_score_line(split):
        return None
    shown = split.values
    question, block, reference = shown["question"].partition(_REFERENCE)
    if (name == "judgelm-reference") != bool(block):
        return None
    unsure = ambiguity_note(split) or (
        "the question or the reference holds a reference's heading" if _REFERENCE in reference else ""
    )
    return JudgeTask(
        dialect=name,
        kind="pair",
        sample=sample_of(question, (shown["first"], shown["second"]), reference if block else None),
        doubt=unsure,
    )


def _wants_score_line(split: Split) -> bool:
    instruction = split.values["instruction"]
    return bool(_SCORE_LINE.search(instruction) and _SCORES.search(instruction))


def _dialect(name: str, *, plain: bool = False, ties: bool = True) -> Dialect:
    def text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
        """The score line, and words from the second line on."""
        words = f"{winner_sentence(task, result, ties=ties)} {safe_reason(result.reason)}".strip()
        scores = " ".join(consistent_scores(task, result, ties=ties))
        return words_and_verdict(request, words, scores, "{verdict}\n{words}")

    recognise = partial(_judgelm if plain else _review, name)
    return Dialect(name=name, recognise=recognise, render=each_reply(text), templates=(_JUDGELM if plain else _REVIEW,))


DIALECTS: tuple[Dialect, ...] = (
    _dialect("vicuna-review"),
    _dialect("alpaca-eval-lmsys", ties=False),
    _dialect("judgelm", plain=True),
    _dialect("judgelm-reference", plain=True),
)
