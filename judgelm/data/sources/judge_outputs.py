"""Judges' outputs on labelled sets: LLMBar, JudgeBench, Auto-J, PandaLM, MMLU-Pro's own extraction of answers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from re import compile as pattern

from judgelm.data.readers.fields import describe, required_id, scores_field, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Row, convert_rows, field_error, row_error
from judgelm.data.sources.judgments import (
    GIVEN,
    SWAPPED,
    Game,
    Order,
    flipped,
    location_of,
    pair_judgment,
    scored_game,
)
from judgelm.data.sources.reviews import read_results
from judgelm.data.sources.source import PublishedJudgment, Shape, convert_file, model_from_filename
from judgelm.errors import InputError
from judgelm.parsing.scores import parse_pair
from judgelm.records import Judgment, LabelVerdict, Shown, Unparsed, Winner

LLMBAR_NEEDS = ("input", "output_1", "output_2", "label", "results")
_LLMBAR_ORDERS: Mapping[str, Order] = {"swap = False": GIVEN, "swap = True": SWAPPED}
_LLMBAR_WINNERS: Mapping[object, Winner] = {"1": 1, "2": 2}


def read_llmbar(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """The set and the judge stand in the folders: SET/evaluators/JUDGE/PROMPT/result.json."""
    for path in files:
        folders = Path(path).resolve().parts[-5:-1]
        if len(folders) < 4 or folders[1] != "evaluators":
            raise InputError(
                f"{path}: LLMBar's results name their set and judge by their folders; keep them as published: "
                "SET/evaluators/JUDGE/PROMPT/result.json"
            )
        make = partial(_llmbar_row, subset=folders[0], judge=f"{folders[2]}/{folders[3]}")
        yield from convert_file(path, Shape(name="LLMBar's results", needs=LLMBAR_NEEDS), make, on_reject)


def _llmbar_row(row: Row, row_number: int, *, subset: str, judge: str) -> PublishedJudgment:
    results = row.data.get("results")
    last = results[-1] if isinstance(results, list) and results else None
    if not isinstance(last, dict) or not all(isinstance(last.get(name), dict) for name in _LLMBAR_ORDERS):
        finding = f'expected a list that ends in "swap = False" and "swap = True", got {describe(last)}'
        raise field_error(row, "results", finding)
    games = [_llmbar_game(last[name], order) for name, order in _LLMBAR_ORDERS.items()]
    texts = tuple(text_field(row, name, "input, output_1, output_2") for name in ("input", "output_1", "output_2"))
    return PublishedJudgment(
        judgment=pair_judgment(f"{subset}-{row_number}", games),
        judge=judge,
        fields=row.data,
        texts=texts,
        location=location_of(row),
    )


def _llmbar_game(entry: Mapping[str, object], order: Order) -> Game:
    """A game whose winner is named in the order of the row, whichever order was shown."""
    completion = entry.get("completion")
    text = completion[0] if isinstance(completion, list) and completion else ""
    return Game(order=order, winner=_LLMBAR_WINNERS.get(str(entry.get("winner"))), text=str(text))


JUDGEBENCH_NEEDS = ("pair_id", "response_A", "response_B", "judgments")
_DECISIONS: Mapping[object, Winner] = {"A>B": 1, "B>A": 2, "A=B": "tie"}


def read_judgebench_row(row: Row) -> PublishedJudgment:
    """The judgment of a row of JudgeBench's outputs."""
    judgments = row.data.get("judgments")
    if not isinstance(judgments, list) or not 1 <= len(judgments) <= 2:
        raise field_error(row, "judgments", f"expected one or two judgments, got {describe(judgments)}")
    games = [
        _judgebench_game(row, judgment, order) for judgment, order in zip(judgments, (GIVEN, SWAPPED), strict=False)
    ]
    model = next((model for judgment in judgments if (model := _inner(judgment).get("judge_model"))), None)
    judge = "/".join(str(name) for name in (row.data.get("judge_name"), model) if name)
    needs = ", ".join(JUDGEBENCH_NEEDS)
    return PublishedJudgment(
        judgment=pair_judgment(text_field(row, "pair_id", needs), games),
        judge=judge or None,
        fields=row.data,
        texts=tuple(text_field(row, name, needs) for name in ("question", "response_A", "response_B")),
        location=location_of(row),
    )


def _judgebench_game(row: Row, judgment: object, order: Order) -> Game:
    """A game of JudgeBench, whose decision names the place shown; one that is null failed before it was made."""
    if not isinstance(judgment, dict):
        return Game(order=order, winner=None, failure="engine")
    inner, decision = _inner(judgment), judgment.get("decision")
    text = str(inner.get("response") or "")
    if isinstance(inner.get("scores"), list):
        return scored_game(order, scores_field(Row(row.file, row.line, dict(inner)), "scores"), text)
    if decision is not None and decision not in _DECISIONS:
        known = ", ".join(map(str, _DECISIONS))
        raise field_error(row, "decision", f"expected {known} or null, got {describe(decision)}")
    shown_winner = _DECISIONS.get(decision)
    return Game(
        order=order, winner=shown_winner if shown_winner is None or order == GIVEN else flipped(shown_winner), text=text
    )


def _inner(judgment: object) -> Mapping[str, object]:
    inner = judgment.get("judgment") if isinstance(judgment, dict) else None
    return inner if isinstance(inner, dict) else {}


