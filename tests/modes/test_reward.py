"""Reward models as judges: numbers into grades, verdicts, rankings and P(first better)."""

import json
import math

import pytest

from judgelm import Judge
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError
from judgelm.modes import make_mode
from judgelm.modes.reward import Reward
from judgelm.records import Completion, Sample, Truncation
from judgelm.runs.runner import judge
from tests.support.in_process import exit_code

REWARDS = {"good": "3.5", "fair": "1.5", "bad": "-2", "again": "1.5", "broken": "nan", "huge": "1000"}


def rewarded(prompt):
    """The number of the last answer."""
    return REWARDS[prompt.spans[-1].text]


def judged(*answers, engine=None, turns=None, **options):
    metadata = {} if turns is None else {"turns": turns}
    sample = Sample(id="1", question="q", answers=answers, metadata=metadata)
    [judgment] = judge([sample], Reward(**options), engine or ScriptedEngine(rewarded))
    return judgment


def test_p_first_better_is_the_logistic_function_of_the_difference():
    judgment = judged("good", "fair")
    # 3.5 - 1.5 = 2; 1 / (1 + e^-2) = 0.880797
    assert judgment.winner == 1
    assert judgment.scores == (3.5, 1.5)
    assert judgment.probability == pytest.approx(0.880797, abs=1e-6)
    # at temperature 4: 1 / (1 + e^-0.5) = 0.622459
    assert judged("good", "fair", calibration_temperature=4).probability == pytest.approx(0.622459, abs=1e-6)


def test_rewards_far_apart_do_not_overflow():
    assert judged("bad", "huge").probability == 0.0
    assert judged("huge", "bad").probability == 1.0


def test_equal_rewards_are_a_tie_and_the_threshold_widens_it():
    assert judged("fair", "again").winner == "tie"
    assert judged("good", "fair", tie_threshold=0.39).winner == "tie"  # 0.8808 - 0.5 = 0.3808
    assert judged("good", "fair", tie_threshold=0.38).winner == 1


def test_one_answer_is_graded_and_three_are_ranked_with_ties():
    assert judged("bad").verdict.score == -2
    assert judged("fair", "bad", "good", "again").verdict.order == ((2,), (0, 3), (1,))


def test_a_reward_that_is_no_number_fails_the_judgment():
    judgment = judged("good", "broken")
    assert judgment.verdict is None
    assert judgment.failure.code == "engine"
    assert "the reward is nan" in judgment.failure.why
    assert judgment.scores is None


def test_an_engine_without_rewards_fails_the_judgment():
    class Writer(ScriptedEngine):
        def answer(self, request):
            return Completion(key=request.key, texts=("8 6",), finish_reasons=("stop",))

    judgment = judged("good", engine=Writer({"*": ""}))
    assert judgment.failure.code == "engine"
    assert "the engine returned no reward" in judgment.failure.why


def test_answers_that_are_the_same_after_the_cut_are_no_tie():
    class Cutting(ScriptedEngine):
        def answer(self, request):
            cut = (Truncation(answer=0, tokens_before=900, tokens_after=500),)
            return Completion(key=request.key, texts=("",), finish_reasons=("stop",), reward=1.5, truncations=cut)

    judgment = judged("fair", "good", engine=Cutting({"*": ""}))
    assert judgment.verdict is None
    assert judgment.failure.code == "equal_after_cut"


def test_a_dialogue_is_read_with_all_its_turns_of_one_assistant():
    seen = []

    def read(prompt):
        seen.append([(span.role, span.text) for span in prompt.spans])
        return rewarded(prompt)

    turns = [{"question": "q0", "answers": ["a0", "b0"]}, {"question": "q", "answers": ["good", "bad"]}]
    assert judged("good", "bad", engine=ScriptedEngine(read), turns=turns).winner == 1
    assert seen == [
        [("user", "q0"), ("assistant", "a0"), ("user", "q"), ("assistant", "good")],
        [("user", "q0"), ("assistant", "b0"), ("user", "q"), ("assistant", "bad")],
    ]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("reward", {"template": "yes-no"}, "mode reward requires"),
        ("reward", {"tie_threshold": 0.6}, "tie_threshold is 0.6"),
        ("reward", {"calibration_temperature": 0}, "calibration_temperature is 0.0; it must be above 0"),
        ("conversation", {"template": "reward"}, "mode conversation: reward models; use mode reward"),
        ("pair", {"template": "reward", "reasons": "all"}, "cannot give reasons"),
        ("pair", {"template": "reward", "criterion": "Is it short?"}, "template reward does not support criteria"),
        ("pair", {"template": "reward", "retry_unparseable": True}, "retry_unparseable"),
    ],
)
def test_options_that_rewards_do_not_have_are_refused(name, options, message):
    own = {key: options.pop(key) for key in ("template", "calibration_temperature") if key in options}
    with pytest.raises(ConfigError, match=message):
        make_mode(name, options, own)


def test_pairs_grades_and_ranks_take_a_reward_model_as_any_judge():
    with Judge("1.5", engine="scripted", reading="reward") as scripted:
        assert scripted.compare("q", "a", "b").winner == "tie"
        assert scripted.grade("q", "a").verdict.score == 1.5
        assert scripted.rank("q", ["a", "b", "c"]).verdict.order == ((0, 1, 2),)


def test_the_command_judges_by_a_reward_model(tiny_reward_model, tmp_path):
    rows = [{"question": "what is it", "answers": answers} for answers in (["paris", "london"], ["a fox"], list("abc"))]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), "--mode", "reward"]
    assert exit_code("judgelm-batch", *arguments, "--model", tiny_reward_model, "--dtype", "float32") == 0
    pair, one, three = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    first, second = pair["scores"]
    assert pair["probability"] == pytest.approx(1 / (1 + math.exp(second - first)))
    assert one["scores"] == [one["verdict"]["score"]]
    assert sorted(index for tied in three["verdict"]["order"] for index in tied) == [0, 1, 2]


def test_models_and_readings_that_do_not_fit_are_refused_before_loading(tiny_model, tiny_reward_model):
    with pytest.raises(
        ConfigError, match="cannot be used as a reward model; this requires a sequence-classification head"
    ):
        Judge(str(tiny_model), reading="reward")
    with pytest.raises(ConfigError, match=r"reward models do not support reading yes-no"):
        Judge(str(tiny_reward_model), reading="yes-no")
    with pytest.raises(ConfigError, match="cannot be used as a reward model"):
        Judge("name", engine="openai", reading="reward", engine_args={"base_url": "http://127.0.0.1:1/v1"})
