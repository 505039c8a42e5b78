"""AlpacaEval's annotators and LLMBar's strategies: rankings, calls, tokens, batches and preparations."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, JudgeTask, Tool, sample_of
from tests.dialects.client_parsers import alpaca_function, alpaca_identifier, alpaca_ranking, as_choice
from tests.support.captures import changed, chat, dialects, recognised, requests

RANKING, FUNCTION, IDENTIFIER, LETTER = dialects(
    "alpaca-eval-ranking", "alpaca-eval-function", "alpaca-eval-identifier", "alpaca-eval-letter"
)
REASON = "[{'model': 'model_1', 'rank': 9}] \"m\" M m Output (b)\nOutput (a)"
FIRST = JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON)
PAIRS = [
    (FIRST, 1),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason=REASON), 2),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6), 1),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.4), 2),
]


def offered(*names, explains=False):
    """Functions that take a ranking."""
    properties = {"ordered_models": {}} | ({"concise_explanation": {}} if explains else {})
    return tuple(Tool(name=name, parameters={"properties": properties}) for name in names)


def rendered(dialect, result, *, explanation=False, **options):
    task = JudgeTask(
        dialect=dialect.name, kind="pair", sample=sample_of("q", ("a", "b")), facts={"explanation": explanation}
    )
    return dialect.render(task, ChatRequest(messages=(), **options), result)


@pytest.mark.parametrize(("result", "winner"), PAIRS)
def test_a_ranking_says_who_won(result, winner):
    [text] = rendered(RANKING, result, max_tokens=100).texts
    assert text == f"[{{'model': 'model_1', 'rank': {winner}}}, {{'model': 'model_2', 'rank': {3 - winner}}}]"
    assert alpaca_ranking(text) == winner
    reply = rendered(RANKING, result, tools=offered("make_leaderboard"), max_tokens=100)  # JSON alone is read then
    assert (reply.tool, reply.texts) == ("make_leaderboard", ())
    ranks = {row["model"]: row["rank"] for row in json.loads(reply.arguments)["ordered_models"]}
    assert ranks == {"model_1": winner, "model_2": 3 - winner}


@pytest.mark.parametrize(("result", "winner"), PAIRS)
@pytest.mark.parametrize("explains", [True, False])
def test_a_function_is_called_with_the_ranks(result, winner, explains):
    tools = (Tool(name="other"), *offered("make_partial_leaderboard", explains=explains))
    reply = rendered(FUNCTION, result, tools=tools, forced_tool="make_partial_leaderboard", max_tokens=300)
    assert (reply.tool, reply.texts) == ("make_partial_leaderboard", ())
    assert list(json.loads(reply.arguments)) == [*(["concise_explanation"] if explains else []), "ordered_models"]
    assert alpaca_function(as_choice(reply)) == alpaca_function(as_choice(rendered(FUNCTION, result))) == winner


def test_an_explanation_in_a_call_is_cut_to_the_room_that_there_is():
    result = JudgeResult(winner=1, scores=(8.0, 6.0), reason="Short words.")
    whole = "Scores: 8 and 6 out of 10. Short words."
    ranks = json.dumps({"ordered_models": [{"model": "m", "rank": 1}, {"model": "M", "rank": 2}]})
    room = len(ranks) + 30 + len(whole)  # 30 characters are left to the field
    for max_tokens, explanation in ((None, whole), (room, whole), (room - 1, whole[:-1]), (1, "")):
        reply = rendered(FUNCTION, result, tools=offered("f", explains=True), max_tokens=max_tokens)
        assert json.loads(reply.arguments)["concise_explanation"] == explanation


def test_of_two_fitting_functions_the_forced_one_is_called():
    for forced, called in (("one", "one"), ("two", "two"), (None, "one")):
        assert rendered(FUNCTION, FIRST, tools=offered("one", "two"), forced_tool=forced).tool == called


@given(chance=st.floats(0, 1), explains=st.booleans())
@pytest.mark.parametrize(("dialect", "names"), [(IDENTIFIER, "mM"), (LETTER, "AB")], ids=["identifier", "letter"])
def test_a_token_carries_the_probability(dialect, names, chance, explains):
    result = JudgeResult(winner="tie", scores=(7.1, 6.9), first_better=chance, reason="I am m. A, B, or M?")
    options = {"logprobs": True, "top_logprobs": 5, "max_tokens": 300 if explains else 1}
    reply = rendered(dialect, result, explanation=explains, **options)
    [text] = reply.texts
    read = alpaca_identifier(as_choice(reply), weighted=True, last=explains, names=names)
    assert read == pytest.approx(2 - chance, abs=1e-9)
    verdict = reply.logprobs[-1]
    assert "".join(token.token for token in reply.logprobs) == text
    assert re.findall(rf"\b[{names}]\b", text) == [verdict.token]
    assert verdict.logprob == max(logprob for _, logprob in verdict.candidates)
    assert (len(text) > 1) is explains


@pytest.mark.parametrize(
    ("reason", "room", "text"),
    [
        ("Short.", None, "Scores: 8 and 6 out of 10. Short.\nm"),
        ("x" * 99, 60, f"Scores: 8 and 6 out of 10. {'x' * 31}\nm"),  # a line end and the identifier are left room
        ("Short.", 59, "m"),  # fewer than 60 tokens are not spent on an explanation
        ("So m it is.", None, "Scores: 8 and 6 out of 10.\nm"),  # the judge's words name an identifier
        ("Not M.", None, "Scores: 8 and 6 out of 10.\nm"),
    ],
)
def test_an_explanation_stands_above_the_identifier_where_there_is_room(reason, room, text):
    result = JudgeResult(winner=1, scores=(8.0, 6.0), reason=reason)
    assert rendered(IDENTIFIER, result, explanation=True, max_tokens=room).texts == (text,)
    assert rendered(IDENTIFIER, result, max_tokens=room).texts == ("m",)
    assert rendered(IDENTIFIER, JudgeResult(winner=1), explanation=True).texts == ("m",)  # there is nothing to say


def test_the_winner_is_said_unless_the_client_reads_probabilities():
    result = JudgeResult(winner=1, first_better=0.4, draws=((8.0, 6.0), (8.0, 6.0)))
    assert rendered(IDENTIFIER, result, top_logprobs=2).texts == ("m",)
    assert rendered(IDENTIFIER, result, top_logprobs=2, logprobs=True).texts == ("M",)  # the likelier one
    assert rendered(IDENTIFIER, result, top_logprobs=2, logprobs=True, n=2).texts == ("m", "m")  # drawn
    reply = rendered(IDENTIFIER, FIRST, explanation=True, logprobs=True, top_logprobs=1, max_tokens=1)
    assert [token.candidates for token in reply.logprobs] == [(("m", math.log(0.9)),)]


def test_the_instructions_behind_the_outputs_say_whether_an_explanation_is_wanted(shared_data, refilled):
    for cot in ("", "cot_"):
        for _, request in requests(shared_data, f"alpaca_eval__weighted_alpaca_eval_{cot}gpt4_turbo"):
            [(_, task)] = recognised(request)
            assert task.facts["explanation"] is bool(cot)
    outputs = ["An explanation.", "An explanation. " * 3]
    ended = [outputs[0], 'x"""\n    }\n}\n\nAn explanation.']  # as if the outputs ended here
    for answers, doubt in ((outputs, ""), (ended, AMBIGUOUS)):
        [(_, task)] = recognised(refilled("alpaca_eval__weighted_alpaca_eval_gpt4_turbo", answers=answers))
        assert (task.facts, task.doubt) == ({"explanation": False}, doubt)


