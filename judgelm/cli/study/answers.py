"""Studies of judged answers: `judgelm study qa`, `self-reference`, `ssr`, and `self-bias`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.console import console
from judgelm.cli.help import essential
from judgelm.cli.options import ColumnOptions, StudyOutput, named_run, parse_pairs, read_families
from judgelm.data.readers.rows import Row
from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import read_jsonl
from judgelm.records import Judgment, Sample

_LABELS = {"correct": True, "incorrect": False, "1": True, "0": False, "true": True, "false": False}


@essential("judgments human siblings failures column out overwrite json")
def qa_command(
    answers: Annotated[Path, typer.Argument(metavar="FILE")],
    judgments: Annotated[list[str], typer.Option("--judgments", "-j", metavar="JUDGE[:PROMPT]=RUN")],
    human: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    siblings: Annotated[list[str] | None, typer.Option("--sibling", metavar="MODEL=JUDGE")] = None,
    own: Annotated[list[str] | None, typer.Option(metavar="MODEL=JUDGE")] = None,
    types_judge: Annotated[str | None, typer.Option(metavar="JUDGE")] = None,
    failures: Literal["excluded", "as_incorrect"] = "excluded",
    rules: Literal["hotpotqa", "2wiki", "drop", "quoref", "strict"] = "hotpotqa",
    validated: Annotated[bool, typer.Option("--validated/--first", metavar="")] = True,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Compare judges, exact match, and F1 with human labels, by data set, prompt, and answer type.

    The study also measures self-preference.

    Example: judgelm study qa answers.jsonl -j qwen=a.jsonl -j qwen:zero-shot=b.jsonl --human people.jsonl -o FOLDER

    Options:
        answers: The judged answers, as plain rows or as the file of a QA data set.
        judgments: Run in mode qa. Repeatable.
        human: Human labels: rows with an id and a label (correct or incorrect, 1 or 0).
        siblings: An answering model and a judge from the same family. Repeatable.
        own: An answering model and the name of the same model as a judge, if the names differ. Repeatable.
        types_judge: Judge for the analysis by answer type. Default: the judge that agrees best with the human labels.
        failures: Exclude failures, or, as in the original code, count them as incorrect.
        rules: Rules for exact match; use the rules of the run.
        validated: Match any validated answer, or only the first; use the setting of the run.
    """
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.samples import SampleStream
    from judgelm.data.sources.qa import has_predictions, read_qa
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.qa import QaOptions, qa_study
    from judgelm.studies.qa_scores import QaRun, qa_answers  # statsmodels takes seconds to load

    options = QaOptions(
        failures=failures,
        siblings=parse_pairs(siblings or (), "--sibling", parse=str),
        own=parse_pairs(own or (), "--own", parse=str),
        types_judge=types_judge,
        resampling=output.resampling,
    )
    runs = []
    for text in judgments:
        name, equals, path = text.partition("=")
        judge, _, variant = name.partition(":")
        if not (equals and judge and path):
            raise ConfigError(f"--judgments {text}: expected JUDGE=RUN or JUDGE:PROMPT=RUN")
        runs.append(QaRun(judge=judge, judgments=read_judgments(path), variant=variant or "initial"))
    labels = {} if human is None else _human(human)
    reading = rows_as.reading_of(answers, *(Path(text.partition("=")[2]) for text in judgments))
    file = str(answers)
    samples = list(read_qa(file) if has_predictions(file) else SampleStream([file], reading=reading))
    by_id, notes = {sample.id: sample for sample in samples}, []
    for run in runs:
        texts = match_samples(run.judgments, by_id, name=file)[1]
        notes += [f"{run.name}: {note}" for note in texts.notes()]
    result = qa_study(qa_answers(samples, labels, rules=rules, validated=validated), runs, options)
    output.write(replace(result, warnings=(*result.warnings, *notes)))


def _human(path: Path) -> dict[str, bool]:

    labels: dict[str, bool] = {}
    for line, row in read_jsonl(path):
        key, label = str(row.get("id", "")), _LABELS.get(str(row.get("label", row.get("human"))).lower())
        if not key or label is None:
            raise InputError(f"{path}:{line}: expected id and label (correct or incorrect, 1 or 0), got {row!r:.80}")
        if key in labels:
            raise InputError(f"{path}:{line}: duplicate id {key!r}; keep one label per answer")
        labels[key] = label
    return labels


