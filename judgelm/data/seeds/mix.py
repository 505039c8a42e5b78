"""How many seeds each source gives: shares made whole numbers, and what is short given to the others."""

import math
from collections.abc import Collection, Mapping

from judgelm.errors import ConfigError, InputError


def check_mix(sources: Collection[str], mix: Mapping[str, float], size: int) -> None:
    """Whether sources, mix and size fit together.

    Raises:
        ConfigError: they do not.
    """
    if size < 1:
        raise ConfigError(f"size {size}: expected at least 1 seed")
    if not sources or set(sources) != set(mix):
        names = f"sources {', '.join(sources) or 'none'} and the shares of {', '.join(mix) or 'none'}"
        raise ConfigError(f"{names} do not fit; give each source one share")
    for name, share in mix.items():
        if not (math.isfinite(share) and share > 0):
            raise ConfigError(f"mix: the share of {name} is {share}; expected more than 0, or leave the source out")
    total = math.fsum(mix.values())
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"mix: the shares sum to {total:g}, expected 1; divide each by {total:g}")


def apportion(size: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers in proportion to the shares that sum to `size`, by largest remainders; ties go by name."""
    total = math.fsum(shares.values())
    exact = {name: size * share / total for name, share in shares.items()}
    whole = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    left = size - sum(whole.values())
    for name in sorted(exact, key=lambda name: (whole[name] - exact[name], name))[:left]:
        whole[name] += 1
    return whole


def redistributed(
    requested: Mapping[str, int], available: Mapping[str, int], shares: Mapping[str, float]
) -> dict[str, int]:
    """What each source gives where some have too few: those give all, the others the rest by their shares.

    Raises:
        InputError: all sources together have too few.
    """
    size = sum(requested.values())
    if sum(available.values()) < size:
        raise InputError(f"size {size}: all sources together have {sum(available.values())} seeds; ask for fewer")
    taken, short = dict(requested), dict[str, int]()
    while any(taken[name] > available[name] for name in taken):
        short |= {name: available[name] for name in taken if taken[name] > available[name]}
        others = {name: share for name, share in shares.items() if name not in short}
        taken = short | apportion(size - sum(short.values()), others) if others else dict(short)
    return taken


def shortage_message(
    requested: Mapping[str, int], available: Mapping[str, int], mix: Mapping[str, float], size: int
) -> str:
    """What is missing where, and the ways out."""
    missing = [
        f"{name}: {requested[name]} asked (share {mix[name]:g}), {available[name]} distinct questions available, "
        f"{requested[name] - available[name]} missing"
        for name in requested
        if requested[name] > available[name]
    ]
    most = min(math.floor(available[name] / mix[name] + 1e-9) for name in requested)
    return (
        f"too few seeds for size {size}. {'; '.join(missing)}. Give these sources more files or smaller shares, "
        f"take a size of about {most}, or let the others fill up (redistribute)"
    )
