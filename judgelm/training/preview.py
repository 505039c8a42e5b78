"""A labelled row as the model will see it: its tokens, which of them carry loss, and what was cut.

The row is `RowBuilder`'s own. Tokens become text again piece by piece, so that the pieces joined are the row's text.
"""

import heapq
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.text import Text

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream, reject_row
from judgelm.data.swap.swap_names import Ambiguous
from judgelm.data.word_diff import DiffPiece, diff_words
from judgelm.errors import ConfigError, InputError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Prompt
from judgelm.training.rows.builder import RowBuilder
from judgelm.training.rows.records import IGNORED, RowOptions, TokenRow

LINE_END, SPECIAL, LOSS, CHANGED, BOUNDARY = "⏎", ("⟨", "⟩"), ("⟦", "⟧"), ("«", "»"), "│"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownToken:
    """The text of one token, or of the few that only together make characters."""

    text: str
    loss: bool
    special: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A row in pieces; `prompt_tokens` and `loss_tokens` are counts of the model's tokens.

    Attributes:
        tokens: joined, their texts are the row's text.
        cuts: what is missing, by where: so many characters into the text.
        with_reference: whether the prompt shows the reference.
    """

    tokens: tuple[ShownToken, ...]
    prompt_tokens: int
    loss_tokens: int
    cuts: dict[int, str]
    with_reference: bool

    @property
    def target(self) -> str:
        """The text that carries loss."""
        return "".join(token.text for token in self.tokens if token.loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A row that training leaves out, and why."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSwap:
    """A pair's rows before and after it is swapped, and which words of their targets differ.

    A reason that cannot be exchanged is dropped from the row after; `ambiguous` says what was found in it.
    """

    before: ShownRow | LeftOut
    after: ShownRow | LeftOut
    changed: tuple[list[DiffPiece], list[DiffPiece]]
    ambiguous: tuple[Ambiguous, ...]


def numbered_pairs(path: str, on_reject: Callable[[int, Reject], None]) -> Iterator[tuple[int, LabelledPair]]:
    """Every usable row of a labelled file with its number, from 1; the others are told of with theirs.

    Raises:
        InputError: the file cannot be read or its format is not recognised.
    """
    number = 0

    def refuse(reject: Reject) -> None:
        nonlocal number
        number += 1
        on_reject(number, reject)

    stream = SampleStream([path], on_reject=refuse)
    for row, sample in stream.pairs():
        try:
            plain, referenced = (stream.format.label(row, with_reference) for with_reference in (False, True))
        except InputError as error:
            refuse(reject_row(row, error))
            continue
        number += 1
        yield number, LabelledPair(sample=sample, plain=plain, referenced=referenced)


def the_row(path: str, number: int) -> LabelledPair:
    """The row of that number.

    Raises:
        InputError: it cannot be used, or the file has fewer rows.
    """
    rejects: dict[int, Reject] = {}
    found = 0
    for found, pair in numbered_pairs(path, rejects.__setitem__):
        if found == number:
            return pair
        if found > number:
            break
    if number in rejects:
        raise InputError(rejects[number].message)
    raise InputError(f"{path}: no row {number}; the file has {max([found, *rejects])} rows, counted from 1")


def the_pair(path: str, pair_id: str) -> LabelledPair:
    """The row of that id.

    Raises:
        InputError: there is none.
    """
    for _, pair in numbered_pairs(path, lambda number, reject: None):
        if pair.sample.id == pair_id:
            return pair
    raise InputError(f"{path}: no usable row with id {pair_id!r}; check the id, or choose by number")


def random_pairs(path: str, count: int, seed: int) -> list[LabelledPair]:
    """Rows drawn by seed and id alone, in the file's order."""
    pairs = numbered_pairs(path, lambda number, reject: None)
    drawn = heapq.nsmallest(count, pairs, key=lambda one: (uniform_hash(seed, one[1].sample.id, "show"), one[0]))
    return [pair for _, pair in sorted(drawn, key=lambda one: one[0])]


def show(pair: LabelledPair, tokenizer: Any, options: RowOptions) -> ShownRow | LeftOut:
    """The row that training makes of a pair; what `options` leaves to chance is drawn as training draws it."""
    builder = RowBuilder(tokenizer, options)
    row = builder.build(pair.sample, pair.plain, pair.referenced)
    if row is None:
        return LeftOut(why=next(iter(builder.counts.left_out)))
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
    return ShownRow(
        tokens=tokens,
        prompt_tokens=len(row.labels) - loss,
        loss_tokens=loss,
        cuts=cuts,
        with_reference=with_reference,
    )


