"""Rating of one answer on the dimensions of a rubric.

The six built-in dimensions use the paper's prompts, without bold, italics, and the `NA` option of the human rubric. You
can define your own dimensions in a YAML file such as `configs/judge/rubric.yaml`.

Source: Play Favorites, section 4.2, Table 3 (scales), and appendix D (prompts). As in the authors' code, each score is
divided by the maximum score of its dimension.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from judgelm.errors import ConfigError, not_found
from judgelm.modes.completions import judged, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.labels import ask_missing_labels
from judgelm.modes.mode import SampledMode, check_above_zero, sampling_for
from judgelm.parsing.verdicts import parse_level
from judgelm.prompts.catalog import ONE_ANSWER, PromptText, read_texts, sha_of
from judgelm.records import GradeVerdict, Judgment, Request, Sample, Shown, Unparsed

FORM = "Explanation: [Explanation], Answer: [Answer]"
"""How every reply must end."""

_SLOTS = ("{question}", "{answer_1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The score of a level; None if the level means `not applicable`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    score: float | None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of a custom rubric.

    Attributes:
        question: the question to ask about the answer.
        levels: scores keyed by level name. At least two levels must have scores, and the highest score must be above 0.
        best_first: list the best level first in the prompt.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    question: str
    levels: Mapping[str, Level]
    best_first: bool = False

    def __post_init__(self) -> None:
        texts = [self.question, *self.levels, *(level.description for level in self.levels.values())]
        if not self.question.strip() or any(slot in text for slot in _SLOTS for text in texts):
            raise ConfigError(f"rubric question {self.question!r} must not be blank or contain {_SLOTS[0]}")
        for name in self.levels:
            named = any(character.isalnum() for character in name)
            if not named or parse_level(f"Answer: {name}", list(self.levels)) != name:
                raise ConfigError(f"rubric level {name!r} is empty or duplicates another level; rename it")
        scores = [level.score for level in self.levels.values() if level.score is not None]
        if len(scores) < 2 or len(set(scores)) < len(scores) or not all(math.isfinite(score) for score in scores):
            raise ConfigError(f"rubric scores {scores}: expected two or more scores, all different")
        if max(scores) <= 0:
            raise ConfigError(f"rubric scores {scores}: the highest must be above 0, as all are divided by it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A dimension with its prompt.

    Attributes:
        text: prompt with the slots `{question}` and `{answer_1}`.
        levels: scores keyed by level, in the order of the prompt; None if a level means `not applicable`.
    """

    name: str
    text: PromptText
    levels: Mapping[str, float | None]

    @property
    def maximum(self) -> float:
        """The highest score; all scores are divided by it."""
        return max(score for score in self.levels.values() if score is not None)


def scale_of(name: str, dimension: Dimension) -> Scale:
    """Return a prompt for a custom dimension in the paper's format."""
    ordered = sorted(
        dimension.levels.items(),
        key=lambda item: (item[1].score is None, (item[1].score or 0) * (-1 if dimension.best_first else 1)),
    )
    described = [f"- {name}: {level.description}" for name, level in ordered if level.description]
    meanings = "\n".join(["The answers mean:", "", *described, "", ""]) if described else ""
    text = (
        "You are given a task in some context (Input), and a candidate answer.\n\n"
        "Task: {question}\n\nCandidate Response: {answer_1}\n\n"
        f"Instruction: {dimension.question.strip()}\n\n{meanings}"
        f"First explain your reasoning, then provide your final answer. Use the following format:\n\n{FORM}\n\n"
        "where [Answer] is one of:\n\n" + "\n".join(name for name, _ in ordered)
    )
    return Scale(name=name, text=_prompt_text(text), levels={name: level.score for name, level in ordered})


def _prompt_text(text: str) -> PromptText:
    return PromptText(
        text=text, kinds=ONE_ANSWER, delimiters=("Candidate Response:", "Instruction:", FORM), after="\n\n"
    )


def scales_sha(scales: Sequence[Scale]) -> str:
    """Return the SHA-256 (hex) of names, prompts, and scores."""
    return sha_of([[scale.name, scale.text.text, list(scale.levels.items())] for scale in scales])


def _papers(name: str, fields: Mapping[str, Any]) -> Scale:
    levels = fields["levels"]
    worst_first = levels[::-1] if fields.get("best_first") else levels
    scores = {level: float(worst_first.index(level) + 1) for level in levels}
    return Scale(name=name, text=_prompt_text(fields["text"]), levels=scores)


