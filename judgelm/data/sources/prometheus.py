"""Read Prometheus's absolute grading data: prompts with GPT-4's scores."""

from statistics import fmean

from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.rows import Row
from judgelm.data.sources.source import Entry, Shape, Source, model_from_filename
from judgelm.records import Label, Sample

SCORES_FIELD = "gpt4_score"

PROMETHEUS = Shape(name="Prometheus' absolute grading", needs=("instruction", SCORES_FIELD))
_HEADINGS = {
    "question": "###The instruction to evaluate:\n",
    "answer": "###Response to evaluate:\n",
    "reference": "###Reference Answer (Score 5):\n",
    "rubric": "###Score Rubrics:\n",
}
_END = "###Feedback:"


def prometheus_entry(row: Row, row_number: int) -> Entry:
    """Convert a grading prompt; the id consists of the file name and row number."""
    parts = _parts(row, row.text("instruction", ", ".join(PROMETHEUS.needs)))
    scores = row.data[SCORES_FIELD]
    known = isinstance(scores, list) and all(type(score) is int and 1 <= score <= 5 for score in scores)
    if not isinstance(scores, list) or not scores or not known:
        raise row.field_error(SCORES_FIELD, f"expected a list of scores from 1 to 5, got {scores!r}")
    source = row.optional_text("response_source")
    sample = Sample(
        id=f"{model_from_filename(row.file)}-{row_number}",
        question=parts["question"],
        answers=(parts["answer"],),
        reference=parts.get("reference"),
        answer_models=(source,) if source else (),
        category=row.optional_text("category"),
        metadata={"rubric": parts["rubric"], SCORES_FIELD: scores},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=(fmean(scores),))))


def _parts(row: Row, prompt: str) -> dict[str, str]:
    headings = {name: heading for name, heading in _HEADINGS.items() if name != "reference" or heading in prompt}
    starts = [prompt.find(heading) for heading in headings.values()]
    ends = [*starts[1:], prompt.rfind(_END)]
    once = all(prompt.count(heading) == 1 for heading in headings.values())
    if not once or starts + ends[-1:] != sorted({*starts, *ends}):
        raise row.field_error("instruction", "expected a single grading prompt with instruction, response, and rubric")
    return {
        name: prompt[start + len(heading) : end].removesuffix("\n").removesuffix("\n")
        for (name, heading), start, end in zip(headings.items(), starts, ends, strict=True)
    }


SOURCES = (Source(name="prometheus", shape=PROMETHEUS, entry=prometheus_entry),)
