"""Probabilities of given replies from an endpoint's log-probabilities, or else from the frequencies of its replies."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from judgelm.engines.candidates import NEGLIGIBLE, TextTree, frequencies
from judgelm.engines.openai.endpoint import Choice
from judgelm.engines.openai.engine import ReplySampler
from judgelm.engines.openai.requests import FEW_TOP_LOGPROBS, TOP_LOGPROBS, PromptRenderer, RenderedPrompt
from judgelm.parsing.thinking import separate
from judgelm.records import Request, Sampling

_MAX_CONTINUATION_TOKENS = 8


class CandidateScorer:
    """Finds candidates' log-probabilities on one server.

    Args:
        sampler: samples replies.
        renderer: renders prompts that continue from the beginning of a reply.
        samples: number of replies to sample where there are no log-probabilities.
    """

    def __init__(self, sampler: ReplySampler, renderer: PromptRenderer, samples: int) -> None:
        self._sampler = sampler
        self._renderer = renderer
        self._samples = samples

    async def logprobs(
        self, rendered: RenderedPrompt, request: Request, choices: Sequence[Choice]
    ) -> tuple[tuple[float, ...], str]:
        """The values of `Completion.candidate_logprobs` and `Completion.approximation`.

        Args:
            rendered: the request's prompt.
            request: holds the candidates.
            choices: the replies, sampled with log-probabilities if the server has them.

        Raises:
            RefusedError, RetriesExhaustedError, OverBudgetError, EngineError: as `Endpoint.complete`.
        """
        if not all(_covers_reply(choice) for choice in choices):
            return await self._sampled(rendered, request)
        tree = TextTree(request.candidates)
        for choice in choices:
            tree.follow("", choice.text or "", choice.steps or ())
        if rendered.api == "completions":
            await self._explore(tree, rendered, request)
            return tree.logprobs(), self._unlisted(tree, choices)
        elsewhere = sum(tree.shares().open.values())
        while tree.borrow():
            pass
        borrowed = ""
        if elsewhere > NEGLIGIBLE:
            borrowed = (
                f"{elsewhere:.2f} of the probability lies on beginnings other than the reply's; their continuation is "
                "taken from the reply's own, since a chat API cannot continue from them"
            )
        return tree.logprobs(), "; ".join(part for part in (borrowed, self._unlisted(tree, choices)) if part)

    async def _explore(self, tree: TextTree, rendered: RenderedPrompt, request: Request) -> None:
        """Have the model continue from other beginnings until the remaining probability is negligible."""
        longest = max(len(candidate) for candidate in request.candidates)
        while needed := tree.needed():
            continuations = (self._continue(tree, rendered, node, longest - len(node)) for node in needed)
            tasks = [asyncio.create_task(continuation) for continuation in continuations]
            try:
                await asyncio.gather(*tasks)
            finally:  # where one failed, the others are of no use
                for task in tasks:
                    task.cancel()

    async def _continue(self, tree: TextTree, rendered: RenderedPrompt, node: str, characters: int) -> None:
        """Add the continuations of a node to the tree, and those on the reply's path."""
        further = replace(rendered, content=self._renderer.continue_from(rendered, node))
        # every token has at least one character, so a candidate's rest has at most as many tokens as characters
        sampling = Sampling(max_tokens=max(1, min(characters, _MAX_CONTINUATION_TOKENS)))
        choice = (await self._sampler.sample(further, sampling, logprobs=True)).choices[0]
        tree.follow(node, choice.text or "", choice.steps or ())
        tree.close(node)

    async def _sampled(self, rendered: RenderedPrompt, request: Request) -> tuple[tuple[float, ...], str]:
        """Frequencies of sampled replies; without stop strings, which candidates may contain."""
        sampling = replace(request.sampling, temperature=1.0, stop=(), n=self._samples, grammar=None)
        answer = await self._sampler.sample(rendered, sampling)
        texts = [separate(choice.text or "").reply for choice in answer.choices]
        return frequencies(request.candidates, texts), f"frequencies of {len(texts)} sampled replies"

    def _unlisted(self, tree: TextTree, choices: Sequence[Choice]) -> str:
        unlisted = tree.shares().unlisted
        if unlisted <= NEGLIGIBLE:
            return ""
        top = FEW_TOP_LOGPROBS if "many_logprobs" in self._sampler.pool.unsupported_params else TOP_LOGPROBS
        listed = f"the {top} most probable tokens"
        if all(len(step.tops) <= 1 for choice in choices for step in choice.steps or ()):
            listed = "the chosen token"
        return f"up to {unlisted:.2f} of the probability may be missing: the server lists only {listed}"


def _covers_reply(choice: Choice) -> bool:
    """True if there are log-probabilities of the reply itself: some servers list those of the reasoning first."""
    text, tokens = (choice.text or "").lstrip(), "".join(step.token for step in choice.steps or ()).lstrip()
    return bool(choice.steps) and text[:1] in ("", tokens[:1])
