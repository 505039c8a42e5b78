"""What to do with labels: the untuned judge, a chosen prompt, a head, or LoRA, on the same unseen pairs.

    python -m benchmarks.human_labels.ladder pandalm auto-j --data DATA --states STATES --work WORK --labels 50 100 200

STATES is written by `benchmarks.human_labels.states`; the untuned judge and the head are computed from it. 150 pairs
with a winner are judged; the labels are of other questions, as many as possible. The reading `letters`, the alternative
to yes-no, judges these pairs and the labels, and `judgelm train preference` trains on the labels. Finished
commands are not run again. Intervals are from a bootstrap over questions.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.heads import candidates_of
from benchmarks.human_labels.sets import Rows, read_rows
from benchmarks.human_labels.states import SetStates, read_states, with_states
from judgelm.metrics.agreement import paired_difference
from judgelm.metrics.resampling import Resampling
from judgelm.runs.run_files import read_judgments
from judgelm.studies.tuning import ReadingCandidate, TuningLabels, TuningOptions, strength_difference, tune

UNSEEN = 150
STEPS = ("prompt", "head", "lora")


def main() -> None:
    """Run the cells, and print their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--steps", nargs="+", default=STEPS)
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"--steps: unknown step {min(unknown)}; available: {', '.join(STEPS)}")
    for number in options.labels:
        for name in options.sets:
            folder = options.states / name
            rows = with_states(read_rows(options.data / f"{name}.jsonl", limit=None, seed=0), folder)
            lines = measure(read_states(folder, rows), options.work / name, number, options.steps)
            print(f"{name} {number}", *lines, sep="\n    ", flush=True)


def measure(states: SetStates, work: Path, number: int, steps: Sequence[str]) -> list[str]:
    """Measure steps of the ladder, and return a line for each."""
    rows, truth = states.rows, states.rows.truth
    unseen, labelled = _split(rows, number)
    work.mkdir(parents=True, exist_ok=True)
    _write(rows, labelled.nonzero()[0], work / f"{number}.jsonl")
    _write(rows, unseen, work / "unseen.jsonl")
    begun = time.monotonic()
    leads = {}
    if "head" in steps:
        head, _ = candidates_of(states)["head"].predict(labelled)
        leads[f"head in {time.monotonic() - begun:.0f} s"] = head[unseen]
    if "lora" in steps:
        folder, judged = work / f"{number}-lora", work / f"unseen.{number}-lora.jsonl"
        config = ("--config", "few_pairs", "--output_dir", folder)
        _run(folder, "train", "preference", *config, "--train_data", work / f"{number}.jsonl")
        _run(judged, "batch", work / "unseen.jsonl", "-o", judged, "--model", folder)
        leads["LoRA"] = _differences(judged, rows.part(unseen))
    if "prompt" in steps:
        name, lead = _prompt(states, work, number, labelled, unseen)
        leads = {f"prompt ({name})": lead, **leads}
    untuned = np.sign(states.log_odds[unseen]) == truth[unseen]
    questions = rows.part(unseen).questions
    lines = [f"untuned {100 * untuned.mean():.1f} % of {untuned.size}"]
    for name, lead in leads.items():
        gain = paired_difference(np.sign(lead) == truth[unseen], untuned, questions, Resampling(seed=0))
        lines.append(f"{name} {100 * gain.value:+.1f} ({100 * gain.low:.1f} to {100 * gain.high:.1f})")
    return [*lines, *(f"{path.stem}: {path.read_text(encoding='utf-8')}" for path in sorted(work.glob("*.time")))]


def _split(rows: Rows, number: int) -> tuple[NDArray[np.int_], NDArray[np.bool_]]:
    """Return the places of the unseen pairs, the same for every number, and the flags of the labels."""
    questions, draws = np.array(rows.questions), np.random.default_rng(0)
    turns: Counter[str] = Counter()
    order = []
    for place in draws.permutation(len(questions)):
        order.append((turns[questions[place]], place))
        turns[questions[place]] += 1
    shown = [place for place in draws.permutation(len(questions)) if rows.truth[place] != 0][:UNSEEN]
    kept = [place for _, place in sorted(order) if questions[place] not in set(questions[shown])]
    labelled = np.zeros(len(questions), dtype=np.bool_)
    labelled[kept[:number]] = True
    assert labelled.sum() == number, "the set is large enough"
    return np.sort(shown), labelled


def _prompt(
    states: SetStates, work: Path, number: int, labelled: NDArray[np.bool_], unseen: NDArray[np.int_]
) -> tuple[str, NDArray[np.float64]]:
    """Choose between yes-no and letters on the labels, and return the choice and its leads on the unseen pairs."""
    rows, letters = states.rows, {}
    for name, places in ((str(number), labelled.nonzero()[0]), ("unseen", unseen)):
        pairs, out = work / f"letters-{name}.jsonl", work / f"letters-{name}.out.jsonl"
        _write(rows, places, pairs)
        _run(out, "batch", pairs, "-o", out, "--reading", "letters")
        letters[name] = out
    train = np.flatnonzero(labelled)
    part = rows.part(train)
    candidates = {
        "yes-no": ReadingCandidate(differences=states.log_odds[train]),
        "letters": ReadingCandidate(differences=_differences(letters[str(number)], part)),
    }
    lengths = np.array([[len(answer) for answer in sample.answers] for sample in part.samples])
    known = TuningLabels(truth=part.truth.astype(np.float64), questions=part.questions, lengths=lengths)
    chosen = tune(candidates, known, TuningOptions(default="yes-no", resampling=Resampling(seed=0))).chosen
    if chosen == "yes-no":
        return chosen, states.log_odds[unseen]
    return chosen, _differences(letters["unseen"], rows.part(unseen))


def _differences(run: Path, rows: Rows) -> NDArray[np.float64]:
    judgments = read_judgments(run)
    return np.array([strength_difference(judgments.get(each.id)) for each in rows.samples])


def _write(rows: Rows, places: NDArray[np.int_], path: Path) -> None:
    part = rows.part(places)
    lines = []
    for sample, truth in zip(part.samples, part.truth.tolist(), strict=True):
        first, second = sample.answers
        row = {"id": sample.id, "question": sample.question, "answer_1": first, "answer_2": second}
        lines.append(json.dumps(row | {"winner": {1: 1, 0: "tie", -1: 2}[truth]}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def _run(out: Path, *arguments: object) -> None:
    """Run a command of judgelm, unless it has run before, and write its time and memory to OUT.time."""
    log = out.with_name(f"{out.name}.time")
    if log.exists():
        return
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "judgelm", *map(str, arguments)])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"error: judgelm {arguments[0]} exited with status {os.waitstatus_to_exitcode(status)}")
    log.write_text(f"{time.monotonic() - begun:.0f} s, {usage.ru_maxrss / 2**20:.1f} GB", encoding="utf-8")


if __name__ == "__main__":
    main()
