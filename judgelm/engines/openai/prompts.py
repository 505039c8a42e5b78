"""Render prompts for a server. If no tokenizer is set, only common special tokens are sanitised."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from judgelm.engines.images import image_url
from judgelm.engines.openai.options import Api
from judgelm.prompts.sanitization import Sanitizer
from judgelm.prompts.truncation import TokenizedPrompt, Truncator, chat_messages, chat_parts, elided, sanitized_spans
from judgelm.records import Prompt, Span, Truncation

_SPECIAL = frozenset(
    {
        *("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "<sop>", "<image>", "[gMASK]"),
        *("<start_of_turn>", "<end_of_turn>", "<<SYS>>", "<</SYS>>", "[INST]", "[/INST]"),
        *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        *("<think>", "</think>", "<tool_call>", "</tool_call>"),
    }
)
_BETWEEN_BARS = re.compile("<[|｜][^<>|｜\\s]{1,40}[|｜]>")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt:
    """A prompt that is ready to send.

    Attributes:
        content: token ids or a string for completions, or messages for chat.
        tools: functions to show to the model.
        templated: whether `text` was rendered with a chat template.
        prefill: text that the reply must start with, sent as the last message.
    """

    api: Api
    content: list[int] | str | list[dict[str, Any]]
    text: str = ""
    templated: bool = False
    prefill: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    truncations: tuple[Truncation, ...] = ()
    sanitized: int = 0


class PromptRenderer:
    """Renders prompts. Chat prompts are only sent to /completions if a tokenizer is set."""

    def __init__(self, api: Api, truncator: Truncator | None, *, accepts_token_ids: bool) -> None:
        self._api = api
        self._truncator = truncator
        self._accepts_token_ids = accepts_token_ids and truncator is not None
        self._sanitizer = Sanitizer(_SPECIAL, exact=True)

    def render(self, prompt: Prompt, tokenized: TokenizedPrompt | None) -> RenderedPrompt:
        """Render a prompt. Images require chat messages."""
        # if given text instead of ids, the server would add a second BOS token before the template's
        if self._api == "completions" and not prompt.images and (self._accepts_token_ids or not prompt.chat):
            return self._for_completions(prompt, tokenized)
        spans, sanitized = sanitized_spans(prompt.spans, self._sanitize)
        if self._truncator is not None and tokenized is not None:
            spans = _truncated(spans, tokenized.truncations, self._truncator)
        messages = [dict(message) for message in prompt.messages] or _messages(spans, chat=prompt.chat)
        if prompt.prefill:
            messages.append({"role": "assistant", "content": prompt.prefill})
        truncations = tokenized.truncations if tokenized is not None else ()
        return RenderedPrompt(
            api="chat",
            content=messages,
            prefill=prompt.prefill,
            tools=prompt.tools,
            truncations=truncations,
            sanitized=sanitized,
        )

    def continue_from(self, rendered: RenderedPrompt, reply: str) -> list[int] | str:
        """Return the content for a request that continues a reply."""
        if isinstance(rendered.content, str):
            return rendered.content + reply
        assert self._truncator is not None, "token ids need a tokenizer"
        ids: list[int] = [token for token in rendered.content if isinstance(token, int)]
        whole = self._truncator.encode(rendered.text + reply, chat=rendered.templated)
        # if a token would span the boundary, the reply is tokenised separately
        return whole if whole[: len(ids)] == ids else ids + self._truncator.ids(reply)

    def _for_completions(self, prompt: Prompt, tokenized: TokenizedPrompt | None) -> RenderedPrompt:
        if tokenized is None:
            spans, sanitized = sanitized_spans(prompt.spans, self._sanitize)
            texts = prompt.texts if prompt.messages else [span.text for span in spans]
            text = "".join(texts) + prompt.prefill
            return RenderedPrompt(api="completions", content=text, text=text, sanitized=sanitized)
        return RenderedPrompt(
            api="completions",
            content=tokenized.ids if self._accepts_token_ids else tokenized.text,
            text=tokenized.text,
            templated=prompt.chat,
            truncations=tokenized.truncations,
            sanitized=tokenized.sanitized,
        )

    def _sanitize(self, text: str) -> tuple[str, int]:
        if self._truncator is not None:
            return self._truncator.sanitize(text, chat=True)
        between_bars = set(_BETWEEN_BARS.findall(text))
        sanitizer = Sanitizer(_SPECIAL | between_bars, exact=True) if between_bars else self._sanitizer
        return sanitizer(text)


def _messages(spans: tuple[Span, ...], *, chat: bool) -> list[dict[str, Any]]:
    if images := [span.text for span in spans if span.kind == "image"]:
        messages = chat_parts(spans if chat else tuple(replace(span, role="user") for span in spans))
        urls = iter([image_url(image) for image in images])
        for part in (part for message in messages for part in message["content"] if part["type"] == "image"):
            part |= {"type": "image_url", "image_url": {"url": next(urls)}}
        return messages
    if not chat:
        return [{"role": "user", "content": "".join(span.text for span in spans)}]
    return [dict(message) for message in chat_messages(spans)]


def _truncated(spans: tuple[Span, ...], truncations: tuple[Truncation, ...], truncator: Truncator) -> tuple[Span, ...]:
    left_out = {(truncation.answer, step) for truncation in truncations for step in truncation.steps}
    places = [place for span in spans if (place := span.step) is not None and place.rank]
    spans = elided(spans, [place for place in places if (place.answer, place.step) in left_out])
    lengths = {cut.answer: cut.tokens_after for cut in truncations if not cut.steps}
    answers = [index for index, span in enumerate(spans) if span.kind == "answer"]
    shortened = list(spans)
    for answer, length in lengths.items():
        span = spans[answers[answer]]
        encoded = truncator.tokenizer(span.text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        end = encoded["offset_mapping"][:length][-1][1] if length else 0
        shortened[answers[answer]] = replace(span, text=span.text[:end])
    return tuple(shortened)
