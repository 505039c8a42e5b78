"""Token trees of given replies, and the replies' log-probabilities from the logits at their inner nodes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from judgelm.engines.candidates import ScoreTree, build_tree
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
            self._trees[key] = build_tree(self._ids_after(*key))
        return self._trees[key]

    def _ids_after(self, tail: str, replies: tuple[str, ...]) -> list[list[int]]:
        """Ids of each reply after the prompt's end; tokenised alone where a token would span the boundary."""
        before, *wholes = self._ids([tail, *(tail + reply for reply in replies)])
        all_ids = [whole[len(before) :] if whole[: len(before)] == before else [] for whole in wholes]
        for index, reply in enumerate(replies):
            if not all_ids[index]:
                [all_ids[index]] = self._ids([reply])
            if not all_ids[index]:
                raise EngineError(f"candidate {reply!r} has no tokens")
        return all_ids

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return list(self._tokenizer(texts, add_special_tokens=False)["input_ids"])


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
