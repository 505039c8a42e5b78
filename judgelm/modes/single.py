"""One answer, graded: beside its reference, beside another answer, or by itself.

Source: JudgeLM, section 6.4 (grading a single answer), Figures 5 and 17.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError, InputError
from judgelm.modes.flow import Flow
from judgelm.modes.reasons import explain
from judgelm.modes.sampling import sampling_for
from judgelm.modes.score_replies import grade_distribution, read_scores
from judgelm.parsing.distribution import score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.grading import grading_family, grading_prompt
from judgelm.records import Completion, GradeVerdict, Judgment, Prompt, Request, Sample, Sampling, Shown

Against = Literal["auto", "reference", "anchor", "nothing"]
Explained = Literal["none", "all"]

_POLICIES: dict[Against, Literal["auto", "use", "ignore"]] = {
    "auto": "auto",
    "reference": "use",
    "anchor": "auto",
    "nothing": "ignore",
}
_ANCHOR = "anchor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """Grade one answer.

    The verdict is a `GradeVerdict`, and `scores` holds the one score.

    Attributes:
        template: id of the judge's pair template.
        against: what the answer is graded beside.
            `reference`: Figure 5. The reference stands as the first of a pair and the reply is forced to begin with
            the full score for it, so that the judge goes on with the answer's.
            `anchor`: an answer chosen for all, or each, of the questions stands as the first of a pair, nothing is
            forced, and the judge scores both; the anchor's score stands in `Shown.anchor`. It is the sample's
            `metadata["anchor"]`, or else its reference, so that a references file can hold the anchors. (Ours; the
            paper has no grade without reference.)
            `nothing`: the answer alone, asked for in a prompt of ours (`judgelm.prompts.grading`), which no released
            judge was trained on.
            `auto`: the first of reference, anchor and nothing that the sample has.
        scale: lowest and highest score of the judge.
        step: spacing of the scores it writes.
        distribution: ask for the probability of every score; `Shown.grades` then holds the expected grade (beside an
            anchor over all scores that the anchor could have got).
        reasons: `all` lets the judge go on from its score line and explain.
        reason_tokens: most tokens of a reason; it gets what room the answers, cut as for the scores, leave.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the score line.

    Raises:
        ConfigError: options that do not exist, or a scale of too many scores for a distribution.
    """

    name: ClassVar[str] = "single"
    answers: ClassVar[tuple[int, int]] = (1, 1)

    template: str = "judgelm-v1"
    against: Against = "auto"
    scale: tuple[float, float] = (1, 10)
    step: float = 1
    distribution: bool = False
    reasons: Explained = "none"
    reason_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 24

    def __post_init__(self) -> None:
        for name, kinds in (("against", Against), ("reasons", Explained)):
            if getattr(self, name) not in get_args(kinds):
                known = ", ".join(get_args(kinds))
                raise ConfigError(f"{name} {getattr(self, name)!r} does not exist; there are: {known}")
        for name in ("step", "max_tokens", "reason_tokens"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.distribution:
            score_lines(self.scale, self.step)  # raises where the scale has too many

    @property
    def reference(self) -> Literal["auto", "use", "ignore"]:
        """References are expected, taken where there are any, or dropped, as `against` says."""
        return _POLICIES[self.against]

    @property
    def template_sha(self) -> str:
        """Hash of the bytes of every prompt that `against` can lead to."""
        template = get_template(self.template)
        shas = {
            "reference": template.sha_for(1),
            "anchor": template.sha,
            "nothing": grading_family(self.scale).sha,
        }
        if self.against != "auto":
            return shas[self.against]
        return hashlib.sha256(" ".join(shas.values()).encode()).hexdigest()

    def check(self, sample: Sample) -> None:
        """See that a sample can be graded.

        Raises:
            InputError: it has not exactly one answer, or not what it is to be graded beside.
        """
        if len(sample.answers) != 1:
            raise InputError(f"sample {sample.id}: expected 1 answer, got {len(sample.answers)}; use another mode")
        anchor = sample.metadata.get(_ANCHOR)
        if anchor is not None and not isinstance(anchor, str) and self.against in ("auto", "anchor"):
            raise InputError(f'sample {sample.id}: field "{_ANCHOR}": expected text; write it as one text')
        if self.against == "reference" and sample.reference is None:
            raise InputError(f"sample {sample.id}: no reference to grade it beside; give one, or choose against=auto")
        if self.against == "anchor" and anchor is None and sample.reference is None:
            raise InputError(
                f'sample {sample.id}: no anchor; give it as field "{_ANCHOR}" or in a references file, or choose '
                "against=auto"
            )

    def __call__(self, sample: Sample) -> Flow:
        """Ask for the score line, then for the reason where one is wanted.

        Raises:
            InputError: as `check`.
        """
        self.check(sample)
        asked = self._ask(sample)
        sampling = self._sampling(sample, self.max_tokens, stop=("\n",))
        lines = self._candidates(asked) if self.distribution else {}
        [completion] = yield [Request(key="0", prompt=asked.prompt, sampling=sampling, candidates=tuple(lines))]
        judgment = self._conclude(sample, asked, completion, self._read(asked, completion, lines))
        if self.reasons == "none" or judgment.verdict is None:
            return judgment
        # the reason goes on from the whole score line, the forced score included
        [shown] = judgment.shown
        line = replace(shown, text=asked.prompt.prefill + shown.text)
        going_on = replace(self._sampling(sample, self.reason_tokens, stop=()), reserve=self.max_tokens)
        explained = yield from explain(replace(judgment, shown=(line,)), [0], [asked.prompt], going_on)
        return replace(explained, shown=(replace(explained.shown[0], text=shown.text),))

    def _ask(self, sample: Sample) -> "_Asked":
        """What the answer stands beside, and the prompt."""
        template = get_template(self.template)
        anchor = sample.metadata.get(_ANCHOR)
        if self.against in ("auto", "reference") and sample.reference is not None:
            prompt = template.render(sample, (0,), sample.reference, full_score=self.scale[1])
            return _Asked(beside="reference", prompt=prompt)
        if self.against == "anchor" or (self.against == "auto" and isinstance(anchor, str)):
            first = anchor if isinstance(anchor, str) else sample.reference or ""
            pair = Sample(id=sample.id, question=sample.question, answers=(first, *sample.answers))
            return _Asked(beside="anchor", prompt=template.render(pair, (0, 1), None))
        return _Asked(beside="nothing", prompt=grading_prompt(sample, self.scale, chat=template.chat))

    def _candidates(self, asked: "_Asked") -> dict[str, float]:
        """Every reply that is a score line, and the score that it gives the answer."""
        lines = score_lines(self.scale, self.step)
        if asked.beside == "anchor":
            return {text: second for text, (_, second) in zip(lines.texts, lines.pairs, strict=True)}
        blank = " " if asked.beside == "reference" else ""
        return {f"{blank}{value:g}": value for value in lines.values}

    def _read(self, asked: "_Asked", completion: Completion, lines: dict[str, float]) -> Shown:
        count = 2 if asked.beside == "anchor" else 1
        shown = read_scores((0,), completion, count=count, scale=self.scale, max_tokens=self.max_tokens)
        if shown.scores is not None and asked.beside == "anchor":  # the answer shown first is none of the sample's
            shown = replace(shown, scores=shown.scores[1:], anchor=shown.scores[0])
        shown = replace(shown, referenced=asked.beside == "reference")
        return replace(shown, grades=grade_distribution(tuple(lines.values()), completion)) if lines else shown

    def _sampling(self, sample: Sample, max_tokens: int, stop: tuple[str, ...]) -> Sampling:
        return sampling_for(sample.id, temperature=self.temperature, seed=self.seed, max_tokens=max_tokens, stop=stop)

    def _conclude(self, sample: Sample, asked: "_Asked", completion: Completion, shown: Shown) -> Judgment:
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if shown.scores is None else GradeVerdict(score=shown.scores[0]),
            shown=(shown,),
            scores=shown.scores,
            failure=shown.failure,
            sanitized=asked.prompt.sanitized + completion.sanitized,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A prompt, and what the answer stands beside in it."""

    beside: Literal["reference", "anchor", "nothing"]
    prompt: Prompt
