"""Two scores, or one verdict, and the words beside them: for clients that read scores of pairs and labels."""

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask
from judgelm.dialects.text import format_number, winner_of_two
from judgelm.records import Winner

_LOWEST, _HIGHEST = 1.0, 10.0
_APART = 0.1  # between scores that would contradict the winner


def decided_winner(case: JudgeTask, finding: JudgeResult, *, ties: bool = True) -> Winner:
    """Who wins for a client that knows ties, or for one that knows none."""
    return "tie" if ties and finding.winner == "tie" else winner_of_two(case, finding)


def consistent_scores(case: JudgeTask, finding: JudgeResult, *, ties: bool = True) -> tuple[str, str]:
    """The expected scores, of which the winner's is the higher one as the client reads them.

    The winner is a finding of its own: where expected scores say otherwise, both become their mean, 0.1 apart for a
    winner.
    """
    first, second = (round(score, 2) for score in finding.scores)
    winner = decided_winner(case, finding, ties=ties)
    if (first == second) if winner == "tie" else ((first > second) if winner == 1 else (first < second)):
        return format_number(first), format_number(second)
    middle = round((first + second) / 2, 2)
    if winner == "tie":
        return format_number(middle), format_number(middle)
    lower = min(max(middle - _APART / 2, _LOWEST), _HIGHEST - _APART)
    pair = format_number(lower + _APART), format_number(lower)
    return pair if winner == 1 else (pair[1], pair[0])


def winner_sentence(case: JudgeTask, finding: JudgeResult, *, ties: bool = True) -> str:
    """One sentence on who is better, for replies whose scores stand elsewhere."""
    winner = decided_winner(case, finding, ties=ties)
    return "Both assistants are equally good." if winner == "tie" else f"Assistant {winner} is better."


def words_and_verdict(asked: ChatRequest, words: str, verdict: str, layout: str = "{words}\n\n{verdict}") -> str:
    """A verdict and words beside it, as far as the reply has room; the verdict alone where it has none for words.

    Args:
        asked: says how many tokens a reply has; a token has one character at the least.
        words: cut at their end where they are too long.
        verdict: never cut.
        layout: where each of the two goes.
    """
    bare = layout.format(words="", verdict=verdict)
    room = len(words) if asked.max_tokens is None else asked.max_tokens - len(bare)
    words = words[: max(0, room)].rstrip()
    return layout.format(words=words, verdict=verdict) if words else verdict
