"""`judgelm study qa`."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judgelm.cli.options import ColumnOptions
from judgelm.cli.study.options import StudyOutput
from judgelm.errors import ConfigError, InputError

if TYPE_CHECKING:
    from judgelm.data.samples import Reading
    from judgelm.records import Sample
    from judgelm.studies.qa_scores import QaRun

_LABELS = {"correct": True, "incorrect": False, "1": True, "0": False, "true": True, "false": False}


def qa_command(
    answers: Annotated[Path, typer.Argument(metavar="FILE")],
    judgments: Annotated[list[str], typer.Option("--judgments", "-j", metavar="JUDGE[:PROMPT]=RUN")],
    human: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    siblings: Annotated[list[str] | None, typer.Option("--sibling", metavar="MODEL=JUDGE")] = None,
    own: Annotated[list[str] | None, typer.Option(metavar="MODEL=JUDGE")] = None,
    sibling_others: Literal["with-own", "without-own"] = "with-own",
    types_judge: Annotated[str | None, typer.Option(metavar="JUDGE")] = None,
    failures: Literal["excluded", "as_incorrect"] = "excluded",
    rules: Literal["hotpotqa", "2wiki", "drop", "quoref", "strict"] = "hotpotqa",
    validated: Annotated[bool, typer.Option("--validated/--first", metavar="")] = True,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Exact match and F1 against judges and people, by data set, prompt and answer type; self-preference.

    Example: judgelm study qa answers.jsonl -j qwen=a.jsonl -j qwen:zero-shot=b.jsonl --human people.jsonl -o FOLDER

    Options:
        answers: The answers that were judged: plain rows, or a QA set's own file.
        judgments: A run of mode qa; give one or more.
        human: People's labels: rows of id and label (correct or incorrect, 1 or 0).
        siblings: An answering model and a judge of its family.
        own: An answering model's own judge, where their names differ.
        sibling_others: Whether a sibling's other judges include the answering model's own.
        types_judge: Judge of the analysis by answer type; default: the nearest to people.
        failures: Answers without a label: left out, or incorrect as in the original code.
        rules: Whose exact match decides without a judge; as in the run.
        validated: Match any validated answer, or the first alone; as in the run.
    """
    from judgelm.data.judged_texts import match_samples
    from judgelm.studies.qa import QaOptions, qa_study
    from judgelm.studies.qa_scores import qa_answers  # statsmodels takes seconds to load

    options = QaOptions(
        failures=failures,
        siblings=_pairs("--sibling", siblings or []),
        own=_pairs("--own", own or []),
        sibling_others=sibling_others == "with-own",
        types_judge=types_judge,
        resampling=output.resampling,
    )
    runs = [_run(text) for text in judgments]
    labels = {} if human is None else _human(human)
    samples = list(_samples(answers, rows_as.reading))
    by_id, notes = {sample.id: sample for sample in samples}, []
    for run in runs:
        texts = match_samples(run.judgments, by_id, name=str(answers))[1]
        notes += [f"{run.name}: {note}" for note in texts.notes()]
    result = qa_study(qa_answers(samples, labels, rules=rules, validated=validated), runs, options)
    output.write(replace(result, warnings=(*result.warnings, *notes)))


def _pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """Parse `MODEL=JUDGE`, each model once.

    Raises:
        ConfigError: a value of another form, or a model twice.
    """
    judges: dict[str, str] = {}
    for text in values:
        model, equals, judge = text.partition("=")
        if not (equals and model and judge) or model in judges:
            raise ConfigError(f"{option} {text}: expected MODEL=JUDGE, each model once")
        judges[model] = judge
    return judges


def _run(text: str) -> "QaRun":
    """Read the run of `JUDGE[:PROMPT]=RUN`.

    Raises:
        ConfigError: the text has another form.
    """
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.qa_scores import QaRun

    name, equals, file = text.partition("=")
    judge, _, variant = name.partition(":")
    if not (equals and judge and file):
        raise ConfigError(f"--judgments {text}: expected JUDGE=RUN or JUDGE:PROMPT=RUN")
    return QaRun(judge=judge, judgments=read_judgments(file), variant=variant or "initial")


def _samples(path: Path, reading: "Reading") -> "Iterable[Sample]":
    """Rows of QA sets with predictions in them, else rows as batch runs read them."""
    from judgelm.data.samples import SampleStream
    from judgelm.data.sources.qa import has_predictions, read_qa

    return read_qa(str(path)) if has_predictions(str(path)) else SampleStream([str(path)], reading=reading)


def _human(path: Path) -> dict[str, bool]:
    """People's labels by sample id.

    Raises:
        InputError: a row has no id or no label, or an id comes twice.
    """
    from judgelm.jsonl import read_jsonl

    labels: dict[str, bool] = {}
    for line, row in read_jsonl(path):
        key, label = str(row.get("id", "")), _LABELS.get(str(row.get("label", row.get("human"))).lower())
        if not key or label is None:
            raise InputError(f"{path}:{line}: expected id and label (correct or incorrect, 1 or 0), got {row!r:.80}")
        if key in labels:
            raise InputError(f"{path}:{line}: id {key!r} appeared before; keep one label for each answer")
        labels[key] = label
    return labels
