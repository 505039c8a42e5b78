"""The trainer of `train/preference.py`: P(first better) is trained itself, as the judge's reading computes it.

The loss of judges that are read off the first word of their reply is in `judgelm.training.readings`, that of judges of
score lines here. Such a judge's distribution over score lines says P(first better), as `judgelm.parsing.scores` reads
it at test time: the probability of all lines whose first score is higher, and half of that of equal scores. That number
is differentiable. The loss of a pair with the preference p is

    CE(p, P) + consistency_weight * (P1 - (1 - P2))^2 + score_line_weight * NLL(line(p))

CE is the cross entropy and NLL that of the score line which `scores_by_preference` gives for p, with its line's end;
both are means over the two orders, which stand in the same pass. P1 and P2 are P(first better) in either order.

One forward pass evaluates prompt and the tree of score lines (`judgelm.engines.candidates`) together: the tree's nodes
follow the prompt, a mask lets each see the prompt and its own ancestors, and nodes of the same depth share a position.
That equals a separate pass for each score line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy

from judgelm.data.labelled_pair import scores_by_preference, swapped_preference
from judgelm.engines.candidates import ROOT, CandidateTokenizer
from judgelm.engines.transformers.attention import Segment, TrainedKV, TreeSegment, trained_rows
from judgelm.errors import ConfigError
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.training.arguments import JudgeArguments, argument
from judgelm.training.base_model import Attention, requested_attention, speed_up_lora
from judgelm.training.readings import WordObjective, WordWeights, concatenated, word_tokens
from judgelm.training.run import TrainingRun
from judgelm.training.trainer import JudgeMixin, settle_padding

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


def concatenated_trees(prompts: Sequence[Sequence[int]], tree: TreeTensors) -> dict[str, Tensor]:
    """Inputs of one forward pass over all prompts one behind another, then the tree of each.

    Args:
        prompts: token ids.
        tree: of all prompts.

    Returns:
        `input_ids` and `position_ids`, shape (1, tokens); `cu_seq_lens_q`, shape (prompts + 1,), the bounds of the
        prompts; and `scored`, shape (prompts x (1 + nodes),): the columns of each prompt's end and nodes.
    """
    batch, count, nodes = concatenated(prompts), len(prompts), len(tree["tokens"])
    bounds = batch["cu_seq_lens_q"][:, None].long()
    columns = torch.arange(count * nodes).reshape(count, nodes) + bounds[-1]
    added = {"input_ids": tree["tokens"].repeat(count), "position_ids": (bounds.diff(dim=0) + tree["depths"]).flatten()}
    rows = {name: torch.cat([batch[name][0], tokens])[None] for name, tokens in added.items()}
    scored = torch.cat([bounds[1:] - 1, columns], 1).flatten()
    return {"cu_seq_lens_q": batch["cu_seq_lens_q"], "scored": scored, **rows}


def tree_segments(lengths: Sequence[int], visible: Tensor) -> list[Segment]:
    """Segments of `concatenated_trees`; `visible` is the tree's."""
    kvs = [TrainedKV(expected=len(visible)) for _ in lengths]
    trees = [TreeSegment(kv, length, visible) for kv, length in zip(kvs, lengths, strict=True)]
    return [trained_rows(lengths, kvs), *trees]


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


_COLUMNS = ("prompt_ids", "second_ids", "preference", "first_right", "second_right")


