"""Requests that wait and replies under way in the transformers engine."""

from typing import NamedTuple

import numpy as np
import torch

from judgelm.engines.score_tree import ScoreTree
from judgelm.engines.transformers.packed_attention import KVCache
from judgelm.engines.transformers.vision import ProcessedImage
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer
from judgelm.records import Completion, FinishReason, Request, Sampling


class FinishedSequence(NamedTuple):
    """What is left of a reply that has ended; not its keys and values, which would outlive it until a collection."""

    text: str
    finish_reason: FinishReason
    tokens: int


class QueuedRequest:
    """A tokenised request, and its replies as they end.

    Args:
        request: what was asked for.
        tokenized: its prompt as the model reads it.
        tree: of the candidates, where there are any.
        seen: the prompt's images.
        images_end: how many tokens the prompt has up to the end of its last image.
    """

    def __init__(
        self,
        request: Request,
        tokenized: TokenizedPrompt,
        tree: ScoreTree | None,
        seen: tuple[ProcessedImage, ...] = (),
        images_end: int = 0,
    ) -> None:
        self.request = request
        self.tokenized = tokenized
        self.tree = tree
        self.seen = seen
        self.images_end = images_end
        self.ids = np.array(tokenized.ids, np.int32)
        self.candidate_logprobs: tuple[float, ...] | None = None
        self._ended: dict[int, FinishedSequence] = {}

    @property
    def capacity(self) -> int:
        """Tokens that prompt and one reply may come to."""
        return len(self.tokenized.ids) + self.request.sampling.max_tokens

    def reset(self) -> None:
        """Forget the replies that have ended."""
        self._ended.clear()

    def collect(self, reply: "RunningSequence") -> Completion | None:
        """Take a reply that has ended; the completion once all have."""
        self._ended[reply.number] = FinishedSequence(reply.text, reply.finish_reason or "error", len(reply.ids))
        n = self.request.sampling.n
        if len(self._ended) < n:
            return None
        replies = [self._ended[number] for number in range(n)]
        return Completion(
            key=self.request.key,
            texts=tuple(self.tokenized.opening + reply.text for reply in replies),
            finish_reasons=tuple(reply.finish_reason for reply in replies),
            candidate_logprobs=self.candidate_logprobs,
            prompt_tokens=len(self.tokenized.ids),
            completion_tokens=sum(reply.tokens for reply in replies),
            truncations=self.tokenized.truncations,
            sanitized=self.tokenized.sanitized,
        )

    def failed(self, message: str) -> Completion:
        """The completion of a request that the engine could not run."""
        return Completion(
            key=self.request.key,
            texts=(),
            finish_reasons=("error",),
            prompt_tokens=len(self.tokenized.ids),
            truncations=self.tokenized.truncations,
            error=message,
        )


class RunningSequence:
    """One reply under way: its tokens so far and the keys and values behind them."""

    def __init__(self, source: QueuedRequest, kv: KVCache, number: int) -> None:
        self.source = source
        self.kv = kv
        self.number = number
        self.ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason | None = None
        sampling = source.request.sampling
        self.generator = torch.Generator() if sampling.temperature > 0 else None
        if self.generator is not None:
            self.generator.manual_seed(sampling.seed + number)

    def branches(self) -> "list[RunningSequence]":
        """All `n` replies to the prompt, which has just been read."""
        others = range(1, self.source.request.sampling.n)
        return [self, *(RunningSequence(self.source, self.kv.fork(), number) for number in others)]

    def add(self, token: int, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        """Append a token and see whether the reply ends with it."""
        sampling = self.source.request.sampling
        self.ids.append(token)
        if token in eos_ids or sampling.stop or len(self.ids) == sampling.max_tokens:
            self.text, self.finish_reason = read_reply(self.ids, sampling, tokenizer, eos_ids)


def read_reply(
    ids: list[int], sampling: Sampling, tokenizer: Tokenizer, eos_ids: frozenset[int]
) -> tuple[str, FinishReason | None]:
    """The text of a reply's tokens, and why it ends with the last of them; None where it goes on."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    if ids[-1] in eos_ids:
        return text, "stop"
    ends = [place for mark in sampling.stop if (place := text.find(mark)) >= 0]
    if ends:
        return text[: _end(text, min(ends), sampling)], "stop"
    return text, "length" if len(ids) == sampling.max_tokens else None


def _end(text: str, stop: int, sampling: Sampling) -> int:
    """Where a reply ends whose first stop string begins at `stop`."""
    if not sampling.include_stop:
        return stop
    return stop + next(len(mark) for mark in sampling.stop if text.startswith(mark, stop))


def sample_token(reply: RunningSequence, logits: torch.Tensor, greedy: int) -> int:
    """The next token: the likeliest, or one drawn with the reply's own generator."""
    if reply.generator is None:
        return greedy
    temperature = reply.source.request.sampling.temperature
    probabilities = torch.softmax(logits.float().cpu() / temperature, -1)
    return int(torch.multinomial(probabilities, 1, generator=reply.generator))
