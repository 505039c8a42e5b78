"""Outcome of agents' trajectories: the judge's P(yes) and matches of calls against tau-bench's rewards.

    python -m benchmarks.trajectories --results gpt-4o-airline.json --work runs/trajectories [--limit 50]

The file is `historical_trajectories/gpt-4o-airline.json` of tau-bench (MIT): 50 tasks, four trials each, by GPT-4o. Its
reward is 1 where the database ends as expected. The judge is asked for the task `outcome` alone, with the expected
calls as reference, about the first `--limit` trajectories (first trials), in a window of 1,280 tokens and without the
agent's system prompt (about 1,450 tokens of policy), since a CPU reads long prompts slowly. Matches need no model and
are of all trials with expected calls. Writes `trajectories.json` beside this file, without any text.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).with_suffix(".json")
RESAMPLES = 2000


def main() -> None:
    """Judge what is missing, match, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=50, help="trajectories that the judge reads")
    parser.add_argument("--judged", type=Path, help="a run file to read instead of judging")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results = json.loads(options.results.read_text(encoding="utf-8"))
    rewards = {f"{row['task_id']}-{row['trial']}": row["reward"] for row in results}
    steps = {f"{row['task_id']}-{row['trial']}": float(len(row["traj"])) for row in results}
    matched = options.work / "matched.jsonl"
    batch(options.results, matched, "--mode-arg", "tasks=[]", "--engine", "scripted", "--model", "none")
    judged = options.judged or judge(results, options.work, options.limit)
    found = {
        "matches of calls": {name: compared(match_values(matched, name), rewards) for name in ("recall", "superset")},
        "judge": compared(probabilities(judged), rewards) | outcomes(judged),
        "fewer messages, of the judged": compared({key: -steps[key] for key in probabilities(judged)}, rewards),
        "matches, of the judged": compared(
            {key: value for key, value in match_values(matched, "recall").items() if key in probabilities(judged)},
            rewards,
        ),
    }
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


def judge(results: list[dict[str, Any]], work: Path, limit: int) -> Path:
    """Judge first trials without their system prompts; resumes."""
    rows = [row | {"traj": [message for message in row["traj"] if message["role"] != "system"]} for row in results]
    given, out = work / "without_policy.json", work / "judged.jsonl"
    given.write_text(json.dumps(rows[:limit]), encoding="utf-8")
    batch(given, out, "--mode-arg", "tasks=[outcome]", "--max-model-len", "1280", "--max-num-seqs", "2")
    return out


def batch(given: Path, out: Path, *options: str) -> None:
    """One run of `judgelm-batch`; rows that it rejects and failures are counted, not fatal."""
    program = [sys.executable, "-c", "from judgelm.cli.batch import main; main()"]
    command = [*program, str(given), "-o", str(out), "--mode", "trajectory", "--max-failure-rate", "1", *options]
    subprocess.run(command, check=True)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The last judgment of each id."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list({row["id"]: row for row in rows}.values())


def probabilities(path: Path) -> dict[str, float]:
    """Log-odds of yes, by id."""
    return {row["id"]: row["shown"][0]["log_odds"] for row in rows_of(path) if row["failure"] is None}


def outcomes(path: Path) -> dict[str, Any]:
    """Trajectories read, failures by code, and how many of the others were cut."""
    rows = rows_of(path)
    return {
        "read": len(rows),
        "failures": dict(Counter(row["failure"]["code"] for row in rows if row["failure"])),
        "cut": sum(bool(row["shown"][0]["cut"]) for row in rows if row["failure"] is None),
    }


def match_values(path: Path, name: str) -> dict[str, float]:
    """A field of each match, by id."""
    return {row["id"]: float(row["matches"][0][name]) for row in rows_of(path)}


def compared(values: dict[str, float], rewards: dict[str, float]) -> dict[str, Any]:
    """AUC of the values for reward 1 against 0 with a 95 % interval; trials of a task are drawn together."""
    tasks: dict[str, list[str]] = {}
    for key in values:
        tasks.setdefault(key.split("-")[0], []).append(key)
    names, draw = list(tasks), np.random.default_rng(0)
    draws = [draw.choice(len(names), len(names)) for _ in range(RESAMPLES)]
    samples = [auc([key for index in each for key in tasks[names[index]]], values, rewards) for each in draws]
    low, high = np.nanquantile(samples, [0.025, 0.975])
    return {
        "n": len(values),
        "rewarded": sum(rewards[key] for key in values),
        "auc": round(auc(list(values), values, rewards), 3),
        "interval": [round(float(low), 3), round(float(high), 3)],
    }


def auc(keys: list[str], values: dict[str, float], rewards: dict[str, float]) -> float:
    """P(a rewarded trajectory has the higher value), a tie counting half; NaN without both kinds."""
    good, bad = (np.array([values[key] for key in keys if rewards[key] == reward]) for reward in (1, 0))
    if not len(good) or not len(bad):
        return float("nan")
    leads = good[:, None] - bad[None, :]
    return float(np.mean((leads > 0) + 0.5 * (leads == 0)))


if __name__ == "__main__":
    main()
