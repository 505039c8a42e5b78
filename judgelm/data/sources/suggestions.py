"""Suggest the nearest layout and `--column` options for files with unknown fields."""

import difflib
import re
import shlex
from collections.abc import Collection, Sequence

from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import ID_FIELDS
from judgelm.data.sources.source import Source
from judgelm.errors import UnknownFieldsError


def unknown_fields(
    row: Row, layouts: Sequence[Source], *, label_rows: bool, one_answer: bool = False, others: Collection[str] = ()
) -> UnknownFieldsError:
    """Return the error for fields that do not match any known layout."""
    fields = list(row.data)
    answers = "question and answer" if one_answer else "question, answer_1, and answer_2"
    nearest = max(layouts, key=lambda known: _likeness(known, fields))
    missing = [need for need in nearest.needs if need not in row.data]
    guesses = [f'"{near}" looks like "{need}"' for need in missing if (near := _near(need, fields))]
    hint = f"; {', '.join(guesses)}" if guesses else ""
    similar = not one_answer and (len(missing) < len(nearest.needs) or hint)
    near = f" The nearest layout is {nearest.name}, but it also needs: {', '.join(missing)}." if similar else ""
    columns = guess_columns([field for field in fields if field not in others], labels=label_rows, one=one_answer)
    such_as = " ".join(f"--column {shlex.quote(f'{name}={column}')}" for name, column in columns.items())
    return UnknownFieldsError(
        f"{row.file}:{row.line}: fields not recognised: {', '.join(fields) or 'none'}{hint}.{near} Assign the "
        f"columns with --column (columns in a build configuration), such as {such_as or '--column question=prompt'}, "
        f"or rename them to {answers} in the file; label rows must have an id and a winner or "
        f"score. {len(layouts)} other formats are supported: see docs/formats.md",
        columns,
    )


_QUESTION_WORDS = ("question", "prompt", "instruction", "query", "task", "input", "user", "request", "frage", "aufgabe")
_LABEL_WORDS = (
    *("winner", "label", "verdict", "preferred", "preference", "better", "choice", "vote", "judgment", "judgement"),
    *("gold", "human", "urteil", "besser"),
)
_ID_WORDS = ("id", "uid", "uuid", "idx", "index", "key", "nr", "no", "number", "nummer")
_ANSWER_WORDS = (
    *("answer", "response", "output", "completion", "reply", "model", "candidate", "system", "text", "antwort"),
    *("ours", "theirs", "baseline", "reference_model", "assistant", "chosen", "rejected", "left", "right", "old"),
    "new",
)


def guess_columns(fields: Sequence[str], *, labels: bool = False, one: bool = False) -> dict[str, str]:
    """Guess which columns of a header correspond to plain fields, as name -> column.

    Set `labels` for a label file, and `one` for rows with one answer.
    """
    left = list(fields)

    def take(words: Sequence[str]) -> str | None:
        for word in words:
            for column in left:
                if word in re.split(r"[^\w]|_|\d", column.casefold()):
                    left.remove(column)
                    return column
        return None

    guess: dict[str, str | None] = {"id": None if any(field in ID_FIELDS for field in fields) else take(_ID_WORDS)}
    winner = take(_LABEL_WORDS)
    guess["winner"] = winner if labels else None
    guess["question"] = take(_QUESTION_WORDS)
    answers = [column for column in left if any(word in column.casefold() for word in _ANSWER_WORDS)]
    if len(answers) < (1 if one else 2) and not labels and guess["question"] is not None:
        answers = [column for column in left if _folded(column) not in _NOT_ANSWERS]
    names = ("answer",) if one or len(answers) == 1 else ("answer_1", "answer_2")
    guess |= dict(zip(names, answers[:2], strict=False))
    return {name: column for name, column in guess.items() if column is not None and column != name}


_NOT_ANSWERS = frozenset({"reference", "category", "source", "metadata", "reason", "images", "image", "turn", "system"})
"""All fields of the plain layout except answers."""


def _likeness(known: Source, fields: list[str]) -> float:
    matches = [(need, near) for need in known.needs if (near := _near(need, fields))]
    alike = (difflib.SequenceMatcher(None, need, _folded(near)).ratio() for need, near in matches)
    return sum(alike) / len(known.needs)


def _near(need: str, fields: list[str]) -> str | None:
    folded = {_folded(field): field for field in fields}
    close = difflib.get_close_matches(need, folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else None


def _folded(field: str) -> str:
    return "_".join(field.lower().split())
