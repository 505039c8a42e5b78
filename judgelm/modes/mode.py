"""The interface of a mode to the runner, batch runs and the server; checks of options and sampling of replies."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

from judgelm.errors import ConfigError, InputError, out_of_range
from judgelm.modes.flow import Flow
from judgelm.prompts.catalog import JudgeReading, get_template
from judgelm.records import MAX_SEED, MAX_TEMPERATURE, MAX_TOKENS, Sample, Sampling


class Mode(Protocol):
    """A way of judging one sample."""

    def __call__(self, sample: Sample) -> Flow:
        """Begin to judge a sample."""


class BatchMode:
    """Parent of the modes that batch runs, the server and `Judge` can use.

    A mode is a frozen dataclass. Its fields are its options and part of a run's fingerprint, so a field that is added
    or renamed makes earlier runs impossible to resume. The class attributes tell the rest of judgelm what the mode
    needs; a new mode sets those that differ from the defaults here.

    Attributes:
        name: name in run files and manifests.
        answers: minimum and maximum number of answers of a sample; a maximum of None is no limit.
        reference: policy for references in the input.
        template: id of the prompt template, for the manifest.
        shown_fields: metadata fields that its prompts show next to question, answers and reference. They are hashed
            with the sample.
        reasons_first: True if the judge reasons before its verdict, so that it can vote (`judgelm.modes.votes`).
        reading: the reading that the judge must have; None for any.
        takes_rewards: True if the mode also works with the number of a reward model.
        ignores_id: True if a greedy judgment does not depend on the sample's id. The server then judges equal samples
            once.
        retry_needs_grammar: True if `retry_unparseable` needs an engine that supports grammars.
        protocol: how a pair's verdict is reached, for reports; empty for the verdicts that reports know.
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
        """Return the mode's name in manifests."""
        raise NotImplementedError

    @property
    def answers(self) -> tuple[int, int | None]:
        """Return the minimum and maximum number of answers."""
        raise NotImplementedError

    @property
    def reference(self) -> Literal["auto", "use", "ignore"]:
        """Return whether references are shown where there are any, required, or dropped."""
        raise NotImplementedError

    @property
    def template(self) -> str:
        """Return the id of the prompt template."""
        raise NotImplementedError

    @property
    def template_sha(self) -> str:
        """Return the hash of the template's bytes."""
        return get_template(self.template).sha

    def __call__(self, sample: Sample) -> Flow:
        """Begin to judge a sample."""
        raise NotImplementedError

    def check(self, sample: Sample) -> None:
        """Check that the mode can judge a sample; batch runs reject the row otherwise.

        Raises:
            InputError: wrong number of answers, or the sample lacks something that the mode needs.
        """
        count, (fewest, most) = len(sample.answers), self.answers
        if count < fewest or (most is not None and count > most):
            wanted = f"{fewest} or more" if most is None else f"{fewest} or {most}" if most != fewest else f"{fewest}"
            noun = "answer" if wanted == "1" else "answers"
            raise InputError(f"sample {sample.id}: expected {wanted} {noun}, got {count}; mode {self.name} needs them")

    @classmethod
    def can_vote(cls, fixed: Mapping[str, Any]) -> bool:
        """Return True if sampling several replies tells more than one reply; `fixed` are fields set by the card."""
        return cls.reasons_first

    @classmethod
    def uses_self_answers(cls, options: Mapping[str, Any]) -> bool:
        """Return True if the mode, with these options, shows the judge its own answers to the question."""
        return False


MAX_OPTIONS: dict[str, float] = {
    "temperature": MAX_TEMPERATURE,
    "solve_temperature": MAX_TEMPERATURE,
    "seed": MAX_SEED,
    "permutations": 10_000,
    "solves": 10_000,
}
"""Maximum of numeric options; for all others it is `MAX_TOKENS`. The minimum is 0, for `seed` minus the maximum."""


def check_finite(mode: object, names: Iterable[str]) -> None:
    """Check the numeric options among `names` against the range that any mode can use.

    Raises:
        ConfigError: a number is NaN, infinite, negative or too large.
    """
    for name in names:
        value, maximum = getattr(mode, name), MAX_OPTIONS.get(name, MAX_TOKENS)
        minimum = -maximum if name == "seed" else 0
        if isinstance(value, int | float) and not minimum <= value <= maximum:
            raise out_of_range(name, value, minimum, maximum)


def check_above_zero(options: object, *names: str) -> None:
    """Check that options are above 0 or None.

    Raises:
        ConfigError: an option is 0 or below.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{name} is {value}; it must be above 0")


def check_threshold(options: object, *names: str) -> None:
    """Check thresholds on the distance of a probability from 0.5.

    Raises:
        ConfigError: a threshold is below 0 or above 0.5.
    """
    for name in names:
        if not 0 <= (value := getattr(options, name)) <= 0.5:
            raise ConfigError(f"{name} is {value}; it is a distance from a probability of 0.5, so 0 to 0.5")


class SamplingOptions(Protocol):
    """Sampling options of a mode."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""

    @property
    def seed(self) -> int:
        """Seed of the run; each sample's seed also depends on its id."""


def sampling_for(
    options: SamplingOptions, sample_id: str, max_tokens: int, *, stop: tuple[str, ...] = (), reserve: int | None = None
) -> Sampling:
    """Return greedy sampling at temperature 0, otherwise sampling with a seed made of the options' seed and the id.

    Args:
        options: of the mode.
        sample_id: of the sample, or of a part of it that is sampled with another seed.
        max_tokens: maximum length of the reply.
        stop: strings that end it.
        reserve: see `Sampling.reserve`.
    """
    if options.temperature == 0:
        return _greedy(max_tokens, stop, reserve)
    digest = hashlib.blake2b(f"{options.seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=4).digest()
    seed = int.from_bytes(digest, "big")
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve, temperature=options.temperature, seed=seed)


@lru_cache
def _greedy(max_tokens: int, stop: tuple[str, ...], reserve: int | None) -> Sampling:
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve)


def pair_orders(both_orders: bool) -> tuple[tuple[int, int], ...]:
    """Return the orders in which a pair is shown, as indices into the sample's answers."""
    return ((0, 1), (1, 0)) if both_orders else ((0, 1),)
