"""The default judge where the papers ask what it knows: it answers the questions itself, and judges answers to them.

    python -m benchmarks.findings.own_knowledge --data DATA --evouna NQ.json --work runs/own-knowledge

DATA holds `gsm8k` and `mmlu_pro` as `docs/benchmarks.md` names them; NQ.json is EVOUNA's. At most 100 items a study.
The same command goes on after an interruption. Writes its part of `results.json` and `tables.md` beside this file:
figures, and no text of the data.
"""

import argparse
import gzip
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.findings.own_answer_judges import GSM8K_MODELS
from benchmarks.findings.runs import own_answers, own_right, ssr, ssr_rows
from benchmarks.findings.steps import Figures, Steps, enough, read_lines
from benchmarks.findings.tables import render
from judgelm.metrics.resampling import Resampling, share
from judgelm.parsing.short_answers import exact_match

FOLDER = Path(__file__).parent
BOX = "box"
TOKENS = 320
"""Of an answer or a judgment with its reasons: two of five answers to GSM8K's questions are longer."""
QA_PROMPTS = {"six-shot": "6", "zero-shot": "0"}


def main() -> None:
    """Run what is missing and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--evouna", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/own-knowledge"))
    parser.add_argument("--model", default="qwen-1.5b")
    options = parser.parse_args()
    steps = Steps(options.data, options.work, {BOX: options.model})
    found: Figures = {"qa": short_answers(steps, options.evouna), "self_reference": self_reference(steps)}
    questions, pairs = ssr_rows(steps, per_category="2")
    own = own_answers(steps, questions, model=BOX, max_tokens=TOKENS)
    found["own"] = own_right(questions, own)
    found["ssr"] = ssr(steps, BOX, pairs, own)
    out = FOLDER / "results.json"
    results: Figures = json.loads(out.read_text(encoding="utf-8")) | {"own_knowledge": found}
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "tables.md").write_text(render(results), encoding="utf-8")


def short_answers(steps: Steps, evouna: Path) -> Figures:
    """Agreement with people on 20 answers of each of EVOUNA's five models, by QA-Judge's prompts without context."""
    every, rows, people = (steps.work / f"{name}.jsonl" for name in ("nq", "nq-sampled", "nq-people"))
    steps.judgelm(every, "data", "import", "evouna", str(evouna), "-o", str(every))
    steps.judgelm(rows, "data", "sample", str(every), "--per", "category", "20", "-o", str(rows))
    right = {row["id"]: row["scores"] == [1] for row in read_lines(rows)}
    labels = ({"id": key, "label": "correct" if label else "incorrect"} for key, label in right.items())
    people.write_text("".join(f"{json.dumps(label)}\n" for label in labels), encoding="utf-8")
    runs = {
        name: steps.judge(
            f"qa-{name}", rows, BOX, "--mode", "qa", "--mode-arg", f"shots={shots}", "--mode-arg", "with_context=false",
            "--mode-arg", "judge_all=true", "--max-tokens", "64",
        )
        for name, shots in QA_PROMPTS.items()
    }  # fmt: skip
    matched = {
        row["id"]: exact_match(row["answer"], [(gold,) for gold in row["metadata"]["references"]], "hotpotqa")
        for row in read_lines(rows)
    }
    same = np.array([matched[key] == label for key, label in right.items()])
    return {
        "people_say_correct": asdict(share(np.array(list(right.values())), None, Resampling())),
        "runs": {name: agreement(run, right) for name, run in runs.items()},
        "exact_match": {
            "n": len(matched),
            "agreement": enough(asdict(share(same, None, Resampling()))),
            "said_correct": asdict(share(np.array(list(matched.values())), None, Resampling())),
        },
    }


def agreement(run: Path, right: dict[str, bool]) -> Figures:
    """Share of answers judged as people judge them, and judged correct; failures are counted apart."""
    rows = list(read_lines(run))
    judged = [(row["verdict"]["label"] == "correct", right[row["id"]]) for row in rows if row["verdict"]]
    labels, true = np.array(judged, dtype=bool).T
    return {
        "n": len(rows),
        "failed": len(rows) - len(judged),
        "said_correct": asdict(share(labels, None, Resampling())),
        "agreement": enough(asdict(share(labels == true, None, Resampling()))),
    }


def self_reference(steps: Steps) -> list[Figures]:
    """A published answer to each of 80 GSM8K questions, judged with reasons and beside the judge's own answer."""
    every, questions, rows = (steps.work / f"{name}.jsonl" for name in ("gsm8k", "gsm8k-sampled", "gsm8k-answered"))
    steps.judgelm(every, "data", "import", "gsm8k", str(steps.data / "gsm8k/test.jsonl"), "-o", str(every))
    steps.judgelm(questions, "data", "sample", str(every), "--size", "80", "-o", str(questions))
    published = write_solutions(steps, [row["id"] for row in read_lines(questions)])
    task = ("--task", "number")
    steps.judgelm(rows, "data", "answers", "rows", str(questions), "--answers", str(published), "-o", str(rows), *task)
    own = steps.work / "gsm8k-own/box.jsonl"
    generator = f"name={BOX},model={steps.models[BOX]},dtype=bfloat16,max_tokens={TOKENS}"
    greedy = (*task, "--samples", "1", "--temperature", "0", "--generator", generator)
    steps.judgelm(own, "data", "answers", "collect", str(questions), "-o", str(own.parent), *greedy, resumes=True)
    mode = ("--mode", "correctness", "--mode-arg", "task=number", "--max-tokens", str(TOKENS), "--retry-unparseable")
    cot = steps.judge("gsm8k-cot", rows, BOX, *mode)
    guided = steps.judge(
        "gsm8k-guided", rows, BOX, *mode, "--mode-arg", "self_reference=guided", "--self-answers", str(own)
    )
    truth = rows.with_suffix(".truth.jsonl")
    runs = ("--cot", f"{BOX}={cot}", "--guided", f"{BOX}={guided}", "--truth", str(truth))
    study = steps.study("gsm8k-study", "study", "self-reference", *runs)
    tables = {table["name"]: table["rows"] for table in study["tables"]}
    return [
        {
            "method": quality["method"],
            "n": quality["n"],
            "accuracy": quality["accuracy"],
            "own": quality["generation_accuracy"],
            "f1_right": split["f1_right"],
            "f1_wrong": split["f1_wrong"],
            "overconfidence": over["GSM8K"],
            "partial": partial["r_gj_given_a"],
        }
        for quality, split, over, partial in zip(
            tables["judgment-quality"],
            tables["f1-by-own-answer"],
            (*tables["overconfidence-cot"], *tables["overconfidence-guided"]),
            tables["partial-correlation"],
            strict=True,
        )
    ]


def write_solutions(steps: Steps, ids: list[str]) -> Path:
    """A published solution to each question, of the four models in turn, as `data answers rows` reads answers."""
    out = steps.work / "gsm8k-solutions.jsonl"
    with gzip.open(steps.data / "gsm8k/example_model_solutions.jsonl.gz", "rt", encoding="utf-8") as lines:
        solutions = [json.loads(line) for line in lines]
    rows = []
    for number, key in enumerate(sorted(ids)):
        model = GSM8K_MODELS[number % len(GSM8K_MODELS)]
        text = solutions[int(key.removeprefix("gsm8k-")) - 1][model]["solution"]
        rows.append({"question_id": key, "model": model, "text": text, "finish_reason": "stop"})
    out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return out


if __name__ == "__main__":
    main()
