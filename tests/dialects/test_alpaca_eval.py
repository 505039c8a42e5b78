"""AlpacaEval: what its parsers make of captured replies, and of ours."""

import ast
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, JudgeTask, Message, Tool, sample_of
from tests.support import captures
from tests.support.captures import replies, requests

DIALECTS = captures.dialects(
    "alpaca-eval-ranking", "alpaca-eval-function", "alpaca-eval-identifier", "alpaca-eval-batch"
)

RANKING, FUNCTION, IDENTIFIER, BATCH = DIALECTS
SAMPLE = sample_of("q", ("first", "second"))
REASON = "[{'model': 'model_1', 'rank': 9}] \"m\" M m Output (b)\nOutput (a)"
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), 1),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason=REASON), 2),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6), 1),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.4), 2),
]


def asking(**more):
    return ChatRequest(messages=(Message(role="user", text=""),), **more)


def case(name, **facts):
    return JudgeTask(dialect=name, kind="pair", sample=SAMPLE, facts=facts)


def parsed_ranking(text):
    """Rank of model_1 in a Python literal, where it is 1 or 2."""
    try:
        ranks = [one["rank"] for one in ast.literal_eval(text) if one["model"] == "model_1"]
    except (SyntaxError, ValueError):
        return None
    return float(ranks[0]) if ranks[0] in (1, 2) else None


def parsed_function(message):
    """Rank of m in the arguments of the first call, or in the text, which may be fenced."""
    calls = message.get("tool_calls")
    text = calls[0]["function"]["arguments"] if calls else re.sub(r"^```json\n|\n```$", "", message["content"])
    try:
        ranks = {one["model"]: one["rank"] for one in json.loads(text)["ordered_models"]}
    except (ValueError, KeyError, TypeError):
        return None
    return float(ranks["m"]) if ranks["m"] in (1, 2) else None


def parsed_identifier(tokens, *, weighted, last):
    """2 - P(m) / (P(m) + P(M)) at the only token, or at the last one; 1 or 2 where it is not weighted.

    Args:
        tokens: `{token: logprob}` of the candidates at each place.
    """
    if not tokens or (len(tokens) > 1 and not last):
        return None
    small, large = (tokens[-1].get(name, -math.inf) for name in ("m", "M"))
    if max(small, large) == -math.inf:
        return None
    if not weighted:
        return 1.0 if small > large else 2.0
    highest = max(small, large)
    first, second = math.exp(small - highest), math.exp(large - highest)
    return 2 - first / (first + second)


def parsed_batch(text, size):
    found = re.findall(r"(?m)^ *Output \(([ab])\)", text)
    return [float("ab".index(one) + 1) for one in found] if len(found) == size else [None] * size


def candidates(reply):
    choice = reply if isinstance(reply, dict) else {}
    content = (choice.get("logprobs") or {}).get("content") or []
    return [{one["token"]: one["logprob"] for one in place["top_logprobs"]} for place in content]


def test_the_parser_of_rankings_is_understood(shared_data):
    for reply, parsed in replies(shared_data, "alpaca_eval__alpaca_eval_gpt4"):
        assert parsed_ranking(reply) == parsed["raw_annotation"], reply


@pytest.mark.parametrize("kind", ["gpt4_turbo_fn", "cot_gpt4_turbo_fn"])
def test_the_parser_of_functions_is_understood(shared_data, kind):
    for reply, parsed in replies(shared_data, f"alpaca_eval__alpaca_eval_{kind}"):
        message = reply["message"] if isinstance(reply, dict) else {"content": reply}
        assert parsed_function(message) == parsed["raw_annotation"], reply


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_the_parser_of_identifiers_is_understood(shared_data, weighted, last):
    cot = "cot_" if last else ""
    kind = f"weighted_alpaca_eval_{cot}gpt4_turbo" if weighted else f"alpaca_eval_clf_{cot}gpt4_turbo"
    for reply, parsed in replies(shared_data, f"alpaca_eval__{kind}"):
        assert parsed_identifier(candidates(reply), weighted=weighted, last=last) == pytest.approx(
            parsed["raw_annotation"]
        ), reply


