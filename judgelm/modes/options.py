"""Options that modes share: their checks, and the sampling of replies."""

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol, get_args

from judgelm.errors import ConfigError, not_found, out_of_range
from judgelm.records import MAX_SEED, MAX_TEMPERATURE, MAX_TOKENS, Sampling

_LARGEST: dict[str, float] = {
    "temperature": MAX_TEMPERATURE,
    "solve_temperature": MAX_TEMPERATURE,
    "seed": MAX_SEED,
    "permutations": 10_000,
    "solves": 10_000,
}
"""Largest value of a numeric option; of all others `MAX_TOKENS`. Seeds may be negative."""


class SamplingOptions(Protocol):
    """Options of the sampling of replies."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""
        ...

    @property
    def seed(self) -> int:
        """With a sample's id it makes the sample's own seed."""
        ...


def sampling_for(
    options: SamplingOptions, sample_id: str, max_tokens: int, *, stop: tuple[str, ...] = (), reserve: int | None = None
) -> Sampling:
    """Greedy at temperature 0; otherwise with a seed made of the options' seed and the sample's id.

    Args:
        options: of the mode.
        sample_id: of the sample, or of a part of it that draws differently.
        max_tokens: room for the reply.
        stop: strings that end it.
        reserve: see `Sampling.reserve`.
    """
    if options.temperature == 0:
        return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve)
    digest = hashlib.blake2b(f"{options.seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=4).digest()
    seed = int.from_bytes(digest, "big")
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve, temperature=options.temperature, seed=seed)


def check_choices(options: object, **choices: Any) -> None:
    """Check options whose type is a `Literal`.

    Args:
        options: of the mode.
        choices: name of the option -> its `Literal`.

    Raises:
        ConfigError: a value that the type does not have; the message lists those it has.
    """
    for name, literal in choices.items():
        if (value := getattr(options, name)) not in get_args(literal):
            raise not_found(name, value, get_args(literal))


def check_finite(mode: object, names: Iterable[str]) -> None:
    """Check numeric options against the range that any mode can use.

    Args:
        mode: has the options.
        names: of options, numeric or not.

    Raises:
        ConfigError: a number is NaN, infinite, negative or too large.
    """
    for name in names:
        value, most = getattr(mode, name), _LARGEST.get(name, MAX_TOKENS)
        if isinstance(value, int | float) and not (-most if name == "seed" else 0) <= value <= most:
            raise out_of_range(name, value, -most if name == "seed" else 0, most)


def check_above_zero(options: object, *names: str) -> None:
    """Check options that must be above 0 where they are given.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{name} is {value}; it must be above 0")
