"""Training on preferences against fine-tuning on score lines: the same pairs, several seeds, judged on held-out pairs.

    judgelm data build --config configs/data/small_judge_held_out.yaml tokenizer=FOLDER_OF_THE_BASE \
        'balance=[position]' max_characters=900 out=data/preference_training
    python -m benchmarks.preference_training --train data/preference_training/train.jsonl \
        --dev data/preference_training/validation.jsonl --base SmolLM2-135M-Instruct.Q4_1.gguf \
        --work runs/preference-training --bfloat16

- `preference`: `train/preference.py`, each pair in both orders within a step, with the consistency term.
- `preference-one-order`: the same, each pair as it stands. The better answer stands first in half of them.
- `sft`: `train/sft.py` on the score line of each preference, each pair as it stands.
- `sft-both-orders`: the same with every pair written in both orders: as many prompts as `preference`.

`--curve 1000,2000` adds `preference` with other numbers of pairs, one seed. All take their other settings from
`--recipe`. The pairs are balanced by place alone: on pairs balanced by length too, 1,000 pairs teach this base
nothing (examples/small_judge/training_log.md). The same command goes on after an interruption; verdicts are stored in
OUT/verdicts, by id and without texts, so that another machine can go on. Figures are of P(first better): agreement by
the mean of both orders over labels that name a winner; consistency by each order's P. Intervals are over questions,
the seeds' mean of each pair resampled together, so they hold for these trainings.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from benchmarks.human_labels.judging import JudgeOptions, judge_set, read_verdicts, write_verdicts
from benchmarks.human_labels.measures import Verdicts, calibration, decided, decided_credits, labels_by
from benchmarks.human_labels.sets import Rows, read_rows
from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair, judgelm_row, uniform_hash
from judgelm.data.labelled_set import read_labelled
from judgelm.metrics.resampling import Estimate, Resampling, mean, share

ROOT = Path(__file__).parents[1]
METHODS = ("preference", "preference-one-order", "sft", "sft-both-orders")
_LOSS_OPTIONS = ("both_orders", "consistency_weight", "score_line_weight")


def main() -> None:
    """Train, judge and compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, nargs="+", required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/preference", help="verdicts and figures")
    parser.add_argument("--recipe", type=Path, default=ROOT / "configs/train/small_judge_relevance.yaml")
    parser.add_argument("--bfloat16", action="store_true", help="train in bfloat16: faster where the CPU has it")
    parser.add_argument("--pairs", type=int, default=500, help="training pairs of each method")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--curve", type=lambda text: [int(part) for part in text.split(",")], default=[])
    parser.add_argument("--dev-pairs", type=int, default=300)
    options = parser.parse_args()
    pairs = [pair for path in options.train for pair in read_labelled(str(path), source=path.stem)]
    rows = read_rows(options.dev, limit=options.dev_pairs, seed=0)
    jobs = [(method, options.pairs, seed) for seed in range(options.seeds) for method in METHODS]
    jobs += [("preference", count, 0) for count in options.curve if count != options.pairs]
    verdicts: dict[tuple[str, int], list[Verdicts]] = {}
    for method, count, seed in jobs:
        folder = options.work / f"{method}-{count}-seed{seed}"
        stored = options.out / "verdicts" / f"{folder.name}.json"
        if stored.exists():
            judged = read_verdicts(stored, rows)
        else:
            adapter = trained(folder, method, drawn(pairs, count, seed), seed, options)
            judge = JudgeOptions(name=folder.name, model=str(adapter))
            judged = judge_set(judge, rows, options.work / "dev.jsonl", folder / "dev-judged.jsonl")
            write_verdicts(stored, rows, judged)
        verdicts.setdefault((method, count), []).append(judged.verdicts)
        print(f"{folder.name}: {agreement(judged.verdicts, rows):.1%} agreement", flush=True)
    results = [
        figures(method, count, runs, verdicts, rows, options.pairs) for (method, count), runs in verdicts.items()
    ]
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


def drawn(pairs: Sequence[LabelledPair], count: int, seed: int) -> list[LabelledPair]:
    """The first pairs in an order that the seed decides, so that a smaller number is part of a larger one."""
    if count > len(pairs):
        sys.exit(f"error: {count} pairs wanted, and the training files hold {len(pairs)}")
    ranked = sorted(pairs, key=lambda pair: uniform_hash(seed, pair.sample.id, "preference training"))
    return ranked[:count]


