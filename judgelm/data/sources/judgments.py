"""Convert published judge outputs and reviews to judgelm judgments."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, cast

from judgelm.data.readers.files import read_converted, read_rows
from judgelm.data.readers.rows import OnReject, Row
from judgelm.data.readers.values import content_id, describe
from judgelm.data.sources.alpaca_eval import converted_annotations
from judgelm.data.sources.layouts import alpaca_eval_label, alpaca_eval_sample
from judgelm.data.sources.mmlu_pro import model_of_results
from judgelm.data.sources.pairs import AUTO_J_LABELS
from judgelm.data.sources.reviews import NEEDS as REVIEW_NEEDS
from judgelm.data.sources.reviews import UNREADABLE, group_files, match_orders, read_results, read_reviews
from judgelm.data.sources.source import PublishedJudgment, PublishedRuns, Shape, Source, convert_file
from judgelm.errors import InputError
from judgelm.parsing.scores import parse_pair
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, PairVerdict, Shown, Unparsed, Winner, winner_of

Order = tuple[Literal[0, 1], Literal[0, 1]]
GIVEN: Order = (0, 1)
SWAPPED: Order = (1, 0)
_ORDERS = (GIVEN, SWAPPED)
_PLACES: Mapping[str, Winner] = {"1": 1, "2": 2, "tie": "tie"}


def pair_judgment(sample_id: str, shown: Sequence[Shown]) -> Judgment:
    """Combine the replies for a pair, in one or both orders, into a judgment.

    The winner has the higher mean score. If there are no scores and the orders disagree, the result is a tie. If one
    order failed, the whole judgment fails.
    """
    failure = next((part.failure for part in shown if part.failure is not None), None)
    if failure is not None:
        return Judgment(sample_id=sample_id, mode="pair", verdict=None, shown=tuple(shown), failure=failure)
    winners = {_turned(_place_of(part), part.order) for part in shown}
    scores = _mean_scores(shown)
    winner = winner_of(scores) if scores is not None else winners.copy().pop() if len(winners) == 1 else "tie"
    assert winner is not None, "no order failed"
    return Judgment(
        sample_id=sample_id,
        mode="pair",
        verdict=PairVerdict(winner=winner),
        shown=tuple(shown),
        scores=scores,
        consistent=None if len(shown) == 1 else len(winners) == 1,
    )


def _mean_scores(shown: Sequence[Shown]) -> tuple[float, float] | None:
    put_back = [part.scores if part.order == GIVEN else part.scores[::-1] for part in shown if part.scores is not None]
    if len(put_back) < len(shown):
        return None
    first, second = (sum(scores[index] for scores in put_back) / len(put_back) for index in (0, 1))
    return first, second


def _place_of(shown: Shown) -> Winner | None:
    if shown.scores is not None:
        return winner_of((shown.scores[0], shown.scores[1]))
    return _PLACES.get(shown.label or "")


def _turned(winner: Winner | None, order: tuple[int, ...]) -> Winner | None:
    return winner if winner in ("tie", None) or order == GIVEN else 2 if winner == 1 else 1


def _by_place(order: Order, place: Winner | None, text: object = "", *, lost: bool = False) -> Shown:
    text = text if isinstance(text, str) else ""
    if place is not None:
        return Shown(order=order, text=text, label=str(place))
    failure = Unparsed("engine" if lost else "off_grammar", text, "no verdict in the published file")
    return Shown(order=order, text=text, failure=failure)


def _by_scores(order: Order, scores: tuple[float, float] | None, text: str) -> Shown:
    if scores is None or scores == UNREADABLE:
        return _by_place(order, None, text)
    return Shown(order=order, text=text, scores=scores)


def _both_orders(row: Row, name: str, read: Callable[[Mapping[str, object], Order], Shown]) -> list[Shown]:
    listed = row.typed(name, list, f"one or two {name}", accept=lambda listed: 1 <= len(listed) <= 2)
    items = zip(listed, _ORDERS, strict=False)
    return [read(each, order) if isinstance(each, dict) else _by_place(order, None, lost=True) for each, order in items]


def _published(
    row: Row, judgment: Judgment, judge: str | None = None, texts: tuple[str, ...] | None = None, **more: object
) -> PublishedJudgment:
    location = f"{row.file}:{row.line}"
    return PublishedJudgment(judgment=judgment, judge=judge, fields=row.data | more, texts=texts, location=location)


LLMBAR_NEEDS = ("input", "output_1", "output_2", "label", "results")
_LLMBAR_ORDERS: Mapping[str, Order] = {"swap = False": GIVEN, "swap = True": SWAPPED}


def read_llmbar(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Read LLMBar's results; set and judge are parsed from the path: SET/evaluators/JUDGE/PROMPT/result.json."""
    for path in files:
        folders = Path(path).resolve().parts[-5:-1]
        if len(folders) < 4 or folders[1] != "evaluators":
            finding = "cannot determine the set and the judge from the folder names"
            raise InputError(
                f"{path}: {finding}; keep the published folder structure: SET/evaluators/JUDGE/PROMPT/result.json"
            )
        make = partial(_llmbar_row, subset=folders[0], judge=f"{folders[2]}/{folders[3]}")
        yield from convert_file(path, Shape(name="LLMBar's results", needs=LLMBAR_NEEDS), make, on_reject)


