"""Real results of the papers' analyses, on published judgments and published answers, with judges at hand.

    python -m benchmarks.findings --data DATA --clones CLONES --work runs/findings --judge small-judge --base BASE

DATA holds the folders that `docs/benchmarks.md` names, CLONES clones of JudgeBench, auto-j, FairEval, Cherry_LLM and
Play-Favorites; a file that is absent is named, and its judge is left out. `--published` runs no model. The same command
goes on after an interruption. Writes `results.json` and `tables.md` beside this file: figures, and no text of the data.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.findings.own_answer_judges import comparing, gates, shared_errors, write_ratings
from benchmarks.findings.published import JUDGES, SETS, PublishedJudge
from benchmarks.findings.runs import MODELS, correctness, judge_pairs, own_answers, own_right, ssr, ssr_rows
from benchmarks.findings.steps import LEAST, Figures, Steps, enough, read_lines
from benchmarks.findings.tables import render

FOLDER = Path(__file__).parent
PLAY_FAVORITES = tuple(f"Play-Favorites/data/{name}.csv" for name in ("Faithfulness", "Logical correctness"))


def main() -> None:
    """Run what is missing and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/findings"))
    parser.add_argument("--judge", default="small-judge")
    parser.add_argument("--base")
    parser.add_argument("--published", action="store_true")
    options = parser.parse_args()
    models = {"small": options.judge, "base": options.base}
    steps = Steps(options.data, options.work, models, clones=options.clones)
    out = FOLDER / "results.json"
    results: Figures = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    results["published"] = list(published(steps))
    results["comparing"] = comparing(steps.data)
    results["gates"] = gates(steps.data)
    results["shared_errors"] = shared_errors(steps.data)
    ratings = write_ratings(steps.data, steps.work / "comparing.csv")
    results["comparing_bias"] = self_bias(steps, "comparing-bias", [str(ratings)])
    if files := steps.paths(PLAY_FAVORITES):
        results["self_bias"] = self_bias(steps, "self-bias", files, "--item-column", "prompt_id")
        results["references"] = references(
            steps.study("self-bias-references", "study", "self-bias", *files, "--other-reference", "both")
        )
    if not options.published:
        results["models"] = [
            scored(steps, f"{model}-{pairs}", judge_pairs(steps, model, pairs), pairs) | {"judge": model, "on": pairs}
            for model in MODELS
            for pairs in ("pandalm", "llmbar")
            if (model, pairs) != ("base", "pandalm")
        ]
        questions, pairs_of_answers = ssr_rows(steps)
        own = own_answers(steps, questions)
        results["own"] = own_right(questions, own)
        results["correctness"] = [correctness(steps, model) for model in MODELS]
        results["ssr"] = [ssr(steps, model, pairs_of_answers, own) for model in MODELS]
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "tables.md").write_text(render(results), encoding="utf-8")


def published(steps: Steps) -> Iterator[Figures]:
    """The figures of each published judge whose files are there."""
    for judge in JUDGES:
        files = steps.paths(judge.files)
        if not files or (judge.labels and not steps.paths(SETS[judge.labels].files)):
            print(f"{judge.name}: not there: {', '.join(judge.files)}", file=sys.stderr)
            continue
        run = imported(steps, judge, files)
        yield scored(steps, judge.name, run, judge.labels) | {"judge": judge.judge, "on": judge.on}


def imported(steps: Steps, judge: PublishedJudge, files: list[str]) -> Path:
    """The run file of published judgments."""
    run = steps.work / f"{judge.name}.jsonl"
    rows = ["--rows", str(steps.labels(judge.labels))] if judge.rows and judge.labels else []
    return steps.judgelm(run, "data", "import-judgments", *files, *judge.options, *rows, "-o", str(run), "--overwrite")


def scored(steps: Steps, name: str, run: Path, labels: str | None) -> Figures:
    """Agreement, consistency and calibration of a run over pairs, each only where enough cases stand behind it."""
    if labels is None:
        [row] = steps.study(f"{name}-orders", "study", "position-bias", f"judge={run}")["tables"][0]["rows"]
        orders = {key: row[key] for key in ("consistency", "toward_first", "toward_second")}
        return {"n": row["n"], "failed": row["failed"], "against": None, **orders}
    against = str(steps.labels(labels))
    failures = [row["failure"] is not None for row in read_lines(run)]
    if all(failures):
        return {"n": 0, "failed": len(failures), "against": SETS[labels].against}
    figures = steps.study(f"{name}-eval", "eval", str(run), "--labels", against, "--order-rule", "as_judged")
    excluded, counts = figures["excluded"], figures["counts"]
    position = excluded.get("position") or {}
    return {
        "n": excluded["n"],
        "failed": counts["failed"],
        "against": SETS[labels].against,
        "agreement": enough(excluded["accuracy"]),
        "most_frequent": excluded["majority"],
        **{key: position.get(key) for key in ("consistency", "toward_first", "toward_second")},
        **calibration(steps, name, run, against),
    }


def calibration(steps: Steps, name: str, run: Path, labels: str) -> Figures:
    """Calibration as judged, where the run has probabilities and enough of them are on either side."""
    winners = {row["id"]: row["winner"] for row in read_lines(Path(labels))}
    sides = [
        (row["probability"] > 0.5) == (winners[row["id"]] == 1)
        for row in read_lines(run)
        if row["probability"] is not None and winners.get(row["id"]) in (1, 2)
    ]
    if min(sum(sides), len(sides) - sum(sides)) < LEAST:
        return {}
    figures = steps.study(f"{name}-calibration", "study", "calibration", str(run), "--labels", labels)
    scores = {row["probabilities"]: row for row in figures["tables"][0]["rows"]}["as judged, all pairs"]
    return {key: scores[key] for key in ("error", "error_by_chance", "overconfidence", "brier")}


def self_bias(steps: Steps, name: str, files: list[str], *arguments: str) -> Figures:
    """Self- and family-bias, over all dimensions and in each, with 95 % intervals."""
    figures = steps.study(name, "study", "self-bias", *files, *arguments)
    tables = {table["name"]: table["rows"] for table in figures["tables"]}
    rows = [{"fit": "all", **row} for row in tables["coefficients"]] + tables.get("slices", [])
    biases = [row for row in rows if row["term"].startswith(("self-bias", "family-bias"))]
    return {
        "ratings": figures["counts"]["ratings used"],
        "effects": [{"fit": row["fit"], "term": row["term"], "of": row["level"], **wald(row)} for row in biases],
    }


def references(figures: Figures) -> list[Figures]:
    """Self-bias under each family as reference, as Play Favorites' text has it and as its Figure 9 is drawn."""
    [checks] = [table["rows"] for table in figures["tables"] if table["name"] == "checks"]
    effects = {
        (row["level"], row["fit"]): wald(row)["effect"]
        for row in checks
        if row["term"].startswith("self-bias") and row["fit"].startswith("reference: ") and row["estimate"] is not None
    }
    authors = " (authors')"
    return [
        {"of": of, "reference": fit.removeprefix("reference: "), "text": text, "figure": effects[of, fit + authors]}
        for (of, fit), text in effects.items()
        if not fit.endswith(authors)
    ]


def wald(row: Figures) -> Figures:
    """A 95 % interval of a coefficient."""
    value, margin = row["estimate"]["value"], 1.959964 * row["standard_error"]
    return {"effect": {"value": value, "low": value - margin, "high": value + margin, "n": row["estimate"]["n"]}}


if __name__ == "__main__":
    main()
