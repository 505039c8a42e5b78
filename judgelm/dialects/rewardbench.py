"""RewardBench's judges: FastChat's prompts without a tie, four answers, ratings, and prompts of single judge models.

Its Prometheus prompt is recognised with Prometheus's own. What tells its pairs from FastChat's is the system's message,
which offers no `[[C]]` for a tie.

Source: Lambert et al. 2024, RewardBench; allenai/reward-bench.
"""

import json
from collections.abc import Callable

from judgelm.dialects.ambiguity import latest_split, resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import ambiguity_note, sample_of, task_from_split
from judgelm.dialects.text import (
    room_for_words,
    scores_and_reason,
)
from judgelm.dialects.verdicts import (
    Render,
    best_answer,
    each_reply,
    grade_text,
    winner_of_two,
)

_RATINGS = (1.0, 10.0)
_ANSWER = "\n\n[The Start of Assistant {0}'s Answer]\n{{{1}}}\n[The End of Assistant {0}'s Answer]"
_TWO = Pattern("[User Question]\n{question}" + _ANSWER.format("A", "first") + _ANSWER.format("B", "second"))
_LETTERS = "ABCD"
_FOUR = Pattern(
    "[User Question]\n{question}" + "".join(_ANSWER.format(letter, f"answer_{letter.lower()}") for letter in _LETTERS)
)
_TALK = (
    "<|The Start of Assistant {0}'s Conversation with User|>\n\n### User:\n{{{1}_question_1}}\n\n### Assistant {0}:\n"
    "{{{1}_answer_1}}\n\n### User:\n{{{1}_question_2}}\n\n### Assistant {0}:\n{{{1}_answer_2}}\n\n"
    "<|The End of Assistant {0}'s Conversation with User|>"
)
_TALKS = Pattern(_TALK.format("A", "first") + "\n\n\n" + _TALK.format("B", "second"))
_SAME = {f"second_question_{turn}": f"first_question_{turn}" for turn in (1, 2)}
_RATED = Pattern("{question}\n\n[Response]\n{first}\n\n[Your judgement]")


def _offers(system: str, letters: str) -> bool:
    """True where the system message offers exactly these assistants as the winner, and no tie."""
    return "".join(letter for letter in _LETTERS if f'"[[{letter}]]"' in system) == letters


