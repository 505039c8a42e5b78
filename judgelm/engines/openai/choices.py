"""One request of ours, as many of the server's as it takes: replies drawn, missing ones asked for again, ends made."""

from dataclasses import dataclass, replace

from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.request_body import RenderedPrompt, request_body
from judgelm.engines.openai.response import Choice
from judgelm.engines.openai.unsupported_params import CHAT_TEMPLATE
from judgelm.prompts.thinking import template_arguments
from judgelm.records import FinishReason, Sampling, ThinkingMode


class UnusableReplyError(Exception):
    """The server answered, but with no reply: filtered, refused by the model, ended for an unknown reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledReplies:
    """Drawn replies, and what the server billed for them."""

    choices: tuple[Choice, ...]
    prompt_tokens: int
    completion_tokens: int


class ReplySampler:
    """Draws replies of one model.

    Args:
        pool: where.
        model: the server's name for it.
        thinking: what the server is told of it, for its chat template.
    """

    def __init__(self, pool: EndpointPool, model: str, thinking: ThinkingMode = "absent") -> None:
        self._told = template_arguments(thinking)
        self.pool = pool
        self._model = model

    async def draw(self, written: RenderedPrompt, sampling: Sampling, *, logprobs: bool = False) -> SampledReplies:
        """`sampling.n` replies; a greedy one is drawn once, since all would be alike (vLLM refuses more).

        Raises:
            RefusedError, GaveUpError, OverBudgetError, EngineError: as `Endpoint.ask`.
        """
        greedy = sampling.temperature == 0 and "temperature" not in self.pool.given_up
        wanted = 1 if greedy else sampling.n
        choices: tuple[Choice, ...] = ()
        prompt_tokens = completion_tokens = 0
        while len(choices) < wanted:
            # the same seed would give the same replies again
            rest = replace(sampling, n=wanted - len(choices), seed=sampling.seed + len(choices))
            body = request_body(self._model, written, rest, logprobs=logprobs)
            if self._told and written.api == "chat":
                body[CHAT_TEMPLATE] = self._told
            got, usage = await self.pool.ask(written.api, body)
            choices += got
            prompt_tokens = usage.prompt_tokens
            completion_tokens += usage.completion_tokens
        copies = sampling.n if greedy else 1
        return SampledReplies(
            choices=choices[:wanted] * copies,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens * copies,
        )

    def ended(self, choice: Choice, written: RenderedPrompt, sampling: Sampling) -> tuple[str, FinishReason]:
        """The reply's text as the contract has it, and why it ended.

        Raises:
            UnusableReplyError: it is no reply.
        """
        if choice.refusal is not None:
            raise UnusableReplyError(f"the model refused: {choice.refusal}")
        if choice.finish_reason not in ("stop", "length"):
            raise UnusableReplyError(f"the server ended the reply with finish_reason {choice.finish_reason!r}")
        text = choice.text or ""
        if not text and choice.thinking:
            return "", "thinking"
        if written.continued:  # some servers begin the reply anew instead, and not all of them say so
            text = text.removeprefix(written.continued)
        ends = [place for mark in sampling.stop if (place := text.find(mark)) >= 0]
        if ends:
            end = min(ends)
            if sampling.include_stop:
                end += next(len(mark) for mark in sampling.stop if text.startswith(mark, end))
            return text[:end], "stop"
        return text, "stop" if choice.finish_reason == "stop" else "length"
