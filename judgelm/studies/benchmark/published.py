"""Published scores of other judges on the benchmarks, with sources in `published.yaml`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from judgelm.studies.benchmark.scoring_rules import LAYOUTS
from judgelm.studies.result import Table, columns
from judgelm.yaml_files import read_yaml

_SHOWN = 5


class _PublishedScore(NamedTuple):
    judge: str
    scores: Mapping[str, float]
    source: str


@cache
def published_scores() -> dict[str, list[_PublishedScore]]:
    """Return the published scores for each benchmark."""
    file = read_yaml(Path(__file__).with_suffix(".yaml"))
    return {
        name: [
            _PublishedScore(
                row["judge"],
                {key: round(value / 100, 6) for key, value in row["scores"].items()},
                file["sources"][row["source"]],
            )
            for row in rows
        ]
        for name, rows in file["benchmarks"].items()
    }


def published_findings(benchmark: str) -> list[str]:
    """Return a sentence with the highest published overall scores."""
    judges = published_scores().get(benchmark, [])
    overall = {judge.judge: judge.scores["overall"] for judge in judges if "overall" in judge.scores}
    if not overall:
        return []
    ranked = sorted(overall.items(), key=lambda item: -item[1])[:_SHOWN]
    best = ", ".join(f"{judge} {100 * score:.1f} %" for judge, score in ranked)
    return [f"Highest overall scores among {len(overall)} published judges: {best}."]


def published_table(benchmark: str) -> Table | None:
    """Build the table of a benchmark's published scores, if any."""
    judges = published_scores().get(benchmark, [])
    sections = list(dict.fromkeys(section for judge in judges for section in judge.scores))
    if not sections:
        return None
    rows = [(judge.judge, *(judge.scores.get(section) for section in sections), judge.source) for judge in judges]
    scores = columns("share", [(section, section) for section in sections])
    return LAYOUTS.table("published", rows, *scores, *columns("text", published_in="Published in"))
