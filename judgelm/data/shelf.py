"""A mapping that stores its values in a temporary file."""

import pickle
import tempfile
from collections.abc import Iterator, MutableMapping
from typing import TypeVar

Value = TypeVar("Value")
_IN_MEMORY_BYTES = 32 << 20


class Shelf(MutableMapping[str, Value]):
    """Maps ids to values, in insertion order. Uses up to 32 MiB of memory. Reassign values after changing them."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - open as long as the shelf
        self._end = 0

    def __getitem__(self, key: str) -> Value:
        self._file.seek(self._places[key])
        value: Value = pickle.load(self._file)
        return value

    def __setitem__(self, key: str, value: Value) -> None:
        self._file.seek(self._end)
        self._file.write(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        self._places[key], self._end = self._end, self._file.tell()

    def __delitem__(self, key: str) -> None:
        del self._places[key]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