def _llmbar_row(row: Row, row_number: int, *, subset: str, judge: str) -> PublishedJudgment:
    results = row.data.get("results")
    last = results[-1] if isinstance(results, list) and results else None
    if not isinstance(last, dict) or not all(isinstance(last.get(name), dict) for name in _LLMBAR_ORDERS):
        finding = f'expected a list that ends in "swap = False" and "swap = True", got {describe(last)}'
        raise row.field_error("results", finding)
    shown = []
    for name, order in _LLMBAR_ORDERS.items():
        completion = last[name].get("completion")
        text = str(completion[0]) if isinstance(completion, list) and completion else ""
        winner = {"1": 1, "2": 2}.get(str(last[name].get("winner")))  # in the order of the row, not as shown
        shown.append(_by_place(order, _turned(cast(Winner | None, winner), order), text))
    return _published(row, pair_judgment(f"{subset}-{row_number}", shown), judge, row.texts(*LLMBAR_NEEDS[:3]))


JUDGEBENCH_NEEDS = ("pair_id", "response_A", "response_B", "judgments")
_DECISIONS: Mapping[object, Winner] = {"A>B": 1, "B>A": 2, "A=B": "tie"}


def read_judgebench_row(row: Row) -> PublishedJudgment:
    """Read a row of JudgeBench's outputs; its decisions refer to positions in the order shown."""

    def read(judgment: Mapping[str, object], order: Order) -> Shown:
        inner, decision = _inner(judgment), judgment.get("decision")
        text = str(inner.get("response") or "")
        if isinstance(inner.get("scores"), list):
            return Shown(order=order, text=text, scores=row.with_data(dict(inner)).score_pair("scores"))
        if decision is not None and (not isinstance(decision, str) or decision not in _DECISIONS):
            expected = f"expected {', '.join(map(str, _DECISIONS))} or null"
            raise row.field_error("decision", f"{expected}, got {describe(decision)}")
        return _by_place(order, _DECISIONS.get(decision), text)

    shown = _both_orders(row, "judgments", read)
    judgments = row.data["judgments"]
    assert isinstance(judgments, list)
    model = next((model for judgment in judgments if (model := _inner(judgment).get("judge_model"))), None)
    judge = "/".join(str(name) for name in (row.data.get("judge_name"), model) if name)
    [name] = row.texts("pair_id", needs=JUDGEBENCH_NEEDS)
    texts = row.texts("question", "response_A", "response_B", needs=JUDGEBENCH_NEEDS)
    return _published(row, pair_judgment(name, shown), judge or None, texts)


