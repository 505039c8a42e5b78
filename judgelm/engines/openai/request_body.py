"""A prompt as an endpoint is sent it: token ids, text, or chat messages.

With the model's tokenizer the length policy of the local engines holds, and /completions gets the very token ids that
they would read. Without one nothing can be measured or cut; what looks like a common special token is sanitized, since
a server's tokenizer would read it as one.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from judgelm.engines.images import image_url
from judgelm.engines.openai.endpoint import Api
from judgelm.engines.openai.unsupported_params import CONTINUATION
from judgelm.prompts.sanitization import Sanitizer
from judgelm.prompts.truncation import TokenizedPrompt, Truncator, chat_messages, chat_parts
from judgelm.records import Prompt, Sampling, Span, Truncation

TOP_LOGPROBS = 20
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
    """A prompt ready to be sent.

    Attributes:
        api: where it goes.
        content: token ids or text for completions, messages for chat; a message with images is a list of its parts.
        text: what the model reads; empty for chat, where only the server knows.
        templated: whether a chat template has put special tokens into `text`.
        continued: whether the last message is the forced beginning of the reply.
    """

    api: Api
    content: list[int] | str | list[dict[str, Any]]
    text: str = ""
    templated: bool = False
    continued: str = ""
    truncations: tuple[Truncation, ...] = ()
    sanitized: int = 0


class PromptRenderer:
    """Writes prompts for one server.

    Args:
        api: `completions` if the server has it and it is wanted; chat prompts go there only with a tokenizer.
        truncator: the length policy, where the tokenizer is known.
        takes_ids: whether the server's /completions takes token ids.
    """

    def __init__(self, api: Api, truncator: Truncator | None, *, takes_ids: bool) -> None:
        self._api = api
        self._truncator = truncator
        self._takes_ids = takes_ids and truncator is not None
        self._sanitizer = Sanitizer(_SPECIAL, exact=True)

    def write(self, prompt: Prompt, tokenized: TokenizedPrompt | None) -> RenderedPrompt:
        """The prompt as it is sent; one with images as chat messages, which alone can hold them.

        Args:
            prompt: what the judge should read.
            tokenized: the same by the length policy, where the tokenizer is known, and the prompt without images: what
                a server makes of one cannot be known here.

        Raises:
            ImageError: an image cannot be read.
        """
        # without ids the server would put the beginning-of-text token before a template that has it already
        if self._api == "completions" and not prompt.images and (self._takes_ids or not prompt.chat):
            return self._for_completions(prompt, tokenized)
        spans, sanitized = self._sanitized(prompt.spans)
        if self._truncator is not None and tokenized is not None:
            spans = _shortened(spans, tokenized.truncations, self._truncator)
        messages = _messages(spans, chat=prompt.chat)
        if prompt.prefill:
            messages.append({"role": "assistant", "content": prompt.prefill})
        truncations = tokenized.truncations if tokenized is not None else ()
        return RenderedPrompt(
            api="chat", content=messages, continued=prompt.prefill, truncations=truncations, sanitized=sanitized
        )

    def after(self, written: RenderedPrompt, reply: str) -> list[int] | str:
        """What a completion reads that goes on from the beginning of a reply."""
        if isinstance(written.content, str):
            return written.content + reply
        assert self._truncator is not None, "only a tokenizer makes token ids"
        ids: list[int] = [token for token in written.content if isinstance(token, int)]
        whole = self._truncator.encode(written.text + reply, chat=written.templated)
        # a token across the border would change what the model has read: then the reply is tokenised by itself
        return whole if whole[: len(ids)] == ids else ids + self._truncator.ids(reply)

    def _for_completions(self, prompt: Prompt, tokenized: TokenizedPrompt | None) -> RenderedPrompt:
        if tokenized is None:
            spans, sanitized = self._sanitized(prompt.spans)
            text = "".join(span.text for span in spans) + prompt.prefill
            return RenderedPrompt(api="completions", content=text, text=text, sanitized=sanitized)
        return RenderedPrompt(
            api="completions",
            content=tokenized.ids if self._takes_ids else tokenized.text,
            text=tokenized.text,
            templated=prompt.chat,
            truncations=tokenized.truncations,
            sanitized=tokenized.sanitized,
        )

    def _sanitized(self, spans: tuple[Span, ...]) -> tuple[tuple[Span, ...], int]:
        out, total = [], 0
        for span in spans:
            if span.kind not in ("template", "image"):
                text, found = self._sanitize(span.text)
                span, total = replace(span, text=text), total + found
            out.append(span)
        return tuple(out), total

    def _sanitize(self, text: str) -> tuple[str, int]:
        if self._truncator is not None:
            return self._truncator.sanitize(text, chat=True)
        between_bars = set(_BETWEEN_BARS.findall(text))
        sanitizer = Sanitizer(_SPECIAL | between_bars, exact=True) if between_bars else self._sanitizer
        return sanitizer(text)


def request_body(model: str, written: RenderedPrompt, sampling: Sampling, *, logprobs: bool) -> dict[str, Any]:
    """The request for `sampling.n` replies, as OpenAI's reference has it; `openai_quirks` takes away from it."""
    body: dict[str, Any] = {
        "model": model,
        "prompt" if written.api == "completions" else "messages": written.content,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.stop and not sampling.include_stop:  # a server leaves them out of the reply
        body["stop"] = list(sampling.stop)
    if sampling.n > 1:
        body["n"] = sampling.n
    if sampling.temperature > 0:
        body["seed"] = sampling.seed
    if sampling.grammar is not None:
        body["structured_outputs"] = {"regex": sampling.grammar}
    if written.continued:
        body |= CONTINUATION
    if logprobs:
        chat = {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        body |= chat if written.api == "chat" else {"logprobs": TOP_LOGPROBS}
    return body


def _messages(spans: tuple[Span, ...], *, chat: bool) -> list[dict[str, Any]]:
    """The prompt's own messages; plain text is all the user's."""
    if images := [span.text for span in spans if span.kind == "image"]:
        messages = chat_parts(spans if chat else tuple(replace(span, role="user") for span in spans))
        urls = iter([image_url(image) for image in images])
        for part in (part for message in messages for part in message["content"] if part["type"] == "image"):
            part |= {"type": "image_url", "image_url": {"url": next(urls)}}
        return messages
    if not chat:
        return [{"role": "user", "content": "".join(span.text for span in spans)}]
    return [dict(message) for message in chat_messages(spans)]


def _shortened(spans: tuple[Span, ...], cut: tuple[Truncation, ...], truncator: Truncator) -> tuple[Span, ...]:
    """The spans with their answers cut as the length policy cut them."""
    kept = {one.answer: one.tokens_after for one in cut}
    out, answer = list(spans), 0
    for place, span in enumerate(spans):
        if span.kind != "answer":
            continue
        if answer in kept:
            out[place] = replace(span, text=_beginning(span.text, kept[answer], truncator))
        answer += 1
    return tuple(out)


def _beginning(text: str, tokens: int, truncator: Truncator) -> str:
    encoded = truncator.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return text[: encoded["offset_mapping"][:tokens][-1][1]] if tokens else ""
