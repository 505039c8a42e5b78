"""Every mode on real items, with a model that runs here: most of what it writes is nonsense, but nothing is lost."""

import gzip
import json

import pytest

from judgelm.jsonl import read_jsonl
from judgelm.judge import Judge
from judgelm.modes import MODES
from tests.support.captures import requests
from tests.support.jsonl_files import write_rows

SHORT = {"max_tokens": 16, "chat": False}
OPTIONS = {
    "pair": {"both_orders": True, "distribution": True},
    "single": {"against": "reference", "distribution": True},
    "multi": {"permutations": 2},
    "conversation": {"both_orders": True},
    "chat": {"reason_tokens": 16},
    "rubric": SHORT,
    "correctness": SHORT | {"task": "number", "self_reference": "guided", "solve_tokens": 16},
    "ssr": SHORT | {"solve_tokens": 16, "solves": 1, "solve_temperature": 0},
    "qa": SHORT,
    "multimodal": {},
}
ASKED = [mode for mode in MODES if mode not in ("reasoned", "label", "checklist", "grounded", "trajectory", "reward")]
"""Mode `reasoned` needs a chat template or a card: tests/modes/test_pairwise.py, tests/training/test_grpo.py. The
others need a prompt file, or a judge that is read off words, or a head of one number, and have files of their own."""

NOT_THE_ENGINES = {"off_grammar", "out_of_range", "truncated", "too_long"}


@pytest.fixture(scope="module")
def items(shared_data):
    """A few rows for each mode: PandaLM's pairs, GSM8K's answers by four models, FastChat's dialogues."""
    pandalm = json.loads((shared_data / "pandalm" / "testset-v1.json").read_text(encoding="utf-8"))[:4]
    pairs = [
        {"id": str(row["idx"]), "question": row["instruction"], "answers": [row["response1"], row["response2"]]}
        for row in pandalm
    ]
    with gzip.open(shared_data / "gsm8k" / "example_model_solutions.jsonl.gz", "rt", encoding="utf-8") as file:
        solved = [json.loads(next(file)) for _ in range(4)]
    groups = [
        {"id": str(number), "question": row["question"], "reference": row["ground_truth"]}
        | {"answers": [answer["solution"] for answer in row.values() if isinstance(answer, dict)]}
        for number, row in enumerate(solved)
    ]
    ones = [group | {"answers": group["answers"][:1]} for group in groups]
    captured = enumerate(requests(shared_data, "fastchat_pair_mt"))
    dialogues = [{"id": str(number), "turns": item["turns"]} for number, (item, _) in captured]
    chats = [row | {"follow_ups": ["Why?"]} for row in pairs]
    special = {"pair": pairs, "ssr": pairs, "multi": groups, "conversation": dialogues, "chat": chats}
    return dict.fromkeys(MODES, ones) | special


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, items):
    """A model of random weights, with a tokenizer made of the items and room for long prompts."""
    from benchmarks.tiny_model import make_base

    folder = tmp_path_factory.mktemp("roomy") / "model"
    texts = [json.dumps(row, ensure_ascii=False) for rows in items.values() for row in rows]
    make_base(texts, folder, hidden_size=64, layers=2, heads=2, vocab_size=1000, max_positions=4096, seed=0)
    with Judge(str(folder), engine="transformers", dtype="float32") as judge:
        yield judge


@pytest.mark.parametrize("mode", ASKED)
def test_a_mode_judges_real_items(items, loaded, mode, tmp_path):
    path, out = write_rows(tmp_path / "in.jsonl", items[mode]), tmp_path / "out.jsonl"
    loaded.judge_file(str(path), out=str(out), mode=mode, **OPTIONS[mode])
    rows = {row["id"]: row for _, row in read_jsonl(out)}
    assert rows.keys() == {row["id"] for row in items[mode]}
    for row in rows.values():
        assert row["failure"] is None or row["failure"]["code"] in NOT_THE_ENGINES
        assert (row["verdict"] is None) == (row["failure"] is not None)
        # exact match needs no judge; everybody else has read something
        assert row["prompt_tokens"] > 0 or row.get("decided_by") == "exact_match"