_AUTO_J_NEEDS = ("output",)
_AUTO_J_LABELS: Mapping[object, Winner] = {0: 1, 1: 2, 2: "tie"}
_EXCHANGED = "exchange"


def read_auto_j(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """One file for each order, joined line by line with the test set; the swapped one has `exchange` in its name."""
    swapped = [path for path in files if _EXCHANGED in Path(path).name]
    given = [path for path in files if path not in swapped]
    if len(given) != 1 or len(swapped) > 1:
        raise InputError(
            f"auto-j: {len(given)} files of the given order and {len(swapped)} of the swapped ({_EXCHANGED} in the "
            "name); give one of the given order, and one of the swapped where there is any"
        )
    outputs = [_auto_j_outputs(path, order) for path, order in zip([*given, *swapped], (GIVEN, SWAPPED), strict=False)]
    if len({len(lines) for lines in outputs}) > 1:
        raise InputError(f"{given[0]} and {swapped[0]}: not as many lines in both; give the two orders of one run")
    for row, *games in zip(_auto_j_rows(given[0]), *outputs, strict=True):
        yield PublishedJudgment(
            judgment=pair_judgment(f"auto-j-{row.line}", games), judge=None, fields=row.data, location=location_of(row)
        )


def _auto_j_rows(path: str) -> list[Row]:
    """The rows of a file, which are joined by their line.

    Raises:
        InputError: a line is no row.
    """
    return list(convert_rows(read_rows(path), lambda row: row, path=path, expected="output"))


def _auto_j_outputs(path: str, order: Order) -> list[Game]:
    return [_auto_j_game(row, order) for row in _auto_j_rows(path)]


def _auto_j_game(row: Row, order: Order) -> Game:
    output = row.data.get("output")
    if isinstance(output, bool) or not isinstance(output, int):
        raise field_error(row, "output", f"expected 0, 1, 2 or -1 (unreadable), got {describe(output)}")
    shown_winner = _AUTO_J_LABELS.get(output)
    return Game(order=order, winner=shown_winner if shown_winner is None or order == GIVEN else flipped(shown_winner))


def read_pandalm(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """PandaLM's released results; the judge is named by the field of its verdict."""
    for path in files:
        rows = {str(row.data.get("idx")): row for row in read_rows(path) if isinstance(row, Row)}
        for judgment in read_results(path, parse_pair, on_reject=on_reject):
            row = rows[judgment.sample_id]
            field = next((name for name in row.data if name.endswith("_result")), None)
            if field is None:
                raise row_error(row, "no gpt_result or pandalm_result; give PandaLM's released results")
            yield PublishedJudgment(
                judgment=judgment, judge=field.removesuffix("_result"), fields=row.data, location=location_of(row)
            )


MMLU_PRO_NEEDS = ("question_id", "options", "answer")
_LEVELS = ("stored_pred", "l1", "l2")
_MODEL_IN_NAME = pattern(r"model_outputs_(.+?)(?:_\d+-?shots?(?:_[\d_]+)?)?$")


def read_mmlu_pro(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """The extractions of MMLU-Pro's own code as judgments of correctness."""
    for path in files:
        convert = partial(_row, path=path)
        rows = convert_rows(
            read_rows(path), convert, path=path, expected=", ".join(MMLU_PRO_NEEDS), on_reject=on_reject
        )
        yield from chain.from_iterable(rows)


def _row(row: Row, path: str) -> list[PublishedJudgment]:
    gold = text_field(row, "answer", ", ".join(MMLU_PRO_NEEDS))
    question = required_id(row, "question_id", "it names the question")
    return [
        PublishedJudgment(
            judgment=_judgment(f"mmlu-pro-{question}/{model}", prediction, gold, row),
            judge=level,
            fields={**row.data, "model": model},
            location=location_of(row),
        )
        for model, level, prediction in _predictions(row, path)
    ]


def _predictions(row: Row, path: str) -> list[tuple[str, str, object]]:
    """Model, level of extraction and letter, of one model in the published results, of several in `outputs`."""
    several = row.data.get("outputs")
    if isinstance(several, Mapping):
        return [
            (str(model), level, output[level])
            for model, output in several.items()
            if isinstance(output, Mapping)
            for level in _LEVELS
            if level in output
        ]
    if "pred" not in row.data:
        raise field_error(row, "pred", "is missing; give MMLU-Pro's eval_results, or rows of outputs with predictions")
    name = model_from_filename(path)
    match = _MODEL_IN_NAME.search(name)
    return [(match[1] if match else name, "pred", row.data["pred"])]


def _judgment(sample_id: str, prediction: object, gold: str, row: Row) -> Judgment:
    if prediction is not None and not isinstance(prediction, str):
        raise field_error(row, "pred", f"expected a letter or null, got {describe(prediction)}")
    if prediction is None:
        failure = Unparsed("off_grammar", "", "no letter was extracted from the answer")
        shown = Shown(order=(0,), text="", failure=failure)
        return Judgment(sample_id=sample_id, mode="correctness", verdict=None, shown=(shown,), failure=failure)
    label = "correct" if prediction == gold else "incorrect"
    shown = Shown(order=(0,), text=prediction, label=label)
    return Judgment(sample_id=sample_id, mode="correctness", verdict=LabelVerdict(label=label), shown=(shown,))
