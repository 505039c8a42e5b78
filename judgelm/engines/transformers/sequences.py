"""Queue requests and extend running replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from judgelm.engines.candidates import ScoreTree
from judgelm.engines.images import ProcessedImage
from judgelm.engines.preprocess import decode_reply
from judgelm.errors import EngineError
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer
from judgelm.records import Completion, FinishReason, Request

NOT_DRAWN = "cannot sample a token because the model's probabilities are not finite; check its weights and dtype"


def check_request(request: Request) -> None:
    """Reject requests with grammars."""
    if request.sampling.grammar is not None:
        raise EngineError("the transformers engine does not support grammars; use --engine vllm")


class FinishedSequence(NamedTuple):
    """A finished reply."""

    text: str
    finish_reason: FinishReason
    tokens: int


@dataclass(eq=False)
class QueuedRequest:
    """A tokenised request and its finished replies.

    Attributes:
        images_end: number of tokens up to the end of the last image.
        alone: True if the request runs by itself because an earlier pass failed.
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
        self.ids: NDArray[np.int32] = np.array(self.tokenized.ids, np.int32)  # arrays can be compared quickly

    @property
    def context(self) -> tuple[str | None, tuple[str, ...]]:
        """The adapter and images, which affect keys and values."""
        return self.request.adapter, self.tokenized.images

    @property
    def capacity(self) -> int:
        """Maximum number of tokens in the prompt and one reply."""
        return len(self.tokenized.ids) + self.request.sampling.max_tokens

    @property
    def tree_nodes(self) -> int:
        """Number of inner tree nodes."""
        return 0 if self.tree is None else len(self.tree.tokens)

    def reset(self) -> None:
        """Drop finished replies."""
        self._finished.clear()

    def finish(self, sequence: "RunningSequence") -> Completion | None:
        """Add a finished reply. Return the completion if this was the last reply."""
        reason = sequence.finish_reason or "error"
        self._finished[sequence.index] = FinishedSequence(sequence.text, reason, len(sequence.ids))
        n = self.request.sampling.n
        if len(self._finished) < n:
            return None
        replies = [self._finished[index] for index in range(n)]
        if any(reply.finish_reason == "error" for reply in replies):
            return self.failed(NOT_DRAWN)
        texts = tuple(self.tokenized.opening + reply.text for reply in replies)
        reasons, tokens = tuple(reply.finish_reason for reply in replies), sum(reply.tokens for reply in replies)
        return self._completion(texts, reasons, candidate_logprobs=self.candidate_logprobs, completion_tokens=tokens)

    def rewarded(self, reward: float) -> Completion:
        """Build the completion for a reward."""
        return self._completion(("",), ("stop",), reward=reward)

    def _completion(self, texts: tuple[str, ...], reasons: tuple[FinishReason, ...], **others: Any) -> Completion:
        prompt = self.tokenized
        others |= {"prompt_tokens": len(prompt.ids), "truncations": prompt.truncations, "sanitized": prompt.sanitized}
        return Completion(key=self.request.key, texts=texts, finish_reasons=reasons, **others)

    def failed(self, message: str) -> Completion:
        """Build a failed completion."""
        return Completion.failed(
            self.request.key, message, prompt_tokens=len(self.tokenized.ids), truncations=self.tokenized.truncations
        )


class RunningSequence:
    """Reply number `index` to a request."""

    def __init__(self, parent: QueuedRequest, index: int) -> None:
        self.parent = parent
        self.index = index
        self.ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason | None = None
        sampling = parent.request.sampling
        sampled = sampling.temperature > 0
        self.generator = torch.Generator().manual_seed(sampling.seed + index) if sampled else None

    @property
    def read_tokens(self) -> int:
        """Number of tokens that the model has processed."""
        return len(self.parent.tokenized.ids) + len(self.ids) - 1

    def append(self, token: int, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        """Append a token, and set `finish_reason` if the reply is complete."""
        if self.finish_reason is not None:
            return
        sampling = self.parent.request.sampling
        self.ids.append(token)
        if token in eos_ids or sampling.stop or len(self.ids) == sampling.max_tokens:
            self.text, self.finish_reason = decode_reply(self.ids, sampling, tokenizer, eos_ids)


def next_tokens(sequences: Sequence[RunningSequence], logits: torch.Tensor, greedy: Sequence[int]) -> list[int]:
    """Choose the next token of each reply, greedily or with the reply's generator."""
    tokens = list(greedy[: len(sequences)])
    drawn = [row for row, sequence in enumerate(sequences) if sequence.generator is not None]
    if not drawn:
        return tokens
    for row, own in zip(drawn, logits[drawn].float().cpu(), strict=True):
        probabilities = torch.softmax(own / sequences[row].parent.request.sampling.temperature, -1)
        try:
            tokens[row] = int(torch.multinomial(probabilities, 1, generator=sequences[row].generator))
        except RuntimeError:  # contains NaN
            sequences[row].finish_reason = "error"
    return tokens
