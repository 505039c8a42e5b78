"""Truth files of `judgelm study self-reference` and `ssr`: the truth about each judged sample.

Both are JSON lines joined by `id`, with the same meaning of the fields they share: `question`, a key that samples of
one question share; `answer`, the right final answer; `judge_correct`, whether the judge's own answer is right.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from judgelm.errors import InputError
from judgelm.jsonl import read_jsonl


class _OfSample(Protocol):
    @property
    def id(self) -> str: ...


Truth = TypeVar("Truth", bound=_OfSample)


def check_texts(row: Mapping[str, Any], location: str, *, needed: tuple[str, ...], optional: tuple[str, ...]) -> None:
    """Check the fields of a line that hold text; `location` is its file and line.

    Raises:
        InputError: one that is needed is not text, or one that is optional is neither text nor left out.
    """
    for name in needed:
        if not isinstance(row.get(name), str):
            listed = ", ".join(needed)
            raise InputError(
                f'{location}: field "{name}": expected text, got {row.get(name)!r}; each line needs {listed}'
            )
    for name in optional:
        if not isinstance(row.get(name), str | None):
            raise InputError(f'{location}: field "{name}": expected text, got {row[name]!r}; leave it out if unknown')


def read_truths(path: Path, from_row: Callable[[Mapping[str, Any], str], Truth]) -> dict[str, Truth]:
    """Read a truth file: truths by sample id.

    Args:
        path: the file.
        from_row: makes a truth from a line's object and its location.

    Raises:
        InputError: a line is not usable, or two are of one sample.
    """
    return by_sample(from_row(row, f"{path}:{line}") for line, row in read_jsonl(path))


def by_sample(truths: Iterable[Truth]) -> dict[str, Truth]:
    """Truths by sample id.

    Raises:
        InputError: two of one sample.
    """
    unique: dict[str, Truth] = {}
    for truth in truths:
        if truth.id in unique:
            raise InputError(f"truth: sample {truth.id} appears twice; keep one of them")
        unique[truth.id] = truth
    return unique
