"""Text generation for datasets: answers to questions and a teacher's judgments of pairs.

Source: JudgeLM, section 3.1, Figures 3 and 4; Self-Reference, Figures 5 to 7; QA-Judge, section 4.2 and Table 8.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, NamedTuple

from judgelm.errors import ConfigError
from judgelm.modes.completions import cut_off, failure_of, judged, read_reply, thinking_of, with_usage
from judgelm.modes.flow import Flow, RequestFlow
from judgelm.modes.mode import SampledMode, check_above_zero, sampling_for
from judgelm.modes.qa import QA_ANSWERING, context_of
from judgelm.modes.self_reference import stops
from judgelm.parsing.scores import parse_pair, split_score_line
from judgelm.parsing.short_answers import final_answer
from judgelm.parsing.verdicts import TagRule, tagged_answer
from judgelm.prompts.catalog import get_template
from judgelm.prompts.self_reference import question_of, solving_prompt
from judgelm.records import (
    Completion,
    FinishReason,
    PairVerdict,
    Prompt,
    Request,
    Sample,
    Shown,
    Span,
    Unparsed,
    winner_of,
)

PLAIN = "Question: {question}\nAnswer:"
"""Prompt for base models."""

QuestionTask = Literal["question", "number", "choice", "preference", "qa"]
"""`question`: the question with its options. `number`, `choice`, `preference`: Self-Reference, Figures 5, 6, and 7.
`qa`: QA-Judge, Table 8, with the sample's context.
"""

_NEXT_QUESTION = "\nQuestion:"
"""Base models do not end their reply but start another question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decoding options for an answer: greedy at temperature 0, otherwise seeded sampling."""

    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be at least 0")

    @property
    def name(self) -> str:
        """The value of `decoding_method` in answer rows."""
        return "greedy" if self.temperature == 0 else f"temperature={self.temperature:g},seed={self.seed}"


class AnswerTask(NamedTuple):
    """One answer to generate; `question` is a sample without answers."""

    question: Sample
    decoding: Decoding

    @property
    def id(self) -> str:
        """ID within a model's run, unique even if a sample's question or options change."""
        text = question_of(self.question).text.encode(errors="surrogatepass")
        return f"{self.question.id}#{self.decoding.name}#{hashlib.blake2b(text, digest_size=4).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer:
    """A model's answer or failure; `text` is None if and only if `failure` is set.

    `final` is the extracted final answer, if any. It is always None for task `question`.
    """

    draw: AnswerTask
    text: str | None
    final: str | None = None
    thinking: str | None = None
    failure: Unparsed | None = None
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMode:
    """Ask a model a question.

    Attributes:
        chat: use the tokenizer's chat template instead of plain text.
        system: system message for the chat; only for task `question`.
        plain: plain-text prompt with the slot `{question}`; only for task `question`.
        task: kind of answer, which determines the prompt and how the final answer is extracted.
        tags: for task `qa`, which tags to extract the answer from: `last`, for models that reason first, or `first`, as
            in the original code.
    """

    chat: bool = True
    system: str | None = None
    plain: str = PLAIN
    task: QuestionTask = "question"
    tags: TagRule = "last"
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.plain.count("{question}") != 1:
            raise ConfigError(f"plain is {self.plain!r}; it must contain {{question}} exactly once")
        if self.task != "question" and (self.system is not None or self.plain != PLAIN):
            raise ConfigError(f"task {self.task} uses the paper's prompt; remove system and plain")
        check_above_zero(self, "max_tokens")

    def __call__(self, draw: AnswerTask) -> RequestFlow[GeneratedAnswer]:
        """Ask a question once."""
        sampling = sampling_for(draw.decoding, draw.question.id, self.max_tokens, stop=self._stops())
        [completion] = yield [Request(key="0", prompt=self.prompt(draw.question), sampling=sampling)]
        failure = failure_of(completion)
        if failure is not None:
            failure = Unparsed(failure.code, "", completion.error)
            return GeneratedAnswer(draw=draw, text=None, failure=failure, finish_reason=completion.finish_reasons[0])
        return GeneratedAnswer(
            draw=draw,
            text=completion.texts[0].strip(),
            final=self._final(draw.question, completion),
            thinking=thinking_of(completion),
            finish_reason=completion.finish_reasons[0],
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )

    def prompt(self, sample: Sample) -> Prompt:
        """Return the prompt for the model."""
        if self.task == "qa":
            return QA_ANSWERING.render({"question": sample.question, "context": context_of(sample)}, chat=self.chat)
        if self.task != "question":
            return solving_prompt(sample, self.task, chat=self.chat)
        question = question_of(sample).text
        if self.chat:
            system = () if self.system is None else (Span(self.system, "template", "system"),)
            return Prompt(spans=(*system, Span(question, "question", "user")), chat=True)
        before, _, after = self.plain.partition("{question}")
        return Prompt(spans=(Span(before), Span(question, "question"), Span(after)))

    def _stops(self) -> tuple[str, ...]:
        if self.task == "question":
            return () if self.chat else (_NEXT_QUESTION,)
        return () if self.task == "qa" else stops(chat=self.chat)

    def _final(self, sample: Sample, completion: Completion) -> str | None:
        text = completion.texts[0]
        if self.task == "question":
            return None
        if self.task == "qa":
            unfinished = "</ans>" not in text.lower() and cut_off(completion, self.max_tokens)
            return None if unfinished else tagged_answer(text, self.tags).strip() or None
        finished = completion.finish_reasons[0] == "stop"
        return final_answer(text, self.task, letters=question_of(sample).letters, finished=finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherMode(SampledMode):
    """Ask a teacher to judge a pair once, in the given order and with the reference, if any.

    The teacher writes the score line and the reason in a single reply of at most `reason_tokens` tokens. Each order is
    a separate sample (`judgelm.runs.teacher`), so paid requests are not repeated after a failure.
    """

    name: ClassVar[str] = "teaching"
    answers: ClassVar[tuple[int, int]] = (2, 2)
    reference: ClassVar[Literal["auto"]] = "auto"

    template: str = "judgelm-paper"
    scale: tuple[float, float] = (1, 10)
    reason_tokens: int = 1024

    def __post_init__(self) -> None:
        if get_template(self.template).reads_words:
            raise ConfigError(f"template {self.template} asks for one word, not scores; use --template judgelm-paper")
        check_above_zero(self, "reason_tokens")

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        [completion] = yield [self.request(sample)]
        shown = self._read(completion)
        scores = None if shown.scores is None else (shown.scores[0], shown.scores[1])
        verdict = None if scores is None else PairVerdict(winner=winner_of(scores))
        return judged(self, sample, (shown,), verdict, scores=scores, failure=shown.failure)

    def request(self, sample: Sample) -> Request:
        """Return the request to send to the teacher."""
        prompt = get_template(self.template).render(sample, (0, 1), sample.reference)
        return Request(key="0", prompt=prompt, sampling=sampling_for(self, sample.id, self.reason_tokens))

    def _read(self, completion: Completion) -> Shown:
        line, reason = split_score_line("".join(completion.texts), self.scale)
        parse, needs_end = partial(parse_pair, scale=self.scale), not line.endswith(("\n", "\r"))
        shown = read_reply(completion, parse, max_tokens=self.reason_tokens, order=(0, 1), needs_end=needs_end)
        if shown.failure is not None:
            return shown
        lacks = cut_off(completion, self.reason_tokens)
        if lacks is None and not reason:
            lacks = Unparsed("off_grammar", "", "there is no text after the score line")
        return replace(shown, reason=None if lacks else reason, reason_failure=lacks)