def test_the_parser_of_batches_is_understood(shared_data):
    for reply, parsed in replies(shared_data, "alpaca_eval__alpaca_farm_greedy_gpt4"):
        found = parsed_batch(reply, 5)
        assert found[0] == parsed["raw_annotation"]
        assert found.count(None) == parsed["prefs"].count(None)


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
def test_a_ranking_says_who_won(finding, winner):
    [text] = RANKING.render(case("alpaca-eval-ranking"), asking(max_tokens=100), finding).texts
    assert parsed_ranking(text) == winner
    assert len(text) < 100


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
@pytest.mark.parametrize("explains", [True, False])
def test_a_function_is_called_with_the_ranks(finding, winner, explains):
    properties = {"ordered_models": {}, **({"concise_explanation": {}} if explains else {})}
    tool = Tool(name="make_partial_leaderboard", parameters={"properties": properties})
    asked = asking(tools=(Tool(name="other"), tool), forced_tool=tool.name, max_tokens=300)
    reply = FUNCTION.render(case("alpaca-eval-function"), asked, finding)
    call = {"function": {"name": reply.tool, "arguments": reply.arguments}}
    assert (reply.tool, reply.texts) == ("make_partial_leaderboard", ())
    assert parsed_function({"tool_calls": [call]}) == winner
    assert list(json.loads(reply.arguments)) == [*(["concise_explanation"] if explains else []), "ordered_models"]
    [text] = FUNCTION.render(case("alpaca-eval-function"), asking(), finding).texts
    assert parsed_function({"content": text}) == winner


def test_an_explanation_in_a_call_is_cut_to_the_room_that_there_is():
    properties = {"ordered_models": {}, "concise_explanation": {}}
    tool = Tool(name="make_partial_leaderboard", parameters={"properties": properties})

    def explained(room):
        finding = JudgeResult(winner=1, scores=(8.0, 6.0), reason="Short words.")
        reply = FUNCTION.render(case("alpaca-eval-function"), asking(tools=(tool,), max_tokens=room), finding)
        return json.loads(reply.arguments)["concise_explanation"]

    whole = "Scores: 8 and 6 out of 10. Short words."
    ranks = json.dumps({"ordered_models": [{"model": "m", "rank": 1}, {"model": "M", "rank": 2}]})
    assert explained(None) == whole
    assert explained(len(ranks) + 30 + len(whole)) == whole  # 30 characters are left to the field
    assert explained(len(ranks) + 30 + len(whole) - 1) == whole[:-1]
    assert explained(1) == ""


def test_of_two_fitting_functions_the_forced_one_is_called():
    first, second = (Tool(name=name, parameters={"properties": {"ordered_models": {}}}) for name in ("one", "two"))
    for forced, called in (("one", "one"), ("two", "two"), (None, "one")):
        asked = asking(tools=(first, second), forced_tool=forced)
        assert FUNCTION.render(case("alpaca-eval-function"), asked, PAIRS[0][0]).tool == called


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
def test_a_ranking_is_a_call_where_a_function_is_on_offer(finding, winner):
    tool = Tool(name="make_leaderboard", parameters={"properties": {"ordered_models": {}}})
    reply = RANKING.render(case("alpaca-eval-ranking"), asking(tools=(tool,), max_tokens=100), finding)
    ranks = {one["model"]: one["rank"] for one in json.loads(reply.arguments)["ordered_models"]}
    assert (reply.tool, reply.texts) == ("make_leaderboard", ())
    assert ranks == {"model_1": winner, "model_2": 3 - winner}


@given(chance=st.floats(0, 1), explains=st.booleans())
def test_an_identifier_carries_the_probability(chance, explains):
    asked = asking(logprobs=True, top_logprobs=5, max_tokens=300 if explains else 1)
    finding = JudgeResult(winner="tie", scores=(7.1, 6.9), first_better=chance, reason="I am m. Or M?")
    reply = IDENTIFIER.render(case("alpaca-eval-identifier", explanation=explains), asked, finding)
    tokens = [dict(one.candidates) for one in reply.logprobs]
    assert "".join(one.token for one in reply.logprobs) == reply.texts[0]
    assert parsed_identifier(tokens, weighted=True, last=explains) == pytest.approx(2 - chance, abs=1e-9)
    verdict = reply.logprobs[-1]
    assert verdict.token == reply.texts[0][-1]
    assert verdict.logprob == max(logprob for _, logprob in verdict.candidates)
    assert re.findall(r"\b[mM]\b", reply.texts[0]) == [verdict.token]
    if not explains:
        assert reply.texts[0] in ("m", "M")
        assert len(reply.logprobs) == 1


def identified(finding, *, explanation=True, **more):
    return IDENTIFIER.render(case("alpaca-eval-identifier", explanation=explanation), asking(**more), finding).texts


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
    finding = JudgeResult(winner=1, scores=(8.0, 6.0), reason=reason)
    assert identified(finding, max_tokens=room) == (text,)
    assert identified(finding, max_tokens=room, explanation=False) == ("m",)
    assert identified(JudgeResult(winner=1)) == ("m",)  # there is nothing to say


def test_the_winner_is_said_unless_the_client_reads_probabilities():
    finding = JudgeResult(winner=1, first_better=0.4, draws=((8.0, 6.0), (8.0, 6.0)))
    bare = {"explanation": False, "top_logprobs": 2}
    assert identified(finding, **bare) == ("m",)
    assert identified(finding, **bare, logprobs=True) == ("M",)  # the likelier one
    assert identified(finding, **bare, logprobs=True, n=2) == ("m", "m")  # drawn


