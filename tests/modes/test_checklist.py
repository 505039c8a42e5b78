"""Checklists: what is asked, the weighted share by hand, and what is refused."""

import json
import math

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.errors import ConfigError, InputError
from judgelm.modes import make_mode
from judgelm.modes.checklist import Checklist, Criterion, parse_criteria, read_criteria
from judgelm.records import GradeVerdict, PairVerdict, RankingVerdict, Sample
from judgelm.runs.serialization import judgment_from_row, judgment_row
from tests.support.flows import broken, drive, reply, text_of

POLITE, LONG = Criterion(text="It is polite.", weight=2), Criterion(text="It is too long.", weight=-1)


def yes(probability, unassigned=0.0):
    """A reply of this P(yes), of yes and no alone."""
    mass = 1 - unassigned
    return reply("Yes", shares=[probability * mass, 0, 0, 0, 0, 0, (1 - probability) * mass, 0, 0, 0, 0, 0])


def sample(*answers, **metadata):
    return Sample(id="1", question="q", answers=answers, metadata=metadata)


def test_the_score_is_the_weighted_share_of_what_is_met():
    mode = Checklist(criteria=(POLITE, "It is right.", LONG))
    _, judgment = drive(mode, [yes(0.9), yes(0.6), yes(0.3, unassigned=0.2)], sample=sample("a"))
    # (2 * 0.9 + 1 * 0.6 - 1 * 0.3) / (2 + 1)
    assert judgment.verdict == GradeVerdict(score=pytest.approx(0.7))
    assert [shown.part for shown in judgment.shown] == ["[2] It is polite.", "It is right.", "[-1] It is too long."]
    assert judgment.shown[0].log_odds == pytest.approx(math.log(9))
    assert [shown.scores[0] for shown in judgment.shown] == pytest.approx([0.9, 0.6, 0.3])
    assert judgment_from_row(judgment_row(judgment)) == judgment


@pytest.mark.parametrize(
    ("met", "score"),
    [
        ((1, 1), (2 - 1) / 2),
        ((1, 0), 1),
        ((0, 1), -1 / 2),  # HealthBench clips the mean over samples, not a sample
        ((0.5, 0.49), 1),  # 0.5 is met
    ],
)
def test_hard_counts_points_as_healthbench_does(met, score):
    _, judgment = drive(Checklist(criteria=(POLITE, LONG), hard=True), list(map(yes, met)), sample=sample("a"))
    assert judgment.scores == (pytest.approx(score),)


@pytest.mark.parametrize(("margin", "winner"), [(0, 2), (0.19, 2), (0.2, "tie")])
def test_of_two_answers_the_higher_share_wins(margin, winner):
    mode = Checklist(criteria=("c", "d"), tie_margin=margin)
    _, judgment = drive(mode, [yes(0.5), yes(0.5), yes(0.6), yes(0.8)], sample=sample("a", "b"))
    assert judgment.scores == (pytest.approx(0.5), pytest.approx(0.7))
    assert judgment.verdict == PairVerdict(winner=winner)
    assert [shown.order for shown in judgment.shown] == [(0,), (0,), (1,), (1,)]


def test_more_answers_are_ranked():
    _, judgment = drive(Checklist(criteria=("c",)), [yes(0.2), yes(0.9), yes(0.2)], sample=sample("a", "b", "c"))
    assert judgment.verdict == RankingVerdict(order=((1,), (0, 2)))


def test_all_is_asked_in_one_batch_and_prompts_of_an_answer_differ_at_their_end_alone():
    mode = Checklist(criteria=("First.", "Second."))
    [requests], _ = drive(mode, [yes(0.5)] * 4, sample=sample("kale", "leek"))
    texts = [text_of(request.prompt) for request in requests]
    assert ["kale" in text for text in texts] == [True, True, False, False]
    assert texts[0].partition("First.")[0] == texts[1].partition("Second.")[0]
    assert texts[0].index("[End of answer]") < texts[0].index("First.")
    assert requests[0].sampling.max_tokens == 1


def test_rows_have_criteria_of_their_own():
    mode, own = Checklist(criteria=("of the run",)), ["mine", {"text": "and mine", "weight": 3}]
    [requests], judgment = drive(mode, [yes(1.0), yes(0.0)], sample=sample("a", criteria=own))
    assert judgment.scores == (pytest.approx(1 / 4),)
    assert not any("of the run" in text_of(request.prompt) for request in requests)
    assert mode.criteria_of(sample("a", criteria=json.dumps(own))) == mode.criteria_of(sample("a", criteria=own))


def test_a_criterion_that_cannot_be_read_fails_the_sample_and_is_never_a_no():
    for lost, code in ((broken(), "engine"), (yes(0.5, unassigned=0.6), "off_grammar")):
        _, judgment = drive(Checklist(criteria=(POLITE, "c")), [yes(0.9), lost], sample=sample("a"))
        assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, code)
        assert judgment.failure.why.startswith("c: ")


def test_a_tables_missing_weight_is_1():
    assert parse_criteria([{"text": "c", "weight": None}]) == (Criterion(text="c"),)


@pytest.mark.parametrize(
    ("value", "finding"),
    [
        ("be polite", "expected a list of criteria"),
        ([], "expected a list of criteria"),
        ({"text": "c"}, "expected a list of criteria"),
        (["c", 3], "expected a criterion, got 3"),
        ([{"text": "c", "points": 3}], "expected a criterion"),
        ([{"weight": 3}], "expected a criterion"),
        ([{"text": "c", "weight": "3"}], "a numeric weight"),
        ([{"text": "c", "weight": True}], "a numeric weight"),
        ([{"text": "c", "weight": 0}], "weight 0"),
        ([{"text": "c", "weight": math.nan}], "weight nan"),
        ([" "], "a criterion is empty"),
        (["c", "c"], "occurs twice"),
        ([{"text": "c", "weight": -1}], "weight above 0; add one"),
    ],
)
def test_criteria_that_mean_nothing_are_refused(value, finding):
    with pytest.raises(ConfigError, match=finding):
        parse_criteria(value)
    with pytest.raises(InputError, match=f'sample 1: field "criteria": .*{finding}'):
        Checklist().check(sample("a", criteria=value))


def test_without_criteria_there_is_nothing_to_judge():
    with pytest.raises(InputError, match="sample 1: no criteria"):
        Checklist().check(sample("a"))


@pytest.mark.parametrize(
    ("options", "finding"), [({"tie_margin": 1.5}, "tie_margin"), ({"criteria": [{}]}, "criteria")]
)
def test_options_are_checked(options, finding):
    with pytest.raises(ConfigError, match=finding):
        make_mode("checklist", options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.txt", "It is polite.\n\n  It is right.\n"),
        ("c.yaml", "- It is polite.\n- text: It is right.\n"),
        ("c.json", '["It is polite.", "It is right."]'),
    ],
)
def test_a_file_of_criteria(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert [criterion.text for criterion in read_criteria(path)] == ["It is polite.", "It is right."]


@pytest.mark.parametrize(
    ("name", "content"), [("c.txt", b"\n"), ("c.txt", b"\xff"), ("c.yaml", b"a: b"), ("gone.txt", None)]
)
def test_a_file_without_criteria_is_named(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=name):
        read_criteria(tmp_path / name)


def test_other_criteria_are_another_context():
    first, second = (text_hashes(sample("a", criteria=[text])) for text in ("c", "d"))
    assert first.context != second.context
