"""What a head from labels adds to mode `grounded`, on QAGS (Wang et al. 2020).

    python -m benchmarks.qags_head mturk_cnndm.jsonl --states FOLDER

The articles are split in half 20 times. A head is fitted to labels of sentences of one half, as `judgelm tune --prompt
grounded` does, and used for all sentences of the other half. Prints the AUROC on the unseen half, averaged over the
splits; intervals are from a bootstrap over articles.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.human_labels.heads import drawn
from benchmarks.qags import Floats, Summary, read_summaries
from judgelm.cli.tuned_head import HEAD_LAYERS
from judgelm.engines.recorded_states import RecordedStates
from judgelm.judge import Judge
from judgelm.modes.grounded import PROMPT
from judgelm.modes.readings import ReadingMode, prompts_alone
from judgelm.records import Sample
from judgelm.runs.runner import judge
from judgelm.studies.heads import HeadCandidate, PromptStates

SPLITS = 20
RESAMPLES = 500


def main() -> None:
    """Record the states, fit heads, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--states", type=Path, required=True, help="folder for the states, about 10 MB")
    parser.add_argument("--labels", type=int, nargs="+", default=(50, 100, 200))
    parser.add_argument("--model")
    options = parser.parse_args()
    summaries = read_summaries(options.file)
    candidate = head_of(options.model, summaries, options.states)
    for number in options.labels:
        print(f"{number} labels: {row_of(candidate, summaries, number)}", flush=True)


def head_of(model: str | None, summaries: Sequence[Summary], folder: Path) -> HeadCandidate:
    """Return the head as a candidate, with the states of all sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = [
        Sample(id=f"{index}.{place}", question="", answers=(text,), metadata={"context": each.article})
        for index, each in enumerate(summaries)
        for place, text in enumerate(each.sentences)
    ]
    with Judge(model, engine="transformers") as loaded:
        mode = loaded.mode_with(PROMPT, "label")
        assert isinstance(mode, ReadingMode)
        count = loaded.engine.state_layers  # type: ignore[attr-defined]  # of the transformers engine
        layers = tuple(sorted({max(1, round(share * count)) for share in HEAD_LAYERS}))
        identity = json.dumps(loaded.engine.describe(), sort_keys=True, default=str)
        recorder = RecordedStates(loaded.engine, layers, folder / "states.npz", identity)
        judgments = {each.sample_id: each for each in judge(samples, mode, recorder)}
        states = recorder.states([prompt for sample in samples for prompt in prompts_alone(mode, sample)])
    shown = [judgments[sample.id].shown[0].scores for sample in samples]
    chances = np.clip([np.nan if scores is None else scores[0] for scores in shown], 1e-9, 1 - 1e-9)
    return HeadCandidate(
        prompts={
            PROMPT.name: PromptStates(
                states={layer: states[:, place].astype(np.float64) for place, layer in enumerate(layers)},
                log_odds=np.log(chances / (1 - chances)),
                centered=True,
            )
        },
        targets=np.array([float(label) for each in summaries for label in each.supported]),
        questions=[index for index, each in enumerate(summaries) for _ in each.sentences],
        kind="label",
    )


def row_of(candidate: HeadCandidate, summaries: Sequence[Summary], number: int) -> str:
    """Return the AUROC of the head and of the untuned judge, per sentence and per summary, with their difference."""
    articles = np.array(candidate.questions)
    scores: dict[str, list[Floats]] = {"untuned": [], "head": []}
    for split in range(SPLITS):
        parts = drawn(list(map(str, candidate.questions)), number, split)
        assert parts is not None, "there are enough sentences"
        labelled, unseen = parts
        predicted, _ = candidate.predict(labelled)
        for name, values in (("untuned", candidate.prompts[PROMPT.name].log_odds), ("head", predicted)):
            scores[name].append(np.where(unseen, values, np.nan))
    draws = np.random.default_rng(0)
    count = len(summaries)
    weights = [np.ones(count, dtype=int), *draws.multinomial(count, np.full(count, 1 / count), RESAMPLES)]
    truths = {"per sentence": candidate.targets, "per summary": np.array([float(all(s.supported)) for s in summaries])}
    texts = []
    for level, truth in truths.items():
        found = {}
        for name, splits in scores.items():
            rows = [values if level == "per sentence" else minima(values, articles, count) for values in splits]
            owner = articles if level == "per sentence" else np.arange(count)
            found[name] = np.array([np.mean([auroc(truth, row, each[owner]) for row in rows]) for each in weights])
        found["difference"] = found["head"] - found["untuned"]
        shown = [
            f"{name} {each[0]:.3f} ({np.quantile(each[1:], 0.025):.3f} to {np.quantile(each[1:], 0.975):.3f})"
            for name, each in found.items()
        ]
        texts.append(f"{level}: {', '.join(shown)}")
    return "; ".join(texts)


def minima(values: Floats, articles: NDArray[Any], count: int) -> Floats:
    """Return the lowest score of each summary; NaN for those that were not in the unseen half."""
    return np.array([values[articles == index].min() for index in range(count)])


def auroc(truth: Floats, values: Floats, weights: NDArray[Any]) -> float:
    """Return the AUROC of the items that are known, which count `weights` times."""
    known = np.isfinite(values) & (weights > 0)
    return float(roc_auc_score(truth[known], values[known], sample_weight=weights[known]))


if __name__ == "__main__":
    main()
