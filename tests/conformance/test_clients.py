"""Real clients ask a real server, and conclude what its judge thinks.

Answers have a known quality from 2 to 9 (`known_judge`), which is their expected score; of two the better one wins.
"""

import sys

import pytest

from tests.support.known_judge import CHANCES, of_quality, quality
from tests.support.processes import serving

pytestmark = pytest.mark.conformance

PAIRS = [
    {"question": f"What is {place} + {place}?", "first": of_quality(first), "second": of_quality(second, 1)}
    for place, (first, second) in enumerate([(8, 3), (2, 9), (6, 5), (5, 7), (4, 4)])
]
SINGLES = [
    {"question": f"What is {level} times 2?", "answer": of_quality(level), "reference": f"It is {2 * level}."}
    for level in range(2, 10)
]
WINNERS = [1, 2, 1, 2, "tie"]
CORRECT = [level >= 6 for level in range(2, 10)]  # most of the probability above 5.5


def on_scale(low, high):
    return [low + (level - 1) / 9 * (high - low) for level in range(2, 10)]


def pandalm(pair):
    return (
        "Below are two responses for a given task. The task is defined by the Instruction. Evaluate the responses and "
        f"generate a reference answer for the task.\n\n### Instruction:\n{pair['question']}\n\n### Response 1:\n"
        f"{pair['first']}\n\n### Response 2:\n{pair['second']}\n\n### Evaluation:\n"
    )


def winner_in(text):
    return {"1": 1, "2": 2, "Tie": "tie"}[text.split("\n")[0]]


@pytest.mark.parametrize("name", ["openai_python", "openai_node"])
def test_openais_own_clients(client, name):
    found = client(name, prompts=[pandalm(one) for one in PAIRS])
    for kind in ("texts", "streamed", *(["plain"] if name == "openai_python" else [])):
        assert [winner_in(text) for text in found[kind]] == WINNERS, kind
    assert [len(texts) for texts in found["several"]] == [3] * 5
    assert {winner_in(text) for text in found["several"][0]} == {1}  # 8 against 3 leaves no doubt
    assert found["refused"] == "unrecognised_prompt"


RANKINGS = (
    "alpaca_eval_clf_cot_gpt4_turbo", "alpaca_eval_clf_gpt4_turbo", "alpaca_eval_cot_gpt4_turbo_fn", "alpaca_eval_gpt4",
    "alpaca_eval_gpt4_0314", "alpaca_eval_gpt4_0613", "alpaca_eval_gpt4_fn", "alpaca_eval_gpt4_turbo_fn",
    "alpaca_farm_greedy_gpt4", "aviary_gpt4", "chatgpt", "chatgpt_fn", "gpt-3.5-turbo-1106_ranking", "gpt4",
    "gpt4_turbo", "gpt4_turbo_clf", "gpt4_turbo_cot_clf", "improved_aviary_gpt4", "improved_lmsys_gpt4", "lmsys_gpt4",
)  # fmt: skip
WEIGHTED = (
    "gpt4_turbo_cot_logprob", "gpt4_turbo_logprob", "weighted_alpaca_eval_cot_gpt4_turbo",
    "weighted_alpaca_eval_gpt-4o-mini-2024-07-18", "weighted_alpaca_eval_gpt4_turbo",
    "weighted_alpaca_eval_gpt4_turbo_new",
)  # fmt: skip
"""All annotators of OpenAI's chat API; others ask other services, hold weights themselves, or, `alpaca_farm` and the
models before chats, send many plain prompts in one request."""


def test_alpaca_eval(client):
    found = client("alpaca_eval", pairs=PAIRS, annotators=[*RANKINGS, *WEIGHTED])
    for name in RANKINGS:
        assert found[name][:4] == WINNERS[:4], name
        assert found[name][4] in (1, 2), name  # it knows no tie
    for name in WEIGHTED:
        for pair, preference in zip(PAIRS, found[name], strict=True):
            first, second = quality(pair["first"]), quality(pair["second"])
            chance = CHANCES.get(abs(first - second), 1.0)
            assert preference == pytest.approx(2 - (chance if first >= second else 1 - chance), abs=1e-3), name


