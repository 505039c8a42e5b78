"""`judgelm study position-bias`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.study.options import StudyOutput, named_run
from judgelm.errors import InputError

if TYPE_CHECKING:
    from judgelm.studies.position_bias import PairGroup


def position_bias_command(
    judgments: Annotated[list[str], typer.Argument(metavar="[NAME=]RUN")],
    *,
    output: StudyOutput,
) -> None:
    """Effect of the order of answers on a judge's verdicts, for each file or pair of files; no labels.

    Example: judgelm study position-bias bard=bard-vs-gpt.jsonl gpt-vs-bard.jsonl -o order

    Options:
        judgments: Run files in both orders, or review files (Vicuna, QLoRA) of each order: X-vs-Y and Y-vs-X, or of one
            NAME. NAME is the file's without one; a pair has the name of the first file that holds it.
    """
    from judgelm.studies.position_bias import position_bias_study  # statsmodels takes seconds to load

    output.write(position_bias_study(_groups([named_run(text) for text in judgments]), output.resampling))


def _groups(files: list[tuple[str, Path]]) -> "dict[str, PairGroup]":
    """Pair runs alone and reviews with those of the files that hold the other order, then pool them by name.

    Raises:
        InputError: a file cannot be read, is given twice, or has the same answers in the same order twice.
    """
    from judgelm.cli.evaluation import is_run_file
    from judgelm.data.sources.reviews import group_files, read_reviews
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.position_bias import merge_groups, pairs_of_reviews, pairs_of_run

    paths = [path.resolve() for _, path in files]
    if repeated := next((path for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{repeated}: given twice; give each file once")
    runs = [(name, path) for name, path in files if is_run_file(path)]
    reviews = [file for file in files if file not in runs]
    groups = [(name, pairs_of_run(read_judgments(path))) for name, path in runs]
    for indices in group_files(reviews):
        joined = [reviews[index] for index in indices]
        groups += pairs_of_reviews([(name, review) for name, path in joined for review in read_reviews(str(path))])
    merged = merge_groups(groups)
    return {name: merged[name] for name in dict.fromkeys(name for name, _ in files) if name in merged}
