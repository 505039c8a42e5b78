"""Follow-up questions about a judgment, on a server or web page (`FollowUp`) or in a batch run (`Chat`).

Source: JudgeLM, section 6 and Figure 19.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from judgelm.errors import InputError
from judgelm.modes.completions import cut_off, failure_of, thinking_of
from judgelm.modes.conversation import FOLLOW_UP
from judgelm.modes.flow import Flow, RequestFlow
from judgelm.modes.mode import check_above_zero, sampling_for
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.readings import reading_of
from judgelm.modes.reasons import Reasons
from judgelm.prompts.conversation import follow_up_prompt, stops, talk_sha
from judgelm.records import Completion, Judgment, Request, Sample, Shown, Truncation, Unparsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and the judge's reply.

    Attributes:
        failure: the reason for a missing reply; `truncated` if the reply is incomplete.
        truncations: judged answers that were cut to make room for the question.
        sanitized: number of sanitized turn markers so far.
    """

    question: str
    reply: str | None
    thinking: str | None = None
    failure: Unparsed | None = None
    truncations: tuple[Truncation, ...] = ()
    sanitized: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """A conversation about one judgment. Call it with a question.

    The conversation continues the first prompt with a reason, or else the first prompt with a parseable reply.

        talk = FollowUp(mode=mode, sample=sample, judgment=judgment)
        exchange = yield from talk("Why is the second answer better?")
        talk = talk.after(exchange)

    Raises:
        InputError: the judgment is for a different sample or mode, or has no parseable reply.
    """

    mode: Pairwise
    sample: Sample
    judgment: Judgment
    history: tuple[Exchange, ...] = ()
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens")
        judgment = self.judgment
        if (self.mode.name, self.sample.id) != (judgment.mode, judgment.sample_id):
            judged = f"sample {judgment.sample_id} by mode {judgment.mode}"
            raise InputError(f"the judgment is for {judged}, not for {self.sample.id} by {self.mode.name}")
        if not any(_talked_about(shown) for shown in judgment.shown):
            raise InputError(f"judgment {judgment.sample_id} has no parseable reply; judge the sample again")

    @property
    def shown(self) -> Shown:
        """The prompt and reply that the conversation continues."""
        readable = [shown for shown in self.judgment.shown if _talked_about(shown)]
        return next((shown for shown in readable if shown.reason is not None), readable[0])

    @property
    def reply(self) -> str:
        """The judge's reply: its score line or verdict word, and its reason, if any."""
        text, reason, verdict = self.shown.text, self.shown.reason, reading_of(self.mode).verdict
        if verdict is not None and verdict.reason_tokens is not None:
            return text  # it includes the reason
        text = text if verdict is None else f"{verdict.before.lstrip()}{text}"
        return text if reason is None else f"{text}\n{reason}"

    def __call__(self, question: str) -> RequestFlow[Exchange]:
        """Ask a question.

        Raises:
            InputError: the question is blank, or an earlier question has no reply.
        """
        if not question.strip():
            raise InputError(f"sample {self.sample.id}: follow-up {len(self.history) + 1} is blank; write a question")
        judged = self.mode.prompt_of(self.sample, self.shown.order, self.shown.part)
        turns = [judged.prefill + self.reply]
        for index, earlier in enumerate(self.history, 1):
            if earlier.reply is None:
                raise InputError(f"sample {self.sample.id}: follow-up {index} has no reply; remove it from the history")
            turns += [earlier.question, earlier.reply]
        template = reading_of(self.mode)
        prompt = follow_up_prompt(template, judged, [*turns, question])
        seeded = f"{self.sample.id} follow-up {len(self.history) + 1}"
        sampling = sampling_for(self, seeded, self.max_tokens, stop=stops(template))
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        return self._exchange(question, prompt.sanitized - judged.sanitized, completion)

    def after(self, exchange: Exchange) -> "FollowUp":
        """Return the conversation with one more exchange."""
        return replace(self, history=(*self.history, exchange))

    def _exchange(self, question: str, sanitized: int, completion: Completion) -> Exchange:
        failure = failure_of(completion) or cut_off(completion, self.max_tokens)
        reply = completion.texts[0].strip() if completion.texts else None
        if reply == "":
            reply, failure = None, failure or Unparsed("off_grammar", "", "the reply is empty")
        return Exchange(
            question=question,
            reply=reply,
            thinking=thinking_of(completion),
            failure=failure,
            truncations=completion.truncations,
            sanitized=sanitized,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(Pairwise):
    """Judge a pair, then answer the questions in `metadata["follow_ups"]`, a list of strings.

    The replies are added to the end of `Judgment.shown` as parts `follow-up 1`, `follow-up 2`, and so on; the verdict
    does not change. After a question without a reply, no more questions are asked.

    Attributes:
        reply_tokens: token limit for each reply.
    """

    name: ClassVar[str] = "chat"
    shown_fields: ClassVar[tuple[str, ...]] = ("follow_ups",)
    takes_rewards: ClassVar[bool] = False
    ignores_id: ClassVar[bool] = False

    reasons: Reasons = "all"
    reply_tokens: int = 512

    def __post_init__(self) -> None:
        Pairwise.__post_init__(self)
        check_above_zero(self, "reply_tokens")
        stops(reading_of(self))  # raises an error if a plain-text template does not support turns

    @property
    def template_sha(self) -> str:
        """Hash of the template and the text between turns."""
        return talk_sha(reading_of(self))

    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        questions = follow_ups_of(sample)
        judgment = yield from Pairwise.__call__(self, sample)
        if judgment.verdict is None or not questions:
            return judgment
        talk = FollowUp(
            mode=self,
            sample=sample,
            judgment=judgment,
            max_tokens=self.reply_tokens,
            temperature=self.temperature,
            seed=self.seed,
        )
        while len(talk.history) < len(questions):
            exchange = yield from talk(questions[len(talk.history)])
            talk = talk.after(exchange)
            if exchange.reply is None:
                break
        return _with_replies(judgment, talk, len(questions))

    def check(self, sample: Sample) -> None:
        """Check the sample's follow-up questions."""
        follow_ups_of(sample)


def follow_ups_of(sample: Sample) -> tuple[str, ...]:
    """Return the sample's follow-up questions.

    Raises:
        InputError: the field is not a list of non-blank strings.
    """
    questions = sample.metadata.get("follow_ups")
    if questions is None:
        return ()
    if not isinstance(questions, list) or not all(isinstance(text, str) and text.strip() for text in questions):
        raise InputError(f'sample {sample.id}: follow_ups: expected a list of questions, such as ["Why?"]')
    return tuple(questions)


def _talked_about(shown: Shown) -> bool:
    return shown.failure is None and not shown.part.startswith(FOLLOW_UP)


def _with_replies(judgment: Judgment, talk: FollowUp, questions: int) -> Judgment:
    shown = [
        Shown(
            order=talk.shown.order,
            part=f"{FOLLOW_UP} {index}",
            text=exchange.reply or "",
            thinking=exchange.thinking,
            failure=exchange.failure,
            truncations=exchange.truncations,
        )
        for index, exchange in enumerate(talk.history, 1)
    ]
    for index in range(len(shown) + 1, questions + 1):
        last = talk.history[-1].failure
        assert last is not None, "the conversation only stops early if a reply failed"
        failure = Unparsed(last.code, "", f"not asked, because follow-up {len(talk.history)} has no reply")
        shown.append(Shown(order=talk.shown.order, part=f"{FOLLOW_UP} {index}", text="", failure=failure))
    return replace(
        judgment,
        shown=(*judgment.shown, *shown),
        sanitized=judgment.sanitized + talk.history[-1].sanitized,
        prompt_tokens=judgment.prompt_tokens + sum(exchange.prompt_tokens for exchange in talk.history),
        completion_tokens=judgment.completion_tokens + sum(exchange.completion_tokens for exchange in talk.history),
    )
