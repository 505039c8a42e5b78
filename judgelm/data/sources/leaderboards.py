"""Judgments behind leaderboards and in reviews: AlpacaEval, FastChat, Arena-Hard, Vicuna, QLoRA, Cherry LLM."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from judgelm.data.readers.fields import content_id, describe, number_field, required_id, scores_field, text_field
from judgelm.data.readers.rows import OnReject, Row, field_error
from judgelm.data.sources.alpaca_eval import converted_annotations
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
from judgelm.data.sources.layouts import alpaca_eval_label, alpaca_eval_sample
from judgelm.data.sources.reviews import Review, group_files, match_orders, read_reviews
from judgelm.data.sources.source import PublishedJudgment
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Shown, Unparsed, Winner

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