def arena_label(first, second):
    """Arena-Hard's label for two qualities: much better from 3 points on."""
    if first == second:
        return "A=B"
    sign = ">>" if abs(first - second) >= 3 else ">"
    return f"A{sign}B" if first > second else f"B{sign}A"


def test_arena_hard(client):
    levels = {"strong": [9] * 5, "weak": [2] * 5, "mixed": [8, 2, 6, 4, 5]}
    questions, baseline = [[n, f"What is {n} + {n}?"] for n in range(5)], [of_quality(5, nth) for nth in range(5)]
    models = {name: [of_quality(level, 7 + nth) for nth, level in enumerate(own)] for name, own in levels.items()}
    benchmarks = [("arena-hard-v2.0", "hard_prompt", "o3-mini-2025-01-31")]
    benchmarks += [("arena-hard-v0.1", "arena-hard-v0.1", "gpt-4-0314")]
    found = client(
        "arena_hard", questions=questions, baseline=baseline, models=models, benchmarks=benchmarks,
        python=sys.executable,  # the leaderboard needs torch
    )  # fmt: skip
    for one in found.values():
        for name, own in levels.items():  # the baseline is shown first, then second
            assert one["verdicts"][name] == [[arena_label(5, level), arena_label(level, 5)] for level in own], name
        assert one["scores"]["strong"] == 100.0
        assert one["scores"]["weak"] == 0.0
        assert 20 < one["scores"]["mixed"] < 80  # 50, but for its bootstrap


def test_inspect_ai(client):
    found = client("inspect_ai", singles=SINGLES)
    for kind in ("qa", "fact", "partial"):
        assert found[kind]["grades"] == ["C" if one else "I" for one in CORRECT], kind
        assert found[kind]["accuracy"] == sum(CORRECT) / len(CORRECT), kind


def test_langchains_evaluators(client):
    found = client("langchain", pairs=PAIRS, singles=SINGLES)
    words = {1: "A", 2: "B", "tie": None}
    for kind in ("pairwise_string", "labeled_pairwise_string"):
        assert found.pop(kind) == [words[winner] for winner in WINNERS], kind
    for kind in ("score_string", "score_string-own", "labeled_score_string"):
        assert found.pop(kind) == list(range(2, 10)), kind
    assert set(found) == {"criteria", "labeled_criteria", "qa", "context_qa", "cot_qa"}
    for kind, scores in found.items():
        assert scores == CORRECT, kind


def test_autoevals(client):
    found = client("autoevals", singles=SINGLES, pairs=PAIRS)
    for kind in ("Factuality", "ClosedQA", "ClosedQA without reasons", "Sql", "Translation"):
        assert found[kind] == CORRECT, kind
    for kind in ("Battle", "Summary"):
        assert found[kind][:4] == [winner == 1 for winner in WINNERS[:4]], kind


def test_mlflow(client):
    found = client("mlflow", singles=SINGLES)
    for kind in ("correctness", "relevance", "guidelines", "equivalence"):
        assert found[kind] == ["yes" if one else "no" for one in CORRECT], kind


def test_phoenix(client):
    found = client("phoenix", singles=SINGLES)
    labels = {
        "correctness": ("correct", "incorrect"), "conciseness": ("concise", "verbose"),
        "faithfulness": ("faithful", "unfaithful"), "hallucination": ("grounded", "hallucinated"),
    }  # fmt: skip
    for kind, (good, bad) in labels.items():
        assert found[kind] == [good if one else bad for one in CORRECT], kind


def test_opik(client):
    found = client("opik", singles=SINGLES)
    for kind in ("answer relevance", "usefulness"):
        assert found[kind] == pytest.approx(on_scale(0, 1), abs=0.005), kind
    assert found["g-eval"] == pytest.approx(on_scale(0, 1), abs=1e-6)


def test_langfuses_managed_evaluators(client):
    found = client("langfuse_server", singles=SINGLES)
    for kind in ("Helpfulness 1", "Relevance 1", "Conciseness 1", "Correctness 1"):
        assert found[kind] == pytest.approx(on_scale(0, 1), abs=0.005), kind


def test_a_judge_written_with_dspy(client):
    assert client("dspy", singles=SINGLES) == {"predict": CORRECT, "reasons": CORRECT}


