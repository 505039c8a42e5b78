"""Texts that people or GPT-4 graded: JUDGE-BENCH's rated properties, and Prometheus' grading prompts.

JUDGE-BENCH is not JudgeBench, whose pairs have one right answer (`judgelm.data.sources.pairs`).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from judgelm.data.readers.fields import optional_text, text_field
from judgelm.data.readers.rows import OnReject, Row, field_error, reject_row, row_error
from judgelm.data.sources.source import Entry, Shape, convert_file, model_from_filename, plain_row
from judgelm.errors import InputError
from judgelm.records import Label, Sample

DATA_SET_FIELD, PROPERTY_FIELD = "data_set", "property"
_INSTANCE = "{{ instance }}"
_RATED = ("graded", "continuous")
_NAMES = {
    "meta_evaluation_recipes": "recipe-crowd-sourcing-data",
    "dailydialog-acceptability": "dailydialog",
    "switchboard-acceptability": "switchboard",
    **{f"roscoe-{part}-overall": f"roscoe-{part}" for part in ("cosmos", "drop", "esnli", "gsm8k")},
}
"""Names of data sets in the authors' tables, where their files have others."""


def load_judge_bench(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """The graded and continuous properties of JUDGE-BENCH's data sets."""
    for path in files:
        content = _content(path)
        stem = Path(path).stem
        data_set = _NAMES.get(stem, stem.replace("_", "-"))
        used = False
        for annotation in content["annotations"]:
            for line, instance in enumerate(content["instances"], 1):
                row = Row(path, line, instance if isinstance(instance, dict) else {"instance": instance})
                try:
                    entry = _entry(row, annotation, data_set)
                except InputError as error:
                    on_reject(reject_row(row, error))
                    continue
                used = True
                yield entry
        if not used:
            raise InputError(
                f"{path}: no graded or continuous property of a text; give another data set of JUDGE-BENCH"
            )


def _content(path: str) -> Mapping[str, Any]:
    try:
        content = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); give a published file of JUDGE-BENCH") from error
    parts = [content.get(name) if isinstance(content, dict) else None for name in ("annotations", "instances")]
    lists = [part for part in parts if isinstance(part, list) and part]
    if len(lists) < len(parts) or not all(isinstance(annotation, dict) for annotation in lists[0]):
        first = content[0] if isinstance(content, list) and content else content
        fields = (
            f"has the fields {', '.join(map(str, first))}" if isinstance(first, dict) and first else "has no fields"
        )
        raise InputError(
            f"{path}: no file of JUDGE-BENCH: it needs annotations and instances, and {fields}; give the published file"
        )
    return dict(content)


def _entry(row: Row, annotation: Mapping[str, Any], data_set: str) -> Entry:
    name, kind = str(annotation.get("metric")), annotation.get("category")
    if kind not in _RATED:
        raise row_error(row, f"property {name} is {kind or 'of no category'}, and no rating; it is left out")
    prompt, text = annotation.get("prompt"), row.data.get("instance")
    if not isinstance(prompt, str) or prompt.count(_INSTANCE) != 1 or not isinstance(text, str):
        raise row_error(row, f"property {name}: its prompt does not show one text as {_INSTANCE}; it is left out")
    sample = Sample(
        id=f"{data_set}-{row.data.get('id', row.line)}-{name}",
        question=prompt.replace(_INSTANCE, "").strip(),
        answers=(text,),
        category=f"{data_set}: {name}",
        metadata={DATA_SET_FIELD: data_set, PROPERTY_FIELD: name},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=(_rating(row, annotation, name),))))


def _rating(row: Row, annotation: Mapping[str, Any], name: str) -> float:
    """People's mean, negated where the best value is the smaller one."""
    annotations = row.data.get("annotations")
    entry = annotations.get(name) if isinstance(annotations, dict) else None
    rating = entry.get("mean_human") if isinstance(entry, dict) else None
    if isinstance(rating, bool) or not isinstance(rating, int | float) or not math.isfinite(rating):
        raise row_error(row, f"property {name}: no mean_human; leave the row out")
    try:
        rising = float(annotation["best"]) > float(annotation["worst"])
    except (KeyError, TypeError, ValueError) as error:
        raise row_error(row, f"property {name}: worst and best are no numbers; correct the file") from error
    return float(rating) if rising else -float(rating)


SCORES_FIELD = "gpt4_score"

_ROWS = Shape(name="Prometheus' absolute grading", needs=("instruction", SCORES_FIELD))
_HEADINGS = {
    "question": "###The instruction to evaluate:\n",
    "answer": "###Response to evaluate:\n",
    "reference": "###Reference Answer (Score 5):\n",
    "rubric": "###Score Rubrics:\n",
}
_END = "###Feedback:"


def load_prometheus(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Prometheus' grading prompts."""
    for path in files:
        yield from convert_file(path, _ROWS, partial(_prompt_entry, model_from_filename(path)), on_reject)


def _prompt_entry(stem: str, row: Row, row_number: int) -> Entry:
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
