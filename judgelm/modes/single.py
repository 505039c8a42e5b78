"""Grading of one answer, either by itself or against a reference or another answer.

Source: JudgeLM, section 6.4 and Figures 5 and 17.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, NamedTuple

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import graded, grades_of, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.mode import check_above_zero, pair_orders, sampling_for
from judgelm.modes.readings import (
    PromptedMode,
    ReadingMode,
    answer_scores,
    check_reading,
    explain_word,
    read_words,
    reading_of,
)
from judgelm.modes.reasons import Explained, explain, to_explain
from judgelm.parsing.scores import parse_scores, score_lines
from judgelm.prompts.catalog import get_template, grading_family, grading_prompt
from judgelm.records import Completion, Prompt, Request, Sample, Shown

Against = Literal["auto", "reference", "anchor", "nothing"]

_ANCHOR = "anchor"


class _Asked(NamedTuple):
    against: Literal["reference", "anchor", "nothing"]
    prompt: Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(PromptedMode):
    """Grade one answer.

    Attributes:
        against: `reference` shows the reference as the first answer of a pair, with the full score prefilled (Figure
            5). `anchor` shows `metadata["anchor"]`, or else the reference, as the first answer, and the judge scores
            both answers. `nothing` grades the answer by itself; no released judge was trained with that prompt. `auto`
            uses the first of these options that the sample supports.
        distribution: request the probability of every score. `Shown.grades` then contains the expected grade.
        max_tokens: token limit for the score line.
    """

    name: ClassVar[str] = "single"
    answers: ClassVar[tuple[int, int]] = (1, 1)
    shown_fields: ClassVar[tuple[str, ...]] = (_ANCHOR, *ReadingMode.shown_fields)
    takes_rewards: ClassVar[bool] = True
    ignores_id: ClassVar[bool] = True

    template: str = "judgelm-v1"
    against: Against = "auto"
    distribution: bool = False
    reasons: Explained = "none"
    max_tokens: int = 24

    def __post_init__(self) -> None:
        check_above_zero(self, "step", "max_tokens", "reason_tokens")
        object.__setattr__(self, "template", check_reading(self))
        if reading_of(self).reads_alone and self.against == "anchor":
            raise ConfigError("against=anchor compares two answers; use --reading letters or score-line")
        if self.distribution:
            score_lines(self.scale, self.step)  # raises an error if the scale has too many scores

    @property
    def reference(self) -> Literal["auto", "use", "ignore"]:
        """When to show references."""
        if self.against == "reference":
            return "use"
        return "ignore" if self.against == "nothing" else "auto"

    @property
    def template_sha(self) -> str:
        """Hash of all prompts that can be used with this value of `against`."""
        template = reading_of(self)
        if template.reads_words:
            return template.sha
        shas = {"reference": template.sha_for(1), "anchor": template.sha, "nothing": grading_family(self.scale).sha}
        if self.against != "auto":
            return shas[self.against]
        return hashlib.sha256(" ".join(shas.values()).encode()).hexdigest()

    def check(self, sample: Sample) -> None:
        """Check that the sample has one answer and, if required, a reference or an anchor."""
        ReadingMode.check(self, sample)
        if self.prompt is not None:
            return
        anchor = sample.metadata.get(_ANCHOR)
        template = reading_of(self)
        if template.reads_alone and anchor is not None and self.against == "auto":
            raise _wrong(
                sample, f"reading {template.reading} does not support anchors; use reading letters or against=nothing"
            )
        if template.reading == "letters" and self._compared_with(sample) is None:
            raise _wrong(sample, "reading letters requires an anchor or a reference; add one, or use --reading yes-no")
        if anchor is not None and not isinstance(anchor, str) and self.against in ("auto", "anchor"):
            raise _wrong(sample, "expected a string")
        if self.against == "reference" and sample.reference is None:
            raise InputError(f"sample {sample.id}: no reference to grade against; add one, or use against=auto")
        if self.against == "anchor" and anchor is None and sample.reference is None:
            raise _wrong(sample, "no anchor; add one to the row or to a references file, or use against=auto")

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        if reading_of(self).reads_words:
            return (yield from self._read_word(sample))
        block = self._ask(sample)
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=("\n",))
        lines = self._candidates(block.against) if self.distribution else {}
        [completion] = yield [Request(key="0", prompt=block.prompt, sampling=sampling, candidates=tuple(lines))]
        judgment = graded(self, sample, self._read(block, completion, lines))
        sampling = sampling_for(self, sample.id, self.reason_tokens, reserve=self.max_tokens)
        return (yield from explain(judgment, to_explain(judgment, self.reasons), [block.prompt], sampling))

    def _read_word(self, sample: Sample) -> Flow:
        if reading_of(self).reads_alone:
            readout = yield from read_words(self, sample, ())
            return (yield from explain_word(self, graded(self, sample, readout.shown[0]), readout.prompts))
        answers = (str(self._compared_with(sample)), sample.answers[0])
        pair = Sample(id=sample.id, question=sample.question, answers=answers)
        readout = yield from read_words(self, pair, pair_orders(True))
        scores = answer_scores(self, readout)
        shown, *others = (replace(reply, order=(0,), scores=None, distribution=None) for reply in readout.shown)
        judgment = graded(self, sample, replace(shown, scores=scores and scores[1:], failure=readout.failure))
        judgment = replace(judgment, shown=(*judgment.shown, *others))
        return (yield from explain_word(self, judgment, readout.prompts))

    def _compared_with(self, sample: Sample) -> object:
        anchor = sample.metadata.get(_ANCHOR)
        if self.against == "nothing":
            return None
        if self.against == "anchor":
            return sample.reference if anchor is None else anchor
        return sample.reference if sample.reference is not None or self.against == "reference" else anchor

    def _ask(self, sample: Sample) -> _Asked:
        template = get_template(self.template)
        anchor = sample.metadata.get(_ANCHOR)
        if self.against in ("auto", "reference") and sample.reference is not None:
            return _Asked("reference", template.render(sample, (0,), sample.reference, scale=self.scale))
        if self.against == "anchor" or (self.against == "auto" and isinstance(anchor, str)):
            first = anchor if isinstance(anchor, str) else sample.reference or ""
            pair = Sample(id=sample.id, question=sample.question, answers=(first, *sample.answers))
            return _Asked("anchor", template.render(pair, (0, 1), None))
        return _Asked("nothing", grading_prompt(sample, self.scale, chat=template.chat))

    def _candidates(self, against: str) -> dict[str, float]:
        lines = score_lines(self.scale, self.step)
        if against == "anchor":
            return {text: second for text, (_, second) in zip(lines.texts, lines.pairs, strict=True)}
        blank = " " if against == "reference" else ""
        return {f"{blank}{value:g}": value for value in lines.values}

    def _read(self, block: _Asked, completion: Completion, lines: dict[str, float]) -> Shown:
        parse = partial(parse_scores, count=2 if block.against == "anchor" else 1, scale=self.scale)
        referenced = block.against == "reference"
        shown = read_reply(completion, parse, max_tokens=self.max_tokens, referenced=referenced)
        if shown.scores is not None and block.against == "anchor":  # the answer shown first is the anchor
            shown = replace(shown, scores=shown.scores[1:], anchor=shown.scores[0])
        return replace(shown, grades=grades_of(tuple(lines.values()), completion))


def _wrong(sample: Sample, finding: str) -> InputError:
    return InputError(f'sample {sample.id}: field "{_ANCHOR}": {finding}')
