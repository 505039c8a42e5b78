"""Convert strings to table cells."""

import re
from dataclasses import dataclass, field

_NUMBER = re.compile(r"[-+]?(\d+([.,]\d+)*|[.,]\d+)(e[-+]?\d+)?\s?%?", re.IGNORECASE)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")

NOT_IN_PARQUET = re.compile("[\ud800-\udfff]")
NOT_IN_CSV = re.compile("[\0\ud800-\udfff]")
NOT_IN_XLSX = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML 1.0 does not support (production `Char`)."""
MAX_XLSX_CELL = 32_767
"""Maximum number of UTF-16 code units in a cell. Source: Microsoft, "Excel specifications and limits"."""


def _is_formula(text: str) -> bool:
    return text.startswith(_FORMULA_STARTS) and len(text) > 1 and _NUMBER.fullmatch(text) is None


def _utf16_units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


@dataclass(slots=True, kw_only=True)
class CellTexts:
    """Sanitises table cells and counts the changes.

    Attributes:
        unwanted: unsupported characters, each of which is replaced by U+FFFD.
        max_units: maximum number of UTF-16 code units per cell.
        formulas: number of cells that a spreadsheet might evaluate, escaped or not.
    """

    unwanted: re.Pattern[str] = field(default=NOT_IN_CSV)
    max_units: int | None = None
    escape_formulas: bool = False
    replaced: int = 0
    cut: int = 0
    formulas: int = 0

    def storable(self, value: object) -> object:
        """Replace unsupported characters, including those in lists and objects."""
        if isinstance(value, str) and not self.unwanted.search(value):
            return value
        clean = self._clean(value)
        self.replaced += clean != value
        return clean

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self.unwanted.sub("\ufffd", value)
        if isinstance(value, list):
            return [self._clean(part) for part in value]
        if isinstance(value, dict):
            return {self._clean(name): self._clean(part) for name, part in value.items()}
        return value

    def fitted(self, value: object) -> object:
        """Apply `storable`, truncate the text, and escape formulas."""
        value = self.storable(value)
        if not isinstance(value, str):
            return value
        if self.max_units is not None and len(value) > self.max_units // 2 and _utf16_units(value) > self.max_units:
            self.cut += 1
            value = _cut(value, self.max_units)
        if _is_formula(value):
            self.formulas += 1
            return f"'{value}" if self.escape_formulas else value
        return value

    def notes(self) -> list[str]:
        """Return notes about replaced and truncated cells."""
        notes = []
        if self.replaced:
            notes.append(f"{_cells(self.replaced)} unsupported characters, which are replaced by U+FFFD")
        if self.cut:
            notes.append(f"{_cells(self.cut)} more than {self.max_units:,} UTF-16 code units and are truncated")
        return notes

    def formula_note(self, way_out: str) -> list[str]:
        """Return a note about formulas that are not escaped, or an empty list."""
        if not self.formulas or self.escape_formulas:
            return []
        begin = "begins" if self.formulas == 1 else "begin"
        cells = "1 cell" if self.formulas == 1 else f"{self.formulas:,} cells"
        return [
            f"{cells} {begin} with =, +, -, @, a tab, or a newline, so spreadsheets would evaluate it as a formula; "
            f"{way_out}"
        ]


def _cells(count: int) -> str:
    return "1 cell has" if count == 1 else f"{count:,} cells have"


def _cut(text: str, max_units: int) -> str:
    mark = f" [... {len(text):,} characters in all]"
    encoded = text.encode("utf-16-le")[: 2 * (max_units - len(mark))]
    return encoded.decode("utf-16-le", errors="ignore") + mark
