"""The table of sources (layouts, preference sets, benchmarks, published judgments), their look-up and recognition.

A row names the code that reads a source; the fields of its layout are stated in `layouts.yaml`.

A file is recognised by the first row of the table whose fields (`needs`) its first row has, so sets with more fields
stand before the layouts that they resemble. Sources without `needs` are read only by their name.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import ID_FIELDS
from judgelm.data.sources import (
    alpaca_eval,
    correctness,
    dialogues,
    graded,
    judgments,
    labelling_tools,
    layouts,
    mt_bench,
    pairs,
    preference_sets,
    preferences,
    qa,
    reviews,
    trajectories,
)
from judgelm.data.sources.source import (
    FROM_ONE,
    FROM_ZERO,
    ZERO_IS_TIE,
    FieldCode,
    PublishedRuns,
    Shape,
    Source,
    layout_facts,
    publications,
)
from judgelm.errors import ConfigError, InputError, UnknownFieldsError, not_found
from judgelm.records import Label, Sample

WINNER_CODE = (FieldCode(fields=("winner", "votes")),)
"""The code of layouts that do not state it."""

PAIR_CODE = (
    *WINNER_CODE,
    FieldCode(fields=("label",), if_alone=True),
    FieldCode(fields=("annotator*",), values=ZERO_IS_TIE),
)
"""The code of layouts whose rows may have any of the documented label fields."""

LLMBAR_CODE = (FieldCode(fields=("label",), values=FROM_ONE),)
_SAFE_RLHF_CODE = (FieldCode(fields=("better_response_id",), values=FROM_ZERO),)
_MEAN_OF_ORDERS = {"name": "pair", "order_rule": "mean"}


def _with_fields(source: Source, name: str = "") -> Source:
    """The source with the fields that `layouts.yaml` states for it; those that only code knows are the row's."""
    stated: dict[str, Any] = {"needs": source.needs, "fields": source.fields, "details": source.details}
    stated |= layout_facts().get(name or source.name, {})
    return replace(source, **stated | {"needs": tuple(stated["needs"])})


_TASKS: dict[str, Any] = {
    "label": layouts.plain_label,
    "code": (FieldCode(fields=("annotator*",)),),
    "task_votes": True,
}
"""Tasks of labelling tools, whose people's numbers have no stated code."""

_READERS: dict[str, tuple[Callable[[Row], Sample], Callable[[Row, bool], Label | None]]] = {
    "plain": (layouts.plain_sample, layouts.plain_label),
    "llmbar": (layouts.llmbar_sample, layouts.llmbar_label),
    "preference": (preferences.preference_sample, preferences.preference_label),
    "responses": (preferences.responses_sample, preferences.battle_label),
}
"""Readers of the layouts whose fields published sets are rewritten to."""


def _rewritten(name: str, fields: preference_sets.Rewrite, layout: str, code: tuple[FieldCode, ...] = ()) -> Source:
    """A published set whose rows are rewritten to the fields of a layout."""
    sample, label = _READERS[layout]
    sample, label = preference_sets.sample_by(fields, sample), preference_sets.label_by(fields, label)
    return Source(name=name, sample=sample, label=label, code=code)


