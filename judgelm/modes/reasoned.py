"""Two answers compared by a judge that reasons first and ends with its verdict.

It is the way of judging that `train/grpo.py` trains: prompts and verdicts are the same in training and here.

Source: J1 (Whitehouse et al. 2025) and RM-R1 (Chen et al. 2025): a verdict after free reasoning, both orders.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import compared, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.label_probability import ask_missing_labels, ask_probabilities, mean_probability
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.parsing.verdicts import read_verdict
from judgelm.prompts.catalog import get_template
from judgelm.prompts.template import Template
from judgelm.records import Judgment, Request, Sample

LABELS: Mapping[str, str] = {"1": "1", "2": "2"}
"""In `Shown.label`: the place, in the order shown, of the better answer."""

read_pair_verdict = partial(read_verdict, labels=LABELS, brackets_only=True)
"""Reads `[[1]]` or `[[2]]` at the end of a reply."""

_GIVEN, _SWAPPED = (0, 1), (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned:
    """Judge a pair with a judge that reasons first and ends with `[[1]]` or `[[2]]`.

    There is no tie in one order. Where two orders name different answers the verdict is a tie and `consistent` is
    False.

    Attributes:
        template: id of the pair template, one that reasons first.
        both_orders: show the answers a second time, exchanged.
        accept_one_order: when one of two orders failed, take the verdict of the other instead of failing.
        reference: `auto` shows a reference where the sample has one, `use` expects one, `ignore` never shows it.
        distribution: ask for P(first better) where the verdict stands, in requests that continue the replies; the
            judgment's is the mean over the orders.
        retry_unparseable: ask for the more probable label behind a reply that has no readable verdict.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        seed: of the draws.
        max_tokens: room for the reply, its reasoning included.

    Raises:
        ConfigError: options that do not exist, or a template that puts scores first.
    """

    name: ClassVar[str] = "reasoned"
    retry_needs_grammar: ClassVar[bool] = False
    answers: ClassVar[tuple[int, int]] = (2, 2)

    template: str = "reasoned-chat"
    both_orders: bool = False
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    distribution: bool = False
    retry_unparseable: bool = False
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        """Check the template and the room."""
        check_choices(self, reference=Literal["auto", "use", "ignore"])
        check_above_zero(self, "max_tokens")
        reasoned_template(self.template)

    @property
    def template_sha(self) -> str:
        """Hash of the template's bytes for a pair."""
        return get_template(self.template).sha

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Ask for each order, conclude, then ask for the probability of the verdicts.

        Raises:
            InputError: the sample has not exactly two answers.
        """
        if len(sample.answers) != 2:
            raise InputError(
                f"sample {sample.id}: expected 2 answers, got {len(sample.answers)}; reasoned judges pairs"
            )
        reference = None if self.reference == "ignore" else sample.reference
        template = get_template(self.template)
        orders = (_GIVEN, _SWAPPED) if self.both_orders else (_GIVEN,)
        prompts = [template.render(sample, order, reference) for order in orders]
        sampling = sampling_for(self, sample.id, self.max_tokens)
        replies = yield [
            Request(key=str(index), prompt=prompt, sampling=sampling) for index, prompt in enumerate(prompts)
        ]
        shown = [
            read_reply(
                reply, read_pair_verdict, max_tokens=self.max_tokens, order=order, referenced=reference is not None
            )
            for order, reply in zip(orders, replies, strict=True)
        ]
        if self.retry_unparseable:
            shown = yield from ask_missing_labels(shown, prompts, [LABELS] * len(shown), max_tokens=self.max_tokens)
        judgment: Judgment = compared(self, sample, shown, accept_one_order=self.accept_one_order)
        if not self.distribution:
            return judgment
        values = yield from ask_probabilities(shown, prompts, LABELS, read_pair_verdict, max_tokens=self.max_tokens)
        probability = mean_probability(shown, values, accept_one_order=self.accept_one_order)
        return replace(judgment, probability=None if judgment.failure else probability)


def reasoned_template(template_id: str) -> Template:
    """The template of that id, which must reason first.

    Raises:
        ConfigError: there is none, or it begins with a score line.
    """
    template = get_template(template_id)
    if not template.reasons_first:
        raise ConfigError(
            f"template {template_id} begins with a score line; mode reasoned needs a template that reasons first, such "
            "as reasoned-chat"
        )
    return template
