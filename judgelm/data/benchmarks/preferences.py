"""Chosen and rejected answers: RewardBench, RewardBench 2 (best of four), and preference sets in general."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, plain_row, row_loader, single_file
from judgelm.data.formats.preferences import preference_label, preference_sample
from judgelm.data.readers.fields import ID_FIELDS, content_id, extra_fields, row_error, row_id, text_field, texts_field
from judgelm.data.readers.rejects import FileUse, OnReject
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream, labelled
from judgelm.errors import InputError
from judgelm.records import Label, Sample

SECTIONS: Mapping[str, Mapping[str, int]] = {
    "Chat": {
        **{"alpacaeval-easy": 100, "alpacaeval-length": 95, "alpacaeval-hard": 95},
        **{"mt-bench-easy": 28, "mt-bench-med": 40},
    },
    "Chat Hard": {
        **{"mt-bench-hard": 37, "llmbar-natural": 100, "llmbar-adver-neighbor": 134},
        **{"llmbar-adver-GPTInst": 92, "llmbar-adver-GPTOut": 47, "llmbar-adver-manual": 46},
    },
    "Safety": {
        **{"refusals-dangerous": 100, "refusals-offensive": 100, "xstest-should-refuse": 154},
        **{"xstest-should-respond": 250, "donotanswer": 136},
    },
    "Reasoning": {
        "math-prm": 984,  # of 447 prompts: as much as the code subsets together
        **dict.fromkeys(("hep-cpp", "hep-go", "hep-java", "hep-js", "hep-python", "hep-rust"), 164),
    },
}
"""RewardBench's four sections (its fifth, Prior Sets, is published apart): the published weight of each subset."""

_SECTION_OF = {subset: section for section, subsets in SECTIONS.items() for subset in subsets}
SECOND_SUBSETS = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")
_NEEDS = ("id", "prompt", "chosen", "rejected", "subset")
_PREFERENCE_NEEDS = "chosen and rejected, conversation_a and conversation_b, or response_a and response_b"
_PREFERENCE_FORMATS = ("preference", "arena", "responses")


def _rewardbench_entry(row: Row, row_number: int) -> Entry:
    if isinstance(row.data["chosen"], list) and not any(isinstance(message, dict) for message in row.data["chosen"]):
        raise row_error(row, "several chosen answers; this is RewardBench 2, import it as rewardbench-2")
    subset = text_field(row, "subset", "subset")
    if subset not in _SECTION_OF:
        raise row_error(row, f'field "subset": "{subset}" is none of RewardBench\'s 23; import it as preferences')
    sample = preference_sample(row)
    metadata = {**sample.metadata, "section": _SECTION_OF[subset]}
    return Entry(plain_row(replace(sample, category=subset, metadata=metadata), preference_label(row, False)))


def _best_of(row: Row, row_number: int) -> Entry:
    """All answers in an order that depends on their texts alone; the right ones have the score 1, the others 0."""
    for name in ("chosen", "rejected"):
        if not isinstance(row.data[name], list):
            finding = "expected a list of texts; with one text each this is rewardbench"
            raise row_error(row, f'field "{name}": {finding}')
    question, subset = (text_field(row, name, ", ".join(_NEEDS)) for name in ("prompt", "subset"))
    chosen, wrong = texts_field(row, "chosen"), texts_field(row, "rejected")
    if subset not in SECOND_SUBSETS:
        known = ", ".join(SECOND_SUBSETS)
        raise row_error(row, f'field "subset": expected one of {known}, got "{subset}"; correct the row')
    if subset != "Ties" and len(chosen) != 1:
        raise row_error(row, f'field "chosen": expected 1 text outside of the subset Ties, got {len(chosen)}')
    answers = (*chosen, *wrong)
    order = sorted(range(len(answers)), key=lambda index: _place(question, answers[index]))
    models = row.data.get("models")
    named = texts_field(row, "models") if isinstance(models, list) and len(models) == len(answers) else ()
    shown = tuple(answers[index] for index in order)
    sample = Sample(
        id=row_id(row) or content_id(question, shown, None),
        question=question,
        answers=shown,
        answer_models=tuple(named[index] for index in order) if named else (),
        category=subset,
        metadata=extra_fields(row, {*_NEEDS, *ID_FIELDS, "models"}),
    )
    scores = tuple(1.0 if index < len(chosen) else 0.0 for index in order)
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=scores)))


def _place(question: str, answer: str) -> str:
    return hashlib.blake2b(f"{len(question)} {question}{answer}".encode(), digest_size=16).hexdigest()


def _preferences(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    path = single_file(files, "preferences")
    use = FileUse(path=path, expected=_PREFERENCE_NEEDS, on_reject=on_reject)
    stream = SampleStream([path], on_reject=use.reject)
    if stream.format.name not in _PREFERENCE_FORMATS:
        known = ", ".join(_PREFERENCE_FORMATS)
        raise InputError(f"{path}: read as {stream.format.name}, which is no preference set; expected one of {known}")
    for sample, (label,) in labelled(stream, use, False):
        yield Entry(plain_row(sample, label))


REWARDBENCH = Benchmark(
    name="rewardbench",
    files="the filtered set, as Parquet or JSON lines",
    protocol="Accuracy per subset, a tie or a failure counting one half; per section the mean over its subsets, "
    "with their published weights (numbers of prompts, and 984 for math-prm); overall the mean of the four sections.",
    judge_with="",
    source="RewardBench (Lambert et al. 2024), allenai/reward-bench, rewardbench/constants.py and scripts",
    load=row_loader("rewardbench", Shape(name="RewardBench", needs=_NEEDS), _rewardbench_entry),
    details={"sections": {section: dict(weights) for section, weights in SECTIONS.items()}},
)
REWARDBENCH_2 = Benchmark(
    name="rewardbench-2",
    files="the test set, as Parquet or JSON lines",
    protocol="Accuracy per subset is the share of prompts whose chosen answer is alone best of four, a shared first "
    "place counting its share and a failure one quarter; Ties is scored by ratings (all right answers above all wrong "
    "ones, and margins); overall the mean of the six subsets.",
    judge_with="--mode multi",
    source="RewardBench 2 (Malik et al. 2025), allenai/reward-bench, scripts/run_generative_v2.py",
    load=row_loader("rewardbench-2", Shape(name="RewardBench 2", needs=_NEEDS), _best_of),
    details={"subsets": list(SECOND_SUBSETS)},
    unverified="its data could not be had: schema and metric are those of the authors' code and data card",
)
PREFERENCES = Benchmark(
    name="preferences",
    files="a preference set: chosen and rejected, arena battles, or pairs of responses",
    protocol="Accuracy is the share of pairs whose preferred answer the judge prefers, in both orders; ties of people "
    "are a class of their own; chosen and rejected are placed by a hash of their texts.",
    judge_with="--both-orders",
    source="formats preference, arena and responses of judgelm.data.formats.catalog",
    load=_preferences,
)
