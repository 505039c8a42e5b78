"""The judges in chat benchmarks: Vicuna's review, MT-bench, FairEval, Arena-Hard, JudgeBench, and RewardBench.

The prompts put each answer between a start and an end marker. The markers differ between benchmarks, and so does the
verdict: a score line or a label such as `[[A]]`, with or without ties.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from judgelm.dialects import replies
from judgelm.dialects.contract import (
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    Render,
    ReplyText,
    TaskKind,
    last_text,
    task_from_split,
    template_dialect,
)
from judgelm.dialects.splits import TEMPLATES, Blocks, Pattern, TemplateSplit, latest_split, resolve_split

_SCALE = (1.0, 10.0)
_INSTRUCTED = last_text("system", "user")


def _blocks(start: str, end: str, names: Sequence[str]) -> Blocks:
    return tuple((start.format(name), end.format(name)) for name in names)


def _offers(instruction: str, *labels: str) -> bool:
    return all(label in instruction for label in labels)


def _system_offers(labels: Sequence[str], request: ChatRequest) -> bool:
    return _offers(request.messages[0].text, *labels)


# Vicuna's review and its variants. `vicuna-review` is FastChat's first GPT-4 review (for general, coding, and
# mathematical questions). `alpaca-eval-lmsys` is the copy in alpaca_eval, whose parser fails on equal scores. `judgelm`
# is JudgeLM's plain prompt, with or without a reference; JudgeBench sends it with different line breaks. FairEval asks
# for evidence first, then for the scores on the last two lines. A score line has two scores separated by a space.
_JUDGELM = TEMPLATES["judgelm"]
_REVIEW_BLOCKS = _blocks("[The Start of Assistant {}'s Answer]", "[The End of Assistant {}'s Answer]", "12")
_REFERENCE_HEADING = "\n\n[Reference Answer]\n"
_SCORE_LINE = re.compile(r"single\s+line\s+containing|Python\s+tuple\s+containing")
_SCORES = re.compile(r"\bscores?\b", re.IGNORECASE)
_LAST_LINES = re.compile(r"Score of the Assistant 1:[^\n]*\n[ \t]*Score of the Assistant 2:[^\n]*\s*\Z")

_split_review = partial(resolve_split, blocks=_REVIEW_BLOCKS)


def _wants_score_line(request: ChatRequest, split: TemplateSplit) -> bool:
    instruction = split.values["instruction"]
    return bool(_SCORE_LINE.search(instruction) and _SCORES.search(instruction))


def _review_of(request: ChatRequest, *, first_client: bool) -> str | None:
    text = _INSTRUCTED(request)
    return text if text is not None and text.endswith("\n\n") == first_client else None


def _recognise_judgelm(name: str, request: ChatRequest) -> JudgeTask | None:
    texts = request.only("prompt") or request.only("user")
    split = None if texts is None else _split_review(_JUDGELM, texts[0])
    if split is None or not _wants_score_line(request, split):
        return None
    question, block, reference = split.values["question"].partition(_REFERENCE_HEADING)
    if (name == "judgelm-reference") != bool(block):
        return None
    shown = {"question": question} | ({"reference": reference} if block else {})
    task = task_from_split(name, "pair", replace(split, values={**split.values, **shown}))
    if _REFERENCE_HEADING in reference and not task.doubt:
        return replace(task, doubt="the question or the reference contains the heading for references")
    return task


def _scored(ties: bool, task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    words = f"{replies.winner_sentence(task, result, ties=ties)} {replies.safe_reason(result.reason)}".strip()
    scores = " ".join(replies.consistent_scores(task, result, ties=ties))
    return replies.words_and_verdict(request, words, scores, "{verdict}\n{words}")


def _fair_scores(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Do not end with a line break, which the client's parser would reject."""
    first, second = replies.consistent_scores(task, result)
    words = f"{replies.winner_sentence(task, result)} {replies.safe_reason(result.reason)}".strip()
    scores = f"Score of the Assistant 1: {first}\nScore of the Assistant 2: {second}"
    return replies.words_and_verdict(request, words, scores, "Evaluation evidence: {words}\n{verdict}")


_REVIEWS = (
    template_dialect(
        "faireval",
        "pair",
        text=_INSTRUCTED,
        split=_split_review,
        accepts=lambda request, split: bool(_LAST_LINES.search(split.values["instruction"])),
        render=replies.each_reply(_fair_scores),
    ),
    *(
        template_dialect(
            name,
            "pair",
            TEMPLATES["vicuna-review"],
            text=partial(_review_of, first_client=first_client),
            split=_split_review,
            accepts=_wants_score_line,
            render=replies.each_reply(partial(_scored, first_client)),  # only vicuna-review supports ties
        )
        for name, first_client in (("vicuna-review", True), ("alpaca-eval-lmsys", False))
    ),
    *(
        Dialect(
            name=name,
            recognise=partial(_recognise_judgelm, name),
            render=replies.each_reply(partial(_scored, True)),
            templates=(_JUDGELM,),
        )
        for name in ("judgelm", "judgelm-reference")
    ),
)

