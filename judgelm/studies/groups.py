"""Members of a study brought together by a value that they share."""

from collections.abc import Callable, Iterable
from typing import TypeVar

NOT_GIVEN = "not given"
"""The value of members of which nobody says it."""

T = TypeVar("T")


def by_value(members: Iterable[T], value_of: Callable[[T], str | None]) -> dict[str, list[T]]:
    """The members of each value in the order given, the largest group first and equal ones by value."""
    found: dict[str, list[T]] = {}
    for member in members:
        value = value_of(member)
        found.setdefault(NOT_GIVEN if value is None else value, []).append(member)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))
