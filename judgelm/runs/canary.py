"""Canaries: a fixed set of pairs with one judge's verdicts and probabilities, in one JSON file.

A later check judges the same pairs again and compares (`judgelm.studies.canary`). The file holds the pairs themselves,
so that it alone is enough, and the judge's identity: model with its hash, engine, format, quantization, versions, mode.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from judgelm.data.dataset_files import write_text
from judgelm.data.readers.rows import FileUse, raise_reject
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream
from judgelm.engines.base import Engine
from judgelm.errors import EngineError, InputError
from judgelm.metrics.drift import DriftLimits
from judgelm.modes import BatchMode
from judgelm.parsing.scores import is_assigned
from judgelm.records import Judgment, Label, Sample, Shown, Winner, winner_of
from judgelm.runs.run_files import content_of_model, provenance
from judgelm.runs.runner import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPair:
    """A pair with its verdict.

    Attributes:
        label: the right verdict; None where it is not known.
        verdict: the judge's, over both orders; None for a failure.
        failure: its code.
        shown: which of the two shown is better, as given and swapped; None where that order failed.
        probabilities: P(the answer shown first is better) as given and swapped, also where each answer was judged by
            itself; None where there is none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    question: str
    answers: tuple[str, str]
    reference: str | None = None
    label: Winner | None = None
    verdict: Winner | None = None
    failure: str | None = None
    shown: tuple[Winner | None, Winner | None] = (None, None)
    probabilities: tuple[float | None, float | None] = (None, None)

    @property
    def sample(self) -> Sample:
        """The pair as it is judged."""
        return Sample(id=self.id, question=self.question, answers=self.answers, reference=self.reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Judged pairs.

    Attributes:
        judge: model, engine, mode, versions and machine, as in a manifest, without paths of files that have a hash.
        recorded: UTC, ISO 8601.
        limits: of a benign difference, for later checks.
        canary: version of the file's shape.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    judge: Mapping[str, Any]
    recorded: str
    pairs: tuple[CanaryPair, ...]
    limits: DriftLimits = field(default_factory=DriftLimits)
    canary: Literal[1] = 1


_FILE = TypeAdapter(Canary)
_LABELS: Mapping[str, Winner] = {"1": 1, "2": 2, "tie": "tie"}


def read_pairs(path: str, *, limit: int | None = None, reading: Reading = AS_WRITTEN) -> list[CanaryPair]:
    """The pairs of a file of any known format, with their labels, not judged yet.

    Raises:
        InputError: the file cannot be read, a row is no pair, or there is none.
    """
    use = FileUse(path=path, expected="a question and two answers", on_reject=raise_reject)
    stream = SampleStream([path], on_reject=use.reject, limit=limit, answers=(2, 2), reading=reading)
    pairs = [_pair(sample, label) for _, sample, (label,) in stream.labelled(use, False)]
    if not pairs:
        raise InputError(f"{path}: no pair; a canary needs at least one, better 50 or more")
    return pairs


def _pair(sample: Sample, label: Label | None) -> CanaryPair:
    first, second = sample.answers
    return CanaryPair(
        id=sample.id,
        question=sample.question,
        answers=(first, second),
        reference=sample.reference,
        label=None if label is None else label.winner,
    )


def judge_canary(
    pairs: Iterable[CanaryPair],
    mode: BatchMode,
    engine: Engine,
    *,
    limits: DriftLimits | None = None,
    on_judgment: Callable[[Judgment], None] = lambda judgment: None,
) -> Canary:
    """Judge pairs, in a mode with both orders and, where the judge has probabilities, distributions.

    Raises:
        EngineError: the engine broke, or could not judge a pair, which says nothing of the judge.
    """
    pairs = list(pairs)
    judgments = {}
    for judgment in judge((pair.sample for pair in pairs), mode, engine):
        judgments[judgment.sample_id] = judgment
        on_judgment(judgment)
    failures = [made.failure for made in judgments.values() if made.failure and made.failure.code == "engine"]
    if failures:
        why = failures[0].why or failures[0].text
        raise EngineError(
            f"canary: the engine failed on {len(failures)} of {len(pairs)} pairs ({why}); mend it and check again"
        )
    described = engine.describe()
    described["model"] = content_of_model(described["model"])
    return Canary(
        judge=json.loads(json.dumps(provenance(mode, described), default=str)),
        recorded=datetime.now(UTC).isoformat(timespec="seconds"),
        pairs=tuple(_judged(pair, judgments[pair.id]) for pair in pairs),
        limits=limits or DriftLimits(),
    )


def _judged(pair: CanaryPair, judgment: Judgment) -> CanaryPair:
    by_order = {shown.order: shown for shown in judgment.shown}
    given, swapped = by_order.get((0, 1)), by_order.get((1, 0))
    return CanaryPair(
        id=pair.id,
        question=pair.question,
        answers=pair.answers,
        reference=pair.reference,
        label=pair.label,
        verdict=judgment.winner,
        failure=None if judgment.failure is None else judgment.failure.code,
        shown=(_winner(given), _winner(swapped)),
        probabilities=_probabilities(judgment, given, swapped),
    )


def _probabilities(judgment: Judgment, given: Shown | None, swapped: Shown | None) -> tuple[float | None, float | None]:
    alone = judgment.probability
    if alone is not None and given is None and swapped is None:  # each answer was judged by itself
        return alone, 1 - alone
    return _first_better(given), _first_better(swapped)


def _winner(shown: Shown | None) -> Winner | None:
    if shown is None or shown.failure is not None:
        return None
    if shown.scores is None:
        return _LABELS.get(shown.label or "")
    first, second = shown.scores
    return winner_of((first, second))


def _first_better(shown: Shown | None) -> float | None:
    distribution = None if shown is None else shown.distribution
    return distribution.first_better if distribution is not None and is_assigned(distribution) else None


def write_canary(path: Path, canary: Canary) -> None:
    """Write a canary's file, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    write_text(path, json.dumps(asdict(canary), ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def read_canary(path: Path) -> Canary:
    """The canary in a file.

    Raises:
        InputError: it cannot be read, or is no canary.
    """
    try:
        return _FILE.validate_json(path.read_bytes())
    except OSError as error:
        record = f"record it: judgelm canary record -o {path}"
        raise InputError(f"{path}: cannot read: {error.strerror}; {record}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"{path}: no canary of judgelm: {where}: {first['msg']}; record it: judgelm canary record -o {path}"
        ) from error