_ROWS: tuple[Source, ...] = (
    *(
        Source(name=name, sample=sample, votes=votes, **_TASKS)
        for name, (sample, votes) in labelling_tools.TOOLS.items()
    ),
    Source(
        name="judgebench",
        needs=pairs.JUDGEBENCH.needs,
        sample=pairs.judgebench_sample,
        label=pairs.judgebench_label,
        runs=PublishedRuns(needs=judgments.JUDGEBENCH_NEEDS, read_row=judgments.read_judgebench_row),
    ),
    Source(
        name="auto-j",
        needs=pairs.AUTO_J.needs,
        sample=pairs.auto_j_sample,
        label=pairs.auto_j_label,
        runs=PublishedRuns(
            needs=("output",), read_files=judgments.read_auto_j, recognised=lambda row: row.data.keys() == {"output"}
        ),
        entry=pairs.auto_j_entry,
    ),
    _rewritten("helpsteer3", preference_sets.helpsteer3_fields, "responses"),
    _rewritten("ppe-human", preference_sets.ppe_human_fields, "responses", WINNER_CODE),
    _rewritten("safe-rlhf", preference_sets.safe_rlhf_fields, "plain", _SAFE_RLHF_CODE),
    _rewritten("ultrafeedback", preference_sets.ultrafeedback_fields, "plain"),
    _rewritten("preference_collection", preference_sets.preference_collection_fields, "plain"),
    _rewritten("feedback_collection", preference_sets.feedback_collection_fields, "plain"),
    _rewritten("nectar", preference_sets.nectar_fields, "preference"),
    _rewritten("offsetbias", preference_sets.offsetbias_fields, "llmbar", LLMBAR_CODE),
    Source(
        name="dialogue",
        sample=dialogues.dialogue_sample,
        label=preferences.battle_label,
        code=PAIR_CODE,
    ),
    Source(
        name="trajectory",
        sample=trajectories.trajectory_sample,
        label=trajectories.trajectory_label,
        code=PAIR_CODE,
        soft="probability",
    ),
    Source(name="inspect-ai", sample=trajectories.inspect_sample, label=trajectories.inspect_label),
    Source(name="tau-bench", sample=trajectories.tau_bench_sample, label=trajectories.tau_bench_label),
    Source(
        name="judgelm",
        sample=layouts.judgelm_sample,
        label=layouts.judgelm_label,
        code=PAIR_CODE,
        soft="probability",
        load=layouts.load_judgelm,
    ),
    Source(
        name="pandalm",
        sample=layouts.pandalm_sample,
        label=layouts.pandalm_label,
        code=(FieldCode(fields=("annotator*",), values=ZERO_IS_TIE),),
        runs=PublishedRuns(
            needs=("idx",),
            read_files=judgments.read_pandalm,
            recognised=lambda row: any(name.endswith("_result") for name in row.data),
        ),
        shape=pairs.PANDALM,
        entry=pairs.pandalm_entry,
    ),
    Source(
        name="pandalm_train",
        sample=layouts.pandalm_train_sample,
        label=layouts.pandalm_train_label,
    ),
    Source(
        name="alpaca-eval",
        sample=layouts.alpaca_eval_sample,
        label=layouts.alpaca_eval_label,
        soft="alpaca_eval",
        single_votes=True,
        load=alpaca_eval.load_alpaca_eval,
        runs=PublishedRuns(
            needs=judgments.ANNOTATION_NEEDS, read_files=judgments.read_alpaca_eval, mode={"name": "pair"}
        ),
    ),
    Source(
        name="alpaca_eval_outputs",
        sample=layouts.no_sample,
        note="AlpacaEval outputs hold one answer per instruction; give two such files, and they are joined. Where "
        "output is a list of answers, name the columns: --column question=instruction --column answers=output",
    ),
    Source(
        name="llmbar",
        sample=layouts.llmbar_sample,
        label=layouts.llmbar_label,
        code=LLMBAR_CODE,
        shape=pairs.LLMBAR,
        entry=pairs.llmbar_entry,
        runs=PublishedRuns(needs=judgments.LLMBAR_NEEDS, read_files=judgments.read_llmbar),
    ),
    Source(
        name="plain",
        sample=layouts.plain_sample,
        label=layouts.plain_label,
        code=PAIR_CODE,
        soft="probability",
    ),
    Source(
        name="preference",
        sample=preferences.preference_sample,
        label=preferences.preference_label,
    ),
    Source(
        name="arena",
        sample=preferences.arena_sample,
        label=preferences.battle_label,
        code=PAIR_CODE,
    ),
    Source(
        name="responses",
        sample=preferences.responses_sample,
        label=preferences.battle_label,
        code=PAIR_CODE,
    ),
    Source(name="mt-bench", load=mt_bench.load_mt_bench),
    Source(name="faireval", load=pairs.load_faireval),
    Source(
        name="rewardbench",
        shape=Shape(name="RewardBench", needs=preference_sets.REWARDBENCH_NEEDS),
        entry=preference_sets.rewardbench_entry,
    ),
    Source(
        name="rewardbench-2",
        details={"subsets": list(preference_sets.SECOND_SUBSETS)},
        shape=Shape(name="RewardBench 2", needs=preference_sets.REWARDBENCH_NEEDS),
        entry=preference_sets.rewardbench_2_entry,
    ),
    Source(
        name="rm-bench",
        details={"sections": {domain: list(subsets) for domain, subsets in preference_sets.RM_BENCH_SECTIONS.items()}},
        shape=preference_sets.RM_BENCH,
        entry=preference_sets.rm_bench_entries,
    ),
    Source(name="preferences"),
    Source(name="evouna", shape=qa.EVOUNA, entry=qa.evouna_entries),
    Source(name="gsm8k", load=correctness.load_gsm8k),
    Source(name="gsm8k-pairs", shape=correctness.GSM8K_SOLUTIONS, entry=correctness.gsm8k_pairs),
    Source(name="gsm-symbolic", load=correctness.load_gsm_symbolic),
    Source(
        name="mmlu-pro",
        load=correctness.load_mmlu_pro,
        runs=PublishedRuns(
            needs=judgments.MMLU_PRO_NEEDS,
            read_files=judgments.read_mmlu_pro,
            mode={"name": "correctness", "task": "choice"},
            recognised=lambda row: not row.data.keys().isdisjoint({"pred", "outputs"}),
        ),
    ),
    *(Source(name=name, load=partial(qa.load_qa, name)) for name in qa.QA_NAMES),
    Source(name="mm-vet", load=graded.load_mm_vet),
    Source(name="prometheus", shape=graded.PROMETHEUS, entry=graded.prometheus_entry),
    Source(name="fastchat-pair", runs=PublishedRuns(needs=judgments.PAIR_NEEDS, read_row=judgments.read_fastchat_pair)),
    Source(
        name="fastchat-single",
        runs=PublishedRuns(
            needs=judgments.SINGLE_NEEDS,
            read_row=judgments.read_fastchat_grade,
            mode={"name": "single", "scale": (1, 10)},
        ),
    ),
    Source(
        name="reviews",
        runs=PublishedRuns(
            needs=(*reviews.NEEDS, "text"), read_files=judgments.read_review_files, mode=_MEAN_OF_ORDERS
        ),
    ),
    Source(
        name="cherry",
        runs=PublishedRuns(needs=judgments.CHERRY_NEEDS, read_row=judgments.read_cherry, mode=_MEAN_OF_ORDERS),
    ),
)

