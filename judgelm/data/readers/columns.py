"""Names of columns: those that the user assigns, and those that differ from a field's name only in case or blanks."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from judgelm.data.readers.rows import Reject, Row, truncate_raw
from judgelm.data.readers.values import raw_text

_REMEMBERED = 1000


class ColumnNames:
    """Gives the fields of rows the names that readers look for.

    Args:
        assigned: field -> its name in the input; the input's own column of the field's name is then left out.
        known: fields that readers look for.
    """

    def __init__(self, assigned: Mapping[str, str], known: Collection[str]) -> None:
        self._assigned = dict(assigned)
        self._exact = frozenset(known)
        folded = Counter(map(_folded, known))
        self._known = {_folded(name): name for name in known if folded[_folded(name)] == 1}
        self._names: dict[tuple[str, ...], dict[str, str] | str] = {}

    def renamed(self, rows: Iterable[Row | Reject]) -> Iterator[Row | Reject]:
        """The rows under the fields' names; one that lacks an assigned column or has a field twice is a reject."""
        for row in rows:
            if isinstance(row, Reject):
                yield row
                continue
            names = self._names_of(tuple(row.data))
            if isinstance(names, str):
                yield Reject(row.file, row.line, names, truncate_raw(raw_text(row.data)))
            elif names:
                left_out = self._assigned.keys() - names.keys()
                data = {names.get(name, name): value for name, value in row.data.items() if name not in left_out}
                yield Row(row.file, row.line, data)
            else:
                yield row

    def _names_of(self, fields: tuple[str, ...]) -> dict[str, str] | str:
        """Name in the input -> field, where they differ; or why there are none."""
        if (names := self._names.get(fields)) is None:
            if len(self._names) > _REMEMBERED:
                self._names.clear()
            names = self._names[fields] = self._find(fields)
        return names

    def _find(self, fields: tuple[str, ...]) -> dict[str, str] | str:
        alike: dict[str, list[str]] = defaultdict(list)
        for name in fields:
            alike[_folded(name)].append(name)
        names: dict[str, str] = {}
        for field, wanted in self._assigned.items():
            found = [wanted] if wanted in fields else alike.get(_folded(wanted), [])
            if len(found) != 1:
                finding = f"several columns are called like it: {', '.join(found)}" if found else "there is none"
                return f'column "{wanted}", to be read as "{field}": {finding}; the columns are {", ".join(fields)}'
            if found[0] in names:
                return f'column "{wanted}" is to be read as both "{names[found[0]]}" and "{field}"; choose one'
            names[found[0]] = field
        for folded, found in alike.items():
            field = self._known.get(folded, "")
            found = [name for name in found if name not in names and (name == field or name not in self._exact)]
            if not field or field in found or field in self._assigned:
                continue
            if len(found) > 1:
                several = " and ".join(f'"{name}"' for name in found)
                return f'columns {several} could each be the field "{field}"; rename all but one'
            if found:
                names[found[0]] = field
        return {name: field for name, field in names.items() if name != field or name in self._assigned}


def _folded(name: str) -> str:
    return name.strip().casefold()
