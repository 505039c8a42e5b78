"""Scores of other judges on the benchmarks, as published; only those whose source was read, which is named with each.

Published protocols differ in what they do not state (prompts, orders, samples drawn), so a small gap between a run and
a published score means little.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from judgelm.studies.result import Kind, Table, columns, table

OVERALL = "overall"


class PublishedScore(NamedTuple):
    """A judge's published scores by section: shares in [0, 1], of JUDGE-BENCH Spearman's correlations."""

    judge: str
    scores: Mapping[str, float]
    source: str


_RM_R1 = "RM-R1-UIUC/RM-R1 at d4c2542, eval/result/"
_COMPASS = "open-compass/CompassJudger at 9cdf659, README.md (measured by its authors)"
_SKYWORK = "SkyworkAI/Skywork-Reward at 03c205f, README.md (RewardBench's leaderboard of September 2024)"
_JUDGE_BENCH = "dmg-illc/JUDGE-BENCH at 5a0bf50, results/models_per_dataset_score.tex"


def _percent(judge: str, source: str, **scores: float) -> PublishedScore:
    """Scores in percent, their sections' blanks written as underscores."""
    named = {name.replace("_", " "): round(value / 100, 6) for name, value in scores.items()}
    return PublishedScore(judge, named, source)


def _compass(column: int) -> tuple[PublishedScore, ...]:
    """A column of CompassJudger's table of judges: 0 JudgeBench, 1 RMB, 2 RewardBench."""
    rows = {
        "Qwen2.5-7B-Instruct": (23.23, 69.03, 79.69),
        "Llama3.1-8B-Instruct": (33.23, 66.01, 73.64),
        "Qwen2.5-32B-Instruct": (59.84, 74.99, 85.61),
        "DeepSeek-V3-0324": (59.68, 78.16, 85.17),
        "Qwen3-235B-A22B": (65.97, 75.59, 84.68),
        "CompassJudger-1-7B-Instruct": (46.00, 38.18, 80.74),
        "Con-J-7B-Instruct": (38.06, 71.50, 87.10),
        "RISE-Judge-Qwen2.5-7B": (40.48, 72.64, 88.20),
        "CompassJudger-2-7B-Instruct": (63.06, 73.90, 90.96),
        "CompassJudger-1-32B-Instruct": (62.29, 77.63, 86.17),
        "RISE-Judge-Qwen2.5-32B": (63.87, 73.70, 92.70),
        "CompassJudger-2-32B-Instruct": (65.48, 72.98, 92.62),
    }
    return tuple(_percent(judge, _COMPASS, overall=values[column]) for judge, values in rows.items())


_JUDGES = ("GPT-4o", "Llama-3.1-70B", "Mixtral-8x22B", "Gemini-1.5", "Mixtral-8x7B", "Command R+")
_GRADED: Mapping[str, tuple[float, ...]] = {
    "dailydialog": (0.69, 0.60, 0.55, 0.63, 0.63, 0.52),
    "switchboard": (0.66, 0.45, 0.63, 0.59, 0.56, 0.36),
    "persona-chat": (0.22, -0.02, 0.16, 0.10, 0.02, 0.07),
    "topical-chat": (0.26, 0.28, 0.13, 0.17, 0.21, 0.14),
    "recipe-crowd-sourcing-data": (0.78, 0.66, 0.60, 0.67, 0.57, 0.32),
    "roscoe-cosmos": (0.57, 0.55, 0.51, 0.57, 0.53, 0.33),
    "roscoe-drop": (0.57, 0.59, 0.44, 0.44, 0.32, 0.21),
    "roscoe-esnli": (0.49, 0.40, 0.38, 0.35, 0.32, 0.09),
    "roscoe-gsm8k": (0.82, 0.83, 0.81, 0.81, 0.79, 0.68),
    "newsroom": (0.59, 0.59, 0.44, 0.55, 0.50, 0.36),
    "summeval": (0.35, 0.44, 0.54, 0.38, 0.48, 0.19),
    "wmt-23-en-de": (0.22, 0.14, 0.23, 0.16, 0.17, 0.22),
    "wmt-23-zh-en": (0.17, 0.14, 0.19, 0.14, 0.15, 0.15),
    "wmt-human-en-de": (0.63, 0.37, 0.51, 0.46, 0.20, 0.42),
    "wmt-human-zh-en": (0.54, 0.39, 0.48, 0.41, 0.25, 0.42),
}
"""Means over graded properties, with two digits as printed; columns as `_JUDGES`."""

