"""Pairs with labels of people or of the makers: PandaLM, LLMBar, JudgeBench, Auto-J, FairEval, WMT side by side.

WMT 2023 side by side: two translations of a text, whose errors three professional translators marked together. A
translator's verdict on a pair is the translation with the smaller sum of error weights (MQM), and a tie where both sums
are equal. The pairs of systems are not in the files: they are those whose marks of one translator and document have
time stamps in the same period.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import OnReject, Row, convert_rows, reject_row
from judgelm.data.sources.layouts import llmbar_label, llmbar_sample, pandalm_label, pandalm_sample
from judgelm.data.sources.source import Entry, Shape, choice_field, convert_file, layout_facts, plain_row
from judgelm.errors import InputError
from judgelm.records import Label, Sample, Winner

PANDALM = Shape(
    name="PandaLM's test set", needs=("instruction", "response1", "response2", "annotator1", "annotator2", "annotator3")
)


def pandalm_entry(row: Row, row_number: int) -> Entry:
    """Instruction and input stay apart in the metadata, since PandaLM's own prompt shows them apart."""
    sample = pandalm_sample(row)
    context = row.optional_text("input")
    if context:
        parts = {"instruction": row.text("instruction", "instruction"), "input": context}
        sample = replace(sample, metadata={**sample.metadata, **parts})
    return Entry(plain_row(sample, pandalm_label(row, False)))


LLMBAR = Shape(name="LLMBar", needs=("input", "output_1", "output_2", "label"))


def llmbar_entry(row: Row, row_number: int) -> Entry:
    """A row of one set, which the folder of its file names."""
    subset = Path(row.file).resolve().parent.name
    label = llmbar_label(row, False)
    if label is None or label.winner == "tie":
        raise row.error("LLMBar's labels are 1 or 2, and this row has neither; leave the row out")
    sample = replace(llmbar_sample(row), id=f"{subset}-{row_number}", category=subset)
    return Entry(plain_row(sample, label))


_JUDGEBENCH_LABELS: Mapping[object, Winner] = {"A>B": 1, "B>A": 2}
_JUDGEBENCH_CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
JUDGEBENCH = Shape(name="JudgeBench", needs=("pair_id", "source", "question", "response_A", "response_B", "label"))


def judgebench_sample(row: Row) -> Sample:
    """JudgeBench: `question`, `response_A`, `response_B`; the category follows from the name of the source."""
    names = ("pair_id", "source", "question", "response_A", "response_B")
    name, source, question, *answers = row.texts(*names, needs=JUDGEBENCH.needs)
    category = next((name for start, name in _JUDGEBENCH_CATEGORIES.items() if source.startswith(start)), None)
    if category is None:
        known = ", ".join(_JUDGEBENCH_CATEGORIES)
        raise row.error(f'field "source": "{source}" begins with none of {known}; correct the row')
    model = row.optional_text("response_model")
    return Sample(
        id=name,
        question=question,
        answers=tuple(answers),
        answer_models=() if model is None else (model, model),
        category=category,
        metadata={"source": source, "original_id": row.id(("original_id",))},
    )


def judgebench_label(row: Row, with_reference: bool) -> Label:
    """JudgeBench's `label`: the answer that is objectively right."""
    return Label(sample_id="", winner=choice_field(row, "label", _JUDGEBENCH_LABELS))


AUTO_J_GROUPS: Mapping[str, Sequence[str]] = layout_facts()["auto-j"]["details"]["groups"]
"""Auto-J's 58 scenarios by the 8 groups in which its makers report them."""

AUTO_J_LABELS: Mapping[object, Winner] = {0: 1, 1: 2, 2: "tie"}
AUTO_J = Shape(name="Auto-J's pairwise test set", needs=("scenario", "label", "prompt", "response 1", "response 2"))


def auto_j_sample(row: Row) -> Sample:
    """Auto-J's test set: `prompt`, `response 1`, `response 2`; named by the row's line."""
    names = ("prompt", "response 1", "response 2", "scenario")
    question, *answers, scenario = row.texts(*names, needs=AUTO_J.needs)
    return Sample(id=f"auto-j-{row.line}", question=question, answers=tuple(answers), category=scenario)


def auto_j_label(row: Row, with_reference: bool) -> Label:
    """Auto-J's `label`: 0 is the first response, 1 the second, 2 a tie."""
    return Label(sample_id="", winner=choice_field(row, "label", AUTO_J_LABELS))


def auto_j_entry(row: Row, row_number: int) -> Entry:
    """A row, named by its number."""
    return Entry(plain_row(replace(auto_j_sample(row), id=f"auto-j-{row_number}"), auto_j_label(row, False)))


_ALIASES = {"chatgpt": "gpt35turbo"}
_FAIREVAL = Shape(name="FairEval's questions or answers", needs=("question_id", "text"))
_FAIREVAL_ANSWERS = "question_id, text, model_id"


