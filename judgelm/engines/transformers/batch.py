"""A pass of the transformers engine: its packed row, cached prefixes, image features, and the replies that it begins.

Prompts of one question share it and often an answer, both orders of a pair share its question, and a reason continues
from its score line. Their keys and values are computed once and reused.
"""

import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from judgelm.engines.base import release_openmp_threads
from judgelm.engines.candidates import ROOT, ScoreTree
from judgelm.engines.dtype import available_bytes
from judgelm.engines.images import ProcessedImage, Vision
from judgelm.engines.transformers.attention import KVCache, PromptBatch, PromptSegment, Segment, TreeSegment
from judgelm.engines.transformers.sequences import (
    DecodeBlock,
    DecodeBlocks,
    QueuedRequest,
    RunningSequence,
    next_tokens,
)
from judgelm.errors import EngineError
from judgelm.prompts.truncation import Tokenizer

_MAX_ENTRIES = 64
_MAX_COMPARED = 32
_REPLY_TOKENS = 64
MIN_SHARED_TOKENS = 32
"""Shorter shared prefixes are computed again: copying them costs about as much."""
_Key = tuple[str, tuple[str | None, tuple[str, ...]]]
"""A prompt's text and context: equal texts may show different images, or be read with different adapters."""
_MAX_CACHED = 16
Result = TypeVar("Result")
_MEMORY_SHARE = 0.5
_NO_CODE = "could not create a primitive\n"
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    # oneDNN's words, whole: those of a shape that it does not support go on ("... a primitive descriptor for ...")
    _NO_CODE,
    "could not create a memory object\n",
    "could not execute a primitive\n",
)
"""In the messages of a CPU, for which torch has no error class."""
_LOST_DEVICE = ("CUDA error", "HIP error", "XPU error", "CUBLAS_STATUS_", "CUDNN_STATUS_")


@dataclass(frozen=True, slots=True)
class NewPrompt:
    """A prompt that is read in this pass.

    Attributes:
        queued: its request.
        kv: its keys and values, with those of its shared prefix.
    """

    queued: QueuedRequest
    kv: KVCache

    @property
    def new_tokens(self) -> int:
        """Tokens that this pass reads."""
        return len(self.queued.ids) - self.kv.length


@dataclass(slots=True)
class PackedRow:
    """Tokens of a pass, one behind another.

    Attributes:
        ids: token ids.
        positions: of each token in its sequence.
        segments: which tokens attend together, in order.
        logit_places: places of the tokens at which logits are needed.
        owners: the adapter and the number of tokens of each reply, prompt and tree, in order.
    """

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    logit_places: list[int] = field(default_factory=list)
    owners: list[tuple[str | None, int]] = field(default_factory=list)

    @classmethod
    def build(cls, blocks: Sequence[DecodeBlock], fresh: Sequence[NewPrompt], device: torch.device) -> "PackedRow":
        """The last token of every running reply, the new prompts, and the inner nodes of each prompt's tree.

        Logits are needed at each reply's token, at the last token of each prompt, and at all nodes.
        """
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


class SharedPrefix(NamedTuple):
    """The number of tokens that a prompt shares with an earlier one, and the earlier one's keys and values."""

    tokens: int
    kv: KVCache | None


