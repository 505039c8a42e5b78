"""Prompts of JudgeBench's own judges: `vanilla`, and Skywork's critic.

Both want the bare verdict and know no tie. Skywork's parser takes any capital A in the reply for the verdict A, so not
a word may stand beside it. JudgeBench's Arena-Hard and JudgeLM are in the modules of these families.
"""

from collections.abc import Mapping
from functools import partial

from judgelm.dialects.ambiguity import Blocks, resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import ambiguity_note, sample_of
from judgelm.dialects.text import results_per_reply, winner_of_two

_VANILLA = Pattern(
    "{instruction}Do NOT output any other words.\n# Instruction:\n{question}\n# Output (a):\n{first}\n# Output (b):\n"
    "{second}\n# Which is better, Output (a) or Output (b)? Your response should be either "
    '"Output (a)" or "Output (b)":'
)
_SKYWORK = Pattern(
    "{instruction}\n\n[User Question]\n{question}\n\n[The Start of Assistant A's Answer]\n{first}\n[The End of "
    "Assistant A's Answer]\n\n[The Start of Assistant B's Answer]\n{second}\n[The End of Assistant B's Answer]"
)
_BLOCKS = tuple(
    (f"[The Start of Assistant {name}'s Answer]", f"[The End of Assistant {name}'s Answer]") for name in "AB"
)


def _vanilla(asked: ChatRequest) -> JudgeTask | None:
    """OffsetBias shows the same blocks below rules; they belong to another client."""
    case, instruction = _case("judgebench-vanilla", asked, _VANILLA)
    ours = "Output (a)" in instruction and "rules of the evaluation" not in instruction
    return case if ours else None


def _skywork(asked: ChatRequest) -> JudgeTask | None:
    """Its template ends with a line end, which JudgeBench loses."""
    case, instruction = _case("judgebench-skywork-critic", asked, _SKYWORK, _BLOCKS)
    ours = all(label in instruction for label in ("[[A]]", "[[B]]")) and "[[C]]" not in instruction
    return case if ours else None


def _case(name: str, asked: ChatRequest, pattern: Pattern, blocks: Blocks = ()) -> tuple[JudgeTask | None, str]:
    """The case, and the instruction above it."""
    texts = asked.only("user")
    split = None if texts is None else resolve_split(pattern, texts[0].removesuffix("\n"), blocks=blocks)
    if split is None:
        return None, ""
    shown = split.values
    sample = sample_of(shown["question"], (shown["first"], shown["second"]))
    return JudgeTask(dialect=name, task="pair", sample=sample, doubt=ambiguity_note(split)), shown["instruction"]


def _render(verdicts: Mapping[int, str], case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """The verdict and nothing else."""
    return Reply(texts=tuple(verdicts[winner_of_two(case, one)] for one in results_per_reply(asked, finding)))


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="judgebench-vanilla", recognise=_vanilla, render=partial(_render, {1: "Output (a)", 2: "Output (b)"})),
    Dialect(name="judgebench-skywork-critic", recognise=_skywork, render=partial(_render, {1: "[[A]]", 2: "[[B]]"})),
)
