"""The judge's own answers to the question that it is to judge.

All `k` answers to a question are one request, so the engine reads the question once. What an earlier run answered is
used again: a sample whose `metadata["solves"]` holds a list of `{"text": ..., "answer": ...}`, as the rows of run files
have it under `solves`, is not asked anything.

Source: Self-Reference, equation 2; SSR-Judge, sections 3.2 and 3.3, equations 1 and 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import failure_of, thinking_of
from judgelm.modes.flow import RequestFlow
from judgelm.modes.options import check_choices, sampling_for
from judgelm.parsing.short_answers import Task, final_answer
from judgelm.prompts.self_reference import question_of, solving_prompt
from judgelm.records import Request, Sample, SelfAnswer, Unparsed

_NEXT_QUESTION = ("\nThe question is:", "\nQuestion:", "\n[System]", "\n[Question]", "\n[User Question]")
"""A base model, which knows no end, begins another question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """Ask the judge the question itself.

    Attributes:
        task: what the question asks for; it decides prompt and extraction.
        count: how many answers, k in the papers.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: most tokens of an answer; one that has no end by then rarely has a final answer (None).
        chat: one user message for the tokenizer's chat template; else plain text, for base models.

    Raises:
        ConfigError: no such task, no answers, or several greedy ones, which would all be the same.
    """

    task: Task
    count: int
    temperature: float
    max_tokens: int
    seed: int = 0
    chat: bool = True

    def __post_init__(self) -> None:
        check_choices(self, task=Task)
        if self.count < 1 or self.max_tokens < 1:
            raise ConfigError(f"{self.count} solves of {self.max_tokens} tokens: both must be 1 or more")
        if not self.temperature >= 0:
            raise ConfigError(f"solve temperature is {self.temperature}; it must be 0 or above")
        if self.count > 1 and self.temperature == 0:
            raise ConfigError(f"{self.count} solves at temperature 0 are all the same; set a temperature above 0")

    def __call__(self, sample: Sample) -> RequestFlow[tuple[SelfAnswer, ...] | Unparsed]:
        """The sample's own solves, else those of one request, in the order drawn.

        Raises:
            InputError: the sample lacks what the task needs, or has too few solves of its own.
        """
        if (saved := self.saved(sample)) is not None:
            return saved
        [completion] = yield [self.request(sample)]
        if (failure := failure_of(completion)) is not None:
            return failure
        letters = question_of(sample).letters
        return tuple(
            SelfAnswer(
                text=text,
                answer=final_answer(text, self.task, letters=letters, finished=reason == "stop"),
                thinking=thinking_of(completion, index),
            )
            for index, (text, reason) in enumerate(zip(completion.texts, completion.finish_reasons, strict=True))
        )

    def request(self, sample: Sample) -> Request:
        """One prompt, `count` replies."""
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stops(chat=self.chat))
        prompt = solving_prompt(sample, self.task, chat=self.chat)
        return Request(key="solve", prompt=prompt, sampling=replace(sampling, n=self.count))

    def saved(self, sample: Sample) -> tuple[SelfAnswer, ...] | None:
        """The first `count` of the solves that an earlier run left with the sample; None where it left none.

        A solve without the field `answer` has its answer extracted from the text.

        Raises:
            InputError: they are no solves, or fewer than `count`, so that a share of them would mean something else.
        """
        solves = sample.metadata.get("solves")
        if solves is None:
            return None
        if not isinstance(solves, Sequence) or isinstance(solves, str):
            raise _wrong(sample, "expected a list of {text, answer}")
        if len(solves) < self.count:
            raise _wrong(sample, f"expected {self.count} solves, got {len(solves)}")
        letters = question_of(sample).letters
        return tuple(self._read(sample, solve, letters) for solve in solves[: self.count])

    def _read(self, sample: Sample, solve: object, letters: int) -> SelfAnswer:
        if isinstance(solve, SelfAnswer):
            return solve
        text = solve.get("text") if isinstance(solve, Mapping) else None
        if not isinstance(solve, Mapping) or not isinstance(text, str):
            raise _wrong(sample, "a solve has no text")
        answer = solve["answer"] if "answer" in solve else final_answer(text, self.task, letters=letters)
        if answer is not None and not isinstance(answer, str):
            raise _wrong(sample, "a solve's answer is no text")
        return SelfAnswer(text=text, answer=answer)


def stops(*, chat: bool) -> tuple[str, ...]:
    """Stop strings of a reply that reasons first: a base model's ends where it begins another question."""
    return () if chat else _NEXT_QUESTION


def _wrong(sample: Sample, finding: str) -> InputError:
    return InputError(f'sample {sample.id}: field "solves": {finding}; correct it, or leave it out to solve anew')
