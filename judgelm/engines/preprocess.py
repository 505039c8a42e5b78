"""Prepare requests and decode replies."""

from dataclasses import replace
from typing import TYPE_CHECKING

from judgelm.engines.base import EngineOptions, ImageError
from judgelm.errors import ConfigError, EngineError
from judgelm.parsing.thinking import Thinking
from judgelm.records import Completion, FinishReason, Request, Sampling, Unparsed

if TYPE_CHECKING:
    from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer, Truncator


def thinking_policy(options: EngineOptions, *, window: int | None, resumes: bool) -> Thinking:
    """Return the thinking settings for an engine."""
    if options.thinking_tokens < 1:
        raise ConfigError(f"thinking_tokens is {options.thinking_tokens}; it must be at least 1")
    mode = options.thinking or "absent"
    return Thinking(mode=mode, max_tokens=options.thinking_tokens, resumes=resumes).within(window)


def prepare_request(truncator: "Truncator", request: Request) -> "tuple[Request, TokenizedPrompt] | Completion":
    """Truncate and tokenise a request, or return a failed completion.

    Raises:
        ConfigError: if truncation fails for a template prompt. See `Truncator.truncate`.
    """
    sampling = request.sampling
    reserve = sampling.max_tokens if sampling.reserve is None else sampling.reserve
    try:
        tokenized = truncator.truncate(request.prompt, reserve)
    except (ImageError, ConfigError) as error:
        if isinstance(error, ConfigError) and any(span.kind == "template" for span in request.prompt.spans):
            raise
        return Completion.failed(request.key, str(error), "invalid" if request.prompt.messages else "error")
    if isinstance(tokenized, Unparsed):
        reason: FinishReason = "equal_after_cut" if tokenized.code == "equal_after_cut" else "too_long"
        return Completion.failed(request.key, tokenized.why, reason)
    room = truncator.window - len(tokenized.ids)
    if room < 1:
        why = f"the prompt fills the context window of {truncator.window} tokens and leaves no room for the reply"
        return Completion.failed(request.key, why, "too_long", truncations=tokenized.truncations)
    if room < sampling.max_tokens:
        request = replace(request, sampling=replace(sampling, max_tokens=room))
    return request, tokenized


def check_head(request: Request, *, rewards: bool) -> None:
    """Check that the request matches the model's head."""
    if request.reward != rewards:
        wanted, has = ("a reward", "only generates text") if request.reward else ("a reply", "only returns rewards")
        raise EngineError(f"request {request.key} needs {wanted}, but the model {has}; use a different model or mode")


def refuse_images(request: Request, why: str) -> None:
    """Reject a request with images."""
    if request.prompt.images:
        raise EngineError(f"request {request.key} contains images, which this model does not support: {why}")


def decode_reply(
    ids: list[int], sampling: Sampling, tokenizer: "Tokenizer", eos_ids: frozenset[int]
) -> tuple[str, FinishReason | None]:
    """Decode a reply. The finish reason is None if the reply is unfinished."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    if ids[-1] in eos_ids:
        return text, "stop"
    if (stopped := sampling.cut_at_stop(text)) is not None:
        return stopped, "stop"
    return text, "length" if len(ids) == sampling.max_tokens else None
