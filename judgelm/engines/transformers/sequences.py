"""Queue requests and extend running replies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from numpy.typing import NDArray

from judgelm.engines.candidates import ScoreTree
from judgelm.engines.grammars import matcher_error
from judgelm.engines.images import ProcessedImage
from judgelm.engines.preprocess import decode_reply
from judgelm.engines.token_logprobs import LogprobStep, reply_logprobs
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer
from judgelm.records import Completion, FinishReason, Request, TokenLogprobs

if TYPE_CHECKING:
    from llguidance import LLMatcher

NOT_DRAWN = "cannot sample a token because the model's probabilities are not finite; check its weights and dtype"


class FinishedSequence(NamedTuple):
    """A finished reply."""

    text: str
    finish_reason: FinishReason
    tokens: int
    failure: str
    logprobs: tuple[TokenLogprobs, ...]


@dataclass(eq=False)
class QueuedRequest:
    """A tokenised request and its finished replies.

    Attributes:
        images_end: number of tokens up to the end of the last image.
        alone: True if the request runs by itself because an earlier pass failed.
        matcher: the initial state of the grammar.
        states: see `Completion.states`.
    """

    request: Request
    tokenized: TokenizedPrompt
    tree: ScoreTree | None
    images: tuple[ProcessedImage, ...] = ()
    images_end: int = 0
    candidate_logprobs: tuple[float, ...] | None = None
    alone: bool = False
    matcher: "LLMatcher | None" = None
    states: NDArray[np.float32] | None = None
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
        self._finished[sequence.index] = FinishedSequence(
            sequence.text, reason, len(sequence.ids), sequence.failure, sequence.logprobs
        )
        n = self.request.sampling.n
        if len(self._finished) < n:
            return None
        replies = [self._finished[index] for index in range(n)]
        if (failed := next((reply for reply in replies if reply.finish_reason == "error"), None)) is not None:
            return self.failed(failed.failure)
        texts = tuple(self.tokenized.opening + reply.text for reply in replies)
        reasons, tokens = tuple(reply.finish_reason for reply in replies), sum(reply.tokens for reply in replies)
        logprobs = tuple(reply.logprobs for reply in replies)
        return self._completion(
            texts,
            reasons,
            candidate_logprobs=self.candidate_logprobs,
            logprobs=None if self.request.sampling.logprobs is None else logprobs,
            completion_tokens=tokens,
        )

    def rewarded(self, reward: float) -> Completion:
        """Build the completion for a reward."""
        return self._completion(("",), ("stop",), reward=reward)

    def _completion(self, texts: tuple[str, ...], reasons: tuple[FinishReason, ...], **others: Any) -> Completion:
        prompt = self.tokenized
        others["states"] = self.states
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
        self.failure = ""
        self.steps: list[LogprobStep] = []
        self.logprobs: tuple[TokenLogprobs, ...] = ()
        self.matcher = None if parent.matcher is None else parent.matcher.deep_copy()
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
        if self.matcher is not None and not self.matcher.consume_token(token):
            self.fail(f"the grammar cannot be continued: {matcher_error(self.matcher)}; simplify it")
            return
        complete = self.matcher is not None and self.matcher.is_stopped()
        if complete or token in eos_ids or sampling.stop or len(self.ids) == sampling.max_tokens:
            self.text, reason = decode_reply(self.ids, sampling, tokenizer, eos_ids)
            self.finish_reason = "stop" if complete else reason
        if self.finish_reason is not None:
            self.logprobs = reply_logprobs(self.steps, self.text, tokenizer)

    def fail(self, why: str) -> None:
        """End the reply with an error."""
        self.finish_reason, self.failure = "error", why


def next_tokens(sequences: Sequence[RunningSequence], logits: torch.Tensor, greedy: Sequence[int]) -> list[int]:
    """Choose the next token of each reply, greedily or with the reply's generator, among those its grammar allows."""
    tokens = list(greedy[: len(sequences)])
    own = [row for row, each in enumerate(sequences) if each.generator is not None or each.matcher is not None]
    if own:
        scores = logits[own].float()
        _mask([sequences[row].matcher for row in own], scores)
        best = scores.argmax(-1).tolist()
        if any(sequences[row].generator is not None for row in own):
            scores = scores.cpu()
        for row, token, each in zip(own, best, scores, strict=True):
            tokens[row] = token if sequences[row].generator is None else _draw(sequences[row], each)
    _record_logprobs(sequences, logits, tokens)
    return tokens


def _draw(sequence: RunningSequence, scores: torch.Tensor) -> int:
    sampling = sequence.parent.request.sampling
    scores = scores / sampling.temperature
    if 0 < sampling.top_k < len(scores):
        scores = scores.masked_fill(scores < scores.topk(sampling.top_k).values[-1], -math.inf)
    probabilities = torch.softmax(scores, -1)
    if sampling.top_p < 1:
        ranked, tokens = probabilities.sort(descending=True)
        beyond = ranked.cumsum(0) - ranked >= sampling.top_p
        beyond[0] = False
        probabilities = probabilities.index_fill(0, tokens[beyond], 0.0)
    try:
        return int(torch.multinomial(probabilities, 1, generator=sequence.generator))
    except RuntimeError:  # contains NaN
        sequence.fail(NOT_DRAWN)
        return 0


def _mask(matchers: "Sequence[LLMatcher | None]", scores: torch.Tensor) -> None:
    """Set the scores of tokens that the grammars do not allow to -inf."""
    masks = {row: bytearray(matcher.compute_bitmask()) for row, matcher in enumerate(matchers) if matcher is not None}
    if not masks:
        return
    rows = list(masks)
    packed = torch.stack([torch.frombuffer(mask, dtype=torch.uint8) for mask in masks.values()]).to(scores.device)
    bits = packed[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=scores.device) & 1
    blocked = F.pad(bits.flatten(1), (0, max(0, scores.shape[1] - 8 * packed.shape[1])))[:, : scores.shape[1]] == 0
    scores[rows] = scores[rows].masked_fill(blocked, -math.inf)


def _record_logprobs(sequences: Sequence[RunningSequence], logits: torch.Tensor, tokens: Sequence[int]) -> None:
    limits = [sequence.parent.request.sampling.logprobs for sequence in sequences]
    wanted = {row: limit for row, limit in enumerate(limits) if limit is not None}
    if not wanted:
        return
    rows = list(wanted)
    scores = logits[rows].float()
    normalizers = scores.logsumexp(-1, keepdim=True)
    chosen = torch.tensor([[tokens[row]] for row in rows], device=scores.device)
    own = (scores.gather(1, chosen) - normalizers)[:, 0].tolist()
    top = scores.topk(min(max(wanted.values()), scores.shape[1]))
    values, ids = (top.values - normalizers).tolist(), top.indices.tolist()
    for row, logprob, near, names in zip(rows, own, values, ids, strict=True):
        candidates = tuple(zip(names, near, strict=True))[: wanted[row]]
        sequences[row].steps.append(LogprobStep(tokens[row], logprob, candidates))
