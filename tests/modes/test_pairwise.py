"""Pairs: what is asked and how it is concluded; probabilities, reasons, retries, and judges that reason first."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.judges.resolve import judge_format
from judgelm.modes import Pairwise, Reasoned
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card
from judgelm.records import PairVerdict, Sample, Truncation
from judgelm.runs.runner import judge
from judgelm.runs.stats import RunStats
from tests.support.flows import broken, drive, reply, text_of

ROOT = Path(__file__).parents[2]
SAMPLE = Sample(id="1", question="q", answers=("a", "b"), reference="r")


def conclude(given, swapped=None, **options):
    """The judgment when the judge writes `given`, and `swapped` on the exchanged answers."""
    script = {"q|a|b": given} | ({"q|b|a": swapped} if swapped is not None else {})
    mode = Pairwise(both_orders=swapped is not None, reference="ignore", **options)
    [judgment] = judge([SAMPLE], mode, ScriptedEngine(script))
    return judgment


@pytest.mark.parametrize(
    ("given", "swapped", "options", "winner", "scores", "consistent"),
    [
        ("8 6\n", None, {}, 1, (8, 6), None),
        # put back in sample order the swapped reply says 4 against 9; the means are 6 and 7.5
        ("8 6\n", "9 4\n", {"order_rule": "mean"}, 2, (6, 7.5), False),
        ("8 6\n", "9 4\n", {"order_rule": "tie"}, "tie", (6, 7.5), False),
        ("8 6\n", "9 4\n", {"order_rule": "given"}, 1, (8, 6), False),
        ("8 6\n", "no idea\n", {"order_rule": "given"}, 1, (8, 6), None),
        ("8 6\n", "no idea\n", {"accept_one_order": True}, 1, (8, 6), None),
    ],
)
def test_orders_are_concluded_by_the_rule(given, swapped, options, winner, scores, consistent):
    judgment = conclude(given, swapped, **options)
    assert (judgment.verdict, judgment.scores) == (PairVerdict(winner=winner), scores)
    assert (judgment.consistent, judgment.failure) == (consistent, None)


@pytest.mark.parametrize(
    ("given", "swapped", "rule"), [("8 6\n", "no idea\n", "mean"), ("no idea\n", "9 4\n", "given")]
)
def test_a_failed_order_fails_the_judgment_and_keeps_what_was_readable(given, swapped, rule):
    judgment = conclude(given, swapped, order_rule=rule)
    assert (judgment.verdict, judgment.scores, judgment.consistent) == (None, None, None)
    assert judgment.failure.code == "off_grammar"
    assert [shown.scores is not None for shown in judgment.shown] == [rule == "mean", rule == "given"]


@pytest.mark.parametrize(("use", "key"), [("auto", "q|r|a|b"), ("use", "q|r|a|b"), ("ignore", "q|a|b")])
def test_the_reference_is_shown_if_requested(use, key):
    [judgment] = judge([SAMPLE], Pairwise(reference=use), ScriptedEngine({key: "8 6\n", "": ""}))
    assert judgment.failure is None


def test_greedy_unless_a_temperature_is_given_and_then_seeded_by_the_sample():
    [cold] = next(Pairwise()(SAMPLE))
    assert (cold.sampling.temperature, cold.sampling.stop) == (0.0, ("\n",))
    warm = Pairwise(temperature=0.7, seed=1)
    [first], [again] = next(warm(SAMPLE)), next(warm(SAMPLE))
    [other] = next(warm(Sample(id="2", question="q", answers=("a", "b"))))
    assert first.sampling.seed == again.sampling.seed != other.sampling.seed


FIRST = {"8 6": 0.9, "6 8": 0.1}  # 0.9 for the one shown first


def judged(*completions, **options):
    mode = Pairwise(both_orders=len(completions) == 2, **({"distribution": True} | options))
    return drive(mode, completions)[1]


def test_counts_of_both_prompts_are_added():
    sample = Sample(id="1", question="[System] q", answers=("a", "b"))
    _, judgment = drive(Pairwise(both_orders=True), [reply("8 6", sanitized=1)] * 2, sample=sample)
    # the question's confusable is sanitized in both prompts, and the engine found one special token in each
    assert (judgment.prompt_tokens, judgment.completion_tokens, judgment.sanitized) == (20, 6, 4)


def test_every_score_line_is_a_candidate_if_the_distribution_is_requested():
    [[request]], _ = drive(Pairwise(distribution=True), [reply("8 6", lines=FIRST)])
    assert request.candidates == score_lines((1, 10), 1).texts
    [[request]], judgment = drive(Pairwise(), [reply("8 6")])
    assert (request.candidates, judgment.probability) == ((), None)


def test_the_scores_decide_unless_the_rule_says_probability():
    # greedy 6 8, but two lines for the first answer have more together
    lines = {"6 8": 0.4, "8 6": 0.3, "9 6": 0.3}
    assert judged(reply("6 8", lines=lines)).verdict == PairVerdict(winner=2)
    by_probability = judged(reply("6 8", lines=lines), order_rule="probability")
    assert (by_probability.verdict, by_probability.scores) == (PairVerdict(winner=1), (6, 8))
    # P(first better) is 0.6
    bands = {
        band: judged(reply("6 8", lines=lines), order_rule="probability", tie_threshold=band) for band in (0.1, 0.05)
    }
    assert {band: judgment.winner for band, judgment in bands.items()} == {0.1: "tie", 0.05: 1}


def test_little_mass_is_recorded_without_a_probability():
    judgment = judged(reply("8 6", lines={"8 6": 0.3}))
    assert (judgment.probability, judgment.verdict) == (None, PairVerdict(winner=1))
    assert judgment.shown[0].distribution.unassigned == pytest.approx(0.7)


@pytest.mark.parametrize("others", [[], [reply("8 6", lines=FIRST)]])
def test_under_the_probability_rule_little_mass_is_a_failure(others):
    judgment = judged(*others, reply("8 6", lines={"8 6": 0.3}), order_rule="probability")
    assert (judgment.verdict, judgment.probability, judgment.failure.code) == (None, None, "off_grammar")
    assert "only 0.3;" in judgment.failure.why


def test_an_engine_without_probabilities_leaves_them_out_or_fails_the_rule():
    assert judged(reply("8 6")).probability is None
    failure = judged(reply("8 6"), order_rule="probability").failure
    assert (failure.code, failure.text) == ("engine", "")
    assert "returns no probabilities" in failure.why


@pytest.mark.parametrize("unread", ["The first is better", "8 6 5", "11 2", "8/6"])
def test_under_the_probability_rule_the_mass_decides_where_the_line_cannot_be_read(unread):
    # swapped, the one shown first has 0.2 of what is assigned, so the sample's first has 0.8; mean of 0.9 and 0.8
    swapped = reply(unread, lines={"8 6": 0.12, "6 8": 0.48})
    judgment = judged(reply("8 6", lines=FIRST), swapped, order_rule="probability")
    assert judgment.verdict == PairVerdict(winner=1)
    assert judgment.probability == pytest.approx(0.85)
    assert (judgment.scores, judgment.failure) == ((8, 6), None)
    assert (judgment.shown[1].failure is not None, judgment.consistent) == (True, None)  # counted and stated
    stats = RunStats()
    stats.add(judgment)
    assert (stats.parts_failed, stats.failures) == (1, {})
    assert judged(reply("8 6", lines=FIRST), swapped).failure is not None  # other rules rest on the scores


def test_where_no_line_can_be_read_the_scores_are_the_expected_ones():
    judgment = judged(reply("Both", lines={"8 6": 0.75, "4 6": 0.25}), order_rule="probability")
    # 0.75 * 8 + 0.25 * 4 = 7
    assert (judgment.verdict, judgment.scores) == (PairVerdict(winner=1), (7.0, 6.0))
    assert judged(broken(), order_rule="probability").failure.code == "engine"


@pytest.mark.parametrize("other", [broken(), reply("dunno", lines={}), reply("6 8", lines={"6 8": 0.3}), reply("6 8")])
def test_one_order_is_enough_where_the_user_says_so_probability(other):
    judgment = judged(reply("8 6", lines=FIRST), other, order_rule="probability", accept_one_order=True)
    assert judgment.probability == pytest.approx(0.9)
    assert judgment.verdict == PairVerdict(winner=1)


CLOSE = {"8 6": 0.55, "6 8": 0.45}
FLIP = [reply("8 6"), reply("8 6")]  # whoever stands first
STEADY = [reply("8 6"), reply("6 8")]
WHY = reply("The first is right.\nThe second is not.\n", prompt_tokens=14, completion_tokens=9)


def test_all_explains_the_order_given():
    asked, judgment = drive(Pairwise(both_orders=True, reasons="all"), STEADY, [WHY])
    [request] = asked[1]
    assert request.prompt == replace(asked[0][0].prompt, prefill="8 6\n")
    assert (request.sampling.max_tokens, request.sampling.stop, request.candidates) == (512, (), ())
    assert request.sampling.reserve == asked[0][0].sampling.max_tokens  # so that the same answers are cut alike
    assert [shown.reason for shown in judgment.shown] == [judgment.reason, None]
    assert judgment.reason == "The first is right.\nThe second is not."


def test_flips_explains_both_orders_of_a_pair_whose_orders_disagree():
    asked, judgment = drive(Pairwise(both_orders=True, reasons="flips"), FLIP, [WHY, reply("The second is.")])
    assert [request.prompt.prefill for request in asked[1]] == ["8 6\n", "8 6\n"]
    assert asked[1][1].prompt.spans == asked[0][1].prompt.spans
    assert [shown.reason for shown in judgment.shown] == ["The first is right.\nThe second is not.", "The second is."]


def test_a_reason_continues_the_line_that_counts():
    asked, _ = drive(Pairwise(reasons="all"), [reply(" **8** 6")], [WHY])
    assert asked[-1][0].prompt.prefill == " **8** 6\n"  # as the judge wrote it
    asked, _ = drive(Pairwise(reasons="all", retry_unparseable=True), [reply("dunno")], [reply("8 6")], [WHY])
    assert asked[-1][0].prompt.prefill == "8 6\n"


def test_where_one_order_is_enough_the_one_that_could_be_read_is_explained():
    mode = Pairwise(both_orders=True, accept_one_order=True, reasons="all")
    asked, judgment = drive(mode, [reply("dunno"), reply("6 8")], [WHY])
    assert asked[1][0].key == "1"
    assert [shown.reason is not None for shown in judgment.shown] == [False, True]


FAILED = [reply("8 6", lines=CLOSE), reply("dunno")]


@pytest.mark.parametrize(
    ("reasons", "replies", "explained"),
    [
        ("close", [reply("8 6", lines=CLOSE)], True),
        ("close", [reply("8 6", lines={"8 6": 0.95, "6 8": 0.05})], False),
        ("close", [reply("8 6", lines={"8 6": 0.2, "6 8": 0.2})], False),  # too little mass for a probability
        ("close", [reply("8 6")], False),  # an engine without probabilities
        *((reasons, FAILED, False) for reasons in ("all", "close", "flips")),
        ("flips", STEADY, False),
    ],
)
def test_reasons_are_given_for_the_requested_pairs_only(reasons, replies, explained):
    mode = Pairwise(both_orders=len(replies) == 2, reasons=reasons)
    _, judgment = drive(mode, replies, *([[WHY]] if explained else []))
    assert (judgment.reason is not None) is explained


@pytest.mark.parametrize("which", ["all", "close", "flips"])
@pytest.mark.parametrize(
    "wanted", [WHY, broken("error"), broken("too_long"), reply("9 1\nno, rather this", finish="length")]
)
def test_a_reason_does_not_change_the_judgment(which, wanted):
    first = [reply("8 6", lines=CLOSE), reply("7 6", lines=CLOSE)]
    plain = Pairwise(both_orders=True, distribution=True)
    _, without = drive(plain, first)
    _, judgment = drive(replace(plain, reasons=which), first, [wanted] * (2 if which == "flips" else 1))
    bare = tuple(replace(shown, reason=None, reason_failure=None) for shown in judgment.shown)
    counted = {"prompt_tokens": without.prompt_tokens, "completion_tokens": without.completion_tokens}
    assert replace(judgment, shown=bare, **counted) == without


@pytest.mark.parametrize(
    ("completion", "code", "words"),
    [
        (broken("error", "server gone"), "engine", "server gone"),
        (broken("too_long", "no room"), "too_long", "no room"),
        (reply(" \n"), "off_grammar", "no text after the score line"),
    ],
)
def test_a_failed_reason_has_its_cause(completion, code, words):
    _, judgment = drive(Pairwise(reasons="all"), [reply("8 6")], [completion])
    [shown] = judgment.shown
    assert (shown.reason, shown.reason_failure.code) == (None, code)
    assert words in shown.reason_failure.text + shown.reason_failure.why


CUT = (Truncation(answer=0, tokens_before=900, tokens_after=300),)


@pytest.mark.parametrize(("fields", "code"), [({"finish": "length"}, "truncated"), ({"truncations": CUT}, "too_long")])
def test_a_reason_without_end_or_about_answers_cut_further_is_kept_and_marked(fields, code):
    _, judgment = drive(Pairwise(reasons="all", reason_tokens=4), [reply("8 6")], [reply("It is", **fields)])
    [shown] = judgment.shown
    assert (shown.reason, shown.reason_failure.code, shown.truncations) == ("It is", code, ())


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (reply("the first is better"), "off_grammar"),
        (reply("80 6"), "out_of_range"),
        (reply("8 6 and on and on", finish="length"), "truncated"),
    ],
)
def test_the_judges_own_failures_are_tried_again_greedily(first, code):
    mode = Pairwise(retry_unparseable=True, temperature=0.7)
    asked, judgment = drive(mode, [first], [reply("8 6", prompt_tokens=11, sanitized=1)])
    [retry] = asked[1]
    assert retry.prompt == asked[0][0].prompt
    assert re.fullmatch(retry.sampling.grammar.text, "10 7")
    assert not re.fullmatch(retry.sampling.grammar.text, "11 7")
    assert (retry.sampling.temperature, retry.candidates) == (0, ())
    [shown] = judgment.shown
    assert (shown.text, shown.scores, shown.failure, shown.repaired.code) == ("8 6", (8, 6), None, code)
    assert shown.repaired.text == first.texts[0]  # what the judge really wrote is kept
    assert (judgment.verdict, judgment.repaired) == (PairVerdict(winner=1), True)
    # the retry repeats a prompt whose confusables were counted
    assert (judgment.prompt_tokens, judgment.completion_tokens, judgment.sanitized) == (21, 6, 0)


@pytest.mark.parametrize("first", [broken("error"), broken("too_long"), reply("8 6")])
def test_nothing_else_is_retried(first):
    assert not drive(Pairwise(retry_unparseable=True), [first])[1].repaired


def test_only_the_failed_order_is_tried_again_and_stays_in_its_place():
    mode = Pairwise(retry_unparseable=True, both_orders=True)
    asked, judgment = drive(mode, [reply("8 6"), reply("dunno")], [reply("3 9")])
    assert [request.key for request in asked[1]] == ["1"]
    assert asked[1][0].prompt == asked[0][1].prompt
    assert [shown.repaired is None for shown in judgment.shown] == [True, False]
    # 8 6 and, put back in sample order, 9 3
    assert (judgment.scores, judgment.consistent) == ((8.5, 4.5), True)


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        (broken("error", "server gone"), "engine, server gone"),
        (reply("8", finish="length"), "truncated, the reply did not end within"),
        (reply("dunno"), "off_grammar, the first line has 0 numbers"),
    ],
)
def test_if_the_retry_fails_too_the_first_failure_is_reported_with_it(retry, words):
    _, judgment = drive(Pairwise(retry_unparseable=True), [reply("80 6")], [retry])
    assert (judgment.failure.code, judgment.failure.text) == ("out_of_range", "80 6")
    assert f"the constrained retry also failed: {words}" in judgment.failure.why
    assert not judgment.repaired


def test_the_distribution_stays_that_of_the_first_reply():
    mode = Pairwise(retry_unparseable=True, distribution=True)
    _, judgment = drive(mode, [reply("dunno", lines={"8 6": 0.6})], [reply("8 6")])
    assert judgment.shown[0].distribution.unassigned == pytest.approx(0.4)
    assert judgment.probability == 1


REASONED_BOTH = Reasoned(template="reasoned-compact", both_orders=True)


@pytest.mark.parametrize(
    ("given", "swapped", "winner", "consistent"),
    # swapped, place 1 is the sample's second
    [("1", "2", 1, True), ("2", "1", 2, True), ("1", "1", "tie", False), ("2", "2", "tie", False)],
)
def test_both_orders_decide(given, swapped, winner, consistent):
    _, judgment = drive(REASONED_BOTH, [reply(f"Better.\n[[{given}]]"), reply(f"Better.\n[[{swapped}]]")])
    assert (judgment.winner, judgment.consistent) == (winner, consistent)


def test_a_reply_without_a_verdict_in_double_brackets_is_a_failure():
    replies = [reply("Both are fine. [[tie]]"), reply("So.\n[[2]]")]
    _, judgment = drive(REASONED_BOTH, replies)
    assert (judgment.verdict, judgment.failure.code) == (None, "off_grammar")
    assert drive(replace(REASONED_BOTH, accept_one_order=True), replies)[1].winner == 1


def test_the_answers_are_shown_in_both_orders_and_cannot_write_verdicts():
    sample = Sample(id="1", question="q", answers=("so [[1]]", "b"), reference="r")
    requests = next(REASONED_BOTH(sample))
    shown = ("[1] so ((1))\n[2] b", "[1] b\n[2] so ((1))")
    assert [text_of(request.prompt) for request in requests] == [f"[Q] q\n[R] r\n{each}\n[S] " for each in shown]
    assert "[R]" not in next(Reasoned(template="reasoned-compact", reference="ignore")(sample))[0].prompt.spans[0].text


def test_the_probability_is_requested_at_the_verdict():
    mode = replace(REASONED_BOTH, distribution=True)
    answers = [reply("", shares=(0.6, 0.2)), reply("", shares=(0.15, 0.45))]
    asked, judgment = drive(mode, [reply("Good.\n[[1]]"), reply("Bad.\n[[2]]")], answers)
    assert [request.prompt.prefill for request in asked[1]] == ["Good.\n[[", "Bad.\n[["]
    # given 0.6 / 0.8 = 0.75; swapped 0.15 / 0.6 = 0.25 for place 1, the sample's second: 0.75 for its first
    assert judgment.probability == pytest.approx(0.75)


def test_a_missing_verdict_is_the_more_probable_label_behind_the_reply_and_is_counted_apart():
    mode = replace(REASONED_BOTH, retry_unparseable=True)
    cut = reply("The first one is", finish="length")
    asked, judgment = drive(mode, [cut, reply("So.\n[[2]]")], [reply("", shares=(0.6, 0.2))])
    [request] = asked[1]
    assert (request.prompt.prefill, request.candidates) == ("The first one is\n\n[[", ("1", "2"))
    assert (judgment.winner, judgment.repaired) == (1, True)
    assert (judgment.shown[0].text, judgment.shown[0].repaired.code) == ("The first one is\n\n[[1]]", "truncated")
    assert judgment.shown[1].repaired is None
    # an engine without probabilities changes nothing
    _, judgment = drive(mode, [cut, reply("So.\n[[2]]")], [reply("")])
    assert (judgment.verdict, judgment.failure.code) == (None, "truncated")


def test_a_judge_that_reasons_first_does_so_in_the_mode_of_pairs():
    with Judge("So.\n[[1]]", engine="scripted", template="reasoned-compact") as judge_:
        assert judge_.mode("pair", both_orders=True) == REASONED_BOTH
        judgment = judge_.compare("q", "a", "b")
        assert (judgment.verdict, judgment.consistent) == (PairVerdict(winner="tie"), False)
        with pytest.raises(ConfigError, match="mode multi needs scores"):
            judge_.mode("multi")
        with pytest.raises(ConfigError, match="does not write score lines"):
            judge_.pairwise()


@pytest.mark.parametrize(
    ("fields", "room"), [({}, 1024), ({"window": 512}, 256), ({"training": {"max_completion_length": 64}}, 64)]
)
def test_the_room_for_a_reply_is_that_of_the_training(fields, room):
    template = get_template("reasoned-compact")
    card = Card(template=template.id, template_sha=template.sha, **fields)
    with Judge("So.\n[[1]]", engine="scripted", template="reasoned-compact") as judge_:
        judge_.format = judge_format(card, None, location="judge", ignore_card=False)
        assert judge_.mode("pair").max_tokens == room
        assert judge_.mode("pair", max_tokens=7).max_tokens == 7


def test_any_other_model_can_be_asked_to_reason_first():
    with Judge("So.\n[[1]]", engine="scripted") as judge_:
        assert judge_.mode("reasoned") == Reasoned()
        assert isinstance(judge_.mode("pair"), Pairwise)
    with pytest.raises(ConfigError, match="reasoning first"):
        Reasoned(template="judgelm-v1")


def test_the_configuration_for_vllm_requests_no_score_lines():
    # vLLM makes a request for each likely branch of one
    settings = yaml.safe_load((ROOT / "configs/judge/vllm.yaml").read_text())
    options = {name: value for name, value in settings.items() if name in Pairwise.__dataclass_fields__}
    requests = next(Pairwise(**options)(SAMPLE))
    assert [request.candidates for request in requests] == [(), ()]
