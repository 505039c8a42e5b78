"""The sets' published files as labelled pairs, one JSONL file a set.

    python -m benchmarks.human_labels prepare --out DATA --pandalm PANDALM --llmbar LLMBAR --auto-j AUTOJ \
        --judgebench JUDGEBENCH --alpaca-eval TEST.jsonl --dev DEV.jsonl --train TRAIN.jsonl

PANDALM is a folder that holds testset-v1.json (WeOpenML/PandaLM, data/). LLMBAR (princeton-nlp/LLMBar, which holds
MT-bench's pairs too), AUTOJ (GAIR-NLP/auto-j) and JUDGEBENCH (ScalerLab/JudgeBench) are clones, with or without a work
tree: files are read from the newest commit. TEST and DEV are the test and validation splits that
`configs/data/small_judge_held_out.yaml` builds, and TRAIN is what `configs/data/small_judge.yaml` builds. Each set may
be left out.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.human_labels.baselines import WinRates
from benchmarks.human_labels.sets import DEV_SET
from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark

WIN_RATES = "win_rates.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of a set: its option here, its importer, and its files in that repository."""

    option: str
    importer: str
    files: tuple[str, ...]


_LLMBAR = "Dataset/LLMBar"
_JUDGEBENCH = "data/dataset=judgebench,response_model"
SOURCES = {
    "pandalm": Source(option="pandalm", importer="pandalm", files=("testset-v1.json",)),
    "llmbar": Source(
        option="llmbar",
        importer="llmbar",
        files=(
            f"{_LLMBAR}/Natural/dataset.json",
            *(f"{_LLMBAR}/Adversarial/{name}/dataset.json" for name in ("Neighbor", "GPTInst", "GPTOut", "Manual")),
        ),
    ),
    "auto-j": Source(option="auto_j", importer="auto-j", files=("data/test/testdata_pairwise.jsonl",)),
    "judgebench": Source(
        option="judgebench",
        importer="judgebench",
        files=(f"{_JUDGEBENCH}=gpt-4o-2024-05-13.jsonl", f"{_JUDGEBENCH}=claude-3-5-sonnet-20240620.jsonl"),
    ),
    "mt-bench": Source(option="llmbar", importer="llmbar", files=("Dataset/Processed/MT-Bench/dataset.json",)),
}
SPLITS = {"alpaca-eval": "alpaca_eval", DEV_SET.name: "dev"}


def prepare(arguments: Sequence[str]) -> None:
    """Import every set whose source is named in the arguments."""
    parser = argparse.ArgumentParser(
        prog="human_labels prepare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    for name in ("--pandalm", "--llmbar", "--auto-j", "--judgebench", "--alpaca-eval", "--dev", "--train"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        if (repository := getattr(options, source.option)) is not None:
            import_set(name, source, repository, options.out)
    for name, option in SPLITS.items():
        if (path := getattr(options, option)) is not None:
            shutil.copyfile(path, options.out / f"{name}.jsonl")
            print(f"{name}: copied from {path}")
    if options.train is not None:
        rates = WinRates.fitted(list_labels(options.train))
        (options.out / WIN_RATES).write_text(json.dumps(rates.to_json(), indent=1), encoding="utf-8")
        print(f"win rates of {len(rates.overall)} generators, from {options.train}")


def import_set(name: str, source: Source, repository: Path, out: Path) -> None:
    """Write one set's rows and its protocol."""
    with tempfile.TemporaryDirectory() as folder:
        files = [repository_file(repository, path, Path(folder)) for path in source.files]
        result = import_benchmark(source.importer, [str(file) for file in files], out / f"{name}.jsonl", overwrite=True)
    print(f"{name}: {result.rows} rows, labels {dict(sorted(result.winners.items()))}, {len(result.rejects)} rejected")


def repository_file(repository: Path, path: str, folder: Path) -> Path:
    """A file of a clone: from its work tree, else from its newest commit into `folder`, under the same path."""
    if (repository / path).exists():
        return repository / path
    command = ["git", "-C", str(repository), "show", f"HEAD:{path}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"error: {repository}: has no {path}, neither as a file nor in its newest commit; give another folder")
    copy = folder / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(done.stdout)
    return copy


def list_labels(path: Path) -> Sequence[tuple[tuple[str, ...], float]]:
    """(the two generators, P(first better)) of each labelled pair; a tie is 0.5."""
    labelled = read_labels(str(path))
    points = {1: 1.0, "tie": 0.5, 2: 0.0}
    return [
        (sample.answer_models, points[label.winner])
        for key, sample in labelled.samples.items()
        if (label := labelled.labels.get(key)) is not None and label.winner is not None
    ]
