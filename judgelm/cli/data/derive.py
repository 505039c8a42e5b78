"""`judgelm data derive`."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import console
from judgelm.cli.options import LabelOptions
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.errors import ConfigError, InputError

if TYPE_CHECKING:
    from judgelm.data.duplicates import ExcludedQuestions
    from judgelm.data.labelled_pair import LabelledPair


def derive_command(
    judged: Annotated[Path, typer.Argument(metavar="JUDGED")],
    out: Path,
    exclude: list[Path] | None = None,
    same_baseline: Annotated[int, typer.Option(min=0)] = 4,
    other_question: Annotated[int, typer.Option(min=0)] = 4,
    longer_share: Annotated[float, typer.Option(min=0.01, max=0.99)] = 0.5,
    max_characters: Annotated[int | None, typer.Option(min=1)] = None,
    seed: int = 0,
    overwrite: bool = False,
    *,
    rows_as: LabelOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Derive training pairs from judged pairs: two answers with one baseline, or one to another question.

    Options:
        judged: Labelled pairs, in any format of samples.
        out: Derived pairs, as rows for training.
        exclude: File of test questions, none of which is used; give it once for each file.
        same_baseline: Pairs of two answers compared with one third, by question, judge and third.
        other_question: Pairs whose worse answer belongs to another question, by question.
        longer_share: How often the longer answer of the same baseline is better.
        max_characters: Of question and both answers.
        seed: Another seed draws other pairs.
        overwrite: Replace an earlier file.

    Examples:
        judgelm data derive judged.jsonl -o derived.jsonl --exclude test.jsonl
        judgelm data derive judged.jsonl -o derived.jsonl --same-baseline 0

    Exit codes: 0 done, 1 usage or input error.
    """
    # numpy and scipy take a second to load
    from judgelm.data.derived_pairs import Derivation, derived_pairs
    from judgelm.data.duplicates import ExcludedQuestions
    from judgelm.data.labelled_pair import judgelm_row
    from judgelm.data.labelled_set import read_labelled
    from judgelm.jsonl import whole_file

    options = Derivation(
        same_baseline=same_baseline,
        other_question=other_question,
        longer_share=longer_share,
        max_characters=max_characters,
        seed=seed,
    )
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists already; add --overwrite to replace it, or choose another -o")
    excluded = ExcludedQuestions(map(str, exclude or ()))
    pairs = read_labelled(str(judged), source=judged.stem, reading=rows_as.reading)
    counts: Counter[str] = Counter()
    unused: Counter[str] = Counter()
    usable = _usable(pairs, excluded, unused)
    with whole_file(out) as file:
        for pair in derived_pairs(usable, options):
            rule = str(pair.sample.metadata["rule"])
            counts[rule] += 1
            file.write(judgelm_row(pair) | {"source": f"{judged.stem}: {rule}"})
        if not counts:
            passed = "".join(f"; {count:,} judged pairs {reason} are not used" for reason, count in unused.items())
            finding = f"{judged}: no pair could be derived{passed}"
            raise InputError(f"{finding}; it takes questions with two judged pairs of one baseline, or two questions")
    write_json(json_out, dict(counts))
    if not (quiet or is_stdout(json_out)):
        for rule, made in sorted(counts.items()):
            console.print(f"{made:,} pairs: {rule}", markup=False, highlight=False)
        for reason, count in unused.items():
            console.print(f"{count:,} judged pairs {reason}: not used", markup=False, highlight=False)
        console.print(f"written: {out}", markup=False, highlight=False, soft_wrap=True)


def _usable(
    pairs: "Iterable[LabelledPair]", excluded: "ExcludedQuestions", unused: Counter[str]
) -> "Iterator[LabelledPair]":
    """The pairs that others can be derived from; the rest is counted by reason."""
    from judgelm.data.derived_pairs import unused_because

    for pair in pairs:
        reason = "of an excluded question" if excluded.find(pair.sample.question) else unused_because(pair)
        if reason is None:
            yield pair
        else:
            unused[reason] += 1