def self_reference_command(
    truth: Annotated[Path, typer.Option("--truth", "-t", metavar="FILE")],
    cot: Annotated[list[str] | None, typer.Option(metavar="[JUDGE=]RUN")] = None,
    guided: Annotated[list[str] | None, typer.Option(metavar="[JUDGE=]RUN")] = None,
    *,
    output: StudyOutput,
) -> None:
    """Relate a judge's own answers to its verdicts: F1 by their correctness, overconfidence, and correlations.

    The runs must judge single answers as correct or incorrect, with CoT or guided by the judge's own answer. JUDGE
    defaults to the file name. Runs with the same JUDGE are compared.

    Example: judgelm study self-reference --cot small=cot.jsonl --guided small=guided.jsonl -t truth.jsonl -o FOLDER

    Options:
        truth: Ground truth as JSONL: id, agent, dataset, truth (true or false), question, and either answer (the
            correct answer) or judge_correct.
        cot: Run without references. Repeatable, one per judge.
        guided: Run guided by the judge's own answers. Repeatable, one per judge.
    """
    from judgelm.runs.run_files import read_judgments  # statsmodels takes seconds to load
    from judgelm.studies.self_reference import self_reference_study
    from judgelm.studies.self_reference_answers import JudgeRuns
    from judgelm.studies.truth_file import AnswerTruth, read_truths

    with_cot, with_own = _by_judge("--cot", cot), _by_judge("--guided", guided)
    names = list(dict.fromkeys([*with_cot, *with_own]))
    if not names:
        raise ConfigError("study self-reference: no runs; add --cot RUN, --guided RUN, or both")

    def read(files: dict[str, Path], judge: str) -> dict[str, Judgment] | None:
        return read_judgments(files[judge]) if judge in files else None

    runs = [JudgeRuns(judge=name, cot=read(with_cot, name), guided=read(with_own, name)) for name in names]
    output.write(self_reference_study(runs, read_truths(truth, AnswerTruth), output.resampling))


def _by_judge(option: str, values: list[str] | None) -> dict[str, Path]:
    runs: dict[str, Path] = {}
    for text in values or []:
        judge, path = named_run(text)
        if judge in runs:
            raise ConfigError(f"{option} {text}: judge {judge!r} already has a run; use NAME=RUN to name each judge")
        runs[judge] = path
    return runs


def ssr_command(
    never: Annotated[Path, typer.Option(metavar="RUN")],
    always: Annotated[Path, typer.Option(metavar="RUN")],
    truth: Annotated[Path, typer.Option("--truth", "-t", metavar="FILE")],
    selective: Annotated[Path | None, typer.Option(metavar="RUN")] = None,
    tau: float = 0.8,
    split: Literal["wrong", "half", "tie"] = "wrong",
    calibration_share: float = 0.5,
    *,
    output: StudyOutput,
) -> None:
    """Evaluate selective self-reference at every threshold (tau) from two runs: accuracy, gate, slices, and cost.

    Both runs must use the same self-answers.

    Example: judgelm study ssr --never never.jsonl --always always.jsonl -t truth.jsonl --tau 0.8 -o FOLDER

    Options:
        never: Run in mode ssr that never shows a reference.
        always: Run in mode ssr that always shows the majority answer.
        truth: Ground truth as JSONL: id, winner (1 or 2), question, category, and either answer (the correct answer)
            or judge_correct.
        selective: Run with a gate, for comparison with the other runs.
        tau: Minimum agreement between self-answers to show a reference, from 0 to 1.
        split: How to count conflicting orders; the first table shows all three methods.
        calibration_share: Share of the questions in each category used to choose tau.
    """
    from judgelm.runs.run_files import read_judgments  # statsmodels takes seconds to load
    from judgelm.studies.ssr import SsrOptions, ssr_study
    from judgelm.studies.truth_file import PairTruth, read_truths

    options = SsrOptions(tau=tau, split=split, calibration_share=calibration_share, resampling=output.resampling)
    truths = read_truths(truth, PairTruth)
    gated = None if selective is None else read_judgments(selective)
    output.write(ssr_study(read_judgments(never), read_judgments(always), truths, options, selective=gated))


