"""Loss on P(first better) for judges that write score lines.

For a pair with preference p, and P computed from the distribution over score lines, the loss is

    CE(p, P) + consistency_weight * (P1 - (1 - P2))^2 + score_line_weight * NLL(line(p))

CE and NLL are averaged over the two orders. P1 and P2 are P(first better) in each order; `line` is
`scores_by_preference`. The prompt and the score-line tree share a forward pass (`judgelm.engines.candidates`).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from judgelm.data.labelled_pair import scores_by_preference, swapped_preference
from judgelm.engines.candidates import ROOT, CandidateTokenizer
from judgelm.engines.transformers.attention import Segment, TrainedKV, TreeSegment, trained_rows
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.training.word_loss import concatenated, left_padded

TreeTensors = dict[str, Tensor]


_TREES = 64


_MIN_SHARE = 1e-6


class ScoreLineTrees:
    """Builds token trees of a template's score lines, as tensors."""

    def __init__(self, tokenizer: Any, template: str, scale: tuple[float, float]) -> None:
        self.lines = score_lines(scale, 1)
        self._candidates = CandidateTokenizer(tokenizer)
        prompt = get_template(template).render(Sample(id="", question="", answers=("", "")), (0, 1), None)
        self._prompt = Truncator(tokenizer, 1).text(prompt.spans, chat=prompt.chat) + prompt.prefill
        self._tree = lru_cache(_TREES)(self._build)

    def tree(self, targets: Sequence[tuple[float, float]]) -> TreeTensors:
        """Return the tree of all score lines and targets.

        Returns:
            `tokens`, `depths`, shape (nodes,): the inner nodes.
            `visible`, shape (nodes, nodes): each node and its ancestors.
            `rows`, `columns`, shape (steps,): logits row (0: end of the prompt) and token ID for each step.
            `paths`, shape (lines + distinct targets, longest): steps of each path, padded with `steps`.
            `longer`, shape (lines, most): lines that extend each line (`1 10` extends `1 1`), padded with `lines`.
            `better`, shape (3, lines): log-weights of P(first better), P(second better), and all lines.
            `targets`, shape (targets,): index of each target's path.
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
        first = torch.tensor([1.0 if s1 > s2 else 0.5 if s1 == s2 else 0.0 for s1, s2 in lines.pairs])
        return {
            "tokens": torch.tensor(tree.tokens),
            "depths": torch.tensor(tree.depths),
            "visible": torch.from_numpy(tree.visible),
            "rows": torch.tensor([node - ROOT for node, _ in steps]),
            "columns": torch.tensor([token for _, token in steps]),
            "paths": _padded([[index_of[step] for step in path] for path in tree.paths], len(steps)),
            "longer": _padded([list(indices) for indices in longer], len(lines.pairs)),
            "better": torch.stack([first, 1 - first, torch.ones_like(first)]).log(),
        }


def tree_batch(prompts: Sequence[Sequence[int]], tree: TreeTensors) -> dict[str, Tensor]:
    """Return left-padded prompts, each followed by the tree.

    `attention_mask` has shape (prompts, 1, tokens, tokens).
    """
    batch, nodes = left_padded(prompts), len(tree["tokens"])
    longest = batch["input_ids"].shape[1]
    real = torch.nn.functional.pad(batch["attention_mask"].bool(), (0, nodes), value=True)
    mask = torch.ones((longest + nodes, longest + nodes), dtype=torch.bool).tril()
    mask[longest:, longest:] = tree["visible"]
    own = torch.eye(longest + nodes, dtype=torch.bool)  # padding attends to itself, because an empty softmax is NaN
    return {
        "input_ids": torch.cat([batch["input_ids"], tree["tokens"].expand(len(prompts), -1)], 1),
        "position_ids": torch.cat([batch["position_ids"], batch["attention_mask"].sum(1)[:, None] + tree["depths"]], 1),
        "attention_mask": ((mask & real[:, None, :]) | own)[:, None],
    }


def concatenated_trees(prompts: Sequence[Sequence[int]], tree: TreeTensors) -> dict[str, Tensor]:
    """Return the prompts concatenated into one row, followed by a tree for each prompt.

    `scored` contains the columns of each prompt's last token and of its nodes.
    """
    batch, count, nodes = concatenated(prompts), len(prompts), len(tree["tokens"])
    bounds = batch["cu_seq_lens_q"][:, None].long()
    columns = torch.arange(count * nodes).reshape(count, nodes) + bounds[-1]
    added = {"input_ids": tree["tokens"].repeat(count), "position_ids": (bounds.diff(dim=0) + tree["depths"]).flatten()}
    rows = {name: torch.cat([batch[name][0], tokens])[None] for name, tokens in added.items()}
    scored = torch.cat([bounds[1:] - 1, columns], 1).flatten()
    return {"cu_seq_lens_q": batch["cu_seq_lens_q"], "scored": scored, **rows}


def tree_segments(lengths: Sequence[int], visible: Tensor) -> list[Segment]:
    """Return the attention segments for `concatenated_trees`."""
    kvs = [TrainedKV(expected=len(visible)) for _ in lengths]
    trees = [TreeSegment(kv, length, visible) for kv, length in zip(kvs, lengths, strict=True)]
    return [trained_rows(lengths, kvs), *trees]


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where a token attends to another token, elsewhere the minimum of the dtype."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def path_logprobs(logits: Tensor, tree: TreeTensors) -> Tensor:
    """Return the log-probability of each line and each distinct target as the beginning of a reply."""
    logits = logits.float()
    steps = logits[:, tree["rows"], tree["columns"]] - logits.logsumexp(-1)[:, tree["rows"]]
    return torch.nn.functional.pad(steps, (0, 1))[:, tree["paths"]].sum(-1)


def line_logprobs(paths: Tensor, tree: TreeTensors) -> Tensor:
    """Return each score line's log-probability, excluding longer lines, with shape (prompts, lines)."""
    lines = paths[:, : len(tree["longer"])]
    if not tree["longer"].shape[1]:
        return lines
    longer = torch.nn.functional.pad(lines, (0, 1), value=-torch.inf)[:, tree["longer"]].logsumexp(-1)
    share = (longer - lines).clamp(
        max=-_MIN_SHARE
    )  # e.g. the share of `1 10` in `1 1`; clamping keeps the difference above zero
    return torch.where(longer.isneginf(), lines, lines + torch.log(-torch.expm1(share)))


