"""Preview a labelled row as the model sees it: its tokens, tokens with loss, and cuts.

The row comes from `SFTRowBuilder`. Tokens are decoded piece by piece so that the pieces join to the row's text.
"""

import heapq
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.text import Text

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.data.readers.rows import Reject, reject_row
from judgelm.data.samples import SampleStream
from judgelm.data.swap_names import Ambiguous
from judgelm.errors import ConfigError, InputError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Prompt
from judgelm.training.rows.builder import IGNORED, RowOptions
from judgelm.training.rows.sft import SFTRowBuilder, TokenRow

LINE_END, SPECIAL, LOSS, BOUNDARY = "⏎", ("⟨", "⟩"), ("⟦", "⟧"), "│"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPreview:
    """The text of one token, or of several tokens that together form a character."""

    text: str
    loss: bool
    special: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPreview:
    """A row in pieces; `prompt_tokens` and `loss_tokens` are token counts.

    Attributes:
        tokens: pieces that join to the row's text.
        cuts: removed parts, by character position in the text.
        with_reference: whether the prompt shows the reference.
    """

    tokens: tuple[TokenPreview, ...]
    prompt_tokens: int
    loss_tokens: int
    cuts: dict[int, str]
    with_reference: bool

    @property
    def target(self) -> str:
        """The text with loss."""
        return "".join(token.text for token in self.tokens if token.loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A row that training skips, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapPreview:
    """A pair's rows before and after its swap; `ambiguous` is the reason's fault if it was dropped."""

    before: RowPreview | LeftOut
    after: RowPreview | LeftOut
    ambiguous: tuple[Ambiguous, ...]


def numbered_pairs(path: str, on_reject: Callable[[int, Reject], None]) -> Iterator[tuple[int, LabelledPair]]:
    """Yield usable rows with their row numbers, counting from 1; `on_reject` gets the others.

    Raises:
        InputError: the file cannot be read or its format is not recognised.
    """
    row_number = 0

    def refuse(reject: Reject) -> None:
        nonlocal row_number
        row_number += 1
        on_reject(row_number, reject)

    stream = SampleStream([path], on_reject=refuse)
    for row, sample in stream.pairs():
        try:
            plain, referenced = stream.labels(row, False, True)
        except InputError as error:
            refuse(reject_row(row, error))
            continue
        row_number += 1
        yield row_number, LabelledPair(sample=sample, plain=plain, referenced=referenced)


def row_by_number(path: str, row_number: int) -> LabelledPair:
    """Return the row with this number, counting from 1.

    Raises:
        InputError: The row is unusable, or the file has fewer rows.
    """
    rejects: dict[int, Reject] = {}
    last = 0
    for last, pair in numbered_pairs(path, rejects.__setitem__):
        if last == row_number:
            return pair
        if last > row_number:
            break
    if row_number in rejects:
        raise InputError(rejects[row_number].message)
    raise InputError(f"{path}: no row {row_number}; the file has {max([last, *rejects])} rows, counted from 1")


def pair_by_id(path: str, pair_id: str) -> LabelledPair:
    """Return the row with this ID.

    Raises:
        InputError: No row has this ID.
    """
    for _, pair in numbered_pairs(path, lambda row_number, reject: None):
        if pair.sample.id == pair_id:
            return pair
    raise InputError(f"{path}: no usable row with id {pair_id!r}; check the id, or choose by number")


def random_pairs(path: str, count: int, seed: int) -> list[LabelledPair]:
    """Sample rows by seed and ID, in file order."""
    pairs = numbered_pairs(path, lambda row_number, reject: None)
    drawn = heapq.nsmallest(count, pairs, key=lambda each: (uniform_hash(seed, each[1].sample.id, "show"), each[0]))
    return [pair for _, pair in sorted(drawn, key=lambda each: each[0])]


def preview_row(pair: LabelledPair, tokenizer: Any, options: RowOptions) -> RowPreview | LeftOut:
    """Return the row that training builds from a pair in its first epoch."""
    builder = SFTRowBuilder(tokenizer, options)
    row = builder.build(pair)
    if row is None:
        return LeftOut(reason=next(iter(builder.counts.left_out)))
    tokens = tuple(_pieces(tokenizer, row))
    counts = builder.counts
    cuts: dict[int, str] = {}
    with_reference = bool(counts.with_reference) or len(pair.sample.answers) == 1
    if counts.cut:
        order = tuple(range(len(pair.sample.answers)))
        reference = pair.sample.reference if with_reference else None
        prompt = get_template(options.template).render(pair.sample, order, reference)
        text = "".join(token.text for token in tokens if not token.loss)
        cuts |= _answer_cuts(prompt, text, Truncator(tokenizer, options.window))
    if counts.with_reason and int(row.input_ids[-1]) != tokenizer.eos_token_id:
        cuts[sum(len(token.text) for token in tokens)] = "the reason is cut at half the window"
    loss = int(np.count_nonzero(row.labels != IGNORED))
    return RowPreview(
        tokens=tokens, prompt_tokens=len(row.labels) - loss, loss_tokens=loss, cuts=cuts, with_reference=with_reference
    )


def preview_swap(pair: LabelledPair, tokenizer: Any, options: RowOptions) -> SwapPreview:
    """Return the row of a pair, and the row with the answers swapped.

    Raises:
        ConfigError: The row does not have two answers.
    """
    if len(pair.sample.answers) != 2:
        raise ConfigError(f"row {pair.sample.id} has {len(pair.sample.answers)} answers; only a pair can be swapped")
    swapped = swap_answers(pair, "drop_reason")
    before, after = (preview_row(each, tokenizer, options) for each in (pair, swapped.pair))
    return SwapPreview(before=before, after=after, ambiguous=swapped.ambiguous)


def render_row(row: RowPreview, *, plain: bool = False, boundaries: bool = False) -> Text:
    """Format the row for a terminal, showing line ends, special tokens, cuts, and escaped control characters.

    Args:
        row: the row.
        plain: mark loss with brackets instead of colours.
        boundaries: mark the end of each token.
    """
    shown = Text()
    cuts = sorted(row.cuts.items())
    at = in_target = 0
    for index, token in enumerate(row.tokens):
        while cuts and cuts[0][0] <= at:
            shown.append(f"[✂ {cuts.pop(0)[1]}]", "bold red")
        if token.loss and plain and not in_target:
            shown.append(LOSS[0])
        style = ("green", "cyan")[index % 2] if token.loss else "dim"
        end = in_target + len(token.text) if token.loss else in_target
        if token.special:
            shown.append(f"{SPECIAL[0]}{visible(token.text)}{SPECIAL[1]}", f"{style} reverse")
        else:
            shown.append(visible(token.text), style)
        if boundaries:
            shown.append(BOUNDARY, "bright_black")
        at, in_target = at + len(token.text), end
    if plain and in_target:
        shown.append(LOSS[1])
    for _, cut in cuts:
        shown.append(f"[✂ {cut}]", "bold red")
    return shown


def visible(text: str) -> str:
    """Mark line ends, and escape control and invisible characters."""
    return "".join(
        f"{LINE_END}\n"
        if character == "\n"
        else character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs")
        else character
        for character in text
    )


def _pieces(tokenizer: Any, row: TokenRow) -> Iterator[TokenPreview]:
    """Decode tokens, joining parts of one character and tokens without text.

    A piece is what a token adds to the preceding text, because some tokenizers drop a leading space.
    """
    ids, special = row.input_ids.tolist(), set(tokenizer.all_special_ids)
    before = start = 0
    for end in range(1, len(ids) + 1):
        known = tokenizer.decode(ids[before:start], skip_special_tokens=False)
        text = tokenizer.decode(ids[before:end], skip_special_tokens=False)
        if end < len(ids) and (text.endswith("\ufffd") or len(text) <= len(known)):
            continue
        yield TokenPreview(
            text=text[len(known) :], loss=bool(row.labels[end - 1] != IGNORED), special=ids[end - 1] in special
        )
        before, start = start, end


def _answer_cuts(prompt: Prompt, text: str, truncator: Truncator) -> dict[int, str]:
    """Return the ends of truncated answers, found where the template continues."""
    cuts: dict[int, str] = {}
    at, answer, shown = 0, "", 0
    for span in prompt.spans:
        if span.kind == "answer":
            answer, shown = truncator.sanitize(span.text, chat=prompt.chat)[0].strip(), shown + 1
        if span.kind != "template" or not (words := span.text.strip()):
            continue
        end = text.find(words, at)
        if end < 0:
            return {at: "an answer is cut before or after this"}
        visible_part = text[at:end].rstrip()
        if answer and len(visible_part.strip()) < len(answer):
            missing = len(answer) - len(visible_part.strip())
            cuts[at + len(visible_part)] = f"answer {shown} is cut by {missing:,} characters"
        at, answer = end + len(words), ""
    return cuts
