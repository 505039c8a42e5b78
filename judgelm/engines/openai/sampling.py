"""Samples the replies of one request, in as many requests to the server as that takes."""

from dataclasses import replace

from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.request_body import RenderedPrompt, request_body
from judgelm.engines.openai.response import Answer, Choice, Usage
from judgelm.engines.openai.unsupported_params import CHAT_TEMPLATE
from judgelm.prompts.chat_templates import template_arguments
from judgelm.records import FinishReason, Sampling, ThinkingMode


class UnusableReplyError(Exception):
    """The server answered without a reply: filtered, refused by the model, or ended for an unknown reason."""


class ReplySampler:
    """Samples replies of one model.

    Args:
        pool: the servers.
        model: the server's name for the model.
        thinking: passed to the server's chat template.
    """

    def __init__(self, pool: EndpointPool, model: str, thinking: ThinkingMode = "absent") -> None:
        self._thinking = thinking
        self._template_arguments = template_arguments(thinking)
        self.pool = pool
        self._model = model
        self._begins_blank = False

    async def sample(self, prompt: RenderedPrompt, sampling: Sampling, *, logprobs: bool = False) -> Answer:
        """Sample `sampling.n` replies; a greedy one is sampled once and copied (vLLM refuses several).

        Raises:
            RefusedError, RetriesExhaustedError, OverBudgetError, EngineError: as `Endpoint.complete`.
        """
        greedy = sampling.temperature == 0 and "temperature" not in self.pool.unsupported_params
        wanted = 1 if greedy else sampling.n
        choices: tuple[Choice, ...] = ()
        prompt_tokens = completion_tokens = 0
        while len(choices) < wanted:
            # the same seed would give the same replies again
            rest = replace(sampling, n=wanted - len(choices), seed=sampling.seed + len(choices))
            if self._begins_blank:
                rest = replace(rest, stop=tuple(stop for stop in rest.stop if not stop.isspace()))
            body = request_body(self._model, prompt, rest, logprobs=logprobs)
            if self._template_arguments and prompt.api == "chat":
                body[CHAT_TEMPLATE] = self._template_arguments
            answer = await self.pool.complete(prompt.api, body)
            prompt_tokens = answer.usage.prompt_tokens
            completion_tokens += answer.usage.completion_tokens
            if "stop" in body and rest.blank_stops and any(map(_says_nothing, answer.choices)):
                self._begins_blank = True  # the server stops at an empty first line: from now on it is not told to
                continue
            choices += tuple(self._settled(choice, answer, rest) for choice in answer.choices)
        copies = sampling.n if greedy else 1
        return Answer(
            choices[:wanted] * copies, Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens * copies)
        )

    def _settled(self, choice: Choice, answer: Answer, sampling: Sampling) -> Choice:
        """The choice with a known finish reason, and with its text where a reasoning parser took that for thinking."""
        if choice.finish_reason is None:
            choice = replace(choice, finish_reason=_finish_reason(choice, answer, sampling))
        if self._thinking == "off" and not choice.text and choice.thinking and choice.finish_reason == "stop":
            return replace(choice, text=choice.thinking, thinking="")
        return choice


def _says_nothing(choice: Choice) -> bool:
    return choice.finish_reason == "stop" and not (choice.text or choice.thinking or choice.refusal or "").strip()


def _finish_reason(choice: Choice, answer: Answer, sampling: Sampling) -> str:
    """`length` where a reply that states no known reason may have been cut off: it has as many tokens as it may."""
    tokens = answer.usage.completion_tokens or len(choice.text or "") + len(choice.thinking)
    return "stop" if tokens < sampling.max_tokens else "length"


def reply_of(choice: Choice, prompt: RenderedPrompt, sampling: Sampling) -> tuple[str, FinishReason]:
    """The text and the finish reason of a reply, as `Completion` has them.

    Raises:
        UnusableReplyError: there is no reply.
    """
    if choice.refusal is not None:
        raise UnusableReplyError(f"the model refused: {choice.refusal}")
    if choice.finish_reason not in ("stop", "length"):
        raise UnusableReplyError(f"the server ended the reply with finish_reason {choice.finish_reason!r}")
    text = choice.text or ""
    if not text and choice.thinking:
        return "", "thinking"
    if prompt.prefill:  # some servers repeat it, and not all of them say so
        text = text.removeprefix(prompt.prefill)
    if (stopped := sampling.cut_at_stop(text)) is not None:
        return stopped, "stop"
    return text, "stop" if choice.finish_reason == "stop" else "length"
