"""Other open judges, prompted with their own prompts and parsed by their own formats.

Their released checkpoints so run on the same runner and files as ours, to be compared with. Two things differ from
their authors' code: replies are greedy by default (PandaLM's uses 4 beams and a repetition penalty of 1.2, Prometheus'
samples at temperature 1 and asks again up to ten times), and a reply that cannot be read is a failure.

Source: PandaLM (Wang et al. 2023), Auto-J (Li et al. 2023), Prometheus (Kim et al. 2023) and Prometheus 2 (2024).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import compared, graded, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.modes.pairwise import in_sample_order, winner_of
from judgelm.parsing.other_judges import (
    read_auto_j,
    read_auto_j_rating,
    read_pandalm,
    read_prometheus_letter,
    read_prometheus_score,
)
from judgelm.prompts.other_judges import HELPFULNESS, OTHER_JUDGES, BaselineJudge, JudgePrompt
from judgelm.prompts.template import sha_of
from judgelm.records import Completion, Judgment, Prompt, Request, Sample, Scores, Shown, Unparsed

PARSERS: Mapping[BaselineJudge, Callable[[str], Scores | str | Unparsed]] = {
    "pandalm": read_pandalm,
    "auto-j": read_auto_j,
    "prometheus-relative": read_prometheus_letter,
    "auto-j-single": read_auto_j_rating,
    "prometheus-absolute": read_prometheus_score,
    "prometheus-1": read_prometheus_score,
}
"""The reader of each judge's replies."""

_LABEL_FIRST = "pandalm"


