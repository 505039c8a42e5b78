"""Talk about a finished judgment."""

from dataclasses import dataclass, replace
from typing import ClassVar

from judgelm.errors import InputError
from judgelm.modes.completions import cut_off, failure_of, thinking_of
from judgelm.modes.conversation import FOLLOW_UP
from judgelm.modes.flow import Flow, RequestFlow
from judgelm.modes.mode import check_above_zero, sampling_for
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.reasons import Reasons
from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import follow_up_prompt, stops, talk_sha
from judgelm.records import Completion, Judgment, Request, Sample, Shown, Truncation, Unparsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and the judge's reply.

    Attributes:
        reply: None where there is none.
        thinking: the thinking before it; None where there is none.
        failure: why there is no reply, or `truncated` where it has no end.
        cut: answers under judgment that had to be cut to make room for the talk.
        sanitized: confusables of turn markers sanitized in all that was said up to the question.
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
    """Follow-up questions about one judgment; a call with a question asks the judge.

    It continues one of the prompts shown: the first that was explained, else the first that could be read.

    Attributes:
        mode: that judged; it makes the prompt again.
        sample: that was judged.
        judgment: by that mode, with at least one readable reply.
        history: the earlier questions and replies.
        max_tokens: room for a reply.
        temperature: 0 is greedy; otherwise each reply has a seed made of `seed`, the sample's id and its place.

    Raises:
        ConfigError: no room for a reply.
        InputError: the judgment is another sample's or mode's, or holds no readable reply to talk about.
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
            raise InputError(
                f"the judgment is of sample {judgment.sample_id} by mode {judgment.mode}, not of {self.sample.id} by "
                f"{self.mode.name}; give the sample and the mode that it was made with"
            )
        if not any(_talked_about(shown) for shown in judgment.shown):
            raise InputError(
                f"judgment {judgment.sample_id}: it holds no readable reply to talk about; judge the sample again"
            )

    @property
    def shown(self) -> Shown:
        """The prompt and reply that the talk continues."""
        readable = [shown for shown in self.judgment.shown if _talked_about(shown)]
        return next((shown for shown in readable if shown.reason is not None), readable[0])

    @property
    def reply(self) -> str:
        """The judge's reply: its score line, and the reason where there is one."""
        return self.shown.text if self.shown.reason is None else f"{self.shown.text}\n{self.shown.reason}"

    def __call__(self, question: str) -> RequestFlow[Exchange]:
        """Ask one question.

        Raises:
            InputError: the question is blank, or an earlier one got no reply.
        """
        if not question.strip():
            raise InputError(f"sample {self.sample.id}: follow-up {len(self.history) + 1} is blank; write a question")
        judged = self.mode.prompt_of(self.sample, self.shown.order, self.shown.part)
        turns = [judged.prefill + self.reply]
        for index, earlier in enumerate(self.history, 1):
            if earlier.reply is None:
                raise InputError(
                    f"sample {self.sample.id}: follow-up {index} has no reply; leave it out of the history"
                )
            turns += [earlier.question, earlier.reply]
        template = get_template(self.mode.template)
        prompt = follow_up_prompt(template, judged, [*turns, question])
        seeded = f"{self.sample.id} follow-up {len(self.history) + 1}"
        sampling = sampling_for(self, seeded, self.max_tokens, stop=stops(template))
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        return self._exchange(question, prompt.sanitized - judged.sanitized, completion)

    def after(self, exchange: Exchange) -> "FollowUp":
        """The talk with one exchange more behind it."""
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
    """Judge a pair, then answer the sample's questions about it.

    The questions are the sample's `metadata["follow_ups"]`, a list of texts, asked one after the other; the replies
    stand in `Judgment.shown` behind the orders, as parts `follow-up 1` and on, each with its text or its failure. The
    verdict is a pair's and does not change with them. A judgment without verdict has no follow-ups, and after a
    question without reply no other is asked; their entries say so.

    Attributes:
        reasons: as in `Pairwise`; by default the judge explains itself first, as there is more to talk about then.
        reply_tokens: room for each reply.

    The others are those of `Pairwise`.

    Raises:
        ConfigError: options that do not exist or do not fit together.
    """

    name: ClassVar[str] = "chat"
    shown_fields: ClassVar[tuple[str, ...]] = ("follow_ups",)
    takes_rewards: ClassVar[bool] = False
    ignores_id: ClassVar[bool] = False

    reasons: Reasons = "all"
    reply_tokens: int = 512

    def __post_init__(self) -> None:
        """Check the options of pairs, and the room for replies."""
        Pairwise.__post_init__(self)
        check_above_zero(self, "reply_tokens")
        stops(get_template(self.template))  # raises where a plain template has no turns

    @property
    def template_sha(self) -> str:
        """Hash of the template's bytes for a pair, and of what stands between the turns of a talk."""
        return talk_sha(get_template(self.template))

    def __call__(self, sample: Sample) -> Flow:
        """Judge, then ask question after question.

        Raises:
            InputError: as `check`.
        """
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
        """See that the sample's questions, if it has any, are questions.

        Raises:
            InputError: they are not.
        """
        follow_ups_of(sample)


def follow_ups_of(sample: Sample) -> tuple[str, ...]:
    """The sample's questions; none where it has none.

    Raises:
        InputError: they are no list of texts that say something.
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
    """The judgment with the talk about it: a reply, or why there is none, for each question."""
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
        assert last is not None, "the talk only breaks off where a reply failed"
        failure = Unparsed(last.code, "", f"not asked, since follow-up {len(talk.history)} has no reply")
        shown.append(Shown(order=talk.shown.order, part=f"{FOLLOW_UP} {index}", text="", failure=failure))
    return replace(
        judgment,
        shown=(*judgment.shown, *shown),
        sanitized=judgment.sanitized + talk.history[-1].sanitized,
        prompt_tokens=judgment.prompt_tokens + sum(exchange.prompt_tokens for exchange in talk.history),
        completion_tokens=judgment.completion_tokens + sum(exchange.completion_tokens for exchange in talk.history),
    )
