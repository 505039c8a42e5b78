"""Resolve the user's model, engine, and adapter to the judge to load.

`resolve` runs once per command, before anything is loaded or downloaded. `prepare` then loads the model's card and
determines how to load and prompt the judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from judgelm.engines.base import MODEL_ENGINES, EngineOptions, HeadFile
from judgelm.engines.catalog import check_engine, choose_engine
from judgelm.errors import CardError, ConfigError
from judgelm.judges.cards import InstalledJudge, default_choice, named_judge
from judgelm.judges.released import Recognition, ReleasedJudge, recognise
from judgelm.prompts.catalog import JudgeReading, Template, get_template
from judgelm.prompts.judge_card import (
    CARD_NAME,
    Card,
    HeadCard,
    check_card,
    check_identity,
    check_place,
    find_card,
    locate_weights,
)
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.prompts.prompt_template import prompt_template

DEFAULT_TEMPLATE = "judgelm-v1"
"""Template for score-line judges without a card, and for models without a chat template."""
DEFAULT_READING = "yes-no"
"""Reading and template for chat models without a card, chosen by benchmarks (`benchmarks/README.md`)."""


@dataclass(frozen=True, kw_only=True)
class ResolvedJudge:
    """A resolved judge that has not been loaded.

    Attributes:
        model: model as given by the user; None for the default judge.
        asked_engine: engine as given by the user. Ray workers resolve `auto` on their own machines.
        weights: weights for the engine to load: a folder, GGUF file, hub ID, model name on a server, or script.
        tuned: card from a `judgelm tune` folder, which refers to the weights.
    """

    model: str | None
    asked_engine: str
    adapter: str | None
    card: str | None
    ignore_card: bool
    weights: str
    named: InstalledJudge | None
    tuned: Card | None

    @property
    def engine(self) -> str:
        """Name of the engine. Resolving `auto` on this machine loads torch."""
        return self._engine_choice[0]

    @property
    def engine_reason(self) -> str:
        """Why `auto` selected this engine; empty if the user selected it."""
        return self._engine_choice[1]

    @cached_property
    def _engine_choice(self) -> tuple[str, str]:
        if self.asked_engine != "auto":
            return self.asked_engine, ""
        if self.tuned is not None and self.tuned.head is not None:
            return "transformers", "the judge has a linear head"
        return choose_engine()

    @cached_property
    def recognition(self) -> Recognition:
        """The released judge detected for the model; empty for the default judge or if the card is ignored."""
        if self.model is None or self.ignore_card:
            return Recognition()
        return recognise(self.model, self.card, adapter=self.adapter)

    @property
    def display_name(self) -> str:
        """Name of the model in messages. For the default judge, it includes the reason."""
        if self.model is not None:
            return self.model
        choice = default_choice()
        return f"{choice.card.name}, since {choice.reason}"

    @property
    def public_name(self) -> str:
        """Name to show to clients; for a local folder, only its name."""
        if self.named is not None and self.tuned is None:
            return self.named.card.name
        if self.asked_engine == "scripted":
            return "scripted"
        path = Path(str(self.model))
        return path.resolve().name if path.exists() else str(self.model)

    def with_engine(self, engine: str) -> "ResolvedJudge":
        """Return a copy with the engine of a resumed run."""
        return self if engine == self.asked_engine else replace(self, asked_engine=engine)


def resolve(
    model: str | None = None,
    engine: str = "auto",
    *,
    adapter: str | None = None,
    card: str | None = None,
    ignore_card: bool = False,
) -> ResolvedJudge:
    """Resolve the user's judge without loading or downloading it.

    Args:
        model: name of a judge, folder, GGUF file, hub ID, model name on a server, or script; None for the default
            judge.
        engine: name of the engine, or `auto`.
        adapter: folder or hub ID of a PEFT adapter.
        card: name of the card for a released judge; None detects the judge.
        ignore_card: do not detect released judges.

    Raises:
        ConfigError: unknown engine, no model for an engine without a default judge, or an adapter on a named judge.
        ModelError: the judge is not installed, or the model is neither a path nor a hub ID.
        CardError: the folder's card is invalid.
    """
    check_engine(engine)
    if model == "":
        raise ConfigError("the model name is empty; omit it for the default judge")
    named = None
    weights, tuned = ("", None) if model is None else locate_weights(model)
    if engine in MODEL_ENGINES:
        named = named_judge(weights or None)
        if named is None:
            check_place(weights)
        elif adapter is not None:
            raise ConfigError(f"{named.card.name} is a named judge; pass the base model of {adapter} with --model")
    elif model is None:
        server = " (--model) and a server (--engine-arg base_url=URL)" if engine == "openai" else " (--model)"
        raise ConfigError(f"the {engine} engine has no default judge; set a model{server}")
    return ResolvedJudge(
        model=model,
        asked_engine=engine,
        adapter=adapter,
        card=card,
        ignore_card=ignore_card,
        weights=named.model if named else weights,
        named=named,
        tuned=tuned,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFormat:
    """A judge's template and scale.

    Attributes:
        mode: name of the usual mode.
        fitted: whether the judge was trained or tuned with the template and the criterion.
        never_explained: whether the card states that none of the training rows had a reason.
        reply_tokens: maximum reply length for a judge that reasons first: the limit from its training, otherwise half
            of its context window.
    """

    template: str
    scale: tuple[float, float]
    step: float
    source: str
    never_explained: bool = False
    reply_tokens: int | None = None
    criterion: str | None = None
    tie_threshold: float | None = None
    calibration_temperature: float = 1.0
    prompt: JudgePrompt | None = None
    head: HeadCard | None = None
    abstain_below: float | None = None
    mode: str = "pair"
    fitted: bool = False

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of the head or the prompt file, the usual one first; empty if there is neither."""
        owner = self.head or self.prompt
        return () if owner is None else tuple(owner.modes)

    @property
    def chosen(self) -> Template:
        """The template, from the prompt file if there is one."""
        return get_template(self.template) if self.prompt is None else prompt_template(self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSetup:
    """A resolved judge and how to load it.

    Attributes:
        options: engine options. The user's window and thinking settings override the card.
        is_instruct: whether the model has a chat template, is read by words, and was not trained as a judge.
    """

    judge: ResolvedJudge
    options: EngineOptions
    card: Card | None
    recognition: Recognition
    format: JudgeFormat
    is_instruct: bool

    def check_loaded(self, described: Mapping[str, Any]) -> None:
        """Check the output of `Engine.describe()` against the window and hashes in the card."""
        card, window = self.card, described.get("window")
        stated = card.window if card is not None and self.judge.engine in MODEL_ENGINES else None
        if stated is not None and self.options.max_model_len == stated and window and window < stated:
            finding = f"{CARD_NAME} states a window of {stated:,} tokens, but the model has {window:,}"
            raise CardError(f"{self.judge.weights}: {finding}; fix the card, or pass --max-model-len {window}")
        if self.judge.tuned is not None and not self.judge.ignore_card:
            check_identity(self.judge.tuned, described["model"], str(self.judge.model))


def prepare(
    judge: ResolvedJudge,
    options: Mapping[str, Any],
    *,
    template: str | None = None,
    reading: JudgeReading | None = None,
    prompt: JudgePrompt | None = None,
) -> JudgeSetup:
    """Load the judge's card, possibly from the hub, and determine how to load and prompt the judge."""
    if prompt is not None and (template is not None or reading is not None):
        raise ConfigError("--prompt cannot be combined with --template or --reading; remove one")
    engine = EngineOptions(**{**options, "model": judge.weights, "adapter": judge.adapter})
    engine = replace(engine, adapters=tuple(absolute_folder(adapter) for adapter in engine.adapters))
    runs_model = judge.engine in MODEL_ENGINES
    if engine.adapters and not runs_model:
        raise ConfigError(f"the {judge.engine} engine does not support adapters; use --engine transformers or vllm")
    stored = _stored_card(engine) if runs_model or Path(engine.model).is_dir() else None  # rejects a missing model
    card = judge.tuned or _card_of(judge.named) or stored
    recognition = Recognition() if card else judge.recognition
    known: Card | ReleasedJudge | None = card or recognition.judge
    is_untrained = stored is None and recognition.judge is None
    is_reward_model = has_template = False
    if runs_model:
        from judgelm.engines.model_files import has_chat_template, has_reward_head  # loads transformers

        is_reward_model = has_reward_head(engine)
        has_template = is_untrained and has_chat_template(engine)
    if card is not None and runs_model and engine.max_model_len is None:
        engine = replace(engine, max_model_len=card.window)
    if known is not None and engine.thinking is None:
        engine = replace(engine, thinking=known.thinking)
    if known is None and is_reward_model and template is None and reading is None:
        reading = "reward"
    form = judge_format(
        known,
        template,
        reading,
        location=judge.weights if judge.tuned is None else str(judge.model),
        ignore_card=judge.ignore_card,
        chat=known is None and has_template,
        prompt=prompt,
    )
    chosen = form.chosen
    writes_words = chosen.reads_words and chosen.reading != "reward"
    if known is None and engine.thinking is None and runs_model and writes_words:
        engine = replace(engine, thinking="off")  # the verdict is the probability of the first word
    if form.head is not None:
        engine = replace(engine, head=_head_file(judge, form.head), dtype=_head_dtype(judge, form.head, engine))
    elif is_reward_model or chosen.reading == "reward":
        _check_reading(judge, chosen.reading, is_reward_model=is_reward_model)
    is_instruct = form.head is None and is_untrained and writes_words and (has_template or not runs_model)
    return JudgeSetup(
        judge=judge, options=engine, card=card, recognition=recognition, format=form, is_instruct=is_instruct
    )


def _head_file(judge: ResolvedJudge, head: HeadCard) -> HeadFile | None:
    path = head.locate(str(judge.model))
    if path is not None and judge.engine not in ("transformers", "scripted"):
        finding = f"{judge.model} is a linear head on layer {head.layer}, which the {judge.engine} engine cannot load"
        raise ConfigError(f"{finding}; use --engine transformers, or run: judgelm judges checkpoint {judge.model}")
    whole = any(each.log_odds for each in (head.terms, *head.criteria.values()))
    return None if path is None else HeadFile(path=path, layer=head.layer, rows=len(head.criteria) or 1, whole=whole)


def _head_dtype(judge: ResolvedJudge, head: HeadCard, engine: EngineOptions) -> str:
    """Return the dtype of the head. States in bfloat16 are so coarse that verdicts change in another format."""
    if engine.quantization is not None:
        raise ConfigError(f"{judge.model} has a head, which needs an unquantised model; remove --quantization")
    if engine.dtype == "auto":
        return head.dtype
    if engine.dtype != head.dtype and "bfloat16" in (engine.dtype, head.dtype):
        finding = f"{judge.model} has a head for {head.dtype}, and gives different verdicts in {engine.dtype}"
        raise ConfigError(f"{finding}; remove --dtype, or run judgelm tune with --dtype {engine.dtype}")
    return engine.dtype


def judge_format(
    card: Card | ReleasedJudge | None,
    template: str | None,
    reading: JudgeReading | None = None,
    *,
    location: str,
    ignore_card: bool,
    chat: bool = False,
    prompt: JudgePrompt | None = None,
) -> JudgeFormat:
    """Return the format of a judge. `location` is the name of the model for error messages."""
    own_prompt = card.prompt if isinstance(card, Card) else None
    if prompt is not None:
        return _prompt_format(card, prompt, location=location, ignore_card=ignore_card)
    if own_prompt is not None and template is None and reading is None:
        form = _prompt_format(card, own_prompt.load(), location=location, ignore_card=ignore_card)
        assert isinstance(card, Card), "only these cards have prompts"
        return replace(
            form,
            source="card",
            criterion=card.criterion,
            tie_threshold=card.tie_threshold,
            calibration_temperature=card.calibration_temperature,
            head=card.head,
            abstain_below=None if card.abstain is None else card.abstain.below,
            mode=card.mode or form.mode,
            fitted=not ignore_card,
        )
    chosen = _chosen_template(card, template, reading, chat=chat)
    source = "option" if template or reading else "default" if card is None else "card"
    if card is None or isinstance(card, ReleasedJudge):
        return JudgeFormat(template=chosen.id, scale=card.scale if card else (1, 10), step=1, source=source)
    if not ignore_card and _is_fitted(card):
        check_card(card, template=chosen.id, template_sha=chosen.sha, location=location)
    is_own = chosen.id == card.template
    return JudgeFormat(
        template=chosen.id,
        scale=card.scale,
        step=card.step,
        source="option" if ignore_card and source == "option" else "card",
        never_explained=card.training.get("rows_with_reason") == 0,
        reply_tokens=card.training.get("max_completion_length") or (card.window and card.window // 2),
        criterion=card.criterion if is_own else None,
        tie_threshold=card.tie_threshold if is_own else None,
        calibration_temperature=card.calibration_temperature if is_own else 1.0,
        head=card.head if is_own else None,
        abstain_below=card.abstain.below if is_own and card.abstain is not None else None,
        mode=(card.mode if is_own else None) or "pair",
        fitted=not ignore_card and _is_fitted(card),
    )


def _is_fitted(card: Card) -> bool:
    """Return whether a judge was trained with, or tuned to, the template in its card."""
    return bool(card.training) or card.name is None


def _prompt_format(
    card: Card | ReleasedJudge | None, prompt: JudgePrompt, *, location: str, ignore_card: bool
) -> JudgeFormat:
    template = prompt_template(prompt)
    if isinstance(card, Card) and not ignore_card and _is_fitted(card):
        check_card(card, template=template.id, template_sha=template.sha, location=location)
    if isinstance(card, ReleasedJudge) and not ignore_card:
        finding = f"{location}: {card.name} was trained with its own prompts"
        raise CardError(f"{finding}; remove --prompt, or pass --ignore-card")
    return JudgeFormat(
        template=template.id,
        scale=prompt.reply.scale,
        step=1,
        source="prompt file",
        prompt=prompt,
        mode=prompt.modes[0],
    )


def _check_reading(judge: ResolvedJudge, reading: str, *, is_reward_model: bool) -> None:
    if is_reward_model and reading != "reward":
        raise ConfigError(f"{judge.weights}: reward models have no reading {reading}; omit --template and --reading")
    if reading == "reward" and not is_reward_model and judge.engine != "scripted":
        head = "this requires a sequence-classification head with one output and --engine transformers"
        raise ConfigError(f"{judge.weights} cannot be used as a reward model; {head}")


def absolute_folder(adapter: str) -> str:
    """Return a local folder's absolute path, or a hub ID unchanged."""
    return str(Path(adapter).resolve()) if Path(adapter).is_dir() else adapter


def _card_of(named: InstalledJudge | None) -> Card | None:
    if named is None or named.adapter is not None:
        return None
    card, template = named.card, get_template(named.card.template)
    return Card(name=card.name, template=template.id, template_sha=template.sha, reading=card.reading, scale=card.scale)


def _stored_card(options: EngineOptions) -> Card | None:
    card = find_card(options.adapter) if options.adapter is not None else None
    return card or find_card(options.model, options.revision)


def _chosen_template(
    card: Card | ReleasedJudge | None, template: str | None, reading: JudgeReading | None, *, chat: bool
) -> Template:
    own_prompt = card.prompt if isinstance(card, Card) else None
    stated = template or (card.template if card is not None and own_prompt is None else None)
    if template is None and reading is not None and (not stated or get_template(stated).reading != reading):
        stated = reading if reading != "score-line" else "judgelm-chat" if chat else DEFAULT_TEMPLATE
    chosen = get_template(stated or (DEFAULT_READING if chat else DEFAULT_TEMPLATE))
    if reading is not None and chosen.reading != reading:
        raise ConfigError(f"--template {chosen.id} uses reading {chosen.reading}, not {reading}; omit one")
    return chosen