# AlpacaEval's batches


def batch_of(*examples, first=1):
    shown = "".join(
        f"\n\n## Example {number}\n\n### Instruction {number}:\n{question}\n\n"
        f"### Output (a) for example {number}:\n{a}\n\n### Output (b) for example {number}:\n{b}"
        for number, (question, a, b) in enumerate(examples, first)
    )
    last = first + len(examples) - 1
    ending = f"\n\n## Preferred Output for example {first}-{last}:\nNow say which."
    return chat(f"Some guidelines.\n## Annotation starts below\n{shown}{ending}")


def test_a_batch_is_the_task_that_it_shows():
    first, second = sample_of("q", ("a", "b")), sample_of("r", ("c", "d"))
    turns = tuple({"question": each.question, "answers": each.answers, "reference": None} for each in (first, second))
    of_two = sample_of("q", ("a", "b"), batch=turns)
    for request, sample, batch in (
        (batch_of(("q", "a", "b"), ("r", "c", "d"), first=3), of_two, (first, second)),
        (batch_of(("q", "a", "b")), first, (first,)),
    ):
        [(_, task)] = recognised(request)
        assert task == JudgeTask(dialect="alpaca-eval-batch", kind="pair", sample=sample, facts={"batch": batch})


def test_a_batch_whose_texts_hold_its_borders_is_split_at_the_first_start_and_in_doubt_within():
    fakes = "## Annotation starts below\n", "\n\n## Example 1\n\n### Instruction 1:\n"
    [(_, task)] = recognised(batch_of(("q", *fakes)))
    assert (task.sample.answers, task.doubt) == (fakes, "")
    [(_, task)] = recognised(batch_of(("q", "a", "b\n\n### Output (b) for example 1:\n")))
    assert task.doubt == AMBIGUOUS