def show_swapped(pair: LabelledPair, tokenizer: Any, options: RowOptions) -> ShownSwap:
    """The row of a pair, and the row of the same pair with its answers exchanged.

    Raises:
        ConfigError: the row has another number of answers than two.
    """
    if len(pair.sample.answers) != 2:
        raise ConfigError(f"row {pair.sample.id} has {len(pair.sample.answers)} answers; only a pair can be swapped")
    done = swap_answers(pair, "drop_reason")
    before, after = (show(one, tokenizer, options) for one in (pair, done.pair))
    targets = (row.target if isinstance(row, ShownRow) else "" for row in (before, after))
    return ShownSwap(before=before, after=after, changed=diff_words(*targets), ambiguous=done.ambiguous)


def as_text(row: ShownRow, changed: Sequence[DiffPiece] = (), *, plain: bool = False, boundaries: bool = False) -> Text:
    """The row for a terminal: line ends, special tokens and cuts visible, control characters harmless.

    Args:
        row: the row.
        changed: its target in pieces, as `ShownSwap` has them.
        plain: mark what carries loss and what is changed by brackets, since colours are not to be had.
        boundaries: show where each token ends.
    """
    shown = Text()
    marks = [piece.changed for piece in changed for _ in piece.text]
    cuts = sorted(row.cuts.items())
    at = in_target = 0
    for number, token in enumerate(row.tokens):
        while cuts and cuts[0][0] <= at:
            shown.append(f"[✂ {cuts.pop(0)[1]}]", "bold red")
        if token.loss and plain and not in_target:
            shown.append(LOSS[0])
        style = ("green", "cyan")[number % 2] if token.loss else "dim"
        end = in_target + len(token.text) if token.loss else in_target
        flags = marks[in_target:end] if token.loss and marks else [False] * len(token.text)
        if token.special:
            shown.append(f"{SPECIAL[0]}{visible(token.text)}{SPECIAL[1]}", f"{style} reverse")
        else:
            _append(shown, token.text, flags, style, plain=plain)
        if boundaries:
            shown.append(BOUNDARY, "bright_black")
        at, in_target = at + len(token.text), end
    if plain and in_target:
        shown.append(LOSS[1])
    for _, what in cuts:
        shown.append(f"[✂ {what}]", "bold red")
    return shown


def _append(shown: Text, text: str, flags: Sequence[bool], style: str, *, plain: bool) -> None:
    """One token's characters, in runs of changed and unchanged ones."""
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and flags[end] == flags[start]:
            continue
        run = visible(text[start:end])
        opened, closed = CHANGED if plain and flags[start] else ("", "")
        shown.append(f"{opened}{run}{closed}", f"{style} bold reverse" if flags[start] else style)
        start = end


def visible(text: str) -> str:
    """Line ends marked, and characters that would steer a terminal or hide written as escapes."""
    return "".join(
        f"{LINE_END}\n"
        if character == "\n"
        else character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs")
        else character
        for character in text
    )


def _pieces(tokenizer: Any, row: TokenRow) -> Iterator[ShownToken]:
    """Tokens as text. Those that hold parts of one character come together, and so do those without any text.

    A piece is what a token adds to the text of the piece before it, since some tokenizers drop a leading blank.
    """
    ids, special = row.input_ids.tolist(), set(tokenizer.all_special_ids)
    before = start = 0
    for end in range(1, len(ids) + 1):
        known = tokenizer.decode(ids[before:start], skip_special_tokens=False)
        text = tokenizer.decode(ids[before:end], skip_special_tokens=False)
        if end < len(ids) and (text.endswith("\ufffd") or len(text) <= len(known)):
            continue
        yield ShownToken(
            text=text[len(known) :],
            loss=bool(row.labels[end - 1] != IGNORED),
            special=ids[end - 1] in special,
        )
        before, start = start, end


def _answer_cuts(prompt: Prompt, text: str, truncator: Truncator) -> dict[int, str]:
    """Where answers end that were longer: each ends where the template goes on behind it."""
    cuts: dict[int, str] = {}
    at, answer, shown = 0, "", 0
    for span in prompt.spans:
        if span.kind == "answer":
            answer, shown = truncator.sanitize(span.text, chat=prompt.chat)[0].strip(), shown + 1
        if span.kind != "template" or not (words := span.text.strip()):
            continue
        found = text.find(words, at)
        if found < 0:
            return {at: "an answer is cut before or behind this"}
        kept = text[at:found].rstrip()
        if answer and len(kept.strip()) < len(answer):
            missing = len(answer) - len(kept.strip())
            cuts[at + len(kept)] = f"answer {shown} is cut by {missing:,} characters"
        at, answer = found + len(words), ""
    return cuts
