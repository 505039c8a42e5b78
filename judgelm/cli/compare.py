"""`judgelm compare`: collect and judge the answers of two models, resuming any interrupted comparison."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import EXIT_FAILURES, PlainConsole, Results, console, errors, result_table, write_rows
from judgelm.cli.data.answers import collect_answers, shown_questions
from judgelm.cli.help import essential
from judgelm.cli.options import JudgeOptions, LabelOptions, RunOptions
from judgelm.data.answers import pair_of_models, read_model_answers
from judgelm.data.generators import AnswerGenerator, build_generator, parse_generator
from judgelm.data.labelled_set import LabelledSet, match_labels
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.inputs import input_files
from judgelm.data.readers.rows import row_suffix
from judgelm.data.readers.values import model_name, similar_names_notes
from judgelm.engines.dependencies import require
from judgelm.errors import ConfigError, InputError, first_line
from judgelm.jsonl import check_no_input, read_jsonl
from judgelm.judges.cards import card_names, judge_card
from judgelm.records import Judgment, Sample
from judgelm.runs.run_files import read_judgments

if TYPE_CHECKING:
    from judgelm.judges.resolve import ResolvedJudge
    from judgelm.studies.result import StudyResult

QUESTION_SETS = {
    "alpaca-eval": ("tatsu-lab/alpaca_eval", "alpaca_eval.json"),
    "arena-hard": ("lmarena-ai/arena-hard-auto-v0.1", "data/train-00000-of-00001.parquet"),
    "mt-bench": ("HuggingFaceH4/mt_bench_prompts", "raw/question.jsonl"),
}
"""Name -> hub data set and the name of its questions file."""
_UNITS = {"prompt_tokens": "prompt tokens", "reply_tokens": "reply tokens", "seconds": "s", "cost_usd": "USD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions(RunOptions):
    """Options for running a comparison.

    Options:
        limit: Use only the first N questions.
        overwrite: Delete earlier answers and judgments, and start over.
    """

    limit: Annotated[int | None, typer.Option(min=1)] = None


@essential("questions out judge labels limit engine column overwrite json_out quiet")
def compare_command(
    model_a: Annotated[str, typer.Argument(metavar="MODEL_A")],
    model_b: Annotated[str, typer.Argument(metavar="MODEL_B")],
    questions: Annotated[str, typer.Option(metavar="FILE", autocompletion=lambda: list(QUESTION_SETS))],
    out: Annotated[Path, typer.Option(metavar="FOLDER")],
    judge: Annotated[str | None, typer.Option(metavar="MODEL")] = None,
    labels: Annotated[Path | None, typer.Option("--labels", "-l", metavar="FILE")] = None,
    *,
    rows: LabelOptions,
    judge_options: JudgeOptions,
    run_options: ComparisonOptions,
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000,
    results: Results,
) -> None:
    """Compare two models: collect their answers, judge them in both orders, and report the win rate.

    A model can be a folder, a hub id, the name of a judge, a file of answers, or settings such as
    name=a,model=M,max_tokens=512 (see judgelm data answers collect). Models are loaded one at a time.

    Options:
        model_a: The model whose win rate is reported.
        model_b: The model that MODEL_A is compared with.
        questions: File with questions, or alpaca-eval, arena-hard, or mt-bench to download its questions.
        out: Folder for answers, pairs, judgments, and the page. Run the same command again to resume.
        judge: The judge, configured by the model and engine options. Default: qwen-1.5b.
        labels: Human verdicts for some pairs in FOLDER/pairs.jsonl: rows with an id and a winner (1 means MODEL_A).
        bootstrap: Number of bootstrap resamples per interval.

    Examples:
        judgelm compare qwen-0.5b qwen-1.5b --questions q.jsonl -o versus
        judgelm compare a.jsonl b.jsonl --questions q.jsonl -o v --judge my-judge
        judgelm compare a.jsonl b.jsonl --questions q.jsonl -o v -l people.jsonl
        judgelm compare my-model qwen-1.5b --questions mt-bench -o versus

    For a model on a server, use name=a,model=M,engine=openai,engine_args.base_url=URL.

    Exit codes: 0 done, 1 usage or input error, 2 more failures than --max-failure-rate, 130 interrupted (resumable).
    """
    from judgelm.cli.evaluation import load_manifest  # loads scikit-learn, statsmodels, and matplotlib
    from judgelm.cli.run import checked_mode
    from judgelm.metrics.resampling import Resampling
    from judgelm.reports.study import write_study
    from judgelm.studies.claim import ModelComparison, comparison_study

    first, second = _side(model_a, out), _side(model_b, out)
    if first.name == second.name:
        finding = f"both models are named {first.name}"
        raise ConfigError(f"{finding}; rename one with name=NAME,model=MODEL, or NAME=FILE for a file of answers")
    resolved = judge_options.resolve(judge)
    released = resolved.recognition.judge
    checked_mode("pair", {"both_orders": True}, judge_options, released=released, is_default=False)
    if questions in QUESTION_SETS and not Path(questions).exists():
        questions = str(_download(*QUESTION_SETS[questions], out / "questions"))
    samples = shown_questions(questions, run_options.limit, rows)
    labelled = LabelledSet(samples={}, labels={}, groups={})
    if labels is not None:
        labelled = _labels(labels, rows, samples, out)
    name = Path(judge or (resolved.named.card.name if resolved.named else "")).name
    folder = _Folder(out=out, options=run_options)
    console.message(f"{len(samples):,} questions; memory, one model at a time: {_memory((first, second), name, judge)}")
    counts: Counter[str] = Counter()
    pairs = folder.pairs(samples, (first, second), counts)
    judgments = {key: row for key, row in folder.judge(resolved, judge_options, len(pairs)).items() if key in pairs}
    matched, texts = match_labels(judgments, labelled, name=str(labels))
    warnings = [*_self_preference((first, second), name, judge), *similar_names_notes((first.name, second.name))]
    warnings += [*matched.notes(), *(texts.notes() if labels else ())]
    warnings += [f"{finding}: {count:,} of {len(samples):,} answers" for finding, count in counts.items() if count]
    stages = {f"{side.name}'s answers": side.answers for side in (first, second)}
    comparison = ModelComparison(
        models=(first.name, second.name),
        judge=name,
        judgments=judgments,
        samples=pairs,
        labels=matched.labels,
        questions=len(samples),
        stages={stage: load_manifest(path) for stage, path in [*stages.items(), (f"{name}'s judgments", folder.run)]},
        warnings=tuple(warnings),
    )
    study = comparison_study(comparison, Resampling(resamples=bootstrap))
    paths = write_study(study, out, overwrite=True)
    if results.write(study.to_json()):
        _print(study)
        console.message(f"wrote the page to {paths[0]}")
    if labels is not None:
        rows.check_rejected(labels, labelled.rejected, labelled.read)
    failed = 1 - (len(judgments) - study.counts["failed"]) / len(samples)
    if failed > run_options.max_failure_rate:
        errors.message(f"{failed:.1%} of the questions have no verdict (limit {run_options.max_failure_rate:.1%})")
        raise typer.Exit(EXIT_FAILURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A model, or a file of answers if `generator` is None."""

    name: str
    answers: Path
    generator: AnswerGenerator | None = None
    model: str | None = None


