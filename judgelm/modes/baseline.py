"""Other open judges, PandaLM, Auto-J and Prometheus, asked with their own prompts and read by their own formats.

Their released checkpoints so run on the same runner and files as ours, to be compared with. Two things differ from
their authors' code: replies are greedy by default (PandaLM's uses 4 beams and a repetition penalty of 1.2, Prometheus'
samples at temperature 1 and asks again up to ten times), and a reply that cannot be read is a failure.

Source: PandaLM (Wang et al. 2023), Auto-J (Li et al. 2023), Prometheus (Kim et al. 2023) and Prometheus 2 (2024).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import failure_of, thinking_of
from judgelm.modes.flow import Flow
from judgelm.modes.sampling import sampling_for
from judgelm.parsing.other_judges import (
    PairLabel,
    read_auto_j,
    read_auto_j_rating,
    read_pandalm,
    read_prometheus_letter,
    read_prometheus_score,
)
from judgelm.prompts.other_judges import HELPFULNESS, OTHER_JUDGES, BaselineJudge, JudgePrompt
from judgelm.records import (
    Completion,
    GradeVerdict,
    Judgment,
    PairVerdict,
    Prompt,
    Request,
    Sample,
    Shown,
    Unparsed,
    Winner,
)

_PAIR_REPLIES: Mapping[BaselineJudge, Callable[[str], PairLabel | Unparsed]] = {
    "pandalm": read_pandalm,
    "auto-j": read_auto_j,
    "prometheus-relative": read_prometheus_letter,
}
_GRADES: Mapping[BaselineJudge, Callable[[str], float | Unparsed]] = {
    "auto-j-single": read_auto_j_rating,
    "prometheus-absolute": read_prometheus_score,
    "prometheus-1": read_prometheus_score,
}
_LABEL_FIRST = "pandalm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Judge with another open judge: a pair, or one answer, as that judge does.

    `pandalm`, `auto-j` and `prometheus-relative` name the better of two answers (Prometheus knows no tie); where two
    orders name different answers the verdict is a tie, PandaLM's protocol. `auto-j-single` (1 to 10),
    `prometheus-absolute` and `prometheus-1` (1 to 5) grade one answer.

    PandaLM shows an instruction's input apart: it is taken from the sample's `metadata["input"]`, with the instruction
    in `metadata["instruction"]`, as `judgelm data import pandalm` writes them. Prometheus grades by the sample's
    `metadata["rubric"]`, else by `rubric`.

    Attributes:
        judge: whose prompt and reply format.
        both_orders: show a pair a second time, exchanged.
        accept_one_order: when one of two orders failed, take the verdict of the other instead of failing.
        reference: `auto` shows a reference where the sample has one and the prompt a place for it (Prometheus alone),
            `use` expects one, `ignore` never shows it. `prometheus-1` always expects one.
        words: for Auto-J, whose prompt is not free to be given here: its text, with `{question}`, `{answer_1}` and,
            of a pair, `{answer_2}` in their places.
        rubric: for Prometheus and samples without their own; empty is ours, of which a pair is shown the first line.
        explain: let PandaLM go on behind its label with a reason and a reference answer. The others reason first.
        chat: wrap the prompt in the tokenizer's chat template; else the judge's own wrapper, byte for byte.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the reply, its reasoning included.

    Raises:
        ConfigError: options that do not exist, or that this judge cannot have.
    """

    name: ClassVar[str] = "baseline"

    judge: BaselineJudge = "pandalm"
    both_orders: bool = False
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    words: str = ""
    rubric: str = ""
    explain: bool = False
    chat: bool = False
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        """Check the options against the judge."""
        if self.judge not in OTHER_JUDGES:
            raise ConfigError(f"judge {self.judge!r} is not known; there are: {', '.join(get_args(BaselineJudge))}")
        if OTHER_JUDGES[self.judge].words_from_user != bool(self.words):
            finding = "has words of its own; leave them out" if self.words else "needs the words of its own prompt"
            raise ConfigError(f"judge {self.judge} {finding} (--mode-arg words=...)")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it must be above 0")
        asked = self.prompt
        if self.both_orders and asked.answers == 1:
            raise ConfigError(f"judge {self.judge} grades one answer, which has no order; leave --both-orders out")
        if self.reference == "use" and not asked.takes_reference:
            raise ConfigError(f"judge {self.judge} has no place for a reference; use --reference auto or ignore")
        if self.reference == "ignore" and asked.needs_reference:
            raise ConfigError(f"judge {self.judge} always grades beside a reference; use --reference use")
        if asked.needs_reference:
            object.__setattr__(self, "reference", "use")
        if self.rubric and not asked.takes_rubric:
            raise ConfigError(f"judge {self.judge} knows no rubric; leave it out")
        if self.explain and self.judge != _LABEL_FIRST:
            raise ConfigError(f"judge {self.judge} reasons before its verdict anyway; explain is for {_LABEL_FIRST}")

    @property
    def prompt(self) -> JudgePrompt:
        """How this judge is asked."""
        found = OTHER_JUDGES[self.judge]
        return found.with_words(self.words) if self.words else found

    @property
    def template(self) -> str:
        """Id of that, which manifests keep."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of its bytes."""
        return self.prompt.sha

    @property
    def answers(self) -> tuple[int, int]:
        """Two for judges of pairs, one for those that grade."""
        return (self.prompt.answers, self.prompt.answers)

    def __call__(self, sample: Sample) -> Flow:
        """Ask for each order, read, conclude.

        Raises:
            InputError: another number of answers, a missing reference, or a rubric that is no text.
        """
        self._check(sample)
        orders = _orders(self.prompt.answers, both=self.both_orders)
        prompts = [self._render(sample, order) for order in orders]
        sampling = sampling_for(
            sample.id,
            temperature=self.temperature,
            seed=self.seed,
            max_tokens=self.max_tokens,
            stop=("\n\n",) if self.judge == _LABEL_FIRST and not self.explain else (),
        )
        completions = yield [
            Request(key=str(place), prompt=prompt, sampling=sampling) for place, prompt in enumerate(prompts)
        ]
        shown = tuple(self._read(order, one) for order, one in zip(orders, completions, strict=True))
        return self._conclude(sample, shown, prompts, completions)

    def _check(self, sample: Sample) -> None:
        needed = self.prompt.answers
        if len(sample.answers) != needed:
            way = "a pair" if needed == 2 else "one answer"
            raise InputError(f"sample {sample.id}: {self.judge} judges {way}, got {len(sample.answers)} answers")
        if sample.reference is None and self.reference == "use":
            raise InputError(f"sample {sample.id}: no reference, which {self.judge} is to be shown; give each row one")

    def _render(self, sample: Sample, order: tuple[int, ...]) -> Prompt:
        slots = {"question": sample.question}
        slots |= {f"answer_{place}": sample.answers[index] for place, index in enumerate(order, 1)}
        if "input" in self.prompt.texts:
            slots |= _split_question(sample)
        if self.prompt.takes_reference and self.reference != "ignore" and sample.reference is not None:
            slots["reference"] = sample.reference
        if self.prompt.takes_rubric:
            slots["rubric"] = self._rubric(sample)
        return self.prompt.render(slots, chat=self.chat)

    def _rubric(self, sample: Sample) -> str:
        own = sample.metadata.get("rubric")
        if own is not None and not isinstance(own, str):
            raise InputError(f'sample {sample.id}: field "rubric": expected text, got {own!r}; write it as one text')
        if own or self.rubric:
            return own or self.rubric
        return HELPFULNESS if self.prompt.answers == 1 else HELPFULNESS.split("\n")[0]

    def _read(self, order: tuple[int, ...], completion: Completion) -> Shown:
        """A reply with its label or grade; one that was cut off has none, but for a label in a line that has ended."""
        text = completion.texts[0] if completion.texts else ""
        shown = Shown(order=order, text=text, thinking=thinking_of(completion), truncations=completion.truncations)
        if (failure := failure_of(completion)) is not None:
            return replace(shown, failure=failure)
        if completion.finish_reasons[0] == "length" and not (self.judge == _LABEL_FIRST and "\n" in text.lstrip()):
            failure = Unparsed("truncated", text, f"no end within {self.max_tokens} tokens or the window")
            return replace(shown, failure=failure)
        if self.prompt.answers == 2:
            label = _PAIR_REPLIES[self.judge](text)
            if isinstance(label, Unparsed):
                return replace(shown, failure=label)
            return replace(shown, label=label)
        grade = _GRADES[self.judge](text)
        if isinstance(grade, Unparsed):
            return replace(shown, failure=grade)
        return replace(shown, scores=(grade,))

    def _conclude(
        self, sample: Sample, shown: tuple[Shown, ...], prompts: list[Prompt], completions: list[Completion]
    ) -> Judgment:
        winners = [winner for one in shown if (winner := winner_shown(one)) is not None]
        failure = next((one.failure for one in shown if one.failure is not None), None)
        if winners and self.accept_one_order:
            failure = None
        scores = shown[0].scores
        verdict: PairVerdict | GradeVerdict | None = None
        if failure is None and scores is not None:
            verdict = GradeVerdict(score=scores[0])
        elif failure is None:
            verdict = PairVerdict(winner=winners[0] if len(set(winners)) == 1 else "tie")
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=verdict,
            shown=shown,
            scores=scores,
            consistent=winners[0] == winners[1] if len(winners) == 2 else None,
            failure=failure,
            sanitized=sum(one.sanitized for one in prompts) + sum(one.sanitized for one in completions),
            prompt_tokens=sum(one.prompt_tokens for one in completions),
            completion_tokens=sum(one.completion_tokens for one in completions),
        )


def winner_shown(shown: Shown) -> Winner | None:
    """What one order's label says, in sample order; None where that order failed, or graded."""
    if shown.label is None:
        return None
    if shown.label == "tie":
        return "tie"
    return 1 if shown.order[int(shown.label) - 1] == 0 else 2


def _orders(answers: int, *, both: bool) -> tuple[tuple[int, ...], ...]:
    if answers == 1:
        return ((0,),)
    return ((0, 1), (1, 0)) if both else ((0, 1),)


def _split_question(sample: Sample) -> dict[str, str]:
    """Instruction and input apart, where the sample has them and they are what its question says."""
    instruction, context = sample.metadata.get("instruction"), sample.metadata.get("input")
    if not isinstance(instruction, str) or not isinstance(context, str) or not context:
        return {}
    if sample.question != f"{instruction}\n\n{context}":
        return {}
    return {"question": instruction, "input": context}
