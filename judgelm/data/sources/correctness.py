"""Questions with one right answer (GSM8K, GSM-Symbolic, MMLU-Pro), and models' answers to them, right or wrong.

Each answer is a row for mode `correctness`, with a line of truth beside it. MMLU-Pro's pairs of a right and a wrong
answer are rows for mode `ssr`. Files of questions alone make rows without answers, for an answering run.

GSM-Symbolic, P1 and P2 are GSM8K's problems as templates with other names and numbers, P1 and P2 with further clauses.
The rows of all three files have the same ids, and no field tells the files apart: their names do.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import OnReject, Reject, Row
from judgelm.data.readers.values import describe
from judgelm.data.sources.source import Entry, Shape, choice_field, convert_file, model_from_filename, plain_row
from judgelm.errors import InputError
from judgelm.parsing.short_answers import canonical, final_answer
from judgelm.records import Label, Sample, Winner

_GSM8K, _MMLU_PRO = "GSM8K", "MMLU-Pro"
_MODEL_IN_NAME = re.compile(r"model_outputs_(.+?)(?:_\d+-?shots?(?:_[\d_]+)?)?$")
_OUTPUT_FIELDS = ("model_outputs", "generated_text")
"""Fields of the published results that hold the model's text: 4 and 25 of the 29 whose text is in the repository."""

_NEXT_QUESTION = re.compile(r"(?<=\S)\s*^Question:", re.MULTILINE)
_PAIR_LABELS: Mapping[object, Winner] = {"A": 1, "B": 2}


def _first_fields(path: str) -> set[str]:
    first = first_row(path)
    return set() if first is None else set(first.data)


