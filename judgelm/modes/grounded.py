"""Whether an answer is supported by its context: one yes-no question about the answer, or about each of its claims.

All claims and all answers share the context as a prefix, so the model reads it once.

Source: the minimum and the mean of sentence scores are as in SummaC (Laban et al. 2022); the prompts are ours.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.claims import Claim, split_claims
from judgelm.modes.completions import judged, read_reply, with_usage
from judgelm.modes.flow import Flow, RequestFlow, interleave
from judgelm.modes.mode import check_above_zero, sampling_for
from judgelm.modes.multi import compared
from judgelm.modes.readings import PromptedMode, calibrated_yes, check_reading, read_words
from judgelm.prompts.catalog import ONE_ANSWER, PromptText, read_texts, sha_of
from judgelm.prompts.judge_prompt import FIELDS
from judgelm.prompts.passages import CONTEXT, Passage, halves, read_passages
from judgelm.prompts.prompt_file import read_prompt
from judgelm.records import LabelVerdict, Request, Sample, Shown, Unparsed
from judgelm.yaml_files import parse_yaml

CLAIMS = "claims"
"""Field of a row, in the sample's `metadata`."""
MAX_CLAIMS = 1000
_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))
_MARKER = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
Aggregate = Literal["min", "mean", "share"]


PROMPT, QUESTION_PROMPT = read_prompt("grounded"), read_prompt("grounded-question")
_WRITE = PromptText(text=_TEXTS["claims"].strip(), kinds=ONE_ANSWER, delimiters=("[Answer]", "[End of answer]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounded(PromptedMode):
    """Judge whether answers are supported by their context, as a whole or claim by claim.

    `shown` has one entry per answer and claim: `part` is the claim, and `scores` contains P(supported). The judgment's
    `scores` are the aggregates per answer. One answer is labelled `supported` or `unsupported`, two are compared as a
    pair, and three or more are ranked. If a claim cannot be judged, the judgment fails.

    The context is the row's `context`: text, a list of documents, or a list of chunks with `id` and `text`. A context
    that is too long for the model is read in parts, and the highest probability counts.

    Attributes:
        claims: `answer` checks each answer as a whole, `sentences` splits answers, and `judge` asks the model to list
            the claims. `claims` in a row override this: a list of texts, or for several answers a list per answer.
        aggregate: score of an answer: lowest or mean P(supported), or share of claims with at least `threshold`.
        threshold: minimum score for the label `supported`.
        evidence: also find the passage that supports each claim best. Each claim is judged with each passage.
        language: ISO 639-1 code of the answers, for splitting sentences.
        tie_margin: maximum difference between the scores of two answers that counts as a tie.
        max_tokens: token limit for the list of claims.
    """

    name: ClassVar[str] = "grounded"
    answers: ClassVar[tuple[int, int | None]] = (1, None)
    shown_fields: ClassVar[tuple[str, ...]] = (CONTEXT, CLAIMS, FIELDS)
    ignores_id: ClassVar[bool] = True
    reference: ClassVar[Literal["ignore"]] = "ignore"
    protocol: ClassVar[str] = "Each claim was judged separately against the context; the better supported answer wins"

    template: str = ""
    claims: Literal["answer", "sentences", "judge"] = "answer"
    aggregate: Aggregate = "min"
    threshold: float = 0.5
    evidence: bool = False
    language: str = "en"
    scale: tuple[float, float] = (0, 1)
    tie_threshold: float = 0.0
    tie_margin: float = 0.0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens", "calibration_temperature")
        for name in ("threshold", "tie_margin"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ConfigError(f"{name} is {value}; it must be between 0 and 1")
        if self.prompt is None:
            object.__setattr__(self, "prompt", PROMPT)
        elif self.prompt.reply.kind != "label" or CONTEXT not in self.prompt.slots:
            needs = "a label reply and the slots {context} and {answer}"
            raise ConfigError(f"prompt {self.prompt.name}: mode grounded requires {needs}")
        object.__setattr__(self, "scale", (0.0, 1.0))  # a card's scale is for grades
        object.__setattr__(self, "template", check_reading(self))

    @property
    def template_sha(self) -> str:
        """Hash of the prompts."""
        own = [self.prompt.sha if self.prompt else "", QUESTION_PROMPT.sha]
        return sha_of([*own, _WRITE.text] if self.claims == "judge" else own)

    def check(self, sample: Sample) -> None:
        """Check that a sample has a context, and that each answer has claims."""
        PromptedMode.check(self, sample)
        self._passages(sample)
        if self.claims != "judge":
            self._claims(sample)

    def _passages(self, sample: Sample, *, split: bool = False) -> tuple[Passage, ...]:
        try:
            fields = sample.metadata.get(FIELDS)
            value = fields.get(CONTEXT) if isinstance(fields, Mapping) else None
            return read_passages(sample.metadata.get(CONTEXT) if value is None else value, split=split)
        except ConfigError as error:
            raise InputError(f'sample {sample.id}: field "{CONTEXT}": {error}') from None

    def _claims(self, sample: Sample) -> list[tuple[Claim, ...]] | None:
        """Return the claims of each answer; None if the judge has to list them."""
        own = sample.metadata.get(CLAIMS)
        if own is not None:
            claims = self._own_claims(sample, parse_yaml(own) if isinstance(own, str) else own)
        elif self.claims == "judge":
            return None
        elif self.claims == "answer":
            claims = [(Claim(answer),) if answer.strip() else () for answer in sample.answers]
        else:
            claims = [split_claims(answer, self.language) for answer in sample.answers]
        for index, each in enumerate(claims, 1):
            if not 0 < len(each) <= MAX_CLAIMS:
                finding = f"{len(each):,} claims, more than {MAX_CLAIMS:,}" if each else "no claims"
                way_out = "split it into several rows" if each else "remove the row"
                raise InputError(f"sample {sample.id}: answer {index} has {finding}; {way_out}")
        return claims

    def _own_claims(self, sample: Sample, value: object) -> list[tuple[Claim, ...]]:
        lists = [value] if len(sample.answers) == 1 else value
        if isinstance(lists, Sequence) and not isinstance(lists, str) and len(lists) == len(sample.answers):
            listed = [each for each in lists if isinstance(each, Sequence) and not isinstance(each, str)]
            if len(listed) == len(lists) and all(
                isinstance(text, str) and text.strip() for each in listed for text in each
            ):
                return [tuple(map(Claim, each)) for each in listed]
        form = "a list of texts" if len(sample.answers) == 1 else f"{len(sample.answers)} lists of texts"
        raise InputError(f'sample {sample.id}: field "{CLAIMS}": expected {form}, got {value!r:.60}')

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        PromptedMode.check(self, sample)
        passages, claims = self._passages(sample), self._claims(sample)
        if claims is None:
            lists = yield from interleave([self._write(sample, index) for index in range(len(sample.answers))])
            if failure := next((each for each in lists if isinstance(each, Unparsed)), None):
                return judged(self, sample, (), None, failure=failure)
            claims = [each for each in lists if not isinstance(each, Unparsed)]
        asked = [(index, claim) for index, each in enumerate(claims) for claim in each]
        shown = yield from interleave([self._ask(sample, index, claim, passages) for index, claim in asked])
        if self.evidence:
            shown = yield from self._with_evidence(sample, asked, shown)
        failures = (replace(each.failure, why=f"{each.part:.60}: {each.failure.why}") for each in shown if each.failure)
        failure = next(failures, None)
        if failure is not None:
            return judged(self, sample, shown, None, failure=failure)
        scores = tuple(self._score([each for each in shown if each.order == (index,)]) for index in range(len(claims)))
        if len(scores) > 1:
            return judged(self, sample, shown, compared(scores, self.tie_margin), scores=scores)
        label = "supported" if scores[0] >= self.threshold else "unsupported"
        return judged(self, sample, shown, LabelVerdict(label=label), scores=scores, probability=scores[0])

    def _score(self, shown: Sequence[Shown]) -> float:
        values = [each.scores[0] for each in shown if each.scores]
        if self.aggregate == "min":
            return min(values)
        if self.aggregate == "share":
            values = [float(value >= self.threshold) for value in values]
        return math.fsum(values) / len(values)

    def _write(self, sample: Sample, index: int) -> RequestFlow[tuple[Claim, ...] | Unparsed]:
        values = {"question": f"Question: {sample.question}\n\n" if sample.question.strip() else ""}
        prompt = _WRITE.render(values | {"answer_1": sample.answers[index]}, chat=True)
        sampling = sampling_for(self, sample.id, self.max_tokens)
        [completion] = yield [Request(key=f"claims {index}", prompt=prompt, sampling=sampling)]
        written = read_reply(completion, lambda text: text, max_tokens=self.max_tokens)
        if written.failure is not None:
            return replace(written.failure, why=f"claims of answer {index + 1}: {written.failure.why}")
        lines = [_MARKER.sub("", line).strip() for line in written.text.splitlines()]
        claims = tuple(Claim(line) for line in lines if any(map(str.isalnum, line)))
        if not 0 < len(claims) <= MAX_CLAIMS:
            return Unparsed(
                "off_grammar", written.text, f"the judge listed {len(claims)} claims for answer {index + 1}"
            )
        return claims

    def _ask(
        self, sample: Sample, index: int, claim: Claim, passages: Sequence[Passage], *, named: bool = False
    ) -> RequestFlow[Shown]:
        """Ask whether a context supports a claim. If the context is too long, ask about each half of it."""
        fields = sample.metadata.get(FIELDS)
        known = fields if isinstance(fields, Mapping) else {}
        metadata = {**sample.metadata, FIELDS: {**known, CONTEXT: [passage.text for passage in passages]}}
        asked = replace(sample, answers=(claim.in_full,), metadata=metadata)
        [shown] = (yield from read_words(self._reading(sample), asked, ())).shown
        is_long = bool(shown.truncations) or (shown.failure is not None and shown.failure.code == "too_long")
        parts = halves(passages) if is_long else None
        if parts is not None:
            read = yield from interleave([self._ask(sample, index, claim, part, named=True) for part in parts])
            count = sum(each.context_parts for each in read)
            best = max(read, key=lambda each: (each.failure is not None, (each.scores or (0.0,))[0]))
            return replace(best, context_parts=count)
        value = calibrated_yes(shown, self.calibration_temperature)
        names = [*dict.fromkeys(passage.id for passage in passages)] if named else []
        return replace(
            shown,
            order=(index,),
            part=claim.text,
            scores=None if value is None else (value,),
            passage=" – ".join(names[:: max(1, len(names) - 1)]),
        )

    def _reading(self, sample: Sample) -> PromptedMode:
        """Return the mode that asks about a claim."""
        own = self.prompt is not None and self.prompt.sha == PROMPT.sha and self.head is None
        return replace(self, prompt=QUESTION_PROMPT) if own and sample.question.strip() else self

    def _with_evidence(
        self, sample: Sample, asked: Sequence[tuple[int, Claim]], shown: Sequence[Shown]
    ) -> RequestFlow[list[Shown]]:
        passages = self._passages(sample, split=True)
        if len(passages) == 1:
            return [replace(each, passage=passages[0].id) for each in shown]
        flows = [
            self._ask(sample, index, claim, [passage], named=True) for passage in passages for index, claim in asked
        ]
        read = yield from interleave(flows)
        found = []
        for place, whole in enumerate(shown):
            mine = [each for each in read[place :: len(asked)] if each.scores is not None]
            best = max(mine, key=lambda each: (each.scores or (0.0,))[0], default=None)
            found.append(whole if best is None else replace(whole, passage=best.passage))
        return found
