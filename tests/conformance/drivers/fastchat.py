"""FastChat's gen_judgment: single grades, and pairs in both orders of its own, with references and without.

It imports FastChat's model zoo for the names of judges alone; what the zoo would load models with stays away.
"""

import io
import json
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

MODEL_LIBRARIES = (
    "accelerate", "accelerate.utils", "torch", "torch.nn", "torch.nn.functional", "transformers",
    "transformers.generation", "transformers.generation.logits_process", "transformers.models",
    "transformers.models.llama", "transformers.models.llama.modeling_llama",
)  # fmt: skip
sys.modules |= {name: MagicMock(__spec__=None) for name in MODEL_LIBRARIES}
asked, output = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
data = Path("data/mt_bench")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def answers(text):
    return [
        {"question_id": number, "choices": [{"index": 0, "turns": [text(one), text(one)]}]}
        for number, one in enumerate(asked["pairs"], 1)
    ]


questions = [
    {"question_id": number, "category": "math" if number % 2 else "writing", "turns": [one["question"]] * 2}
    for number, one in enumerate(asked["pairs"], 1)
]
write(data / "question.jsonl", questions)
write(data / "model_answer" / "one.jsonl", answers(lambda one: one["first"]))
write(data / "model_answer" / "two.jsonl", answers(lambda one: one["second"]))
write(data / "reference_answer" / "gpt-4.jsonl", answers(lambda one: f"The reference of {one['question']}"))
for mode in ("single", "pairwise-all"):
    sys.argv = ["gen_judgment.py", "--mode", mode, "--model-list", "one", "two", "--parallel", "2"]
    sys.argv += ["--judge-file", asked["judge_prompts"]]
    sys.stdin = io.StringIO("\n")  # its "Press Enter to confirm"
    runpy.run_module("fastchat.llm_judge.gen_judgment", run_name="__main__")


def judgments(kind):
    path = data / "model_judgment" / f"gpt-4_{kind}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: (row["question_id"], row["turn"], row.get("model", "")))


found = {
    "grades": [[row["question_id"], row["turn"], row["model"], row["score"]] for row in judgments("single")],
    "winners": [[row["question_id"], row["turn"], row["g1_winner"], row["g2_winner"]] for row in judgments("pair")],
}
output.write_text(json.dumps(found), encoding="utf-8")
