"""Drives many flows over one engine at once, and writes a judgment as a row of a run file.

As a flow's last completion arrives its next requests go in, so the engine's batch never drains at the end of a round;
at most `engine.max_in_flight` requests are in flight, so memory stays bounded for inputs of any length.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from judgelm.data.judged_texts import text_hashes
from judgelm.engines.base import Engine
from judgelm.modes.flow import Flow, RequestFlow, Result
from judgelm.modes.mode import Mode
from judgelm.modes.thinking import separate_thinking
from judgelm.parsing.thinking import reply_so_far
from judgelm.records import (
    Completion,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairDistribution,
    PairVerdict,
    RankingVerdict,
    Request,
    Sample,
    SelfAnswer,
    Shown,
    TextHashes,
    TrajectoryMatch,
    Truncation,
    Unparsed,
    Verdict,
)

_POLL_S = 0.5

Item = TypeVar("Item")
"""The item that a flow is started for."""

Listener = Callable[[Request, str], None]
"""Called with a request and the first reply to it so far, from its beginning, without thinking."""


@dataclass(frozen=True, slots=True)
class _Finished(Generic[Result]):
    """The result of a flow."""

    result: Result


class _Running(Generic[Item, Result]):
    """A flow that waits for completions, which come in any order."""

    __slots__ = ("flow", "item", "missing", "received", "requests")

    def __init__(self, item: Item, flow: RequestFlow[Result]) -> None:
        self.item = item
        self.flow = flow
        self.requests: list[Request] = []
        self.received: list[Completion | None] = []
        self.missing = 0

    def expect(self, flow_index: int, requests: list[Request]) -> list[Request]:
        """The requests, their keys unique in the engine."""
        self.received = [None] * len(requests)
        self.missing = len(requests)
        self.requests = [replace(request, key=f"{flow_index}:{index}") for index, request in enumerate(requests)]
        return self.requests


def judge(samples: Iterable[Sample | None], mode: Mode, engine: Engine) -> Iterator[Judgment]:
    """Judge samples and yield each judgment as soon as it is finished, in any order; see `drive`.

    Judgments have the hashes of their samples' texts.
    """

    def begin(sample: Sample) -> Flow:
        hashes = text_hashes(sample)
        judgment = yield from mode(sample)
        return replace(judgment, hashes=hashes)

    return drive(samples, begin, engine)


def drive(
    items: Iterable[Item | None],
    begin: Callable[[Item], RequestFlow[Result]],
    engine: Engine,
    *,
    unwanted: Callable[[], Iterable[Item]] = tuple,
    listener: Callable[[Item], Listener | None] | None = None,
    poll_s: float = _POLL_S,
) -> Iterator[Result]:
    """Start a flow for each item and yield its result as soon as it is finished, in any order.

    Closing the iterator early aborts the requests in flight. Items are read only as the engine has room for them. A
    source that has no item at the moment yields None, and the engine continues with its requests.

    Args:
        items: to start flows for.
        begin: makes an item's flow.
        engine: answers the requests.
        unwanted: gives cancelled items, by identity; their flows are closed without a result.
        listener: gives an item's listener, where its replies are streamed.
        poll_s: maximum time that the engine works or waits before the source is read again.

    Raises:
        EngineError: the engine as a whole broke; results yielded before are valid.
    """
    source = enumerate(items)
    end: tuple[int, Item | None] = (-1, None)
    running: dict[int, _Running[Item, Result]] = {}
    in_flight = 0
    more = True
    try:
        while more or running:
            outgoing: list[Request] = []
            while more and in_flight + len(outgoing) < engine.max_in_flight:
                index, item = next(source, end)
                if item is None:
                    more = index >= 0
                    break
                state = _Running(item, separate_thinking(begin(item), engine.thinking))
                step = _advance(state, None)
                if isinstance(step, _Finished):
                    yield step.result
                    continue
                running[index] = state
                outgoing += state.expect(index, step)
            in_flight += len(outgoing)
            if outgoing:
                engine.submit(outgoing)
            in_flight -= _forget(running, unwanted(), engine)
            for completion in engine.collect(poll_s if running else 0.0):  # an idle cluster replaces lost workers
                in_flight -= 1
                received = _receive(running, completion)
                if isinstance(received, _Finished):
                    yield received.result
                elif received:
                    in_flight += len(received)
                    engine.submit(received)
            if listener is not None:
                _notify(running, listener, engine)
    finally:
        engine.abort(_keys(running))


def _keys(running: Mapping[int, _Running[Any, Any]]) -> list[str]:
    """The keys of all requests of these flows, answered or not."""
    return [request.key for state in running.values() for request in state.requests]


def _notify(
    running: Mapping[int, _Running[Item, Any]], listener: Callable[[Item], Listener | None], engine: Engine
) -> None:
    """Call the listeners with the replies so far."""
    for state in running.values():
        if (listen := listener(state.item)) is not None:
            written = engine.progress(request.key for request in state.requests)
            for request in state.requests:
                if request.key in written and not request.sampling.include_stop:  # else all of it is thinking
                    listen(request, reply_so_far(written[request.key]))


def _forget(running: dict[int, _Running[Item, Result]], items: Iterable[Item], engine: Engine) -> int:
    """Abort the running flows of these items; the number of requests in flight that this removes."""
    gone = {id(item) for item in items}
    if not gone:
        return 0
    ended = {index: running.pop(index) for index in list(running) if id(running[index].item) in gone}
    engine.abort(_keys(ended))
    for state in ended.values():
        state.flow.close()
    return sum(state.missing for state in ended.values())


def _advance(state: _Running[Item, Result], completions: list[Completion] | None) -> list[Request] | _Finished[Result]:
    """The flow's next requests, or its result."""
    try:
        return next(state.flow) if completions is None else state.flow.send(completions)
    except StopIteration as finished:
        return _Finished(finished.value)


