"""Separates thinking from replies, between the engine and the flow.

Flows receive only the replies; the thinking is stored in `Completion.thinking`. With thinking `on`, the judge thinks
once per prompt, and this thinking is reused for reasons, retries, and label probabilities.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from judgelm.modes.flow import RequestFlow, Result, Round, interleave, map_rounds
from judgelm.parsing.thinking import CLOSE, OPEN, Separated, Thinking, separate
from judgelm.records import Completion, FinishReason, Request, Sampling, Span, TokenLogprobs, tokens_between

_AFTER_THINKING = "\n\n"
"""Separator between thinking and reply in Qwen, DeepSeek, and GLM models."""

_Blocks = dict[tuple[tuple[Span, ...], bool], str]
"""The judge's verbatim thinking for each prompt in a flow."""


class _Step(NamedTuple):
    sent: Request
    request: Request
    thinks_first: bool = False


def separate_thinking(flow: RequestFlow[Result], thinking: Thinking) -> RequestFlow[Result]:
    """Run a flow, separating the thinking from the replies that the flow receives."""
    if thinking.mode == "on":
        blocks: _Blocks = {}
        return map_rounds(flow, lambda requests: interleave([_answered(each, thinking, blocks) for each in requests]))

    def ask(requests: list[Request]) -> Round:
        return [separated(completion, thinking) for completion in (yield requests)]

    return map_rounds(flow, ask)


def separated(completion: Completion, thinking: Thinking) -> Completion:
    """Separate the thinking. If there is no reply, the finish reason is `thinking`."""
    replies = [separate(text, bare=not thinking.resumes) for text in completion.texts]
    if not any(reply.block for reply in replies) and "thinking" not in completion.finish_reasons:
        return completion  # the usual case
    from_server = completion.thinking or ("",) * len(replies)  # some servers already separate the thinking
    thoughts = [
        "\n\n".join(filter(None, (before, reply.thinking))) for before, reply in zip(from_server, replies, strict=True)
    ]
    reasons: tuple[FinishReason, ...] = tuple(
        "thinking" if _says_nothing(reply, thinking) else reason
        for reply, reason in zip(replies, completion.finish_reasons, strict=True)
    )
    return replace(
        completion,
        texts=tuple(reply.reply for reply in replies),
        thinking=tuple(thoughts) if any(thoughts) else (),
        logprobs=_reply_logprobs(completion, [reply.reply for reply in replies]),
        finish_reasons=reasons,
        error=completion.error or (_endless(thinking) if "thinking" in reasons else ""),
    )


def _reply_logprobs(completion: Completion, replies: Sequence[str]) -> tuple[tuple[TokenLogprobs, ...], ...] | None:
    """Remove the tokens of the thinking, which precede each reply."""
    if completion.logprobs is None:
        return None
    lengths = [sum(len(token.token) for token in tokens) for tokens in completion.logprobs]
    parts = zip(completion.logprobs, lengths, replies, strict=True)
    return tuple(tokens_between(tokens, max(0, length - len(reply)), length) for tokens, length, reply in parts)


def _says_nothing(reply: Separated, thinking: Thinking) -> bool:
    return not reply.closed or (thinking.mode != "on" and reply.thinking is not None and not reply.reply.strip())


def _endless(thinking: Thinking) -> str:
    if thinking.mode == "on":
        return f"thinking exceeded {thinking.max_tokens} tokens; raise --thinking-tokens, or use --thinking off"
    return "the judge thinks before replying, but no tokens are reserved for it; use --thinking on, or off if supported"


def _answered(request: Request, thinking: Thinking, blocks: _Blocks) -> RequestFlow[Completion]:
    step = _step(request, thinking, blocks)
    [received] = yield [step.sent]
    if not step.thinks_first or received.finish_reasons[0] not in ("stop", "length"):
        return _at_once(step, received, thinking, blocks)
    text = received.texts[0] if step.request.prompt.chat else f"{OPEN}\n{received.texts[0]}"
    separation = _thoughts(text)
    while (left := _left(text, received, thinking)) and not separation.closed:  # the closing tag was quoted
        sent = replace(
            step.sent,
            prompt=replace(step.sent.prompt, prefill=text),
            sampling=replace(step.sent.sampling, max_tokens=left),
        )
        [more] = yield [sent]
        if more.finish_reasons[0] not in ("stop", "length"):
            return more
        text += more.texts[0]
        received = replace(
            more,
            prompt_tokens=received.prompt_tokens + more.prompt_tokens,
            completion_tokens=received.completion_tokens + more.completion_tokens,
        )
        separation = _thoughts(text)
    if not separation.closed:
        return separated(replace(received, texts=(separation.block,)), thinking)
    blocks[step.request.prompt.spans, step.request.prompt.chat] = separation.block
    [reply] = yield [_resumed(step.request, thinking, separation.block)]
    return _joined(received, separation, separated(reply, thinking))