def test_a_batch_has_up_to_64_examples():
    assert [len(recognised(batch_of(*[("q", "a", "b")] * size))) for size in (1, 64, 65)] == [1, 1, 0]


def test_each_example_of_a_batch_goes_by_its_own_winner():
    request = batch_of(("q", "a", "b"), ("q", "b", "a"))
    [(dialect, task)] = recognised(request)
    # what is open goes to the answer with the lower hash, "b", in each example
    ties = JudgeResult(batch=(JudgeResult(winner="tie"),) * 2)
    assert dialect.render(task, request, ties).texts == ("Output (b)\nOutput (a)",)


# AlpacaEval's annotators with a worked example, whose requests are not captured: their templates, rebuilt

EXAMPLE = (
    "Select the output {a} or {b} that best matches the given instruction.\n\n# Example:\n## Instruction:\n"
    "Give a description\n\n## Output {a}:\nA doctor.\n\n## Output {b}:\nA joker.\n\n"
)
REAL = "# Task:\nNow is the real task, do not explain your answer, just say"
TEMPLATES = {
    "alpaca-eval-choice": EXAMPLE.format(a="(a)", b="(b)") + "## Which is best, Output (a) or Output (b)?\nOutput (a)"
    f"\n\nHere the answer is Output (a).\n\n{REAL} Output (a) or Output (b).\n\n## Instruction:\n<q>\n\n## Output (a):"
    "\n<1>\n\n## Output (b):\n<2>\n\n## Which is best, Output (a) or Output (b)?",
    "alpaca-eval-letter": EXAMPLE.format(a="A", b="B") + "## Which is best, A or B?\nA\n\nHere the answer is A.\n\n"
    f"{REAL} A or B.\n\n## Instruction:\n<q>\n\n## Output A:\n<1>\n\n## Output B:\n<2>\n\n## Which is best, A or B?",
    "alpaca-eval-letter explained": EXAMPLE.format(a="A", b="B")
    + "## Concise explanation followed by `A` or `B`\n\n### Concise explanation\nA is better.\n\n"
    "### Which is best, `A` or `B`?\nA\n\n# Task:\nNow is the real task.\n\n## Instruction:\n<q>\n\n## Output `A`:\n<1>"
    "\n\n## Output `B`:\n<2>\n\n## Concise explanation followed by `A` or `B`\n\n### Concise explanation",
    # `aviary`
    "alpaca-eval-ranking": "You are given a prompt and a list of responses\nfrom several models in Python dictionary "
    "format.\n\nThe prompt is: <q>\nThe responses are: [\n{'model': model_1, 'result': <1> },\n{'model': model_2, "
    "'result': <2> },\n]\n\nPlease rank the responses by quality, and return a list of the model\nnames and ranks\n\n"
    "Think step by step and give me this quality ranking",
}  # fmt: skip
WITH_EXAMPLE = list(TEMPLATES)[:3]


def filled(kind, texts=("q", "a", "b"), **options):
    text = TEMPLATES[kind].replace("<q>", texts[0]).replace("<1>", texts[1]).replace("<2>", texts[2])
    return chat(("system", "You are a helpful instruction-following assistant."), text, **options)


@pytest.mark.parametrize(
    "texts",
    [
        ("", "", ""),
        ("a\n\nb", "first\n\n## Which", "{second}\n# Task:\nNow is the real task"),
        ("# Example:\n## Instruction:", "Output (b)", "Output (a)\nA\nB"),
    ],
)
@pytest.mark.parametrize("kind", TEMPLATES)
def test_each_template_is_its_own_dialect_and_split_exactly(kind, texts):
    [(dialect, task)] = recognised(filled(kind, texts))
    assert (dialect.name, task.kind) == (kind.split()[0], "pair")
    assert (task.sample.question, *task.sample.answers) == texts
    assert task.facts["explanation"] is (kind == "alpaca-eval-letter explained")