class PrefixCache:
    """The most recent prompts, with or without a reply, at most `_MAX_ENTRIES`.

    Args:
        max_tokens: maximum tokens of all entries together.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._entries: OrderedDict[_Key, tuple[NDArray[np.int32], KVCache]] = OrderedDict()
        self.reused_tokens = 0

    def add(self, queued: QueuedRequest, kv: KVCache, reply: Sequence[int] = ()) -> None:
        """Add a prompt that was just read, or with the tokens of its reply that were read."""
        key = _key(queued)
        self._entries[key] = np.concatenate((queued.ids, np.array(reply, np.int32))), kv
        self._entries.move_to_end(key)
        while len(self._entries) > _MAX_ENTRIES or self._tokens() > self._max_tokens:
            self._entries.popitem(last=False)

    def add_reply(self, sequence: RunningSequence, decoding: DecodeBlocks) -> None:
        """Add a finished reply's tokens to its prompt's, or all where the prompt has gone and they are worth a copy."""
        queued, reply = sequence.parent, sequence.ids[:-1]
        _, kv = self._entries.get(_key(queued), (None, None))
        if kv is None or kv.length != len(queued.ids):
            if len(reply) < MIN_SHARED_TOKENS:
                return
            kv = KVCache(sequence.read_tokens)
        try:
            decoding.copy(sequence, kv)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self.clear()
        else:
            self.add(queued, kv, reply)

    def longest_prefix(self, queued: QueuedRequest, fresh: Sequence[NewPrompt]) -> SharedPrefix:
        """The longest prefix that a recent prompt, or one that the same pass reads before it, shares with this one."""
        continued = self._entries.get(self._continued_key(queued))
        recent = islice(reversed(self._entries.items()), _MAX_COMPARED)
        entries = [entry for (_, context), entry in recent if context == queued.context]
        entries += [(new.queued.ids, new.kv) for new in fresh if new.queued.context == queued.context]
        best = SharedPrefix(0, None)
        for ids, kv in entries if continued is None else [continued]:
            tokens = shared_tokens(ids, queued)
            if tokens > best.tokens and (tokens >= MIN_SHARED_TOKENS or continued is not None):
                best = SharedPrefix(tokens, kv)
        return best

    def has_continued(self, queued: QueuedRequest) -> bool:
        """True if the prompt continues a cached one."""
        return self._continued_key(queued) in self._entries

    def new_kv(self, queued: QueuedRequest, prefix: SharedPrefix) -> KVCache:
        """Keys and values for a new prompt, which begins with its shared prefix."""
        reply = min(queued.request.sampling.max_tokens, _REPLY_TOKENS)
        self.reused_tokens += prefix.tokens
        return KVCache(len(queued.ids) + max(queued.tree_nodes, reply), prefix.kv, prefix.tokens)

    def clear(self) -> None:
        """Free the memory."""
        self._entries.clear()

    def _continued_key(self, queued: QueuedRequest) -> _Key:
        """The key of the prompt without its prefilled reply."""
        prefill = queued.request.prompt.prefill
        return (queued.tokenized.text.removesuffix(prefill) if prefill else "", queued.context)

    def _tokens(self) -> int:
        return sum(max(kv.expected, kv.length) for _, kv in self._entries.values())


def _key(queued: QueuedRequest) -> _Key:
    return queued.tokenized.text, queued.context


def shared_tokens(ids: NDArray[np.int32], queued: QueuedRequest) -> int:
    """Number of leading tokens that both share, at most all but the prompt's last, whose logits are needed.

    0 where the shared tokens end before the prompt's last image: images are read whole or not at all.
    """
    most = min(len(ids), len(queued.ids) - 1)
    differ = np.flatnonzero(ids[:most] != queued.ids[:most])
    tokens = int(differ[0]) if len(differ) else most
    return tokens if tokens >= queued.images_end else 0


class NewReply(NamedTuple):
    """A reply that a pass has begun, and the nodes of its prompt's tree where its tokens but the last are."""

    prompt: NewPrompt
    sequence: RunningSequence
    path: list[int]