_TEXTS = read_texts(Path(__file__).with_name("play_favorites.toml"))
PLAY_FAVORITES = {name: _papers(name, fields) for name, fields in _TEXTS.items()}
"""The paper's dimensions by name, in the order of Table 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric(SampledMode):
    """Rate one answer.

    `shown` has one entry per dimension: `part` is the dimension, `label` the level, and `scores` its score. Each score
    is divided by its dimension's maximum, and the verdict is the mean over the dimensions with a score. The judgment
    fails if any dimension fails or if no dimension has a score.

    Attributes:
        dimensions: names of dimensions in `rubric` or in the paper (`completeness`, `conciseness`,
            `logical_robustness`, `logical_correctness`, `helpfulness`, `faithfulness`). The default is all dimensions
            in `rubric`, or all six from the paper if `rubric` is empty.
        rubric: custom dimensions, keyed by name; see `configs/judge/rubric.yaml`.
        accept_missing: if some dimensions fail, use the mean of the remaining ones instead of failing.
    """

    name: ClassVar[str] = "rubric"
    reasons_first: ClassVar[bool] = True
    retry_needs_grammar: ClassVar[bool] = False
    reference: ClassVar[Literal["ignore"]] = "ignore"
    answers: ClassVar[tuple[int, int]] = (1, 1)

    dimensions: tuple[str, ...] = ()
    rubric: Mapping[str, Dimension] = field(default_factory=dict)
    accept_missing: bool = False
    retry_unparseable: bool = False
    chat: bool = True
    max_tokens: int = 512

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens")
        if taken := sorted(self.rubric.keys() & PLAY_FAVORITES.keys()):
            raise ConfigError(
                f"rubric {taken[0]}: one of the paper's dimensions already has this name; choose a different one"
            )
        known = [*self.rubric, *PLAY_FAVORITES]
        for name in self.dimensions:
            if name not in known:
                raise not_found("dimension", name, known)
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ConfigError(f"dimensions {', '.join(self.dimensions)}: one is listed twice; remove it")

    @property
    def template(self) -> str:
        """`play-favorites`, or `own-rubric` if any dimension is custom."""
        return "play-favorites" if all(scale.name in PLAY_FAVORITES for scale in self.scales()) else "own-rubric"

    @property
    def template_sha(self) -> str:
        """Hash of the dimensions' prompts and levels."""
        return scales_sha(self.scales())

    def scales(self) -> list[Scale]:
        """Return the dimensions in judging order."""
        names = self.dimensions or tuple(self.rubric) or tuple(PLAY_FAVORITES)
        return [scale_of(name, self.rubric[name]) if name in self.rubric else PLAY_FAVORITES[name] for name in names]

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        scales = self.scales()
        sampling = sampling_for(self, sample.id, self.max_tokens)
        values = {"question": sample.question, "answer_1": sample.answers[0]}
        prompts = [scale.text.render(values, chat=self.chat) for scale in scales]
        asked = zip(scales, prompts, strict=True)
        completions = yield [Request(key=scale.name, prompt=prompt, sampling=sampling) for scale, prompt in asked]
        shown = []
        for scale, completion in zip(scales, completions, strict=True):
            parse = partial(parse_level, levels=list(scale.levels))
            shown.append(replace(read_reply(completion, parse, max_tokens=self.max_tokens), part=scale.name))
        if self.retry_unparseable:
            words = [{level: level for level in scale.levels} for scale in scales]
            form = ("Answer: ", "")
            shown = yield from ask_missing_labels(shown, prompts, words, max_tokens=self.max_tokens, form=form)
        shown = [_scored(scale, reply) for scale, reply in zip(scales, shown, strict=True)]
        return self._conclude(sample, scales, shown)

    def _conclude(self, sample: Sample, scales: Sequence[Scale], shown: Sequence[Shown]) -> Judgment:
        maxima = [scale.maximum for scale in scales]
        shares = [reply.scores[0] / most for most, reply in zip(maxima, shown, strict=True) if reply.scores is not None]
        failures = [(reply.part, reply.failure) for reply in shown if reply.failure is not None]
        failure = None
        if failures and not (shares and self.accept_missing):
            part, first = failures[0]
            failure = replace(first, why=f"{part}: {first.why}")
        elif not shares:
            failure = Unparsed("out_of_range", "", "no dimension was rated at a level with a score")
        grade = None if failure else (math.fsum(shares) / len(shares),)
        verdict = None if grade is None else GradeVerdict(score=grade[0])
        return judged(self, sample, shown, verdict, scores=grade, failure=failure)


def _scored(scale: Scale, shown: Shown) -> Shown:
    score = None if shown.label is None else scale.levels[shown.label]
    return shown if score is None else replace(shown, scores=(score,))