def _inner(judgment: object) -> Mapping[str, object]:
    inner = judgment.get("judgment") if isinstance(judgment, dict) else None
    return inner if isinstance(inner, dict) else {}


_EXCHANGED = "exchange"


def read_auto_j(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Read Auto-J's outputs, which are joined to the test set by line; the swapped file has `exchange` in its name."""
    swapped = [path for path in files if _EXCHANGED in Path(path).name]
    given = [path for path in files if path not in swapped]
    if len(given) != 1 or len(swapped) > 1:
        counts = f"got {len(given)} files in given order and {len(swapped)} in swapped order ({_EXCHANGED} in name)"
        raise InputError(f"auto-j: {counts}; pass one file in the given order and at most one in swapped order")
    tables = [list(read_converted(path, lambda row: row, expected="output")) for path in [*given, *swapped]]
    shown = [[_auto_j_order(row, order) for row in rows] for rows, order in zip(tables, _ORDERS, strict=False)]
    if len({len(rows) for rows in tables}) > 1:
        raise InputError(
            f"{given[0]} and {swapped[0]}: the files have different numbers of lines; pass both orders of the same run"
        )
    for row, *orders in zip(tables[0], *shown, strict=True):
        yield _published(row, pair_judgment(f"auto-j-{row.line}", orders))


def _auto_j_order(row: Row, order: Order) -> Shown:
    return _by_place(order, AUTO_J_LABELS.get(row.typed("output", int, "0, 1, 2 or -1 (unparseable)")))


def read_pandalm(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Read PandaLM's released results; the judge's name is parsed from the verdict field."""
    for path in files:
        rows = {str(row.data.get("idx")): row for row in read_rows(path) if isinstance(row, Row)}
        for judgment in read_results(path, parse_pair, on_reject=on_reject):
            row = rows[judgment.sample_id]
            field = next((name for name in row.data if name.endswith("_result")), None)
            if field is None:
                raise row.error("found no gpt_result or pandalm_result field; pass PandaLM's released results")
            yield _published(row, judgment, field.removesuffix("_result"))


MMLU_PRO_NEEDS = ("question_id", "options", "answer")
_LEVELS = ("stored_pred", "l1", "l2")


def read_mmlu_pro(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Convert the letters extracted by MMLU-Pro's code to correctness judgments."""
    for path in files:
        rows = read_converted(path, _mmlu_pro_row, expected=", ".join(MMLU_PRO_NEEDS), on_reject=on_reject)
        yield from chain.from_iterable(rows)


def _mmlu_pro_row(row: Row) -> list[PublishedJudgment]:
    [gold] = row.texts("answer", needs=MMLU_PRO_NEEDS)
    question = row.required_id("question_id", "it identifies the question")
    published = []
    for model, level, prediction in _extracted_letters(row):
        extraction = _extraction(f"mmlu-pro-{question}/{model}", prediction, gold, row)
        published.append(_published(row, extraction, level, model=model))
    return published


def _extracted_letters(row: Row) -> list[tuple[str, str, object]]:
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
        raise row.field_error("pred", "missing; pass MMLU-Pro's eval_results, or rows with outputs and predictions")
    return [(model_of_results(row.file), "pred", row.data["pred"])]


def _extraction(sample_id: str, prediction: object, gold: str, row: Row) -> Judgment:
    if prediction is not None and not isinstance(prediction, str):
        raise row.field_error("pred", f"expected a letter or null, got {describe(prediction)}")
    if prediction is None:
        failure = Unparsed("off_grammar", "", "no letter was extracted from the answer")
        shown = Shown(order=(0,), text="", failure=failure)
        return Judgment(sample_id=sample_id, mode="correctness", verdict=None, shown=(shown,), failure=failure)
    label = "correct" if prediction == gold else "incorrect"
    shown = Shown(order=(0,), text=prediction, label=label)
    return Judgment(sample_id=sample_id, mode="correctness", verdict=LabelVerdict(label=label), shown=(shown,))


ANNOTATION_NEEDS = ("instruction", "output_1", "output_2", "preference")


def read_alpaca_eval(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Read AlpacaEval's annotations."""
    yield from converted_annotations(files, _annotation, on_reject)


def _annotation(row: Row, row_id: str) -> PublishedJudgment:
    """The order shown to the judge was random and was not recorded."""
    sample, label = alpaca_eval_sample(row), alpaca_eval_label(row, False)
    if label is None or label.winner is None:
        failure = Unparsed("off_grammar", "", "no preference in the published file")
        judgment = Judgment(sample_id=row_id, mode="pair", verdict=None, shown=(), failure=failure)
    else:
        soft = None if label.preference in (0.0, 0.5, 1.0) else label.preference
        verdict = PairVerdict(winner=label.winner)
        judgment = Judgment(sample_id=row_id, mode="pair", verdict=verdict, shown=(), probability=soft)
    annotator = row.data.get("annotator")
    judge = None if annotator is None else str(annotator)
    return _published(row, judgment, judge, (sample.question, *sample.answers))


def _name_of(judge: object) -> str | None:
    if isinstance(judge, list):
        judge = judge[0] if judge else None
    return None if judge is None else str(judge)


PAIR_NEEDS = ("question_id", "model_1", "model_2", "g1_winner", "g2_winner")
SINGLE_NEEDS = ("question_id", "model", "judge", "judgment", "score")


def read_fastchat_pair(row: Row) -> PublishedJudgment:
    """Read both games of a pair, with the models sorted by name, as in imported rows.

    The winner is a model, or `error` if the reply was unparseable.
    """
    models = row.texts("model_1", "model_2", needs=PAIR_NEEDS)
    if models[0] == models[1]:
        raise row.field_error("model_2", f"expected a different model from model_1, got {models[1]!r}")
    orders = _ORDERS if models[0] < models[1] else _ORDERS[::-1]
    winners: Mapping[object, Winner | None] = {"model_1": 1, "model_2": 2, "tie": "tie", "error": None}
    shown = []
    for game, order in zip(("g1", "g2"), orders, strict=True):
        value = row.data.get(f"{game}_winner")
        if not isinstance(value, str) or value not in winners:
            raise row.field_error(f"{game}_winner", f"expected model_1, model_2, tie or error, got {describe(value)}")
        place = _turned(_turned(winners[value], orders[0]), order)
        shown.append(_by_place(order, place, row.data.get(f"{game}_judgment")))
    question = row.required_id("question_id", "it identifies the question")
    name = ":".join([question, *sorted(models), str(row.data.get("turn", 1))])
    judgment = pair_judgment(name, sorted(shown, key=lambda part: part.order))
    return _published(row, judgment, _name_of(row.data.get("judge")))


def read_fastchat_grade(row: Row) -> PublishedJudgment:
    """Read a grade from FastChat's single mode; it is -1 if the reply was unparseable."""
    question = row.required_id("question_id", "it identifies the question")
    score, text = row.number("score"), row.text("judgment", ", ".join(SINGLE_NEEDS))
    failure = Unparsed("off_grammar", text, "no score in the published file") if score == -1 else None
    scores = None if failure else (score,)
    judgment = Judgment(
        sample_id=f"{question}:{row.text('model', 'model')}:{row.data.get('turn', 1)}",
        mode="single",
        verdict=None if failure else GradeVerdict(score=score),
        shown=(Shown(order=(0,), text=text, scores=scores, failure=failure),),
        scores=scores,
        failure=failure,
    )
    return _published(row, judgment, _name_of(row.data.get("judge")))


def read_review_files(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Read reviews, in both orders if available."""
    for indices in group_files([(Path(path).stem, Path(path)) for path in files]):
        reviews = [review for index in indices for review in read_reviews(files[index], on_reject=on_reject)]
        pairs, alone = match_orders(reviews)
        for orders in [*pairs, *((review,) for review in alone)]:
            first = orders[0]
            shown = [_by_scores(order, each.scores, each.text) for each, order in zip(orders, _ORDERS, strict=False)]
            fields = {"question_id": first.question, "answer1_id": first.answers[0], "answer2_id": first.answers[1]}
            judgment, more = pair_judgment(first.id or ":".join(fields.values()), shown), {"review_id": first.id}
            yield PublishedJudgment(judgment=judgment, judge=None, fields=fields | more, location=first.location)


CHERRY_NEEDS = ("Answer1", "Answer2", "scores", "scores_reverse", "review", "review_reverse")
_CHERRY_QUESTIONS = ("text", "prompt", "instruction", "Instruction", "conversations")


def read_cherry(row: Row) -> PublishedJudgment:
    """Read a question and its reviews in both orders. In LIMA, the question is the first of the `conversations`."""
    turns = row.data.get("conversations")
    name = next((name for name in _CHERRY_QUESTIONS if isinstance(row.data.get(name), str)), None)
    if name is not None:
        [question] = row.texts(name, needs=CHERRY_NEEDS)
    elif isinstance(turns, list) and turns and isinstance(turns[0], str):
        question = turns[0]
    else:
        raise row.field_error("text", f"no question; each row needs {', '.join(_CHERRY_QUESTIONS)} or conversations")
    answers = row.texts("Answer1", "Answer2", needs=CHERRY_NEEDS)
    shown = []
    for order, suffix in zip(_ORDERS, ("", "_reverse"), strict=True):
        scores = row.score_pair(f"scores{suffix}")
        shown.append(_by_scores(order, scores, *row.texts(f"review{suffix}", needs=CHERRY_NEEDS)))
    return _published(row, pair_judgment(content_id(question, answers, None), shown), texts=(question, *answers))


_MEAN_OF_ORDERS = {"name": "pair", "order_rule": "mean"}
RUNS: Mapping[str, PublishedRuns] = {
    "judgebench": PublishedRuns(needs=JUDGEBENCH_NEEDS, read_row=read_judgebench_row),
    "auto-j": PublishedRuns(
        needs=("output",), read_files=read_auto_j, recognised=lambda row: row.data.keys() == {"output"}
    ),
    "pandalm": PublishedRuns(
        needs=("idx",),
        read_files=read_pandalm,
        recognised=lambda row: any(name.endswith("_result") for name in row.data),
    ),
    "alpaca-eval": PublishedRuns(needs=ANNOTATION_NEEDS, read_files=read_alpaca_eval, mode={"name": "pair"}),
    "llmbar": PublishedRuns(needs=LLMBAR_NEEDS, read_files=read_llmbar),
    "mmlu-pro": PublishedRuns(
        needs=MMLU_PRO_NEEDS,
        read_files=read_mmlu_pro,
        mode={"name": "correctness", "task": "choice"},
        recognised=lambda row: not row.data.keys().isdisjoint({"pred", "outputs"}),
    ),
    "fastchat-pair": PublishedRuns(needs=PAIR_NEEDS, read_row=read_fastchat_pair),
    "fastchat-single": PublishedRuns(
        needs=SINGLE_NEEDS, read_row=read_fastchat_grade, mode={"name": "single", "scale": (1, 10)}
    ),
    "reviews": PublishedRuns(needs=(*REVIEW_NEEDS, "text"), read_files=read_review_files, mode=_MEAN_OF_ORDERS),
    "cherry": PublishedRuns(needs=CHERRY_NEEDS, read_row=read_cherry, mode=_MEAN_OF_ORDERS),
}
"""Source name -> format of the published judgments."""

SOURCES = tuple(Source(name=name) for name in ("fastchat-pair", "fastchat-single", "reviews", "cherry"))
"""Sources that only have published judgments."""
