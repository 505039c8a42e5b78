"""Mode `trajectory`: tasks, pairs, references, matches and failures."""

import json
import math

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError
from judgelm.modes.trajectory import STATEMENTS, Trajectory
from judgelm.records import GradeVerdict, LabelVerdict, PairVerdict, Sample, Truncation
from judgelm.runs.runner import judge
from judgelm.serialization import judgment_from_row, judgment_row
from tests.support.flows import drive, reply, text_of, yes
from tests.support.trajectories import calls, text

ONE = Sample(id="1", question="Where is order 7?", answers=(text(),))
TWO = Sample(id="1", question="Where is order 7?", answers=(text(), text(last="No idea.")))
WANTED = text(last="Tell the status.")


def test_one_trajectory_is_asked_about_each_task_and_the_first_decides():
    requests, judgment = drive(Trajectory(), [yes(p) for p in (0.8, 0.5, 0.5, 0.2, 0.9)], sample=ONE)
    statements = [text_of(request.prompt).splitlines()[-2].split(": ", 1)[1] for request in requests[0]]
    assert statements == [*STATEMENTS.values()]
    # 0.8 * 10 + 0.2 * 1
    assert judgment.verdict == GradeVerdict(score=pytest.approx(8.2))
    assert [(shown.part, round(shown.scores[0], 6)) for shown in judgment.shown] == [
        ("outcome", 8.2), ("plan", 5.5), ("tools", 5.5), ("results", 2.8), ("safety", 9.1),
    ]  # fmt: skip
    assert judgment_from_row(judgment_row(judgment)) == judgment
    # all prompts begin alike
    texts = [text_of(request.prompt) for request in requests[0]]
    assert len({prompt.partition("Statement about")[0] for prompt in texts}) == 1


def test_two_trajectories_are_a_pair():
    mode = Trajectory(tasks=("outcome", "safety"))
    _, judgment = drive(mode, [yes(0.8), yes(0.5), yes(0.5), yes(0.9)], sample=TWO)
    # odds 4 against 1: P(first better) = 4 / 5
    assert judgment.probability == pytest.approx(0.8)
    assert judgment.verdict == PairVerdict(winner=1)
    assert [(shown.part, shown.order) for shown in judgment.shown] == [
        ("outcome", (0,)), ("outcome", (1,)), ("safety", (0,)), ("safety", (1,)),
    ]  # fmt: skip


def test_letters_show_both_orders():
    mode = Trajectory(template="letters", tasks=("tools",))
    replies = [reply("A", shares=[0.8, 0, 0.2, 0]), reply("A", shares=[0.5, 0, 0.5, 0])]
    requests, judgment = drive(mode, replies, sample=TWO)
    assert "[Trajectory A]\n[Step 1: system]" in text_of(requests[0][0].prompt)
    # (log 4 + log 1) / 2 = log 2 for each side's lead of log 2 over both orders: 2 / 3
    assert judgment.probability == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="sample 1: reading letters needs"):
        next(mode(ONE))


def test_a_statement_of_the_users_takes_the_place_of_the_tasks():
    requests, judgment = drive(Trajectory(criterion="It asked first."), [yes(0.5)], sample=ONE)
    assert "Statement about the trajectory: It asked first." in text_of(requests[0][0].prompt)
    assert judgment.shown[0].part == "criterion"


def test_a_reference_is_shown_and_matched():
    referenced = Sample(id="1", question="q", answers=(text(),), reference=WANTED)
    requests, judgment = drive(Trajectory(tasks=("outcome",)), [yes(0.5)], sample=referenced)
    assert "Tell the status." in text_of(requests[0][0].prompt)
    assert judgment.shown[0].referenced
    assert (judgment.matches[0].strict, judgment.matches[0].recall) == (True, 1.0)
    ignoring = Trajectory(tasks=("outcome",), reference="ignore")
    requests, judgment = drive(ignoring, [yes(0.5)], sample=referenced)
    assert "Tell the status." not in text_of(requests[0][0].prompt)
    assert judgment.matches == ()


@pytest.mark.parametrize("options", [{}, {"match": "strict"}, {"match": "subset"}])
def test_without_tasks_no_model_is_used(options):
    engine = ScriptedEngine(lambda prompt: pytest.fail("a model was asked"))
    sample = Sample(id="1", question="q", answers=(text(),), reference=WANTED)
    [judgment] = judge([sample], Trajectory(tasks=(), **options), engine)
    assert (judgment.verdict, judgment.prompt_tokens) == (LabelVerdict(label="match"), 0)
    assert judgment_from_row(judgment_row(judgment)) == judgment


def test_other_arguments_are_a_mismatch_unless_they_are_ignored():
    sample = Sample(id="1", question="q", answers=(text(),), reference=json.dumps(calls(("find_order", {"id": 8}))))
    for options, label in (({}, "mismatch"), ({"arguments": "ignore"}, "match")):
        [judgment] = judge([sample], Trajectory(tasks=(), **options), ScriptedEngine({}))
        assert judgment.verdict == LabelVerdict(label=label)


def test_a_task_that_fails_fails_the_judgment():
    lost = reply("Hm", shares=[0.1, *[0] * 11])
    _, judgment = drive(Trajectory(tasks=("outcome", "plan")), [yes(0.8), lost], sample=ONE)
    assert (judgment.verdict, judgment.scores) == (None, None)
    assert (judgment.failure.code, judgment.failure.why[:6]) == ("low_coverage", "plan: ")


def test_trajectories_that_are_equal_after_the_cut_are_not_a_tie():
    cut = (Truncation(answer=0, tokens_before=90, tokens_after=30, steps=(4,)),)
    mode = Trajectory(tasks=("outcome",))
    _, judgment = drive(mode, [yes(0.5, truncations=cut), yes(0.5, truncations=cut)], sample=TWO)
    assert judgment.failure.code == "equal_after_cut"
    _, judgment = drive(mode, [yes(0.5), yes(0.5)], sample=TWO)
    assert judgment.verdict == PairVerdict(winner="tie")
    assert math.isclose(judgment.probability, 0.5)
    whole = judgment_row(drive(mode, [yes(0.5, truncations=cut)], sample=ONE)[1])
    assert whole["shown"][0]["cut"] == [{"answer": 0, "tokens_before": 90, "tokens_after": 30, "steps": (4,)}]
