"""Judges that are scored by the probability of one word, and reward models, which return a number."""

import math
from dataclasses import replace

import pytest

from judgelm import Judge
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes import Pairwise, make_mode, mode_type
from judgelm.modes.conversation import Conversation
from judgelm.modes.multi import Multi
from judgelm.modes.reward import Reward
from judgelm.modes.single import Single
from judgelm.records import PairVerdict, RankingVerdict, Sample, Truncation
from judgelm.runs.runner import judge
from tests.support.flows import SAMPLE, broken, drive, reply, text_of, yes
from tests.support.in_process import exit_code
from tests.support.jsonl_files import rows_of, write_rows

YES_NO, LETTERS = Pairwise(template="yes-no"), Pairwise(template="letters")


def letters(a, b, blank_a=0.0, blank_b=0.0):
    return reply("A", shares=[a, blank_a, b, blank_b])


def test_yes_and_no_are_summed_over_their_spellings_and_compared_between_answers():
    # six spellings of yes, then of no. First: yes 0.6, no 0.3, others 0.1: odds 2; second: yes 0.2, no 0.8: odds 1/4
    first = reply("Yes", shares=(0.3, 0.2, 0, 0.1, 0, 0, 0.2, 0, 0, 0, 0.1, 0))
    second = reply("Yes", shares=(0.1, 0, 0, 0.1, 0, 0, 0.5, 0.3, 0, 0, 0, 0))
    requests, judgment = drive(YES_NO, [first, second])
    assert requests[0][0].candidates[:7] == ("Yes", "yes", "YES", " Yes", " yes", " YES", "No")
    assert [request.sampling.max_tokens for request in requests[0]] == [1, 1]
    # log 2 - log 1/4 = log 8; 8 / (8 + 1)
    assert judgment.probability == pytest.approx(8 / 9)
    assert judgment.verdict == PairVerdict(winner=1)
    assert [shown.order for shown in judgment.shown] == [(0,), (1,)]
    assert judgment.shown[0].log_odds == pytest.approx(math.log(2))
    assert judgment.shown[0].grades.unassigned == pytest.approx(0.1)
    # P(yes) 2/3 and 1/5 on a scale from 1 to 10
    assert judgment.scores == (pytest.approx(7), pytest.approx(2.8))
    assert judgment.consistent is None


def test_letters_are_averaged_over_both_orders_as_log_odds():
    requests, judgment = drive(LETTERS, [letters(0.8, 0.1, 0.0, 0.1), letters(0.5, 0.5)])
    assert text_of(requests[0][0].prompt).index("\na\n") < text_of(requests[0][0].prompt).index("\nb\n")
    # (log 4 + log 1) / 2 = log 2
    assert judgment.probability == pytest.approx(2 / 3)
    assert judgment.scores == (pytest.approx(7), pytest.approx(4))
    assert [shown.order for shown in judgment.shown] == [(0, 1), (1, 0)]
    assert judgment.shown[0].distribution.first_better == pytest.approx(0.8)


@pytest.mark.parametrize(("second", "consistent"), [((0.1, 0.9), True), ((0.9, 0.1), False)])
def test_letters_are_consistent_where_both_orders_name_the_same_answer(second, consistent):
    _, judgment = drive(LETTERS, [letters(0.9, 0.1), letters(*second)])
    assert judgment.consistent is consistent


def test_grades_are_compared_by_their_expectation():
    # (1, 2, 3) with a blank and without: 0.5 of 3 and 0.5 of 2; 1 of 2
    first, second = reply("3", shares=[0, 0, 0.5, 0, 0.25, 0.25]), reply("2", shares=[0, 0, 1, 0, 0, 0])
    _, judgment = drive(Pairwise(template="grade", scale=(1, 3)), [first, second])
    assert judgment.scores == (2.5, 2)
    assert judgment.probability == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert judgment.shown[0].log_odds is None
    # a scale of two grades is not a question of yes or no
    mode = Pairwise(template="grade", scale=(0, 1))
    _, judgment = drive(mode, [reply("1", shares=[0.2, 0, 0.8, 0]), reply("0", shares=[0.9, 0, 0.1, 0])])
    assert judgment.scores == (pytest.approx(0.8), pytest.approx(0.1))
    assert (judgment.winner, judgment.shown[0].log_odds) == (1, None)


def test_the_calibration_temperature_divides_the_difference():
    mode = replace(YES_NO, calibration_temperature=2.0)
    _, judgment = drive(mode, [yes(0.8), yes(0.2)])
    # log 4 - log 1/4 = log 16, halved: log 4
    assert judgment.probability == pytest.approx(0.8)


@pytest.mark.parametrize(("threshold", "winner"), [(0.05, "tie"), (0.0, 1)])
def test_a_tie_is_a_probability_near_one_half(threshold, winner):
    assert drive(replace(YES_NO, tie_threshold=threshold), [yes(0.52), yes(0.5)])[1].winner == winner


