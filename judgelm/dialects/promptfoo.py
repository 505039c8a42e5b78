"""promptfoo's model-graded assertions: llm-rubric, closed QA, factuality, G-Eval and select-best.

Criteria and rubrics are the user's. The prompts of llm-rubric and select-best show no question. The texts of
select-best are counted by their indices, as many as there are in a row.

Source: promptfoo 0.121 (captured requests and replies).
"""

import json

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply, TaskKind
from judgelm.dialects.patterns import Pattern, Split
from judgelm.dialects.probabilities import best_answer, is_fulfilled
from judgelm.dialects.recognition import ambiguity_note, sample_of
from judgelm.dialects.text import expected_grade, explanation, format_number, rescale, results_per_reply, winner_of_two

_RUBRIC_SYSTEM = Pattern(
    "You are grading output according to a user-specified rubric. If the statement in the rubric is true, then the "
    "output passes the test. You respond with a JSON object with this structure: {reason: string, "
    "pass: boolean, score: number}{examples}"
)
_RUBRIC = Pattern("<Output>\n{answer}\n</Output>\n<Rubric>\n{criterion}\n</Rubric>")

_CLOSED_QA = Pattern(
    "You are assessing a submitted answer on a given task based on a criterion. Here is the data:\n[BEGIN DATA]\n***\n"
    "[Task]: {question}\n***\n[Submission]: {answer}\n***\n[Criterion]: {criterion}\n***\n[END DATA]\n"
    'Does the submission meet the criterion? {rules} Then print only the single character "Y" or "N" (without quotes '
    "or punctuation) on its own line corresponding to the correct answer. {end}\n\n    Reasoning:"
)

_FACTUALITY_SYSTEM = Pattern(
    "You are a precise factuality evaluator that compares a submitted answer to an expert answer.{categories}\n\n"
    'Respond ONLY with a JSON object in this format:\n{\n  "category": "[LETTER]",\n  "reason": "[DETAILED EXPLANATION]'
    '"\n}\n{rules}'
)
_FACTUALITY = Pattern(
    "I need you to compare these answers:\n\n<question>\n{question}\n</question>\n\n<expert_answer>\n{reference}\n"
    "</expert_answer>\n\n<submitted_answer>\n{answer}\n</submitted_answer>\n\nPlease analyze the factual relationship "
    "between these answers according to the categories you've been given."
)

_GEVAL_STEPS = Pattern(
    "Given evaluation criteria that outline how you should judge a piece of text, generate 3-4 concise evaluation "
    "steps applicable to any text{rules}\n\n**EVALUATION CRITERIA**\n{criterion}\n\n**OUTPUT FORMAT**\nIMPORTANT:\n"
    '{format}\n\nFormat:\n{"steps": <list_of_strings>}\n\n{example}\nJSON:'
)
_STEPS = (
    "Note what the criteria ask of a reply.",
    "Check the reply against each of these points.",
    "Lower the score for every point that the reply does not meet.",
)
_GEVAL = Pattern(
    "You will be given one Reply for a Prompt below. Your task is to rate the Reply on one metric.{rules}\n\n"
    "**Evaluation Criteria**\n{criterion}\n\n**Evaluation Steps**\n{steps}\nGiven the evaluation steps, return a JSON "
    'with two keys: \n  1) a "score" key that MUST be an integer from 0 to 10, {wanted}\n\n**Prompt**\n{question}\n\n'
    "**Reply**\n{answer}\n\n**OUTPUT FORMAT**\nIMPORTANT: \n{format}\n\nExample JSON:\n{example}\nJSON:"
)

_BEST = "You are comparing multiple pieces of text to see which best fits the following criteria: {criterion}\n\n"
_BEST_TEXTS = "Here are the pieces of text:\n\n\n"
_BEST_END = "\n\n\nOutput the index of the text that best fits the criteria. You must output a single integer."

_MOST_TEXTS = 64
"""A prompt of more is not of this dialect: thousands of imitated texts must not stop a server."""


