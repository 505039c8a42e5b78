"""Commands of judgelm that are skipped where what they write is there, and the labelled rows of published sets."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.findings.published import SETS, LabelledSet

LEAST = 30
"""Right and wrong cases that a figure needs at least."""

Figures = dict[str, Any]


class Steps:
    """Where inputs and outputs are, and the commands that make the latter."""

    def __init__(self, data: Path, work: Path, models: Mapping[str, str], *, clones: Path = Path()) -> None:
        self.data, self.clones, self.work, self.models = data, clones, work, models
        work.mkdir(parents=True, exist_ok=True)

    def paths(self, patterns: tuple[str, ...]) -> list[str]:
        """The files of these patterns; none where one of them has no file."""
        matches = [sorted(self._folder(pattern).glob(pattern.removeprefix("data/"))) for pattern in patterns]
        return [str(path) for paths in matches for path in paths] if all(matches) else []

    def _folder(self, pattern: str) -> Path:
        return self.data if pattern.startswith("data/") else self.clones

    def judgelm(self, out: Path, *arguments: str, resumes: bool = False) -> Path:
        """Run a command unless `out`, which it writes last, exists; one that resumes is run in any case."""
        if resumes or not out.exists():
            print("judgelm", shlex.join(arguments), file=sys.stderr)
            subprocess.run([str(Path(sys.executable).parent / "judgelm"), *arguments], check=True, stdout=sys.stderr)
        return out

    def judge(self, name: str, rows: Path, model: str, *arguments: str) -> Path:
        """The run file NAME.jsonl of these rows, which goes on where it stopped."""
        out = self.work / f"{name}.jsonl"
        command = ("batch", str(rows), "-o", str(out), "--model", self.models[model], "--dtype", "bfloat16")
        limits = ("--distribution", "--max-failure-rate", "1", "--quiet")
        return self.judgelm(out, *command, *limits, *arguments, resumes=True)

    def study(self, name: str, *arguments: str) -> Figures:
        """The figures of a study or of `judgelm eval`, kept as NAME.json."""
        out = self.work / f"{name}.json"
        folder = [] if arguments[0] == "eval" else ["-o", str(self.work / name), "--overwrite"]
        self.judgelm(out, *arguments, *folder, "--json", str(out))
        figures: Figures = json.loads(out.read_text(encoding="utf-8"))
        return figures

    def labels(self, name: str) -> Path:
        """The labelled rows of a published set."""
        chosen, out = SETS[name], self.work / f"{name}.jsonl"
        files = self.paths(chosen.files)
        if chosen.annotator is not None and not out.exists():
            files = [str(self._annotator_alone(chosen, Path(files[0])))]
        return self.judgelm(out, "data", "import", chosen.format, *files, "-o", str(out), "--overwrite")

    def _annotator_alone(self, chosen: LabelledSet, folder: Path) -> Path:
        """A copy of AlpacaEval's tables with one annotator's judgments."""
        out = self.work / "annotator"
        out.mkdir(exist_ok=True)
        for path in folder.glob("*.parquet"):
            table = pd.read_parquet(path)
            if "annotator" in table:
                table = table[table["annotator"] == chosen.annotator]
            table.to_parquet(out / path.name)
        return out


def read_lines(path: Path) -> Iterator[Figures]:
    """The rows of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def enough(share: Figures | None) -> Figures | None:
    """A share of right cases, or None with fewer than 30 right or 30 wrong ones."""
    if share is None or round(min(share["value"], 1 - share["value"]) * share["n"]) < LEAST:
        return None
    return share