def test_lost_probability_a_missing_one_or_a_failed_prompt_fails_the_pair():
    _, judgment = drive(YES_NO, [yes(0.5, unassigned=0.52), yes(1)])
    assert (judgment.verdict, judgment.failure.code) == (None, "low_coverage")
    assert "yes, no is only 0.48; the minimum is 0.5" in judgment.failure.why
    _, judgment = drive(YES_NO, [reply("Yes"), reply("No")])
    assert (judgment.failure.code, "no probabilities" in judgment.failure.why) == ("engine", True)
    _, judgment = drive(LETTERS, [letters(0.9, 0.1), broken()])
    assert (judgment.verdict, judgment.probability, judgment.consistent) == (None, None, None)


def test_a_word_that_the_engine_does_not_list_has_a_minimum_probability():
    _, judgment = drive(YES_NO, [yes(1), yes(1)])
    assert judgment.shown[0].log_odds == pytest.approx(-math.log(1e-9), rel=1e-3)
    assert judgment.winner == "tie"


def test_one_answer_is_graded_by_yes_or_compared_with_its_reference_by_letters():
    sample = replace(SAMPLE, answers=("a",), reference="r")
    requests, judgment = drive(Single(template="yes-no"), [yes(0.8)], sample=sample)
    assert judgment.verdict.score == pytest.approx(8.2)
    assert "Reference answer, which is correct:\nr\n" in text_of(requests[0][0].prompt)
    _, judgment = drive(Single(template="letters"), [letters(0.8, 0.2), letters(0.2, 0.8)], sample=sample)
    # the reference stands first: log 4 for it in both orders
    assert judgment.verdict.score == pytest.approx(1 + 9 * 0.2)
    with pytest.raises(InputError, match="reading letters requires"):
        drive(Single(template="letters"), sample=replace(SAMPLE, answers=("a",)))


def test_answers_are_ranked_by_yes_one_by_one_and_by_letters_at_every_place():
    sample = Sample(id="1", question="q", answers=("a", "b", "c"))
    _, judgment = drive(Multi(template="yes-no"), [yes(0.5), yes(0.2), yes(0.9)], sample=sample)
    assert judgment.verdict == RankingVerdict(order=((2,), (0,), (1,)))
    # orders abc, bca, cab; A is always 0.6, so the place decides nothing: all tied
    flat = reply("A", shares=[0.6, 0, 0.2, 0, 0.2, 0])
    requests, judgment = drive(Multi(template="letters"), [flat] * 3, sample=sample)
    assert requests[0][0].candidates == ("A", " A", "B", " B", "C", " C")
    assert (judgment.verdict, judgment.consistent) == (RankingVerdict(order=((0, 1, 2),)), False)
    with pytest.raises(ConfigError, match="at most 26"):
        drive(Multi(template="letters"), sample=replace(sample, answers=tuple("x" * (n + 1) for n in range(27))))


def test_dialogues_are_judged_turn_by_turn_and_their_strengths_averaged():
    turns = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a2", "b2"]}]
    sample = Sample(id="1", question="q2", answers=("a2", "b2"), metadata={"turns": turns})
    requests, judgment = drive(Conversation(template="yes-no"), [yes(0.8), yes(0.5)] * 2, sample=sample)
    assert "User: q1\n\nAssistant: a1\n\nUser: q2\n\n[Answer]\na2\n" in text_of(requests[0][2].prompt)
    assert judgment.probability == pytest.approx(0.8)
    assert [shown.part for shown in judgment.shown] == ["turn 1", "turn 1", "turn 2", "turn 2"]


def test_a_reason_is_requested_in_the_turn_after_the_word():
    words, why = [yes(0.8), replace(yes(0.2), texts=("No",))], [reply("It is right."), reply("It is wrong.")]
    requests, judgment = drive(replace(YES_NO, reasons="all"), words, why)
    last = [(span.role, span.text[:4]) for span in requests[1][1].prompt.spans[-2:]]
    assert last == [("assistant", "No"), ("user", "Why?")]
    assert [shown.reason for shown in judgment.shown] == ["It is right.", "It is wrong."]
    assert judgment.reason == "Answer 1: It is right.\n\nAnswer 2: It is wrong."


def test_a_criterion_is_part_of_the_question_to_the_judge():
    mode = Pairwise(template="letters", criterion="It rhymes.")
    requests, _ = drive(mode, [letters(0.5, 0.5)] * 2)
    assert "Criterion: It rhymes." in text_of(requests[0][0].prompt)
    assert mode.template == "letters-criterion"


@pytest.mark.parametrize("name", ["pair", "single", "multi", "conversation"])
def test_the_modes_of_score_lines_can_be_read_by_words(name):
    mode = make_mode(name, {"criterion": "It rhymes."}, {"template": "yes-no", "scale": (1, 5), "step": 1})
    assert (type(mode), mode.template) == (mode_type(name), "yes-no-criterion")


