"""A whole data set in a folder: the sets that the builder writes, their card, their manifest and their report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from judgelm.data.builder.dataset_card import dataset_card, manifest
from judgelm.data.builder.options import BuildOptions
from judgelm.data.builder.pipeline import BuildResult, build
from judgelm.data.builder.set_files import write_text
from judgelm.engines.base import EngineOptions
from judgelm.reports.data_set.page import render_data_report
from judgelm.runs.fingerprint import input_identities


def build_data_set(
    options: BuildOptions, *, progress: Callable[[str, int], None] = lambda stage, pairs: None
) -> BuildResult:
    """Build, and write beside the sets `README.md`, `build.json` and `report.html`.

    Raises:
        InputError: an input cannot be read, or no pair is left.
        ConfigError: a set would be empty, or an option does not fit.
        ModelError: the tokenizer cannot be loaded.
        RunError: the output cannot be written.
    """
    folder = Path(options.out)
    earlier = _earlier_files(folder)
    built = build(options, tokenizer=_tokenizer(options), progress=progress)
    for name in earlier - built.files.keys():
        (folder / name).unlink(missing_ok=True)
    inputs = input_identities([source.path for source in options.inputs])
    write_text(folder / "README.md", dataset_card(options, built))
    write_text(folder / "build.json", json.dumps(manifest(options, built, inputs), indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "report.html", render_data_report(built, options, title=f"Data set {folder.name}"))
    return built


def _earlier_files(folder: Path) -> set[str]:
    """The sets that an earlier build wrote here, which would be taken for this one's."""
    try:
        return set(json.loads((folder / "build.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _tokenizer(options: BuildOptions) -> Any:
    if options.tokenizer is None:
        return None
    from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds, and most need no tokenizer

    return load_tokenizer(options.tokenizer, None, EngineOptions(model=options.tokenizer))