def test_a_verdict_asked_for_with_instructor(client):
    words = [{1: "A", 2: "B", "tie": "tie"}[winner] for winner in WINNERS]
    found = client("instructor", pairs=PAIRS)
    assert found["TOOLS"] == found["JSON_SCHEMA"] == words


def test_openevals(client):
    found = client("openevals", singles=SINGLES)
    assert found["bool"] == found["openai"] == CORRECT
    assert found["toxic"] == [not one for one in CORRECT]
    assert found["continuous"] == found["no reasoning"] == pytest.approx(on_scale(0, 1), abs=1e-4)
    assert found["choices"] == [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0]  # nearest to (level - 1) / 9


def test_openevals_prompts_with_a_context_or_a_plan(client):
    found = client("openevals", singles=SINGLES, kinds=["RAG_GROUNDEDNESS_PROMPT", "PLAN_ADHERENCE_PROMPT"])
    for kind in found:
        assert found[kind] == CORRECT, kind


def test_prometheus_eval(client):
    found = client("prometheus_eval", singles=SINGLES, pairs=PAIRS)
    for kind in ("one by one", "at once"):
        assert found[kind]["grades"] == [round(one) for one in on_scale(1, 5)], kind
        assert found[kind]["winners"][:4] == ["A", "B", "A", "B"], kind
        assert found[kind]["winners"][4] in ("A", "B"), kind  # it knows no tie


def test_ragas(client):
    found = client("ragas", singles=SINGLES)
    assert found["aspect"] == [int(one) for one in CORRECT]
    assert found["simple"] == [round(one) for one in on_scale(0, 5)]
    assert found["rubrics"] == [round(one) for one in on_scale(1, 5)]
    assert found["discrete"] == ["pass" if one else "fail" for one in CORRECT]


def test_ragas_collections(client):
    found = client("ragas", singles=SINGLES, kinds=["rubrics"])
    assert found["rubrics"] == [round(one) for one in on_scale(1, 5)]


def test_deepeval(client):
    found = client("deepeval", singles=SINGLES)
    for kind in ("steps", "criteria", "rubric", "async"):
        assert [one["score"] for one in found[kind]] == pytest.approx(on_scale(0, 1), abs=1e-6), kind
        assert [one["success"] for one in found[kind]] == [one >= 0.5 for one in on_scale(0, 1)], kind
    assert found["strict"] == [{"score": int(one), "success": one} for one in CORRECT]


def test_flow_judge(client):
    found = client("flow_judge", singles=SINGLES)
    assert found["binary"] == [int(one) for one in CORRECT]
    assert found["five"] == [round(one) for one in on_scale(1, 5)]


def test_promptfoo(client):
    found = client("promptfoo", singles=SINGLES, pairs=PAIRS)
    shares = [0, 0, 0, 0.25, 0.75, 1, 1, 1]  # of the probability above 5.5
    assert [one["score"] for one in found["llm-rubric"]] == shares
    for kind in ("llm-rubric", "model-graded-closedqa", "factuality"):
        assert [one["pass"] for one in found[kind]] == CORRECT, kind
    assert [one["score"] for one in found["g-eval"]] == pytest.approx(on_scale(0, 1), abs=1e-3)
    assert [one["pass"] for one in found["g-eval"]] == [one >= 0.7 for one in on_scale(0, 1)]  # its own threshold
    assert found["select-best"][:4] == [[one == 1, one == 2] for one in WINNERS[:4]]
    assert sorted(found["select-best"][4]) == [False, True]  # it knows no tie


def test_fastchat(client, shared_data):
    prompts = shared_data / "mt_bench" / "judge_prompts.jsonl"  # FastChat's own, which its package leaves out
    found = client("fastchat", pairs=PAIRS, judge_prompts=str(prompts))
    qualities = {(place, model): quality(pair[side]) for place, pair in enumerate(PAIRS, 1)
                 for model, side in (("one", "first"), ("two", "second"))}  # fmt: skip
    assert len(found["grades"]) == 20
    for place, _, model, grade in found["grades"]:
        assert grade == qualities[place, model]
    names = {1: "model_1", 2: "model_2", "tie": "tie"}
    assert found["winners"] == [
        [place, turn, names[winner], names[winner]] for place, winner in enumerate(WINNERS, 1) for turn in (1, 2)
    ]


