"""Generation of answers to questions: each model has a resumable run file of its own."""

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
from judgelm.runs.run_files import FinishedIds, Retry, RunFiles, read_manifest, recorded_dtype, shown_id
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
    """Let one model answer; finished answers are on disk at once, and a rerun resumes.

    A model whose answers are complete is not loaded.

    Raises:
        RunError: `out` cannot be written, or holds answers to other requests.
        ModelError, EngineError: the model cannot be loaded, or broke.
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
            options = replace(options, dtype=recorded_dtype(out) or "auto")
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
    """The options with a judge's name as its base and adapter; another model must be there or on the hub."""
    if (named := named_judge(options.model)) is None:
        check_place(options.model)
        return options
    if named.adapter is not None and options.adapter is not None:
        raise ConfigError(f"{named.card.name} is a judge by name; name the base of {options.adapter} as model")
    return replace(options, model=str(named.base), adapter=str(named.adapter) if named.adapter else options.adapter)


def _asked(generator: AnswerGenerator) -> dict[str, Any]:
    """The fingerprint of a run, without its decodings: any session may add some."""
    options = asdict(generator.options)
    model_options = {
        name: options[name] for name in ("model", "adapter", "revision", "dtype", "quantization", "max_model_len")
    }
    if generator.options.thinking is not None:
        model_options["thinking"] = [generator.options.thinking, generator.options.thinking_tokens]
    left_out = {"chat"} | {"question": {"task", "tags"}, "qa": set()}.get(generator.asking.task, {"tags"})
    asking = {name: value for name, value in asdict(generator.asking).items() if name not in left_out}
    return {
        "name": generator.name,
        "engine": generator.engine,
        "form": generator.form,
        **asking,
        "options": model_options,
    }


def _finished_stats(
    out: Path, draws: Sequence[AnswerTask], request: dict[str, Any], retry: Retry
) -> AnswerStats | None:
    """The counts of a finished run; None where something is pending."""
    manifest = read_manifest(out)
    if manifest is None or manifest["fingerprint"].get("asked") != request:
        return None
    Appender(out).close()  # mends the torn line of a killed run, and refuses where another writes
    finished = FinishedIds(out, retry)
    if any(draw.id not in finished for draw in draws):
        return None
    return AnswerStats(skipped=len(draws), earlier_failures=finished.failures)


def _takes_chat(generator: AnswerGenerator, engine: str) -> bool:
    """True where questions are asked as chat: by the generator, else by the tokenizer or the server's API."""
    if generator.form != "auto":
        return generator.form == "chat"
    if engine == "scripted":
        return False
    if engine == "openai":
        return generator.options.engine_args.get("api") != "completions"
    from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds, and servers need none

    return (
        load_tokenizer(generator.options.model, generator.options.adapter, generator.options).chat_template is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAnswers:
    """The judge's own answers.

    Attributes:
        solves: sample id -> `{"text": ..., "answer": ...}` of each answer, as run files have them.
        questions: sample id -> hash of the question that was answered, of run files that keep hashes.
    """

    solves: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)


_ANSWER_FIELDS = frozenset({"id", "question_id", "decoding_method", "text"})


def read_self_answers(path: str) -> SelfAnswers:
    """Read the judge's own answers: from a run file of a mode that asks for them, or from `judgelm data answers`.

    Answers of `judgelm data answers` stand under their question's id, those of one question in the order of their
    seeds; failures are left out.

    Raises:
        InputError: the file cannot be read, holds none, or has rows that are neither.
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
        raise InputError(f"{path}: no own answers (solves); give the run of a mode that asks for them, or answers")
    return SelfAnswers(solves=answers, questions=questions)


def with_self_answers(sample: Sample, own: SelfAnswers) -> Sample:
    """The sample with its own answers, where there are any; modes use them instead of asking.

    They stand under the sample's id, or under the id of its question, `metadata["source_id"]`.

    Raises:
        InputError: they answer another question.
    """
    key = next((key for key in (sample.id, sample.metadata.get("source_id")) if key in own.solves), None)
    if key is None:
        return sample
    if own.questions.get(str(key)) not in (None, text_hashes(sample).question):
        raise InputError(f"id {shown_id(key)}: the own answers are to another question; give a run over this input")
    return replace(sample, metadata={**sample.metadata, "solves": own.solves[str(key)]})


def _is_answer(row: Row) -> bool:
    """True for a line of `judgelm data answers`."""
    return "solves" not in row.data and _ANSWER_FIELDS.issubset(row.data)


def _checked(row: Row) -> Row:
    """A judgment with an id, its own answers having texts; or an answer with a text or a failure."""
    if _is_answer(row):
        if isinstance(row.data["text"], str) or row.data.get("failure") is not None:
            return row
        raise row.error("an answer without text; give a file of judgelm data answers")
    solves = row.data.get("solves", [])
    texts = (
        [answer.get("text") if isinstance(answer, dict) else None for answer in solves]
        if isinstance(solves, list)
        else [None]
    )
    if "id" not in row.data or not all(isinstance(text, str) for text in texts):
        raise row.error("expected a judgment with id and solves, each with a text; give a run file")
    return row
