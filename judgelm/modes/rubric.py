"""One answer, rated on the dimensions of a rubric: the judge reasons, then names a level.

Source: Play Favorites, section 4.2 and appendix D; scores are divided by their dimension's maximum as its authors do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError, not_found
from judgelm.modes.completions import read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.label_probability import ask_missing_labels
from judgelm.modes.options import check_above_zero, sampling_for
from judgelm.prompts.play_favorites import PLAY_FAVORITES
from judgelm.prompts.rubric import Dimension, Scale, scale_of, scales_sha
from judgelm.records import GradeVerdict, Judgment, Request, Sample, Shown, Unparsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """Rate one answer.

    Each dimension is a request of its own, and an entry of `shown`: `part` is the dimension, `label` the level that
    the reply ends in, `scores` its score on the dimension's own scale. A level without a score ("not applicable") is a
    missing value: it has a label and no score, and is no failure. The verdict is a `GradeVerdict`: the mean, over the
    dimensions that have a score, of the score divided by the dimension's highest, so at most 1. A judgment fails where
    a dimension failed, and where no dimension has a score.

    Attributes:
        dimensions: which to ask for, of the user's own and the paper's six (`completeness`, `conciseness`,
            `logical_robustness`, `logical_correctness`, `helpfulness`, `faithfulness`). None named is all of the
            user's own, or without any all six.
        rubric: the user's own dimensions by name; `configs/judge/rubric.yaml` is an example.
        accept_missing: where some dimensions failed, take the mean of the others instead of failing.
        retry_unparseable: ask for the most probable level behind a reply that has no readable one.
        chat: one user message for the tokenizer's chat template; else plain text, for base models.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for a reply, its reasoning included.

    Raises:
        ConfigError: a dimension that does not exist, is named twice, or has the name of one of the paper's.
    """

    name: ClassVar[str] = "rubric"
    retry_needs_grammar: ClassVar[bool] = False
    reference: ClassVar[Literal["ignore"]] = "ignore"
    answers: ClassVar[tuple[int, int]] = (1, 1)

    dimensions: tuple[str, ...] = ()
    rubric: Mapping[str, Dimension] = field(default_factory=dict)
    accept_missing: bool = False
    retry_unparseable: bool = False
    chat: bool = True
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 512

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens")
        if taken := sorted(self.rubric.keys() & PLAY_FAVORITES.keys()):
            raise ConfigError(f"rubric {taken[0]}: the paper's dimension has this name; choose another")
        known = [*self.rubric, *PLAY_FAVORITES]
        for name in self.dimensions:
            if name not in known:
                raise not_found("dimension", name, known)
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ConfigError(f"dimensions {', '.join(self.dimensions)}: one is named twice; ask for each once")

    @property
    def template(self) -> str:
        """`play-favorites`, or `own-rubric` where a dimension is the user's."""
        return "play-favorites" if all(scale.name in PLAY_FAVORITES for scale in self.scales()) else "own-rubric"

    @property
    def template_sha(self) -> str:
        """Hash of the prompts and levels of the dimensions asked for."""
        return scales_sha(self.scales())

    def scales(self) -> list[Scale]:
        """The dimensions asked for, in the order asked."""
        names = self.dimensions or tuple(self.rubric) or tuple(PLAY_FAVORITES)
        return [scale_of(name, self.rubric[name]) if name in self.rubric else PLAY_FAVORITES[name] for name in names]

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Ask for all dimensions at once and conclude.

        Raises:
            InputError: the sample has not exactly one answer.
        """
        if len(sample.answers) != 1:
            raise InputError(f"sample {sample.id}: expected 1 answer, got {len(sample.answers)}; use another mode")
        scales = self.scales()
        sampling = sampling_for(self, sample.id, self.max_tokens)
        prompts = [scale.prompt(sample, chat=self.chat) for scale in scales]
        completions = yield [
            Request(key=scale.name, prompt=prompt, sampling=sampling)
            for scale, prompt in zip(scales, prompts, strict=True)
        ]
        shown = [
            replace(read_reply(completion, scale.read, max_tokens=self.max_tokens), part=scale.name)
            for scale, completion in zip(scales, completions, strict=True)
        ]
        if self.retry_unparseable:
            words = [{level: level for level in scale.levels} for scale in scales]
            shown = yield from ask_missing_labels(
                shown, prompts, words, max_tokens=self.max_tokens, form=("Answer: ", "")
            )
        return self._conclude(
            sample, scales, [_scored(scale, reply) for scale, reply in zip(scales, shown, strict=True)]
        )

    def _conclude(self, sample: Sample, scales: Sequence[Scale], shown: Sequence[Shown]) -> Judgment:
        shares = [
            reply.scores[0] / scale.maximum
            for scale, reply in zip(scales, shown, strict=True)
            if reply.scores is not None
        ]
        failures = [(reply.part, reply.failure) for reply in shown if reply.failure is not None]
        failure = None
        if failures and not (shares and self.accept_missing):
            part, first = failures[0]
            failure = replace(first, why=f"{part}: {first.why}")
        elif not shares:
            why = "every dimension was answered with a level that has no score"
            failure = Unparsed("out_of_range", "", why)
        grade = None if failure else (math.fsum(shares) / len(shares),)
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if grade is None else GradeVerdict(score=grade[0]),
            shown=tuple(shown),
            scores=grade,
            failure=failure,
        )


def _scored(scale: Scale, shown: Shown) -> Shown:
    """The reply with its level's score on the dimension's own scale, where it has one."""
    score = None if shown.label is None else scale.levels[shown.label]
    return shown if score is None else replace(shown, scores=(score,))
