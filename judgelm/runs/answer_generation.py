"""Generation of answers to questions: each model has a resumable run file of its own."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from judgelm.data.answers import AnswerGenerator, answer_row
from judgelm.engines.base import MODEL_ENGINES
from judgelm.engines.catalog import choose_engine, load_engine
from judgelm.jsonl import Appender
from judgelm.modes.answer import AnswerTask
from judgelm.records import Sample
from judgelm.runs.run_files import FinishedIds, Retry, RunFiles, read_manifest, recorded_dtype
from judgelm.runs.runner import drive
from judgelm.runs.session import RunSession, pending
from judgelm.runs.stats import AnswerStats
from judgelm.version import VERSION


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
    if options.dtype == "auto" and engine_name in MODEL_ENGINES and not overwrite:
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
            answering = replace(generator.asking, chat=_takes_chat(generator, engine_name))
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