def begin_replies(
    fresh: Sequence[NewPrompt], logits: Tensor, greedy: Sequence[int], tokenizer: Tokenizer, eos_ids: frozenset[int]
) -> list[NewReply]:
    """Begin the replies to new prompts, and note the log-probabilities of their candidates.

    A reply that is a candidate needs no pass for each of its tokens: their logits are those of the tree's nodes.

    Args:
        fresh: the prompts.
        logits: shape (rows, vocabulary): at each prompt's end, then at the nodes of each prompt's tree.
        greedy: the most probable token of each row.
        tokenizer: of the model.
        eos_ids: token ids that end a reply.
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
    """The replies' log-probabilities of each tree, as in `ScoreTree.logprobs`, fetched from the device at once.

    Args:
        trees: each with the rows of its prompt's end and of its inner nodes.
        logits: shape (rows, vocabulary).
    """
    if not trees:
        return []
    steps = [[(node, token) for node, tokens in tree.children.items() for token in tokens] for tree, _ in trees]
    places = [(own[node + 1], token) for (_, own), each in zip(trees, steps, strict=True) for node, token in each]
    rows, columns = torch.tensor(places, device=logits.device).T
    precise = logits.float()
    known = iter((precise[rows, columns] - precise.logsumexp(-1)[rows]).tolist())
    return [tree.logprobs(dict(zip(each, known, strict=False))) for (tree, _), each in zip(trees, steps, strict=True)]


class ImageFeatures:
    """Embeds packed rows for one vision-language model.

    Args:
        model: one that puts image features at the positions of its image token, and nowhere else.
        vision: its processor.
    """

    def __init__(self, model: Any, vision: Vision) -> None:
        self._model = model
        self._token = vision.token_id
        self._features = lru_cache(_MAX_CACHED)(self._compute)

    def embed(self, ids: Tensor, fresh: Sequence[NewPrompt], start: int) -> Tensor:
        """The embeddings of a packed row, with the features of the images that new prompts show.

        Args:
            ids: shape (1, tokens).
            fresh: the new prompts in the row, in order; one that starts behind its images does not need them.
            start: position of the first of them.

        Returns:
            Shape (1, tokens, hidden size).

        Raises:
            EngineError: an image has not as many features as tokens.
        """
        row: Tensor = self._model.get_input_embeddings()(ids).clone()
        for new in fresh:
            parent, begun = new.queued, new.kv.length
            prompt = parent.tokenized.ids
            if parent.images and begun == 0:
                features = torch.cat([self._features(image) for image in parent.images])
                positions = [start + position for position, token in enumerate(prompt) if token == self._token]
                if len(positions) != len(features):
                    raise EngineError(
                        f"request {parent.request.key}: {len(positions)} image tokens in the prompt, but the model "
                        f"makes {len(features)} features; its processor does not belong to it"
                    )
                row[0, torch.tensor(positions, device=row.device)] = features.to(row.dtype)
            start += len(prompt) - begun
        return row

    def clear(self) -> None:
        """Free the memory."""
        self._features.cache_clear()

    def _compute(self, image: ProcessedImage) -> Tensor:
        """Shape (tokens of the image, hidden size)."""
        pixels = {name: _to_model(value, self._model) for name, value in image.pixels.items()}
        output = self._model.get_image_features(**pixels, return_dict=True).pooler_output
        features = torch.cat(list(output)) if isinstance(output, list | tuple) else output
        return features.reshape(-1, features.shape[-1])


def _to_model(value: Any, model: Any) -> Any:
    """A tensor on the model's device, in its numeric format."""
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)


def kv_capacity(model: Any, device: torch.device) -> int:
    """Tokens whose keys and values fit into half of the memory that is free now."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    return max(1, int(_MEMORY_SHARE * free / per_token))


def is_out_of_memory(error: BaseException) -> bool:
    """True if a pass ran out of memory."""
    text = f"{error}\n"
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in text for words in _NO_MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """True if no later pass can succeed: after such an error an accelerator refuses all work of its process."""
    return any(words in str(error) for words in _LOST_DEVICE)


class PassThread:
    """Runs passes in the caller's thread, and in another one after oneDNN had no memory for generated code.

    oneDNN (3.12) never forgets that error in the thread in which it arose: it generates no code there any more, so
    every pass of a new length would fail although memory is free again, and perhaps it says so only in such a later
    pass. The other thread starts at once, since it could not when memory is short; its OpenMP threads take the place of
    the caller's when it is needed.
    """

    def __init__(self) -> None:
        self._spare = ThreadPoolExecutor(max_workers=1)
        self._spare.submit(int).result()
        self._is_moved = False

    def run(self, function: Callable[..., Result], *args: Any, alone: bool = False) -> Result:
        """The function's result, computed without gradients.

        Args:
            function: runs the pass; it may be called twice.
            args: its arguments.
            alone: the pass holds one request and cannot shrink, so it is repeated in the other thread before it fails.
        """
        if not self._is_moved:
            try:
                return function(*args)
            except RuntimeError as error:
                self._is_moved = _NO_CODE in f"{error}\n"
                if self._is_moved:
                    release_openmp_threads()
                if not (alone and self._is_moved):
                    raise
            gc.collect()  # the failed pass's frames stand in reference cycles and would hold its tensors
        return self._spare.submit(torch.inference_mode()(function), *args).result()
