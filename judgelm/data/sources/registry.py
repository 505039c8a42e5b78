"""Look up sources by name or by a file's fields.

A file gets the first layout in `layouts.yaml` whose required fields (`needs`) are all in its first row. More specific
layouts must therefore come first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import ID_FIELDS
from judgelm.data.sources import (
    alpaca_eval,
    gsm8k,
    judgments,
    labelling_tools,
    layouts,
    mm_vet,
    mmlu_pro,
    mt_bench,
    pairs,
    preference_sets,
    preferences,
    prometheus,
    qa,
    trajectories,
)
from judgelm.data.sources.layouts import LABELS
from judgelm.data.sources.preferences import PAIR_LABELS
from judgelm.data.sources.source import Source, layout_facts, publications, with_stated_fields
from judgelm.data.sources.suggestions import unknown_fields
from judgelm.errors import ConfigError, InputError, not_found

_CHAPTERS = (
    *(labelling_tools, pairs, preference_sets, preferences, trajectories, layouts, alpaca_eval, mt_bench),
    *(gsm8k, mmlu_pro, qa, mm_vet, prometheus, judgments),
)
SOURCES: Mapping[str, Source] = {
    source.name: with_stated_fields(replace(source, runs=judgments.RUNS.get(source.name)))
    for chapter in _CHAPTERS
    for source in chapter.SOURCES
}
PUBLISHED: Mapping[str, Source] = {name: SOURCES[name] for name in judgments.RUNS}
_LAYOUTS = tuple(
    source
    for name in layout_facts()
    if (source := SOURCES.get(name)) is not None and source.needs and source.sample is not None
)

_PAIR_LABEL_FIELDS = (
    {"question_id", "model_a", "model_b", "label"},
    {"question_id", "model_1", "model_2", "g1_winner", "g2_winner"},
)
_LABEL_MARKS = frozenset({"winner", "score", "scores", "score_1", "score_a", "score_w_reference", "text_w_reference"})
_MARKS_AMONG_LABELS = frozenset({"text", "annotator1", "preference", "label"})
"""Fields that indicate a label only if a label file is expected."""


def benchmarks() -> dict[str, Source]:
    """Return the importable benchmarks by name."""
    return {name: SOURCES[name] for name in publications().benchmarks}


def get_benchmark(name: str) -> Source:
    """Return a benchmark by name."""
    known = benchmarks()
    if name not in known:
        raise not_found("benchmark", name, known)
    return known[name]


def get_published(name: str) -> Source:
    """Return a format of published judgments by name."""
    if name not in PUBLISHED:
        raise not_found("format", name, PUBLISHED)
    return PUBLISHED[name]


def recognise(row: Row, *, label_rows: bool = False, one_answer: bool = False, others: Collection[str] = ()) -> Source:
    """Return the source that matches a file's first usable row, with `fields` limited to the fields in that row.

    `one_answer` and `others`, the names of fields that are neither question nor answer, only improve suggestions.

    Raises:
        InputError: no source matches; the message suggests the nearest layout and column names.
    """
    names = row.data.keys()
    for candidate in _LAYOUTS:
        if names >= set(candidate.needs):
            return candidate.narrowed(row)
    if "question" in names and ("answers" in names or "answer" in names):
        return SOURCES["plain"].narrowed(row)
    if any(needs <= names for needs in _PAIR_LABEL_FIELDS):
        return PAIR_LABELS.narrowed(row)
    if not label_rows and any(map(labelling_tools.ANSWER_FIELD.fullmatch, names)):
        # the answers are in unrecognised fields
        raise unknown_fields(row, _LAYOUTS, label_rows=False, one_answer=one_answer, others=others)
    marks = _LABEL_MARKS | _MARKS_AMONG_LABELS if label_rows else _LABEL_MARKS
    if not marks.isdisjoint(names) and any(name in names for name in ID_FIELDS):
        return LABELS.narrowed(row)
    raise unknown_fields(row, _LAYOUTS, label_rows=label_rows, one_answer=one_answer, others=others)


def recognise_published(files: Sequence[str]) -> Source:
    """Detect the format of published judgment files."""
    if alpaca_eval.are_tables(files):
        return PUBLISHED["alpaca-eval"]
    sources = {path: _recognise_published(path) for path in files}
    if len({source.name for source in sources.values()}) > 1:
        listed = ", ".join(f"{path} is {source.name}" for path, source in sources.items())
        raise ConfigError(f"files have different formats ({listed}); import them separately")
    return next(iter(sources.values()))


def _recognise_published(path: str) -> Source:
    row = first_row(path)
    if row is None:
        raise InputError(f"{path}: contains no readable rows; pass a file of published judgments")
    matches = [
        (len(runs.needs), source)
        for source in PUBLISHED.values()
        if (runs := source.runs) is not None and row.data.keys() >= set(runs.needs) and runs.recognised(row)
    ]
    if not matches:
        fields = ", ".join(row.data) or "none"
        way_out = f"set its format with --format: {', '.join(PUBLISHED)}"
        raise InputError(f"{path}: unknown fields ({fields}); {way_out}")
    return max(matches, key=lambda match: match[0])[1]