def preference_logprobs(lines: Tensor, tree: TreeTensors) -> tuple[Tensor, Tensor, Tensor]:
    """Return log P(first better), log P(second better), and log P(score line)."""
    first, second, assigned = (lines[:, None] + tree["better"]).logsumexp(-1).unbind(1)
    return first - assigned, second - assigned, assigned


def _padded(rows: list[list[int]], padding: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows])


class ScoreLineObjective:
    """Collates prompts with score-line trees and computes their loss."""

    def __init__(
        self, trees: ScoreLineTrees, consistency_weight: float, score_line_weight: float, padding_free: bool = False
    ) -> None:
        self._trees = trees
        self._collate = concatenated_trees if padding_free else tree_batch
        self._weights = (consistency_weight, score_line_weight)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate `PairRow` rows: all pairs in the given order, then all swapped pairs if the rows have both orders."""
        prompts = [example["prompt_ids"] for example in examples]
        preferences = [example["preference"] for example in examples]
        shown = list(preferences)
        if len(examples[0]["second_ids"]):
            prompts += [example["second_ids"] for example in examples]
            shown += [swapped_preference(preference) for preference in preferences]
        low, high = self._trees.lines.values[0], self._trees.lines.values[-1]
        tree = self._trees.tree([scores_by_preference(preference, (low, high)) for preference in shown])
        return {
            "preference": torch.tensor(
                preferences, dtype=torch.float32
            ),  # must be first, because its length is used as the batch size
            "tree": tree,
            **self._collate(prompts, tree),
        }

    def model_inputs(self, batch: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Return the arguments for the forward pass."""
        ids, tree = batch["input_ids"], batch["tree"]
        inputs = {"input_ids": ids, "position_ids": batch["position_ids"]}
        if "attention_mask" not in batch:
            segments = tree_segments(batch["cu_seq_lens_q"].diff().tolist(), tree["visible"])
            return inputs | {"segments": segments, "logits_to_keep": batch["scored"]}
        # pass indices, not a number: for a slice, torch copies the vocabulary weights for each row
        scored = torch.arange(ids.shape[1] - 1 - len(tree["tokens"]), ids.shape[1], device=ids.device)
        return inputs | {"attention_mask": additive_mask(batch["attention_mask"], dtype), "logits_to_keep": scored}

    def losses(self, logits: Tensor, batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and metrics from `pair_losses`."""
        logits = logits.reshape(-1, 1 + len(batch["tree"]["tokens"]), logits.shape[-1])
        return pair_losses(logits, batch["tree"], batch["preference"], *self._weights)


def pair_losses(
    logits: Tensor, tree: dict[str, Tensor], preference: Tensor, consistency_weight: float, score_line_weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of each pair, shape (pairs,), and detached metrics by name.

    `logits` has shape (orders x pairs, 1 + nodes, vocabulary): all pairs in the given order, then all swapped pairs.
    `preference` is P(first answer is better), shape (pairs,).
    """
    paths = path_logprobs(logits, tree)
    first, second, assigned = preference_logprobs(line_logprobs(paths, tree), tree)
    shown = torch.cat([preference, 1 - preference])[: len(first)]
    entropy = -(shown * first + (1 - shown) * second)
    line = -paths.gather(1, tree["targets"][:, None])[:, 0]
    orders = (-1, len(preference))  # one row per order
    chances = first.exp().reshape(orders)
    gap = (chances[0] - (1 - chances[1])) ** 2 if len(chances) == 2 else torch.zeros_like(preference)
    entropy, line = entropy.reshape(orders).mean(0), line.reshape(orders).mean(0)
    parts = {"preference_loss": entropy, "consistency_loss": gap, "score_line_loss": line}
    metrics = {name: part.detach() for name, part in (parts | {"score_line_mass": assigned.exp()}).items()}
    return entropy + consistency_weight * gap + score_line_weight * line, metrics