def _left(text: str, received: Completion, thinking: Thinking) -> int:
    interrupted = received.finish_reasons[0] == "stop" and text.endswith(CLOSE)
    return max(0, thinking.max_tokens - received.completion_tokens) if interrupted else 0


def _step(request: Request, thinking: Thinking, blocks: _Blocks) -> _Step:
    sampling, prompt = request.sampling, request.prompt
    if thinking.resumes and sampling.n == 1:
        block = blocks.get((prompt.spans, prompt.chat))
        if block is not None:
            return _Step(_resumed(request, thinking, block), request)
        narrow = sampling.stop or sampling.grammar or request.candidates or prompt.prefill
        if narrow or not prompt.chat:
            first = Sampling(
                max_tokens=thinking.max_tokens,
                temperature=sampling.temperature,
                stop=(CLOSE,),
                include_stop=True,
                seed=sampling.seed,
                reserve=_reserve(sampling, thinking),
            )
            opened = replace(prompt, prefill="" if prompt.chat else f"{OPEN}\n")
            return _Step(replace(request, prompt=opened, sampling=first, candidates=()), request, thinks_first=True)
    elif prompt.prefill:  # a continued reply needs no further thinking
        return _Step(request, request)
    max_tokens = sampling.max_tokens + thinking.max_tokens
    room = replace(sampling, max_tokens=max_tokens, stop=(), reserve=_reserve(sampling, thinking))
    return _Step(replace(request, sampling=room), request)


def _thoughts(text: str) -> Separated:
    separation = separate(text)
    if separation.closed and separation.block:
        return separation._replace(block=separation.block.rstrip() + _AFTER_THINKING)
    return separation if not separation.closed else Separated("", None, "")


def _at_once(step: _Step, completion: Completion, thinking: Thinking, blocks: _Blocks) -> Completion:
    first = separate(completion.texts[0], bare=False) if completion.texts and not step.sent.prompt.prefill else None
    if first is not None and first.closed:
        blocks[step.request.prompt.spans, step.request.prompt.chat] = first.block
    reply = separated(completion, thinking)
    if not reply.texts or step.sent.sampling.stop == step.request.sampling.stop:
        return reply
    ended = [step.request.sampling.cut_at_stop(text) for text in reply.texts]
    reasons = ["stop" if cut is not None else why for cut, why in zip(ended, reply.finish_reasons, strict=True)]
    texts = [text if cut is None else cut for cut, text in zip(ended, reply.texts, strict=True)]
    logprobs = reply.logprobs
    if logprobs is not None:
        logprobs = tuple(tokens_between(part, 0, len(text)) for part, text in zip(logprobs, texts, strict=True))
    return replace(reply, texts=tuple(texts), finish_reasons=tuple(reasons), logprobs=logprobs)


def _resumed(request: Request, thinking: Thinking, block: str) -> Request:
    prompt = replace(request.prompt, prefill=block + request.prompt.prefill)
    reserve = _reserve(request.sampling, thinking)
    return replace(request, prompt=prompt, sampling=replace(request.sampling, reserve=reserve))


def _reserve(sampling: Sampling, thinking: Thinking) -> int:
    return thinking.max_tokens + (sampling.max_tokens if sampling.reserve is None else sampling.reserve)


def _joined(first: Completion, separation: Separated, reply: Completion) -> Completion:
    thoughts = tuple("\n\n".join(filter(None, (separation.thinking, thought))) for thought in reply.thinking or ("",))
    return replace(
        reply,
        thinking=thoughts if any(thoughts) else (),
        prompt_tokens=first.prompt_tokens + reply.prompt_tokens,
        completion_tokens=first.completion_tokens + reply.completion_tokens,
    )
