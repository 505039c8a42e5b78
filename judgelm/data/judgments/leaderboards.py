"""Judgments behind leaderboards: AlpacaEval's annotations, FastChat's pairs and grades, Arena-Hard's games."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from judgelm.data.benchmarks.alpaca_eval import converted_annotations
from judgelm.data.formats.labels import alpaca_eval_label
from judgelm.data.formats.samples import alpaca_eval_sample
from judgelm.data.judgments.base import (
    GIVEN,
    SWAPPED,
    Game,
    JudgmentFormat,
    Order,
    PublishedJudgment,
    flipped,
    location_of,
    pair_judgment,
    rows_reader,
)
from judgelm.data.readers.fields import describe, field_error, number_field, required_id, text_field
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Shown, Unparsed, Winner

_ALPACA_NEEDS = ("instruction", "output_1", "output_2", "preference")


def _alpaca_eval(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
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


_PAIR_NEEDS = ("question_id", "model_1", "model_2", "g1_winner", "g2_winner")
_SINGLE_NEEDS = ("question_id", "model", "judge", "judgment", "score")
_UNREADABLE = -1


def _fastchat_pair(row: Row) -> PublishedJudgment:
    """Both games of a pair, put in the order of the models' names, which is that of the imported rows."""
    needs = ", ".join(_PAIR_NEEDS)
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


def _fastchat_grade(row: Row) -> PublishedJudgment:
    question = required_id(row, "question_id", "it names the question")
    score, text = number_field(row, "score"), text_field(row, "judgment", ", ".join(_SINGLE_NEEDS))
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


_ARENA_NEEDS = ("model", "judge", "games")
_ARENA_PLACES: Mapping[object, Winner] = {
    **{"A>B": 1, "A>>B": 1, "B<A": 1, "B<<A": 1},
    **{"B>A": 2, "B>>A": 2, "A<B": 2, "A<<B": 2},
    **{"A=B": "tie", "B=A": "tie"},
}


def _arena_hard(row: Row) -> PublishedJudgment:
    """The games of one question: the baseline is the first answer, and shown first in the first game."""
    identifier = "uid" if row.data.get("uid") is not None else "question_id"
    question = required_id(row, identifier, "it names the question")
    games = row.data.get("games")
    if not isinstance(games, list) or not 1 <= len(games) <= 2:
        raise field_error(row, "games", f"expected one or two games, got {describe(games)}")
    model = text_field(row, "model", ", ".join(_ARENA_NEEDS))
    make = partial(_arena_game, row)
    judged = [make(game, order) for game, order in zip(games, (GIVEN, SWAPPED), strict=False)]
    return PublishedJudgment(
        judgment=pair_judgment(f"{question}/{model}", judged),
        judge=text_field(row, "judge", ", ".join(_ARENA_NEEDS)),
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


ALPACA_EVAL = JudgmentFormat(
    name="alpaca-eval",
    files="annotations.json files, or the folder of instructions.parquet, outputs.parquet and judgments.parquet",
    needs=_ALPACA_NEEDS,
    source="AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval, results/*/*/annotations.json",
    read=_alpaca_eval,
    mode={"name": "pair"},
)
FASTCHAT_PAIR = JudgmentFormat(
    name="fastchat-pair",
    files="model_judgment/gpt-4_pair.jsonl",
    needs=_PAIR_NEEDS,
    source="Zheng et al. 2023; lm-sys/FastChat, fastchat/llm_judge; winners of both games name the models",
    read=rows_reader(_PAIR_NEEDS, _fastchat_pair),
)
FASTCHAT_SINGLE = JudgmentFormat(
    name="fastchat-single",
    files="model_judgment/gpt-4_single.jsonl",
    needs=_SINGLE_NEEDS,
    source="Zheng et al. 2023; lm-sys/FastChat, fastchat/llm_judge",
    read=rows_reader(_SINGLE_NEEDS, _fastchat_grade),
    mode={"name": "single", "scale": (1, 10)},
)
ARENA_HARD = JudgmentFormat(
    name="arena-hard",
    files="model_judgment/JUDGE/MODEL.jsonl",
    needs=_ARENA_NEEDS,
    source="Arena-Hard (Li et al. 2024), lmarena/arena-hard-auto, gen_judgment.py and show_result.py",
    read=rows_reader(_ARENA_NEEDS, _arena_hard),
    unverified="written from the published code alone; no published file was at hand",
)
