"""Queued requests, running replies, and the blocks in which these attend together.

One call attends for all replies of a block, since a call for each takes far longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from judgelm.engines.candidates import ScoreTree
from judgelm.engines.images import ProcessedImage
from judgelm.engines.preprocess import decode_reply
from judgelm.errors import EngineError
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer
from judgelm.records import Completion, FinishReason, Request

NOT_DRAWN = "no token can be drawn: the model's probabilities are not finite; check its weights and dtype"


def check_request(request: Request) -> None:
    """Refuse a request that this engine cannot answer.

    Raises:
        EngineError: it has a grammar.
    """
    if request.sampling.grammar is not None:
        raise EngineError("the transformers engine does not constrain replies to a grammar; use --engine vllm")


class FinishedSequence(NamedTuple):
    """A finished reply, without its keys and values, which would stay in memory until the next garbage collection."""

    text: str
    finish_reason: FinishReason
    tokens: int


@dataclass(eq=False)
class QueuedRequest:
    """A tokenised request, and its replies as they finish.

    Attributes:
        request: the request itself.
        tokenized: its prompt as the model reads it.
        tree: of the candidates, where there are any.
        images: the prompt's images.
        images_end: tokens of the prompt up to the end of its last image.
        candidate_logprobs: set when the tree has been evaluated.
        alone: whether it runs in passes without other requests, since a pass with it failed.
    """

    request: Request
    tokenized: TokenizedPrompt
    tree: ScoreTree | None
    images: tuple[ProcessedImage, ...] = ()
    images_end: int = 0
    candidate_logprobs: tuple[float, ...] | None = None
    alone: bool = False
    _finished: dict[int, FinishedSequence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hold the token ids as an array, which is fast to compare."""
        self.ids: NDArray[np.int32] = np.array(self.tokenized.ids, np.int32)

    @property
    def context(self) -> tuple[str | None, tuple[str, ...]]:
        """Its adapter and images: keys and values of equal tokens differ between contexts."""
        return self.request.adapter, self.tokenized.images

    @property
    def capacity(self) -> int:
        """Maximum tokens of the prompt and one reply."""
        return len(self.tokenized.ids) + self.request.sampling.max_tokens

    @property
    def tree_nodes(self) -> int:
        """Inner nodes of its tree; 0 without one."""
        return 0 if self.tree is None else len(self.tree.tokens)

    def reset(self) -> None:
        """Forget the finished replies."""
        self._finished.clear()

    def finish(self, sequence: "RunningSequence") -> Completion | None:
        """Take a finished reply; returns the completion once all replies are finished."""
        self._finished[sequence.index] = FinishedSequence(
            sequence.text, sequence.finish_reason or "error", len(sequence.ids)
        )
        n = self.request.sampling.n
        if len(self._finished) < n:
            return None
        replies = [self._finished[index] for index in range(n)]
        if any(reply.finish_reason == "error" for reply in replies):
            return self.failed(NOT_DRAWN)
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

    def rewarded(self, reward: float) -> Completion:
        """The completion of a request to a reward model."""
        return Completion(
            key=self.request.key,
            texts=("",),
            finish_reasons=("stop",),
            reward=reward,
            prompt_tokens=len(self.ids),
            truncations=self.tokenized.truncations,
            sanitized=self.tokenized.sanitized,
        )

    def failed(self, message: str) -> Completion:
        """The completion of a request that the engine could not run."""
        return Completion.failed(
            self.request.key, message, prompt_tokens=len(self.tokenized.ids), truncations=self.tokenized.truncations
        )


class RunningSequence:
    """A reply being generated: its tokens so far.

    Args:
        parent: the request that it answers.
        index: which of the request's `n` replies it is.
    """

    def __init__(self, parent: QueuedRequest, index: int) -> None:
        self.parent = parent
        self.index = index
        self.ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason | None = None
        sampling = parent.request.sampling
        self.generator = torch.Generator() if sampling.temperature > 0 else None
        if self.generator is not None:
            self.generator.manual_seed(sampling.seed + index)

    @property
    def read_tokens(self) -> int:
        """Tokens of prompt and reply that the model has read: all but the last."""
        return len(self.parent.tokenized.ids) + len(self.ids) - 1

    def append(self, token: int, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        """Append a token and set `finish_reason` if the reply ends with it; a reply that failed takes none."""
        if self.finish_reason is not None:
            return
        sampling = self.parent.request.sampling
        self.ids.append(token)
        if token in eos_ids or sampling.stop or len(self.ids) == sampling.max_tokens:
            self.text, self.finish_reason = decode_reply(self.ids, sampling, tokenizer, eos_ids)


def next_tokens(sequences: Sequence[RunningSequence], logits: torch.Tensor, greedy: Sequence[int]) -> list[int]:
    """The next token of each reply: the most probable, or one drawn with the reply's own generator.

    A reply of which no token can be drawn fails by itself.

    Args:
        sequences: the replies.
        logits: shape (rows, vocabulary), a row for each; those of sampled replies are copied to the CPU at once.
        greedy: the most probable token of each row, and of further ones.
    """
    tokens = list(greedy[: len(sequences)])
    drawn = [row for row, sequence in enumerate(sequences) if sequence.generator is not None]
    if not drawn:
        return tokens
    for row, own in zip(drawn, logits[drawn].float().cpu(), strict=True):
        probabilities = torch.softmax(own / sequences[row].parent.request.sampling.temperature, -1)
        try:
            tokens[row] = int(torch.multinomial(probabilities, 1, generator=sequences[row].generator))
        except RuntimeError:  # NaN among them
            sequences[row].finish_reason = "error"
    return tokens