TABLE: tuple[Source, ...] = tuple(map(_with_fields, _ROWS))

LABELS = _with_fields(
    Source(
        name="labels",
        sample=layouts.label_alone,
        label=layouts.any_label,
        code=(FieldCode(fields=("winner", "votes", "label")), FieldCode(fields=("annotator*",), values=ZERO_IS_TIE)),
        note="rows hold labels but no answers to judge; give the file with the answers, and this one as labels "
        "(a table of reviews is joined with its answers by `python data_tools/convert.py reviews`)",
    )
)
"""Rows of an id and a label, which name samples of another file."""

_PAIR_LABELLED: dict[str, Any] = {"sample": preferences.pair_label_alone, "label": preferences.pair_label}
PAIR_LABELS = _with_fields(replace(LABELS, **_PAIR_LABELLED, code=(FieldCode(fields=("label",)),)), "pair-labels")
"""Labels of pairs named by a question and two models; the answers are in another file."""


SOURCES: Mapping[str, Source] = {source.name: source for source in TABLE}
PUBLISHED: Mapping[str, Source] = {name: source for name, source in SOURCES.items() if source.runs is not None}
_LAYOUTS = tuple(source for source in TABLE if source.needs and source.sample is not None)

_PAIR_LABEL_FIELDS = (
    {"question_id", "model_a", "model_b", "label"},
    {"question_id", "model_1", "model_2", "g1_winner", "g2_winner"},
)
_LABEL_MARKS = frozenset({"winner", "score", "scores", "score_1", "score_a", "score_w_reference", "text_w_reference"})
_MARKS_AMONG_LABELS = frozenset({"text", "annotator1", "preference", "label"})
"""Fields that count as labels only where a file of labels is expected."""


def benchmarks() -> dict[str, Source]:
    """The sources whose metric a protocol defines, by name."""
    return {name: SOURCES[name] for name in publications().benchmarks}


def get_benchmark(name: str) -> Source:
    """The source of that name, which has a protocol.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    known = benchmarks()
    if name not in known:
        raise not_found("benchmark", name, known)
    return known[name]


def get_published(name: str) -> Source:
    """The source of that name, of which judges' outputs are published.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    if name not in PUBLISHED:
        raise not_found("format", name, PUBLISHED)
    return PUBLISHED[name]