def _receive(running: dict[int, _Running[Item, Result]], completion: Completion) -> list[Request] | _Finished[Result]:
    """Pass a completion to its flow: the result if the flow ends, else its next requests."""
    flow_index, index = (int(part) for part in completion.key.split(":"))
    state = running[flow_index]
    state.received[index] = completion
    state.missing -= 1
    if state.missing:
        return []
    step = _advance(state, [received for received in state.received if received is not None])
    if isinstance(step, _Finished):
        del running[flow_index]
        return step
    return state.expect(flow_index, step)


_VERDICTS: Mapping[str, type[Verdict]] = {
    "pair": PairVerdict,
    "ranking": RankingVerdict,
    "grade": GradeVerdict,
    "label": LabelVerdict,
}
_KINDS = {made: kind for kind, made in _VERDICTS.items()}


def judgment_row(judgment: Judgment) -> dict[str, Any]:
    """A judgment as one line of a run file; fields that few judgments have are left out where they are empty."""
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
    """The judgment of a row that `judgment_row` of this or an earlier version wrote.

    Raises:
        ValueError: the row is not a judgment; the message has the cause.
    """
    try:
        return _judgment(row)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(repr(error)) from error


def _judgment(row: Mapping[str, Any]) -> Judgment:
    if not isinstance(row["id"], str):
        raise TypeError(f"id: expected text, got {row['id']!r}")
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


def hashes_of_row(row: Mapping[str, Any]) -> TextHashes | None:
    """The hashes in a run file's row; None where an earlier version wrote it."""
    hashes = row.get("hashes")
    return None if hashes is None else TextHashes(**{**hashes, "answers": tuple(hashes["answers"])})


def is_judgment_row(row: Mapping[str, Any]) -> bool:
    """True where a row looks like a line of a run file."""
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
    """The fields of a record of plain values; `asdict` would copy each of them."""
    return {name: getattr(record, name) for name in record.__slots__}


def _without_none(extras: dict[str, Any]) -> dict[str, Any]:
    """The entries that are not None."""
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
        "distribution": None if shown.distribution is None else _distribution_row(shown.distribution),
        "grades": None if shown.grades is None else _grades_row(shown.grades),
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


def _distribution_row(distribution: PairDistribution) -> dict[str, Any]:
    """A distribution; NaN, where nothing is assigned, becomes null: JSON has no NaN."""
    row = asdict(distribution) | {"expected": [_number_row(value) for value in distribution.expected]}
    row |= {name: _number_row(row[name]) for name in ("first_better", "tie")}
    return _without_blank(row)


def _grades_row(distribution: GradeDistribution) -> dict[str, Any]:
    return _without_blank(asdict(distribution) | {"expected": _number_row(distribution.expected)})


def _without_blank(row: dict[str, Any]) -> dict[str, Any]:
    """The row without an empty approximation."""
    return row if row["approximation"] else {key: value for key, value in row.items() if key != "approximation"}


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


def _number_row(value: float) -> float | None:
    return None if math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _scores(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)


def _failure_row(failure: Unparsed | None) -> dict[str, str] | None:
    return None if failure is None else {"code": failure.code, "text": failure.text, "why": failure.why}


def _failure(row: Mapping[str, Any] | None) -> Unparsed | None:
    return None if row is None else Unparsed(row["code"], row["text"], row["why"])
