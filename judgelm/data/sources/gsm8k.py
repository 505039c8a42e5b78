"""Read GSM8K and GSM-Symbolic: solutions, pairs of a correct and a wrong solution, and questions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import OnReject, Reject, Row
from judgelm.data.sources.source import Entry, Shape, Source, convert_file
from judgelm.errors import InputError
from judgelm.parsing.short_answers import canonical, final_answer
from judgelm.records import Label, Sample

_GSM8K = "GSM8K"


def first_fields(path: str) -> set[str]:
    """Return the field names in the first usable row."""
    first = first_row(path)
    return set() if first is None else set(first.data)


def load_gsm8k(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read GSM8K's model solutions or questions."""
    for path in files:
        needs = ("question", "ground_truth") if "ground_truth" in first_fields(path) else ("question", "answer")
        make = partial(_gsm8k_entries, gold_field=needs[1])
        for entries in convert_file(path, Shape(name=_GSM8K, needs=needs), make, on_reject):
            yield from entries


def _gsm8k_entries(row: Row, row_number: int, gold_field: str) -> list[Entry]:
    if {"instance", "original_id"} <= row.data.keys():
        raise row.error("this is a GSM-Symbolic row; import the file as gsm-symbolic")
    question = row.text("question", "question, answer")
    worked = row.text(gold_field, "question, answer")
    gold = canonical(worked, "number") if "####" in worked or gold_field == "ground_truth" else None
    if gold is None:
        raise row.field_error(gold_field, 'no final number after "####"; pass GSM8K\'s files')
    metadata = {"data_set": _GSM8K, "solution": worked}
    question_sample = Sample(id=f"gsm8k-{row_number}", question=question, answers=(), reference=gold, metadata=metadata)
    if gold_field == "answer":
        return [Entry(plain_row(question_sample))]
    solutions = _solutions(row, gold)
    return [judged_answer(question_sample, model, answer, truth=truth) for model, answer, truth in solutions]


def _solutions(row: Row, gold: str) -> list[tuple[str, str, bool]]:
    solved = {name: value for name, value in row.data.items() if isinstance(value, dict) and "solution" in value}
    if not solved:
        raise row.error('no model in this row has a "solution"; pass example_model_solutions.jsonl')
    solutions = []
    for model, value in solved.items():
        answer = row.with_data(value).text("solution", "solution, is_correct")
        stated = value.get("is_correct")
        truth = stated if isinstance(stated, bool) else final_answer(answer, "number") == gold
        solutions.append((model, answer, truth))
    return solutions


def gsm8k_pairs(row: Row, row_number: int) -> list[Entry | Reject]:
    """Return all pairs of a correct and a wrong solution, sorted by model so that the order does not leak the label."""
    gold = canonical(row.text("ground_truth", "question, ground_truth"), "number")
    if gold is None:
        raise row.field_error("ground_truth", "no final number; pass GSM8K's solutions")
    question = row.text("question", "question, ground_truth")
    entries: list[Entry | Reject] = []
    for first, second in combinations(sorted(_solutions(row, gold)), 2):
        if first[2] != second[2]:
            models, answers = (first[0], second[0]), (first[1], second[1])
            name = "/".join([f"gsm8k-{row_number}", *models])
            sample = Sample(id=name, question=question, answers=answers, answer_models=models)
            entries.append(Entry(plain_row(sample, Label(sample_id="", winner=1 if first[2] else 2))))
    return entries


def judged_answer(question: Sample, model: str, answer: str, *, truth: bool) -> Entry:
    """Return a model's answer to a question, along with its ground truth."""
    name, metadata = f"{question.id}/{model}", {**question.metadata, "source_id": question.id}
    sample = replace(question, id=name, answers=(answer,), answer_models=(model,), metadata=metadata)
    known = {
        "id": sample.id,
        "agent": model,
        "dataset": question.metadata["data_set"],
        "truth": truth,
        "question": question.id,
        "answer": question.reference,
    }
    return Entry(plain_row(sample), known)


_GSM_SYMBOLIC = "GSM-Symbolic"
_GSM_SYMBOLIC_NEEDS = ("id", "instance", "question", "answer", "original_id")
_GSM_VARIANT = re.compile(r"(?<![a-z0-9])p[12](?![a-z0-9])", re.IGNORECASE)
_MAIN_FILE = re.compile(r"symbolic|main", re.IGNORECASE)


def load_gsm_symbolic(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read GSM-Symbolic's questions."""
    for path in files:
        known = first_fields(path) >= set(_GSM_SYMBOLIC_NEEDS)  # otherwise, report the missing fields
        make = partial(_gsm_symbolic_entry, data_set=_gsm_symbolic_set(path) if known else _GSM_SYMBOLIC)
        yield from convert_file(path, Shape(name=_GSM_SYMBOLIC, needs=_GSM_SYMBOLIC_NEEDS), make, on_reject)


def _gsm_symbolic_set(path: str) -> str:
    name, folder = Path(path).name, Path(path).absolute().parent.name
    variants = {variant.upper() for text in (name, folder) for variant in _GSM_VARIANT.findall(text)}
    if len(variants) == 1:
        return f"{_GSM_SYMBOLIC}-{variants.pop()}"
    if not variants and (_MAIN_FILE.search(name) or folder.lower() == "main"):
        return _GSM_SYMBOLIC
    named = " and ".join(sorted(variants)) or "none"
    finding = f"the file and folder names must contain exactly one of symbolic, p1, and p2, got {named}"
    raise InputError(f"{path}: {finding}; use its published name: GSM_symbolic.jsonl, GSM_p1.jsonl, or GSM_p2.jsonl")


def _gsm_symbolic_entry(row: Row, row_number: int, data_set: str) -> Entry:
    template, instance = (_number(row, name) for name in ("id", "instance"))
    worked = row.text("answer", ", ".join(_GSM_SYMBOLIC_NEEDS))
    gold = canonical(worked, "number") if "####" in worked else None
    if gold is None:
        raise row.field_error("answer", 'no final number after "####"; pass GSM-Symbolic\'s files')
    original = _number(row, "original_id")
    metadata = {"data_set": data_set, "solution": worked, "template": template, "original_id": original}
    if isinstance(row.data.get("canary"), str):
        metadata["canary"] = row.data["canary"]
    name, question = f"{data_set.lower()}-{template}-{instance}", row.text("question", ", ".join(_GSM_SYMBOLIC_NEEDS))
    return Entry(plain_row(Sample(id=name, question=question, answers=(), reference=gold, metadata=metadata)))


def _number(row: Row, name: str) -> int:
    return row.typed(name, int, "a whole number of at least 0", accept=lambda number: number >= 0)


SOURCES = (
    Source(name="gsm8k", load=load_gsm8k),
    Source(name="gsm8k-pairs", shape=Shape(name=_GSM8K, needs=("question", "ground_truth")), entry=gsm8k_pairs),
    Source(name="gsm-symbolic", load=load_gsm_symbolic),
)