def _recognise_rubric(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("system", "user")
    if texts is None or _RUBRIC_SYSTEM.split(texts[0].strip()) is None:
        return None
    return _case("promptfoo-llm-rubric", "label", _RUBRIC.split(texts[1].strip()))


def _recognise_closed_qa(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("system")
    return _case("promptfoo-closedqa", "label", _CLOSED_QA.split(texts[0].strip())) if texts else None


def _recognise_factuality(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("system", "user")
    if texts is None or _FACTUALITY_SYSTEM.split(texts[0].strip()) is None:
        return None
    return _case("promptfoo-factuality", "label", _FACTUALITY.split(texts[1].strip()))


def _recognise_geval(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("user")
    return _case("promptfoo-g-eval", "grade", _GEVAL.split(texts[0].strip()), scale=(0, 10)) if texts else None


def _recognise_steps(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("user")
    return _case("promptfoo-g-eval-steps", "prepare", _GEVAL_STEPS.split(texts[0].strip())) if texts else None


def _recognise_best(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("system")
    if texts is None:
        return None
    text = texts[0].strip()
    most = 0
    while most <= _MOST_TEXTS and f'<Text index="{most}">\n' in text:
        most += 1
    if most > _MOST_TEXTS:
        return None
    for count in range(most, 1, -1):
        if (found := _texts_pattern(count).split(text)) is not None:
            task: TaskKind = "pair" if count == 2 else "choice"
            answers = tuple(found.values[f"text_{place}"] for place in range(count))
            return _case("promptfoo-select-best", task, found, answers=answers)
    return None


def _texts_pattern(count: int) -> Pattern:
    texts = "\n\n".join(f'<Text index="{place}">\n{{text_{place}}}\n</Text>' for place in range(count))
    return Pattern(_BEST + _BEST_TEXTS + texts + _BEST_END)


def _case(
    name: str,
    task: TaskKind,
    found: Split | None,
    *,
    answers: tuple[str, ...] = (),
    scale: tuple[float, float] | None = None,
) -> JudgeTask | None:
    if found is None:
        return None
    shown = answers or ((found.values["answer"],) if "answer" in found.values else ())
    values = found.values
    criterion = values.get("criterion")
    sample = sample_of(values.get("question", ""), shown, values.get("reference"), criterion=criterion)
    return JudgeTask(dialect=name, task=task, sample=sample, scale=scale, doubt=ambiguity_note(found))


def _render_rubric(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """`score` is the probability that the rubric is fulfilled; `pass` decides unless the user sets a threshold."""
    passes = is_fulfilled(finding)
    score = round(finding.correct, 4) if finding.correct is not None else float(passes)
    verdict = {"reason": explanation(finding), "pass": passes, "score": score}
    return Reply(texts=(json.dumps(verdict, ensure_ascii=False),) * asked.n)


def _render_closed_qa(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """The letter once, on the last line; the prompt wants it twice, the client reads the last."""
    return Reply(texts=(f"{explanation(finding)}\n{'Y' if is_fulfilled(finding) else 'N'}",) * asked.n)


def _render_factuality(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """`C` (the same details) or `D` (a disagreement): a probability of being correct says no more."""
    verdict = {"category": "C" if is_fulfilled(finding) else "D", "reason": explanation(finding)}
    return Reply(texts=(json.dumps(verdict, ensure_ascii=False),) * asked.n)


def _render_geval(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """Minified, with decimals (the client takes them); the prompt wants no score within the reason."""
    assert case.scale is not None
    texts = []
    for one in results_per_reply(asked, finding):
        reason = json.dumps(explanation(one, digits=False), ensure_ascii=False)
        texts.append(f'{{"score":{format_number(rescale(expected_grade(one), case.scale))},"reason":{reason}}}')
    return Reply(texts=tuple(texts))


def _render_steps(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    return Reply(texts=(json.dumps({"steps": list(_STEPS)}, separators=(",", ":")),) * asked.n)


def _render_best(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """The index alone; of equals the one whose hash is lowest, whatever the order shown."""
    return Reply(texts=tuple(str(_best(case, one)) for one in results_per_reply(asked, finding)))


def _best(case: JudgeTask, finding: JudgeResult) -> int:
    return winner_of_two(case, finding) - 1 if len(case.sample.answers) == 2 else best_answer(case, finding)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="promptfoo-llm-rubric", recognise=_recognise_rubric, render=_render_rubric),
    Dialect(name="promptfoo-closedqa", recognise=_recognise_closed_qa, render=_render_closed_qa),
    Dialect(name="promptfoo-factuality", recognise=_recognise_factuality, render=_render_factuality),
    Dialect(name="promptfoo-g-eval", recognise=_recognise_geval, render=_render_geval),
    Dialect(name="promptfoo-g-eval-steps", recognise=_recognise_steps, render=_render_steps),
    Dialect(name="promptfoo-select-best", recognise=_recognise_best, render=_render_best),
)