@essential("run rows families reference length column out overwrite json")
def self_bias_command(
    ratings: Annotated[list[Path] | None, typer.Argument(metavar="FILE")] = None,
    run: Annotated[list[str] | None, typer.Option(metavar="JUDGE=RUN")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    families: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    reference: Annotated[str, typer.Option(metavar="JUDGE")] = "human",
    item_column: Annotated[str, typer.Option(metavar="COLUMN")] = "item",
    by: Annotated[list[str] | None, typer.Option(metavar="COLUMN")] = None,
    indicator: Annotated[str | None, typer.Option(metavar="COLUMN")] = None,
    scaling: Literal["maximum", "unit"] = "maximum",
    spline: bool = False,
    length: Literal["none", "per_judge", "shared"] = "none",
    length_tokenizer: Annotated[str | None, typer.Option(metavar="MODEL")] = None,
    errors: Literal["HC1", "HC0", "cluster"] = "HC1",
    level: Annotated[float, typer.Option(min=0.5, max=0.999)] = 0.90,
    checks: bool = True,
    weak: Annotated[list[str] | None, typer.Option(metavar="MODEL")] = None,
    other_reference: Literal["paper", "authors", "both"] = "paper",
    draws: Annotated[int, typer.Option(min=1)] = 100,
    debiased: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Estimate judges' self-bias and family bias relative to human scores, with robustness checks (Play Favorites).

    Scores can come from rating files, run files, or both. Human ratings must use the same items and model names as the
    rows.

    Example: judgelm study self-bias people.csv --run gpt-4o=a.jsonl --run llama=b.jsonl --rows answers.jsonl -o FOLDER

    Options:
        ratings: Ratings in long format, or wide files from the Play Favorites data.
        run: A judge's run in mode rubric or single. Repeatable.
        rows: The judged rows, with answer, answer_models, and item (or question).
        families: YAML file that maps each family to a list of models. Default: derived from the model names.
        reference: Judge whose scores are used as the reference.
        item_column: Column that identifies the prompt.
        by: Fit a separate model for each value of this column. Repeatable.
        indicator: A 0/1 column for estimating a different bias with a control group, with one effect per judge.
        scaling: Divide scores by the dimension's maximum, or rescale them to [0, 1].
        spline: Use a cubic spline of the reference instead of a linear term.
        length: Control for answer length within a prompt in the main regression.
        length_tokenizer: Tokenizer for measuring answers from --run, such as bert-base-uncased (used in the paper).
            Default: count words.
        errors: Type of standard errors; cluster groups them by item.
        level: Confidence level of the Wald intervals.
        checks: Run the robustness checks.
        weak: Model to exclude in the weak-model check. Repeatable. Default: the models in the paper.
        other_reference: Use judges from the same family as the reference, excluding (paper) or including (authors)
            their own completions.
        draws: Number of label draws in the few-labels check.
        debiased: Also write the debiased scores to this JSONL file.
    """
    from judgelm.data.samples import SampleStream
    from judgelm.data.sources.rating_tables import RatingColumns, read_ratings, write_ratings
    from judgelm.metrics.self_bias import BiasModel  # statsmodels takes seconds to load
    from judgelm.studies.self_bias import debiased_ratings, study_self_bias
    from judgelm.studies.self_bias_fits import SelfBiasOptions

    extra = tuple(dict.fromkeys([*(by or []), *([indicator] if indicator else [])]))
    columns = RatingColumns(item=item_column, extra=extra)
    curve: Literal["spline", "line"] = "spline" if spline else "line"
    model = BiasModel(reference=curve, length=length, indicator=indicator, errors=errors, level=level)
    options = SelfBiasOptions(
        families=None if families is None else read_families(families),
        reference=reference,
        scaling=scaling,
        model=model,
        by=tuple(by or []),
        weak=None if weak is None else tuple(weak),
        other_reference=other_reference,
        checks=checks,
        draws=draws,
        resampling=output.resampling,
    )
    with console.activity("reading ratings") as show:
        judged = [Path(text.partition("=")[2]) for text in run or []]
        stream = () if rows is None else SampleStream([str(rows)], reading=rows_as.reading_of(rows, *judged))
        samples = {sample.id: sample for sample in stream}
        more = _of_runs(run or [], samples, columns.item, length_tokenizer)
        table = read_ratings(ratings or [], columns, more=more)
        result = study_self_bias(table, options, progress=show)
    output.write(result)
    if debiased is not None:
        write_ratings(debiased_ratings(table, options), debiased)
        console.message(f"wrote the debiased scores to {debiased}")


def _of_runs(runs: list[str], samples: "Mapping[str, Sample]", item: str, tokenizer: str | None) -> "Iterator[Row]":
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.sources.rating_tables import count_words, run_ratings
    from judgelm.runs.run_files import read_judgments

    if not runs:
        if tokenizer is not None:
            raise ConfigError("--length-tokenizer requires --run, because rating files already contain lengths")
        return
    if not samples:
        raise ConfigError("--run requires the judged rows, which contain the model of each answer; add --rows")
    length = count_words if tokenizer is None else _token_counter(tokenizer)
    for text in runs:
        judge, equals, path = text.partition("=")
        if not equals:
            raise ConfigError(f"--run {text}: expected JUDGE=RUN, with the judge named as in answer_models")
        judgments = read_judgments(Path(path))
        for note in match_samples(judgments, samples, name="--rows")[1].notes():
            console.message(f"{path}: {note}")
        yield from run_ratings(judge, judgments, samples, item=item, length=length)


def _token_counter(source: str) -> Callable[[str], int]:
    from judgelm.engines.model_files import load_tokenizer

    tokenizer = load_tokenizer(source, None, EngineOptions(model=source))
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])
