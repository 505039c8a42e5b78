"""WMT 2023 side by side: two translations of a text, whose errors three professional translators marked together.

A translator's verdict on a pair is the translation with the smaller sum of error weights (MQM), and a tie where both
sums are equal. The pairs of systems are not in the files: they are those whose marks of one translator and document lie
in the same time, as their time stamps show.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from judgelm.data.readers.fields import text_field
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import OnReject, Row, convert_rows
from judgelm.data.sources.source import Entry, choice_field, plain_row
from judgelm.errors import InputError
from judgelm.records import Label, Sample, Winner

LANGUAGES = {"ende": "English to German", "zhen": "Chinese to English"}
SYSTEM_PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "ende": (
        ("GPT4-5shot_with_ONLINE-W", "ONLINE-W"),
        ("GPT4-5shot_with_refA", "refA"),
        ("Lan-BridgeMT", "NLLB_MBR_BLEU"),
        ("ONLINE-A", "ONLINE-Y"),
        ("ONLINE-G", "ONLINE-M"),
    ),
    "zhen": (
        ("GPT4-5shot", "Lan-BridgeMT"),
        ("HW-TSC", "ONLINE-A"),
        ("IOL_Research", "ONLINE-B"),
        ("NLLB_Greedy", "ONLINE-W"),
        ("NLLB_MBR_BLEU", "ONLINE-M"),
    ),
}
_SEVERITIES: Mapping[object, float] = {"Major": 5.0, "Minor": 1.0, "Neutral": 0.0, "No-error": 0.0}
_UNWEIGHTED = ("Source", "Accuracy/Creative Reinterpretation")
_CHECK = "HOTW-test"
"""Severity of an attention check, whose translation was spoilt on purpose."""

_NEEDS = ("system", "doc", "docSegId", "rater", "source", "target", "category", "severity")


class _Mark(NamedTuple):
    """A marked error, or the mark that there is none; `weight` is None for an attention check."""

    segment: tuple[str, str]
    system: str
    rater: str
    source: str
    target: str
    weight: float | None


def load_side_by_side(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """The pairs of systems with translators' verdicts."""
    for path in files:
        _check_shape(path)
        languages = next((pair for pair in LANGUAGES if pair in Path(path).name), None)
        if languages is None:
            raise InputError(f"{path}: the name has neither ende nor zhen in it; keep the published name")
        marks = convert_rows(_rows(path), _mark, path=path, expected=", ".join(_NEEDS), on_reject=on_reject)
        yield from _entries(languages, [mark for mark in marks if mark.weight is not None])


def _check_shape(path: str) -> None:
    """Refuse a file whose first line does not name the columns."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            header = file.readline().rstrip("\n").split("\t")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a table ({error}); unpack the published archive") from error
    if missing := [name for name in _NEEDS if name not in header]:
        other = None if len(header) > 1 else first_row(path)
        fields = ", ".join(header if other is None else other.data)
        raise InputError(
            f"{path}: no table of side-by-side MQM: it lacks {', '.join(missing)} and has the fields {fields}; give "
            "the published file"
        )


def _rows(path: str) -> Iterator[Row]:
    """The lines of a table whose cells are not quoted, and whose header has a remark as its last column."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        header = file.readline().rstrip("\n").split("\t")
        for line_number, line in enumerate(file, 2):
            yield Row(path, line_number, dict(zip(header, line.rstrip("\n").split("\t"), strict=False)))


def _mark(row: Row) -> _Mark:
    names = ("doc", "docSegId", "system", "rater", "source", "target", "category", "severity")
    doc, segment, system, rater, source, target, category, severity = (
        text_field(row, name, ", ".join(_NEEDS)) for name in names
    )
    weight = None if severity == _CHECK else _weight(row, category)
    return _Mark((doc, segment), system, rater, _unmarked(source), _unmarked(target), weight)


def _weight(row: Row, category: str) -> float:
    """The weight of an error; errors of the source and creative reinterpretations have none.

    So weighted, the means over raters are the segment scores that the files hold in their metadata: all 3,615 of
    Chinese to English, and all 766 of English to German outside of GPT-4, whose two annotations share one score there.
    """
    weight = choice_field(row, "severity", _SEVERITIES)
    if category.startswith(_UNWEIGHTED):
        return 0.0
    if category.startswith("Non-translation"):
        return 25.0
    return 0.1 if (category, weight) == ("Fluency/Punctuation", 1.0) else weight


def _unmarked(text: str) -> str:
    return text.replace("<v>", "").replace("</v>", "")


def _entries(languages: str, marks: Sequence[_Mark]) -> Iterator[Entry]:
    sums: dict[tuple[tuple[str, str], str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    first: dict[tuple[tuple[str, str], str], _Mark] = {}
    for mark in marks:
        sums[mark.segment, mark.system][mark.rater] += mark.weight or 0.0
        first.setdefault((mark.segment, mark.system), mark)
    for segment in dict.fromkeys(mark.segment for mark in marks):
        for systems in SYSTEM_PAIRS[languages]:
            sides = [first.get((segment, system)) for system in systems]
            if sides[0] is None or sides[1] is None:
                continue
            votes = _votes(*(sums[segment, system] for system in systems))
            if votes:
                yield _entry(languages, segment, (sides[0], sides[1]), votes)


def _votes(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[Winner, ...]:
    """The verdict of each translator who marked both."""
    votes: list[Winner] = []
    for rater in sorted(first.keys() & second.keys()):
        equal = math.isclose(first[rater], second[rater], abs_tol=1e-9)
        votes.append("tie" if equal else 1 if first[rater] < second[rater] else 2)
    return tuple(votes)


def _entry(languages: str, segment: tuple[str, str], sides: tuple[_Mark, _Mark], votes: tuple[Winner, ...]) -> Entry:
    counts = Counter(votes).most_common()
    majority: Winner = "tie" if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]
    sample = Sample(
        id="-".join(("sxs", languages, *segment, sides[0].system, sides[1].system)),
        question=f"Translate this text from {LANGUAGES[languages]}:\n\n{sides[0].source}",
        answers=(sides[0].target, sides[1].target),
        answer_models=(sides[0].system, sides[1].system),
        category=LANGUAGES[languages],
        metadata={"document": segment[0]},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=majority, votes=votes)))
