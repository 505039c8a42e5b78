"""Token trees of given replies, and the replies' log-probabilities from the logits at their inner nodes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from judgelm.engines.candidates import ScoreTree


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
