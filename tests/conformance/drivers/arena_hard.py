"""Arena-Hard: `gen_judgment.py` asks for both games of each answer, `show_result.py` makes a leaderboard of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
source = Path(sys.argv[3]) / "source"
environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(python, *arguments):
    """One of the client's scripts, which looks for its data in the folder that it is run in."""
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
    return done.stdout


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def answer(uid, model, text):
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": {"answer": text}}]
    return {"uid": uid, "model": model, "messages": said, "metadata": {"token_len": 1}}


def judged(bench, category, baseline):
    """Each model's verdicts in both games, and its score on the leaderboard."""
    folder, questions = Path("data") / bench, asked["questions"]
    write(folder / "question.jsonl", [{"uid": str(n), "category": category, "prompt": q} for n, q in questions])
    for model, texts in {baseline: asked["baseline"], **asked["models"]}.items():
        rows = [answer(str(n), model, text) for (n, _), text in zip(questions, texts, strict=True)]
        write(folder / "model_answer" / f"{model}.jsonl", rows)
    settings = yaml.safe_load((source / "config" / f"{bench}.yaml").read_text(encoding="utf-8"))
    name = settings["judge_model"]
    Path("settings.yaml").write_text(yaml.safe_dump(settings | {"model_list": list(asked["models"])}), encoding="utf-8")
    endpoint = {"api_base": asked["base_url"], "api_key": "none"}
    served = {name: {"model": name, "endpoints": [endpoint], "api_type": "openai", "parallel": 4}}
    Path("endpoints.yaml").write_text(yaml.safe_dump(served), encoding="utf-8")
    scripts = ("--setting-file", "settings.yaml", "--endpoint-file", "endpoints.yaml")
    run(sys.executable, str(source / "gen_judgment.py"), *scripts)
    judgments = folder / "model_judgment" / name
    verdicts = {}
    for model in asked["models"]:
        rows = [json.loads(line) for line in (judgments / f"{model}.jsonl").read_text(encoding="utf-8").splitlines()]
        rows.sort(key=lambda row: int(row["uid"]))
        verdicts[model] = [[game["score"] for game in row["games"]] for row in rows]
    shown = run(asked["python"], str(source / "show_result.py"), "-b", bench, "-j", name, "-c", category)
    scores = {found[1]: float(found[2]) for found in re.finditer(r"(?m)^\d+ +(\S+) +([\d.]+) ", shown)}
    return {"verdicts": verdicts, "scores": scores}


found = {category: judged(bench, category, baseline) for bench, category, baseline in asked["benchmarks"]}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
