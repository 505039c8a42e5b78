"""Tokenizes prompts and cuts them to fit the window.

Only answers are cut, at their end, and the available space is shared evenly among them. In trajectories, as few texts
as possible are elided, and always as a whole.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations, groupby
from typing import Any, NamedTuple, Protocol

from jinja2 import TemplateError

from judgelm.errors import ConfigError
from judgelm.parsing.thinking import OPEN
from judgelm.prompts.chat_rendering import NO_THINKING, opening_of, render_chat, template_arguments
from judgelm.prompts.sanitization import SpecialTokenSanitizer
from judgelm.records import Prompt, Span, StepPlace, ThinkingMode, Truncation, Unparsed

MIN_ANSWER_TOKENS = 16
"""Minimum number of tokens kept per answer."""

FOLDED_SYSTEM = "the model's chat template does not support system messages; their text precedes the first user message"
"""Note for engines whose prompts were changed in this way."""

_CHARACTERS_PER_TOKEN = 64
"""Above the average of any tokenizer. Limits the work for very long answers."""


class Tokenizer(Protocol):
    """The methods and attributes of transformers' fast tokenizers that judgelm uses."""

    all_special_tokens: list[str]
    eos_token_id: int
    chat_template: str | None

    def __call__(self, text: str | list[str], *, add_special_tokens: bool, **options: Any) -> Mapping[str, Any]:
        """Return token IDs and, with `return_offsets_mapping`, the (start, end) of each token."""

    def get_added_vocab(self) -> dict[str, int]:
        """Return the tokens that were added to the vocabulary."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """Decode token IDs."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: object) -> str:
        """Return the conversation as one string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedPrompt:
    """A prompt as text and token IDs, with its truncations and the number of sanitized special tokens.

    `opening` is the start of a thinking block that the chat template adds at the end; the reply begins inside the
    block.
    """

    text: str
    ids: list[int]
    images: tuple[str, ...] = ()
    opening: str = ""
    truncations: tuple[Truncation, ...] = ()
    sanitized: int = 0


class ImageTexts(Protocol):
    """Text for images in a vision-language model's prompt."""

    @property
    def placeholder(self) -> str:
        """The chat template's text for an image."""

    def text_of(self, image: str) -> str:
        """Return the text for an image: one token per feature, with the markers around them."""


