"""Published rewards of five reward models on JudgeBench, judged by mode `reward`, against the published accuracies.

    git clone https://github.com/ScalerLab/JudgeBench
    python -m benchmarks.stored_rewards --outputs JudgeBench/outputs

JudgeBench stores the two rewards of each pair (350 pairs of GPT-4o's answers). Mode `reward` reads them as an engine's
and gives the verdicts, which must make the authors' Table 3 to the last digit. Two equal rewards are a tie here; the
authors' code takes the second answer, and so does the comparison with their table. Writes `stored_rewards.json` beside
this file, without any text.

Source: Tan et al. 2024, JudgeBench (arXiv 2410.12784), Table 3; ScalerLab/JudgeBench at e2c52c2, `run_judge.py`,
`utils/judges.py` and `utils/metrics.py`.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from judgelm.engines.scripted import ScriptedEngine
from judgelm.metrics.resampling import Resampling, share
from judgelm.modes.reward import Reward
from judgelm.records import Prompt, Sample, Winner
from judgelm.runs.runner import judge

OUT = Path(__file__).with_suffix(".json")
SECTIONS = {
    "Knowledge": "mmlu-pro",
    "Reasoning": "livebench-reasoning",
    "Math": "livebench-math",
    "Coding": "livecodebench",
    "Overall": "",
}
"""Name in the table -> beginning of a pair's source."""
TABLE_3 = {
    "Skywork_Skywork-Reward-Gemma-2-27B": (59.74, 66.33, 83.93, 50.00, 64.29),
    "Skywork_Skywork-Reward-Llama-3.1-8B": (59.09, 64.29, 76.79, 50.00, 62.29),
    "internlm_internlm2-20b-reward": (62.34, 69.39, 66.07, 50.00, 63.43),
    "internlm_internlm2-7b-reward": (56.49, 61.22, 71.43, 50.00, 59.43),
    "Ray2333_GRM-Gemma-2B-rewardmodel-ft": (62.99, 53.06, 64.29, 54.76, 59.43),
}
"""The published accuracies in percent, by the sections' order."""
RIGHT: Mapping[str, Winner] = {"A>B": 1, "B>A": 2}


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[Winner]:
    """The verdict of mode `reward` on each pair, from the stored rewards."""
    rewards = {
        (row["pair_id"], place): score
        for row in rows
        for place, score in enumerate(row["judgments"][0]["judgment"]["scores"])
    }

    def stored(prompt: Prompt) -> str:
        pair, place = prompt.spans[-1].text.rsplit(" ", 1)  # ids stand for the texts, two of which may be equal
        return repr(float(rewards[pair, int(place)]))

    samples = [
        Sample(id=row["pair_id"], question=row["question"], answers=tuple(f"{row['pair_id']} {n}" for n in (0, 1)))
        for row in rows
    ]
    judged = {each.sample_id: each for each in judge(samples, Reward(), ScriptedEngine(stored))}
    winners = [judged[sample.id].winner for sample in samples]
    return [winner for winner in winners if winner is not None]


def accuracies(rows: Sequence[Mapping[str, Any]], winners: Sequence[Winner], *, tie: Winner) -> dict[str, float]:
    """Percent of the pairs of each section whose right answer won, with two decimals as the authors print it."""
    right = [
        (row["source"], (tie if winner == "tie" else winner) == RIGHT[row["label"]])
        for row, winner in zip(rows, winners, strict=True)
    ]
    return {
        section: round(float(np.mean([100 * won for source, won in right if source.startswith(begin)])), 2)
        for section, begin in SECTIONS.items()
    }


def measured(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The accuracies by the authors' rule beside the published ones, and ours, where a tie is wrong."""
    winners = verdicts(rows)
    by_authors = accuracies(rows, winners, tie=2)
    right = np.array([winner == RIGHT[row["label"]] for row, winner in zip(rows, winners, strict=True)])
    return {
        "pairs": len(rows),
        "ties": winners.count("tie"),
        "by_authors_rule": by_authors,
        "published": dict(zip(SECTIONS, TABLE_3[name], strict=True)),
        "equal": list(by_authors.values()) == list(TABLE_3[name]),
        "ties_wrong": asdict(share(right, [row["question"] for row in rows], Resampling())),
    }


def main() -> None:
    """Read the stored files, judge, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=Path, required=True)
    options = parser.parse_args()
    results = {}
    for name in TABLE_3:
        [path] = options.outputs.glob(f"*{name}.jsonl")
        results[name] = measured(name, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
    OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(result['equal'] for result in results.values())} of {len(results)} reward models equal Table 3")


if __name__ == "__main__":
    main()
