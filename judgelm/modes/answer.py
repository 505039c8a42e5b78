"""A question put to a model whose answers are to be judged later.

Source: JudgeLM, section 3.1 (answers of many models, of which pairs are drawn for the teacher); QA-Judge, section 4.2
and Table 8 (a question about a context: zero-shot, reasoning first, the answer in tags).
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from judgelm.errors import ConfigError
from judgelm.modes.completions import cut_off, failure_of, thinking_of
from judgelm.modes.flow import RequestFlow
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.modes.qa import context_of
from judgelm.parsing.answer_tags import TagRule, tagged_answer
from judgelm.prompts.qa import QA_ANSWERING
from judgelm.records import FinishReason, Prompt, Request, Sample, Span, Unparsed

PLAIN = "Question: {question}\nAnswer:"
"""The prompt of a base model, which knows no chat."""

_NEXT_QUESTION = "\nQuestion:"
"""A base model, which knows no end, begins another question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Sampling of an answer: greedy at temperature 0, else with a seed."""

    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be 0 or above")

    @property
    def name(self) -> str:
        """The value of `decoding_method` in answer rows."""
        return "greedy" if self.temperature == 0 else f"temperature={self.temperature:g},seed={self.seed}"


class AnswerTask(NamedTuple):
    """One answer to generate. `question` is a sample without answers."""

    question: Sample
    decoding: Decoding

    @property
    def id(self) -> str:
        """Unique in a model's run; another question under the same id is another draw."""
        text = self.question.question.encode(errors="surrogatepass")
        return f"{self.question.id}#{self.decoding.name}#{hashlib.blake2b(text, digest_size=4).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer, or the reason why there is none; `text` is None exactly when `failure` is set.

    `thinking` is the thinking before it; None where there is none.
    """

    draw: AnswerTask
    text: str | None
    thinking: str | None = None
    failure: Unparsed | None = None
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMode:
    """Ask a model a question.

    Attributes:
        chat: whether the tokenizer's chat template wraps the question; else it stands in `plain`.
        system: what a chat's system message says; None leaves it out.
        plain: text with `{question}`; the reply ends where the model begins another question.
        max_tokens: an answer ends here at the latest, and says so.

    Raises:
        ConfigError: no place for the question, or no room for an answer.
    """

    chat: bool = True
    system: str | None = None
    plain: str = PLAIN
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.plain.count("{question}") != 1:
            raise ConfigError(f"plain is {self.plain!r}; it must hold {{question}} once")
        check_above_zero(self, "max_tokens")

    def __call__(self, draw: AnswerTask) -> RequestFlow[Answer]:
        """Ask once."""
        stop = () if self.chat else (_NEXT_QUESTION,)
        sampling = sampling_for(draw.decoding, draw.question.id, self.max_tokens, stop=stop)
        [completion] = yield [Request(key="0", prompt=self.prompt(draw.question.question), sampling=sampling)]
        if (failure := failure_of(completion)) is not None:
            failure = Unparsed(failure.code, "", completion.error)
            return Answer(draw=draw, text=None, failure=failure, finish_reason=completion.finish_reasons[0])
        return Answer(
            draw=draw,
            text=completion.texts[0].strip(),
            thinking=thinking_of(completion),
            finish_reason=completion.finish_reasons[0],
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )

    def prompt(self, question: str) -> Prompt:
        """The prompt that the model reads."""
        if self.chat:
            system = () if self.system is None else (Span(self.system, "template", "system"),)
            return Prompt(spans=(*system, Span(question, "question", "user")), chat=True)
        before, _, after = self.plain.partition("{question}")
        return Prompt(spans=(Span(before), Span(question, "question"), Span(after)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A model's reply and the short answer in it.

    Attributes:
        text: the whole reply; empty where there is none.
        answer: what stands in its tags, see `QaAnswerMode.tags`; None exactly when `failure` is set.
    """

    sample_id: str
    text: str
    answer: str | None
    failure: Unparsed | None = None
    sanitized: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QaAnswerMode:
    """Ask a model a question about the sample's `metadata["context"]`.

    Attributes:
        tags: where in the reply the answer stands. The default takes the last tags, since a model that reasons may
            write others before; `first` is the original code's, and takes a reply without tags as the answer.
        chat: whether the tokenizer's chat template wraps the prompt; else it is plain text.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for reasoning and answer.

    Raises:
        ConfigError: no such rule, or no room for an answer.
    """

    tags: TagRule = "last"
    chat: bool = True
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        """Check each option."""
        check_choices(self, tags=TagRule)
        check_above_zero(self, "max_tokens")

    def __call__(self, sample: Sample) -> RequestFlow[Prediction]:
        """Ask once. The sample needs no answers."""
        prompt = self.prompt(sample)
        sampling = sampling_for(self, sample.id, self.max_tokens)
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        text = completion.texts[0] if completion.texts else ""
        answer = tagged_answer(text, self.tags).strip()
        failure = failure_of(completion)
        if failure is not None:
            failure = Unparsed(failure.code, "", completion.error)
        elif "</ans>" not in text.lower() and cut_off(completion, self.max_tokens):
            failure = Unparsed("truncated", text, f"no closed tags within {self.max_tokens} tokens")
        elif not answer:
            failure = Unparsed("off_grammar", text, f"rule {self.tags} finds no answer")
        return Prediction(
            sample_id=sample.id,
            text=text,
            answer=None if failure else answer,
            failure=failure,
            sanitized=prompt.sanitized + completion.sanitized,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )

    def prompt(self, sample: Sample) -> Prompt:
        """The prompt that the model reads."""
        values = {"question": sample.question, "context": context_of(sample)}
        return QA_ANSWERING.render(values, chat=self.chat)