def _side(text: str, out: Path) -> _Side:
    named, _, file = text.partition("=")
    name, path = (model_name(named), file) if Path(file).is_file() and not Path(text).exists() else ("", text)
    if (Path(path).is_file() and not path.endswith(".gguf")) or row_suffix(path) in (".jsonl", ".json"):
        [path] = input_files(path)  # the error suggests similar names
        return _Side(name=name or read_model_answers(path)[0], answers=Path(path))
    if "=" in text and not Path(text).exists():
        generator = parse_generator(text)
    else:
        stem = re.sub(r"[^\w.-]", "-", Path(text).name.removesuffix(".gguf"), flags=re.ASCII)
        generator = build_generator({"name": stem.lstrip("._-"), "model": text})
    name, count = generator.name, len(generator.decodings)
    if count > 1:
        raise ConfigError(f"{name}: found {count} decodings; judgelm compare requires one answer per question")
    answers = out / "answers" / f"{name}.jsonl"
    return _Side(name=name, answers=answers, generator=generator, model=generator.options.model)


def _download(repo: str, name: str, folder: Path) -> Path:
    if not (folder / name).is_file():
        require("huggingface_hub", extra="data")
        from huggingface_hub import hf_hub_download

        try:
            hf_hub_download(repo, name, repo_type="dataset", local_dir=folder)
        except OSError as error:  # the hub client's errors are OSErrors
            finding = f"could not download {repo} ({first_line(error)})"
            raise InputError(f"{finding}; download {name} yourself and pass it with --questions") from error
    return folder / name