def load_faireval(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """FairEval's pairs with people's labels, which are joined with the questions line by line."""
    texts = [path for path in files if path.lower().endswith(".txt")]
    if len(texts) != 1:
        raise InputError(f"faireval: expected one .txt file of people's labels, got {len(texts)}; give it too")
    paths = [path for path in files if path != texts[0]]
    tables = [list(convert_file(path, _FAIREVAL, lambda row, _: row, on_reject)) for path in paths]
    questions = [rows for rows in tables if "model_id" not in rows[0].data]
    answers = [rows for rows in tables if "model_id" in rows[0].data]
    if len(questions) != 1 or len(answers) != 2:
        counts = f"{len(questions)} files of questions and {len(answers)} of answers"
        raise InputError(f"faireval: expected one file of questions, two of answers and the labels, got {counts}")
    models = tuple(rows[0].text("model_id", _FAIREVAL_ANSWERS) for rows in answers)
    labels = _faireval_labels(texts[0], models, len(questions[0]))
    sides = [{_question_id(row): row for row in rows} for rows in answers]
    for row, winner in zip(questions[0], labels, strict=True):
        try:
            name = _question_id(row)
            if any(name not in side for side in sides):
                raise row.error(f"no answer to question {name} in one of the two files; give the published files")
            sample = Sample(
                id=f"faireval-{name}",
                question=row.text("text", "question_id, text"),
                answers=tuple(side[name].text("text", _FAIREVAL_ANSWERS) for side in sides),
                answer_models=models,
                category=row.optional_text("category"),
            )
            yield Entry(plain_row(sample, Label(sample_id="", winner=winner)))
        except InputError as error:
            on_reject(reject_row(row, error))


def _faireval_labels(path: str, models: tuple[str, ...], expected: int) -> list[Winner]:
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}; give FairEval's review_..._human.txt") from error
    if len(lines) != expected:
        raise InputError(f"{path}: {len(lines)} labels for {expected} questions; they are joined line by line")
    return [_faireval_winner(f"{path}:{line_number}", line, models) for line_number, line in enumerate(lines, 1)]


def _faireval_winner(location: str, name: str, models: tuple[str, ...]) -> Winner:
    plain = _letters(name)
    if plain == "tie":
        return "tie"
    winners: tuple[Winner, ...] = (1, 2)
    prefix = _ALIASES.get(plain, plain)
    matches = [winner for winner, model in zip(winners, models, strict=True) if _letters(model).startswith(prefix)]
    if len(matches) != 1:
        known = " and ".join(models)
        raise InputError(f'{location}: "{name}" names neither TIE nor one of {known}; give their answers')
    return matches[0]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _question_id(row: Row) -> str:
    return row.required_id("question_id", "questions and answers are joined by it")


LANGUAGES = {"ende": "English to German", "zhen": "Chinese to English"}
SYSTEM_PAIRS: Mapping[str, Sequence[Sequence[str]]] = layout_facts()["wmt-side-by-side"]["details"]["pairs"]
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
        finding = f"no table of side-by-side MQM: it lacks {', '.join(missing)} and has the fields {fields}"
        raise InputError(f"{path}: {finding}; give the published file")


def _rows(path: str) -> Iterator[Row]:
    """The lines of a table whose cells are not quoted, and whose header has a remark as its last column."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        header = file.readline().rstrip("\n").split("\t")
        for line_number, line in enumerate(file, 2):
            yield Row(path, line_number, dict(zip(header, line.rstrip("\n").split("\t"), strict=False)))


def _mark(row: Row) -> _Mark:
    system, doc, segment, rater, source, target, category, severity = row.texts(*_NEEDS)
    source, target = (text.replace("<v>", "").replace("</v>", "") for text in (source, target))
    weight = None if severity == _CHECK else _weight(row, category)
    return _Mark((doc, segment), system, rater, source, target, weight)


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


def _entries(languages: str, marks: Sequence[_Mark]) -> Iterator[Entry]:
    sums: dict[tuple[tuple[str, str], str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    first: dict[tuple[tuple[str, str], str], _Mark] = {}
    for mark in marks:
        sums[mark.segment, mark.system][mark.rater] += mark.weight or 0.0
        first.setdefault((mark.segment, mark.system), mark)
    for segment in dict.fromkeys(mark.segment for mark in marks):
        for systems in SYSTEM_PAIRS[languages]:
            sides = [first[segment, system] for system in systems if (segment, system) in first]
            votes = _votes(*(sums[segment, system] for system in systems))
            if len(sides) == 2 and votes:
                yield _entry(languages, segment, sides, votes)


def _votes(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[Winner, ...]:
    """The verdict of each translator who marked both."""
    votes: list[Winner] = []
    for rater in sorted(first.keys() & second.keys()):
        equal = math.isclose(first[rater], second[rater], abs_tol=1e-9)
        votes.append("tie" if equal else 1 if first[rater] < second[rater] else 2)
    return tuple(votes)


def _entry(languages: str, segment: tuple[str, str], sides: Sequence[_Mark], votes: tuple[Winner, ...]) -> Entry:
    counts = Counter(votes).most_common()
    winner: Winner = "tie" if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]
    systems = tuple(side.system for side in sides)
    sample = Sample(
        id="-".join(("sxs", languages, *segment, *systems)),
        question=f"Translate this text from {LANGUAGES[languages]}:\n\n{sides[0].source}",
        answers=tuple(side.target for side in sides),
        answer_models=systems,
        category=LANGUAGES[languages],
        metadata={"document": segment[0]},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=winner, votes=votes)))
