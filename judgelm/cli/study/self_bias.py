"""`judgelm study self-bias`."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judgelm.cli.console import console
from judgelm.cli.options import ColumnOptions
from judgelm.cli.study.options import StudyOutput, print_plain
from judgelm.errors import ConfigError
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.data.readers.rows import Row
    from judgelm.data.samples import Reading
    from judgelm.records import Sample


def self_bias_command(
    ratings: Annotated[list[Path] | None, typer.Argument(metavar="FILE")] = None,
    run: Annotated[list[str] | None, typer.Option(metavar="JUDGE=RUN")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    families: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    reference: Annotated[str, typer.Option(metavar="JUDGE")] = "human",
    item_column: Annotated[str, typer.Option(metavar="COLUMN")] = "item",
    dimension_column: Annotated[str, typer.Option(metavar="COLUMN")] = "dimension",
    task_column: Annotated[str, typer.Option(metavar="COLUMN")] = "task",
    by: Annotated[list[str] | None, typer.Option(metavar="COLUMN")] = None,
    indicator: Annotated[str | None, typer.Option(metavar="COLUMN")] = None,
    scaling: Literal["maximum", "unit"] = "maximum",
    spline: bool = False,
    length: Literal["none", "per_judge", "shared"] = "none",
    length_over: Literal["prompt", "overall"] = "prompt",
    length_tokenizer: Annotated[str | None, typer.Option(metavar="MODEL")] = None,
    dimensions: bool = True,
    self_term: bool = True,
    family_term: bool = True,
    errors: Literal["HC1", "HC0", "cluster"] = "HC1",
    level: Annotated[float, typer.Option(min=0.5, max=0.999)] = 0.90,
    checks: bool = True,
    weak: Annotated[list[str] | None, typer.Option(metavar="MODEL")] = None,
    other_reference: Literal["paper", "authors", "both"] = "paper",
    label_share: Annotated[float, typer.Option(min=0.001, max=0.999)] = 0.1,
    draws: Annotated[int, typer.Option(min=1)] = 100,
    debiased: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Self- and family-bias of judges against human scores, with robustness checks (Play Favorites).

    Judges are files of ratings, run files, or both; people's ratings name items and models as the rows do.

    Example: judgelm study self-bias people.csv --run gpt-4o=a.jsonl --run llama=b.jsonl --rows answers.jsonl -o FOLDER

    Options:
        ratings: Ratings in long format, wide files of the Play Favorites data, or a folder of HELM Instruct's runs.
        run: A judge's run of mode rubric or single; repeat for several.
        rows: The rows these runs judged: answer, answer_models, item (or question).
        families: YAML: family -> list of models; default: by the models' names.
        reference: The judge whose scores are the reference.
        item_column: Column of the prompt.
        dimension_column: Column of the dimension.
        task_column: Column of the task type.
        by: A further column to fit apart; repeat for several.
        indicator: 0 and 1: another bias with a control group, one effect per judge.
        scaling: Divide by the dimension's maximum, or rescale to [0, 1].
        spline: A cubic spline of the reference for its slope.
        length: Control for length in the main regression.
        length_over: Lengths are normalised within a prompt, or over all rows.
        length_tokenizer: Hub id or folder whose tokenizer counts the lengths of --run's answers, such as
            bert-base-uncased (the paper's); default: words.
        dimensions: Effects of the dimensions.
        self_term: Self-bias in the regression.
        family_term: Family-bias in the regression.
        errors: Standard errors; cluster is by item.
        level: Level of the Wald intervals.
        checks: Run the robustness checks.
        weak: A model that a check leaves out; repeat; default: the paper's.
        other_reference: A family's judges as reference: without its completions, or with, as the authors' code.
        label_share: Share of labels that inference from few labels is shown.
        draws: How often these labels are drawn.
        debiased: Also write all scores without the bias, as JSON lines.
    """
    from judgelm.data.readers.rows import RejectCounts
    from judgelm.data.sources.rating_tables import (  # statsmodels takes seconds to load
        RatingColumns,
        helm_instruct_ratings,
        is_helm_output,
        read_ratings,
        write_ratings,
    )
    from judgelm.metrics.self_bias import BiasModel
    from judgelm.studies.self_bias import debiased_ratings, study_self_bias
    from judgelm.studies.self_bias_fits import SelfBiasOptions

    extra = tuple(dict.fromkeys([*(by or []), *([indicator] if indicator else [])]))
    columns = RatingColumns(item=item_column, dimension=dimension_column, task=task_column, extra=extra)
    model = BiasModel(
        reference="spline" if spline else "line",
        length=length,
        dimensions=dimensions,
        self_bias=self_term,
        family_bias=family_term,
        indicator=indicator,
        errors=errors,
        level=level,
    )
    options = SelfBiasOptions(
        families=None if families is None else _families(families),
        reference=reference,
        scaling=scaling,
        model=model,
        length_over=length_over,
        by=tuple(by or []),
        weak=None if weak is None else tuple(weak),
        other_reference=other_reference,
        checks=checks,
        label_share=label_share,
        draws=draws,
        resampling=output.resampling,
    )
    rejects = RejectCounts()
    folders = [path for path in ratings or [] if is_helm_output(path)]
    with console.activity("reading ratings") as show:
        helm = (row for folder in folders for row in helm_instruct_ratings(folder, rejects))
        samples = {} if rows is None else _samples_of(rows, rows_as.reading)
        more = chain(_of_runs(run or [], samples, columns.item, length_tokenizer), helm)
        table = read_ratings([path for path in ratings or [] if path not in folders], columns, more=more)
        result = study_self_bias(table, options, progress=show)
    for line in rejects.lines():
        print_plain(f"rating left out: {line}")
    output.write(result)
    if debiased is not None:
        write_ratings(debiased_ratings(table, options), debiased)
        print_plain(f"scores without the bias in {debiased}")