REWARDS = {"good": "3.5", "fair": "1.5", "bad": "-2", "again": "1.5", "huge": "1000"}


def rewarded(prompt):
    """The number of the last answer."""
    return REWARDS[prompt.spans[-1].text]


def rate(*answers, engine=None, turns=None, **options):
    sample = Sample(id="1", question="q", answers=answers, metadata={"turns": turns} if turns else {})
    [judgment] = judge([sample], Reward(**options), engine or ScriptedEngine(rewarded))
    return judgment


def test_p_first_better_is_the_logistic_function_of_the_difference():
    judgment = rate("good", "fair")
    # 3.5 - 1.5 = 2; 1 / (1 + e^-2) = 0.880797
    assert (judgment.winner, judgment.scores) == (1, (3.5, 1.5))
    assert judgment.probability == pytest.approx(0.880797, abs=1e-6)
    # at temperature 4: 1 / (1 + e^-0.5) = 0.622459
    assert rate("good", "fair", calibration_temperature=4).probability == pytest.approx(0.622459, abs=1e-6)
    # rewards far apart do not overflow
    assert (rate("bad", "huge").probability, rate("huge", "bad").probability) == (0.0, 1.0)


def test_equal_rewards_are_a_tie_and_the_threshold_widens_it():
    assert rate("fair", "again").winner == "tie"
    assert rate("good", "fair", tie_threshold=0.39).winner == "tie"  # 0.8808 - 0.5 = 0.3808
    assert rate("good", "fair", tie_threshold=0.38).winner == 1


def test_one_answer_is_graded_and_three_are_ranked_with_ties():
    assert rate("bad").verdict.score == -2
    assert rate("fair", "bad", "good", "again").verdict.order == ((2,), (0, 3), (1,))


CUT = (Truncation(answer=0, tokens_before=900, tokens_after=500),)


@pytest.mark.parametrize(
    ("returned", "code", "why"),
    [
        ({"reward": math.nan}, "engine", "the reward is nan"),
        ({}, "engine", "the engine returned no reward"),
        ({"reward": 1.5, "truncations": CUT}, "equal_after_cut", ""),  # the same after the cut, which is not a tie
    ],
)
def test_a_missing_reward_or_answers_cut_alike_fail_the_judgment(returned, code, why):
    class Returning(ScriptedEngine):
        def answer(self, request):
            return replace(reply("8 6"), key=request.key, **returned)

    judgment = rate("fair", "good", engine=Returning({"*": ""}))
    assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, code)
    assert why in judgment.failure.why


def test_a_dialogue_is_read_with_all_its_turns_of_one_assistant():
    seen = []

    def read(prompt):
        seen.append([(span.role, span.text) for span in prompt.spans])
        return rewarded(prompt)

    turns = [{"question": "q0", "answers": ["a0", "b0"]}, {"question": "q", "answers": ["good", "bad"]}]
    assert rate("good", "bad", engine=ScriptedEngine(read), turns=turns).winner == 1
    assert seen == [
        [("user", "q0"), ("assistant", "a0"), ("user", "q"), ("assistant", "good")],
        [("user", "q0"), ("assistant", "b0"), ("user", "q"), ("assistant", "bad")],
    ]


def test_pairs_grades_and_ranks_take_a_reward_model_as_any_judge():
    with Judge("1.5", engine="scripted", reading="reward") as scripted:
        assert scripted.compare("q", "a", "b").winner == "tie"
        assert scripted.grade("q", "a").verdict.score == 1.5
        assert scripted.rank("q", ["a", "b", "c"]).verdict.order == ((0, 1, 2),)


def test_the_command_judges_by_a_reward_model(tiny_reward_model, tmp_path):
    answers = (["paris", "london"], ["a fox"], list("abc"))
    path = write_rows(tmp_path / "in.jsonl", [{"question": "what is it", "answers": each} for each in answers])
    arguments = (path, "-o", tmp_path / "out.jsonl", "--mode", "reward", "--model", tiny_reward_model)
    assert exit_code("judgelm-batch", *arguments, "--dtype", "float32") == 0
    pair, one, three = rows_of(tmp_path / "out.jsonl")
    first, second = pair["scores"]
    assert pair["probability"] == pytest.approx(1 / (1 + math.exp(second - first)))
    assert one["scores"] == [one["verdict"]["score"]]
    assert sorted(index for tied in three["verdict"]["order"] for index in tied) == [0, 1, 2]


def test_models_without_the_reading_are_rejected_before_loading(tiny_model, tiny_reward_model):
    with pytest.raises(ConfigError, match="requires a sequence-classification head"):
        Judge(str(tiny_model), reading="reward")
    with pytest.raises(ConfigError, match=r"reward models have no reading yes-no"):
        Judge(str(tiny_reward_model), reading="yes-no")
    with pytest.raises(ConfigError, match="cannot be used as a reward model"):
        Judge("name", engine="openai", reading="reward", engine_args={"base_url": "http://127.0.0.1:1/v1"})
