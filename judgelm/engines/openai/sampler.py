"""Sample replies, and compute candidate log-probabilities."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from judgelm.engines.openai.cost import BilledTokens
from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.prompts import PromptRenderer, RenderedPrompt
from judgelm.engines.openai.requests import CHAT_TEMPLATE, request_body
from judgelm.engines.openai.responses import Choice, Replies
from judgelm.engines.openai.text_tree import NEGLIGIBLE, TextTree, frequencies
from judgelm.parsing.thinking import separate
from judgelm.prompts.chat_rendering import template_arguments
from judgelm.records import FinishReason, Request, Sampling, ThinkingMode

_MAX_CONTINUATION_TOKENS = 8
_REPLY_TOKENS = 256
_END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|EOT|>", "<|end|>"),
    *("<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<end_of_turn>", "<eos>", "</s>", "[/INST]", "<｜end▁of▁sentence｜>"),
    "\0",
)
_OPENS = {"</s>": "<s>", "[/INST]": "[INST]"}
"""End tokens that are kept if the opening tag precedes them. In HTML, `<s>` strikes text through."""


class UnusableReplyError(Exception):
    """Raised if a reply was filtered, refused, or ended for an unknown reason."""


class ReplySampler:
    """Samples replies from one model."""

    def __init__(
        self, pool: EndpointPool, model: str, thinking: ThinkingMode, renderer: PromptRenderer, candidate_samples: int
    ) -> None:
        self._pool = pool
        self._model = model
        self._thinking = thinking
        self._template_arguments = template_arguments(thinking)
        self._renderer = renderer
        self._candidate_samples = candidate_samples
        self._begins_blank = False

    async def sample(self, prompt: RenderedPrompt, sampling: Sampling, *, logprobs: bool = False) -> Replies:
        """Sample `sampling.n` replies. Greedy replies are sampled once and copied."""
        greedy = sampling.temperature == 0 and "temperature" not in self._pool.unsupported_params
        wanted = 1 if greedy else sampling.n
        choices: tuple[Choice, ...] = ()
        prompt_tokens = completion_tokens = 0
        while len(choices) < wanted:
            # the same seed would produce the same replies
            rest = replace(sampling, n=wanted - len(choices), seed=sampling.seed + len(choices))
            if self._begins_blank:
                rest = replace(rest, stop=tuple(stop for stop in rest.stop if not stop.isspace()))
            body = request_body(self._model, prompt, rest, logprobs=logprobs)
            if self._template_arguments and prompt.api == "chat":
                body[CHAT_TEMPLATE] = self._template_arguments
            answer = await self._pool.complete(prompt.api, body)
            prompt_tokens = answer.usage.prompt_tokens
            completion_tokens += answer.usage.completion_tokens
            if "stop" in body and rest.blank_stops and any(choice.says_nothing for choice in answer.choices):
                self._begins_blank = True  # from now on, do not send blank stop strings
                continue
            choices += tuple(self._settled(choice, answer, rest) for choice in answer.choices)
        copies = sampling.n if greedy else 1
        usage = BilledTokens(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens * copies)
        return Replies(choices[:wanted] * copies, usage)

    def _settled(self, choice: Choice, answer: Replies, sampling: Sampling) -> Choice:
        if choice.finish_reason is None:  # it may have been cut off at the token limit
            tokens = answer.usage.completion_tokens or len(choice.text or "") + len(choice.thinking)
            choice = replace(choice, finish_reason="stop" if tokens < sampling.max_tokens else "length")
        if self._thinking == "off" and not choice.text and choice.thinking and choice.finish_reason == "stop":
            return replace(choice, text=choice.thinking, thinking="")
        return choice

    async def candidate_logprobs(
        self, rendered: RenderedPrompt, request: Request, choices: Sequence[Choice]
    ) -> tuple[tuple[float, ...], str]:
        """Return `Completion.candidate_logprobs` and `Completion.approximation`."""
        if not all(choice.covers_reply for choice in choices):  # no stop strings, because candidates may contain them
            sampling = replace(
                request.sampling, temperature=1.0, stop=(), n=self._candidate_samples, grammar=None, logprobs=None
            )
            answer = await self.sample(rendered, sampling)
            texts = [separate(choice.text or "").reply for choice in answer.choices]
            return frequencies(request.candidates, texts), f"frequencies of {len(texts)} sampled replies"
        tree, notes = TextTree(request.candidates), []
        for choice in choices:
            tree.follow("", choice.text or "", choice.steps or ())
        if rendered.api == "completions":
            await self._explore(tree, rendered, max(map(len, request.candidates)))
        else:
            elsewhere = sum(tree.shares().open.values())
            while tree.borrow():
                pass
            if elsewhere > NEGLIGIBLE:
                notes.append(
                    f"{elsewhere:.2f} of the probability is on other prefixes, which a chat API cannot continue; "
                    "their continuations are copied from the reply"
                )
        if (unlisted := tree.shares().unlisted) > NEGLIGIBLE:
            notes.append(f"up to {unlisted:.2f} of the probability may be missing as the server lists too few tokens")
        return tree.logprobs(), "; ".join(notes)

    async def verdict_in_reply(
        self, rendered: RenderedPrompt, request: Request
    ) -> tuple[Replies, tuple[float, ...], str]:
        """Read the candidates in a complete reply, after the last `request.after`.

        Returns the reply from there on, `Completion.candidate_logprobs`, and `Completion.approximation`.
        """
        assert isinstance(rendered.content, list), "only chats have a prefill to leave out"
        whole = replace(rendered, content=rendered.content[:-1], prefill="")
        sampling = Sampling(max_tokens=request.sampling.reserve or _REPLY_TOKENS)
        answer = await self.sample(whole, sampling, logprobs=True)
        verdict = _after(answer.choices[0], request.after)
        note = "the server cannot continue a reply, so the verdict was read in a complete reply"
        if verdict.steps is not None:
            tree = TextTree(request.candidates)
            tree.follow("", verdict.text or "", verdict.steps)
            while tree.borrow():
                pass
            return Replies((verdict,), answer.usage), tree.logprobs(), note
        drawn = await self.sample(whole, replace(sampling, temperature=1.0, n=self._candidate_samples))
        texts = [_after(choice, request.after).text or "" for choice in drawn.choices]
        note = f"frequencies of {len(texts)} sampled replies, because the server cannot continue a reply"
        return Replies((verdict,), answer.usage), frequencies(request.candidates, texts), note

    async def _explore(self, tree: TextTree, rendered: RenderedPrompt, longest: int) -> None:
        async def explore(node: str) -> None:
            further = replace(rendered, content=self._renderer.continue_from(rendered, node))
            # a token has at least one character
            sampling = Sampling(max_tokens=max(1, min(longest - len(node), _MAX_CONTINUATION_TOKENS)))
            [choice, *_] = (await self.sample(further, sampling, logprobs=True)).choices
            tree.follow(node, choice.text or "", choice.steps or ())
            tree.close(node)

        while needed := tree.needed():
            tasks = [asyncio.create_task(explore(node)) for node in needed]
            try:
                await asyncio.gather(*tasks)
            finally:  # if one fails, cancel the others
                for task in tasks:
                    task.cancel()


def _after(choice: Choice, mark: str) -> Choice:
    """Return the rest of a reply after the last `mark`, with its tokens if they begin there, or an empty reply."""
    _, separator, text = (choice.text or "").rpartition(mark)
    if not separator:
        return replace(choice, text="", steps=None)
    tokens = [step.token for step in choice.steps or ()] if choice.covers_reply else []
    end = "".join(tokens).rfind(mark) + len(mark)
    ends = [sum(map(len, tokens[:count])) for count in range(len(tokens) + 1)]
    steps = (choice.steps or ())[ends.index(end) :] if tokens and end in ends else None
    return replace(choice, text=text, steps=steps)


def without_end_tokens(text: str) -> tuple[str, tuple[str, ...]]:
    """Remove trailing end tokens. Return the reply and the removed tokens."""
    tokens: list[str] = []
    while (end := next((token for token in _END_TOKENS if text.rstrip().endswith(token)), None)) is not None:
        rest = text.rstrip().removesuffix(end)
        if end in _OPENS and _OPENS[end] in rest:
            break
        text = rest.rstrip()
        tokens.append(end)
    return text, tuple(tokens)


def reply_of(choice: Choice, prompt: RenderedPrompt, sampling: Sampling) -> tuple[str, FinishReason]:
    """Return the text and finish reason of a reply."""
    if choice.refusal is not None:
        raise UnusableReplyError(f"the model refused: {choice.refusal}")
    if choice.finish_reason not in ("stop", "length"):
        raise UnusableReplyError(f"the server ended the reply with finish_reason {choice.finish_reason!r}")
    text = choice.text or ""
    if not text and choice.thinking:
        return "", "thinking"
    if prompt.prefill:  # some servers repeat the prefill in the reply
        text = text.removeprefix(prompt.prefill)
    if (stopped := sampling.cut_at_stop(text)) is not None:
        return stopped, "stop"
    return text, "stop" if choice.finish_reason == "stop" else "length"