@pytest.mark.parametrize("kind", WITH_EXAMPLE)
def test_answers_that_imitate_the_template_leave_a_doubt_and_other_prompts_are_not_recognised(kind):
    inner = {"alpaca-eval-choice": "(b)", "alpaca-eval-letter": "B"}.get(kind, "`B`")
    for answer, doubt in ((f"x\n\n## Output {inner}:\ny", AMBIGUOUS), ("a", "")):
        [(_, task)] = recognised(filled(kind, ("q", answer, "z")))
        assert task.doubt == doubt
    text = filled(kind).messages[1].text
    for other in (text + "\nPlease.", text.replace("Now is the real task", "Now"), "Hello. " + text):
        assert recognised(changed(filled(kind), text, other)) == []


@pytest.mark.parametrize(("result", "winner"), PAIRS)
def test_a_choice_is_one_line_or_one_call(result, winner):
    name = {1: "Output (a)", 2: "Output (b)"}[winner]
    request = filled("alpaca-eval-choice", max_tokens=50)
    [(dialect, task)] = recognised(request)
    assert dialect.render(task, request, result).texts == (name,)
    best = Tool(name="print_best_model", parameters={"properties": {"best_output": {"type": "string"}}})
    called = filled("alpaca-eval-choice", tools=(Tool(name="other"), best), forced_tool=best.name)
    reply = dialect.render(task, called, result)
    assert (reply.tool, reply.texts, json.loads(reply.arguments)) == (best.name, (), {"best_output": name})


# LLMBar


def test_which_strategy_of_llmbar_wants_an_explanation_is_seen(shared_data):
    for strategy, wanted in (("Vanilla_1shot", {False}), ("CoT", {True}), ("Swap", {True, False})):
        captured = requests(shared_data, f"llmbar__{strategy}")
        assert {task.facts["explanation"] for _, request in captured for _, task in recognised(request)} == wanted


def test_an_instruction_that_quotes_llmbars_headings_stays_whole(shared_data, refilled):
    question = "q\n\n# Instruction:\nr"
    [(_, task)] = recognised(refilled("llmbar__Vanilla", question=question, answers=["a", "b"]))
    assert (task.sample.question, task.sample.answers) == (question, ("a", "b"))
    item, before = next(pair for pair in requests(shared_data, "llmbar__Metrics") if pair[0].get("aux"))
    wanted = "\n\n# Requirements for Your Output:\n(1) The questions should **specifically** target the given task."
    [(_, task)] = recognised(changed(before, item["question"], question + wanted))
    assert task.sample.question == question + wanted
    vanilla = refilled("llmbar__Vanilla", answers=["a", "b"])  # its heading opens a paragraph
    assert recognised(changed(vanilla, "# Instruction:\n", "Now: # Instruction:\n")) == []
    assert recognised(changed(vanilla, "# Instruction:\n", "# Task:\n")) == []


def prepared_and_judging(shared_data, folder):
    """The first item, what the preparation replies, and the judging request that holds another judge's reply."""
    plain = [pair for pair in requests(shared_data, folder) if pair[0]["id"] == "plain"]
    before = next(request for item, request in plain if item.get("aux"))
    item, judging = next(pair for pair in plain if not pair[0].get("aux"))
    [(dialect, task)] = recognised(before)
    [reply] = dialect.render(task, before, JudgeResult()).texts
    assert (task.sample.question, task.sample.answers) == (item["question"], ())
    return item, reply, judging


def test_questions_and_references_of_another_judge_are_used_and_our_own_are_not(shared_data):
    for folder in ("llmbar__Metrics", "llmbar__Metrics_Reference"):
        item, reply, judging = prepared_and_judging(shared_data, folder)
        [(_, task)] = recognised(judging)
        assert task.sample.metadata == {"criterion": item["aux_replies"][0]}
        [(_, task)] = recognised(changed(judging, item["aux_replies"][0], reply))
        assert (task.sample.answers, task.sample.metadata) == (tuple(item["answers"]), {})
    item, reply, judging = prepared_and_judging(shared_data, "llmbar__Reference")
    shown = "strong AI assistant:\n"
    [(_, task)] = recognised(changed(judging, shown + item["aux_replies"][0], shown + reply))
    assert (task.sample.question, task.sample.reference) == (item["question"], None)


def test_an_ordinary_request_of_the_concise_assistant_is_not_ours():
    messages = ("system", "You are a helpful assistant that responds to the user in a concise way."), "Hello"
    assert recognised(chat(*messages)) == []
    assert [dialect.name for dialect, _ in recognised(chat(*messages, max_tokens=384))] == ["llmbar-preparation"]
