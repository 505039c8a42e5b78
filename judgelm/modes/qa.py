"""Whether a short answer is right, given the gold answer: exact match first, and a judge where it says no.

Source: QA-Judge, sections 4.2 and 5.2. The judge is asked only about answers that do not match exactly; judging all
(Table 11) gives the same to within a point or two and costs more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import failure_of, thinking_of
from judgelm.modes.flow import Flow
from judgelm.modes.sampling import sampling_for
from judgelm.modes.verdicts import share_of_first
from judgelm.parsing.answer_tags import QaLabel, read_label, read_label_original
from judgelm.parsing.short_answers import QaRules, check_rules, exact_match, golds_of
from judgelm.prompts.qa import QaTemplate, Shots, Wording, qa_template
from judgelm.records import Completion, Judgment, LabelVerdict, Prompt, Request, Sample, Sampling, Shown, Unparsed

LabelRule = Literal["strict", "original", "original_mistral"]
"""`strict`: either word however it is dressed, all else a failure. `original`: correct where the first tags (or the
reply without any) hold exactly CORRECT, all else incorrect; `original_mistral`: the same with the last tags on one
line. What the original rules take for incorrect though it is neither word is a failure in `Judgment.shown`."""

_ORDER = (0,)
_RULES: Mapping[str, Literal["first", "last_on_line"]] = {"original": "first", "original_mistral": "last_on_line"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QaCorrectness:
    """Judge one predicted answer as `correct` or `incorrect`.

    `sample.answers[0]` is the answer, `sample.reference` the gold answer that the judge is shown, `metadata` may hold
    `references` (all validated answers), `reference_spans` (their spans) and `context`. A blank answer is incorrect
    without a question to the judge, as in the original code.

    Attributes:
        shots: examples in the prompt: 0, 2 or 6.
        with_context: show the context that the question was asked about.
        wording: the paper's words, or ours.
        judge_all: ask the judge about every answer, also those that match exactly.
        exact: whose exact match decides; the original code takes HotpotQA's for all data sets.
        validated: match any validated answer, not only the first (the original code knows the first alone).
        labels: how a reply becomes a label.
        distribution: ask for P(correct) where the label stands, in a second request that goes on from the reply; with
            labels `strict` only.
        chat: whether the tokenizer's chat template wraps the prompt; else it is plain text.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the judge's reasoning and its label.

    Raises:
        ConfigError: an option that does not exist, or two that do not fit.
    """

    name: ClassVar[str] = "qa"
    answers: ClassVar[tuple[int, int | None]] = (1, 1)
    reference: ClassVar[Literal["use"]] = "use"

    shots: Shots = 0
    with_context: bool = False
    wording: Wording = "paper"
    judge_all: bool = False
    exact: QaRules = "hotpotqa"
    validated: bool = True
    labels: LabelRule = "strict"
    distribution: bool = False
    chat: bool = True
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        """Check each option."""
        qa_template(self.shots, self.with_context, self.wording)
        check_rules(self.exact)
        if self.labels not in get_args(LabelRule):
            raise ConfigError(f"labels {self.labels!r} does not exist; there are: {', '.join(get_args(LabelRule))}")
        if self.distribution and self.labels != "strict":
            raise ConfigError(f"distribution needs labels strict, not {self.labels}: others tell no place of the label")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it must be above 0")

    @property
    def prompt(self) -> QaTemplate:
        """What the judge is asked with."""
        return qa_template(self.shots, self.with_context, self.wording)

    @property
    def template(self) -> str:
        """Id of that, which manifests keep."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of its bytes."""
        return self.prompt.sha

    def check(self, sample: Sample) -> None:
        """See that a sample can be judged.

        Raises:
            InputError: it has not one answer and a reference, or no context where that is to be shown.
        """
        if len(sample.answers) != 1 or not golds_of(sample):
            raise InputError(
                f"sample {sample.id}: QA needs one answer and a reference, got {len(sample.answers)} and "
                f"{'none' if sample.reference is None else 'one'}; give each row `answer` and `reference`"
            )
        if self.with_context:
            context_of(sample)

    def __call__(self, sample: Sample) -> Flow:
        """Compare, ask where that does not settle it, and read the label."""
        self.check(sample)
        golds = golds_of(sample)
        if not self.judge_all and exact_match(sample.answers[0], golds[: None if self.validated else 1], self.exact):
            return self._without_asking(sample, "correct", "exact_match")
        if not sample.answers[0].strip():
            return self._without_asking(sample, "incorrect", "blank_answer")
        prompt = self._prompt(sample)
        sampling = sampling_for(sample.id, temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens)
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        shown = read_qa_reply(completion, rule=self.labels, max_tokens=self.max_tokens)
        asked, probability = [completion], None
        if self.distribution and (request := label_request(shown, prompt, max_tokens=self.max_tokens)) is not None:
            [probabilities] = yield [request]
            asked, probability = [completion, probabilities], share_of_first(probabilities)
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if shown.label is None else LabelVerdict(label=shown.label),
            shown=(shown,),
            failure=shown.failure if shown.label is None else None,
            probability=probability,
            sanitized=prompt.sanitized + completion.sanitized,
            prompt_tokens=sum(one.prompt_tokens for one in asked),
            completion_tokens=sum(one.completion_tokens for one in asked),
            decided_by="judge",
        )

    def _without_asking(self, sample: Sample, label: str, by: str) -> Judgment:
        verdict = LabelVerdict(label=label)
        return Judgment(sample_id=sample.id, mode=self.name, verdict=verdict, shown=(), decided_by=by)

    def _prompt(self, sample: Sample) -> Prompt:
        values = {
            "question": sample.question,
            "gold": sample.reference or "",
            "predicted": sample.answers[0],
        }
        if self.with_context:
            values["context"] = context_of(sample)
        return self.prompt.render(values, chat=self.chat)


