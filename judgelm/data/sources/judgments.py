"""Published judgments, their formats, and functions that their readers share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Row, convert_rows
from judgelm.data.sources.source import PublishedJudgment
from judgelm.modes.pairwise import winner_of
from judgelm.records import FailureCode, Judgment, PairVerdict, Shown, Unparsed, Winner

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