# FastChat's MT-bench judge: pairs and single answers, with or without a reference, with one or two turns. For pairs,
# the system message asks for `[[A]]`, `[[B]]`, or `[[C]]` (a tie). For single answers, the instruction asks for
# `[[rating]]`. Dialogues repeat the user's turns for each assistant and for the reference, so we can detect questions
# that imitate a turn.
_PAIR_LABELS = ("[[A]]", "[[B]]", "[[C]]")
_GRADE_LABEL = "[[rating]]"
_MENTIONS_REFERENCE = "reference answer"

_ANSWER = "[The Start of Assistant {0}'s Answer]\n{{{1}}}\n[The End of Assistant {0}'s Answer]"
_PAIR = {False: TEMPLATES["fastchat-pair"], True: TEMPLATES["fastchat-pair-math"]}

_SINGLE = {False: TEMPLATES["fastchat-single"], True: TEMPLATES["fastchat-single-math"]}
_MT_BLOCKS = _blocks(
    "[The Start of {} Answer]", "[The End of {} Answer]", ("Reference", "Assistant's", "Assistant A's", "Assistant B's")
)


def _dialogue(slot: str, block: str, speaker: str) -> str:
    turns = "".join(
        f"### User:\n{{{slot}_question_{turn}}}\n\n### {speaker}:\n{{{slot}_{turn}}}\n\n" for turn in (1, 2)
    )
    return f"<|The Start of {block}|>\n\n{turns}<|The End of {block}|>"


_DIALOGUES = {
    "reference": _dialogue("reference", "Reference Answer", "Reference answer"),
    "first": _dialogue("first", "Assistant A's Conversation with User", "Assistant A"),
    "second": _dialogue("second", "Assistant B's Conversation with User", "Assistant B"),
}


def _dialogues_dialect(name: str, *slots: str, accepts: Callable[[ChatRequest], bool], render: Render) -> Dialect:
    template = Pattern("\n\n\n".join(_DIALOGUES[slot] for slot in slots))
    same = {f"{slot}_question_{turn}": f"{slots[0]}_question_{turn}" for slot in slots[1:] for turn in (1, 2)}
    answers = [slot for slot in slots if slot != "reference"]

    def recognise(request: ChatRequest) -> JudgeTask | None:
        texts = request.only("system", "user")
        split = resolve_split(template, texts[1], same=same) if texts is not None and accepts(request) else None
        if split is None:
            return None
        values = split.values
        turns = [
            {
                "question": values[f"first_question_{turn}"],
                "answers": [values[f"{slot}_{turn}"] for slot in answers],
                "reference": values.get(f"reference_{turn}"),
            }
            for turn in (1, 2)
        ]
        last = {"question": values["first_question_2"]} | {slot: values[f"{slot}_2"] for slot in slots}
        kind: TaskKind = "pair" if len(answers) == 2 else "grade"
        scale = _SCALE if kind == "grade" else None
        return task_from_split(name, kind, replace(split, values=last), scale=scale, turns=turns)

    return Dialect(name=name, recognise=recognise, render=render, templates=(template,))


def _turn_dialect(
    name: str, patterns: Mapping[bool, Pattern], *, referenced: bool, labels: tuple[str, ...], render: Render
) -> Dialect:
    def recognise(request: ChatRequest) -> JudgeTask | None:
        texts = request.only("system", "user")
        if texts is None:
            return None
        split = resolve_split(patterns[True], texts[1], blocks=_MT_BLOCKS)
        mentions = split is not None and _MENTIONS_REFERENCE in split.values.get("instruction", texts[0]).lower()
        if mentions != referenced:
            return None
        if not referenced:
            split = resolve_split(patterns[False], texts[1], blocks=_MT_BLOCKS)
        if split is None or not _offers(split.values.get("instruction", texts[0]), *labels):
            return None
        kind: TaskKind = "pair" if "second" in split.values else "grade"
        scale = _SCALE if kind == "grade" else None
        return task_from_split(name, kind, split, scale=scale)

    return Dialect(name=name, recognise=recognise, render=render, templates=(patterns[referenced],))