def trained(folder: Path, method: str, pairs: Sequence[LabelledPair], seed: int, options: argparse.Namespace) -> Path:
    """The folder of the trained adapter: trained now, or before."""
    adapter, data = folder / "adapter", folder / "train.jsonl"
    if (adapter / "judge.json").exists():
        return adapter
    folder.mkdir(parents=True, exist_ok=True)
    written = list(pairs)
    if method == "sft-both-orders":
        written += [
            swapped.with_id(f"{swapped.sample.id}-swapped")
            for pair in pairs
            if (swapped := swap_answers(pair, "keep").pair) is not pair
        ]
    data.write_text("".join(f"{json.dumps(judgelm_row(pair))}\n" for pair in written), encoding="utf-8")
    recipe = yaml.safe_load(options.recipe.read_text(encoding="utf-8"))
    recipe |= {"train_data": [str(data)], "output_dir": str(adapter), "seed": seed, "model_name_or_path": options.base}
    recipe.pop("max_steps", None)
    if options.bfloat16:
        recipe |= {"bf16": True, "dtype": "bfloat16", "attn_implementation": "eager"}
    if method.startswith("sft"):
        recipe = {name: value for name, value in recipe.items() if name not in _LOSS_OPTIONS}
        recipe["global_batch"] *= 2 if method == "sft-both-orders" else 1
    else:
        recipe["both_orders"] = method == "preference"
    config = folder / "recipe.yaml"
    config.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    script = ROOT / "train" / ("sft.py" if method.startswith("sft") else "preference.py")
    launcher = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        ROOT / "configs/accelerate/cpu.yaml",
    ]
    with (folder / "train.log").open("w", encoding="utf-8") as log:
        subprocess.run([*launcher, script, "--config", config], cwd=ROOT, stdout=log, stderr=log, check=True)
    for checkpoint in adapter.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return adapter


def agreement(verdicts: Verdicts, rows: Rows) -> float:
    """Share of decided labels that the mean of both orders names."""
    chosen = rows.truth != 0
    return float(decided_credits(verdicts.probability[chosen], rows.truth[chosen]).mean())


def figures(
    method: str,
    count: int,
    runs: Sequence[Verdicts],
    all_runs: dict[tuple[str, int], list[Verdicts]],
    rows: Rows,
    compared_at: int,
) -> dict[str, object]:
    """All figures of a method, the mean of its seeds, and its difference in agreement to `preference`."""
    resampling = Resampling(seed=0)
    questions = rows.questions
    chosen = np.flatnonzero(rows.truth != 0)
    some = [questions[index] for index in chosen]
    credits = seeds_mean([decided_credits(run.probability[chosen], rows.truth[chosen]) for run in runs])
    consistent = seeds_mean([same_winner(run).astype(float) for run in runs])
    lengths = np.array([len(sample.answers[0]) - len(sample.answers[1]) for sample in rows.samples])
    longer = seeds_mean([((run.probability > 0.5) == (lengths > 0)).astype(float) for run in runs])
    first = seeds_mean([(labels_by(run.given, 0) > 0) & (labels_by(run.swapped, 0) < 0) for run in runs])
    errors = [
        calibration(decided(run.probability, rows.truth, questions), None, resampling).before.value for run in runs
    ]
    result: dict[str, object] = {
        "method": method,
        "pairs": count,
        "seeds": len(runs),
        "n": len(questions),
        "agreement": interval(mean(credits, some, resampling)),
        "agreement_of_seeds": [agreement(run, rows) for run in runs],
        "consistency": interval(mean(consistent, questions, resampling)),
        "first_in_both_orders": interval(mean(first, questions, resampling)),
        "longer_preferred": interval(mean(longer, questions, resampling)),
        "calibration_error_of_seeds": errors,
        "longer_answer": interval(share((lengths[chosen] > 0) == (rows.truth[chosen] > 0), some, resampling)),
    }
    if method != "preference" and count == compared_at:
        others = all_runs["preference", compared_at]
        baseline = seeds_mean([decided_credits(run.probability[chosen], rows.truth[chosen]) for run in others])
        result["agreement_less_preference"] = interval(mean(credits - baseline, some, resampling))
    return result


def same_winner(run: Verdicts) -> np.ndarray:
    """True where both orders name the same winner, shape (n,); a failed order names none."""
    given = labels_by(run.given, 0)
    return (given == labels_by(run.swapped, 0)) & ~np.isnan(run.given)


def seeds_mean(values: Sequence[np.ndarray]) -> np.ndarray:
    """Each pair's mean over the seeds, shape (n,)."""
    return np.mean(np.asarray(values, dtype=np.float64), axis=0)


def interval(value: Estimate) -> list[float]:
    """Value, lower and upper end."""
    return [value.value, value.low, value.high]


def table(results: Sequence[dict[str, object]]) -> str:
    """The figures as a table in percent."""
    columns = ("agreement", "consistency", "first_in_both_orders", "longer_preferred", "agreement_less_preference")
    lines = [f"| method | pairs | seeds | {' | '.join(columns)} | ECE |", "|---" * (len(columns) + 4) + "|"]
    for row in results:
        cells = [str(row[name]) for name in ("method", "pairs", "seeds")]
        for name in columns:
            shown = row.get(name)
            value, low, high = shown if isinstance(shown, list) else (None, None, None)
            cells.append("" if value is None else f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})")
        errors = row["calibration_error_of_seeds"]
        cells.append(f"{np.mean(errors):.3f}" if isinstance(errors, list) else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
