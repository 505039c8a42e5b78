"""Published judgments as judgelm's: judges' outputs on labelled sets, and those behind leaderboards and in reviews."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from re import compile as pattern
from typing import Literal

from judgelm.data.readers.fields import content_id, describe, number_field, required_id, scores_field, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Row, convert_rows, field_error, row_error
from judgelm.data.sources.alpaca_eval import converted_annotations
from judgelm.data.sources.layouts import alpaca_eval_label, alpaca_eval_sample
from judgelm.data.sources.reviews import Review, group_files, match_orders, read_results, read_reviews
from judgelm.data.sources.source import PublishedJudgment, Shape, convert_file, model_from_filename
from judgelm.errors import InputError
from judgelm.modes.pairwise import winner_of
from judgelm.parsing.scores import parse_pair
from judgelm.records import FailureCode, GradeVerdict, Judgment, LabelVerdict, PairVerdict, Shown, Unparsed, Winner

Order = tuple[Literal[0, 1], Literal[0, 1]]
GIVEN: Order = (0, 1)
SWAPPED: Order = (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One order of a pair, as the judge was shown it.

    Attributes:
        order: see `Shown.order`.
        winner: the better answer in sample order; None where the judge's reply could not be read.
        text: the judge's reply.
        scores: in the order shown; they decide the winner where they are given.
        failure: the cause where there is no winner.
    """

    order: Order
    winner: Winner | None
    text: str = ""
    scores: tuple[float, float] | None = None
    failure: FailureCode = "off_grammar"

    def shown(self) -> Shown:
        """As a run file has it; scores instead of a label where there are any."""
        if self.winner is None:
            failure = Unparsed(self.failure, self.text, "no verdict in the published file")
            return Shown(order=self.order, text=self.text, failure=failure)
        if self.scores is not None:
            return Shown(order=self.order, text=self.text, scores=self.scores)
        label = "tie" if self.winner == "tie" else str(self.order.index(0 if self.winner == 1 else 1) + 1)
        return Shown(order=self.order, text=self.text, label=label)


def scored_game(order: Order, scores: tuple[float, float] | None, text: str) -> Game:
    """A game whose scores decide; without scores a failure."""
    if scores is None:
        return Game(order=order, winner=None, text=text)
    winner = winner_of(scores)
    if order == SWAPPED and winner != "tie":
        winner = 2 if winner == 1 else 1
    return Game(order=order, winner=winner, text=text, scores=scores)


def pair_judgment(sample_id: str, games: Sequence[Game]) -> Judgment:
    """The judgment of one or two games: by the mean of the scores, else a conflict of the orders is a tie.

    One failed order makes the judgment a failure.
    """
    shown = tuple(game.shown() for game in games)
    failure = next((part.failure for part in shown if part.failure is not None), None)
    if failure is not None:
        return Judgment(sample_id=sample_id, mode="pair", verdict=None, shown=shown, failure=failure)
    winners = {game.winner for game in games}
    scores = _mean_scores(games)
    winner: Winner | None = winners.pop() if len(winners) == 1 else "tie"
    if scores is not None:
        winner = winner_of(scores)
    assert winner is not None
    return Judgment(
        sample_id=sample_id,
        mode="pair",
        verdict=PairVerdict(winner=winner),
        shown=shown,
        scores=scores,
        consistent=None if len(games) == 1 else len({game.winner for game in games}) == 1,
    )


def _mean_scores(games: Sequence[Game]) -> tuple[float, float] | None:
    """The mean over the orders, in sample order; None unless all of them have scores."""
    put_back = [game.scores if game.order == GIVEN else game.scores[::-1] for game in games if game.scores is not None]
    if len(put_back) < len(games):
        return None
    first, second = (sum(scores[index] for scores in put_back) / len(put_back) for index in (0, 1))
    return first, second


