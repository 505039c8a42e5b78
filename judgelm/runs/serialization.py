"""Convert judgments to rows of a run file and back."""

import math
from collections.abc import Mapping
from typing import Any

from judgelm.jsonl import json_ready
from judgelm.records import (
    AbstainVerdict,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairDistribution,
    PairVerdict,
    RankingVerdict,
    SelfAnswer,
    Shown,
    TextHashes,
    TrajectoryMatch,
    Truncation,
    Unparsed,
    Verdict,
)

_VERDICTS: Mapping[str, type[Verdict]] = {
    "pair": PairVerdict,
    "ranking": RankingVerdict,
    "grade": GradeVerdict,
    "label": LabelVerdict,
    "abstain": AbstainVerdict,
}
_KINDS = {made: kind for kind, made in _VERDICTS.items()}


def judgment_row(judgment: Judgment) -> dict[str, Any]:
    """Return a judgment as a row of a run file. Rarely used fields are omitted if they are empty."""
    extras = {
        "decided_by": judgment.decided_by,
        "solves": [_solve_row(solve) for solve in judgment.self_answers] or None,
        "own_reference": judgment.own_reference,
        "votes": dict(judgment.votes) or None,
        "spread": judgment.spread,
        "matches": [_fields(match) for match in judgment.matches] or None,
        "hashes": None if judgment.hashes is None else _without_none(_fields(judgment.hashes)),
    }
    return {
        "id": judgment.sample_id,
        "mode": judgment.mode,
        "verdict": _verdict_row(judgment.verdict),
        "scores": judgment.scores,
        "consistent": judgment.consistent,
        "probability": judgment.probability,
        "failure": _failure_row(judgment.failure),
        "shown": [_shown_row(prompt) for prompt in judgment.shown],
        "neutralised": judgment.sanitized,
        "prompt_tokens": judgment.prompt_tokens,
        "completion_tokens": judgment.completion_tokens,
        "provenance": judgment.provenance,
    } | _without_none(extras)


def judgment_from_row(row: Mapping[str, Any]) -> Judgment:
    """Return the judgment from a row, which may be from an earlier version."""
    try:
        if not isinstance(row["id"], str):
            raise TypeError(f"id: expected a string, got {row['id']!r}")
        return Judgment(
            sample_id=row["id"],
            mode=row["mode"],
            verdict=_verdict(row["verdict"]),
            shown=tuple(map(_shown, row["shown"])),
            scores=_scores(row["scores"]),
            consistent=row["consistent"],
            probability=row["probability"],
            failure=_failure(row["failure"]),
            sanitized=row["neutralised"],
            prompt_tokens=row["prompt_tokens"],
            completion_tokens=row["completion_tokens"],
            provenance=row["provenance"],
            decided_by=row.get("decided_by"),
            self_answers=tuple(SelfAnswer(**solve) for solve in row.get("solves", ())),
            own_reference=row.get("own_reference"),
            votes=dict(row.get("votes", {})),
            spread=row.get("spread"),
            matches=tuple(TrajectoryMatch(**match) for match in row.get("matches", ())),
            hashes=hashes_of_row(row),
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(repr(error)) from error


def hashes_of_row(row: Mapping[str, Any]) -> TextHashes | None:
    """Return the text hashes from a row, or None for a row from an earlier version."""
    hashes = row.get("hashes")
    return None if hashes is None else TextHashes(**{**hashes, "answers": tuple(hashes["answers"])})


def is_judgment_row(row: Mapping[str, Any]) -> bool:
    """Return True if a row looks like a line of a run file."""
    return {"id", "mode", "verdict", "shown", "failure"} <= row.keys()


def _verdict_row(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {"kind": _KINDS[type(verdict)], **_fields(verdict)}


def _verdict(row: Mapping[str, Any] | None) -> Verdict | None:
    if row is None:
        return None
    fields = {name: value for name, value in row.items() if name != "kind"}
    if row["kind"] == "ranking":
        fields["order"] = tuple(tuple(tied) for tied in fields["order"])
    return _VERDICTS[row["kind"]](**fields)


def _fields(record: Verdict | TextHashes | Truncation | TrajectoryMatch) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _without_none(extras: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extras.items() if value is not None}


def _shown_row(shown: Shown) -> dict[str, Any]:
    extras = {
        "thinking": shown.thinking,
        "part": shown.part or None,
        "anchor": shown.anchor,
        "label": shown.label,
        "referenced": shown.referenced,
        "read_anywhere": shown.read_anywhere or None,
        "repaired": _failure_row(shown.repaired),
        "reason": shown.reason,
        "reason_failure": _failure_row(shown.reason_failure),
        "distribution": _distribution_row(shown.distribution),
        "grades": _distribution_row(shown.grades),
        "log_odds": shown.log_odds,
    }
    return {
        "order": shown.order,
        "text": shown.text,
        "scores": shown.scores,
        "failure": _failure_row(shown.failure),
        "cut": [_without_none(_fields(cut) | {"steps": cut.steps or None}) for cut in shown.truncations],
    } | _without_none(extras)


def _solve_row(solve: SelfAnswer) -> dict[str, Any]:
    return {"text": solve.text, "answer": solve.answer} | _without_none({"thinking": solve.thinking})


def _shown(row: Mapping[str, Any]) -> Shown:
    return Shown(
        order=tuple(row["order"]),
        text=row["text"],
        thinking=row.get("thinking"),
        part=row.get("part", ""),
        label=row.get("label"),
        referenced=row.get("referenced"),
        scores=_scores(row["scores"]),
        anchor=row.get("anchor"),
        failure=_failure(row["failure"]),
        read_anywhere=row.get("read_anywhere", False),
        repaired=_failure(row.get("repaired")),
        reason=row.get("reason"),
        reason_failure=_failure(row.get("reason_failure")),
        distribution=_distribution(row.get("distribution")),
        grades=_grades(row.get("grades")),
        log_odds=row.get("log_odds"),
        truncations=tuple(Truncation(**{**cut, "steps": tuple(cut.get("steps", ()))}) for cut in row["cut"]),
    )


def _distribution_row(distribution: PairDistribution | GradeDistribution | None) -> dict[str, Any] | None:
    if distribution is None:
        return None
    row: dict[str, Any] = json_ready(distribution)
    if not row["approximation"]:
        del row["approximation"]
    return row


def _distribution(row: Mapping[str, Any] | None) -> PairDistribution | None:
    if row is None:
        return None
    first, second = row["expected"]
    return PairDistribution(
        expected=(_number(first), _number(second)),
        first_better=_number(row["first_better"]),
        tie=_number(row["tie"]),
        unassigned=row["unassigned"],
        likeliest=tuple((s1, s2, probability) for s1, s2, probability in row["likeliest"]),
        approximation=row.get("approximation", ""),
    )


def _grades(row: Mapping[str, Any] | None) -> GradeDistribution | None:
    if row is None:
        return None
    return GradeDistribution(
        expected=_number(row["expected"]),
        unassigned=row["unassigned"],
        likeliest=tuple((score, probability) for score, probability in row["likeliest"]),
        approximation=row.get("approximation", ""),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _scores(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)


def _failure_row(failure: Unparsed | None) -> dict[str, str] | None:
    return None if failure is None else {"code": failure.code, "text": failure.text, "why": failure.why}


def _failure(row: Mapping[str, Any] | None) -> Unparsed | None:
    return None if row is None else Unparsed(row["code"], row["text"], row["why"])
