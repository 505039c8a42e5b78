"""Reward models behind the server, and OpenRLHF's remote rewards by any judge."""

import json
import math

import pytest

from judgelm.engines.scripted import ScriptedEngine
from tests.support.known_judge import CHANCES, of_quality, quality
from tests.support.served import CHAT, error_of, review, served

REWARD = "/get_reward"
REWARDS = {"good": "2.5", "fair": "-1"}


@pytest.fixture(scope="module")
def reward_server():
    engine = ScriptedEngine(lambda prompt: REWARDS[prompt.spans[-1].text])
    with served(engine, template="reward") as one:
        yield one


def body_of(*answers, labels=None, prompt="<|user|>q\n<|assistant|>", end="<|im_end|>"):
    """What OpenRLHF's SingleTurnAgentExecutor posts."""
    labels = labels or [None] * len(answers)
    return {
        "query": [f"{prompt}{answer}{end}" for answer in answers],
        "prompts": [prompt] * len(answers),
        "labels": labels,
    }


def test_a_reward_model_gives_its_numbers(reward_server):
    reply = reward_server.post(REWARD, body_of("good", "fair", labels=["a reference", ""])).json()
    assert reply["rewards"] == [2.5, -1]
    # the logistic function: 1 / (1 + e^-2.5) and 1 / (1 + e)
    assert reply["scores"] == pytest.approx([1 / (1 + math.exp(-2.5)), 1 / (1 + math.e)])
    assert reply["extra_logs"] == {}


def test_a_judge_compares_a_response_with_its_label(server):
    first, second = of_quality(6), of_quality(5)
    reply = server.post(REWARD, body_of(first, labels=[second])).json()
    assert reply["rewards"] == pytest.approx([CHANCES[1]])
    assert reply["scores"] == reply["rewards"]


def test_a_judge_scores_a_response_without_label(server):
    answer = of_quality(7)
    reply = server.post(REWARD, body_of(answer, end="</s>\n")).json()
    assert reply["rewards"] == pytest.approx([(quality(answer) - 1) / 9])  # of the scale 1 to 10


def test_a_label_can_state_the_question_which_the_prompt_has_in_a_chat_template():
    first, second = of_quality(6), of_quality(5)
    label = json.dumps({"question": "the question", "reference": second})
    with served() as server:
        reply = server.post(REWARD, body_of(first, labels=[label])).json()
        shown = server.handler.worker.engine.prompts[0]
    assert reply["rewards"] == pytest.approx([CHANCES[1]])
    assert [span.text for span in shown.spans if span.kind == "question"] == ["the question"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": ["another"]}, '"query", 0: expected the prompt'),
        ({"prompts": ["a", "b"]}, "1 queries, 2 prompts"),
        ({"query": []}, "0 queries"),
        ({"query": "text"}, '"query": expected a list'),
        ({"prompts": None}, '"prompts": expected a list'),
        ({"labels": [{"a": 1}]}, '"labels": expected a list'),
    ],
)
def test_bodies_of_another_form_are_refused(server, change, words):
    reply = server.post(REWARD, body_of("good") | change)
    assert reply.status_code == 400, reply.text
    assert words in error_of(reply)["message"]


def test_a_response_without_verdict_is_an_error_and_no_reward(reward_server):
    reply = reward_server.post(REWARD, body_of("good", "unknown"))
    assert reply.status_code >= 500
    assert "the judge's engine failed on this request" in error_of(reply)["message"]


def test_the_own_route_gives_rewards(reward_server):
    body = {"mode": "reward", "question": "q", "answers": ["fair", "good"]}
    reply = reward_server.post("/v1/judge", body).json()
    assert reply["scores"] == [-1, 2.5]
    assert reply["verdict"]["winner"] == 2


def test_a_client_of_pairs_gets_p_first_better_on_its_own_scale(reward_server):
    reply = reward_server.post(CHAT, review(first="good", second="fair"))
    text = reply.json()["choices"][0]["message"]["content"]
    # P(first better) = 1 / (1 + e^-3.5) = 0.9707, so 9.74 and 1.26 of the scale 1 to 10
    first, second = map(float, text.splitlines()[0].split())
    assert (first, second) == pytest.approx((9.7, 1.3), abs=0.5)


FASTCHAT = (
    '[Instruction]\nRate the response like this: "[[rating]]".\n\n[Question]\nq\n\n'
    "[The Start of Assistant's Answer]\ngood\n[The End of Assistant's Answer]"
)


def test_a_client_that_wants_a_grade_is_refused(reward_server):
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": FASTCHAT},
    ]
    reply = reward_server.post(CHAT, {"model": "gpt-4", "messages": messages})
    assert reply.status_code == 400
    assert "reward model without a score scale" in error_of(reply)["message"]
