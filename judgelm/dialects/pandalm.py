"""PandaLM's prompt, also as JudgeBench sends it: `1`, `2` or `Tie` on the first line, then a reason.

The client strips the answers and takes special tokens out of them before it asks; the split gives what the prompt
holds. A JudgeBench prompt has no input.

Source: Wang et al. 2023, PandaLM; WeOpenML/PandaLM.
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import ambiguity_note, lone_text, sample_of
from judgelm.dialects.text import results_per_reply, scores_and_reason, winner_of_two

_REASON = "\n\n### Reason: "
_RESPONSES = "\n\n### Response 1:\n{first}\n\n### Response 2:\n{second}\n\n### Evaluation:"
_INTRODUCTION = "Below are two responses for a given task. The task is defined by the Instruction"
_REQUEST = ". Evaluate the responses and generate a reference answer for the task.\n\n### Instruction:\n{question}"
_WITHOUT_INPUT = Pattern(_INTRODUCTION + _REQUEST + _RESPONSES)
_WITH_INPUT = Pattern(
    _INTRODUCTION + " with an Input that provides further context" + _REQUEST + "\n\n### Input:\n{input}" + _RESPONSES
)


def _recognise(asked: ChatRequest) -> JudgeTask | None:
    text = lone_text(asked)
    if text is None:
        return None
    prompt = text.rstrip("\n")  # how many line ends the template ends in, clients differ
    found = _WITHOUT_INPUT.split(prompt) or _WITH_INPUT.split(prompt)
    if found is None:
        return None
    values = found.values
    return JudgeTask(
        dialect="pandalm",
        task="pair",
        sample=sample_of(values["question"], (values["first"], values["second"]), input=values.get("input")),
        doubt=ambiguity_note(found),
    )


def _render(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    texts = []
    for one in results_per_reply(asked, finding):
        verdict = "Tie" if one.winner == "tie" else str(winner_of_two(case, one))
        words = scores_and_reason(
            one, None if asked.max_tokens is None else max(0, asked.max_tokens - len(_REASON) - 3)
        )
        texts.append(f"{verdict}{_REASON}{words}" if words else verdict)
    return Reply(texts=tuple(texts))


DIALECTS: tuple[Dialect, ...] = (Dialect(name="pandalm", recognise=_recognise, render=_render),)
