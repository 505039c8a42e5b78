"""Probabilities of given replies from what an endpoint can tell: log-probabilities, or else how often it says what."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from judgelm.engines.openai.choices import ReplySampler
from judgelm.engines.openai.request_body import TOP_LOGPROBS, PromptRenderer, RenderedPrompt
from judgelm.engines.openai.response import Choice
from judgelm.engines.openai.unsupported_params import FEW_TOP_LOGPROBS
from judgelm.engines.text_candidates import NEGLIGIBLE, TextTree, frequencies
from judgelm.prompts.thinking import separate
from judgelm.records import Request, Sampling

_MOST_TOKENS_ON = 8


class CandidateScorer:
    """Finds candidates' log-probabilities on one server.

    Args:
        replier: draws replies.
        writer: makes prompts that go on from a beginning.
        samples: how many replies to draw where there are no log-probabilities.
    """

    def __init__(self, replier: ReplySampler, writer: PromptRenderer, samples: int) -> None:
        self._replier = replier
        self._writer = writer
        self._samples = samples

    async def logprobs(
        self, written: RenderedPrompt, request: Request, choices: Sequence[Choice]
    ) -> tuple[tuple[float, ...], str]:
        """As `Completion.candidate_logprobs` and `Completion.approximation` have them.

        Args:
            written: the request's prompt.
            request: names the candidates.
            choices: the replies, drawn with log-probabilities if the server has them.

        Raises:
            RefusedError, GaveUpError, OverBudgetError, EngineError: as `Endpoint.ask`.
        """
        if not all(_tells_of_the_reply(choice) for choice in choices):
            return await self._sampled(written, request)
        tree = TextTree(request.candidates)
        for choice in choices:
            tree.follow("", choice.text or "", choice.steps or ())
        if written.api == "completions":
            await self._explore(tree, written, request)
            return tree.logprobs(), self._unlisted(tree, choices)
        elsewhere = sum(tree.shares().open.values())
        while tree.borrow():
            pass
        borrowed = ""
        if elsewhere > NEGLIGIBLE:
            borrowed = (
                f"{elsewhere:.2f} of the probability lies on beginnings other than the reply's; what follows them is "
                "taken from what follows the reply's own, since a chat API cannot be asked to go on from them"
            )
        return tree.logprobs(), "; ".join(part for part in (borrowed, self._unlisted(tree, choices)) if part)

    async def _explore(self, tree: TextTree, written: RenderedPrompt, request: Request) -> None:
        """Have the model go on from other beginnings until what is left is negligible."""
        longest = max(len(one) for one in request.candidates)
        while needed := tree.needed():
            looks = [asyncio.create_task(self._go_on(tree, written, node, longest - len(node))) for node in needed]
            try:
                await asyncio.gather(*looks)
            finally:  # where one failed, nobody waits for the others
                for look in looks:
                    look.cancel()

    async def _go_on(self, tree: TextTree, written: RenderedPrompt, node: str, characters: int) -> None:
        """Learn what follows a node; the reply's own path is learned on the way."""
        further = replace(written, content=self._writer.after(written, node))
        # no token has less than a character, so the rest of a candidate needs no more tokens than it has of those
        sampling = Sampling(max_tokens=max(1, min(characters, _MOST_TOKENS_ON)))
        replies = await self._replier.draw(further, sampling, logprobs=True)
        choice = replies.choices[0]
        tree.follow(node, choice.text or "", choice.steps or ())
        tree.close(node)

    async def _sampled(self, written: RenderedPrompt, request: Request) -> tuple[tuple[float, ...], str]:
        """Without stop strings, which candidates may contain."""
        sampling = replace(request.sampling, temperature=1.0, stop=(), n=self._samples, grammar=None)
        replies = await self._replier.draw(written, sampling)
        texts = [separate(choice.text or "").reply for choice in replies.choices]
        return frequencies(request.candidates, texts), f"frequencies of {len(texts)} sampled replies"

    def _unlisted(self, tree: TextTree, choices: Sequence[Choice]) -> str:
        unlisted = tree.shares().unlisted
        if unlisted <= NEGLIGIBLE:
            return ""
        top = FEW_TOP_LOGPROBS if "many_logprobs" in self._replier.pool.given_up else TOP_LOGPROBS
        listed = f"the {top} likeliest tokens"
        if all(len(step.tops) <= 1 for choice in choices for step in choice.steps or ()):
            listed = "the token that it chose"
        return f"up to {unlisted:.2f} of the probability may be missing: the server lists only {listed}"


def _tells_of_the_reply(choice: Choice) -> bool:
    """Whether there are log-probabilities, and of the reply itself: some begin with a reasoning model's thoughts."""
    said, tokens = (choice.text or "").lstrip(), "".join(step.token for step in choice.steps or ()).lstrip()
    return bool(choice.steps) and said[:1] in ("", tokens[:1])
