"""Judging with a checklist, in which each criterion is a yes-no question.

The score is the total weight of the criteria met, divided by the sum of the positive weights.

Source: HealthBench (Arora et al. 2025; `hard` is `calculate_score` in openai/simple-evals), Rubrics as Rewards (Gunjal
et al. 2025), WildBench (Lin et al. 2024), and TICK (Cook et al. 2024).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from judgelm.bounds import read_text
from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import judged, with_usage
from judgelm.modes.flow import Flow, RequestFlow, interleave
from judgelm.modes.mode import BatchMode
from judgelm.modes.multi import compared
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.readings import calibrated_yes, read_words
from judgelm.records import GradeVerdict, HeadTerms, Sample, Shown, Verdict
from judgelm.yaml_files import MAX_YAML_BYTES, parse_yaml

CRITERIA_FIELD = "criteria"
"""Name of the field with a row's criteria, both in input files and in a sample's `metadata`."""

_FORM = '["...", {"text": "...", "weight": 2}]'


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Criterion:
    """One criterion in a checklist.

    Attributes:
        text: what an answer should do, phrased so that the judge can answer yes or no.
        met: in a labelled row, whether the answer meets the criterion; the judge does not see it.
        weight: any finite number except 0.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    text: str
    weight: float = 1.0
    met: bool | None = None

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ConfigError("a criterion is empty; describe it in words or remove it")
        if not math.isfinite(self.weight) or self.weight == 0:
            raise ConfigError(f"criterion {self.text!r:.60}: weight is {self.weight:g}; it must be finite and not 0")

    def __repr__(self) -> str:
        return self.text if self.weight == 1 else f"[{self.weight:g}] {self.text}"


def parse_criteria(value: object) -> tuple[Criterion, ...]:
    """Parse a list of strings or of objects with `text` and `weight`, or the same list as JSON or YAML text.

    Raises:
        ConfigError: the format is wrong, a criterion is duplicated, or no weight is positive.
    """
    items = parse_yaml(value) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise ConfigError(f"expected a list of criteria, got {value!r:.60}; write {_FORM}")
    criteria = tuple(map(_criterion, items))
    texts = [criterion.text for criterion in criteria]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise ConfigError(f"criterion {twice!r:.60} occurs twice; remove one")
    if all(criterion.weight < 0 for criterion in criteria):
        raise ConfigError("no criterion has a weight above 0; add one that does")
    return criteria


def _criterion(item: object) -> Criterion:
    if isinstance(item, Criterion):
        return item
    fields = {"text": item} if isinstance(item, str) else item
    if not isinstance(fields, Mapping) or not {"text"} <= fields.keys() <= {"text", "weight", "met"}:
        raise ConfigError(f"expected a criterion, got {item!r:.60}; write {_FORM}")
    text, weight = fields["text"], fields.get("weight")
    weight = 1 if weight is None else weight  # struct columns contain null for a missing weight
    if not isinstance(text, str) or isinstance(weight, bool) or not isinstance(weight, int | float):
        raise ConfigError(f"expected a string with a numeric weight, got {item!r:.60}; write {_FORM}")
    met = fields.get("met")
    if met is not None and not isinstance(met, bool):
        raise ConfigError(f"criterion {text!r:.60}: met is {met!r:.20}; write true or false")
    return Criterion(text=text, weight=float(weight), met=met)


