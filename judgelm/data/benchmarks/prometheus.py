"""Prometheus' sets of absolute grading: a whole grading prompt in each row, and three scores of GPT-4."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, convert_file, model_from_filename, plain_row
from judgelm.data.readers.fields import field_error, optional_text, text_field
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row
from judgelm.records import Label, Sample

SCORES_FIELD = "gpt4_score"

_ROWS = Shape(name="Prometheus' absolute grading", needs=("instruction", SCORES_FIELD))
_HEADINGS = {
    "question": "###The instruction to evaluate:\n",
    "answer": "###Response to evaluate:\n",
    "reference": "###Reference Answer (Score 5):\n",
    "rubric": "###Score Rubrics:\n",
}
_END = "###Feedback:"


def _load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    for path in files:
        yield from convert_file(path, _ROWS, partial(_entry, model_from_filename(path)), on_reject)


def _entry(stem: str, row: Row, row_number: int) -> Entry:
    parts = _parts(row, text_field(row, "instruction", ", ".join(_ROWS.needs)))
    scores = row.data[SCORES_FIELD]
    if (
        not isinstance(scores, list)
        or not scores
        or not all(type(score) is int and 1 <= score <= 5 for score in scores)
    ):
        raise field_error(row, SCORES_FIELD, f"expected a list of scores from 1 to 5, got {scores!r}")
    source = optional_text(row, "response_source")
    sample = Sample(
        id=f"{stem}-{row_number}",
        question=parts["question"],
        answers=(parts["answer"],),
        reference=parts.get("reference"),
        answer_models=(source,) if source else (),
        category=optional_text(row, "category"),
        metadata={"rubric": parts["rubric"], SCORES_FIELD: scores},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=(fmean(scores),))))


def _parts(row: Row, prompt: str) -> dict[str, str]:
    """The texts below the prompt's headings, each once and in order; the reference may be missing."""
    headings = {name: heading for name, heading in _HEADINGS.items() if name != "reference" or heading in prompt}
    starts = [prompt.find(heading) for heading in headings.values()]
    ends = [*starts[1:], prompt.rfind(_END)]
    if any(prompt.count(heading) != 1 for heading in headings.values()) or starts + ends[-1:] != sorted(
        {*starts, *ends}
    ):
        raise field_error(row, "instruction", "expected one grading prompt with instruction, response and rubric")
    return {
        name: prompt[start + len(heading) : end].removesuffix("\n").removesuffix("\n")
        for (name, heading), start, end in zip(headings.items(), starts, ends, strict=True)
    }


PROMETHEUS = Benchmark(
    name="prometheus",
    files="vicuna_eval.json, mt_bench_eval.json or another set of grading prompts with gpt4_score",
    protocol="Each answer is graded from 1 to 5 by its own rubric; Pearson, Kendall (tau-b) and Spearman between the "
    "grades and the means of GPT-4's three scores, Cohen's kappa with their medians; failures are left out.",
    judge_with="--mode baseline --mode-arg judge=prometheus-absolute",
    source="Prometheus 2 (Kim et al. 2024), prometheus-eval/prometheus-eval, eval/benchmark/data/ and eval/utils.py",
    load=_load,
)
