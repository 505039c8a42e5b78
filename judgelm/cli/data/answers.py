"""`judgelm data answers`: collect model answers, and turn them into pairs or rows to judge."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.console import EXIT_FAILURES, EXIT_USAGE, echo, resumable, write_rows
from judgelm.cli.options import ColumnOptions
from judgelm.data import generators
from judgelm.data.answers import AnswerSet, PairSampler, judged_rows, pair_rows, read_collected, read_questions
from judgelm.data.readers.rows import Reject
from judgelm.errors import ConfigError, InputError, JudgelmError
from judgelm.jsonl import check_no_input
from judgelm.modes.generation import QuestionTask
from judgelm.records import Sample
from judgelm.runs.answers import collect
from judgelm.runs.run_files import Retry, check_output_is_no_input
from judgelm.runs.stats import AnswerStats

LOG_EVERY_S = 30.0

Questions = Annotated[
    str,
    typer.Argument(
        metavar="QUESTIONS", help="Rows with question_body or question, and optionally id, reference, and category."
    ),
]


def collect_command(
    questions: Questions,
    out: Annotated[Path, typer.Option(metavar="FOLDER")],
    config: Path | None = None,
    generator: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE,...")] = None,
    task: QuestionTask | None = None,
    samples: Annotated[int | None, typer.Option(metavar="K")] = None,
    temperature: Annotated[float, typer.Option(min=0.0)] = 0.7,
    limit: int | None = None,
    retry: Retry = "engine",
    overwrite: bool = False,
    *,
    columns: ColumnOptions,
) -> None:
    """Collect answers to questions from one model after another.

    Writes FOLDER/NAME.jsonl and a manifest for each model. Run the same command again to resume; finished models are
    skipped. If a model cannot be loaded, the remaining models still run.

    Options:
        out: Output folder, with one file per model.
        config: YAML file with a list of generators.
        generator: Additional model. Repeatable.
        task: Prompt and parser for all models. Default: each model's setting.
        samples: Sample K answers per question instead of using each model's decoding settings.
        temperature: Sampling temperature for --samples.
        limit: Use only the first N questions.
        retry: Which failures to retry on a rerun.
        overwrite: Delete earlier answers, and start over.

    Examples:
        judgelm data answers collect questions.jsonl -o answers/ --config c.yaml
        judgelm data answers collect q.jsonl -o answers/ --generator name=a,model=M
        judgelm data answers collect q.jsonl -o own/ --config c.yaml --samples 5

    Tasks: question sends the question with its options. number, choice, and preference use the step-by-step
    Self-Reference prompts, which ask for a number, a letter, or the better of answer_1 and answer_2. qa uses the
    QA-Judge prompt with the context from the row.

    A generator can have more settings, such as name=a,model=M,temperature=0.7,seed=1. For a server, use
    name=a,engine=openai,model=NAME,engine_args.base_url=URL. See configs/data/collect.yaml. Exit codes: 0 done, 1 usage
    or input error, or a model could not be loaded, 2 some answers failed, 130 interrupted.
    """
    given = map(generators.parse_generator, generator or ())
    models = generators.merge_generators([*generators.read_generators(config), *given])
    if not models:
        raise ConfigError("no generators; add --generator name=...,model=... or --config FILE")
    if task is not None:
        models = [generators.for_task(model, task) for model in models]
    if samples is not None:
        models = [generators.with_samples(model, samples, temperature) for model in models]
    question_samples = shown_questions(questions, limit, columns)
    out.mkdir(parents=True, exist_ok=True)
    worst = 0
    for model in models:
        file = out / f"{model.name}.jsonl"
        check_output_is_no_input(file, [questions])
        try:
            stats, line = collect_answers(question_samples, model, file, retry=retry, overwrite=overwrite)
        except JudgelmError as error:
            echo(f"{model.name}: error: {error}", err=True)
            worst = EXIT_USAGE
            continue
        echo(line)
        if stats.failures:
            worst = worst or EXIT_FAILURES
    if worst:
        raise typer.Exit(worst)


def collect_answers(
    questions: list[Sample], model: generators.AnswerGenerator, file: Path, *, retry: Retry, overwrite: bool
) -> tuple[AnswerStats, str]:
    """Collect the answers of one model; return the counts and a summary line."""
    from judgelm.cli.run import clear_and_mark

    clear_and_mark(str(file))
    log = _Log(model.name, len(questions) * len(model.decodings))
    with resumable():
        stats = collect(questions, model, file, retry=retry, overwrite=overwrite, on_answer=log)
    if stats.failures:
        echo(f"{model.name}: first failure: {stats.first_failure}", err=True)
    return stats, f"{log.line(stats)}; answers in {file}"


def pairs_command(
    questions: Questions,
    answers: Annotated[list[str], typer.Option(metavar="FILE...")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    pairs_per_question: Annotated[int, typer.Option(min=1)] = 1,
    seed: int = 0,
    with_reference: bool = False,
    same_model: bool = False,
    drop_truncated: bool = False,
) -> None:
    """Sample pairs of answers by different models, as rows for `judgelm data annotate`.

    The sample depends only on the seed and the question. The output is written atomically.

    Options:
        answers: Files written by `collect`.
        out: Output file of JudgeLM rows without scores.
        pairs_per_question: Maximum number of pairs per question.
        seed: Random seed, combined with the id of the question.
        with_reference: Also pair references, as answers from a model named "reference".
        same_model: Also pair two decodings from the same model.
        drop_truncated: Skip answers that reached their token limit.

    Examples:
        judgelm data answers pairs q.jsonl --answers answers/*.jsonl -o pairs.jsonl

    Exit codes: 0 done, 1 usage or input error.
    """
    samples = shown_questions(questions)
    answer_set = AnswerSet(answers, drop_truncated=drop_truncated)
    sampler = PairSampler(pairs=pairs_per_question, seed=seed, same_model=same_model)
    counts: Counter[str] = Counter()
    write_rows(out, pair_rows(samples, answer_set, sampler, with_reference=with_reference, counts=counts))
    counts["answers that failed or were dropped"] = answer_set.left_out
    _show_counts(counts)


def rows_command(
    questions: Questions,
    answers: Annotated[list[str], typer.Option(metavar="FILE...")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    task: QuestionTask = "question",
) -> None:
    """Write one row to judge per answer, and the ground truth if the questions have references.

    The ground truth is written to OUT.truth.jsonl. Both files are written atomically.

    Options:
        answers: Files written by `collect`.
        out: Output file of plain rows with one answer each.
        task: Task used to collect the answers; for qa, only the text inside the answer tags is used.

    Examples:
        judgelm data answers rows q.jsonl --answers a/*.jsonl -o rows.jsonl

    For the tasks number, choice, and preference, judgelm study self-reference reads OUT.truth.jsonl. Exit codes: 0
    done, 1 usage or input error.
    """
    counts: Counter[str] = Counter()
    rows = list(judged_rows(shown_questions(questions), read_collected(answers), task, counts=counts))
    truths = [row.truth for row in rows if row.truth is not None]
    if not rows:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        finding = f"no answer matches {questions} ({outcomes})"
        raise InputError(f"{', '.join(answers)}: {finding}; pass answers to these questions")
    truth_path = out.with_name(f"{out.name.removesuffix('.jsonl')}.truth.jsonl")
    check_no_input([truth_path], [questions, *answers])
    write_rows(out, (row.row for row in rows))
    if truths:
        write_rows(truth_path, truths)
    _show_counts(counts)


def _show_counts(counts: Counter[str]) -> None:
    for outcome, count in counts.items():
        echo(f"{count:>8}  {outcome}")


class _Log:
    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._logged = time.monotonic()

    def __call__(self, stats: AnswerStats) -> None:
        if time.monotonic() - self._logged > LOG_EVERY_S:
            self._logged = time.monotonic()
            echo(self.line(stats), err=True)

    def line(self, stats: AnswerStats) -> str:
        failures = stats.failures + stats.earlier_failures
        failed = ", ".join(f"{count} failed ({code})" for code, count in failures.items())
        cost = f", {stats.engine_stats['cost_usd']:,.4f} USD" if stats.engine_stats.get("cost_usd") else ""
        unanswered = f", {stats.no_final_answer} without a final answer" if stats.no_final_answer else ""
        asked = f"{stats.answered + stats.skipped} of {self._total} asked, {stats.skipped} of them before"
        limited = f"{stats.truncated} at their token limit"
        return f"{self._name}: {asked}, {limited}{unanswered}{failed and f', {failed}'}{cost}"


def shown_questions(path: str, limit: int | None = None, rows: ColumnOptions | None = None) -> list[Sample]:
    """Load the questions, and report unusable rows."""

    def show(reject: Reject) -> None:
        echo(f"skipped {reject.message}", err=True)

    rows = rows or ColumnOptions()
    return read_questions(path, on_reject=show, limit=limit, columns=rows.reading.columns, sheet=rows.sheet)
