"""Answers to questions, model by model: one loaded after another, each with a resumable run file of its own."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from judgelm.data.answers.files import answer_row
from judgelm.data.answers.generators import AnswerGenerator
from judgelm.engines.base import MODEL_ENGINES, Engine
from judgelm.engines.catalog import choose_engine, load_engine
from judgelm.jsonl import Appender
from judgelm.modes.answer import Answer, Draw
from judgelm.records import Sample
from judgelm.runs.run_files import Retry, RunFiles, read_finished, read_manifest, recorded_dtype
from judgelm.runs.runner import drive
from judgelm.runs.session import RunSession
from judgelm.version import VERSION


@dataclass(slots=True, kw_only=True)
class AnswerStats:
    """What a session has collected from one model.

    Attributes:
        answered: answers, those at their token limit (`truncated`) included.
        skipped: done in earlier sessions; `earlier_failures` of them failed and stand.
        failures: by code.
        first_failure: in words, empty where there is none.
        engine_stats: the engine's own counts at the end.
    """

    answered: int = 0
    skipped: int = 0
    truncated: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    earlier_failures: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    judge_s: float = 0.0
    engine_stats: dict[str, Any] = field(default_factory=dict)

    def add(self, answer: Answer) -> None:
        """Count an answer."""
        if answer.failure is not None:
            self.failures[answer.failure.code] += 1
            self.first_failure = self.first_failure or answer.failure.why
            return
        self.answered += 1
        self.truncated += answer.finish_reason == "length"
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens

    def row(self) -> dict[str, Any]:
        """For the manifest."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("engine_stats", "judge_s")} | {
            "collect_s": round(self.judge_s, 3)
        }


def collect(
    questions: Sequence[Sample],
    answerer: AnswerGenerator,
    out: Path,
    *,
    retry: Retry = "engine",
    overwrite: bool = False,
    on_answer: Callable[[AnswerStats], None] = lambda stats: None,
) -> AnswerStats:
    """Let one model answer; what is finished is on disk whatever happens next, and a rerun goes on.

    A model all of whose answers are there is not loaded again.

    Raises:
        RunError: `out` cannot be written, or holds answers that were asked for otherwise.
        ModelError, EngineError: the model cannot be loaded, or broke.
    """
    draws = [Draw(question, decoding) for question in questions for decoding in answerer.decodings]
    asked = _asked(answerer)
    if not overwrite and (done := _all_there(out, draws, asked, retry)):
        return done
    engine_name = choose_engine()[0] if answerer.engine == "auto" else answerer.engine
    options = answerer.options
    if options.dtype == "auto" and engine_name in MODEL_ENGINES and not overwrite:
        options = replace(options, dtype=recorded_dtype(out) or "auto")
    engine = load_engine(engine_name, options)
    try:
        described = engine.describe()
        files = RunFiles(
            out,
            fingerprint={"asked": asked, "model": described["model"]},
            provenance={"judgelm": VERSION, **described, "asked": asked},
            inputs=[],
            retry=retry,
            overwrite=overwrite,
        )
        try:
            return _collect(draws, answerer, engine_name, engine, files, on_answer)
        finally:
            files.close()
    finally:
        engine.close()


def _collect(
    draws: Sequence[Draw],
    answerer: AnswerGenerator,
    engine_name: str,
    engine: Engine,
    files: RunFiles,
    on_answer: Callable[[AnswerStats], None],
) -> AnswerStats:
    stats = AnswerStats(earlier_failures=files.earlier_failures)
    answering = replace(answerer.asking, chat=_takes_chat(answerer, engine_name))

    def unfinished() -> Iterator[Draw]:
        for draw in draws:
            if hash(draw.id) in files.finished:
                stats.skipped += 1
            else:
                yield draw

    with RunSession(files, stats, engine) as session:
        for answer in drive(unfinished(), answering, engine):
            files.write_row(answer_row(answer, answerer.name))
            stats.add(answer)
            session.tick()
            on_answer(stats)
    stats.engine_stats = engine.stats()
    return stats


def _asked(answerer: AnswerGenerator) -> dict[str, Any]:
    """What must be the same for two sessions to belong to one run; further decodings may come in any session."""
    options = asdict(answerer.options)
    kept = {name: options[name] for name in ("model", "adapter", "revision", "dtype", "quantization")}
    kept["window_tokens"] = options["max_model_len"]  # the key of manifests that earlier versions wrote
    if answerer.options.thinking is not None:
        kept["thinking"] = [answerer.options.thinking, answerer.options.thinking_tokens]
    asking = {name: value for name, value in asdict(answerer.asking).items() if name != "chat"}
    return {"name": answerer.name, "engine": answerer.engine, "form": answerer.form, **asking, "options": kept}


def _all_there(out: Path, draws: Sequence[Draw], asked: dict[str, Any], retry: Retry) -> AnswerStats | None:
    """The stats of a run with nothing left to do, None where there is something."""
    manifest = read_manifest(out)
    if manifest is None or manifest["fingerprint"].get("asked") != asked:
        return None
    Appender(out).close()  # mends the torn line of a killed run, and refuses where another writes
    finished, failures = read_finished(out, retry)
    if any(hash(draw.id) not in finished for draw in draws):
        return None
    return AnswerStats(skipped=len(draws), earlier_failures=failures)


def _takes_chat(answerer: AnswerGenerator, engine: str) -> bool:
    """Whether questions are put as chat: as the answerer says, or by the model's tokenizer or the server's API."""
    if answerer.form != "auto":
        return answerer.form == "chat"
    if engine == "scripted":
        return False
    if engine == "openai":
        return answerer.options.engine_args.get("api") != "completions"
    from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds, and servers need none

    return load_tokenizer(answerer.options.model, answerer.options.adapter, answerer.options).chat_template is not None
