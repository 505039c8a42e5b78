"""An engine with scripted replies for tests, documentation, and dry runs.

Each word and its leading spaces form one token.
"""

import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from judgelm.bounds import MAX_WHOLE_BYTES, read_text
from judgelm.engines.base import EngineOptions
from judgelm.engines.candidates import longest_candidate
from judgelm.engines.grammars import mismatch, refusal
from judgelm.engines.preprocess import thinking_policy
from judgelm.errors import EngineError, ModelError
from judgelm.jsonl import parse_json
from judgelm.parsing.thinking import NOT_ASKED, Thinking
from judgelm.prompts.truncation import prompt_key
from judgelm.records import Completion, FinishReason, Prompt, Request, Sampling, TokenLogprobs

_MORE_SCORES = re.compile(r"\A(?:[^\S\n]+\d+(?:\.\d+)?)+(?=\s*?(?:\n|\Z))")
_TOKEN = re.compile(r"\n|[^\S\n]*[^\s]+|[^\S\n]+")

Script = Mapping[str, str] | Callable[[Prompt], str]


class ScriptedEngine:
    """Returns replies from a script.

    Args:
        script: a function that returns the reply to a prompt, or a mapping from `question|answer|answer` (with a
            reference, `question|reference|answer|answer`) to the reply. The key `*` matches all other prompts. If `*`
            is the only key and the reply starts with scores (`8 6`), the number of scores is adapted to the candidates.
        max_in_flight: see `Engine`.
    """

    supports_grammar = True
    supports_images = True  # a script function may use them

    def __init__(self, script: Script, *, max_in_flight: int = 256, thinking: Thinking = NOT_ASKED) -> None:
        self.thinking = thinking
        self._script = script
        self.max_in_flight = max_in_flight
        self.waiting: deque[Request] = deque()

    @classmethod
    def load(cls, options: EngineOptions) -> "ScriptedEngine":
        """Load a JSON script, or use the value of `--model` as the reply."""
        path, thinking = Path(options.model), thinking_policy(options, window=None, resumes=False)
        if path.suffix != ".json":
            return cls({"*": options.model.replace("\\n", "\n")}, thinking=thinking)
        try:
            script = parse_json(read_text(path, MAX_WHOLE_BYTES))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot load the script: {error}") from error
        if not isinstance(script, dict) or not all(isinstance(reply, str) for reply in script.values()):
            raise ModelError(f"{path}: the script must be a JSON object that maps prompt strings to reply strings")
        return cls(script, thinking=thinking)

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests."""
        for request in requests:
            if request.adapter is not None:
                raise EngineError("the scripted engine does not support adapters")
        self.waiting.extend(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Answer all submitted requests."""
        done = [self.answer(request) for request in self.waiting]
        self.waiting.clear()
        return done

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Return an empty mapping."""
        return {}

    def abort(self, keys: Iterable[str]) -> None:
        """Cancel requests."""
        dropped = set(keys)
        self.waiting = deque(request for request in self.waiting if request.key not in dropped)

    def describe(self) -> dict[str, Any]:
        """See `Engine`."""
        if callable(self._script):
            script = getattr(self._script, "__qualname__", "function")
        else:
            script = hashlib.sha256(json.dumps(dict(self._script), sort_keys=True).encode()).hexdigest()
        return {"engine": "scripted", "model": {"path": "script", "sha": script}, **self.thinking.described()}

    def stats(self) -> dict[str, Any]:
        """Return an empty dictionary."""
        return {}

    def close(self) -> None:
        """Do nothing."""

    def answer(self, request: Request) -> Completion:
        """Answer a request. Test engines override this."""
        try:
            reply = self._reply(request)
        except LookupError:
            return Completion.failed(request.key, f"the script has no reply for {prompt_key(request.prompt)!r}")
        if request.reward:
            return _rewarded(request.key, reply)
        sampling = request.sampling
        if request.candidates:  # a script can contain the whole reply, with the reason before the verdict
            reply = reply.removeprefix(request.prompt.prefill)
        text, tokens, reason = _limit(reply, sampling)
        if why := refusal(sampling) or mismatch(sampling, text, reason):
            return Completion.failed(request.key, f"{why}; the scripted reply is {text!r:.100}")
        n, longest = sampling.n, longest_candidate(reply, request.candidates)
        return Completion(
            key=request.key,
            texts=(text,) * n,
            finish_reasons=(reason,) * n,
            # the longest candidate that the reply starts with has probability 1
            candidate_logprobs=tuple(0.0 if line == longest else -math.inf for line in request.candidates) or None,
            prompt_tokens=sum(text.count(" ") + 1 for text in request.prompt.texts),
            logprobs=None if sampling.logprobs is None else (_certain(tokens, sampling.logprobs),) * n,
            completion_tokens=len(tokens) * n,
        )

    def _reply(self, request: Request) -> str:
        if callable(self._script):
            return self._script(request.prompt)
        if self._script.keys() == {"*"}:
            return _fitting(self._script["*"].removeprefix(request.prompt.prefill), request.candidates)
        key = prompt_key(request.prompt)
        return self._script[key] if key in self._script else self._script["*"]


def _fitting(reply: str, candidates: Sequence[str]) -> str:
    scores = max((line for line in candidates if reply.startswith(line.strip())), key=len, default="")
    return scores + _MORE_SCORES.sub("", reply[len(scores.strip()) :], 1) if scores else reply


def _rewarded(key: str, reply: str) -> Completion:
    try:
        return Completion(key=key, texts=("",), finish_reasons=("stop",), reward=float(reply))
    except ValueError:
        return Completion.failed(key, f"the script's reply {reply!r:.100} is not a number; expected a reward")


def _limit(reply: str, sampling: Sampling) -> tuple[str, list[str], FinishReason]:
    stopped = sampling.cut_at_stop(reply)
    tokens = _TOKEN.findall(reply if stopped is None else stopped)
    if len(tokens) > sampling.max_tokens:
        return "".join(tokens[: sampling.max_tokens]), tokens[: sampling.max_tokens], "length"
    return reply if stopped is None else stopped, tokens, "stop"


def _certain(tokens: Sequence[str], wanted: int) -> tuple[TokenLogprobs, ...]:
    """Give each token probability 1."""
    return tuple(
        TokenLogprobs(token=token, logprob=0.0, candidates=((token, 0.0),) if wanted else ()) for token in tokens
    )