def _labels(path: Path, rows: LabelOptions, questions: Sequence[Sample], out: Path) -> LabelledSet:
    from judgelm.cli.evaluation import load_labels

    check_no_input([out / "pairs.jsonl", out / "judgments.jsonl"], [path])
    labelled = load_labels(path, "auto", {}, replace(rows.reading, columns={}, sheet=None))
    known = {question.id for question in questions}
    if not labelled.labels.keys() & known:
        examples = f"for example {next(iter(labelled.labels))!r} and {next(iter(known))!r}"
        raise InputError(f"{path}: none of the label ids match a question id ({examples})")
    return labelled


def _self_preference(sides: Sequence[_Side], name: str, judge: str | None) -> list[str]:
    own = [side.name for side in sides if _identities(side.name, side.model) & _identities(name, judge)]
    return [
        f"{name} is judging its own answers (as {side}). Judges tend to prefer their own answers, so {side}'s win rate "
        "may be too high. Use a different judge or add human labels (--labels)."
        for side in own
    ]


def _identities(*names: str | None) -> set[str]:
    known = {name for name in names if name is not None}
    return known | {judge_card(name).base.gguf_sha256 for name in known & set(card_names())}


def _memory(sides: Sequence[_Side], name: str, judge: str | None) -> str:
    loaded = [(side.name, side.model) for side in sides if side.model is not None] + [(f"judge {name}", judge or name)]
    known = {model: f"{judge_card(model).base.memory_gigabytes:g} GB" for _, model in loaded if model in card_names()}
    return ", ".join(f"{shown} {known.get(model or '', 'unknown')}" for shown, model in loaded)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    out: Path
    options: ComparisonOptions

    @property
    def run(self) -> Path:
        """The judge's run file."""
        return self.out / "judgments.jsonl"

    def pairs(self, questions: list[Sample], sides: tuple[_Side, _Side], counts: Counter[str]) -> dict[str, Sample]:
        """Collect the answers, write a pair for each question that both models answered, and return the pairs by id."""
        (self.out / "answers").mkdir(parents=True, exist_ok=True)
        for side in sides:
            if side.generator is not None:
                overwrite, retry = self.options.overwrite, self.options.retry
                stats = collect_answers(questions, side.generator, side.answers, retry=retry, overwrite=overwrite)
                console.message(stats[1])
        names, files = (sides[0].name, sides[1].name), (str(sides[0].answers), str(sides[1].answers))
        pairs = {pair.id: pair for pair in pair_of_models(questions, names, files, counts)}
        if not pairs:
            raise InputError(f"{self.out}: no question was answered by both models; see the failures above")
        path, rows = self.out / "pairs.jsonl", {}
        if path.is_file() and not self.options.overwrite:  # keep judged lines so that the run can resume
            rows = {str(row.get("id")): (line, row) for line, row in read_jsonl(path)}
        for key, pair in pairs.items():
            line, row = rows.setdefault(key, (0, plain_row(pair)))
            if row != plain_row(pair):
                finding = "the answers have changed since this pair was written"
                raise InputError(f"{path}:{line}: {finding}; start over with --overwrite")
        write_rows(path, (row for _, row in rows.values()))
        return pairs

    def judge(self, resolved: "ResolvedJudge", judge_options: JudgeOptions, total: int) -> dict[str, Judgment]:
        """Judge the pairs in both orders, and return all judgments by id."""
        from judgelm.cli.evaluation import decided
        from judgelm.cli.run import judge_for, judge_watched

        job = replace(self.options, limit=None).job([str(self.out / "pairs.jsonl")], str(self.run))
        with judge_for(job, resolved, judge_options) as loaded:
            chosen = {"distribution": True} if loaded.reads_all_score_lines else {}
            judge_watched(job, loaded.mode("pair", both_orders=True, **chosen), loaded, total)
        return decided(read_judgments(self.run), self.run)


def _print(study: "StudyResult") -> None:
    from judgelm.reports.study import shown, table_notes

    out = PlainConsole()
    out.lines(study.findings)
    cells = [(row, shown(row["rate"], "share")) for row in study.table("claim")]
    rows = [(str(row["estimate"]), cell.text, cell.small or str(row["reason"])) for row, cell in cells]
    out.print(result_table(study.tables[0].title, ("estimate", "wins", "95 % interval"), rows))
    out.lines([*study.warnings, *table_notes(study)])
    out.print(", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in study.counts.items()))
    for row in study.table("stages"):
        cost = [f"{row[key]:,.{4 * (unit == 'USD')}f} {unit}" for key, unit in _UNITS.items() if row[key] is not None]
        out.print(f"{row['stage']}: {', '.join(cost) or 'cost and time were not recorded'}")
