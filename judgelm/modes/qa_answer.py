"""A question with its context put to a model, and the short answer taken out of its reply.

Source: QA-Judge, section 4.2 and Table 8 (zero-shot, reasoning first, the answer in tags).
"""

from dataclasses import dataclass

from judgelm.modes.completions import cut_off, failure_of
from judgelm.modes.flow import Asking
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.modes.qa import context_of
from judgelm.parsing.answer_tags import TagRule, tagged_answer
from judgelm.prompts.qa import QA_ANSWERING
from judgelm.records import Prompt, Request, Sample, Unparsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a model answered.

    Attributes:
        text: the whole reply; empty where there is none.
        answer: what stands in its tags, see `QaAnswering.tags`; None exactly when `failure` is set.
    """

    sample_id: str
    text: str
    answer: str | None
    failure: Unparsed | None = None
    sanitized: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QaAnswering:
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

    def __call__(self, sample: Sample) -> Asking[Prediction]:
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
        """What the model reads."""
        values = {"question": sample.question, "context": context_of(sample)}
        return QA_ANSWERING.render(values, chat=self.chat)
