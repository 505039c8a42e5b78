"""Runs of the judges at hand: pairs, correctness of published answers, and selective self-reference.

The small judge writes score lines and answers no question, so both judges are given the base's own answers (the small
judge is an adapter on that base). A reply without a verdict counts for the more probable label behind it; the share of
such replies is a figure of its own.
"""

import gzip
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.findings.steps import Figures, Steps, enough, read_lines
from judgelm.metrics.resampling import Resampling, share

MODELS = ("small", "base")
_OUTPUTS = "mmlu_pro/mmlu_pro_outputs_420.jsonl.gz"
_FORCED = ("--max-tokens", "8", "--retry-unparseable")


def judge_pairs(steps: Steps, model: str, labels: str) -> Path:
    """A run over labelled pairs in both orders, by the mean P(first better)."""
    rows = steps.labels(labels)
    return steps.judge(f"{model}-{labels}", rows, model, "--both-orders", "--order-rule", "probability")


def correctness(steps: Steps, model: str) -> Figures:
    """Judgments of one published answer to each of MMLU-Pro's questions."""
    answers, sampled = steps.work / "mmlu-answers.jsonl", steps.work / "mmlu-sampled.jsonl"
    steps.judgelm(answers, "data", "import", "mmlu-pro", str(steps.data / _OUTPUTS), "-o", str(answers))
    steps.judgelm(sampled, "data", "sample", str(answers), "--per", "source_id", "1", "-o", str(sampled))
    mode = ("--mode", "correctness", "--mode-arg", "task=choice")
    run = steps.judge(f"{model}-cot", sampled, model, *mode, *_FORCED, "--limit", "240")
    truths = {row["id"]: row["truth"] for row in read_lines(steps.work / "mmlu-answers.truth.jsonl")}
    rows = list(read_lines(run))
    judged = [(row["verdict"]["label"] == "correct", truths[row["id"]]) for row in rows if row["verdict"]]
    labels, true = np.array(judged, dtype=bool).T
    return {
        "judge": model,
        "n": len(rows),
        "failed": len(rows) - len(judged),
        "without_verdict": asdict(share(forced(rows), None, Resampling())),
        "said_correct": asdict(share(labels, None, Resampling())),
        "truly_correct": asdict(share(true, None, Resampling())),
        "agreement": enough(asdict(share(labels == true, None, Resampling()))),
    }


def forced(rows: list[Figures]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The judgments that have a reply without a verdict."""
    return np.array([any(part.get("repaired") or part["failure"] for part in row["shown"]) for row in rows], dtype=bool)


def ssr_rows(steps: Steps, per_category: str = "5") -> tuple[Path, Path]:
    """So many questions of each category, and two pairs of a right and a wrong published answer to each."""
    work, outputs = steps.work, steps.data / _OUTPUTS
    published, every, questions = (
        work / f"{name}.jsonl" for name in ("mmlu-published", "mmlu-questions", "ssr-questions")
    )
    if not published.exists():
        columns = ("question_id", "category", "question", "options", "answer")
        with gzip.open(outputs, "rt", encoding="utf-8") as lines:
            answerable = (
                row for row in map(json.loads, lines) if len(row["options"]) > 1
            )  # one question has one option
            rows = [json.dumps({key: row[key] for key in columns}) for row in answerable]
        published.write_text("\n".join(rows) + "\n", encoding="utf-8")
    steps.judgelm(every, "data", "import", "mmlu-pro", str(published), "-o", str(every))
    steps.judgelm(questions, "data", "sample", str(every), "--per", "category", per_category, "-o", str(questions))
    pairs, chosen, sampled = (work / f"{name}.jsonl" for name in ("mmlu-pairs", "ssr-all", "ssr-pairs"))
    steps.judgelm(
        pairs, "data", "import", "mmlu-pro", str(outputs), str(steps.data / "mmlu_pro/pairs.jsonl"), "-o", str(pairs)
    )
    if not chosen.exists():
        ids = {row["id"] for row in read_lines(questions)}
        with pairs.open(encoding="utf-8") as lines:
            chosen.write_text(
                "".join(line for line in lines if json.loads(line)["metadata"]["source_id"] in ids), encoding="utf-8"
            )
    return questions, steps.judgelm(
        sampled, "data", "sample", str(chosen), "--per", "source_id", "2", "-o", str(sampled)
    )


def own_answers(steps: Steps, questions: Path, *, model: str = "base", max_tokens: int = 128) -> Path:
    """Five answers of a model to each question."""
    out = steps.work / f"own/{model}.jsonl"
    generator = f"name={model},model={steps.models[model]},dtype=bfloat16,max_tokens={max_tokens}"
    arguments = ("--task", "choice", "--samples", "5", "--temperature", "0.7", "--generator", generator)
    return steps.judgelm(
        out, "data", "answers", "collect", str(questions), "-o", str(out.parent), *arguments, resumes=True
    )


def own_right(questions: Path, own: Path) -> Figures:
    """The number of own answers that could be read, and of those that are right."""
    gold = {row["id"]: row["reference"] for row in read_lines(questions)}
    rows = list(read_lines(own))
    read = np.array([row["answer"] is not None for row in rows])
    right = np.array([row["answer"] == gold[row["question_id"]] for row in rows])
    by_question = [row["question_id"] for row in rows]
    return {
        "answers": len(rows),
        "questions": len(gold),
        "read": asdict(share(read, by_question, Resampling())),
        "right": int(right.sum()),
    }


def ssr(steps: Steps, model: str, pairs: Path, own: Path) -> Figures:
    """Never, always and selective self-reference with k = 5 and tau = 0.8."""
    mode = ("--mode", "ssr", "--mode-arg", "solves=5", "--self-answers", str(own))
    runs = {
        when: steps.judge(f"{model}-{when}", pairs, model, *mode, *_FORCED, "--mode-arg", f"when={when}")
        for when in ("never", "always")
    }
    rows = [row for run in runs.values() for row in read_lines(run)]
    truth = steps.work / "mmlu-pairs.truth.jsonl"
    files = [part for when, run in runs.items() for part in (f"--{when}", str(run))]
    figures = steps.study(f"{model}-ssr", "study", "ssr", *files, "--truth", str(truth), "--tau", "0.8")
    compared = {table["name"]: table["rows"] for table in figures["tables"]}["comparison"]
    return {
        "judge": model,
        "without_verdict": asdict(share(forced(rows), [row["id"] for row in rows], Resampling())),
        "rows": [
            {
                "condition": row["condition"],
                "split": row["split"],
                "accuracy": enough(row["accuracy"]) if row["split"] == "wrong" else row["accuracy"],
                "gain": row["gain"],
                "gate_on_rate": row["gate_on_rate"],
                "gate_precision": enough(row["gate_precision"]),
                "splits": row["splits"],
            }
            for row in compared
        ],
    }