def test_the_command_that_serves(client):
    """`judgelm serve` itself, with a judge that is written down: 8 for the first, 3 for the second."""
    command = (sys.executable, "-m", "judgelm", "serve", "8 3", "--engine", "scripted", "--port", 0)
    with serving(*command) as address:
        found = client("openai_python", base_url=address, prompts=[pandalm(one) for one in PAIRS])
    assert [winner_in(text) for text in found["texts"]] == [1] * 5
    assert found["models"] == ["scripted"]


LEVELS = (5, 6, 4, 7, 3)


def test_verifiers(client):
    item = {"question": "What is 2 + 2?", "answer": of_quality(5)}
    items = [item | {"response": of_quality(level, 1)} for level in LEVELS]
    served = {"model": "known"}
    rewards = {
        "reference": served,
        "score": {"model": "8", "options": {"engine": "scripted"}, "method": "score", "base_url": ""},
        "silent": {"model": "nonsense", "options": {"engine": "scripted"}, "base_url": ""},
        "grouped": served | {"method": "group"},
        "prompted": served | {"sampling": {"temperature": 0.5}},
    }
    found = client("verifiers", items=items, rewards=rewards)
    assert found["reference"]["rewards"] == pytest.approx([CHANCES[level - 5] for level in LEVELS], abs=0.1)
    recorded = found["reference"]["recorded"]
    assert [each["response"]["parsed"] for each in recorded] == found["reference"]["rewards"]
    assert [each["name"] for each in recorded] == ["judgelm"] * 5
    assert [each["request"]["answer"] for each in recorded] == [each["response"] for each in items]
    assert found["score"]["rewards"] == pytest.approx([7 / 9] * 5)
    assert "no verdict" in found["silent"]["error"]
    assert "method group is not supported" in found["grouped"]["error"]
    assert "sampling" in found["prompted"]["error"]


def test_openrlhf(client, tiny_model):
    items = [
        {"prompt": "What is 2 + 2?", "reference": of_quality(5), "response": of_quality(level, 1)} for level in LEVELS
    ]
    found = client("openrlhf", items=items, tokenizer=str(tiny_model))["found"]
    rewards = [reward for each in found for reward in each["reward"]]
    assert rewards == pytest.approx([CHANCES[level - 5] for level in LEVELS], abs=0.1)
    assert [each["scores"] for each in found] == [each["reward"] for each in found]


def test_slime(client):
    texts = ["What is 2 + 2?", [{"role": "system", "content": "s"}, {"role": "user", "content": "What is 2 + 2?"}]]
    for prompt in texts:
        items = [{"prompt": prompt, "reference": of_quality(5), "response": of_quality(level, 1)} for level in LEVELS]
        rewards = client("slime", items=items)["rewards"]
        assert rewards == pytest.approx([CHANCES[level - 5] for level in LEVELS], abs=0.1)


def test_verl(client, tiny_model):
    # the response of a quality against a reference of quality 5, through verl's reward loop
    item = {"question": "What is 2 + 2?", "reference": of_quality(5)}
    items = [item | {"response": of_quality(level, 1)} for level in LEVELS]
    served = {"model": "known", "engine": "openai"}
    silent = {"model": "nonsense", "engine": "scripted"}
    rewards = {
        "reference": served, "score": {"model": "8", "engine": "scripted", "method": "score"}, "silent": silent,
        "filled": silent | {"failure_score": 0.5}, "grouped": served | {"method": "group"},
    }  # fmt: skip
    found = client("verl", tokenizer=str(tiny_model), items=items, rewards=rewards)
    # a server tells the probabilities of the likeliest tokens alone, so these are near and not exact
    assert found["reference"]["scores"] == pytest.approx([CHANCES[level - 5] for level in LEVELS], abs=0.1)
    assert found["reference"]["sums"] == pytest.approx(found["reference"]["scores"], abs=1e-6)
    assert found["score"]["scores"] == pytest.approx([7 / 9] * 5)
    assert found["score"]["judged"] == [1] * 5
    assert "no verdict" in found["silent"]["error"]
    assert (found["filled"]["scores"], found["filled"]["judged"]) == ([0.5] * 5, [0] * 5)
    assert "method group is not supported" in found["grouped"]["error"]
    assert "answers are passed one at a time" in found["grouped"]["error"]
