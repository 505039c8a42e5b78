"""What a request becomes before a local engine runs it: fitted to the window, its reply limited to what is left."""

from dataclasses import replace

from judgelm.engines.images import ImageError
from judgelm.errors import ConfigError, EngineError
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Completion, Request, Unparsed


def prepare_request(truncator: Truncator, request: Request) -> tuple[Request, TokenizedPrompt] | Completion:
    """The request and its tokens, or the completion of one that does not fit.

    Raises:
        ConfigError: as `Truncator.truncate`, of a prompt with a template's words: all others like it would be refused
            too. A chat of somebody's own messages fails alone.
    """
    sampling = request.sampling
    try:
        tokenized = truncator.truncate(
            request.prompt, sampling.max_tokens if sampling.reserve is None else sampling.reserve
        )
    except ImageError as error:
        return Completion(key=request.key, texts=(), finish_reasons=("error",), error=str(error))
    except ConfigError as error:
        if any(span.kind == "template" for span in request.prompt.spans):
            raise
        return Completion(key=request.key, texts=(), finish_reasons=("error",), error=str(error))
    if isinstance(tokenized, Unparsed):
        return Completion(key=request.key, texts=(), finish_reasons=("too_long",), error=tokenized.why)
    room = truncator.window - len(tokenized.ids)
    if room < 1:
        why = f"the window of {truncator.window} tokens is full before the reply goes on"
        return Completion(
            key=request.key, texts=(), finish_reasons=("too_long",), truncations=tokenized.truncations, error=why
        )
    if room < sampling.max_tokens:
        request = replace(request, sampling=replace(sampling, max_tokens=room))
    return request, tokenized


def refuse_images(request: Request, why: str) -> None:
    """For models that see none: a prompt without its images would be judged as if they had been looked at.

    Raises:
        EngineError: the prompt shows images.
    """
    if request.prompt.images:
        raise EngineError(f"request {request.key} shows images, which this model cannot see: {why}")
