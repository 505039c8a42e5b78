"""The file of all results, by step: `gpu.json`. Standard library only."""

import json
from pathlib import Path


def results(folder: Path) -> dict[str, dict[str, object]]:
    """Results in the folder, by step."""
    file = folder / "gpu.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def record(folder: Path, step: str, entries: dict[str, object]) -> None:
    """Add entries to a step's; a step that begins loses those of an earlier run."""
    entries_by_step = results(folder)
    entries_by_step[step] = entries if entries.get("state") == "begun" else entries_by_step.get(step, {}) | entries
    new = folder / "gpu.json.new"
    new.write_text(json.dumps(entries_by_step, indent=1), encoding="utf-8")
    new.replace(folder / "gpu.json")
