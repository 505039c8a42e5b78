"""The Python API: load a judge once, and call it many times.

from judgelm import Judge
with Judge("my-judge") as judge:
    judgment = judge.compare("What is 2 + 2?", "4", "5", distribution=True, reasons="all")
judgment.verdict, judgment.probability, judgment.reason
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast

from judgelm.cluster import load_workers
from judgelm.cluster.plan import RayCluster
from judgelm.engines.base import MODEL_ENGINES, Engine, EngineOptions, HoldsAdapters
from judgelm.engines.catalog import idle_gpus, load_engine
from judgelm.engines.views import AdapterView
from judgelm.errors import CardError, ConfigError, ModelError
from judgelm.judges.cards import this_machine
from judgelm.judges.resolve import JudgeFormat, ResolvedJudge, absolute_folder, judge_format, prepare, resolve
from judgelm.modes import BatchMode, Pairwise, make_mode, mode_type
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import JudgeReading, Template
from judgelm.prompts.judge_card import CARD_NAME, find_card
from judgelm.prompts.judge_prompt import FIELDS, JudgePrompt
from judgelm.prompts.prompt_file import read_prompt
from judgelm.records import Judgment, Sample
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch, run_dtype
from judgelm.runs.engine_worker import EngineWorker
from judgelm.runs.in_memory import Rows, is_frame, judge_samples, read_samples, with_verdicts
from judgelm.runs.runner import judge, judging
from judgelm.runs.stats import RunStats


class Judge:
    """A loaded judge.

    Args:
        model: local folder, GGUF file, hub ID, name of a judge (`judgelm judges`), or `judgelm tune` folder; None
            loads the default judge. For `engine="openai"`, the model name on the server; for `engine="scripted"`, the
            reply or a JSON file of replies. A `ResolvedJudge` also replaces `engine`, `card`, `ignore_card`, and
            `adapter`.
        engine: `auto`, `transformers`, `vllm`, `openai`, or `scripted`.
        reading: `score-line`, `letters`, `yes-no`, `grade`, or `reward`; None uses the reading from the card. Without
            a card, chat models use `yes-no` without thinking, and other models use score lines.
        template: template ID; None uses the template from the card, or the default for the reading.
        prompt: prompt file, or a prompt from `read_prompt`; it replaces `template` and `reading`.
        card: name of the released judge (`judgelm judges`); None detects it from the hub ID or folder.
        ignore_card: allow modes and templates that are not on the card.
        cluster: run the engine on Ray workers instead of in this process.
        options: fields of `EngineOptions`, such as `dtype`, `device`, `adapter`, `quantization`, and `engine_args`.

    Raises:
        ModelError: the model cannot be loaded, or the judge is not installed.
        CardError: the judge was trained with a different template.
        ConfigError: unknown engine, template, or option.
    """

    def __init__(
        self,
        model: str | ResolvedJudge | None = None,
        *,
        engine: str = "auto",
        reading: JudgeReading | None = None,
        template: str | None = None,
        prompt: str | PathLike[str] | JudgePrompt | None = None,
        card: str | None = None,
        ignore_card: bool = False,
        cluster: RayCluster | None = None,
        **options: Any,
    ) -> None:
        unknown = options.keys() - EngineOptions.__dataclass_fields__.keys()
        if unknown:
            known = ", ".join(EngineOptions.__dataclass_fields__)
            raise ConfigError(f"unknown option {', '.join(sorted(unknown))}; available: {known}")
        if not isinstance(model, ResolvedJudge):
            model = resolve(model, engine, adapter=options.get("adapter"), card=card, ignore_card=ignore_card)
        loaded = prompt if prompt is None or isinstance(prompt, JudgePrompt) else read_prompt(Path(prompt))
        setup = prepare(model, options, template=template, reading=reading, prompt=loaded)
        self.name = model.public_name
        self.named = model.named
        """The installed judge; None for a folder, a hub ID, or a model on a server."""
        self.released = setup.recognition.judge
        """The released judge; None for unknown models, and for models with a `judge.json`."""
        self.format = setup.format
        self.is_instruct = setup.is_instruct
        """True for a general instruct model, which also answers prompts that are not judge prompts."""
        self._candidates = setup.recognition.candidates
        self._worker: EngineWorker | None = None
        self._card, self._ignores_card = setup.card or setup.recognition.judge, model.ignore_card
        self._options, self._cluster = setup.options, cluster
        self._engine_name = model.engine if cluster is None else model.asked_engine
        self._load(setup.options)
        try:
            setup.check_loaded(self.engine.describe())
        except CardError:
            self.close()
            raise

    def _load(self, options: EngineOptions) -> None:
        began = time.monotonic()
        if self._cluster is None:
            self.engine: Engine = load_engine(self._engine_name, options)
        else:
            self.engine = load_workers(self._engine_name, options, self._cluster)
        self.load_s = time.monotonic() - began

    @property
    def notes(self) -> list[str]:
        """Notes about the card, choices made by the engine (such as the numeric format), and idle GPUs."""
        idle = idle_gpus(self.engine.describe()["engine"], self._options) if self._cluster is None else []
        return [*self._card_notes(), *self.engine.stats().get("notes", ()), *idle]

    def _card_notes(self) -> list[str]:
        if self.named is not None:
            return [self.named.notice, *(() if self.named.adapter else self._larger())]
        if self.released is not None:
            state = f"unverified: {self.released.unverified}" if self.released.unverified else "verified"
            return [f"card {self.released.name} ({state}): {self.released.summary}"]
        if self.format.source != "default" or self._engine_name not in MODEL_ENGINES or self._options.adapters:
            return []
        model, template = self._options.model, self.template
        used = f"read by {template.reading}" if template.reads_words else f"prompted with {template.id}"
        note = f"{model} has no judge.json and is not a known judge (see judgelm judges), so it is {used}"
        if self._candidates:
            note += f"; if it is a known judge, pass {' or '.join(f'--card {name}' for name in self._candidates)}"
        tune, new = (
            "to choose the reading with your labels, run: judgelm tune",
            "to write a card for it, run: judgelm judges new",
        )
        return [f"{note}; {tune if template.reads_words else new} {model}", *self._larger()]

    def _larger(self) -> list[str]:
        if not str(self.engine.describe().get("device")).startswith("cuda"):
            return []
        gigabytes = round(this_machine().cuda_bytes / 1e9)
        return [f"this GPU has {gigabytes} GB; to list judges that fit, run: judgelm judges --vram {gigabytes}"]

    @property
    def _has_own_prompts(self) -> bool:
        return self.released is not None and not self.released.template and self.format.prompt is None

    @property
    def reads_all_score_lines(self) -> bool:
        """True if the probabilities of all score lines can be computed in a single forward pass."""
        scored = not self._has_own_prompts and self.template.reading == "score-line" and not self.reasons_first
        if not scored or self.engine.describe()["engine"] != "transformers":
            return False
        with suppress(ConfigError):
            return bool(score_lines(self.format.scale, self.format.step))
        return False  # too many scores

    def mode(self, name: str | None = None, /, **options: Any) -> BatchMode:
        """Create a mode with this judge's template or prompt file, scale, and step.

        The default is the usual mode of the prompt file, or else `pair`. Released judges use their own prompts in the
        modes listed on their card. Judges that reason first use mode `reasoned` for pairs.

        Raises:
            ConfigError: unknown mode or option, or options that conflict with each other, the judge, or the engine.
            ModelError: the prompt text of a released judge is not available.
        """
        if self.released is not None and self._has_own_prompts:
            return self.released.mode(name or "pair", options)
        return self._mode(self.format, name, options)

    def mode_with(self, prompt: JudgePrompt, name: str | None = None, /, **options: Any) -> BatchMode:
        """Create a mode with a different prompt file.

        Raises:
            CardError: the judge was trained with a template, or tuned to another prompt.
        """
        location, ignore = self._options.model, self._ignores_card
        form = judge_format(self._card, None, location=location, ignore_card=ignore, prompt=prompt)
        return self._mode(form, name, options)

    def _mode(self, form: JudgeFormat, name: str | None, options: dict[str, Any]) -> BatchMode:
        name = name or form.mode
        if form.head is not None and name not in (fitted := form.head.modes):
            raise ConfigError(f"mode {name}: this judge's head was fitted for mode {fitted[0]}; use --mode {fitted[0]}")
        if form.head is not None and name == "grounded" and form.prompt is None:
            finding = f"this judge's head was fitted for {form.template}, whose prompt does not show the context"
            raise ConfigError(f"mode grounded: {finding}; tune with --prompt grounded, or pass --ignore-card")
        if options.get("criterion", form.criterion) != form.criterion and form.fitted:
            known = "no criterion" if form.criterion is None else f"the criterion {form.criterion!r}"
            raise CardError(f"the judge was fitted with {known}; remove --criterion, or pass --ignore-card")
        template = form.chosen
        own: dict[str, Any] = {"template": form.template, "scale": form.scale, "step": form.step}
        if form.prompt is not None:
            if name not in form.prompt.modes:
                modes = " or ".join(form.prompt.modes)
                raise ConfigError(f"prompt {form.prompt.name} cannot be used in mode {name}; use --mode {modes}")
            own["prompt"] = form.prompt
        if template.reads_words:
            own["calibration_temperature"] = form.calibration_temperature
            own["head"] = None if form.head is None else form.head.terms
            own["heads"] = {} if form.head is None else form.head.criteria
            own["abstain_below"] = form.abstain_below
            _fill_in(form, name, options)
        if name == "reasoned" and form.source == "default":
            del own["template"]  # use the default of the mode
        elif template.reasons_first and name == "pair":
            name = "reasoned"
        elif template.reasons_first and name != "reasoned" and "template" in mode_type(name).__dataclass_fields__:
            raise ConfigError(f"template {form.template} reasons first, but mode {name} needs scores; use --mode pair")
        if name == "reasoned" and form.reply_tokens:
            options.setdefault("max_tokens", form.reply_tokens)
        mode = make_mode(name, options, own)
        by_grammar = getattr(mode, "retry_unparseable", False) and getattr(mode, "retry_needs_grammar", True)
        if by_grammar and not self.engine.supports_grammar:
            engine = self.engine.describe()["engine"]
            raise ConfigError(
                f"retry_unparseable requires grammars, which the {engine} engine does not support here; "
                "use --engine transformers or vllm"
            )
        return mode

    @property
    def template(self) -> Template:
        """The judge's template."""
        return self.format.chosen

    @property
    def reasons_first(self) -> bool:
        """True if the template asks for reasoning before the verdict."""
        return self.template.reasons_first

    def with_adapter(self, adapter: str) -> "Judge":
        """Return a judge that uses a LoRA adapter for the same model. Both share the engine; only this judge closes it.

        Raises:
            ModelError: the adapter has no `judge.json`, or was trained with a different thinking setting.
            CardError: the adapter was trained with a different version of its template.
            ConfigError: the engine does not support loading adapters at run time; pass `adapters` at the start.
        """
        location = absolute_folder(adapter)
        if location not in self._options.adapters and not isinstance(self.engine, HoldsAdapters):
            engine = self.engine.describe()["engine"]
            raise ConfigError(
                f"the {engine} engine does not support loading adapters at run time; pass {adapter} at the start"
            )
        card = find_card(location)
        if card is None:
            raise ModelError(
                f"{adapter}: {CARD_NAME} not found; use an adapter trained with train/sft.py, or write a card for it"
            )
        if card.thinking != self.engine.thinking.mode:
            modes = f"trained with thinking {card.thinking}, but the engine runs with {self.engine.thinking.mode}"
            raise ModelError(f"{adapter}: {modes}; serve it separately, with --adapter")
        judge = copy(self)
        judge.name = Path(adapter).name
        judge.named = judge.released = None
        judge.is_instruct, judge._card, judge._ignores_card = False, card, False
        judge.format = judge_format(card, None, location=adapter, ignore_card=False)
        judge.engine = AdapterView(self.engine, location)
        return judge

    def pairwise(self, **options: Any) -> Pairwise:
        """Return pair mode, for judges that write score lines."""
        if self._has_own_prompts or self.reasons_first:
            raise ConfigError(f"{self._options.model} does not write score lines; use a judge that does")
        mode = self.mode("pair", **options)
        assert isinstance(mode, Pairwise), "that is its name"
        return mode

    def compare(
        self,
        question: str,
        answer_1: str,
        answer_2: str,
        *,
        reference: str | None = None,
        both_orders: bool = True,
        fields: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Judgment:
        """Judge a pair. If the reply is unparseable, the judgment's `failure` is set, and no exception is raised.

        `options` are fields of pair mode, such as `distribution=True` for `probability` and score distributions,
        `reasons="all"` for a reason, or `order_rule="probability"`. `fields` are the values of a prompt file's other
        slots.

        Raises:
            ConfigError: an argument is not a string.
        """
        named: dict[str, Any] = {"reference": reference, "both_orders": both_orders, "fields": fields}
        return self._judge(*self._pair(question, answer_1, answer_2, **named, **options))

    async def acompare(self, question: str, answer_1: str, answer_2: str, **arguments: Any) -> Judgment:
        """Like `compare`, but asynchronous. Concurrent calls share the engine's batch; cancelling drops the request."""
        return await self._awaited(*self._pair(question, answer_1, answer_2, **arguments))

    def _pair(
        self,
        question: str,
        answer_1: str,
        answer_2: str,
        *,
        reference: str | None = None,
        both_orders: bool = True,
        fields: Mapping[str, object] | None = None,
        **options: Any,
    ) -> tuple[Sample, BatchMode]:
        _require_texts("compare", reference=reference, question=question, answer_1=answer_1, answer_2=answer_2)
        metadata = self._fields("compare", fields, reference, options)
        pair = (answer_1, answer_2)
        sample = Sample(id="1", question=question, answers=pair, reference=reference, metadata=metadata)
        return sample, self.mode("pair", both_orders=both_orders, **options)

    def grade(
        self,
        question: str,
        answer: str,
        *,
        reference: str | None = None,
        anchor: str | None = None,
        mode: str | None = None,
        fields: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Judgment:
        """Grade or label one answer, optionally with a reference or another answer (`anchor`).

        The default mode is `label` for a prompt file with labels, or else `single`. `options` are fields of the mode,
        such as `distribution=True` for the expected grade or `reasons="all"`, or, for `mode="rubric"`,
        `dimensions=["helpfulness"]`. `fields` are the values of a prompt file's other slots.
        """
        named: dict[str, Any] = {"reference": reference, "anchor": anchor, "mode": mode, "fields": fields}
        return self._judge(*self._single(question, answer, **named, **options))

    async def agrade(self, question: str, answer: str, **arguments: Any) -> Judgment:
        """Like `grade`, but asynchronous; see `acompare`."""
        return await self._awaited(*self._single(question, answer, **arguments))

    def _single(
        self,
        question: str,
        answer: str,
        *,
        reference: str | None = None,
        anchor: str | None = None,
        mode: str | None = None,
        fields: Mapping[str, object] | None = None,
        **options: Any,
    ) -> tuple[Sample, BatchMode]:
        _require_texts("grade", reference=reference, anchor=anchor, question=question, answer=answer)
        usual = self._grading_mode()
        metadata = self._fields("grade", fields, reference, options) | ({} if anchor is None else {"anchor": anchor})
        sample = Sample(id="1", question=question, answers=(answer,), reference=reference, metadata=metadata)
        return sample, self.mode(mode or usual, **options)

    def _grading_mode(self) -> str:
        usual = "single" if self.format.prompt is None else self.format.prompt.modes[0]
        if usual in ("pair", "multi"):
            raise ConfigError(f"grade: the prompt compares answers; use {'compare' if usual == 'pair' else 'rank'}")
        return usual

    def rank(
        self,
        question: str,
        answers: Sequence[str],
        *,
        reference: str | None = None,
        fields: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Judgment:
        """Rank two or more answers. `options` are fields of multi mode, such as `permutations=3`.

        `fields` are the values of a prompt file's other slots.

        Raises:
            ConfigError: there are fewer than two answers, or an argument is not a string.
        """
        return self._judge(*self._ranked(question, answers, reference=reference, fields=fields, **options))

    async def arank(self, question: str, answers: Sequence[str], **arguments: Any) -> Judgment:
        """Like `rank`, but asynchronous; see `acompare`."""
        return await self._awaited(*self._ranked(question, answers, **arguments))

    def _ranked(
        self,
        question: str,
        answers: Sequence[str],
        *,
        reference: str | None = None,
        fields: Mapping[str, object] | None = None,
        **options: Any,
    ) -> tuple[Sample, BatchMode]:
        listed = not isinstance(answers, str | bytes | Mapping | Set) and isinstance(answers, Iterable)
        texts = tuple(answers) if listed else ()
        if len(texts) < 2:
            raise ConfigError("rank requires a list of at least two strings; to grade one answer, use grade")
        named = {f"answers[{index}]": text for index, text in enumerate(texts)}
        _require_texts("rank", reference=reference, question=question, **named)
        metadata = self._fields("rank", fields, reference, options)
        sample = Sample(id="1", question=question, answers=texts, reference=reference, metadata=metadata)
        return sample, self.mode("multi", **options)

    def _fields(
        self, method: str, fields: object, reference: str | None, options: Mapping[str, object]
    ) -> dict[str, object]:
        """Check the values of a prompt file's slots, and return them as a sample's metadata."""
        prompt, given = self.format.prompt, {} if fields is None else fields
        if not isinstance(given, Mapping):
            raise ConfigError(f"{method}: expected fields as a dictionary, got {type(given).__name__}")
        if prompt is None:
            if given:
                raise ConfigError(f"{method}: fields are slots of a prompt file; load the judge with prompt=FILE")
            return {}
        named = {**given, "criterion": given.get("criterion") or options.get("criterion")}
        for name in prompt.fields:
            value = named.get(name)
            if value is None:
                raise ConfigError(f'{method}: prompt {prompt.name} shows {{{name}}}; pass fields={{"{name}": ...}}')
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                kind = type(value).__name__
                raise ConfigError(f"{method}: field {name} is a {kind}; expected text or JSON values") from None
        if "reference" in prompt.slots and reference is None:
            raise ConfigError(f"{method}: prompt {prompt.name} shows {{reference}}; pass reference=...")
        return {FIELDS: dict(given)}

    def _judge(self, sample: Sample, mode: BatchMode) -> Judgment:
        [judgment] = judge([sample], mode, self._idle_engine())
        return judgment

    def run(
        self,
        rows: Rows,
        *,
        mode: str | None = None,
        columns: Mapping[str, str] | None = None,
        progress: bool = True,
        **options: Any,
    ) -> Any:
        """Judge rows in memory, as `judge_file` judges the rows of a file.

        Args:
            rows: dictionaries with the fields of an input file, samples, or a pandas DataFrame.
            mode: name of the mode; the default is the judge's usual mode.
            columns: field -> column, such as `{"context": "documents"}`.
            progress: show a progress bar in terminals and notebooks.
            options: fields of the mode.

        Returns:
            The judgments in the order of the rows or, for a DataFrame, a copy of it with the columns that
            `judgelm export` adds.

        Raises:
            InputError: a row cannot be used; the message names its number and the field.
        """
        made = self.mode(mode, **options)
        listed = list(rows) if not is_frame(rows) else rows
        samples = read_samples(listed, made, columns)
        judgments = judge_samples(samples, made, self._idle_engine(), progress=progress)
        return with_verdicts(cast(Any, listed), judgments) if is_frame(listed) else judgments

    def compare_many(self, rows: Rows, *, both_orders: bool = True, **options: Any) -> Any:
        """Judge pairs; see `run`. Each row has a `question`, an `answer_1`, and an `answer_2`."""
        return self.run(rows, mode="pair", both_orders=both_orders, **options)

    def grade_many(self, rows: Rows, **options: Any) -> Any:
        """Grade or label answers; see `run` and `grade`. Each row has a `question` and an `answer`."""
        return self.run(rows, mode=options.pop("mode", None) or self._grading_mode(), **options)

    def rank_many(self, rows: Rows, **options: Any) -> Any:
        """Rank answers; see `run`. Each row has a `question` and `answers`."""
        return self.run(rows, mode="multi", **options)

    async def astream(
        self, rows: Rows, *, mode: str | None = None, columns: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncGenerator[Judgment, None]:
        """Judge rows as `run` does, and yield each judgment as it finishes. Leaving the loop drops the other rows."""
        made = self.mode(mode, **options)
        samples = iter(read_samples(rows, made, columns))
        running: set[asyncio.Task[Judgment]] = set()
        try:
            while True:
                while len(running) < self.engine.max_in_flight and (sample := next(samples, None)) is not None:
                    running.add(asyncio.create_task(self._awaited(sample, made)))
                if not running:
                    return
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()

    async def _awaited(self, sample: Sample, mode: BatchMode) -> Judgment:
        if isinstance(self.engine, AdapterView):
            raise ConfigError("asynchronous calls need a judge of its own; load the adapter with Judge")
        if self._worker is None:
            self._worker = EngineWorker(self.engine, max_queue=1_000_000)
        return await asyncio.wrap_future(self._worker.submit(lambda: judging(sample, mode)))

    def _idle_engine(self) -> Engine:
        """Return the engine, after stopping its thread for asynchronous calls."""
        if self._worker is not None:
            if self._worker.in_flight:
                raise ConfigError("asynchronous judgments are running on this judge; await them first")
            self._worker.close()
            self._worker = None
        return self.engine

    def judge_file(
        self,
        *inputs: str | PathLike[str],
        out: str | PathLike[str],
        mode: str | None = None,
        hooks: BatchHooks | None = None,
        **options: Any,
    ) -> RunStats:
        """Judge files as `judgelm-batch` does. `options` are fields of the mode.

        A resumed run keeps its numeric format, so the judge may be reloaded if dtype is `auto`.
        """
        if not inputs:
            raise ConfigError("judge_file: no input given; pass the path to a file")
        job = BatchJob(inputs=tuple(str(Path(path)) for path in inputs), out=str(Path(out)))
        dtype = run_dtype(job, self._options.dtype, self._engine_name)
        if dtype not in ("auto", self.engine.describe().get("dtype")):
            self._idle_engine().close()
            self._load(replace(self._options, dtype=dtype))
        made = self.mode(mode, **options)
        return run_batch(job, made, self._idle_engine(), load_s=self.load_s, hooks=hooks or BatchHooks())

    def close(self) -> None:
        """Free the engine."""
        if self._worker is not None:
            self._worker.close()
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _fill_in(form: JudgeFormat, name: str, options: dict[str, Any]) -> None:
    known = mode_type(name).__dataclass_fields__
    if "criterion" in known and form.criterion is not None:
        options.setdefault("criterion", form.criterion)
    if "tie_threshold" in known:
        options.setdefault("tie_threshold", form.tie_threshold or 0.0)


def _require_texts(method: str, *, reference: object, anchor: object = None, **required: object) -> None:
    optional = {name: value for name, value in (("reference", reference), ("anchor", anchor)) if value is not None}
    for name, value in (required | optional).items():
        if not isinstance(value, str):
            raise ConfigError(f"{method}: {name} must be a string, got {type(value).__name__} {value!r:.60}")


def first_better(judgment: Judgment) -> float | None:
    """Return P(first better) if known, otherwise the verdict as 1, 0.5, or 0; None if the judge failed."""
    if judgment.failure is not None or (judgment.winner is None and not judgment.abstained):
        return None
    if judgment.probability is not None:
        return judgment.probability
    return {1: 1.0, 2: 0.0, "tie": 0.5}[judgment.winner or "tie"]


def expected_score(judgment: Judgment, scale: tuple[float, float] | None) -> float | None:
    """Return a single answer's expected score if known, otherwise its written score; None if the judge failed.

    `scale` is the lowest and highest score, which are mapped to 0 and 1. If `scale` is None, the score is not rescaled.
    """
    if judgment.failure is not None or not judgment.scores:
        return None
    grades, [score] = judgment.shown[0].grades, judgment.scores
    if grades is not None and grades.expected == grades.expected:  # not NaN
        score = grades.expected
    if scale is None:
        return score
    return min(1.0, max(0.0, (score - scale[0]) / (scale[1] - scale[0])))
