"""RM-Bench's difficulties: how far the style of an answer leads the judge away from its content."""

from collections.abc import Sequence

from judgelm.data.sources.preference_sets import DIFFICULTIES, RM_BENCH_SECTIONS
from judgelm.metrics.benchmark_scores import Scored, section_scores
from judgelm.metrics.resampling import Resampling
from judgelm.studies.benchmark.joined import JoinedJudgment, truth_of
from judgelm.studies.benchmark.orders import AuthorsReport
from judgelm.studies.pair_labels import label_of
from judgelm.studies.result import columns, table
from judgelm.studies.sentences import format_share


def style_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> AuthorsReport:
    """Accuracy by difficulty, the mean over the domains."""
    scored = [
        Scored(subset=member.subset, credit=_credit(member), cluster=member.cluster)
        for member in joined
        if member.subset in {subset for subsets in RM_BENCH_SECTIONS.values() for subset in subsets}
    ]
    sections = {
        difficulty: {f"{domain}, {difficulty}": 1.0 for domain in RM_BENCH_SECTIONS} for difficulty in DIFFICULTIES
    }
    scores = section_scores(scored, sections, resampling).sections
    difficulties = table(
        scores.items(),
        columns("text", difficulty="Difficulty"),
        columns("share", accuracy="Accuracy"),
        name="difficulties",
        title="Styles of the chosen and the rejected answer",
        source="RM-Bench, README.md and scripts/utils.py",
        note="Easy: the chosen answer has more style (longer, then with markdown) than the rejected one; normal: the "
        "same; hard: less. Each is the mean over the domains that were judged.",
    )
    by_difficulty = "; ".join(f"{difficulty} {format_share(score)}" for difficulty, score in scores.items())
    return AuthorsReport(difficulties, (f"By difficulty: {by_difficulty}.",))


def _credit(joined: JoinedJudgment) -> float:
    winner = joined.judgment.winner
    return float(winner is not None and label_of(winner) == truth_of(joined))
