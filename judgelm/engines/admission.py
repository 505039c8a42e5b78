"""What a request becomes before a local engine runs it: fitted to the window, its reply limited to what is left."""

from dataclasses import replace

from judgelm.prompts.fitting import Fitted, Fitter
from judgelm.records import Completion, Request, Unparsed


def admit(fitter: Fitter, request: Request) -> tuple[Request, Fitted] | Completion:
    """The request and its tokens, or the completion of one that does not fit."""
    sampling = request.sampling
    fitted = fitter.fit(request.prompt, sampling.max_tokens if sampling.reserve is None else sampling.reserve)
    if isinstance(fitted, Unparsed):
        return Completion(key=request.key, texts=(), finish_reasons=("too_long",), error=fitted.why)
    room = fitter.window - len(fitted.ids)
    if room < 1:
        why = f"the window of {fitter.window} tokens is full before the reply goes on"
        return Completion(key=request.key, texts=(), finish_reasons=("too_long",), cut=fitted.cut, error=why)
    if room < sampling.max_tokens:
        request = replace(request, sampling=replace(sampling, max_tokens=room))
    return request, fitted