def test_one_token_of_room_is_not_spent_on_an_explanation():
    asked = asking(logprobs=True, top_logprobs=1, max_tokens=1)
    reply = IDENTIFIER.render(case("alpaca-eval-identifier", explanation=True), asked, PAIRS[0][0])
    assert reply.texts == ("m",)
    assert [one.candidates for one in reply.logprobs] == [(("m", math.log(0.9)),)]


def test_the_instructions_behind_the_outputs_say_whether_an_explanation_is_wanted(refilled):
    outputs = ["An explanation.", "An explanation. " * 3]
    found = IDENTIFIER.recognise(refilled("alpaca_eval__weighted_alpaca_eval_gpt4_turbo", answers=outputs))
    assert (found.facts, found.doubt) == ({"explanation": False}, "")
    outputs[1] = 'x"""\n    }\n}\n\nAn explanation.'  # as if the outputs ended here
    found = IDENTIFIER.recognise(refilled("alpaca_eval__weighted_alpaca_eval_gpt4_turbo", answers=outputs))
    assert (found.facts, found.doubt) == ({"explanation": False}, AMBIGUOUS)


def test_explanations_are_wanted_by_the_prompts_that_say_so(shared_data):
    for cot in ("", "cot_"):
        for _, asked in requests(shared_data, f"alpaca_eval__weighted_alpaca_eval_{cot}gpt4_turbo"):
            assert IDENTIFIER.recognise(asked).facts["explanation"] is bool(cot)


def test_a_batch_has_a_line_for_each_example(shared_data):
    [(_, asked)] = requests(shared_data, "alpaca_eval__alpaca_farm_greedy_gpt4")
    found = BATCH.recognise(asked)
    one_by_one = [finding for finding, _ in [*PAIRS, PAIRS[0]]]
    assert parsed_batch(BATCH.render(found, asked, JudgeResult(batch=tuple(one_by_one))).texts[0], 5) == [1, 2, 1, 2, 1]


def batch_of(*examples, first=1):
    shown = "".join(
        f"\n\n## Example {number}\n\n### Instruction {number}:\n{question}\n\n"
        f"### Output (a) for example {number}:\n{a}\n\n### Output (b) for example {number}:\n{b}"
        for number, (question, a, b) in enumerate(examples, first)
    )
    last = first + len(examples) - 1
    ending = f"\n\n## Preferred Output for example {first}-{last}:\nNow say which."
    text = f"Some guidelines.\n## Annotation starts below\n{shown}{ending}"
    return ChatRequest(messages=(Message(role="user", text=text),))


def test_a_batch_is_the_case_that_it_shows():
    one, two = sample_of("q", ("a", "b")), sample_of("r", ("c", "d"))
    turns = (
        {"question": "q", "answers": ("a", "b"), "reference": None},
        {"question": "r", "answers": ("c", "d"), "reference": None},
    )
    of_two = sample_of("q", ("a", "b"), batch=turns)
    dialect = "alpaca-eval-batch"
    assert BATCH.recognise(batch_of(("q", "a", "b"), ("r", "c", "d"), first=3)) == JudgeTask(
        dialect=dialect, kind="pair", sample=of_two, facts={"batch": (one, two)}
    )
    assert BATCH.recognise(batch_of(("q", "a", "b"))) == JudgeTask(
        dialect=dialect, kind="pair", sample=one, facts={"batch": (one,)}
    )


def test_a_batch_whose_texts_hold_its_borders_is_split_at_the_first_start_and_in_doubt_within():
    fakes = "## Annotation starts below\n", "\n\n## Example 1\n\n### Instruction 1:\n"
    found = BATCH.recognise(batch_of(("q", *fakes)))
    assert (found.sample.answers, found.doubt) == (fakes, "")
    assert BATCH.recognise(batch_of(("q", "a", "b\n\n### Output (b) for example 1:\n"))).doubt == AMBIGUOUS


@pytest.mark.parametrize(("size", "taken"), [(1, True), (64, True), (65, False)])
def test_a_batch_has_up_to_64_examples(size, taken):
    assert (BATCH.recognise(batch_of(*[("q", "a", "b")] * size)) is not None) is taken


def test_each_example_of_a_batch_goes_by_its_own_winner():
    asked = batch_of(("q", "a", "b"))
    assert BATCH.render(BATCH.recognise(asked), asked, JudgeResult(winner=1)).texts == ("Output (a)",)
    # what is open goes to the answer with the lower hash, "b", in each example
    asked = batch_of(("q", "a", "b"), ("q", "b", "a"))
    found = BATCH.recognise(asked)
    ties = JudgeResult(batch=(JudgeResult(winner="tie"),) * 2)
    assert BATCH.render(found, asked, ties).texts == ("Output (b)\nOutput (a)",)
