"""The beginnings of replies: from the logits at prompts' ends and at the nodes of their score trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from torch import Tensor

from judgelm.engines.candidates import ROOT
from judgelm.engines.transformers.packed_row import NewPrompt
from judgelm.engines.transformers.sequences import RunningSequence, next_tokens
from judgelm.engines.transformers.tree_scoring import tree_logprobs
from judgelm.prompts.truncation import Tokenizer


@dataclass(frozen=True, slots=True)
class NewReply:
    """A reply that a pass has begun.

    Attributes:
        prompt: its prompt.
        sequence: the reply, with its first tokens.
        path: nodes of the prompt's tree where its tokens but the last are.
    """

    prompt: NewPrompt
    sequence: RunningSequence
    path: list[int]


@dataclass(frozen=True, slots=True)
class NewLogits:
    """Results of a pass for its new prompts.

    Attributes:
        logits: shape (rows, vocabulary): at each prompt's end, then at the nodes of each prompt's tree.
        greedy: the most probable token of each row.
    """

    logits: Tensor
    greedy: Sequence[int]

    def begin(self, fresh: Sequence[NewPrompt], tokenizer: Tokenizer, eos_ids: frozenset[int]) -> list[NewReply]:
        """Begin the replies to the prompts, and note the log-probabilities of their candidates.

        Args:
            fresh: the prompts.
            tokenizer: of the model.
            eos_ids: token ids that end a reply.
        """
        nodes = list(accumulate((new.queued.tree_nodes for new in fresh), initial=len(fresh)))
        rows = [[row, *range(*ends)] for row, ends in enumerate(pairwise(nodes))]
        trees = [(new.queued.tree, own) for new, own in zip(fresh, rows, strict=True) if new.queued.tree is not None]
        logprobs = iter(tree_logprobs(trees, self.logits))
        replies = []
        for new, own in zip(fresh, rows, strict=True):
            if new.queued.tree is not None:
                new.queued.candidate_logprobs = next(logprobs)
            for index in range(new.queued.request.sampling.n):
                sequence = RunningSequence(new.queued, index)
                replies.append(NewReply(new, sequence, self._append(sequence, own, tokenizer, eos_ids)))
        return replies

    def _append(
        self, sequence: RunningSequence, rows: Sequence[int], tokenizer: Tokenizer, eos_ids: frozenset[int]
    ) -> list[int]:
        """Append a reply's first token, and further ones along its tree; returns the nodes of all but the last.

        A reply that is a candidate needs no pass for each of its tokens: their logits are those of the tree's nodes.

        Args:
            sequence: the reply.
            rows: at its prompt's end, then at the nodes of its tree.
            tokenizer: of the model.
            eos_ids: token ids that end a reply.
        """
        tree, path, node = sequence.parent.tree, list[int](), ROOT
        while True:
            row = rows[node + 1]
            [token] = next_tokens([sequence], self.logits[row : row + 1], self.greedy[row : row + 1])
            sequence.append(token, tokenizer, eos_ids)
            if tree is None or sequence.finish_reason is not None or (node, token) not in tree.node_behind:
                return path
            node = tree.node_behind[node, token]
            path.append(node)