def load_gsm8k(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Models' solutions, or questions to answer, of GSM8K."""
    for path in files:
        needs = ("question", "ground_truth") if "ground_truth" in _first_fields(path) else ("question", "answer")
        make = partial(_gsm8k_entries, gold_field=needs[1])
        for entries in convert_file(path, Shape(name=_GSM8K, needs=needs), make, on_reject):
            yield from entries


def _gsm8k_entries(row: Row, row_number: int, gold_field: str) -> list[Entry]:
    if {"instance", "original_id"} <= row.data.keys():
        raise row.error("a row of GSM-Symbolic, whose lines do not name its questions; import it as gsm-symbolic")
    question = row.text("question", "question, answer")
    worked = row.text(gold_field, "question, answer")
    gold = canonical(worked, "number") if "####" in worked or gold_field == "ground_truth" else None
    if gold is None:
        raise row.field_error(gold_field, 'no final number behind "####"; this is no row of GSM8K')
    metadata = {"data_set": _GSM8K, "solution": worked}
    question_sample = Sample(id=f"gsm8k-{row_number}", question=question, answers=(), reference=gold, metadata=metadata)
    if gold_field == "answer":
        return [Entry(plain_row(question_sample))]
    return [_judged(question_sample, model, answer, truth=truth) for model, answer, truth in _solutions(row, gold)]


def _solutions(row: Row, gold: str) -> list[tuple[str, str, bool]]:
    """Model, text and truth of each solution in a row."""
    solved = {name: value for name, value in row.data.items() if isinstance(value, dict) and "solution" in value}
    if not solved:
        raise row.error('no model has a "solution" in this row; give example_model_solutions.jsonl')
    solutions = []
    for model, value in solved.items():
        answer = row.with_data(value).text("solution", "solution, is_correct")
        stated = value.get("is_correct")
        truth = stated if isinstance(stated, bool) else final_answer(answer, "number") == gold
        solutions.append((model, answer, truth))
    return solutions


GSM8K_SOLUTIONS = Shape(name=_GSM8K, needs=("question", "ground_truth"))


def gsm8k_pairs(row: Row, row_number: int) -> list[Entry | Reject]:
    """Every pair of a right and a wrong solution; names of models decide the order, and truth takes no part in it."""
    gold = canonical(row.text("ground_truth", "question, ground_truth"), "number")
    if gold is None:
        raise row.field_error("ground_truth", "no final number; this is no row of GSM8K's solutions")
    question = row.text("question", "question, ground_truth")
    entries: list[Entry | Reject] = []
    for first, second in combinations(sorted(_solutions(row, gold)), 2):
        if first[2] != second[2]:
            sample = Sample(
                id=f"gsm8k-{row_number}/{first[0]}/{second[0]}",
                question=question,
                answers=(first[1], second[1]),
                answer_models=(first[0], second[0]),
            )
            entries.append(Entry(plain_row(sample, Label(sample_id="", winner=1 if first[2] else 2))))
    return entries


def _judged(question: Sample, model: str, answer: str, *, truth: bool) -> Entry:
    """One model's answer to a question, and whether it is right."""
    sample = replace(
        question,
        id=f"{question.id}/{model}",
        answers=(answer,),
        answer_models=(model,),
        metadata={**question.metadata, "source_id": question.id},
    )
    known = {
        "id": sample.id,
        "agent": model,
        "dataset": question.metadata["data_set"],
        "truth": truth,
        "question": question.id,
        "answer": question.reference,
    }
    return Entry(plain_row(sample), known)


_RESULTS = Shape(name=_MMLU_PRO, needs=("question_id", "question", "options", "answer"))
_PAIRS = Shape(name=_MMLU_PRO, needs=("question_id", "model_a", "model_b", "label"))


def load_mmlu_pro(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Pairs where a file of pairs is among the files, else every model's answer by itself."""
    pairs = [path for path in files if {"model_a", "model_b", "label"} <= _first_fields(path)]
    others = [path for path in files if path not in pairs]
    questions: dict[str, Row] = {}
    texts: dict[tuple[str, str], str] = {}
    places: dict[tuple[str, str], str] = {}

    def add(row: Row, row_number: int) -> tuple[Row, dict[str, str]]:
        question, outputs = _question(row).id, _outputs(row)
        for model in outputs or ("",):
            if (location := places.get((question, model))) is not None:
                repeated = f"a second answer of {model} to" if model else "repeats"
                raise row.error(f"{repeated} question {question}; the first, in {location}, counts")
        places.update({(question, model): f"{row.file}:{row.line}" for model in outputs or ("",)})
        texts.update({(question, model): text for model, text in outputs.items()})
        questions.setdefault(question, row)
        return row, outputs

    for path in others:
        for row, outputs in convert_file(path, _RESULTS, add, on_reject):
            if not pairs:
                yield from _mmlu_entries(row, outputs)
    for path in pairs:
        yield from convert_file(path, _PAIRS, lambda row, _: _mmlu_pair(row, questions, texts), on_reject)


def _key(row: Row) -> str:
    return f"mmlu-pro-{row.required_id('question_id', 'it names the question')}"


def _question(row: Row, answers: tuple[str, ...] = (), models: tuple[str, ...] = ()) -> Sample:
    gold = canonical(row.text("answer", "question, options, answer"), "choice")
    options = row.text_list("options")
    if gold is None or ord(gold) - ord("A") >= len(options):
        raise row.field_error("answer", f"expected a letter of {len(options)} options, got {row.data['answer']!r}")
    return Sample(
        id=_key(row) + "".join(f"/{model}" for model in models),
        question=row.text("question", "question, options, answer"),
        answers=answers,
        reference=gold,
        answer_models=models,
        category=row.text("category", "category") if row.data.get("category") is not None else None,
        metadata={"data_set": _MMLU_PRO, "options": list(options)},
    )


def _outputs(row: Row) -> dict[str, str]:
    """Answers by model name: of one model, named by the file, in the published results; of several in `outputs`."""
    several = row.data.get("outputs")
    if isinstance(several, dict):
        texts = {
            str(model): output.get("text") if isinstance(output, dict) else output for model, output in several.items()
        }
    elif (field := next((name for name in _OUTPUT_FIELDS if name in row.data), None)) is not None:
        text = row.data[field]
        texts = {model_of_results(row.file): _first_answer(text) if isinstance(text, str) else text}
    elif "pred" in row.data:
        expected, fields = " or ".join(_OUTPUT_FIELDS), ", ".join(row.data)
        raise row.error(f"a prediction without the model's text: expected {expected}, and its fields are {fields}")
    else:
        return {}
    for model, text in texts.items():
        if not isinstance(text, str):
            raise row.error(f"the output of {model}: expected text, got {describe(text)}; leave the row out")
    return {model: str(text) for model, text in texts.items()}


def model_of_results(path: str) -> str:
    """The model that a file of published results is named after."""
    name = model_from_filename(path)
    match = _MODEL_IN_NAME.search(name)
    return match[1] if match else name


def _first_answer(text: str) -> str:
    """The answer to the question asked, without the further questions that a base model goes on to write.

    MMLU-Pro's own code for local models stops at `Question:`; two published files were made without (Llama-3 8B and
    70B), and there the last answer in the text is mostly one to an invented question.
    """
    following = _NEXT_QUESTION.search(text)
    return text if following is None else text[: following.start()]


def _mmlu_entries(row: Row, outputs: Mapping[str, str]) -> Iterator[Entry]:
    question = _question(row)
    if not outputs:
        yield Entry(plain_row(question))
        return
    letters = len(row.text_list("options"))
    for model, text in outputs.items():
        letter = _stated(row, model) or (final_answer(text, "choice", letters=letters),)
        truth = letter[0] == question.reference
        yield _judged(question, model, text, truth=truth)


def _stated(row: Row, model: str) -> tuple[object] | None:
    """The letter (or none) that MMLU-Pro's own code extracted, `l2`; None where the row does not say."""
    several = row.data.get("outputs")
    output = several.get(model) if isinstance(several, dict) else None
    return (output["l2"],) if isinstance(output, dict) and "l2" in output else None


def _mmlu_pair(row: Row, questions: Mapping[str, Row], texts: Mapping[tuple[str, str], str]) -> Entry:
    key = _key(row)
    models = tuple(row.text(name, "question_id, model_a, model_b, label") for name in ("model_a", "model_b"))
    missing = [model for model in models if (key, model) not in texts]
    if missing:
        raise row.error(f"no output of {' and '.join(missing)} for {key}; give the file that holds it too")
    answers = tuple(texts[key, model] for model in models)
    winner = choice_field(row, "label", _PAIR_LABELS)
    sample = _question(questions[key], answers, models)
    sample = replace(sample, metadata={**sample.metadata, "source_id": key})
    truth: dict[str, object] = {"id": sample.id, "winner": winner, "answer": sample.reference, "question": key}
    if sample.category is not None:
        truth["category"] = sample.category
    return Entry(plain_row(sample, Label(sample_id="", winner=winner)), truth)


_GSM_SYMBOLIC = "GSM-Symbolic"
_GSM_SYMBOLIC_NEEDS = ("id", "instance", "question", "answer", "original_id")
_GSM_VARIANT = re.compile(r"(?<![a-z0-9])p[12](?![a-z0-9])", re.IGNORECASE)
_MAIN_FILE, _MAIN_FOLDER = re.compile(r"symbolic|main", re.IGNORECASE), "main"


def load_gsm_symbolic(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """The questions of GSM-Symbolic's files."""
    for path in files:
        first = first_row(path)
        known = first is not None and first.data.keys() >= set(_GSM_SYMBOLIC_NEEDS)  # else the shape is what is wrong
        make = partial(_gsm_symbolic_entry, data_set=_gsm_symbolic_set(path) if known else _GSM_SYMBOLIC)
        yield from convert_file(path, Shape(name=_GSM_SYMBOLIC, needs=_GSM_SYMBOLIC_NEEDS), make, on_reject)


def _gsm_symbolic_set(path: str) -> str:
    """`GSM-Symbolic`, `GSM-Symbolic-P1` or `GSM-Symbolic-P2`, by the name of the file or of its folder.

    Raises:
        InputError: the names say neither, or two.
    """
    name, folder = Path(path).name, Path(path).absolute().parent.name
    variants = {found.upper() for text in (name, folder) for found in _GSM_VARIANT.findall(text)}
    if len(variants) == 1:
        return f"{_GSM_SYMBOLIC}-{variants.pop()}"
    if not variants and (_MAIN_FILE.search(name) or folder.lower() == _MAIN_FOLDER):
        return _GSM_SYMBOLIC
    found = " and ".join(sorted(variants)) or "none of them"
    finding = f"its name and folder, which tell GSM-Symbolic, P1 and P2 apart, say {found}"
    raise InputError(f"{path}: {finding}; name it as published: GSM_symbolic.jsonl, GSM_p1.jsonl or GSM_p2.jsonl")


def _gsm_symbolic_entry(row: Row, row_number: int, data_set: str) -> Entry:
    template, instance = (_number(row, name) for name in ("id", "instance"))
    worked = row.text("answer", ", ".join(_GSM_SYMBOLIC_NEEDS))
    gold = canonical(worked, "number") if "####" in worked else None
    if gold is None:
        raise row.field_error("answer", 'no final number behind "####"; this is no row of GSM-Symbolic')
    metadata = {
        "data_set": data_set,
        "solution": worked,
        "template": template,
        "original_id": _number(row, "original_id"),
    }
    if isinstance(row.data.get("canary"), str):
        metadata["canary"] = row.data["canary"]
    sample = Sample(
        id=f"{data_set.lower()}-{template}-{instance}",
        question=row.text("question", ", ".join(_GSM_SYMBOLIC_NEEDS)),
        answers=(),
        reference=gold,
        metadata=metadata,
    )
    return Entry(plain_row(sample))


def _number(row: Row, name: str) -> int:
    value = row.data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise row.field_error(name, f"expected a number from 0, got {describe(value)}")
    return value
