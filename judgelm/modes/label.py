"""Labelling of one answer with the verdict words of a prompt file, or with yes or no."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from judgelm.errors import ConfigError
from judgelm.modes.completions import judged, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.mode import check_above_zero
from judgelm.modes.multi import DECIMALS
from judgelm.modes.readings import PromptedMode, calibrated_yes, check_reading, explain_word, read_words
from judgelm.modes.reasons import Explained
from judgelm.prompts.catalog import get_template
from judgelm.records import LabelVerdict, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLabel(PromptedMode):
    """Label one answer with a prompt file whose reply is a `label`, or with `yes` or `no` for reading `yes-no`.

    The verdict is the prompt's word for `fulfilled` or `failed` in lower case, and `probability` is P(fulfilled).

    Attributes:
        threshold: minimum P(fulfilled) for the label `fulfilled`.
    """

    name: ClassVar[str] = "label"
    answers: ClassVar[tuple[int, int]] = (1, 1)
    ignores_id: ClassVar[bool] = True

    template: str = ""
    threshold: float = 0.5
    reference: Literal["auto", "use", "ignore"] = "auto"
    scale: tuple[float, float] = (0, 1)
    reasons: Explained = "none"
    tie_threshold: float = 0.0

    def __post_init__(self) -> None:
        check_above_zero(self, "reason_tokens")
        if self.prompt is None and (not self.template or get_template(self.template).reading != "yes-no"):
            raise ConfigError(
                "mode label requires a prompt file whose reply is a label (--prompt), or a judge with --reading yes-no"
            )
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold is {self.threshold}; it is a probability, from 0 to 1")
        object.__setattr__(self, "template", check_reading(self))

    @property
    def labels(self) -> tuple[str, str]:
        """The labels for `failed` and `fulfilled`."""
        if self.prompt is None:
            return "no", "yes"
        fulfilled, failed = self.prompt.reply.words
        return failed.lower(), fulfilled.lower()

    def _is_fulfilled(self, probability: float) -> bool:
        return round(probability - self.threshold, DECIMALS) >= 0

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        readout = yield from read_words(self, sample, ())
        [shown] = readout.shown
        probability = calibrated_yes(shown, self.calibration_temperature)
        verdict = None if probability is None else LabelVerdict(label=self.labels[self._is_fulfilled(probability)])
        judgment = judged(self, sample, (shown,), verdict, probability=probability, failure=readout.failure)
        return (yield from explain_word(self, judgment, readout.prompts))
