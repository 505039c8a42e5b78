"""FastChat's llm_judge, as its command line: single grades, and pairs in both orders of its own."""

import json
import subprocess
import sys
from pathlib import Path

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
data = Path("data/mt_bench")
for folder in ("model_answer", "reference_answer", "model_judgment"):
    (data / folder).mkdir(parents=True)
Path("data/judge_prompts.jsonl").write_text(asked["judge_prompts"], encoding="utf-8")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


pairs = list(enumerate(asked["pairs"], 1))
questions = [{"question_id": number, "category": "writing", "turns": [one["question"]] * 2} for number, one in pairs]
write(data / "question.jsonl", questions)
for model, side in (("one", "first"), ("two", "second")):
    write(
        data / "model_answer" / f"{model}.jsonl",
        [{"question_id": number, "choices": [{"index": 0, "turns": [each[side]] * 2}]} for number, each in pairs],
    )
write(data / "reference_answer" / "gpt-4.jsonl", [])
for mode in ("single", "pairwise-all"):
    command = [sys.executable, "-m", "fastchat.llm_judge.gen_judgment", "--mode", mode, "--model-list", "one", "two"]
    subprocess.run([*command, "--parallel", "2"], input="\n", text=True, check=True)


def judgments(kind):
    path = data / "model_judgment" / f"gpt-4_{kind}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: (row["question_id"], row["turn"], row.get("model", "")))


found = {
    "grades": [[row["question_id"], row["turn"], row["model"], row["score"]] for row in judgments("single")],
    "winners": [[row["question_id"], row["turn"], row["g1_winner"], row["g2_winner"]] for row in judgments("pair")],
}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