@dataclass(kw_only=True)
class PreferenceArguments(JudgeArguments):
    """Arguments of `train/preference.py` beside TRL's: those of `train/sft.py`, the reading, the weights of the loss.

    `train_data` and `eval_data` hold pairs with a `preference`, P(first answer is better), or with scores or a winner.
    """

    template: str = argument(
        "Prompt template; written into the judge's card. Without it that of the reading, else judgelm-v1.", default=""
    )
    reading: str | None = argument(
        "How the judge is read: score-line, or letters, yes-no or grade off the probabilities of its reply's first "
        "word; without it the template's.",
        default=None,
    )
    reason_prob: float = argument("0: reasons are not learned from preferences.", default=0.0)
    both_orders: bool = argument(
        "Show each pair in both orders within a step; false shows it once, as it stands or swapped by swap_prob, "
        "without the consistency term. Readings yes-no and grade show each answer by itself.",
        default=True,
    )
    consistency_weight: float = argument(
        "Weight of the squared difference between P(first better) in the two orders.", default=0.5
    )
    score_line_weight: float = argument(
        "Weight of the negative log-likelihood of the preference's score line, which keeps replies readable: watch "
        "score_line_mass, the probability of all score lines.",
        default=0.1,
    )
    word_weight: float = argument(
        "Where the judge is read off a word, weight of the negative log of the probability of all words of the "
        "reading, which keeps replies readable: watch word_mass, that probability.",
        default=0.1,
    )
    pointwise_weight: float = argument(
        "Reading yes-no: weight of the cross entropy of P(yes) with an answer's score, from 0 for the lowest of the "
        "scale to 1 for the highest, where rows have scores: of right and wrong answers the highest and the lowest.",
        default=0.0,
    )

    trains_words: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Settle template and reading."""
        if not self.template:
            self.template = self.reading if self.reading not in (None, "score-line") else JudgeArguments.template
        template = get_template(self.template)
        if self.reading not in (None, template.reading):
            raise ConfigError(
                f"template {template.id} is of reading {template.reading}, not {self.reading}; leave one of them out"
            )
        self.reading = template.reading


class _PairTrainer(SFTTrainer):
    """An `SFTTrainer` with the loss of the judge's reading."""

    model: Any
    _signature_columns: Any

    def __init__(
        self, *, judge: PreferenceArguments, model: Any, args: Any, processing_class: Any, **options: Any
    ) -> None:
        args.completion_only_loss = False
        self.padding = settle_padding(model, args, trees=not get_template(judge.template).reads_words)
        objective = self._objective = objective_of(judge, processing_class, args.padding_free)
        args.padding_free = False  # its own collator lays the rows out, which TRL 1.16 would refuse
        super().__init__(model=model, args=args, processing_class=processing_class, data_collator=objective, **options)
        speed_up_lora(self)
        self.model_accepts_loss_kwargs = True  # the loss is divided by the step's pairs here
        self._signature_columns = list(_COLUMNS)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Return the rows as they are: TRL would look for texts."""
        return dataset

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch of pairs: their mean, or the sum over all pairs of the step divided by their number."""
        outputs = model(**self._objective.model_inputs(inputs, self.model.dtype), use_cache=False)
        losses, metrics = self._objective.losses(outputs.logits, inputs)
        if num_items_in_batch is None:
            loss = losses.mean()
        else:
            loss = losses.sum() / num_items_in_batch
            if self.args.average_tokens_across_devices:
                loss = loss * self.accelerator.num_processes
        logged = self._metrics["train" if self.model.training else "eval"]
        names, values = list(metrics), torch.stack([values.mean() for values in metrics.values()])
        for name, value in zip(names, self.accelerator.reduce(values, reduction="mean").tolist(), strict=True):
            logged[name].append(value)
        return (loss, outputs) if return_outputs else loss

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> Any:
        """The divisor of the step's summed loss: its pairs."""
        if not batch_samples:
            return None
        total = torch.tensor(sum(len(batch["preference"]) for batch in batch_samples), device=device)
        return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total


class DistributionTrainer(JudgeMixin, _PairTrainer):
    """The trainer of preferences on P(first better).

    Args:
        options: `judge` (`PreferenceArguments`), `rows` (`EpochRows`), `validation`, `patience`, and what `SFTTrainer`
            takes.
    """


