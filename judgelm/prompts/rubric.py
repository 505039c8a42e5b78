"""Rubrics: a question to the judge about one answer, and the levels that its reply can end in.

A dimension of the paper (`judgelm.prompts.play_favorites`) has the paper's prompt. A user's own has the same
form: the judge explains first and ends in `Explanation: ..., Answer: ...`. It comes from a YAML file:

    tone:
      question: How friendly is the answer?
      best_first: true
      levels:
        rude: {score: 1, description: it blames or mocks the user}
        neutral: {score: 2}
        friendly: {score: 3}
        not applicable: {score: null}

Levels are shown by their scores, the lowest first, or with `best_first` the highest. A level without a score is a
missing value, never a number; such levels are shown last.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from judgelm.errors import ConfigError
from judgelm.parsing.verdicts import parse_level
from judgelm.prompts.self_reference import PromptText
from judgelm.prompts.template import sha_of
from judgelm.records import Prompt, Sample, Unparsed

FORM = "Explanation: [Explanation], Answer: [Answer]"
"""The end of every reply."""

DELIMITERS = ("Candidate Response:", "Instruction:", FORM)
"""Delimiters that close the answer's block; `Task:` alone opens nothing that a judge would score, and stays."""

_SLOTS = ("{question}", "{answer_1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The score of an answer of the judge; None is a missing value (`not applicable`)."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    score: float | None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of a user's own rubric.

    Attributes:
        question: what the judge is asked about the answer.
        levels: by the words that the judge answers with; two at least have scores, all different, the highest above 0.
        best_first: show the best level first.

    Raises:
        ConfigError: levels that cannot be told apart, or scores that make no scale.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    question: str
    levels: Mapping[str, Level]
    best_first: bool = False

    def __post_init__(self) -> None:
        texts = [self.question, *self.levels, *(level.description for level in self.levels.values())]
        if not self.question.strip() or any(slot in text for slot in _SLOTS for text in texts):
            raise ConfigError(f"rubric question {self.question!r}: it must say something, and without {_SLOTS[0]}")
        for name in self.levels:
            named = any(character.isalnum() for character in name)
            if not named or parse_level(f"Answer: {name}", list(self.levels)) != name:
                raise ConfigError(f"rubric level {name!r}: empty, or alike another one; give it a name of its own")
        scores = [level.score for level in self.levels.values() if level.score is not None]
        if len(scores) < 2 or len(set(scores)) < len(scores) or not all(math.isfinite(score) for score in scores):
            raise ConfigError(f"rubric scores {scores}: two levels at least need scores, and no two the same")
        if max(scores) <= 0:
            raise ConfigError(f"rubric scores {scores}: the highest divides them all, so it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A dimension with its prompt.

    Attributes:
        name: of the dimension.
        text: its prompt, with `{question}` and `{answer_1}`.
        levels: the judge's words -> score, None where the level is a missing value; as the prompt lists them.
    """

    name: str
    text: PromptText
    levels: Mapping[str, float | None]

    @property
    def maximum(self) -> float:
        """The highest score, which divides the others."""
        return max(score for score in self.levels.values() if score is not None)

    def prompt(self, sample: Sample, *, chat: bool) -> Prompt:
        """The question and the sample's first answer; plain text ends where the judge's explanation begins."""
        text = self.text if chat else PromptText(text=f"{self.text.text}\n\n", delimiters=self.text.delimiters)
        return text.render({"question": sample.question, "answer_1": sample.answers[0]}, chat=chat)

    def read(self, reply: str) -> str | Unparsed:
        """The level that a reply ends in."""
        return parse_level(reply, list(self.levels))


def scale_of(name: str, dimension: Dimension) -> Scale:
    """A user's dimension as a prompt of the paper's form; its words around the user's are ours."""
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
    return Scale(
        name=name,
        text=PromptText(text=text, delimiters=DELIMITERS),
        levels={name: level.score for name, level in ordered},
    )


def scales_sha(scales: Sequence[Scale]) -> str:
    """sha256 (hex) over names, prompts and scores."""
    return sha_of([[scale.name, scale.text.text, list(scale.levels.items())] for scale in scales])
