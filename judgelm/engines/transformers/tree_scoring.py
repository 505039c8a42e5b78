"""Log-probabilities of given replies from one more pass over the inner nodes of their tree."""

from collections.abc import Sequence

import torch
from torch import Tensor

from judgelm.engines.score_tree import ScoreTree, build_tree
from judgelm.engines.transformers.packed_attention import KVCache, Segment
from judgelm.errors import EngineError
from judgelm.prompts.truncation import Tokenizer

_TAIL_CHARACTERS = 32


class CandidateTokenizer:
    """Token ids of replies as they would follow a prompt; cached, since a run repeats the same ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._trees: dict[tuple[str, tuple[str, ...]], ScoreTree] = {}

    def tree(self, prompt: str, replies: tuple[str, ...]) -> ScoreTree:
        """The tree of the replies that follow this prompt."""
        key = (prompt[-_TAIL_CHARACTERS:], replies)
        if key not in self._trees:
            self._trees[key] = build_tree([self._ids_after(key[0], reply) for reply in replies])
        return self._trees[key]

    def _ids_after(self, tail: str, reply: str) -> list[int]:
        """Ids of the reply after the prompt's end; tokenised alone where a token would span the boundary."""
        before, whole = self._ids(tail), self._ids(tail + reply)
        ids = whole[len(before) :] if whole[: len(before)] == before else self._ids(reply)
        if not ids:
            raise EngineError(f"candidate {reply!r} has no tokens")
        return ids

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def tree_inputs(
    trees: Sequence[ScoreTree], kv_caches: Sequence[KVCache], device: torch.device
) -> tuple[list[int], list[int], list[Segment]]:
    """Token ids, positions and segments of all trees' inner nodes, packed."""
    ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    for tree, kv in zip(trees, kv_caches, strict=True):
        if not tree.tokens:
            continue
        ids += tree.tokens
        positions += (kv.length + depth for depth in tree.depths)
        visible = torch.zeros((len(tree.tokens), len(tree.tokens)), dtype=torch.bool, device=device)
        for node in range(len(tree.tokens)):
            visible[node, tree.ancestors(node)] = True
        segments.append(Segment(kv, len(tree.tokens), visible))
    return ids, positions, segments


def tree_logprobs(tree: ScoreTree, logits: Tensor) -> tuple[float, ...]:
    """The replies' log-probabilities, as in `ScoreTree.logprobs`.

    Args:
        tree: the replies.
        logits: shape (1 + inner nodes, vocabulary): at the end of the prompt, then at each node.
    """
    steps = [(node, token) for node, tokens in tree.children.items() for token in tokens]
    rows, columns = torch.tensor(steps, device=logits.device).T
    known = logits.float()[rows + 1, columns] - logits.float().logsumexp(-1)[rows + 1]
    return tree.logprobs(dict(zip(steps, known.tolist(), strict=True)))
