"""Pack tokens into rows, embed images, and start replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from judgelm.engines.candidates import ROOT, ScoreTree
from judgelm.engines.images import ProcessedImage, Vision
from judgelm.engines.transformers.attention import PromptBatch, PromptSegment, Segment, TreeSegment
from judgelm.engines.transformers.decode_blocks import DecodeBlock
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.pass_thread import is_out_of_memory as is_out_of_memory  # for training
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence, next_tokens
from judgelm.errors import EngineError
from judgelm.prompts.truncation import Tokenizer

_MAX_CACHED = 16


@dataclass(frozen=True, slots=True)
class NewPrompt:
    """A prompt that is new in this pass."""

    queued: QueuedRequest
    kv: KVCache

    @property
    def new_tokens(self) -> int:
        """Number of tokens that are not cached."""
        return len(self.queued.ids) - self.kv.length


@dataclass(slots=True)
class PackedRow:
    """The packed tokens in a pass.

    Attributes:
        positions: position of each token in its sequence.
        logit_places: indices of the tokens that need logits.
        owners: for each stretch of tokens, the adapter and the number of tokens.
    """

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    logit_places: list[int] = field(default_factory=list)
    owners: list[tuple[str | None, int]] = field(default_factory=list)

    @classmethod
    def build(cls, blocks: Sequence[DecodeBlock], fresh: Sequence[NewPrompt], device: torch.device) -> "PackedRow":
        """Pack the last token of each running reply, new prompts, and the inner nodes of their trees."""
        row = cls()
        for block in blocks:
            places = [sequence.read_tokens for sequence in block.sequences]
            block.begin_pass(torch.tensor(places, device=device))
            row.logit_places += range(len(row.ids), len(row.ids) + len(places))
            row.ids += [sequence.ids[-1] for sequence in block.sequences]
            row.positions += places
            row.segments.append(block)
            row.owners += [(sequence.parent.request.adapter, 1) for sequence in block.sequences]
        prompts = []
        for new in fresh:
            prompt = new.queued.tokenized.ids
            row.ids += prompt[new.kv.length :]
            row.positions += range(new.kv.length, len(prompt))
            prompts.append(PromptSegment(new.kv, new.new_tokens))
            row.owners.append((new.queued.request.adapter, new.new_tokens))
            row.logit_places.append(len(row.ids) - 1)
        if prompts:
            row.segments.append(PromptBatch(prompts))
        for new in fresh:
            if (tree := new.queued.tree) is not None and tree.tokens:
                row.logit_places += range(len(row.ids), len(row.ids) + len(tree.tokens))
                row.ids += tree.tokens
                row.owners.append((new.queued.request.adapter, len(tree.tokens)))
                row.positions += (len(new.queued.ids) + depth for depth in tree.depths)
                row.segments.append(TreeSegment(new.kv, new.new_tokens, torch.from_numpy(tree.visible)))
        return row


class NewReply(NamedTuple):
    """A new reply, and the tree nodes of all its tokens except the last."""

    prompt: NewPrompt
    sequence: RunningSequence
    path: list[int]


def begin_replies(
    fresh: Sequence[NewPrompt], logits: Tensor, greedy: Sequence[int], tokenizer: Tokenizer, eos_ids: frozenset[int]
) -> list[NewReply]:
    """Start replies to new prompts and set candidate log-probabilities.

    `logits` has one row per prompt, followed by one row per tree node.
    """
    nodes = list(accumulate((new.queued.tree_nodes for new in fresh), initial=len(fresh)))
    rows = [[row, *range(*ends)] for row, ends in enumerate(pairwise(nodes))]
    trees = [(new.queued.tree, own) for new, own in zip(fresh, rows, strict=True) if new.queued.tree is not None]
    logprobs = iter(tree_logprobs(trees, logits))
    replies = []
    for new, own in zip(fresh, rows, strict=True):
        tree = new.queued.tree
        if tree is not None:
            new.queued.candidate_logprobs = next(logprobs)
        for index in range(new.queued.request.sampling.n):
            sequence, path, node = RunningSequence(new.queued, index), list[int](), ROOT
            while True:
                row = own[node + 1]
                [token] = next_tokens([sequence], logits[row : row + 1], greedy[row : row + 1])
                sequence.append(token, tokenizer, eos_ids)
                if tree is None or sequence.finish_reason is not None or (node, token) not in tree.node_behind:
                    break
                node = tree.node_behind[node, token]
                path.append(node)
            replies.append(NewReply(new, sequence, path))
    return replies


def tree_logprobs(trees: Sequence[tuple[ScoreTree, Sequence[int]]], logits: Tensor) -> list[tuple[float, ...]]:
    """Compute each tree's log-probabilities from the logits at the end of its prompt and at its inner nodes."""
    if not trees:
        return []
    steps = [[(node, token) for node, tokens in tree.children.items() for token in tokens] for tree, _ in trees]
    places = [(own[node + 1], token) for (_, own), each in zip(trees, steps, strict=True) for node, token in each]
    rows, columns = torch.tensor(places, device=logits.device).T
    precise = logits.float()
    known = iter((precise[rows, columns] - precise.logsumexp(-1)[rows]).tolist())
    return [tree.logprobs(dict(zip(each, known, strict=False))) for (tree, _), each in zip(trees, steps, strict=True)]


class ImageFeatures:
    """Embeds packed rows and inserts image features at image tokens."""

    def __init__(self, model: Any, vision: Vision) -> None:
        self._model = model
        self._token = vision.token_id
        self._features = lru_cache(_MAX_CACHED)(self._compute)

    def embed(self, ids: Tensor, fresh: Sequence[NewPrompt], start: int) -> Tensor:
        """Embed a packed row into shape (1, tokens, hidden size). New prompts start at index `start`."""
        row: Tensor = self._model.get_input_embeddings()(ids).clone()
        for new in fresh:
            parent, begun = new.queued, new.kv.length
            prompt = parent.tokenized.ids
            if parent.images and begun == 0:
                features = torch.cat([self._features(image) for image in parent.images])
                positions = [start + position for position, token in enumerate(prompt) if token == self._token]
                if len(positions) != len(features):
                    counts = f"got {len(positions)} image tokens, but {len(features)} image features"
                    raise EngineError(f"request {parent.request.key}: {counts}; use the model's original processor")
                row[0, torch.tensor(positions, device=row.device)] = features.to(row.dtype)
            start += len(prompt) - begun
        return row

    def clear(self) -> None:
        """Clear the cache."""
        self._features.cache_clear()

    def _compute(self, image: ProcessedImage) -> Tensor:
        pixels = {name: _to_model(value, self._model) for name, value in image.pixels.items()}
        output = self._model.get_image_features(**pixels, return_dict=True).pooler_output
        features = torch.cat(list(output)) if isinstance(output, list | tuple) else output
        return features.reshape(-1, features.shape[-1])


def _to_model(value: Any, model: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)
