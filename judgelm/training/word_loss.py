"""Loss for judges that are scored by a verdict word: `letters`, `yes-no`, and `grade`.

P(first better) = sigmoid(z), as in judging (`judgelm.modes.readings`). For a pair with preference p, the loss is

    CE(p, sigmoid(z)) + consistency_weight * (P1 - (1 - P2))^2 + word_weight * -log(words) + pointwise_weight * right

- z: for `letters`, log P(A) - log P(B) in sample order, averaged over both orders; otherwise the difference between the
answers' log-odds of yes (`yes-no`) or expected grades (`grade`);
- P1, P2: P(first better) in each order (`letters`);
- words: total probability of the verdict words, averaged over both prompts;
- right: cross entropy between P(yes) and an answer's rescaled score (`yes-no`).

For prompt files with a tie word, CE is the cross entropy of the three words, averaged over both orders. A preference of
0.5 is a tie.

The probability of a word is the sum over its single-token spellings. Source: Bradley and Terry 1952.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from judgelm.engines.candidates import CandidateTokenizer
from judgelm.errors import ConfigError
from judgelm.modes.readings import words_of
from judgelm.prompts.catalog import Template
from judgelm.prompts.judge_prompt import FIELDS
from judgelm.prompts.prompt_template import PromptTemplate
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class WordWeights:
    """Weights of the loss terms in the module docstring."""

    consistency: float
    word: float
    pointwise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WordTokens:
    """The verdict words of a reading: token IDs of each word's spellings, and the words' scores."""

    reading: str
    ids: tuple[tuple[int, ...], ...]
    scores: tuple[float, ...] = ()


def word_tokens(tokenizer: Any, template: Template, scale: tuple[float, float]) -> WordTokens:
    """Return the spellings that are a single token after the prompt."""
    fields = template.judge_prompt.fields if isinstance(template, PromptTemplate) else ()
    sample = Sample(id="", question="", answers=("", ""), metadata={FIELDS: dict.fromkeys(fields, "")})
    prompt = template.render(sample, (0,) if template.reads_alone else (0, 1), None, scale=scale)
    words = words_of(template, len(sample.answers), scale=scale)
    text = Truncator(tokenizer, 1).text(prompt.spans, chat=prompt.chat) + template.prefill
    candidates = CandidateTokenizer(tokenizer)
    ids = []
    for word, spellings in words.spellings.items():
        paths = candidates.tree(text, spellings).paths
        single = sorted({path[0][1] for path in paths if len(path) == 1})
        if not single:
            way_out = "use a different reading or base model"
            if isinstance(template, PromptTemplate):
                way_out = "use a shorter word in the prompt's reply"
            elif template.reading == "grade":
                way_out = f"set a scale whose grades are single tokens, such as [{scale[0]:g}, 9]"
            raise ConfigError(
                f"template {template.id}: {word!r} is more than one token for this base model, but must be a single "
                f"token for training; {way_out}"
            )
        ids.append(tuple(single))
    return WordTokens(reading=template.reading, ids=tuple(ids), scores=words.scores)


class WordObjective:
    """Collates pairs of prompts, padded or concatenated, and computes their loss."""

    def __init__(self, words: WordTokens, weights: WordWeights, padding_free: bool = False) -> None:
        self._words = words
        self._weights = weights
        self._collate = concatenated if padding_free else left_padded

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Collate n rows: all first prompts, then all second prompts. `right` has shape (2, n), NaN if unknown."""
        prompts = [example["prompt_ids"] for example in examples]
        if len(examples[0]["second_ids"]):
            prompts += [example["second_ids"] for example in examples]
        preferences = [example["preference"] for example in examples]
        right = [[example[name] for example in examples] for name in ("first_right", "second_right")]
        return {
            "preference": torch.tensor(
                preferences, dtype=torch.float32
            ),  # must be first, because its length is used as the batch size
            "right": torch.tensor(right, dtype=torch.float32),
            **self._collate(prompts),
        }

    def model_inputs(self, batch: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return the arguments for the forward pass."""
        # pass indices, not a number: for a slice, torch copies the vocabulary weights for each row
        ends = batch.get("cu_seq_lens_q", torch.tensor([0, batch["input_ids"].shape[1]]))[1:] - 1
        inputs = {name: value for name, value in batch.items() if name not in ("preference", "right")}
        return inputs | {"logits_to_keep": ends.to(batch["input_ids"].device)}

    def losses(self, logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and metrics from `word_losses`."""
        return word_losses(logits.flatten(0, 1), self._words, batch["preference"], batch["right"], self._weights)


def left_padded(prompts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Return left-padded inputs for one forward pass."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(lengths.max())
    ids = torch.zeros((len(prompts), longest), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
    positions = torch.arange(longest)[None] - (longest - lengths)[:, None]
    return {"input_ids": ids, "attention_mask": (positions >= 0).long(), "position_ids": positions.clamp(min=0)}


def concatenated(prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return concatenated inputs for one forward pass, with shape (1, tokens)."""
    batch = DataCollatorForLanguageModeling(0, padding_free=True)([{"input_ids": prompt} for prompt in prompts])
    return {name: value for name, value in batch.items() if name not in ("labels", "seq_idx")}


def word_losses(
    logits: Tensor, words: WordTokens, preference: Tensor, right: Tensor, weights: WordWeights
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of each of n pairs, shape (n,), and detached metrics by name.

    `logits` are for the first reply token, shape (prompts, vocabulary): all first orders or answers, then all second
    orders or answers. `preference` is P(first answer is better), shape (n,). `right` is P(answer is right), shape (2,
    n), NaN if unknown.
    """
    logits = logits.float()
    spelled = torch.stack([logits[:, list(ids)].logsumexp(-1) for ids in words.ids], 1)
    mass = (spelled.logsumexp(-1) - logits.logsumexp(-1)).reshape(-1, len(preference))
    strengths = _strengths(spelled, words).reshape(-1, len(preference))  # one row per order or answer
    parts: dict[str, tuple[float, Tensor]] = {}
    if words.reading == "letters":
        lead = strengths[0] if len(strengths) == 1 else (strengths[0] - strengths[1]) / 2
        if len(strengths) == 2:
            parts["consistency_loss"] = weights.consistency, (strengths[0].sigmoid() - (-strengths[1]).sigmoid()) ** 2
    else:
        lead = strengths[0] - strengths[1]
    if words.reading == "yes-no" and weights.pointwise:
        parts["pointwise_loss"] = weights.pointwise, _pointwise(strengths, right)
    entropy = binary_cross_entropy_with_logits(lead, preference, reduction="none")
    if words.reading == "letters" and len(words.ids) > 2:
        entropy = _entropy_with_ties(spelled.reshape(-1, len(preference), 3), preference)
    loss = entropy - weights.word * mass.mean(0)
    for weight, part in parts.values():
        loss = loss + weight * part
    metrics = {"preference_loss": entropy, **{name: part for name, (_, part) in parts.items()}, "word_mass": mass.exp()}
    return loss, {name: part.detach() for name, part in metrics.items()}


def _entropy_with_ties(spelled: Tensor, preference: Tensor) -> Tensor:
    """Return the cross entropy of first, second, and tie, shape (n,). `spelled` has shape (orders, n, 3)."""
    tie = (preference == 0.5).float()
    target = torch.stack([(1 - tie) * preference, (1 - tie) * (1 - preference), tie], 1)
    given, *swapped = spelled.log_softmax(-1)
    orders = [given, *(order[:, [1, 0, 2]] for order in swapped)]
    return -torch.stack([(target * order).sum(-1) for order in orders]).mean(0)


def _strengths(spelled: Tensor, words: WordTokens) -> Tensor:
    if words.reading == "grade":
        return spelled.softmax(-1) @ torch.tensor(words.scores, dtype=spelled.dtype, device=spelled.device)
    return spelled[:, 0] - spelled[:, 1]


def _pointwise(log_odds: Tensor, right: Tensor) -> Tensor:
    known = ~right.isnan()
    entropy = binary_cross_entropy_with_logits(log_odds, right.nan_to_num(), reduction="none")
    return (entropy * known).sum(0) / known.sum(0).clamp(min=1)
