"""Rows of files before their fields are interpreted: good rows and rejects."""

import re
from dataclasses import dataclass

_RAW_KEPT_WHOLE = 1_000_000
_RAW_SHOWN = 10_000
_PARTICULARS = re.compile(r'(id|opens|question than) "[^"]*"')
_BAD_BYTE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Row:
    """One good row. `line` counts from 1; in Parquet it is the row's number, in a JSON list where the row begins."""

    file: str
    line: int
    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class Reject:
    """One row that could not be used, with the reason. `raw` is its text, complete up to a million characters."""

    file: str
    line: int
    reason: str
    raw: str

    @property
    def message(self) -> str:
        """The reason with file and line before it, as errors show it."""
        return f"{self.file}:{self.line}: {self.reason}"

    @property
    def kind(self) -> str:
        """The reason without particulars, so that similar rejects are counted together."""
        return re.sub(r"\d+(\.\d+)?", "N", _PARTICULARS.sub(r"\1 ...", self.reason))


def truncate_raw(raw: str) -> str:
    """The text to keep of a rejected row: whole up to a million characters, else its start and full length."""
    return raw if len(raw) <= _RAW_KEPT_WHOLE else f"{raw[:_RAW_SHOWN]} [... {len(raw)} characters in all]"


def escape_bad_bytes(text: str) -> str:
    r"""Text decoded with `surrogateescape`, its undecodable bytes shown as `\xNN`."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def has_bad_bytes(text: str) -> bool:
    """True if text decoded with `surrogateescape` holds bytes that are not UTF-8."""
    return not text.isascii() and _BAD_BYTE.search(text) is not None