def recognise(row: Row, *, label_rows: bool = False) -> Source:
    """The source of a file, from the field names of its first good row; its `fields` narrowed to those of the row.

    Args:
        row: the file's first good row.
        label_rows: whether a file of labels is expected.

    Raises:
        InputError: no source matches; names the fields, those that each layout needs, and likely misspellings.
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
        raise _unknown_fields(row, label_rows=False)  # answers under other names, and not labels alone
    marks = _LABEL_MARKS | _MARKS_AMONG_LABELS if label_rows else _LABEL_MARKS
    if not marks.isdisjoint(names) and any(name in names for name in ID_FIELDS):
        return LABELS.narrowed(row)
    raise _unknown_fields(row, label_rows=label_rows)


def _unknown_fields(row: Row, *, label_rows: bool) -> UnknownFieldsError:
    fields = list(row.data)
    nearest = max(_LAYOUTS, key=lambda known: _likeness(known, fields))
    missing = [need for need in nearest.needs if need not in row.data]
    guesses = [f'"{near}" looks like "{need}"' for need in missing if (near := _near(need, fields))]
    hint = f"; {', '.join(guesses)}" if guesses else ""
    near = (
        f" Nearest is {nearest.name}, without {', '.join(missing)}."
        if len(missing) < len(nearest.needs) or hint
        else ""
    )
    columns = guess_columns(fields, labels=label_rows)
    such_as = " ".join(f"--column {shlex.quote(f'{name}={column}')}" for name, column in columns.items())
    return UnknownFieldsError(
        f"{row.file}:{row.line}: fields not recognised: {', '.join(fields) or 'none'}{hint}.{near} Name the columns "
        f"with --column (in a build's configuration columns), such as {such_as or '--column question=prompt'}, or "
        "call them question, answer_1, answer_2 (in a table by its first line); labels need an id with a winner or "
        "score. "
        f"{len(_LAYOUTS)} other formats are known: docs/formats.md",
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
    *(
        "ours",
        "theirs",
        "baseline",
        "reference_model",
        "assistant",
        "chosen",
        "rejected",
        "left",
        "right",
        "old",
        "new",
    ),
)


def guess_columns(fields: Sequence[str], *, labels: bool = False) -> dict[str, str]:
    """A guess at the plain layout's fields in a header, to suggest and never to apply: name -> the file's column.

    Args:
        fields: of the file.
        labels: whether a file of labels is expected.
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
    if len(answers) < 2 and not labels and guess["question"] is not None:
        answers = [column for column in left if _folded(column) not in _NOT_ANSWERS]
    names = ("answer",) if len(answers) == 1 else ("answer_1", "answer_2")
    guess |= dict(zip(names, answers[:2], strict=False))
    return {name: column for name, column in guess.items() if column is not None and column != name}


_NOT_ANSWERS = frozenset({"reference", "category", "source", "metadata", "reason", "images", "image", "turn", "system"})
"""Fields of the plain layout that are no answers."""


def _likeness(known: Source, fields: list[str]) -> float:
    """Similarity of the fields to those that a layout needs, from 0 to 1."""
    matches = [(need, near) for need in known.needs if (near := _near(need, fields))]
    alike = (difflib.SequenceMatcher(None, need, _folded(near)).ratio() for need, near in matches)
    return sum(alike) / len(known.needs)


def _near(need: str, fields: list[str]) -> str | None:
    """The field that is spelt most like what is needed: `Answer 1` like `answer_1`."""
    folded = {_folded(field): field for field in fields}
    close = difflib.get_close_matches(need, folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else None


def _folded(field: str) -> str:
    return "_".join(field.lower().split())


def recognise_published(files: Sequence[str]) -> Source:
    """The source of files of published judgments.

    Raises:
        InputError: a file cannot be read, or its fields fit no source.
        ConfigError: the files are of different sources.
    """
    if alpaca_eval.are_tables(files):
        return PUBLISHED["alpaca-eval"]
    sources = {path: _recognise_published(path) for path in files}
    if len({source.name for source in sources.values()}) > 1:
        listed = ", ".join(f"{path} is {source.name}" for path, source in sources.items())
        raise ConfigError(f"files of different formats: {listed}; import them one by one")
    return next(iter(sources.values()))


def _recognise_published(path: str) -> Source:
    row = first_row(path)
    if row is None:
        raise InputError(f"{path}: no row can be read; give a file of published judgments")
    matches = [
        (len(runs.needs), source)
        for source in PUBLISHED.values()
        if (runs := source.runs) is not None and row.data.keys() >= set(runs.needs) and runs.recognised(row)
    ]
    if not matches:
        fields = ", ".join(row.data) or "none"
        way_out = f"name its format with --format: {', '.join(PUBLISHED)}"
        raise InputError(f"{path}: not recognised by its fields ({fields}); {way_out}")
    return max(matches, key=lambda match: match[0])[1]
