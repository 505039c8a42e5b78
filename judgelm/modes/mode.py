"""The interface that all modes implement, and checks for their options."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

from judgelm.errors import ConfigError, InputError, out_of_range
from judgelm.modes.flow import Flow
from judgelm.prompts.catalog import JudgeReading, get_template
from judgelm.records import MAX_SEED, MAX_TEMPERATURE, MAX_TOKENS, Sample, Sampling


class Mode(Protocol):
    """A method for judging a sample."""

    def __call__(self, sample: Sample) -> Flow:
        """Start judging a sample."""


class BatchMode:
    """Base class for the modes used by batch runs, the server, and `Judge`.

    A mode is a frozen dataclass, and calling it with a sample returns a `Flow`. The fields are the mode's options and
    part of a run's fingerprint, so earlier runs cannot be resumed after a field is added or renamed.

    Attributes:
        answers: minimum and maximum number of answers; None means no limit.
        shown_fields: metadata fields that appear in the mode's prompts; they are included in the sample's hash.
        reasons_first: whether the judge reasons before its verdict, which voting requires (`judgelm.modes.votes`).
        reading: the reading that the mode requires; None if it works with any reading.
        takes_rewards: whether the mode also works with reward models.
        ignores_id: whether a greedy judgment is independent of the sample's ID, so that the server can cache it.
        retry_needs_grammar: whether `retry_unparseable` requires an engine with grammar support.
        protocol: description for reports of how pairs are judged; empty for standard protocols.
        reference: `auto` shows a reference if the sample has one, `use` requires one, `ignore` never shows one.
        scale: lowest and highest score.
        step: difference between adjacent scores.
        both_orders: judge each pair a second time with the answers swapped.
        accept_one_order: if one order fails, use the verdict from the other order instead of failing.
        tie_threshold: maximum distance of P(first better) from 0.5 that counts as a tie.
        retry_unparseable: after an unparseable reply, request the most probable label.
        reasons: `all` requests a reason for each verdict.
        reason_tokens: token limit for a reason.
        criterion: custom criterion for word readings; if None, the template's question is used.
        calibration_temperature: for word readings, the divisor for the difference between two answers' strengths.
        head: for judges with a linear head, how its output becomes a score.
        abstain_below: the lowest probability of the likelier answer for a verdict; below it, the verdict of a pair is
            `abstain`. With this option, no verdict is a tie.
        chat: use the tokenizer's chat template; disable this for base models.
        temperature: 0 means greedy decoding.
        seed: used if the temperature is above 0; each sample gets a different seed derived from it.
        max_tokens: token limit for a reply, including its reasoning.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    shown_fields: ClassVar[tuple[str, ...]] = ()
    reasons_first: ClassVar[bool] = False
    reading: ClassVar[JudgeReading | None] = None
    takes_rewards: ClassVar[bool] = False
    ignores_id: ClassVar[bool] = False
    retry_needs_grammar: ClassVar[bool] = True
    protocol: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Name used in run files and manifests."""
        raise NotImplementedError

    @property
    def answers(self) -> tuple[int, int | None]:
        """Minimum and maximum number of answers."""
        raise NotImplementedError

    @property
    def reference(self) -> Literal["auto", "use", "ignore"]:
        """When to show references."""
        raise NotImplementedError

    @property
    def template(self) -> str:
        """ID of the prompt template."""
        raise NotImplementedError

    @property
    def template_sha(self) -> str:
        """Hash of the template."""
        return get_template(self.template).sha

    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        raise NotImplementedError

    def check(self, sample: Sample) -> None:
        """Check that the mode can judge a sample.

        Raises:
            InputError: the number of answers is wrong, or an input is missing.
        """
        count, (fewest, most) = len(sample.answers), self.answers
        if count < fewest or (most is not None and count > most):
            wanted = f"{fewest} or more" if most is None else f"{fewest} or {most}" if most != fewest else f"{fewest}"
            noun = "answer" if wanted == "1" else "answers"
            raise InputError(f"sample {sample.id}: expected {wanted} {noun}, got {count} (mode {self.name})")

    @classmethod
    def can_vote(cls, fixed: Mapping[str, Any]) -> bool:
        """Return whether sampling several replies is useful. `fixed` contains the fields set by the judge card."""
        return cls.reasons_first

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return whether these options show the judge its own answers."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMode(BatchMode):
    """Base class for modes whose replies can be sampled."""

    temperature: float = 0.0
    seed: int = 0


MAX_OPTIONS: dict[str, float] = {
    "temperature": MAX_TEMPERATURE,
    "solve_temperature": MAX_TEMPERATURE,
    "seed": MAX_SEED,
    "permutations": 10_000,
    "solves": 10_000,
}
"""Maximum values of numeric options; other options are limited to `MAX_TOKENS`. Only `seed` can be negative."""


def check_finite(mode: object, names: Iterable[str]) -> None:
    """Check that numeric options are within the supported range."""
    for name in names:
        value, maximum = getattr(mode, name), MAX_OPTIONS.get(name, MAX_TOKENS)
        minimum = -maximum if name == "seed" else 0
        if isinstance(value, int | float) and not minimum <= value <= maximum:
            raise out_of_range(name, value, minimum, maximum)


def check_above_zero(options: object, *names: str) -> None:
    """Check that each option is above 0 or None."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{name} is {value}; it must be above 0")


def check_threshold(options: object, *names: str) -> None:
    """Check that thresholds for the distance of a probability from 0.5 are between 0 and 0.5."""
    for name in names:
        if not 0 <= (value := getattr(options, name)) <= 0.5:
            raise ConfigError(
                f"{name} is {value}; it is a distance from a probability of 0.5, so it must be between 0 and 0.5"
            )


def unreferenced(sample: Sample) -> InputError:
    """Return the error for a sample that does not have exactly one answer and a reference."""
    given = f"{len(sample.answers)} answer(s) and {'no' if sample.reference is None else 'a'} reference"
    return InputError(f"sample {sample.id}: expected one answer and a reference, got {given}")


class SamplingOptions(Protocol):
    """Sampling options of a mode."""

    @property
    def temperature(self) -> float:
        """0 means greedy decoding."""

    @property
    def seed(self) -> int:
        """Seed of the run."""


def sampling_for(
    options: SamplingOptions, sample_id: str, max_tokens: int, *, stop: tuple[str, ...] = (), reserve: int | None = None
) -> Sampling:
    """Build the sampling options. Above temperature 0, the seed is derived from the run's seed and `sample_id`."""
    if options.temperature == 0:
        return _greedy(max_tokens, stop, reserve)
    digest = hashlib.blake2b(f"{options.seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=4).digest()
    seed = int.from_bytes(digest, "big")
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve, temperature=options.temperature, seed=seed)


@lru_cache
def _greedy(max_tokens: int, stop: tuple[str, ...], reserve: int | None) -> Sampling:
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve)


def pair_orders(both_orders: bool) -> tuple[tuple[int, int], ...]:
    """Return orders as indices into the sample's answers."""
    return ((0, 1), (1, 0)) if both_orders else ((0, 1),)
