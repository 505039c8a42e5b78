"""Readings of a causal language model as a judge: prompts, and log-odds of two words at the first token behind them.

`letters` shows both answers and asks for A or B; a pair is read in both orders. `yes-no` shows one answer and asks
whether it is right; a pair is read as two prompts, one an answer. Either way a pair has two prompts and
`log-odds of the pair = weight x (log-odds of prompt 0 - log-odds of prompt 1)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.reading_training.pairs import Pair

MOST_CHARACTERS = 2400
"""Of a text in a prompt; the rest is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A way to ask.

    Attributes:
        template: with `{question}`, `{first}` and, for two answers, `{second}`.
        positive: spellings of the word that favours `first`.
        negative: spellings of the other word.
        weight: of the difference between the two prompts of a pair.
    """

    name: str
    template: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    weight: float

    def prompts(self, pair: Pair) -> tuple[str, str]:
        """Both orders, or both answers by themselves."""
        first, second = (answer[:MOST_CHARACTERS] for answer in pair.answers)
        question = pair.question[:MOST_CHARACTERS]
        return (
            self.template.format(question=question, first=first, second=second),
            self.template.format(question=question, first=second, second=first),
        )


LETTERS = Reading(
    name="letters",
    template=(
        "Question:\n{question}\n\n[Answer A]\n{first}\n[End of answer A]\n\n[Answer B]\n{second}\n[End of answer B]\n\n"
        "Which answer is better? An answer is better if it is correct, does what the question asks, and helps. Length "
        "does not matter. Reply with A or B alone."
    ),
    positive=("A", " A"),
    negative=("B", " B"),
    weight=0.5,
)
YES_NO = Reading(
    name="yes-no",
    template=(
        "Question:\n{question}\n\nAnswer:\n{first}\n\nIs this a correct and helpful answer that does what the question "
        "asks? Reply with Yes or No alone."
    ),
    positive=("Yes", " Yes", "yes", " yes", "YES", " YES"),
    negative=("No", " No", "no", " no", "NO", " NO"),
    weight=1.0,
)
READINGS = {reading.name: reading for reading in (LETTERS, YES_NO)}


class Words(NamedTuple):
    """Token ids of a reading's words."""

    positive: list[int]
    negative: list[int]


class Read(NamedTuple):
    """What a forward pass says about some prompts; n of them.

    Attributes:
        log_odds: shape (n,), of the positive against the negative word.
        mass: shape (n,), probability of both words together.
        states: shape (n, hidden), the last layer's at the end of the prompt.
    """

    log_odds: Tensor
    mass: Tensor
    states: Tensor


def word_ids(tokenizer: Any, reading: Reading) -> Words:
    """Ids of all spellings that are one token."""

    def ids(spellings: Sequence[str]) -> list[int]:
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in spellings]
        return sorted({tokens[0] for tokens in encoded if len(tokens) == 1})

    return Words(ids(reading.positive), ids(reading.negative))


def chat_texts(tokenizer: Any, questions: Sequence[str]) -> list[str]:
    """The model's chat template around each, up to where the reply begins."""
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in questions
    ]


def encode(tokenizer: Any, reading: Reading, pairs: Sequence[Pair]) -> list[tuple[list[int], list[int]]]:
    """Token ids of the two prompts of each pair."""
    texts = chat_texts(tokenizer, [prompt for pair in pairs for prompt in reading.prompts(pair)])
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return list(zip(ids[::2], ids[1::2], strict=True))


def batches(lengths: Sequence[int], most_tokens: int) -> Iterator[list[int]]:
    """Indices in groups of similar length, of at most `most_tokens` with padding; longest first."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > most_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def read(model: Any, words: Words, prompts: Sequence[Sequence[int]]) -> Read:
    """One forward pass. Padding stands behind the prompts, where causal attention does not see it: no mask."""
    device = model.device
    longest = max(map(len, prompts))
    ids = torch.zeros((len(prompts), longest), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    ends = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
    hidden = model.model(input_ids=ids.to(device), use_cache=False).last_hidden_state
    states = hidden[torch.arange(len(prompts), device=device), ends]
    logits = model.lm_head(states).float()
    positive = logits[:, words.positive].logsumexp(-1)
    negative = logits[:, words.negative].logsumexp(-1)
    mass = (torch.logaddexp(positive, negative) - logits.logsumexp(-1)).exp()
    return Read(positive - negative, mass.detach(), states)


@torch.inference_mode()
def read_all(
    model: Any, words: Words, prompts: Sequence[tuple[list[int], list[int]]], most_tokens: int, *, keep_states: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-odds and mass, shape (pairs, 2), and the states' differences, shape (pairs, hidden), of the prompts."""
    flat = [prompt for both in prompts for prompt in both]
    log_odds, mass = torch.zeros(len(flat)), torch.zeros(len(flat))
    states = torch.zeros((len(flat), model.config.hidden_size)) if keep_states else None
    for batch in batches([len(prompt) for prompt in flat], most_tokens):
        result = read(model, words, [flat[index] for index in batch])
        log_odds[batch], mass[batch] = result.log_odds.float().cpu(), result.mass.float().cpu()
        if states is not None:
            states[batch] = result.states.float().cpu()
    differences = None if states is None else states[::2] - states[1::2]
    return log_odds.view(-1, 2), mass.view(-1, 2), differences
