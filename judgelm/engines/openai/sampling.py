"""Samples the replies of one request, in as many requests to the server as that takes."""

from dataclasses import replace

from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.request_body import RenderedPrompt, request_body
from judgelm.engines.openai.response import Answer, Choice, Usage
from judgelm.engines.openai.unsupported_params import CHAT_TEMPLATE
from judgelm.prompts.thinking import template_arguments
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
        self._template_arguments = template_arguments(thinking)
        self.pool = pool
        self._model = model

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
            body = request_body(self._model, prompt, rest, logprobs=logprobs)
            if self._template_arguments and prompt.api == "chat":
                body[CHAT_TEMPLATE] = self._template_arguments
            answer = await self.pool.complete(prompt.api, body)
            choices += answer.choices
            prompt_tokens = answer.usage.prompt_tokens
            completion_tokens += answer.usage.completion_tokens
        copies = sampling.n if greedy else 1
        return Answer(
            choices[:wanted] * copies, Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens * copies)
        )


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