PUBLISHED: Mapping[str, tuple[PublishedScore, ...]] = {
    "rewardbench": (
        _percent("Skywork-Reward-Gemma-2-27B", _SKYWORK, overall=93.8, Chat=95.8, Chat_Hard=91.4, Safety=92.0,
                 Reasoning=96.1),
        _percent("Skywork-Reward-Llama-3.1-8B", _SKYWORK, overall=92.5, Chat=95.8, Chat_Hard=87.3, Safety=90.6,
                 Reasoning=96.2),
        _percent("RM-R1-DeepSeek-Distilled-Qwen-32B", _RM_R1, overall=90.85, Chat=95.25, Chat_Hard=80.26, Safety=91.08,
                 Reasoning=96.81),
        _percent("RM-R1-Qwen2.5-Instruct-32B", _RM_R1, overall=91.37, Chat=95.25, Chat_Hard=83.11, Safety=91.89,
                 Reasoning=95.21),
        *_compass(2),
    ),
    "judgebench": _compass(0),
    "rmb": (
        _percent("RM-R1-Qwen2.5-Instruct-32B", _RM_R1, overall=73.01, Helpfulness_BoN=65.05, Helpfulness_Pairwise=80.17,
                 Harmlessness_BoN=66.25, Harmlessness_Pairwise=80.58),
        _percent("RM-R1-DeepSeek-Distilled-Qwen-32B", _RM_R1, overall=69.77, Helpfulness_BoN=61.97,
                 Helpfulness_Pairwise=78.54, Harmlessness_BoN=61.78, Harmlessness_Pairwise=76.80),
        *_compass(1),
    ),
    "rm-bench": (
        _percent("RM-R1-DeepSeek-Distilled-Qwen-32B", _RM_R1, overall=83.88, Chat=74.16, Math=91.81, Code=74.12,
                 Safety=95.44, easy=89.49, normal=85.45, hard=76.70),
        _percent("RM-R1-Qwen2.5-Instruct-32B", _RM_R1, overall=79.24, Chat=76.49, Math=80.55, Code=66.08, Safety=93.83,
                 easy=86.71, normal=80.51, hard=70.49),
        _percent("DPSK-R1", "THU-KEG/RM-Bench at 73c52d7, README.md", overall=85.28, Chat=84.24, Math=93.59, Code=72.66,
                 Safety=90.65, hard=80.24),
    ),
    "judge-bench-nlp": tuple(
        PublishedScore(judge, {data_set: values[index] for data_set, values in _GRADED.items()}, _JUDGE_BENCH)
        for index, judge in enumerate(_JUDGES)
    ),
}  # fmt: skip
"""By benchmark; one that is not here has none that was read."""


_SHOWN = 5


def published_findings(benchmark: str, subsets: Collection[str]) -> list[str]:
    """Sentences with the highest published overall scores, or of JUDGE-BENCH all of each data set of the run."""
    judges = PUBLISHED.get(benchmark, ())
    if benchmark == "judge-bench-nlp":
        data_sets = [name for name in _GRADED if name in subsets]
        return [
            f"{name}, published: {', '.join(f'{judge.judge} {judge.scores[name]:.2f}' for judge in judges)}."
            for name in data_sets
        ]
    ranked = sorted((judge for judge in judges if OVERALL in judge.scores), key=lambda judge: -judge.scores[OVERALL])
    if not ranked:
        return []
    best = ", ".join(f"{judge.judge} {100 * judge.scores[OVERALL]:.1f} %" for judge in ranked[:_SHOWN])
    return [f"Published overall, the highest of {len(ranked)} that were read: {best}."]


def published_table(benchmark: str, subsets: Collection[str]) -> Table | None:
    """Published scores of judges on a benchmark; None where there are none.

    Args:
        benchmark: its name.
        subsets: those of the run; of JUDGE-BENCH only its data sets among them are shown.
    """
    judges = PUBLISHED.get(benchmark, ())
    correlations = benchmark == "judge-bench-nlp"
    sections = list(dict.fromkeys(section for judge in judges for section in judge.scores))
    if correlations:
        sections = [section for section in sections if section in subsets]
    if not judges or not sections:
        return None
    kind: Kind = "number" if correlations else "share"
    return table(
        [(judge.judge, *(judge.scores.get(section) for section in sections), judge.source) for judge in judges],
        columns("text", judge="Judge"),
        columns(kind, [(section, section) for section in sections]),
        columns("text", published_in="Published in"),
        name="published",
        title="Published scores of other judges",
        note="As printed there; empty where none is. Published protocols differ in prompts and orders from each other "
        "and from this run, so small differences mean little.",
    )
