"""`judgelm-batch --mode conversation`, with the scripted engine and with a tiny model."""

import json

from judgelm.judge import Judge
from judgelm.records import PairVerdict, Sample
from judgelm.runs.run_files import read_judgments
from judgelm.runs.runner import judge
from tests.support.jsonl_files import write_rows

TURNS = [
    {"question": "what is paris", "answers": ["a big fox", "it is the capital of france"]},
    {"question": "what is london", "answers": ["red dogs", "because it can see lazy dogs over paris"]},
]


def dialogue_row(number, turns=TURNS):
    return {"id": f"d{number}", "question": turns[-1]["question"], "answers": turns[-1]["answers"], "turns": turns}


def test_pairs_and_single_dialogues_in_one_file(batch, tmp_path):
    alone = [{"question": turn["question"], "answers": turn["answers"][:1]} for turn in TURNS]
    script = {
        "what is paris|a big fox|it is the capital of france": "4 8\n",
        "what is paris|what is london|a big fox|red dogs|it is the capital of france|because it can see lazy dogs over "
        "paris": "3 9\n",
        "what is paris|a big fox": "4\n",
        "what is paris|what is london|a big fox|red dogs": "dunno\n",
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    path = write_rows(tmp_path / "rows.jsonl", [dialogue_row(1), dialogue_row(2, alone)])
    code, _, err = batch(path, "--mode", "conversation", reply=tmp_path / "script.json")
    assert code == 2  # one of two failed
    assert "unparseable 1" in err
    judgments = read_judgments(tmp_path / "out.jsonl")
    assert judgments["d1"].verdict == PairVerdict(winner=2)
    assert judgments["d1"].scores == (3.5, 8.5)
    assert [shown.part for shown in judgments["d2"].shown] == ["turn 1", "turn 2"]
    assert [shown.scores for shown in judgments["d2"].shown] == [(4.0,), None]
    manifest = json.loads((tmp_path / "out.run.json").read_text())
    assert manifest["fingerprint"]["mode"]["turns"] == "each"


def test_only_the_answers_of_long_dialogues_are_truncated(tiny_judge):
    turns = [turn | {"answers": [answer + " because it can" * 200 for answer in turn["answers"]]} for turn in TURNS]
    last = turns[-1]
    sample = Sample(id="1", question=last["question"], answers=tuple(last["answers"]), metadata={"turns": turns})
    with Judge(str(tiny_judge), engine="transformers") as judging:
        [judgment] = judge([sample], judging.mode("conversation"), judging.engine)
    # assistant 1's turns are answers 0 and 1 of the prompt, assistant 2's are 2 and 3
    assert [[cut.answer for cut in shown.truncations] for shown in judgment.shown] == [[0, 1], [0, 1, 2, 3]]
    assert judgment.failure is None or judgment.failure.code != "too_long"