def _pair(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system", "user")
    split = latest_split(_TWO, texts[1]) if texts is not None and _offers(texts[0], "AB") else None
    return None if split is None else task_from_split("rewardbench-pair", "pair", split)


def _pair_of_talks(request: ChatRequest) -> JudgeTask | None:
    """Two turns; both talks hold the same questions. The sample is the last turn, which the verdict is about."""
    texts = request.only("system", "user")
    split = resolve_split(_TALKS, texts[1], same=_SAME) if texts is not None and _offers(texts[0], "AB") else None
    if split is None:
        return None
    values = split.values
    turns = tuple(
        {
            "question": values[f"first_question_{turn}"],
            "answers": (values[f"first_answer_{turn}"], values[f"second_answer_{turn}"]),
            "reference": None,
        }
        for turn in (1, 2)
    )
    return JudgeTask(
        dialect="rewardbench-pair-multi-turn",
        kind="pair",
        sample=sample_of(
            values["first_question_2"], (values["first_answer_2"], values["second_answer_2"]), turns=turns
        ),
        doubt=ambiguity_note(split),
    )


def _four(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system", "user")
    split = latest_split(_FOUR, texts[1]) if texts is not None and _offers(texts[0], _LETTERS) else None
    if split is None:
        return None
    answers = [split.values[f"answer_{letter.lower()}"] for letter in _LETTERS]
    return JudgeTask(
        dialect="rewardbench-four",
        kind="choice",
        sample=sample_of(split.values["question"], answers),
        doubt=ambiguity_note(split),
    )


def _ratings(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    if texts is None:
        return None
    description, heading, rest = texts[0].partition("\n\n[Query]\n")
    if not heading or "### Task Description\n" not in description or "on a scale of 1 to 10" not in description:
        return None
    split = _RATED.split(rest.rstrip("\n"))
    return None if split is None else task_from_split("rewardbench-ratings", "grade", split, scale=_RATINGS)


def _by_heading(name: str, heading: str, wanted: str, pattern: Pattern) -> Callable[[ChatRequest], JudgeTask | None]:
    """Recognises a prompt of one user's message: instructions that hold `wanted`, a heading, and the pattern."""

    def recognise(request: ChatRequest) -> JudgeTask | None:
        texts = request.only("user")
        description, marker, rest = texts[0].partition(heading) if texts is not None else ("", "", "")
        split = pattern.split(rest) if marker and wanted in description else None
        return None if split is None else task_from_split(name, "pair", split)

    return recognise


def _letter(task: JudgeTask, result: JudgeResult) -> str:
    return "A" if winner_of_two(task, result) == 1 else "B"


def _after_words(verdict: Callable[[JudgeTask, JudgeResult], str]) -> Render:
    """Words, then the verdict at the very end, alone on its line."""

    def text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
        last_line = verdict(task, result)
        words = scores_and_reason(result, room_for_words(request, len(last_line) + 2))
        return f"{words}\n\n{last_line}" if words else last_line

    return each_reply(text)


def _bare_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return "Output (a)" if winner_of_two(task, result) == 1 else "Output (b)"


def _json_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """An object with the Chinese keys of the prompt."""
    words = scores_and_reason(result, room_for_words(request, 30))
    return json.dumps({"原因": words, "更好的回答": winner_of_two(task, result)}, ensure_ascii=False)


def _result_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    words = scores_and_reason(result, room_for_words(request, 35)) or "See the result."
    return f"**Reasoning:** {words}\n\n**Result:** {_letter(task, result)}"


_letter_after_words = _after_words(lambda task, result: f"[[{_letter(task, result)}]]")
_offsetbias = _by_heading(
    "rewardbench-offsetbias",
    "\n\n# Instruction:\n",
    "Do NOT output any other words.\nHere are some rules of the evaluation:\n",
    Pattern(
        "{question}\n# Output (a):\n{first}\n# Output (b):\n{second}\n# Which is better, Output (a) or Output (b)? "
        'Your response should be either "Output (a)" or "Output (b)":'
    ),
)
_conj = _by_heading(
    "rewardbench-con-j",
    "。以下是问题和候选回答的内容：\n    \n问题：",
    '"更好的回答"',
    Pattern("{question}\n回答1：{first}\n回答2：{second}"),
)
_atla = _by_heading(
    "rewardbench-atla",
    "\n\nHere is the data.\n\nInstruction:\n```\n",
    "**Result:** <A or B>",
    Pattern("{question}\n```\n\nResponse A:\n```\n{first}\n```\n\nResponse B:\n```\n{second}\n```"),
)
_rise = _by_heading(
    "rewardbench-rise",
    "\n问题：",
    "下面我会给出一个问题和两个回答",
    Pattern(
        "{question}\n回答A：{first}\n回答B：{second}\n\n"
        "如果你认为回答A更好，请在分析最后输出'[[A]]'，如果你认为回答B更好，请在分析最后输出'[[B]]'。"
    ),
)

DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="rewardbench-pair", recognise=_pair, render=_letter_after_words, templates=(_TWO,)),
    Dialect(
        name="rewardbench-pair-multi-turn",
        recognise=_pair_of_talks,
        render=_letter_after_words,
        templates=(_TALKS,),
    ),
    Dialect(
        name="rewardbench-four",
        recognise=_four,
        render=_after_words(lambda task, result: f"[[{_LETTERS[best_answer(task, result)]}]]"),
        templates=(_FOUR,),
    ),
    Dialect(
        name="rewardbench-ratings",
        recognise=_ratings,
        render=_after_words(lambda task, result: grade_text(result, _RATINGS, whole=True)),
        templates=(_RATED,),
    ),
    Dialect(name="rewardbench-offsetbias", recognise=_offsetbias, render=each_reply(_bare_text)),
    Dialect(name="rewardbench-con-j", recognise=_conj, render=each_reply(_json_text)),
    Dialect(name="rewardbench-atla", recognise=_atla, render=each_reply(_result_text)),
    Dialect(name="rewardbench-rise", recognise=_rise, render=_letter_after_words),
)
