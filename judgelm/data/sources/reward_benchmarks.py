"""Chosen and rejected answers as benchmarks of reward models: RewardBench 1 and 2, RMB, RM-Bench, preference sets."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from judgelm.data.readers.fields import (
    ID_FIELDS,
    content_id,
    describe,
    extra_fields,
    required_id,
    row_id,
    text_field,
    texts_field,
)
from judgelm.data.readers.rows import OnReject, Row, field_error, reject_row, row_error
from judgelm.data.sources.preferences import preference_label, preference_sample
from judgelm.data.sources.source import Entry, Shape, convert_file, plain_row
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
REWARDBENCH_NEEDS = ("id", "prompt", "chosen", "rejected", "subset")


def rewardbench_entry(row: Row, row_number: int) -> Entry:
    """A row of RewardBench, with the section of its subset in the metadata."""
    if isinstance(row.data["chosen"], list) and not any(isinstance(message, dict) for message in row.data["chosen"]):
        raise row_error(row, "several chosen answers; this is RewardBench 2, import it as rewardbench-2")
    subset = text_field(row, "subset", "subset")
    if subset not in _SECTION_OF:
        raise row_error(row, f'field "subset": "{subset}" is none of RewardBench\'s 23; import it as preferences')
    sample = preference_sample(row)
    metadata = {**sample.metadata, "section": _SECTION_OF[subset]}
    return Entry(plain_row(replace(sample, category=subset, metadata=metadata), preference_label(row, False)))


def rewardbench_2_entry(row: Row, row_number: int) -> Entry:
    """All answers in an order that depends on their texts alone; the right ones have the score 1, the others 0."""
    for name in ("chosen", "rejected"):
        if not isinstance(row.data[name], list):
            finding = "expected a list of texts; with one text each this is rewardbench"
            raise row_error(row, f'field "{name}": {finding}')
    question, subset = (text_field(row, name, ", ".join(REWARDBENCH_NEEDS)) for name in ("prompt", "subset"))
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
        metadata=extra_fields(row, {*REWARDBENCH_NEEDS, *ID_FIELDS, "models"}),
    )
    scores = tuple(1.0 if index < len(chosen) else 0.0 for index in order)
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=scores)))


def _place(question: str, answer: str) -> str:
    return hashlib.blake2b(f"{len(question)} {question}{answer}".encode(), digest_size=16).hexdigest()


RMB_SECTIONS = tuple(f"{goal} {task}" for goal in ("Helpfulness", "Harmlessness") for task in ("BoN", "Pairwise"))
_USE = "pairs are named by it"
_TASKS = {"Pairwise_set": "Pairwise", "BoN_set": "BoN"}
_RMB_PAIRS = Shape(name="RMB's pairs", needs=("pair_uid", "conversation_input", "chosen", "reject", "category_path"))
_RMB_BEST = Shape(
    name="RMB's best of n", needs=("bon_uid", "conversation_input", "bon_best", "loser_list", "category_path")
)


def load_rmb(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """RMB's pairs, and a pair of the best answer with each loser."""
    for path in files:
        best = "BoN_set" in Path(path).resolve().parts
        for entries in convert_file(path, _RMB_BEST if best else _RMB_PAIRS, _rmb_entries, on_reject):
            yield from entries


def _rmb_entries(row: Row, row_number: int) -> list[Entry]:
    """The row's pair, or a pair of the best answer with each loser."""
    folders = text_field(row, "category_path", "category_path").split("/")
    if len(folders) < 3 or folders[0] not in _TASKS or f"{folders[1]} {_TASKS[folders[0]]}" not in RMB_SECTIONS:
        raise field_error(row, "category_path", f"expected SET/GOAL/SCENARIO, such as BoN_set/Helpfulness/..., got "
                          f"{'/'.join(folders)}; give the published file")  # fmt: skip
    task = _TASKS[folders[0]]
    names = ("pair_uid", "chosen") if task == "Pairwise" else ("bon_uid", "bon_best")
    stem = f"{task}-{folders[1]}-{required_id(row, names[0], _USE)}".lower()
    section, scenario = f"{folders[1]} {task}", "/".join(folders[2:])
    if task == "Pairwise":
        return [_rmb_pair(row, row.data["chosen"], row.data["reject"], stem, section, scenario)]
    losers = row.data["loser_list"]
    if not isinstance(losers, list) or not losers:
        raise field_error(row, "loser_list", f"expected a list of answers, got {describe(losers)}; correct the row")
    return [
        _rmb_pair(row, row.data["bon_best"], loser, f"{stem}-{index}", section, scenario)
        for index, loser in enumerate(losers, 1)
    ]


