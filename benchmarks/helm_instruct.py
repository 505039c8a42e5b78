"""HELM Instruct's runs as ratings in long format, which `judgelm study self-bias` reads (Play Favorites, appendix C.2).

    python -m benchmarks.helm_instruct RUNS > ratings.jsonl
    judgelm study self-bias ratings.jsonl -o self-bias

HELM writes one folder for each scenario, answering model and evaluator:

    self_instruct:model=openai_gpt-4-0314,evaluator=mturk/
        per_instance_stats.json   a list of {instance_id, stats: [{name: {name: "Helpfulness"}, count, mean}, ...]}
        scenario_state.json       {request_states: [{instance: {id}, result: {completions: [{text}]}}, ...]}

Names of folders and files are those of release v1.0.0, whose evaluators are claude, gpt4, mturk and scale. Fields are
read as HELM's code writes them; its published files were not at hand.

Source: Zhang et al. 2024; stanford-crfm/helm at 63754d0, `benchmark/runner.py`, `benchmark/metrics/metric.py` and
`instruction_following_critique_metrics.py`.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Reject, Row, reject_row
from judgelm.data.readers.values import describe
from judgelm.errors import InputError
from judgelm.jsonl import parse_json

RATINGS_FILE, COMPLETIONS_FILE = "per_instance_stats.json", "scenario_state.json"
DIMENSIONS = ("Helpfulness", "Understandability", "Completeness", "Conciseness", "Harmlessness")
"""Rated from 1 to 5, 5 is best; HELM's sixth name, `Keyword Feedback`, holds no rating."""

_HELM_RUN = re.compile(r"(?P<scenario>.+?)[:,]model=(?P<model>[^,]+),evaluator=(?P<evaluator>[^,]+)")
_HELM_MODELS = {
    "openai_gpt-4-0314": "GPT-4",
    "openai_gpt-3.5-turbo-0613": "GPT-3.5 Turbo",
    "anthropic_claude-v1.3": "Claude v1.3",
    "cohere_command-xlarge-beta": "Command-Xlarge-Beta",
}
"""The released identifiers and the paper's names for them; other identifiers stay as they are."""

_HELM_JUDGES = {"mturk": "human", "gpt4": "GPT-4", "claude": "Claude v1.3"}
"""Of the evaluators those of the paper, whose reference is MTurk's raters."""


def helm_instruct_ratings(folder: Path, on_reject: OnReject) -> Iterator[Row]:
    """One row for each completion, evaluator and dimension: `item`, `dimension`, `judge`, `model`, `score`, and others.

    `item` is the scenario with the instance's id, `task` the scenario, and `length` the completion's words, empty where
    the run's completions are missing. An unrated dimension has an empty score.

    Args:
        folder: with run folders at any depth, or one of them.
        on_reject: called with each rating that cannot be used, and once for each run of an evaluator that is not the
            paper's (Scale's raters).

    Raises:
        InputError: no folder is named as a run of HELM Instruct.
    """
    files = sorted(folder.rglob(RATINGS_FILE))
    runs = [(path, match) for path in files if (match := _HELM_RUN.fullmatch(path.absolute().parent.name)) is not None]
    if not runs:
        found = f"{files[0].parent.name!r} and {len(files) - 1} others" if files else f"no {RATINGS_FILE}"
        expected = "folders named SCENARIO:model=MODEL,evaluator=EVALUATOR"
        raise InputError(f"{folder}: no run of HELM Instruct: expected {expected}; found {found}")
    lengths: dict[tuple[str, str], Mapping[str, int]] = {}
    for path, match in runs:
        scenario, model, evaluator = match["scenario"], match["model"], match["evaluator"]
        if evaluator not in _HELM_JUDGES:
            reason = f"evaluator {evaluator} is none of the paper's ({', '.join(_HELM_JUDGES)}); the run is left out"
            on_reject(Reject(str(path), 1, reason, ""))
            continue
        if (scenario, model) not in lengths:
            lengths[scenario, model] = _lengths(path.with_name(COMPLETIONS_FILE), on_reject)
        shared = {
            "judge": _HELM_JUDGES[evaluator],
            "model": _HELM_MODELS.get(model, model),
            "task": scenario.partition(":")[0],
        }
        for row in read_rows(str(path)):
            if isinstance(row, Reject):
                on_reject(row)
                continue
            try:
                ratings = list(_ratings(row))
            except InputError as error:
                on_reject(reject_row(row, error))
                continue
            instance = str(row.data["instance_id"])
            place = shared | {"item": f"{scenario}/{instance}", "length": lengths[scenario, model].get(instance)}
            for dimension, score in ratings:
                yield row.with_data(place | {"dimension": dimension, "score": score})


def _ratings(row: Row) -> Iterator[tuple[str, float | None]]:
    """Dimension and mean rating of one instance.

    Raises:
        InputError: the row is not of HELM's shape, or a rating is not from 1 to 5.
    """
    stats = row.data.get("stats")
    if not isinstance(row.data.get("instance_id"), str) or not isinstance(stats, list):
        raise row.error(f"expected instance_id and a list of stats, got the fields {', '.join(row.data)}")
    if row.data.get("perturbation") is not None:
        raise row.error("a perturbed instance; HELM Instruct has none")
    for stat in stats:
        named = stat.get("name") if isinstance(stat, dict) else None
        name = named.get("name") if isinstance(named, dict) else None
        if not isinstance(name, str):
            raise row.error(f"a stat without a name: {describe(stat)}")
        if name not in DIMENSIONS:
            continue
        mean = stat.get("mean")
        if not stat.get("count"):
            yield name, None
        elif isinstance(mean, bool) or not isinstance(mean, int | float) or not 1 <= mean <= 5:
            raise row.error(f"{name}: expected a mean from 1 to 5, got {describe(mean)}")
        else:
            yield name, float(mean)


def _lengths(path: Path, on_reject: OnReject) -> dict[str, int]:
    """Words of each instance's completion; empty where the file is not there."""
    if not path.is_file():
        return {}
    lengths: dict[str, int] = {}
    try:
        for state in parse_json(path.read_text(encoding="utf-8"))["request_states"]:
            [completion] = state["result"]["completions"]
            lengths[state["instance"]["id"]] = len(completion["text"].split())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"its completions cannot be read ({type(error).__name__}: {error}), so lengths are missing"
        on_reject(Reject(str(path), 1, reason, ""))
    return lengths


def main() -> None:
    """Print the ratings; what cannot be used goes to standard error."""
    parser = argparse.ArgumentParser(description="HELM Instruct's runs as ratings in long format.")
    parser.add_argument("runs", metavar="RUNS", help="folder of the published runs")
    options = parser.parse_args()

    def left_out(reject: Reject) -> None:
        print(f"{reject.file}:{reject.line}: left out: {reject.reason}", file=sys.stderr)

    try:
        for row in helm_instruct_ratings(Path(options.runs), left_out):
            print(json.dumps(row.data, ensure_ascii=False))
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
