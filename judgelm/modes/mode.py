"""Interface of modes, and option checks."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

from judgelm.errors import ConfigError, InputError, out_of_range
from judgelm.modes.flow import Flow
from judgelm.prompts.catalog import JudgeReading, get_template
from judgelm.records import MAX_SEED, MAX_TEMPERATURE, MAX_TOKENS, Sample, Sampling


class Mode(Protocol):
    """A way to judge one sample."""

    def __call__(self, sample: Sample) -> Flow:
        """Start judging a sample."""


class BatchMode:
    """Parent of the modes that batch runs, the server, and `Judge` can use.

    A mode is a frozen dataclass whose call with a sample is a `Flow`. Its fields are its options and are part of a
    run's fingerprint. After a field is added or renamed, earlier runs cannot be resumed.

    Attributes:
        answers: minimum and maximum number of answers; None means no limit.
        shown_fields: metadata fields that its prompts show; they are hashed with the sample.
        reasons_first: whether the judge reasons before its verdict, so that it can vote (`judgelm.modes.votes`).
        reading: the reading that the judge must have; None allows any.
        takes_rewards: whether the mode also works with reward models.
        ignores_id: whether a greedy judgment is independent of the sample's id, so that the server can cache it.
        retry_needs_grammar: whether `retry_unparseable` needs an engine that supports grammars.
        protocol: how a verdict on a pair is reached, for reports; empty for standard protocols.
        reference: `auto` shows a reference if the sample has one, `use` requires one, `ignore` never shows it.
        scale: lowest and highest score.
        step: spacing of scores.
        both_orders: judge each pair again with the answers swapped.
        accept_one_order: if one of the two orders fails, use the other instead of failing.
        tie_threshold: a pair is a tie if P(first better) is at most this far from 0.5.
        retry_unparseable: after an unparseable reply, request the most probable label.
        reasons: `all` requests a reason.
        reason_tokens: token limit for a reason.
        criterion: your own criterion, for word readings; None uses the template's question.
        calibration_temperature: divides the difference between two answers' strengths, for word readings.
        chat: use the tokenizer's chat template; plain text is for base models.
        temperature: 0 is greedy.
        seed: used above temperature 0; every sample gets a different seed.
        max_tokens: token limit for a reply with its reasoning.
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
        """Name in run files and manifests."""
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
        """Id of the prompt template."""
        raise NotImplementedError

    @property
    def template_sha(self) -> str:
        """Hash of the template."""
        return get_template(self.template).sha

    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        raise NotImplementedError

    def check(self, sample: Sample) -> None:
        """Check a sample; batch runs reject rows that fail.

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
        """Return True if sampling several replies is useful. `fixed` holds the fields that the card sets."""
        return cls.reasons_first

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return True if these options make the mode show the judge its own answers."""
        return False


MAX_OPTIONS: dict[str, float] = {
    "temperature": MAX_TEMPERATURE,
    "solve_temperature": MAX_TEMPERATURE,
    "seed": MAX_SEED,
    "permutations": 10_000,
    "solves": 10_000,
}
"""Maximum values of numeric options; the default is `MAX_TOKENS`. The minimum is 0, or minus the maximum for `seed`."""


def check_finite(mode: object, names: Iterable[str]) -> None:
    """Check that numeric options are in the range that all modes support."""
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
    """Check thresholds for the distance of a probability from 0.5."""
    for name in names:
        if not 0 <= (value := getattr(options, name)) <= 0.5:
            raise ConfigError(
                f"{name} is {value}; it is a distance from a probability of 0.5, so it must be from 0 to 0.5"
            )


def unreferenced(sample: Sample) -> InputError:
    """Return the error for a sample without exactly one answer and a reference."""
    found = f"{len(sample.answers)} and {'no' if sample.reference is None else 'a'} reference"
    return InputError(f"sample {sample.id}: expected one answer and a reference, got {found}")


class SamplingOptions(Protocol):
    """Sampling options of a mode."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""

    @property
    def seed(self) -> int:
        """Seed of the run."""


def sampling_for(
    options: SamplingOptions, sample_id: str, max_tokens: int, *, stop: tuple[str, ...] = (), reserve: int | None = None
) -> Sampling:
    """Above temperature 0, the seed depends on the run's seed and `sample_id`."""
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