@dataclass(frozen=True, kw_only=True)
class JudgeTask:
    """A released judge's task, a pair or one answer: its prompt and its reply, from its card (`judgelm.judges`).

    Attributes:
        prompt: its prompt.
        reply: reads its reply.
        reply_id: identifies that format in hashes.
    """

    prompt: JudgePrompt
    reply: Callable[[str], Scores | str | Unparsed]
    reply_id: str


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
        judge: the judge, with its prompt and reply format.
        released_task: prompt and reply format of a judge that has a card, instead of `judge`.
        both_orders: show a pair a second time, exchanged.
        accept_one_order: when one of two orders failed, take the verdict of the other instead of failing.
        reference: `auto` shows a reference where the sample has one and the prompt a place for it (Prometheus alone),
            `use` expects one, `ignore` never shows it. `prometheus-1` always expects one.
        words: for Auto-J, whose prompt is not free to be given here: its text, with `{question}`, `{answer_1}` and,
            of a pair, `{answer_2}` in their places.
        rubric: for Prometheus and samples without their own; empty is ours, of which a pair is shown the first line.
        explain: let PandaLM continue after its label with a reason and a reference answer. The others reason first.
        chat: wrap the prompt in the tokenizer's chat template; else the judge's own wrapper, byte for byte.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the reply, its reasoning included.

    Raises:
        ConfigError: options that do not exist, or that this judge cannot have.
    """

    name: ClassVar[str] = "baseline"

    judge: BaselineJudge = "pandalm"
    released_task: JudgeTask | None = None
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
        check_choices(self, judge=BaselineJudge)
        check_above_zero(self, "max_tokens")
        words_needed = self.released_task is None and OTHER_JUDGES[self.judge].words_from_user
        if words_needed != bool(self.words):
            finding = "has words of its own; leave them out" if self.words else "needs the words of its own prompt"
            raise ConfigError(f"judge {self.template} {finding} (--mode-arg words=...)")
        prompt = self.prompt
        if self.both_orders and prompt.answers == 1:
            raise ConfigError(f"judge {prompt.id} grades one answer, which has no order; leave --both-orders out")
        if self.reference == "use" and not prompt.takes_reference:
            raise ConfigError(f"judge {prompt.id} has no place for a reference; use --reference auto or ignore")
        if self.reference == "ignore" and prompt.needs_reference:
            raise ConfigError(f"judge {prompt.id} always grades beside a reference; use --reference use")
        if prompt.needs_reference:
            object.__setattr__(self, "reference", "use")
        if self.rubric and not prompt.takes_rubric:
            raise ConfigError(f"judge {prompt.id} knows no rubric; leave it out")
        if self.explain and not self._label_first:
            raise ConfigError(f"judge {prompt.id} reasons before its verdict anyway; explain is for {_LABEL_FIRST}")

    @property
    def prompt(self) -> JudgePrompt:
        """This judge's prompt."""
        prompt = OTHER_JUDGES[self.judge] if self.released_task is None else self.released_task.prompt
        return prompt.with_words(self.words) if self.words and prompt.words_from_user else prompt

    @property
    def template(self) -> str:
        """Its id in manifests."""
        return (OTHER_JUDGES[self.judge] if self.released_task is None else self.released_task.prompt).id

    @property
    def template_sha(self) -> str:
        """Hash of its bytes, and of the reply format where a card gives it."""
        return self.prompt.sha if self.released_task is None else sha_of([self.prompt.sha, self.released_task.reply_id])

    @property
    def _label_first(self) -> bool:
        return self.released_task is None and self.judge == _LABEL_FIRST

    @property
    def answers(self) -> tuple[int, int]:
        """Two for judges of pairs, one for those that grade."""
        return (self.prompt.answers, self.prompt.answers)

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Ask for each order, read, conclude.

        Raises:
            InputError: another number of answers, a missing reference, or a rubric that is no text.
        """
        self._check(sample)
        orders = _orders(self.prompt.answers, both=self.both_orders)
        stop = ("\n\n",) if self._label_first and not self.explain else ()
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stop)
        completions = yield [
            Request(key=str(index), prompt=self._render(sample, order), sampling=sampling)
            for index, order in enumerate(orders)
        ]
        shown = [self._read(order, completion) for order, completion in zip(orders, completions, strict=True)]
        if self.prompt.answers == 1:
            return graded(self, sample, shown[0])
        judgment = compared(self, sample, shown, accept_one_order=self.accept_one_order)
        return replace(judgment, scores=_mean_scores(judgment))

    def _check(self, sample: Sample) -> None:
        needed = self.prompt.answers
        if len(sample.answers) != needed:
            way = "a pair" if needed == 2 else "one answer"
            raise InputError(f"sample {sample.id}: {self.template} judges {way}, got {len(sample.answers)} answers")
        if sample.reference is None and self.reference == "use":
            raise InputError(
                f"sample {sample.id}: no reference, which {self.template} is to be shown; give each row one"
            )

    def _render(self, sample: Sample, order: tuple[int, ...]) -> Prompt:
        slots = {"question": sample.question}
        slots |= {f"answer_{rank}": sample.answers[index] for rank, index in enumerate(order, 1)}
        if "input" in self.prompt.texts:
            slots |= _split_question(sample)
        if self.prompt.takes_reference and self.reference != "ignore" and sample.reference is not None:
            slots["reference"] = sample.reference
        if self.prompt.takes_rubric:
            slots |= _rubric_slots(self._rubric(sample))
        return self.prompt.render(slots, chat=self.chat)

    def _rubric(self, sample: Sample) -> str:
        own = sample.metadata.get("rubric")
        if own is not None and not isinstance(own, str):
            raise InputError(f'sample {sample.id}: field "rubric": expected text, got {own!r}; write it as one text')
        if own or self.rubric:
            return own or self.rubric
        return HELPFULNESS if self.prompt.answers == 1 else HELPFULNESS.split("\n")[0]

    def _read(self, order: tuple[int, ...], completion: Completion) -> Shown:
        """A reply that was cut off is a failure, except behind the end of a line that is the label."""
        line_ended = self._label_first and "\n" in "".join(completion.texts).lstrip()
        parse = PARSERS[self.judge] if self.released_task is None else self.released_task.reply
        shown = read_reply(completion, parse, max_tokens=self.max_tokens, order=order, needs_end=not line_ended)
        if shown.scores is None or len(shown.scores) < 2:
            return shown
        winner = winner_of((shown.scores[0], shown.scores[1]))
        return replace(shown, label=str(winner))


def _mean_scores(judgment: Judgment) -> tuple[float, float] | None:
    """Each answer's mean score, of a judge that scores both; None without a verdict."""
    read = [scores for shown in judgment.shown if (scores := in_sample_order(shown)) is not None]
    if judgment.verdict is None or not read:
        return None
    return (sum(scores[0] for scores in read) / len(read), sum(scores[1] for scores in read) / len(read))


def _rubric_slots(rubric: str) -> dict[str, str]:
    """A rubric as the prompts show it: whole, its criterion without brackets, and its levels, which may be a list."""
    criterion, *levels = rubric.split("\n")
    return {
        "rubric": rubric,
        "criterion": criterion.removeprefix("[").removesuffix("]"),
        "levels": "\n".join(levels),
        "bulleted_levels": "\n".join(f"- {level}" for level in levels),
    }


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
