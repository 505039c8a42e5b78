"""Ratings of others as rows in long format: wide files of the Play Favorites data, and judges' own run files.

A wide row holds a judge's score and the mean human score side by side: `judge,model,gt,dataset,prompt_id,rating,
pred_length`. The file's name is the dimension. Of each completion the human score becomes one long row of its own,
however many judges rated it.

Of a run file, the rows that were judged give the answer's model (`answer_models`), the prompt (a field `item`, else the
question's text) and the type of task (`category`). The rows and the ratings of people must name items and models alike.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from judgelm.data.readers.rows import Reject, Row
from judgelm.errors import InputError
from judgelm.records import GradeVerdict, Judgment, Sample

WIDE_FIELDS = frozenset({"judge", "model", "gt", "prompt_id", "rating"})

_NAMES = {
    "anthropic.claude-v2:1": "Claude v2",
    "anthropic.claude-3-sonnet-20240229-v1:0": "Claude 3 Sonnet",
    "anthropic.claude-3-5-sonnet-20241022-v2:0": "Claude 3.5 Sonnet",
    "gpt-3.5-turbo": "GPT-3.5 Turbo",
    "gpt-4o": "GPT-4o",
    "meta.llama3-1-8b-instruct-v1:0": "Llama 3 8B",
    "meta.llama3-1-70b-instruct-v1:0": "Llama 3 70B",
    "mistral.mistral-7b-instruct-v0:2": "Mistral 7B",
    "mistral.mistral-large-2407-v1:0": "Mistral Large",
}
"""The released identifiers and the paper's names for them; other identifiers stay as they are."""

_TASKS = {"cnn": "summarization", "xsum": "summarization"} | dict.fromkeys(
    ("chatbotarena", "helm-instruct", "mtbench", "stanford"), "open-ended QA"
)
"""The paper's two types of task (section 6.1); the task of another data set is its name."""


@dataclass(slots=True, kw_only=True)
class WideReader:
    """Turns the wide rows of one file into long ones.

    Attributes:
        dimension: of rows that do not name their own.
        extra: columns to hand on; `dataset` is the data set that the prompt is from.
    """

    dimension: str
    extra: tuple[str, ...] = ()
    _human: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def long_rows(self, row: Row) -> Iterator[Row | Reject]:
        """The judge's rating, and the human one where this is the first row of its completion."""
        values = row.data
        if missing := ", ".join(sorted(WIDE_FIELDS - values.keys())):
            yield Reject(row.file, row.line, f"lacks {missing}, which the rows before have", str(values)[:1000])
            return
        data_set = str(values.get("dataset") or "").strip()
        shared = {name: values.get(name) for name in self.extra} | {
            "item": values["prompt_id"],
            "dimension": str(values.get("dimension") or self.dimension),
            "model": display_name(values["model"]),
            "task": _TASKS.get(data_set, data_set),
            "length": values.get("pred_length"),
        }
        key = (str(shared["item"]), str(shared["dimension"]), str(shared["model"]))
        human = str(values["gt"])
        if key not in self._human:
            self._human[key] = human
            yield Row(row.file, row.line, shared | {"judge": "human", "score": values["gt"]})
        elif self._human[key] != human:
            reason = f'"gt" is {human}, but an earlier row of this completion has {self._human[key]}'
            yield Reject(row.file, row.line, reason, str(values)[:1000])
            return
        yield Row(row.file, row.line, shared | {"judge": display_name(values["judge"]), "score": values["rating"]})


def display_name(identifier: object) -> str:
    """The paper's name of a released model identifier; any other identifier unchanged."""
    text = "" if identifier is None else str(identifier).strip()
    return _NAMES.get(text, text)


_SHOWN_TEXT = 80


def count_words(text: str) -> int:
    """A text's words, between blanks."""
    return len(text.split())


def run_ratings(
    judge: str,
    judgments: Mapping[str, Judgment],
    samples: Mapping[str, Sample],
    *,
    item: str = "item",
    length: Callable[[str], int] = count_words,
) -> Iterator[Row]:
    """One row per answer and dimension: `item`, `dimension`, `judge`, `model`, `score`, `task`, `length`, and others.

    A dimension is a part of the rubric; a judgment without parts is one row without dimension, with its grade. What
    failed, or has a level without a score, is a row with a missing score. The sample's own fields stand beside, for
    whoever fits by one of them.

    Args:
        judge: who wrote the run, spelled as its own answers' model is.
        judgments: by sample id.
        samples: the rows judged, by id.
        item: field of the rows that names the prompt.
        length: counts an answer's length, in tokens as the paper does, or in words.

    Raises:
        InputError: a judgment is no grade of one answer, its row is not there, or says nothing of the answer's model.
    """
    for index, (key, judgment) in enumerate(judgments.items(), 1):
        location = f"run of {judge}: judgment {key}"
        if judgment.verdict is not None and not isinstance(judgment.verdict, GradeVerdict):
            raise InputError(f"{location}: not a grade; give runs of mode rubric or single")
        sample = samples.get(key)
        if sample is None:
            raise InputError(f"{location}: not among the rows; give those that were judged")
        if len(sample.answers) != 1 or len(sample.answer_models) != 1:
            counts = f"{len(sample.answers)} answers and {len(sample.answer_models)} models"
            raise InputError(
                f"{location}: its row has {counts}; each needs one answer, and answer_models that names one"
            )
        common = dict(sample.metadata) | {
            "item": sample.metadata.get(item) or sample.question,
            "judge": judge,
            "model": sample.answer_models[0],
            "task": sample.category,
            "length": length(sample.answers[0]),
        }
        for dimension, score in _scores(judgment):
            yield Row(location[:_SHOWN_TEXT], index, common | {"dimension": dimension, "score": score})


def _scores(judgment: Judgment) -> Iterator[tuple[str | None, float | None]]:
    """Dimension and score; the last reading of each part counts."""
    parts = {shown.part: shown for shown in judgment.shown if shown.part}
    if not parts:
        yield None, judgment.verdict.score if isinstance(judgment.verdict, GradeVerdict) else None
    for name, shown in parts.items():
        yield name, None if shown.scores is None or shown.failure is not None else shown.scores[0]