def _samples_of(rows: Path, reading: "Reading") -> "dict[str, Sample]":
    """The rows that runs judged, by id.

    Raises:
        InputError: the file cannot be read.
    """
    from judgelm.data.samples import SampleStream

    return {sample.id: sample for sample in SampleStream([str(rows)], reading=reading)}


def _of_runs(runs: list[str], samples: "Mapping[str, Sample]", item: str, tokenizer: str | None) -> "Iterator[Row]":
    """The ratings that run files hold.

    Raises:
        ConfigError: runs without rows, a run without its judge's name, or a tokenizer without runs.
        ModelError: there is no such tokenizer.
        InputError: a file cannot be read, or a run is not of these rows.
    """
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.sources.rating_tables import count_words, run_ratings
    from judgelm.runs.run_files import read_judgments

    if not runs:
        if tokenizer is not None:
            raise ConfigError("--length-tokenizer counts the answers of --run; files of ratings bring their lengths")
        return
    if not samples:
        raise ConfigError("--run: also give the rows that were judged, with --rows: they name the model of each answer")
    length = count_words if tokenizer is None else _token_counter(tokenizer)
    for text in runs:
        judge, equals, path = text.partition("=")
        if not equals:
            raise ConfigError(f"--run {text}: expected JUDGE=RUN, the judge spelled as its own answers' model")
        judgments = read_judgments(Path(path))
        for note in match_samples(judgments, samples, name="--rows")[1].notes():
            print_plain(f"{path}: {note}")
        yield from run_ratings(judge, judgments, samples, item=item, length=length)


def _token_counter(source: str) -> Callable[[str], int]:
    """Counts the tokens of a text, without those that a model's tokenizer adds around it.

    Raises:
        ModelError: there is no such tokenizer.
    """
    from judgelm.engines.base import EngineOptions
    from judgelm.engines.model_files import load_tokenizer

    tokenizer = load_tokenizer(source, None, EngineOptions(model=source))
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _families(path: Path) -> dict[str, list[str]]:
    """Families from YAML.

    Raises:
        ConfigError: the file cannot be read, or is no mapping of family to models.
    """
    families = read_yaml(path)
    if not isinstance(families, dict) or not all(isinstance(names, list) for names in families.values()):
        raise ConfigError(f"{path}: expected family: [model, ...] for each family")
    return {str(family): [str(name) for name in names] for family, names in families.items()}
