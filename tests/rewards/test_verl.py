"""A judge as verl's custom reward function, called as verl 0.9 calls it; through verl itself in tests/conformance."""

import asyncio

import pytest

from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.rewards.verl import compute_score

SCRIPT = {"model": "8 6", "engine": "scripted"}


def score(solution="a", truth="b", extra_info=None, **options):
    row = {"question": "q", "num_turns": None} if extra_info is None else extra_info
    given = {"data_source": "any", "solution_str": solution, "ground_truth": truth, "extra_info": row}
    return asyncio.run(compute_score(**given | SCRIPT | options))


def test_the_better_of_response_and_ground_truth():
    # the first is better in both orders as they are shown, so neither is
    assert score() == {"score": 0.5, "judged": 1.0}


def test_the_score_of_a_response():
    # against nothing it writes one score: 8 on 1 to 10 would be 7 / 9
    assert score(truth=None, method="score", model="8") == {"score": pytest.approx(7 / 9), "judged": 1.0}


def test_a_checklist_is_part_of_the_row():
    row = {"question": "q", "criteria": [{"text": "c", "weight": 3}, {"text": "d", "weight": -1}]}
    assert score(truth=None, method="checklist", model="Yes", extra_info=row)["score"] == pytest.approx(2 / 3)


def test_the_fields_of_a_prompt_are_part_of_the_row(tmp_path):
    (tmp_path / "mine.txt").write_text("{context} {answer}\nreply: Yes/No")
    options = {"truth": None, "method": "score", "model": "Yes", "prompt": str(tmp_path / "mine.txt")}
    with pytest.raises(InputError, match=r"prompt mine shows \{context\}"):
        score(**options)
    assert score(extra_info={"question": "q", "context": "c"}, **options)["score"] == pytest.approx(1.0)


def test_many_responses_share_the_judge():
    async def all_of_them():
        calls = (compute_score("any", f"answer {index}", "b", {"question": "q"}, **SCRIPT) for index in range(50))
        return await asyncio.gather(*calls)

    assert asyncio.run(all_of_them()) == [{"score": 0.5, "judged": 1.0}] * 50


def test_without_a_verdict_there_is_no_score_unless_the_user_says_which():
    with pytest.raises(EngineError, match=r"no verdict \(off_grammar: .*failure_score"):
        score(model="nonsense")
    assert score(model="nonsense", failure_score=0.5) == {"score": 0.5, "judged": 0.0}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"extra_info": {}}, InputError, 'no string "question"'),
        ({"truth": None}, InputError, "no reference answer"),
        ({"method": "checklist"}, InputError, "no list of criteria"),
        ({"method": "group"}, ConfigError, "method group"),
    ],
)
def test_what_is_missing_is_said(options, error, message):
    with pytest.raises(error, match=message):
        score(**options)


def test_what_verl_adds_is_no_option_of_the_judge():
    assert score(reward_router_address="http://somewhere", reward_model_tokenizer=object())["judged"] == 1
