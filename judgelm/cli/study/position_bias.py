"""`judgelm study position-bias`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.study.options import BootstrapOption, JsonOption, OutOption, OverwriteOption, SeedOption, finish
from judgelm.errors import InputError

if TYPE_CHECKING:
    from judgelm.studies.position_bias.study import PairGroup


def position_bias_command(
    judgments: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUN",
            help="Run files in both orders, or review files (Vicuna, QLoRA) of each order: X-vs-Y and Y-vs-X, or of "
            "one NAME. NAME is the file's without one; pairs stand under that of the first file that has them.",
        ),
    ],
    out: OutOption,
    overwrite: OverwriteOption = False,
    seed: SeedOption = 0,
    bootstrap: BootstrapOption = 2000,
    json: JsonOption = None,
) -> None:
    """How far a judge's verdicts depend on which answer stands first, for each file or pair of files; no labels.

    Example: judgelm study position-bias bard=bard-vs-gpt.jsonl gpt-vs-bard.jsonl -o order
    """
    from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load
    from judgelm.studies.position_bias.study import position_bias_study

    named = [_named(text) for text in judgments]
    result = position_bias_study(_groups(named), Resampling(seed=seed, resamples=bootstrap))
    finish(result, out, overwrite=overwrite, json=json)


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else (Path(text).stem, Path(text))


def _groups(files: list[tuple[str, Path]]) -> "dict[str, PairGroup]":
    """Run files by themselves, reviews with those of the files that hold the other order; pooled by name afterwards.

    Raises:
        InputError: a file cannot be read, is given twice, or has the same answers in the same order twice.
    """
    from judgelm.cli.evaluation import is_run_file
    from judgelm.data.formats.reviews import group_files, read_reviews
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.position_bias.pairs import merge_groups, pairs_of_reviews, pairs_of_run

    paths = [path.resolve() for _, path in files]
    if repeated := next((path for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{repeated}: given twice; give each file once")
    runs = [(name, path) for name, path in files if is_run_file(path)]
    reviewed = [file for file in files if file not in runs]
    found = [(name, pairs_of_run(read_judgments(path))) for name, path in runs]
    for places in group_files(reviewed):
        named = [reviewed[place] for place in places]
        found += pairs_of_reviews([(name, review) for name, path in named for review in read_reviews(str(path))])
    groups = merge_groups(found)
    return {name: groups[name] for name in dict.fromkeys(name for name, _ in files) if name in groups}
