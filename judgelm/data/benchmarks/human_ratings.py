"""JUDGE-BENCH: collections of texts that people rated; here its graded and continuous properties of a single text.

Not JudgeBench, whose pairs have one right answer (`judgelm.data.benchmarks.pairs`).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from judgelm.data.benchmarks.base import Benchmark, Entry, plain_row
from judgelm.data.readers.fields import row_error
from judgelm.data.readers.rejects import OnReject, reject_row
from judgelm.data.readers.rows import Row
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


def _load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
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


JUDGE_BENCH = Benchmark(
    name="judge-bench-nlp",
    files="data sets of JUDGE-BENCH with ratings: newsroom.json, summeval.json, roscoe-gsm8k-overall.json, ...",
    protocol="Spearman's correlation between the judge's grade of a text and people's mean rating, for each property; "
    "of a data set the mean over its properties; failures and categorical properties are left out; "
    "the property's own prompt is the question, and the grade is on the judge's scale.",
    judge_with="--mode single --mode-arg against=nothing",
    source="JUDGE-BENCH (Bavaresco et al. 2025), dmg-illc/JUDGE-BENCH, data/, eval_responses.py and "
    "results/utils/generate_tables.py; each data set has a licence of its own",
    load=_load,
    unverified="the files of SummEval and of WMT (beyond 4 MB) were not read: their schema is that of data/README.md",
)
