"""Generate models' answers to questions, with one resumable run file per model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from judgelm.data.answers import answer_row
from judgelm.data.generators import AnswerGenerator
from judgelm.data.judged_texts import text_hashes
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Row, convert_rows
from judgelm.engines.base import MODEL_ENGINES, EngineOptions
from judgelm.engines.catalog import choose_engine, load_engine
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import Appender
from judgelm.judges.cards import named_judge
from judgelm.modes.generation import AnswerTask
from judgelm.package import VERSION
from judgelm.prompts.judge_card import check_place
from judgelm.records import Sample
from judgelm.runs.run_files import FinishedIds, Retry, RunFiles, read_manifest, recorded, shown_id
from judgelm.runs.runner import drive
from judgelm.runs.session import RunSession, pending
from judgelm.runs.stats import AnswerStats


def collect(
    questions: Sequence[Sample],
    generator: AnswerGenerator,
    out: Path,
    *,
    retry: Retry = "engine",
    overwrite: bool = False,
    on_answer: Callable[[AnswerStats], None] = lambda stats: None,
) -> AnswerStats:
    """Generate one model's answers.

    Each finished answer is written to disk immediately, and a rerun resumes.
    """
    draws = [AnswerTask(question, decoding) for question in questions for decoding in generator.decodings]
    request = _asked(generator)
    if not overwrite and (done := _finished_stats(out, draws, request, retry)):
        return done
    engine_name = choose_engine()[0] if generator.engine == "auto" else generator.engine
    options = generator.options
    if engine_name in MODEL_ENGINES:
        options = _with_weights(options)
        if options.dtype == "auto" and not overwrite:
            options = replace(options, dtype=recorded(out, "dtype") or "auto")
    engine = load_engine(engine_name, options)
    try:
        described = engine.describe()
        with RunFiles(
            out,
            fingerprint={"asked": request, "model": described["model"]},
            provenance={"judgelm": VERSION, **described, "asked": request},
            inputs=[],
            retry=retry,
            overwrite=overwrite,
        ) as files:
            stats = AnswerStats(earlier_failures=files.finished.failures)
            answering = replace(generator.asking, chat=_takes_chat(replace(generator, options=options), engine_name))
            with RunSession(files, stats, engine) as session:
                for answer in drive(pending(draws, lambda draw: draw.id in files.finished, stats), answering, engine):
                    files.write_row(answer_row(answer, generator.name, generator.asking.task))
                    stats.add(answer, has_final=generator.asking.task != "question")
                    session.tick()
                    on_answer(stats)
            stats.engine_stats = engine.stats()
            return stats
    finally:
        engine.close()


def _with_weights(options: EngineOptions) -> EngineOptions:
    if (named := named_judge(options.model)) is None:
        check_place(options.model)
        return options
    if named.adapter is not None and options.adapter is not None:
        raise ConfigError(f"{named.card.name} is a named judge; pass the base model of {options.adapter} instead")
    return replace(options, model=str(named.base), adapter=str(named.adapter) if named.adapter else options.adapter)


def _asked(generator: AnswerGenerator) -> dict[str, Any]:
    options = asdict(generator.options)
    names = ("model", "adapter", "revision", "dtype", "quantization", "max_model_len")
    model_options = {name: options[name] for name in names}
    if generator.options.thinking is not None:
        model_options["thinking"] = [generator.options.thinking, generator.options.thinking_tokens]
    left_out = {"chat"} | {"question": {"task", "tags"}, "qa": set()}.get(generator.asking.task, {"tags"})
    asking = {name: value for name, value in asdict(generator.asking).items() if name not in left_out}
    request = {"name": generator.name, "engine": generator.engine, "form": generator.form}
    return request | asking | {"options": model_options}


def _finished_stats(out: Path, draws: Sequence[AnswerTask], request: object, retry: Retry) -> AnswerStats | None:
    manifest = read_manifest(out)
    if manifest is None or manifest["fingerprint"].get("asked") != request:
        return None
    Appender(out).close()  # removes a killed run's incomplete last line; raises if another run is writing
    finished = FinishedIds(out, retry)
    if any(draw.id not in finished for draw in draws):
        return None
    return AnswerStats(skipped=len(draws), earlier_failures=finished.failures)


def _takes_chat(generator: AnswerGenerator, engine: str) -> bool:
    if generator.form != "auto":
        return generator.form == "chat"
    if engine == "scripted":
        return False
    if engine == "openai":
        return generator.options.engine_args.get("api") != "completions"
    from judgelm.engines.model_files import load_tokenizer  # importing transformers takes seconds

    options = generator.options
    return load_tokenizer(options.model, options.adapter, options).chat_template is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAnswers:
    """The judge's own answers, keyed by sample ID.

    Attributes:
        solves: answers as `{"text": ..., "answer": ...}`.
        questions: hashes of the answered questions, if the run file contains hashes.
    """

    solves: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)


_ANSWER_FIELDS = frozenset({"id", "question_id", "decoding_method", "text"})


def read_self_answers(path: str) -> SelfAnswers:
    """Load the judge's own answers from a run file or from the output of `judgelm data answers`.

    Answers from `judgelm data answers` are grouped by question and sorted by seed; failures are skipped.
    """
    answers: dict[str, list[dict[str, Any]]] = {}
    questions: dict[str, str] = {}
    collected: dict[str, dict[str, dict[str, Any]]] = {}
    for row in convert_rows(read_rows(path), _checked, path=path, expected="id, solves"):
        if not _is_answer(row):
            if row.data.get("solves"):
                answers[str(row.data["id"])] = cast(list[dict[str, Any]], row.data["solves"])
                if isinstance(hashes := row.data.get("hashes"), dict):
                    questions[str(row.data["id"])] = str(hashes.get("question"))
            continue
        question = collected.setdefault(str(row.data["question_id"]), {})
        question.pop(str(row.data["id"]), None)
        if row.data.get("failure") is None:
            question[str(row.data["id"])] = {name: row.data[name] for name in ("text", "answer") if name in row.data}
    answers |= {
        question: [solves[name] for name in sorted(solves, key=lambda name: (len(name), name))]
        for question, solves in collected.items()
        if solves
    }
    if not answers:
        raise InputError(
            f"{path}: no self-answers (solves) found; use a run of a mode that asks for them, or a file of answers"
        )
    return SelfAnswers(solves=answers, questions=questions)


def with_self_answers(sample: Sample, own: SelfAnswers) -> Sample:
    """Return the sample with the judge's own answers added.

    The answers are looked up by sample ID, then by question ID (`metadata["source_id"]`).
    """
    key = next((key for key in (sample.id, sample.metadata.get("source_id")) if key in own.solves), None)
    if key is None:
        return sample
    if own.questions.get(str(key)) not in (None, text_hashes(sample).question):
        raise InputError(f"id {shown_id(key)}: these answers are for a different question; use a run on the same input")
    return replace(sample, metadata={**sample.metadata, "solves": own.solves[str(key)]})


def _is_answer(row: Row) -> bool:
    return "solves" not in row.data and _ANSWER_FIELDS.issubset(row.data)


def _has_text(answer: object) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("text"), str)


def _checked(row: Row) -> Row:
    if _is_answer(row):
        if isinstance(row.data["text"], str) or row.data.get("failure") is not None:
            return row
        raise row.error("this answer has no text; use a file from judgelm data answers")
    solves = row.data.get("solves", [])
    if "id" not in row.data or not isinstance(solves, list) or not all(map(_has_text, solves)):
        raise row.error("expected an id, and solves with a text each; use a run file")
    return row