class Truncator:
    """Truncates prompts for one tokenizer and window.

    Args:
        window: maximum number of tokens for the prompt and the reply together.
        images: image text for a vision-language model; if it is None, prompts with images are rejected.
        thinking: thinking argument for the chat template.
    """

    def __init__(
        self, tokenizer: Tokenizer, window: int, images: ImageTexts | None = None, thinking: ThinkingMode = "absent"
    ) -> None:
        self.tokenizer = tokenizer
        self.window = window
        self._images = images
        self._thinking = thinking
        self._folds_system = False
        self._sanitizer = SpecialTokenSanitizer(tokenizer)
        self._appended = _appended_tokens(tokenizer)

    def adapted(self, tokenizer: Tokenizer, window: int) -> "Truncator":
        """Return a copy with a different window and a tokenizer with the same vocabulary."""
        return Truncator(tokenizer, window, self._images, self._thinking)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about prompts that were adapted to the chat template."""
        return [FOLDED_SYSTEM] if self._folds_system else []

    def truncate(self, prompt: Prompt, reply_tokens: int) -> TokenizedPrompt | Unparsed:
        """Fit the prompt into `window - reply_tokens` tokens, cutting its answers if necessary.

        A prefill does not count, because it is part of the reply. The failure is `too_long` if the prompt does not fit
        even with minimal answers, and `equal_after_cut` if different answers would become identical.

        Raises:
            ConfigError: the chat template is missing or rejects the chat, or images are passed to a text-only model.
        """
        tokenized = self._truncate(prompt, self.window - reply_tokens)
        if isinstance(tokenized, Unparsed):
            return tokenized
        tokenized = replace(tokenized, images=prompt.images)
        opening, behind = opening_of(tokenized.text) if prompt.chat else "", prompt.prefill
        if opening and behind.startswith(OPEN):  # the prefill opens the thinking block
            tokenized = replace(tokenized, text=tokenized.text.removesuffix(opening))
        elif opening and (behind or self._thinking == "off"):
            behind = NO_THINKING + behind
        if not behind:
            return replace(tokenized, opening=opening)
        text = tokenized.text + behind
        return replace(tokenized, text=text, ids=self.encode(text, chat=prompt.chat))

    def _truncate(self, prompt: Prompt, limit: int) -> TokenizedPrompt | Unparsed:
        if prompt.messages:
            return self._verbatim(prompt, limit)
        spans, sanitized = self._sanitized(prompt)
        if any(span.step is not None for span in spans):
            return self._elide(spans, prompt, limit, sanitized)
        bounded = _bounded(spans, limit * _CHARACTERS_PER_TOKEN)
        text, ids = self._encode(bounded, prompt)
        if len(ids) <= limit and bounded is spans:
            return TokenizedPrompt(text=text, ids=ids, sanitized=sanitized)
        return self._truncate_answers(spans, bounded, prompt, limit, sanitized)

    def _verbatim(self, prompt: Prompt, limit: int) -> TokenizedPrompt | Unparsed:
        text = self._conversation(prompt) if prompt.chat else prompt.texts[0]
        if self._images is not None and self._images.placeholder in text:
            raise ConfigError(f"the text contains {self._images.placeholder}, which stands for an image; remove it")
        if len(text) > limit * _CHARACTERS_PER_TOKEN:
            return Unparsed("too_long", "", f"the prompt has {len(text):,} characters (limit: {limit} tokens)")
        ids = self.encode(text, chat=prompt.chat)
        if len(ids) > limit:
            return Unparsed("too_long", "", f"the prompt has {len(ids)} tokens (limit: {limit})")
        return TokenizedPrompt(text=text, ids=ids)

    def _conversation(self, prompt: Prompt) -> str:
        messages = [_with_parsed_calls(message) for message in prompt.messages]
        if self._images is not None and self._takes_parts:
            for message in messages:
                message["content"] = [{"type": "text", "text": message["content"]}]
        tools = {"tools": list(prompt.tools)} if prompt.tools else {}
        return self._templated(messages, asks=True, **tools)

    def _elide(self, spans: tuple[Span, ...], prompt: Prompt, limit: int, sanitized: int) -> TokenizedPrompt | Unparsed:
        places = [place for span in spans if (place := _may_go(span)) is not None]
        order = sorted(places, key=lambda place: (place.rank or (), place.answer))

        def fits(count: int) -> bool:
            shorter = elided(spans, order[:count])
            bounded = sum(len(span.text) for span in shorter) <= limit * _CHARACTERS_PER_TOKEN
            return bounded and len(self._encode(shorter, prompt)[1]) <= limit

        count = bisect_left(range(len(order) + 1), True, key=fits)
        if count > len(order):
            return Unparsed("too_long", "", f"even after shortening, the trajectories have more than {limit} tokens")
        shown = elided(spans, order[:count])
        cut = tuple(self._elision(spans, shown, answer) for answer in sorted({place.answer for place in order[:count]}))
        texts = ([_text_of_answer(each, answer) for answer in range(prompt.compares)] for each in (spans, shown))
        if cut and (why := _equal_after_cut(prompt.compares, [*map(_ShownText, *texts)])):
            return Unparsed("equal_after_cut", "", why)
        text, ids = self._encode(shown, prompt)
        return TokenizedPrompt(text=text, ids=ids, truncations=cut, sanitized=sanitized)

    def _elision(self, spans: tuple[Span, ...], shown: tuple[Span, ...], answer: int) -> Truncation:
        before, after = (len(self.ids(_text_of_answer(texts, answer))) for texts in (spans, shown))
        changed = [span.step for span, other in zip(spans, shown, strict=True) if span is not other]
        steps = tuple(place.step for place in changed if place is not None and place.answer == answer)
        return Truncation(answer=answer, tokens_before=before, tokens_after=after, steps=steps)

    def ids(self, text: str) -> list[int]:
        """Return token IDs without special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def sanitize(self, text: str, *, chat: bool = False) -> tuple[str, int]:
        """Sanitize special tokens and, in chats, role markers. Return the text and the number of markers found."""
        return self._sanitizer(text, chat=chat)

    def encode(self, text: str, *, chat: bool) -> list[int]:
        """Return the token IDs of a text that will be continued, with start tokens but without end tokens."""
        # verbose=False: do not warn about texts longer than the window
        ids = list(self.tokenizer(text, add_special_tokens=not chat, verbose=False)["input_ids"])
        return ids if chat or not self._appended else ids[: -self._appended]

    def _sanitized(self, prompt: Prompt) -> tuple[tuple[Span, ...], int]:
        spans, total = sanitized_spans(prompt.spans, partial(self.sanitize, chat=prompt.chat))
        return (spans, total) if total else (prompt.spans, 0)

    def _truncate_answers(
        self, spans: tuple[Span, ...], bounded: tuple[Span, ...], prompt: Prompt, limit: int, sanitized: int
    ) -> TokenizedPrompt | Unparsed:
        answers = [index for index, span in enumerate(spans) if span.kind == "answer"]
        offsets = {index: self._offsets(bounded[index].text) for index in answers}
        lengths = [len(offsets[index]) for index in answers]
        bare = tuple(replace(span, text="") if span.kind == "answer" else span for span in bounded)
        room = limit - len(self._encode(bare, prompt)[1])
        while answers and room >= sum(min(length, MIN_ANSWER_TOKENS) for length in lengths):
            kept_tokens = dict(zip(answers, _share(lengths, room), strict=True))
            shortened = tuple(
                _shorten(span, offsets[index], kept_tokens[index]) if index in kept_tokens else span
                for index, span in enumerate(bounded)
            )
            text, ids = self._encode(shortened, prompt)
            if len(ids) <= limit:
                shown = [_ShownText(spans[index].text, shortened[index].text) for index in answers]
                if why := _equal_after_cut(prompt.compares, shown):
                    return Unparsed("equal_after_cut", "", why)
                cut = tuple(
                    Truncation(
                        answer=place,
                        tokens_before=self._length(spans[index], bounded[index], lengths[place]),
                        tokens_after=kept_tokens[index],
                    )
                    for place, index in enumerate(answers)
                    if len(shortened[index].text) < len(spans[index].text)
                )
                return TokenizedPrompt(text=text, ids=ids, truncations=cut, sanitized=sanitized)
            # the joined text can have a few more tokens than its parts
            room -= len(ids) - limit
        needed = len(self._encode(bare, prompt)[1])
        return Unparsed(
            "too_long",
            "",
            f"the prompt has {needed} tokens even without answers, which leaves too little room "
            f"(limit: {max(limit, 0)}); shorten the prompt or the reply, or use a longer context",
        )

    def _length(self, whole: Span, bounded: Span, bounded_length: int) -> int:
        return bounded_length if whole is bounded else round(bounded_length * len(whole.text) / len(bounded.text))

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return list(encoded["offset_mapping"])

    def _encode(self, spans: tuple[Span, ...], prompt: Prompt) -> tuple[str, list[int]]:
        text = self.text(spans, chat=prompt.chat)
        return text, self.encode(text, chat=prompt.chat)

    def text(self, spans: tuple[Span, ...], *, chat: bool) -> str:
        """Return the spans as one string. Chats are rendered with the chat template, which also opens the reply."""
        images = [span.text for span in spans if span.kind == "image"]
        if self._images is None:
            if images:
                raise ConfigError("the prompt contains images, but the model supports only text; judge without images")
            return self._templated(chat_messages(spans)) if chat else "".join(span.text for span in spans)
        mark = self._images.placeholder
        if not chat:
            text = "".join(mark if span.kind == "image" else span.text for span in spans)
        elif self._takes_parts:
            text = self._templated(chat_parts(spans))
        elif not images:
            text = self._templated(chat_messages(spans))
        else:
            raise ConfigError(
                "the prompt contains images, but the chat template supports only text; use a different template"
            )
        pieces = text.split(mark)
        if len(pieces) != len(images) + 1:
            raise ConfigError(
                f"the chat template includes {len(pieces) - 1} of {len(images)} images; use a different template"
            )
        shown = [self._images.text_of(image) for image in images]
        return "".join(piece + image for piece, image in zip(pieces, [*shown, ""], strict=True))

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether the chat template supports lists of texts and images."""
        probe = "zq0qz"
        text = self._templated([{"role": "user", "content": [{"type": "text", "text": probe}]}])
        return probe in text and "'type'" not in text and '"type"' not in text

    @cached_property
    def _takes_system(self) -> bool:
        probe = "zq0qz"
        messages = [{"role": "system", "content": probe}, {"role": "user", "content": "a"}]
        try:
            return probe in self._rendered(messages)
        except (ValueError, TemplateError):
            return False

    def _templated(self, messages: list[dict[str, Any]], *, asks: bool | None = None, **options: object) -> str:
        try:
            if messages[0]["role"] == "system" and not self._takes_system:
                messages, self._folds_system = without_system(messages), True
            return self._rendered(messages, asks=asks, **options)
        except (ValueError, TemplateError) as error:
            finding = f"the chat template could not be applied to this prompt ({str(error).splitlines()[0]})"
            way_out = (
                "use a model with a chat template, or a plain-text --template"
                if asks is None
                else "change the messages"
            )
            raise ConfigError(f"{finding}; {way_out}") from error

    def _rendered(self, messages: list[dict[str, Any]], *, asks: bool | None = None, **options: object) -> str:
        options |= template_arguments(self._thinking)
        if asks is None:
            asks = messages[-1]["role"] != "assistant"  # reward models score complete answers
        return render_chat(self.tokenizer, messages, add_generation_prompt=asks, **options)


def _appended_tokens(tokenizer: Tokenizer) -> int:
    bare, whole = (list(tokenizer("a", add_special_tokens=special)["input_ids"]) for special in (False, True))
    starts = [start for start in range(len(whole) - len(bare) + 1) if whole[start : start + len(bare)] == bare]
    return len(whole) - starts[0] - len(bare) if starts else 0


ELIDED = "(left out)"
"""Replacement for text of a trajectory that does not fit."""


def _may_go(span: Span) -> StepPlace | None:
    return span.step if span.step is not None and span.step.rank and len(span.text) > len(ELIDED) else None


def elided(spans: tuple[Span, ...], places: Iterable[StepPlace]) -> tuple[Span, ...]:
    """Return the spans with the texts of these steps elided."""
    gone = set(places)
    return tuple(replace(span, text=ELIDED, kind="template") if span.step in gone else span for span in spans)


def _text_of_answer(spans: tuple[Span, ...], answer: int) -> str:
    return "".join(span.text for span in spans if span.step is not None and span.step.answer == answer)


def sanitized_spans(spans: tuple[Span, ...], clean: Callable[[str], tuple[str, int]]) -> tuple[tuple[Span, ...], int]:
    """Return the sanitized spans and the number of markers found."""
    texts = [(span.text, 0) if span.kind in ("template", "image") else clean(span.text) for span in spans]
    changed = (replace(span, text=text) if count else span for span, (text, count) in zip(spans, texts, strict=True))
    return tuple(changed), sum(count for _, count in texts)


def chat_messages(spans: tuple[Span, ...]) -> list[dict[str, str]]:
    """Return chat spans as messages, merging adjacent spans with the same role."""
    return [
        {"role": str(role), "content": "".join(span.text for span in group)}
        for role, group in groupby(spans, key=lambda span: span.role)
    ]


def _with_parsed_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the arguments of calls, because chat templates expect objects. Invalid JSON remains a string."""
    if "tool_calls" not in message:
        return dict(message)
    calls = [dict(call, function=dict(call["function"])) for call in message["tool_calls"]]
    for call in calls:
        with suppress(ValueError, RecursionError):
            call["function"]["arguments"] = json.loads(call["function"].get("arguments") or "{}")
    return dict(message, tool_calls=calls)