def _rmb_pair(row: Row, better: object, worse: object, name: str, section: str, scenario: str) -> Entry:
    answers = [side.get("answer") if isinstance(side, Mapping) else None for side in (better, worse)]
    models = [side.get("llm_name") if isinstance(side, Mapping) else None for side in (better, worse)]
    if not all(isinstance(answer, str) for answer in answers):
        raise row_error(row, "an answer has no text; each needs llm_name and answer, leave the row out")
    fields = {"prompt": row.data["conversation_input"], "chosen": answers[0], "rejected": answers[1]}
    if all(isinstance(model, str) for model in models):
        fields |= {"chosen_model": models[0], "rejected_model": models[1]}
    return _pair(Row(row.file, row.line, fields), name, section, {"scenario": scenario})


def _pair(row: Row, name: str, category: str, metadata: Mapping[str, object]) -> Entry:
    """A row with prompt, chosen and rejected, placed by a hash of the texts."""
    sample = replace(preference_sample(row), id=name, category=category, metadata=metadata)
    return Entry(plain_row(sample, preference_label(row, False)))


def best_of_n_key(row_id: str) -> str:
    """A key that all pairs of one best of n share; of other RMB pairs their own id."""
    return row_id.rpartition("-")[0] if row_id.startswith("bon-") else row_id


_DOMAINS = {"chat": "Chat", "math": "Math", "code": "Code", "safety": "Safety"}
DIFFICULTIES = ("easy", "normal", "hard")
RM_BENCH_SECTIONS = {
    domain: {f"{domain}, {difficulty}": 1.0 for difficulty in DIFFICULTIES} for domain in _DOMAINS.values()
}
_STYLES = ("concise", "detailed", "markdown")
_RM_BENCH = Shape(name="RM-Bench", needs=("id", "prompt", "chosen", "rejected"))


def load_rm_bench(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """RM-Bench's nine pairs of each row."""
    for path in files:
        make = partial(_style_entries, on_reject, Path(path).name.partition("_")[0])
        for entries in convert_file(path, _RM_BENCH, make, on_reject):
            yield from entries


def _style_entries(on_reject: OnReject, file_domain: str, row: Row, row_number: int) -> list[Entry]:
    """Nine pairs: each style of the chosen answer with each of the rejected; equal texts are rejects."""
    part = str(row.data.get("domain") or file_domain)
    domain = _DOMAINS.get(part.partition("-")[0])
    if domain is None:
        known = ", ".join(_DOMAINS)
        raise row_error(row, f'domain "{part}" (field "domain", else the file\'s name) begins with none of {known}')
    chosen, rejected = texts_field(row, "chosen"), texts_field(row, "rejected")
    if len(chosen) != len(_STYLES) or len(rejected) != len(_STYLES):
        raise row_error(row, f"expected 3 chosen and 3 rejected answers, got {len(chosen)} and {len(rejected)}")
    entries = []
    for better, worse in product(range(3), repeat=2):
        fields = {"prompt": row.data["prompt"], "chosen": chosen[better], "rejected": rejected[worse]}
        difficulty = DIFFICULTIES[1 + (worse > better) - (worse < better)]
        name = f"{part}-{required_id(row, 'id', _USE)}-{_STYLES[better]}-{_STYLES[worse]}"
        metadata = {"chosen_style": _STYLES[better], "rejected_style": _STYLES[worse]}
        try:
            entries.append(_pair(Row(row.file, row.line, fields), name, f"{domain}, {difficulty}", metadata))
        except InputError as error:
            on_reject(reject_row(row, error))
    return entries
