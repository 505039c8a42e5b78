"""`judgelm-batch --mode conversation` and `--mode chat`, with the scripted engine and with a tiny model."""

import json

from transformers import AutoTokenizer

from benchmarks.tiny_model import make_base
from judgelm.judge import Judge
from judgelm.modes.follow_up import FollowUp
from judgelm.prompts.truncation import Truncator
from judgelm.records import Judgment, PairVerdict, Sample, Shown
from judgelm.runs.run_files import read_judgments
from judgelm.runs.runner import drive, judge
from tests.support.jsonl_files import write_rows

TURNS = [
    {"question": "what is paris", "answers": ["a big fox", "it is the capital of france"]},
    {"question": "what is london", "answers": ["red dogs", "because it can see lazy dogs over paris"]},
]


def dialogue_row(number, turns=TURNS):
    return {"id": f"d{number}", "question": turns[-1]["question"], "answers": turns[-1]["answers"], "turns": turns}


def test_pairs_of_dialogues_and_single_ones_in_one_file(batch, tmp_path):
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


def test_a_tiny_judge_reads_long_dialogues_with_their_answers_cut_and_nothing_else(tiny_judge):
    turns = [turn | {"answers": [answer + " because it can" * 200 for answer in turn["answers"]]} for turn in TURNS]
    last = turns[-1]
    sample = Sample(id="1", question=last["question"], answers=tuple(last["answers"]), metadata={"turns": turns})
    with Judge(str(tiny_judge), engine="transformers") as judging:
        [judgment] = judge([sample], judging.mode("conversation"), judging.engine)
    # assistant 1's turns are answers 0 and 1 of the prompt, assistant 2's are 2 and 3
    assert [[cut.answer for cut in shown.truncations] for shown in judgment.shown] == [[0, 1], [0, 1, 2, 3]]
    assert judgment.failure is None or judgment.failure.code != "too_long"


def test_a_chat_model_is_asked_on_in_its_own_turns(tmp_path):
    words = ["what is it a fox a dog"] * 20
    make_base(words, tmp_path, hidden_size=64, layers=2, heads=2, vocab_size=300, max_positions=2048, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = (
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path)
    sample = Sample(id="1", question="what is it", answers=("a fox", "a dog"))
    shown = Shown(order=(0, 1), text="8 6", scores=(8.0, 6.0), reason="it is")
    judgment = Judgment(sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=(shown,))
    with Judge(str(tmp_path), engine="transformers", template="judgelm-chat") as judging:
        talk = FollowUp(mode=judging.pairwise(), sample=sample, judgment=judgment, max_tokens=4)
        [request] = next(talk("Why?"))
        tokenized = Truncator(tokenizer, 2048).truncate(request.prompt, 4)
        [exchange] = drive(["Why?"], talk, judging.engine)
    assert tokenized.text.endswith("<assistant>8 6\nit is<user>Why?<assistant>")
    assert exchange.prompt_tokens == len(tokenized.ids)
