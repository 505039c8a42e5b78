"""The packed row of a pass: running replies, new prompts, and the trees of their candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from judgelm.engines.transformers.decode_blocks import DecodeBlock
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.packed_attention import PromptBatch, PromptSegment, Segment, TreeSegment
from judgelm.engines.transformers.sequences import QueuedRequest


@dataclass(frozen=True, slots=True)
class NewPrompt:
    """A prompt that is read in this pass.

    Attributes:
        queued: its request.
        kv: its keys and values, with those of its cached prefix.
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
