"""Lines of the truth files that `judgelm study self-reference` and `ssr` read: what is true of each judged sample.

Both are JSON lines joined by `id`, with the same meaning of the fields they share: `question`, a key that samples of
one question share; `answer`, the right final answer; `judge_correct`, whether the judge's own answer is right.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from judgelm.errors import InputError


class _OfSample(Protocol):
    @property
    def id(self) -> str: ...


Truth = TypeVar("Truth", bound=_OfSample)


def check_texts(row: Mapping[str, Any], place: str, *, needed: tuple[str, ...], optional: tuple[str, ...]) -> None:
    """Look at the fields of a line that hold text; `place` is its file and line.

    Raises:
        InputError: one that is needed is not text, or one that is optional is neither text nor left out.
    """
    for name in needed:
        if not isinstance(row.get(name), str):
            listed = ", ".join(needed)
            raise InputError(f'{place}: field "{name}": expected text, got {row.get(name)!r}; each line needs {listed}')
    for name in optional:
        if not isinstance(row.get(name), str | None):
            raise InputError(f'{place}: field "{name}": expected text, got {row[name]!r}; leave it out if unknown')


def by_sample(truths: Iterable[Truth]) -> dict[str, Truth]:
    """Truths by sample id.

    Raises:
        InputError: two of one sample.
    """
    found: dict[str, Truth] = {}
    for one in truths:
        if one.id in found:
            raise InputError(f"truth: sample {one.id} stands there twice; keep one of them")
        found[one.id] = one
    return found
