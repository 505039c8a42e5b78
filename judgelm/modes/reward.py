"""Judging with reward models, which score each answer in a single forward pass."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from judgelm.errors import ConfigError
from judgelm.modes.completions import graded, judged, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.mode import BatchMode, check_threshold
from judgelm.modes.multi import ranking
from judgelm.modes.readings import ReadingMode, check_reading, conclude_pair, read_rewards, reading_of
from judgelm.prompts.conversation import dialogue_of
from judgelm.records import RankingVerdict, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward(ReadingMode):
    """Score each answer with a reward model. Two answers are compared as a pair; three or more are ranked.

    The question and answer, or a dialogue (`turns`), are formatted with the model's chat template. Rewards have no
    fixed scale. P(first better) is the logistic function of their difference (Bradley-Terry).
    """

    name: ClassVar[str] = "reward"
    answers: ClassVar[tuple[int, None]] = (1, None)
    reference: ClassVar[Literal["ignore"]] = "ignore"
    reading: ClassVar[Literal["reward"]] = "reward"
    takes_rewards: ClassVar[bool] = True

    template: str = "reward"
    tie_threshold: float = 0.0
    calibration_temperature: float = 1.0

    def __post_init__(self) -> None:
        if reading_of(self).reading != "reward":
            raise ConfigError(f"mode reward needs a reward model, but the template is {self.template}; use --mode pair")
        check_reading(self)
        check_threshold(self, "tie_threshold")

    def check(self, sample: Sample) -> None:
        """Check that `turns` is a valid dialogue."""
        BatchMode.check(self, sample)
        dialogue_of(sample, referenced=False)

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        readout = yield from read_rewards(sample)
        if len(sample.answers) == 1:
            return graded(self, sample, readout.shown[0])
        if len(sample.answers) == 2:
            return conclude_pair(self, sample, readout)
        verdict = None if readout.strengths is None else RankingVerdict(order=ranking(readout.strengths))
        return judged(self, sample, readout.shown, verdict, scores=readout.strengths, failure=readout.failure)
