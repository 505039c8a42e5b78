"""Prompts of JudgeBench's own judges: `vanilla`, and Skywork's critic.

Both want the bare verdict and know no tie. Skywork's parser takes any capital A in the reply for the verdict A, so not
a word may stand beside it. JudgeBench's Arena-Hard and JudgeLM are in the modules of these families.
"""

from judgelm.dialects.ambiguity import Blocks, resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.verdicts import Render, each_reply, winner_of_two

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


def _vanilla(request: ChatRequest) -> JudgeTask | None:
    """OffsetBias shows the same blocks below rules; they belong to another client."""
    task, instruction = _task("judgebench-vanilla", request, _VANILLA)
    ours = "Output (a)" in instruction and "rules of the evaluation" not in instruction
    return task if ours else None


def _skywork(request: ChatRequest) -> JudgeTask | None:
    """Its template ends with a line end, which JudgeBench loses."""
    task, instruction = _task("judgebench-skywork-critic", request, _SKYWORK, _BLOCKS)
    ours = all(label in instruction for label in ("[[A]]", "[[B]]")) and "[[C]]" not in instruction
    return task if ours else None


def _task(name: str, request: ChatRequest, pattern: Pattern, blocks: Blocks = ()) -> tuple[JudgeTask | None, str]:
    """The task, and the instruction above it."""
    texts = request.only("user")
    split = None if texts is None else resolve_split(pattern, texts[0].removesuffix("\n"), blocks=blocks)
    if split is None:
        return None, ""
    return task_from_split(name, "pair", split), split.values["instruction"]


def _verdict(first: str, second: str) -> Render:
    """The verdict and nothing else."""
    return each_reply(lambda task, request, result: first if winner_of_two(task, result) == 1 else second)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="judgebench-vanilla",
        recognise=_vanilla,
        render=_verdict("Output (a)", "Output (b)"),
        templates=(_VANILLA,),
    ),
    Dialect(
        name="judgebench-skywork-critic", recognise=_skywork, render=_verdict("[[A]]", "[[B]]"), templates=(_SKYWORK,)
    ),
)
