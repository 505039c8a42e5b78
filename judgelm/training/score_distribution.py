"""The differentiable distribution over score lines: P(first better) of a prompt, with gradients.

The judge is asked for the probability of each score line (`8 6`) as in `judgelm.parsing.scores`, from the same
tree of tokens (`judgelm.engines.candidates`). One forward pass evaluates prompt and tree together: the tree's nodes
follow the prompt, a mask lets each see the prompt and its own ancestors, and nodes of the same depth share a position.
That equals a separate pass for each score line.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from judgelm.engines.candidates import ROOT, CandidateTokenizer
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample

TreeTensors = dict[str, Tensor]
"""A tree of score lines and targets as tensors; see `ScoreLineTrees.tree`."""

_TREES = 64
_LEAST_SHARE = 1e-6


class ScoreLineTrees:
    """Token trees of a template's score lines, as tensors.

    Args:
        tokenizer: the base's.
        template: id of the template, whose end decides how the first score is tokenised.
        scale: lowest and highest score; scores are whole numbers.
    """

    def __init__(self, tokenizer: Any, template: str, scale: tuple[float, float]) -> None:
        self.lines = score_lines(scale, 1)
        self._candidates = CandidateTokenizer(tokenizer)
        prompt = get_template(template).render(Sample(id="", question="", answers=("", "")), (0, 1), None)
        self._prompt = Truncator(tokenizer, 1).text(prompt.spans, chat=prompt.chat) + prompt.prefill
        self._tree = lru_cache(_TREES)(self._build)

    def tree(self, targets: Sequence[tuple[float, float]]) -> TreeTensors:
        """The tree of all score lines, and of the targets with their line's end.

        Args:
            targets: score pairs of whole numbers on the scale.

        Returns:
            `tokens` and `depths`, shape (nodes,): the inner nodes; `visible`, shape (nodes, nodes): a node's
            ancestors and itself; `rows` and `columns`, shape (steps,): the row of logits (0 is the end of the
            prompt) and token id of each step; `paths`, shape (lines + distinct targets, longest): steps of each, with
            `steps` as padding; `longer`, shape (lines, most): score lines that begin with another (`1 10` with
            `1 1`), with `lines` as padding; `better`, shape (3, lines): log-weights of P(first better),
            P(second better) and of all; `targets`, shape (targets,): the path of each.
        """
        distinct = sorted(set(targets))
        indices = [distinct.index(target) + len(self.lines.pairs) for target in targets]
        return {**self._tree(tuple(distinct)), "targets": torch.tensor(indices)}

    def _build(self, targets: tuple[tuple[float, float], ...]) -> TreeTensors:
        lines = self.lines
        written = tuple(f"{first:g} {second:g}\n" for first, second in targets)
        tree = self._candidates.tree(self._prompt, (*lines.texts, *written))
        longer = self._candidates.tree(self._prompt, lines.texts).longer
        steps = list(dict.fromkeys(step for path in tree.paths for step in path))
        index_of = {step: index for index, step in enumerate(steps)}
        visible = torch.zeros((len(tree.tokens), len(tree.tokens)), dtype=torch.bool)
        for node in range(len(tree.tokens)):
            visible[node, tree.ancestors(node)] = True
        first = torch.tensor([1.0 if s1 > s2 else 0.5 if s1 == s2 else 0.0 for s1, s2 in lines.pairs])
        return {
            "tokens": torch.tensor(tree.tokens),
            "depths": torch.tensor(tree.depths),
            "visible": visible,
            "rows": torch.tensor([node - ROOT for node, _ in steps]),
            "columns": torch.tensor([token for _, token in steps]),
            "paths": _padded([[index_of[step] for step in path] for path in tree.paths], len(steps)),
            "longer": _padded([list(indices) for indices in longer], len(lines.pairs)),
            "better": torch.stack([first, 1 - first, torch.ones_like(first)]).log(),
        }


def tree_batch(prompts: Sequence[Sequence[int]], tree: TreeTensors) -> dict[str, Tensor]:
    """Inputs of one forward pass over prompts, padded at their beginning, each followed by the tree.

    Args:
        prompts: token ids.
        tree: of all prompts.

    Returns:
        `input_ids` and `position_ids`, shape (prompts, longest prompt + nodes), and `attention_mask`, shape
        (prompts, 1, longest + nodes, longest + nodes), True where a token sees another. The last 1 + nodes columns
        are the ends of the prompts and the nodes.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    longest, nodes = int(lengths.max()), len(tree["tokens"])
    ids = torch.zeros((len(prompts), longest), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
    padding = (longest - lengths)[:, None]
    positions = torch.arange(longest)[None] - padding
    real = torch.nn.functional.pad(positions >= 0, (0, nodes), value=True)
    mask = torch.ones((longest + nodes, longest + nodes), dtype=torch.bool).tril()
    mask[longest:, longest:] = tree["visible"]
    own = torch.eye(longest + nodes, dtype=torch.bool)  # padding sees itself: softmax over nothing is NaN
    return {
        "input_ids": torch.cat([ids, tree["tokens"].expand(len(prompts), -1)], 1),
        "position_ids": torch.cat([positions.clamp(min=0), lengths[:, None] + tree["depths"]], 1),
        "attention_mask": ((mask & real[:, None, :]) | own)[:, None],
    }


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a token sees another and the lowest number where it does not: once, and not again in every layer."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def path_logprobs(logits: Tensor, tree: TreeTensors) -> Tensor:
    """Log-probability that a reply begins with each score line, and with each distinct target.

    Args:
        logits: shape (prompts, 1 + nodes, vocabulary).
        tree: `ScoreLineTrees.tree`.

    Returns:
        Shape (prompts, lines + distinct targets), float32.
    """
    logits = logits.float()
    steps = logits[:, tree["rows"], tree["columns"]] - logits.logsumexp(-1)[:, tree["rows"]]
    return torch.nn.functional.pad(steps, (0, 1))[:, tree["paths"]].sum(-1)


def line_logprobs(paths: Tensor, tree: TreeTensors) -> Tensor:
    """Log-probability of each score line and of no longer one, as in `ScoreTree.logprobs`.

    Args:
        paths: `path_logprobs`.
        tree: as there.

    Returns:
        Shape (prompts, lines).
    """
    lines = paths[:, : len(tree["longer"])]
    if not tree["longer"].shape[1]:
        return lines
    longer = torch.nn.functional.pad(lines, (0, 1), value=-torch.inf)[:, tree["longer"]].logsumexp(-1)
    share = (longer - lines).clamp(max=-_LEAST_SHARE)  # of `1 10` in `1 1`; the difference is not 0
    return torch.where(longer.isneginf(), lines, lines + torch.log(-torch.expm1(share)))


def preference_logprobs(lines: Tensor, tree: TreeTensors) -> tuple[Tensor, Tensor, Tensor]:
    """Logs of P(first better) and P(second better), half of a tie each, and of the score lines' share of all replies.

    Args:
        lines: `line_logprobs`.
        tree: as there.

    Returns:
        Three of shape (prompts,); the first two are relative to the third, as in `pair_distribution`.
    """
    first, second, assigned = (lines[:, None] + tree["better"]).logsumexp(-1).unbind(1)
    return first - assigned, second - assigned, assigned


def _padded(rows: list[list[int]], padding: int) -> Tensor:
    """Rows of indices as a matrix, filled with the padding."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows])