def without_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move the system message into the first user message."""
    system = "\n\n".join(_text(message["content"]) for message in messages if message["role"] == "system")
    others = [dict(message) for message in messages if message["role"] != "system"]
    first = next((message for message in others if message["role"] == "user"), None)
    if not system.strip():
        return others
    if first is None:
        return [{"role": "user", "content": system}, *others]
    if isinstance(first["content"], str):
        first["content"] = f"{system}\n\n{first['content']}"
    else:
        first["content"] = [{"type": "text", "text": f"{system}\n\n"}, *first["content"]]
    return others


def _text(content: str | Sequence[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def chat_parts(spans: tuple[Span, ...]) -> list[dict[str, Any]]:
    """Like `chat_messages`, but with lists of texts and images for vision-language templates."""
    return [{"role": str(role), "content": _parts(group)} for role, group in groupby(spans, key=lambda span: span.role)]


def _parts(spans: Iterable[Span]) -> list[dict[str, str]]:
    parts: list[dict[str, str]] = []
    for is_image, same in groupby(spans, key=lambda span: span.kind == "image"):
        if is_image:
            parts += [{"type": "image"} for _ in same]
        else:
            parts.append({"type": "text", "text": "".join(span.text for span in same)})
    return parts


class _ShownText(NamedTuple):
    whole: str
    shown: str

    def is_alike(self, other: "_ShownText") -> bool:
        shorter, longer = sorted((self, other), key=lambda text: len(text.shown.rstrip()))
        was_cut = len(shorter.shown) < len(shorter.whole)
        equal = shorter.shown.strip() == longer.shown.strip()
        return equal or (was_cut and longer.shown.startswith(shorter.shown.rstrip()))


def _equal_after_cut(compares: int, answers: Sequence[_ShownText]) -> str:
    turns = len(answers) // max(compares, 1)
    sides = [answers[start : start + turns] for start in range(0, compares * turns, turns)] if turns else []
    for (first, side), (second, other) in combinations(enumerate(sides, 1), 2):
        pairs = list(zip(side, other, strict=True))
        differ = any(text.whole != another.whole for text, another in pairs)
        if differ and all(text.is_alike(another) for text, another in pairs):
            return f"answers {first} and {second} are identical after truncation"
    return ""


def prompt_key(prompt: Prompt) -> str:
    """Return a prompt's untrusted texts, joined by `|`. The scripted engine uses them to identify prompts."""
    if prompt.messages:
        return "|".join(prompt.texts)
    return "|".join(span.text for span in prompt.spans if span.kind not in ("template", "image"))


def _bounded(spans: tuple[Span, ...], characters: int) -> tuple[Span, ...]:
    if all(span.kind != "answer" or len(span.text) <= characters for span in spans):
        return spans
    return tuple(
        replace(span, text=span.text[:characters]) if span.kind == "answer" and len(span.text) > characters else span
        for span in spans
    )


def _share(lengths: Sequence[int], room: int) -> list[int]:
    shares = [0] * len(lengths)
    left = room
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for rank, index in enumerate(by_length):
        shares[index] = min(lengths[index], left // (len(lengths) - rank))
        left -= shares[index]
    return shares


def _shorten(span: Span, offsets: list[tuple[int, int]], tokens: int) -> Span:
    if tokens >= len(offsets):
        return span
    return replace(span, text=span.text[: offsets[tokens - 1][1]] if tokens else "")