def objective_of(
    judge: PreferenceArguments, tokenizer: Any, padding_free: bool
) -> "ScoreLineObjective | WordObjective":
    """The loss of the judge's reading, with its collator.

    Raises:
        ConfigError: a word of the reading is more than one token.
    """
    scale = (judge.scale[0], judge.scale[1])
    template = get_template(judge.template)
    if not template.reads_words:
        trees = ScoreLineTrees(tokenizer, judge.template, scale)
        return ScoreLineObjective(trees, judge.consistency_weight, judge.score_line_weight, padding_free)
    weights = WordWeights(
        consistency=judge.consistency_weight, word=judge.word_weight, pointwise=judge.pointwise_weight
    )
    return WordObjective(word_tokens(tokenizer, template, scale), weights, padding_free)


class ScoreLineObjective:
    """Collates pairs in their orders, each prompt followed by the tree of score lines, and computes their loss.

    Args:
        trees: of the template's score lines.
        consistency_weight: see `pair_losses`.
        score_line_weight: see `pair_losses`.
        padding_free: lays prompts one behind another instead of padding them.
    """

    def __init__(
        self, trees: ScoreLineTrees, consistency_weight: float, score_line_weight: float, padding_free: bool = False
    ) -> None:
        self._trees = trees
        self._collate = concatenated_trees if padding_free else tree_batch
        self._weights = (consistency_weight, score_line_weight)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows of `PairRow`'s lists into a batch.

        Returns:
            `preference`, shape (pairs,); `tree`, see `ScoreLineTrees.tree`; and the inputs of `tree_batch` or
            `concatenated_trees`, all pairs in the given order, then all swapped if the rows have both orders.
        """
        prompts = [example["prompt_ids"] for example in examples]
        preferences = [example["preference"] for example in examples]
        shown = list(preferences)
        if len(examples[0]["second_ids"]):
            prompts += [example["second_ids"] for example in examples]
            shown += [swapped_preference(preference) for preference in preferences]
        low, high = self._trees.lines.values[0], self._trees.lines.values[-1]
        tree = self._trees.tree([scores_by_preference(preference, (low, high)) for preference in shown])
        return {
            "preference": torch.tensor(preferences, dtype=torch.float32),  # first: its length is the batch's
            "tree": tree,
            **self._collate(prompts, tree),
        }

    def model_inputs(self, batch: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Arguments of the model, which then returns the logits of the prompts' ends and of the tree."""
        ids, tree = batch["input_ids"], batch["tree"]
        inputs = {"input_ids": ids, "position_ids": batch["position_ids"]}
        if "attention_mask" not in batch:
            segments = tree_segments(batch["cu_seq_lens_q"].diff().tolist(), tree["visible"])
            return inputs | {"segments": segments, "logits_to_keep": batch["scored"]}
        # indices and not a number: of a slice, torch copies the vocabulary's weights for each row
        scored = torch.arange(ids.shape[1] - 1 - len(tree["tokens"]), ids.shape[1], device=ids.device)
        return inputs | {"attention_mask": additive_mask(batch["attention_mask"], dtype), "logits_to_keep": scored}

    def losses(self, logits: Tensor, batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """See `pair_losses`; without padding, `logits` have one row, in the order of `scored`."""
        logits = logits.reshape(-1, 1 + len(batch["tree"]["tokens"]), logits.shape[-1])
        return pair_losses(logits, batch["tree"], batch["preference"], *self._weights)


def pair_losses(
    logits: Tensor, tree: dict[str, Tensor], preference: Tensor, consistency_weight: float, score_line_weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each pair, and its parts.

    Args:
        logits: shape (orders x pairs, 1 + nodes, vocabulary): all pairs in the given order, then all swapped.
        tree: `ScoreLineTrees.tree` of each order's target.
        preference: shape (pairs,), P(first answer is better), in [0, 1].
        consistency_weight: of the squared difference between the orders.
        score_line_weight: of the negative log-likelihood of the target's score line.

    Returns:
        Shape (pairs,); and metrics by name, without gradients: `preference_loss`, `consistency_loss`,
        `score_line_loss`, and `score_line_mass`, the probability of all score lines.
    """
    paths = path_logprobs(logits, tree)
    first, second, assigned = preference_logprobs(line_logprobs(paths, tree), tree)
    shown = torch.cat([preference, 1 - preference])[: len(first)]
    entropy = -(shown * first + (1 - shown) * second)
    line = -paths.gather(1, tree["targets"][:, None])[:, 0]
    orders = (-1, len(preference))  # one row for each order
    chances = first.exp().reshape(orders)
    gap = (chances[0] - (1 - chances[1])) ** 2 if len(chances) == 2 else torch.zeros_like(preference)
    entropy, line = entropy.reshape(orders).mean(0), line.reshape(orders).mean(0)
    parts = {"preference_loss": entropy, "consistency_loss": gap, "score_line_loss": line}
    metrics = {name: part.detach() for name, part in (parts | {"score_line_mass": assigned.exp()}).items()}
    return entropy + consistency_weight * gap + score_line_weight * line, metrics


_WEIGHTS = {
    "score-line": ("consistency_weight", "score_line_weight"),
    "letters": ("consistency_weight", "word_weight"),
    "yes-no": ("word_weight", "pointwise_weight"),
    "grade": ("word_weight",),
}
"""The weights that the loss of each reading has."""


def check_preference_arguments(judge: PreferenceArguments) -> None:
    """Refuse options that the loss of the judge's reading lacks, and negative weights.

    Raises:
        ConfigError: one of them is set, or the template has no P(first better) that could be trained.
    """
    template = get_template(judge.template)
    if template.reads_alone and not judge.both_orders:
        raise ConfigError(
            f"both_orders is false, but reading {template.reading} shows each answer by itself; leave it out"
        )
    if template.takes_criterion:
        raise ConfigError(
            f"template {template.id} asks about a criterion, which rows do not state; use {template.reading}"
        )
    if template.reading not in _WEIGHTS:
        raise ConfigError(
            f"template {template.id} reasons first, which train/grpo.py trains; use it, or another template"
        )
    unused = {"loss_on": "completion", "score_weight": 1.0, "loss_average": "token", "reason_prob": 0.0}
    for name, only in unused.items():
        if getattr(judge, name) != only:
            raise ConfigError(f"{name} is {getattr(judge, name)!r}, but preferences train no replies; leave it out")
    for name in sorted({name for names in _WEIGHTS.values() for name in names}):
        if not 0 <= getattr(judge, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(judge, name)}; it is a weight, 0 or more")
        if name not in _WEIGHTS[template.reading] and getattr(judge, name) != getattr(PreferenceArguments, name):
            raise ConfigError(
                f"{name} is {getattr(judge, name)}, but the loss of reading {template.reading} has no such term; "
                "leave it out"
            )


def preference_attention(judge: PreferenceArguments, base: Any, args: Any) -> Attention | None:
    """Attention that takes the score lines' mask: sdpa, or eager, which is faster on a CPU for short rows.

    None where the judge is read off a word, whose prompts any attention reads.

    Raises:
        ConfigError: the config names another.
    """
    if get_template(judge.template).reads_words:
        return None
    requested = requested_attention(base, args)
    if requested not in (None, "sdpa", "eager"):
        raise ConfigError(
            f"attn_implementation is {requested!r}, but score lines need a mask of their own; use sdpa or eager"
        )
    implementation = requested or "sdpa"
    return Attention(implementation, f"{implementation} (score lines stand under a mask of their own)")


def preference_facts(run: TrainingRun) -> dict[str, Any]:
    """Facts of the training, for the judge's card."""
    template = get_template(run.judge.template)
    names = (*(() if template.reads_alone else ("both_orders",)), *_WEIGHTS[template.reading])
    return {"method": "preference"} | {name: getattr(run.judge, name) for name in names}
