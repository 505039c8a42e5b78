"""Self-preference of judges: for their own answers, or those of their family.

Source: QA-Judge, section 6.2, Tables 6 and 13.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from judgelm.metrics.qa import PREFERENCE_THRESHOLDS, Preference, preferences
from judgelm.studies.qa.answers import QaAnswer, QaRun
from judgelm.studies.qa.scores import Counting
from judgelm.studies.result import Bars, Table, bars, columns, table


class ModelPreference(NamedTuple):
    """Of one answering model: its judge, answers with EM 0 that every judge labelled, those left out, the shares."""

    model: str
    judge: str
    n: int
    left_out: int
    shares: tuple[Preference, ...]


def model_preferences(
    answers: Sequence[QaAnswer],
    runs: Sequence[QaRun],
    judges: Mapping[str, str],
    counting: Counting,
    *,
    without: Mapping[str, str] | None = None,
) -> list[ModelPreference]:
    """Preference of each answering model's judge for its answers.

    Args:
        answers: of all models.
        runs: one for each judge.
        judges: answering model -> the judge that may favour it; missing models and judges are skipped.
        counting: an answer that a judge gave no label is left out, or counts as called incorrect.
        without: answering model -> a judge left out of the others; None leaves out none.
    """
    by_judge = {run.judge: run for run in runs}
    rows = []
    for model in dict.fromkeys(answer.model for answer in answers):
        own = by_judge.get(judges.get(model, ""))
        left = (without or {}).get(model)
        others = [run for run in runs if own is not None and run.judge not in (own.judge, left)]
        if own is None or not others:
            continue
        false = [answer for answer in answers if answer.model == model and not answer.gate.exact]
        labels = [[counting.label(run.label(answer)) for run in (own, *others)] for answer in false]
        complete = [index for index, row in enumerate(labels) if None not in row]
        matrix = np.array([labels[index] for index in complete], dtype=bool).reshape(len(complete), 1 + len(others))
        shares = preferences(
            matrix[:, 0], matrix[:, 1:], [false[index].question for index in complete], counting.resampling
        )
        rows.append(ModelPreference(model, own.judge, len(complete), len(false) - len(complete), shares))
    return rows


def preference_table(rows: Sequence[ModelPreference], *, kind: str, source: str, note: str = "") -> Table:
    """One row for each answering model, one column for each threshold."""
    percents = [round(100 * threshold) for threshold in PREFERENCE_THRESHOLDS]
    cells = [
        (*(row.model, row.judge, row.shares[0].others, row.n, row.left_out), *(part.share for part in row.shares))
        for row in rows
    ]
    return table(
        cells,
        columns("text", model="answering model", judge="judge"),
        columns("count", others="other judges", answers="answers with EM 0", left_out="left out"),
        columns("share", ((f"threshold_{part}", f"≥ {part} % of the others say incorrect") for part in percents)),
        name=f"{kind}-preference",
        title=f"{kind.capitalize()}-preference: one judge alone says correct",
        source=source,
        note="The share of answers without exact match that the judge calls correct while at least that share of the "
        "other judges calls it incorrect; so the thresholds are cumulative. Answers that some judge gave no label are "
        f"left out. {note}".strip(),
    )


def preference_figure(rows: Sequence[ModelPreference], *, kind: str) -> Bars:
    """The shares of `preference_table`, a bar for each threshold."""
    return bars(
        {
            f"{round(100 * threshold)} % of the others say incorrect": [row.shares[index].share for row in rows]
            for index, threshold in enumerate(PREFERENCE_THRESHOLDS)
        },
        [row.model for row in rows],
        name=f"{kind}-preference-shares",
        title=f"{kind.capitalize()}-preference: answers with EM 0 that one judge alone calls correct",
        x_label="answering model",
        y_label="share of answers with EM 0",
    )