def context_of(sample: Sample) -> str:
    """The context of a sample.

    Raises:
        InputError: it has none.
    """
    context = sample.metadata.get("context")
    if not isinstance(context, str) or not context.strip():
        raise InputError(f'sample {sample.id}: no "context"; give each row one, or judge without (with_context: false)')
    return context


def read_qa_reply(completion: Completion, *, rule: LabelRule, max_tokens: int) -> Shown:
    """A reply with its label.

    A reply that was cut off is a failure even where a label stands in it: the judge had not come to its last one. Under
    the original rules it has that label, and one that was read as neither word is `incorrect` and a failure, both.

    Args:
        completion: the judge's.
        rule: how a reply becomes a label.
        max_tokens: the room that the reply had.
    """
    text = completion.texts[0] if completion.texts else ""
    shown = Shown(
        order=_ORDER, text=text, thinking=thinking_of(completion), referenced=True, truncations=completion.truncations
    )
    if (failure := failure_of(completion)) is not None:
        return replace(shown, failure=failure)
    found = _label(text, rule)
    if completion.finish_reasons[0] == "length" and (rule == "strict" or isinstance(found, Unparsed)):
        found = Unparsed("truncated", text, f"no end within {max_tokens} tokens or the window")
    if not isinstance(found, Unparsed):
        return replace(shown, label=found)
    label = None if rule == "strict" else "incorrect"
    return replace(shown, label=label, failure=found)


def label_request(shown: Shown, prompt: Prompt, *, max_tokens: int) -> Request | None:
    """What asks how probable both labels were where the judge wrote its own; None where it wrote none.

    Both words are asked for as it wrote its own, in capitals or not. What it reasoned before is taken as it is.

    Args:
        shown: the reply, read by rule `strict`.
        prompt: that it replied to.
        max_tokens: the room that it had, so that the same answer is cut in the same way.
    """
    found = read_label(shown.text)
    if shown.label is None or isinstance(found, Unparsed):
        return None
    words = ("correct", "incorrect") if found.written.islower() else ("CORRECT", "INCORRECT")
    if found.written.istitle():
        words = ("Correct", "Incorrect")
    going_on = replace(prompt, prefill=shown.text[: found.place])
    sampling = Sampling(max_tokens=1, reserve=max_tokens)
    return Request(key="label", prompt=going_on, sampling=sampling, candidates=words)


def _label(text: str, rule: LabelRule) -> QaLabel | Unparsed:
    if rule != "strict":
        return read_label_original(text, _RULES[rule])
    found = read_label(text)
    return found if isinstance(found, Unparsed) else found.label