def read_criteria(path: Path) -> tuple[Criterion, ...]:
    """Load criteria from a YAML or JSON list, or from a text file with one criterion per line."""
    try:
        text = read_text(path, MAX_YAML_BYTES)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return parse_criteria(parse_yaml(text) if path.suffix.lower() in (".yaml", ".yml", ".json") else lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the file as UTF-8 text: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist(BatchMode):
    """Judge answers against yes-no criteria.

    `shown` has one entry per answer and criterion: `part` is the criterion, and `scores` contains P(yes). The
    judgment's `scores` are the weighted shares of criteria met. One answer is graded, two are compared as a pair, and
    three or more are ranked. If a reply is unparseable, the judgment fails; the reply never counts as a no.

    Attributes:
        criteria: criteria for all samples; a `criteria` field in a row overrides them.
        hard: count a criterion as fully met if P(yes) is at least 0.5, instead of counting P(yes) itself.
        heads: for judges with a linear head for each criterion, how its output becomes a score, by criterion.
        calibration_temperature: divides the log-odds of yes.
        tie_margin: maximum difference between the scores of two answers that counts as a tie.
    """

    name: ClassVar[str] = "checklist"
    answers: ClassVar[tuple[int, int | None]] = (1, None)
    template: ClassVar[str] = "checklist"
    scale: ClassVar[tuple[float, float]] = (0, 1)
    shown_fields: ClassVar[tuple[str, ...]] = (CRITERIA_FIELD,)
    protocol: ClassVar[str] = (
        "Each answer was judged separately against a checklist; the answer with the higher weighted share is better"
    )

    criteria: tuple[str | Criterion, ...] = ()
    hard: bool = False
    tie_margin: float = 0.0
    calibration_temperature: float = 1.0
    heads: Mapping[str, HeadTerms] = field(default_factory=dict)
    reference: Literal["auto", "use", "ignore"] = "auto"

    def __post_init__(self) -> None:
        if self.criteria:
            object.__setattr__(self, "criteria", parse_criteria(self.criteria))
        if not 0 <= self.tie_margin <= 1:
            raise ConfigError(f"tie_margin is {self.tie_margin}; it must be between 0 and 1")

    def check(self, sample: Sample) -> None:
        """Check that a sample has valid criteria."""
        BatchMode.check(self, sample)
        self.criteria_of(sample)

    def criteria_of(self, sample: Sample) -> tuple[Criterion, ...]:
        """Return the sample's criteria, or else the mode's criteria."""
        own = sample.metadata.get(CRITERIA_FIELD)
        if own is None and not self.criteria:
            raise InputError(f"sample {sample.id}: no criteria; add `criteria` to each row, or use --criteria FILE")
        try:
            criteria = parse_criteria(self.criteria if own is None else own)
        except ConfigError as error:
            raise InputError(f'sample {sample.id}: field "{CRITERIA_FIELD}": {error}') from error
        if self.heads and (unknown := [each.text for each in criteria if each.text not in self.heads]):
            finding = f"this judge was tuned with labels for other criteria than {unknown[0]!r:.60}"
            raise InputError(f"sample {sample.id}: {finding}; remove the criterion, or tune with labels for it")
        return criteria

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        criteria = self.criteria_of(sample)
        asked = [(index, criterion) for index in range(len(sample.answers)) for criterion in criteria]
        read = yield from interleave([self._ask(sample, index, criterion) for index, criterion in asked])
        failures = (replace(shown.failure, why=f"{shown.part}: {shown.failure.why}") for shown in read if shown.failure)
        failure = next(failures, None)
        shares = None if failure else tuple(self._shares(criteria, read))
        verdict: Verdict | None = None
        if shares is not None:
            verdict = GradeVerdict(score=shares[0]) if len(shares) == 1 else compared(shares, self.tie_margin)
        return judged(self, sample, read, verdict, scores=shares, failure=failure)

    def _ask(self, sample: Sample, index: int, criterion: Criterion) -> RequestFlow[Shown]:
        reading = self.question(criterion)
        readout = yield from read_words(reading, replace(sample, answers=(sample.answers[index],)), ())
        [shown] = readout.shown
        calibrated = calibrated_yes(shown, self.calibration_temperature)
        return replace(
            shown, order=(index,), part=repr(criterion), scores=None if calibrated is None else (calibrated,)
        )

    def question(self, criterion: Criterion) -> Pairwise:
        """Return the mode that asks about one criterion."""
        return Pairwise(
            template=self.template,
            criterion=criterion.text,
            scale=self.scale,
            reference=self.reference,
            head=self.heads.get(criterion.text),
        )

    def _shares(self, criteria: Sequence[Criterion], read: Sequence[Shown]) -> Iterator[float]:
        whole = math.fsum(max(criterion.weight, 0) for criterion in criteria)
        for begin in range(0, len(read), len(criteria)):
            values = [shown.scores[0] for shown in read[begin : begin + len(criteria)] if shown.scores]
            met = [float(value >= 0.5) for value in values] if self.hard else values
            yield math.fsum(each.weight * value for each, value in zip(criteria, met, strict=True)) / whole
