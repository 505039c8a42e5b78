import json

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import EngineError, InputError
from judgelm.modes import Pairwise
from judgelm.package import EVERYDAY_PAIRS
from judgelm.records import Completion
from judgelm.runs.canary import judge_canary, read_canary, read_pairs, write_canary
from judgelm.studies.canary import compare_canaries
from tests.support.flows import text_of

MODE = Pairwise(both_orders=True, distribution=True)


@pytest.fixture
def pairs():
    return read_pairs(str(EVERYDAY_PAIRS), limit=4)


def test_pairs_are_read_with_their_labels(pairs):
    assert len(pairs) == 4
    assert pairs[0].label == 2
    assert pairs[0].answers[1] == "Canberra."


def test_a_canary_is_read_as_it_was_written(tmp_path, pairs):
    canary = judge_canary(pairs, MODE, ScriptedEngine({"*": "8 6"}))
    write_canary(tmp_path / "c.json", canary)
    assert read_canary(tmp_path / "c.json") == canary
    assert canary.pairs[0].verdict == "tie"  # 8 6 as given and swapped: the mean is 7 7
    assert canary.pairs[0].shown == (1, 1)
    assert canary.pairs[0].probabilities == (1.0, 1.0)  # the first shown is better in each order
    assert canary.judge["engine"] == "scripted"


def test_a_judge_without_probabilities_is_recorded_by_its_verdicts(pairs):
    canary = judge_canary(pairs, Pairwise(both_orders=True), ScriptedEngine({"*": "8 6"}))
    assert {pair.probabilities for pair in canary.pairs} == {(None, None)}


def test_a_judge_of_each_answer_by_itself_is_recorded_with_its_probabilities(pairs):
    mode = Pairwise(template="yes-no", both_orders=True, distribution=True)
    second = pairs[0].answers[1]
    engine = ScriptedEngine(lambda prompt: "Yes" if f"\n{second}\n" in text_of(prompt) else "No")
    canary = judge_canary(pairs[:1], mode, engine)
    given, swapped = canary.pairs[0].probabilities
    assert given < 0.01
    assert given + swapped == 1


def test_failures_of_the_judge_are_recorded(pairs):
    canary = judge_canary(pairs, MODE, ScriptedEngine({"*": "no scores"}))
    assert {pair.failure for pair in canary.pairs} == {"off_grammar"}
    assert not compare_canaries(canary, canary).drifted


def test_an_engine_that_fails_is_no_drift(pairs):
    class Unreachable(ScriptedEngine):
        def answer(self, request):
            return Completion.failed(request.key, "no server answers")

    with pytest.raises(EngineError, match=r"failed on 4 of 4 pairs \(no server answers\)"):
        judge_canary(pairs, MODE, Unreachable({"*": ""}))


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "Invalid JSON"), ('{"canary": 2}', "no canary of judgelm"), ('{"id": "1", "winner": 1}', "no canary")],
)
def test_another_file_is_refused_with_the_way_out(tmp_path, content, message):
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_canary(path)
    assert "judgelm canary record -o" in str(error.value)


def test_a_missing_file_and_a_file_without_pairs_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_canary(tmp_path / "none.json")
    (tmp_path / "p.jsonl").write_text(json.dumps({"question": "q", "answer": "a"}) + "\n")
    with pytest.raises(InputError):
        read_pairs(str(tmp_path / "p.jsonl"))