def rows_reader(
    needs: tuple[str, ...], convert: Callable[[Row], PublishedJudgment]
) -> Callable[[Sequence[str], OnReject], Iterator[PublishedJudgment]]:
    """A reader that makes one judgment of each row; a row that cannot be used is a reject."""

    def read(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
        for path in files:
            yield from convert_rows(read_rows(path), convert, path=path, expected=", ".join(needs), on_reject=on_reject)

    return read


def location_of(row: Row) -> str:
    """File and line of a row."""
    return f"{row.file}:{row.line}"


def flipped(winner: Winner) -> Winner:
    """The winner with the two answers exchanged."""
    return winner if winner == "tie" else 2 if winner == 1 else 1


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
        convert = partial(_mmlu_pro_row, path=path)
        rows = convert_rows(
            read_rows(path), convert, path=path, expected=", ".join(MMLU_PRO_NEEDS), on_reject=on_reject
        )
        yield from chain.from_iterable(rows)


def _mmlu_pro_row(row: Row, path: str) -> list[PublishedJudgment]:
    gold = text_field(row, "answer", ", ".join(MMLU_PRO_NEEDS))
    question = required_id(row, "question_id", "it names the question")
    return [
        PublishedJudgment(
            judgment=_extraction(f"mmlu-pro-{question}/{model}", prediction, gold, row),
            judge=level,
            fields={**row.data, "model": model},
            location=location_of(row),
        )
        for model, level, prediction in _extracted_letters(row, path)
    ]


def _extracted_letters(row: Row, path: str) -> list[tuple[str, str, object]]:
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


def _extraction(sample_id: str, prediction: object, gold: str, row: Row) -> Judgment:
    if prediction is not None and not isinstance(prediction, str):
        raise field_error(row, "pred", f"expected a letter or null, got {describe(prediction)}")
    if prediction is None:
        failure = Unparsed("off_grammar", "", "no letter was extracted from the answer")
        shown = Shown(order=(0,), text="", failure=failure)
        return Judgment(sample_id=sample_id, mode="correctness", verdict=None, shown=(shown,), failure=failure)
    label = "correct" if prediction == gold else "incorrect"
    shown = Shown(order=(0,), text=prediction, label=label)
    return Judgment(sample_id=sample_id, mode="correctness", verdict=LabelVerdict(label=label), shown=(shown,))


ANNOTATION_NEEDS = ("instruction", "output_1", "output_2", "preference")


def read_alpaca_eval(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """AlpacaEval's annotations."""
    yield from converted_annotations(files, _annotation, on_reject)


def _annotation(row: Row, row_id: str) -> PublishedJudgment:
    """One annotation; the order in which its judge saw the outputs was drawn at random and is not recorded."""
    sample, label = alpaca_eval_sample(row), alpaca_eval_label(row, False)
    if label is None or label.winner is None:
        failure = Unparsed("off_grammar", "", "no preference in the published file")
        judgment = Judgment(sample_id=row_id, mode="pair", verdict=None, shown=(), failure=failure)
    else:
        soft = label.preference is not None and label.preference not in (0.0, 0.5, 1.0)
        judgment = Judgment(
            sample_id=row_id,
            mode="pair",
            verdict=PairVerdict(winner=label.winner),
            shown=(),
            probability=label.preference if soft else None,
        )
    annotator = row.data.get("annotator")
    return PublishedJudgment(
        judgment=judgment,
        judge=None if annotator is None else str(annotator),
        fields=row.data,
        texts=(sample.question, *sample.answers),
        location=location_of(row),
    )


PAIR_NEEDS = ("question_id", "model_1", "model_2", "g1_winner", "g2_winner")
SINGLE_NEEDS = ("question_id", "model", "judge", "judgment", "score")
_UNREADABLE = -1


def read_fastchat_pair(row: Row) -> PublishedJudgment:
    """Both games of a pair, put in the order of the models' names, which is that of the imported rows."""
    needs = ", ".join(PAIR_NEEDS)
    models = (text_field(row, "model_1", needs), text_field(row, "model_2", needs))
    places = {model: index for index, model in enumerate(sorted(models))}
    if len(places) < 2:
        raise field_error(row, "model_2", f"is {models[1]!r} as model_1; a pair has two models")
    first_shown: Order = GIVEN if places[models[0]] == 0 else SWAPPED
    second_shown: Order = SWAPPED if first_shown == GIVEN else GIVEN
    games = [
        _fastchat_game(row, name, order, first_shown) for name, order in (("g1", first_shown), ("g2", second_shown))
    ]
    question = required_id(row, "question_id", "it names the question")
    turn = row.data.get("turn", 1)
    name = ":".join([question, *sorted(models), str(turn)])
    games.sort(key=lambda game: game.order)
    return PublishedJudgment(
        judgment=pair_judgment(name, games), judge=_fastchat_judge(row), fields=row.data, location=location_of(row)
    )


def _fastchat_game(row: Row, game: str, order: Order, models: Order) -> Game:
    """A game whose winner is named by its model, in both orders; `error` is a reply that could not be read."""
    winners: Mapping[object, Winner | None] = {"model_1": 1, "model_2": 2, "tie": "tie", "error": None}
    value = row.data.get(f"{game}_winner")
    if not isinstance(value, str) or value not in winners:
        raise field_error(row, f"{game}_winner", f"expected model_1, model_2, tie or error, got {describe(value)}")
    winner = winners[value]
    text = row.data.get(f"{game}_judgment")
    return Game(
        order=order,
        winner=winner if winner is None or models == GIVEN else flipped(winner),
        text=text if isinstance(text, str) else "",
    )


def read_fastchat_grade(row: Row) -> PublishedJudgment:
    """A grade of FastChat's single mode."""
    question = required_id(row, "question_id", "it names the question")
    score, text = number_field(row, "score"), text_field(row, "judgment", ", ".join(SINGLE_NEEDS))
    name = f"{question}:{text_field(row, 'model', 'model')}:{row.data.get('turn', 1)}"
    failure = Unparsed("off_grammar", text, "no score in the published file") if score == _UNREADABLE else None
    judgment = Judgment(
        sample_id=name,
        mode="single",
        verdict=None if failure else GradeVerdict(score=score),
        shown=(Shown(order=(0,), text=text, scores=None if failure else (score,), failure=failure),),
        scores=None if failure else (score,),
        failure=failure,
    )
    return PublishedJudgment(judgment=judgment, judge=_fastchat_judge(row), fields=row.data, location=location_of(row))


def _fastchat_judge(row: Row) -> str | None:
    """The judge's model; the prompt beside it differs by category and turn."""
    judge = row.data.get("judge")
    if isinstance(judge, list):
        return str(judge[0]) if judge else None
    return None if judge is None else str(judge)


ARENA_NEEDS = ("model", "judge", "games")
_ARENA_PLACES: Mapping[object, Winner] = {
    **{"A>B": 1, "A>>B": 1, "B<A": 1, "B<<A": 1},
    **{"B>A": 2, "B>>A": 2, "A<B": 2, "A<<B": 2},
    **{"A=B": "tie", "B=A": "tie"},
}


def read_arena_hard(row: Row) -> PublishedJudgment:
    """The games of one question: the baseline is the first answer, and shown first in the first game."""
    identifier = "uid" if row.data.get("uid") is not None else "question_id"
    question = required_id(row, identifier, "it names the question")
    games = row.data.get("games")
    if not isinstance(games, list) or not 1 <= len(games) <= 2:
        raise field_error(row, "games", f"expected one or two games, got {describe(games)}")
    model = text_field(row, "model", ", ".join(ARENA_NEEDS))
    make = partial(_arena_game, row)
    judged = [make(game, order) for game, order in zip(games, (GIVEN, SWAPPED), strict=False)]
    return PublishedJudgment(
        judgment=pair_judgment(f"{question}/{model}", judged),
        judge=text_field(row, "judge", ", ".join(ARENA_NEEDS)),
        fields=row.data,
        location=location_of(row),
    )


def _arena_game(row: Row, game: object, order: Order) -> Game:
    """A game of version 0.1 or 2; one that is null failed before it was made."""
    if not isinstance(game, dict):
        return Game(order=order, winner=None, failure="engine")
    score, judgment = game.get("score"), game.get("judgment")
    if score is not None and score not in _ARENA_PLACES:
        raise field_error(row, "score", f"expected a label such as A>B or A>>B, or null, got {describe(score)}")
    shown_winner = _ARENA_PLACES.get(score)
    text = judgment.get("answer") if isinstance(judgment, dict) else judgment
    return Game(
        order=order,
        winner=shown_winner if shown_winner is None or order == GIVEN else flipped(shown_winner),
        text=text if isinstance(text, str) else "",
    )


_UNREADABLE_REVIEW = (-1.0, -1.0)


def read_review_files(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Reviews of both orders where the files hold both, else of the order in them."""
    for indices in group_files([(Path(path).stem, Path(path)) for path in files]):
        reviews = [review for index in indices for review in read_reviews(files[index], on_reject=on_reject)]
        pairs, alone = match_orders(reviews)
        for orders in [*pairs, *((review,) for review in alone)]:
            yield _of_orders(orders)


def _of_orders(reviews: Sequence[Review]) -> PublishedJudgment:
    """The judgment of one or two reviews of the same answers, the order of the first being the given one."""
    first = reviews[0]
    games = [
        scored_game(order, review.scores, review.text) for review, order in zip(reviews, (GIVEN, SWAPPED), strict=False)
    ]
    fields = {"question_id": first.question, "answer1_id": first.answers[0], "answer2_id": first.answers[1]}
    return PublishedJudgment(
        judgment=pair_judgment(first.id or ":".join(fields.values()), games),
        judge=None,
        fields=fields | {"review_id": first.id},
        location=first.location,
    )


CHERRY_NEEDS = ("Answer1", "Answer2", "scores", "scores_reverse", "review", "review_reverse")
_CHERRY_QUESTIONS = ("text", "prompt", "instruction", "Instruction")


def read_cherry(row: Row) -> PublishedJudgment:
    """One question with its reviews in both orders; LIMA's is a list of turns, the first of which is the question."""
    needs = ", ".join(CHERRY_NEEDS)
    turns = row.data.get("conversations")
    name = next((name for name in _CHERRY_QUESTIONS if isinstance(row.data.get(name), str)), None)
    if name is None and not (isinstance(turns, list) and turns and isinstance(turns[0], str)):
        raise field_error(row, "text", f"no question; each row needs {', '.join(_CHERRY_QUESTIONS)} or conversations")
    question = str(turns[0]) if name is None and isinstance(turns, list) else text_field(row, name or "text", needs)
    answers = text_field(row, "Answer1", needs), text_field(row, "Answer2", needs)
    orders: tuple[tuple[Order, str], ...] = ((GIVEN, ""), (SWAPPED, "_reverse"))
    games = []
    for order, suffix in orders:
        scores = scores_field(row, f"scores{suffix}")
        text = text_field(row, f"review{suffix}", needs)
        games.append(scored_game(order, None if scores == _UNREADABLE_REVIEW else scores, text))
    return PublishedJudgment(
        judgment=pair_judgment(content_id(question, answers, None), games),
        judge=None,
        fields=row.data,
        texts=(question, *answers),
        location=location_of(row),
    )


MEAN_OF_ORDERS = {"name": "pair", "order_rule": "mean"}