def _label(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    labels = {1: "[[A]]", 2: "[[B]]", "tie": "[[C]]"}
    return replies.words_and_verdict(
        request, replies.scores_and_reason(result, None), labels[replies.winner_with_ties(task, result)]
    )


def _rating(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    rating = f"[[{replies.grade_text(result, _SCALE)}]]"
    return replies.words_and_verdict(
        request, replies.scores_and_reason(result, None), rating, "{words}\n\nRating: {verdict}"
    )


def _mt_bench_dialects(referenced: bool) -> tuple[Dialect, ...]:
    math = "-math" if referenced else ""
    slots: tuple[str, ...] = ("reference",) if referenced else ()
    pair, single = replies.each_reply(_label), replies.each_reply(_rating)
    offers_pair, offers_grade = partial(_system_offers, _PAIR_LABELS), partial(_system_offers, (_GRADE_LABEL,))
    return (
        _turn_dialect(f"fastchat-pair{math}", _PAIR, referenced=referenced, labels=_PAIR_LABELS, render=pair),
        _dialogues_dialect(f"fastchat-pair{math}-mt", *slots, "first", "second", accepts=offers_pair, render=pair),
        _turn_dialect(f"fastchat-single{math}", _SINGLE, referenced=referenced, labels=(_GRADE_LABEL,), render=single),
        _dialogues_dialect(f"fastchat-single{math}-mt", *slots, "first", accepts=offers_grade, render=single),
    )


# Arena-Hard's prompts: version 0.1 and its retry, version 2, and JudgeBench's copies with and without ties. The system
# message lists labels such as `[[A>>B]]`. All parsers accept a reply with exactly one label. If there is no label,
# version 0.1 retries and parses both replies together.
_ARENA = TEMPLATES["arena-hard"]
_ARENA_BLOCKS = _blocks("<|The Start of Assistant {}'s Answer|>", "<|The End of Assistant {}'s Answer|>", "AB")
_ARENA_LABEL = re.compile(r"\[\[([AB]>{1,2}[AB]|A=B)\]\]")
_ARENA_AGAIN = "continue your judgment and finish by outputting a final verdict label"
_MUCH_BETTER = 3.0  # minimum difference between the expected scores for `>>`


def _recognise_arena(request: ChatRequest) -> JudgeTask | None:
    texts = [message.text for message in request.messages]
    if request.roles != ("system", "user", *("assistant", "user") * (len(texts) // 2 - 1)):
        return None
    labels = tuple(dict.fromkeys(_ARENA_LABEL.findall(texts[0])))
    if any(text != _ARENA_AGAIN for text in texts[3::2]) or not {"A>B", "B>A"} <= set(labels):
        return None
    split = resolve_split(_ARENA, texts[1], blocks=_ARENA_BLOCKS)
    return None if split is None else task_from_split("arena-hard", "pair", split, facts={"labels": labels})


def _arena_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    words, label = replies.scores_and_reason(result, None), f"[[{_arena_label(task, result)}]]"
    return replies.words_and_verdict(request, words, label, "{words}\n\nMy final verdict is: {verdict}")


def _arena_label(task: JudgeTask, result: JudgeResult) -> str:
    labels = task.facts["labels"]
    if result.winner == "tie" and "A=B" in labels:
        return "A=B"
    winner = replies.winner_of_two(task, result)
    lead = (result.scores[0] - result.scores[1]) * (1 if winner == 1 else -1) if len(result.scores) == 2 else 0.0
    much, little = ("A>>B", "A>B") if winner == 1 else ("B>>A", "B>A")
    return much if much in labels and lead >= _MUCH_BETTER else little


# JudgeBench's `vanilla` and Skywork critic judges expect only a verdict, without ties. Skywork's parser treats any
# capital A in the reply as the verdict A. OffsetBias uses RewardBench's prompt, with rules before the `vanilla`
# blocks.
_AB_BLOCKS = _blocks("[The Start of Assistant {}'s Answer]", "[The End of Assistant {}'s Answer]", "AB")


def _judgebench_dialect(
    name: str, *verdicts: str, blocks: Blocks = (), offers: tuple[str, ...], excludes: str
) -> Dialect:
    """Create a dialect whose instruction lists the labels. JudgeBench drops the last line break of the template."""

    def accepts(request: ChatRequest, split: TemplateSplit) -> bool:
        instruction = split.values["instruction"]
        return _offers(instruction, *offers) and excludes not in instruction

    return template_dialect(
        name,
        "pair",
        text=last_text("user", strip=lambda text: text.removesuffix("\n")),
        split=partial(resolve_split, blocks=blocks),
        accepts=accepts,
        render=replies.each_reply(replies.winner_name(*verdicts)),
    )


_JUDGEBENCH = (
    _judgebench_dialect(
        "judgebench-vanilla", "Output (a)", "Output (b)", offers=("Output (a)",), excludes="rules of the evaluation"
    ),
    _judgebench_dialect(
        "judgebench-skywork-critic", "[[A]]", "[[B]]", blocks=_AB_BLOCKS, offers=("[[A]]", "[[B]]"), excludes="[[C]]"
    ),
)

# RewardBench's judges (Lambert et al. 2024; allenai/reward-bench): FastChat's prompts without ties, prompts with four
# answers, prompts for ratings, and prompts for judge models. Unlike in FastChat, the system message for pairs
# does not offer `[[C]]` for a tie. The Prometheus prompt is in `judge_models`.
_LETTERS = "ABCD"
_FOUR = Pattern(
    "[User Question]\n{question}"
    + "".join("\n\n" + _ANSWER.format(letter, f"answer_{letter.lower()}") for letter in _LETTERS)
)


def _winners_offered(request: ChatRequest) -> str:
    return "".join(letter for letter in _LETTERS if f'"[[{letter}]]"' in request.messages[0].text)


def _offers_two(request: ChatRequest) -> bool:
    return _winners_offered(request) == "AB"


def _recognise_four(request: ChatRequest) -> JudgeTask | None:
    text = _INSTRUCTED(request)
    split = latest_split(_FOUR, text) if text is not None and _winners_offered(request) == _LETTERS else None
    return None if split is None else task_from_split("rewardbench-four", "choice", split, answers=_FOUR.slots[1:])


def _after_heading(heading: str, *wanted: str) -> Callable[[ChatRequest], str | None]:
    def text(request: ChatRequest) -> str | None:
        description, marker, rest = (request.only("user") or ("",))[0].partition(heading)
        return rest if marker and _offers(description, *wanted) else None

    return text


def _last_line(verdict: Callable[[JudgeTask, JudgeResult], str]) -> ReplyText:
    return lambda task, request, result: replies.reason_and_verdict(request, result, verdict(task, result))


_letter = replies.winner_name("A", "B")
_letter_last = _last_line(lambda task, result: f"[[{'A' if replies.winner_of_two(task, result) == 1 else 'B'}]]")
_pair_reply = replies.each_reply(_letter_last)
_rated_text = _after_heading("\n\n[Query]\n", "### Task Description\n", "on a scale of 1 to 10")


def _con_j_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Render a verdict with Chinese keys; 30 characters are reserved for everything except the reason."""
    words = replies.scores_and_reason(result, replies.room_for_words(request, 30))
    return json.dumps({"原因": words, "更好的回答": replies.winner_of_two(task, result)}, ensure_ascii=False)


def _atla_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    layout = "**Reasoning:** {words}\n\n**Result:** {verdict}"
    verdict = _letter(task, request, result)
    return replies.reason_and_verdict(request, result, verdict, layout, otherwise="See the result.", taken=35)


_JUDGE_MODELS = (
    (
        "rewardbench-offsetbias",
        "\n\n# Instruction:\n",
        "Do NOT output any other words.\nHere are some rules of the evaluation:\n",
        replies.winner_name("Output (a)", "Output (b)"),
    ),
    ("rewardbench-con-j", "。以下是问题和候选回答的内容：\n    \n问题：", '"更好的回答"', _con_j_text),
    ("rewardbench-atla", "\n\nHere is the data.\n\nInstruction:\n```\n", "**Result:** <A or B>", _atla_text),
    ("rewardbench-rise", "\n问题：", "下面我会给出一个问题和两个回答", _letter_last),
)

_REWARDBENCH = (
    template_dialect(
        "rewardbench-pair",
        "pair",
        text=_INSTRUCTED,
        split=latest_split,
        accepts=lambda request, split: _offers_two(request),
        render=_pair_reply,
    ),
    _dialogues_dialect("rewardbench-pair-multi-turn", "first", "second", accepts=_offers_two, render=_pair_reply),
    Dialect(
        name="rewardbench-four",
        recognise=_recognise_four,
        templates=(_FOUR,),
        render=replies.each_reply(
            _last_line(lambda task, result: f"[[{_LETTERS[replies.best_answer(task, result)]}]]")
        ),
    ),
    template_dialect(
        "rewardbench-ratings",
        "grade",
        scale=_SCALE,
        text=lambda request: None if (text := _rated_text(request)) is None else text.rstrip("\n"),
        render=replies.each_reply(_last_line(lambda task, result: replies.grade_text(result, _SCALE, whole=True))),
    ),
    *(
        template_dialect(name, "pair", text=_after_heading(heading, wanted), render=replies.each_reply(text))
        for name, heading, wanted, text in _JUDGE_MODELS
    ),
)

DIALECTS: tuple[Dialect, ...] = (
    *_REVIEWS,
    *_mt_bench_dialects(False),
    *_mt_bench_dialects(True),
    Dialect(name="arena-hard", recognise=_recognise_arena, render=replies.each_reply(_arena_text), templates=(_ARENA,)),
    *_JUDGEBENCH,
    *_REWARDBENCH,
)
