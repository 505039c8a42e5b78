"""Whether one answer is correct, with the judge's own answer as the reference or without.

Source: Self-Reference, equation 6 (pointwise judgment), section 5.1 (self-reference), Figures 3 and 8 to 11.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError
from judgelm.modes.flow import Flow
from judgelm.modes.self_answers import Solved, Solving, judging_sampling
from judgelm.modes.verdicts import LabelProbabilities, ask_probabilities, read_labelled
from judgelm.parsing.final_answers import Task
from judgelm.prompts.self_reference import SELF_REFERENCE
from judgelm.prompts.self_reference_fields import judging_prompt
from judgelm.records import Completion, Judgment, LabelVerdict, Prompt, Request, Sample, Shown

SelfReference = Literal["cot", "guided"]

LABELS: Mapping[str, str] = {"correct": "Correct", "incorrect": "Incorrect"}
"""Labels, and the words that the prompts ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctness:
    """Judge one answer: `correct` or `incorrect`.

    The verdict is a `LabelVerdict`, and `probability` is P(correct). The answer is never cut to fit the window, since
    what is judged stands at its end: a prompt that does not fit is a `too_long` failure. A reference that the sample
    has is never shown: here it is the truth that judgments are measured with.

    Attributes:
        task: `number` and `choice` judge an answer to the question. `preference` is the meta-judge: the answer is a
            judge's verdict `[[A]]`, `[[B]]` or `[[C]]` on the two answers in the sample's `pair`.
        self_reference: `cot` shows no reference (Figures 8, 9). `guided` lets the judge answer the question first, or
            takes the first of the `solves` that the sample brings along, and shows the whole of that answer, its
            reasoning included, as the reference (Figures 10, 11).
        chat: one user message for the tokenizer's chat template; else plain text, for base models.
        distribution: ask for P(correct) where the label stands, in a second request that goes on from the reply.
        temperature: of solve and judgment; 0 is greedy, as in the paper; otherwise each sample draws with its own
            seed, made of `seed` and its id.
        max_tokens: room for a judgment, its reasoning included.
        solve_tokens: room for the judge's own answer.

    Raises:
        ConfigError: options that do not exist.
    """

    name: ClassVar[str] = "correctness"
    reference: ClassVar[Literal["ignore"]] = "ignore"
    answers: ClassVar[tuple[int, int]] = (1, 1)
    template: ClassVar[str] = SELF_REFERENCE.id
    template_sha: ClassVar[str] = SELF_REFERENCE.sha

    task: Task = "choice"
    self_reference: SelfReference = "cot"
    chat: bool = True
    distribution: bool = False
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024
    solve_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.self_reference not in get_args(SelfReference):
            known = ", ".join(get_args(SelfReference))
            raise ConfigError(f"self_reference {self.self_reference!r} does not exist; there are: {known}")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it must be above 0")
        self._solving()  # raises where its options do not fit

    def __call__(self, sample: Sample) -> Flow:
        """Solve where asked to, judge, and look at the label's probability where asked to.

        Raises:
            InputError: the sample has not exactly one answer, or lacks what the task needs.
        """
        solved = Solved()
        if self.self_reference == "guided":
            solved = yield from self._solving()(sample)
        if solved.failure is not None:
            return self._conclude(sample, solved, None)
        reference = solved.self_answers[0].text if solved.self_answers else None
        prompt = judging_prompt(sample, self.task, reference, chat=self.chat)
        sampling = judging_sampling(
            sample, temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens, chat=self.chat
        )
        [reply] = yield [Request(key="judge", prompt=prompt, sampling=sampling)]
        shown = read_labelled((0,), reply, LABELS, max_tokens=self.max_tokens, referenced=reference is not None)
        labels = LabelProbabilities(values=(None,))
        if self.distribution:
            labels = yield from ask_probabilities([shown], [prompt], LABELS, max_tokens=self.max_tokens)
        judged = _Judged(shown=shown, prompt=prompt, reply=reply, reference=reference, labels=labels)
        return self._conclude(sample, solved, judged)

    def check(self, sample: Sample) -> None:
        """See that the sample has what the task needs.

        Raises:
            InputError: it has not.
        """
        judging_prompt(sample, self.task, None, chat=self.chat)
        self._solving().request(sample)

    def _solving(self) -> Solving:
        return Solving(
            task=self.task,
            count=1,
            temperature=self.temperature,
            max_tokens=self.solve_tokens,
            seed=self.seed,
            chat=self.chat,
        )

    def _conclude(self, sample: Sample, solved: Solved, judged: "_Judged | None") -> Judgment:
        """The judgment; where the judge could not even answer the question, nothing was shown to it."""
        if judged is None:
            asked, sanitized = solved.completions, solved.sanitized
        else:
            asked = (*solved.completions, judged.reply, *judged.labels.completions)
            sanitized = solved.sanitized + judged.prompt.sanitized + judged.reply.sanitized
        shown = None if judged is None else judged.shown
        label = None if shown is None else shown.label
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if label is None else LabelVerdict(label=label),
            shown=() if shown is None else (shown,),
            probability=None if judged is None else judged.labels.values[0],
            failure=solved.failure if shown is None else shown.failure,
            sanitized=sanitized,
            prompt_tokens=sum(one.prompt_tokens for one in asked),
            completion_tokens=sum(one.completion_tokens for one in asked),
            self_answers=solved.self_answers,
            own_reference=None if judged is None else judged.reference,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What was shown, and what came back."""

    shown: Shown
    prompt: Prompt
    reply: Completion
    reference: str | None
    labels: LabelProbabilities
