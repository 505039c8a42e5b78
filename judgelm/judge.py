"""The Python door: load a judge once, ask it often.

from judgelm import Judge
with Judge("my-judge") as judge:
    judgment = judge.compare("What is 2 + 2?", "4", "5")
"""

import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from judgelm.batch import BatchHooks, BatchJob, Tally, run_batch
from judgelm.card import Card, check_card, find_card
from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import AUTO_ENGINE, load_engine
from judgelm.errors import ConfigError
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template
from judgelm.records import Judgment, Sample
from judgelm.runner import judge

DEFAULT_TEMPLATE = "judgelm-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFormat:
    """How a judge must be asked, and who says so: its card, the user, or the default."""

    template: str
    scale: tuple[float, float]
    source: str


class Judge:
    """A loaded judge.

    Args:
        model: local folder or hub id; with `engine="scripted"` the reply, or a JSON file of replies.
        engine: `auto`, `transformers` or `scripted`.
        template: id of the pair template; None takes the one in the model's card, else `judgelm-v1`.
        ignore_card: use another template than the card's all the same.
        options: fields of `EngineOptions`, such as `dtype`, `device`, `adapter`, `quantization`.

    Raises:
        ModelError: the model cannot be loaded, or (CardError) was trained with another template.
        ConfigError: an engine, template or option that does not exist.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: str = "auto",
        template: str | None = None,
        ignore_card: bool = False,
        **options: Any,
    ) -> None:
        unknown = options.keys() - EngineOptions.__dataclass_fields__.keys()
        if unknown:
            known = ", ".join(EngineOptions.__dataclass_fields__)
            raise ConfigError(f"unknown option {', '.join(sorted(unknown))}; the engines know: {known}")
        engine_options = EngineOptions(model=model, **options)
        card = None if engine == "scripted" else _find_card(engine_options)
        if card is not None and engine_options.window_tokens is None:
            engine_options = replace(engine_options, window_tokens=card.window)
        self.format = judge_format(card, template, place=model, ignore_card=ignore_card)
        began = time.monotonic()
        self.engine: Engine = load_engine(AUTO_ENGINE if engine == "auto" else engine, engine_options)
        self.load_s = time.monotonic() - began

    def pairwise(self, **options: Any) -> Pairwise:
        """A pair mode with this judge's template and scale; `options` are its other fields."""
        return Pairwise(template=self.format.template, scale=self.format.scale, **options)

    def compare(
        self,
        question: str,
        answer_1: str,
        answer_2: str,
        *,
        reference: str | None = None,
        both_orders: bool = True,
    ) -> Judgment:
        """Judge one pair. A reply that cannot be read is a judgment with `failure` set, not an exception."""
        sample = Sample(id="1", question=question, answers=(answer_1, answer_2), reference=reference)
        [judgment] = judge([sample], self.pairwise(both_orders=both_orders), self.engine)
        return judgment

    def judge_file(self, *inputs: str, out: str, hooks: BatchHooks | None = None, **options: Any) -> Tally:
        """Judge the pairs of a file as `judgelm-batch` does; `options` are fields of the pair mode."""
        job = BatchJob(inputs=inputs, out=out)
        return run_batch(job, self.pairwise(**options), self.engine, load_s=self.load_s, hooks=hooks or BatchHooks())

    def close(self) -> None:
        """Free the engine."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def judge_format(card: Card | None, template: str | None, *, place: str, ignore_card: bool) -> JudgeFormat:
    """The template and scale to ask a judge with; `place` names the model in errors.

    Raises:
        CardError: the model's card names another template, or other bytes of it.
        ConfigError: no such template.
    """
    chosen = get_template(template or (card.template if card else DEFAULT_TEMPLATE))
    if card is None:
        return JudgeFormat(template=chosen.id, scale=(1, 10), source="option" if template else "default")
    if not ignore_card:
        check_card(card, template=chosen.id, template_sha=chosen.sha, place=place)
    return JudgeFormat(template=chosen.id, scale=card.scale, source="option" if ignore_card and template else "card")


def _find_card(options: EngineOptions) -> Card | None:
    """The adapter's card, else the model's."""
    card = find_card(options.adapter) if options.adapter is not None else None
    return card or find_card(options.model, options.revision)
