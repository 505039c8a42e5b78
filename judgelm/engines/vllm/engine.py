"""The throughput engine: vLLM, on the GPU build or the CPU build alike.

Prompts are tokenised and fitted here, by the same code as in training and in the transformers engine, and replies are
read here too, so that both engines see and say the same. vLLM gives continuous batching, prefix caching, tensor and
pipeline parallelism, quantised weights, LoRA adapters and grammars.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import torch
import transformers
import vllm
from vllm import EngineArgs, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput
from vllm.platforms import current_platform
from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS

from judgelm.engines.adapter_files import check_weights
from judgelm.engines.base import EngineOptions, thinking_policy
from judgelm.engines.candidate_search import FOLLOWED_MASS, CandidateSearch
from judgelm.engines.model_files import eos_ids, first_line, identity_of, load_tokenizer, split_adapter
from judgelm.engines.request_preparation import prepare_request, refuse_images
from judgelm.engines.score_tree import ROOT
from judgelm.engines.transformers.sequences import decode_reply
from judgelm.engines.transformers.tree_scoring import CandidateTokenizer
from judgelm.engines.transformers.vision import Vision
from judgelm.engines.vllm.backends import AsyncBackend, Backend, InProcessBackend, RefusedError
from judgelm.engines.vllm.engine_args import (
    batch_note,
    choose_dtype,
    device_count,
    engine_args,
    generation_config,
    has_vision,
    max_adapters,
    resolved_args,
)
from judgelm.engines.vllm.prompts import tokens_prompt
from judgelm.engines.vllm.sampling import branch_sampling, reply_sampling
from judgelm.errors import EngineError, ModelError
from judgelm.prompts.thinking import NOT_ASKED, Thinking
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Completion, FinishReason, Request


class _InFlight:
    """A request under way: its reply as far as it is written, and the branches of its candidates' tree."""

    __slots__ = ("failure", "output", "pending", "request", "search", "tokenized")

    def __init__(self, request: Request, tokenized: TokenizedPrompt, search: CandidateSearch | None) -> None:
        self.request = request
        self.tokenized = tokenized
        self.search = search
        self.output: RequestOutput | None = None
        self.pending: dict[str, int] = {}
        self.failure = ""


class VllmEngine:
    """A model run by vLLM. Deterministic for greedy replies in float32; sampled ones repeat for the same seed.

    Args:
        backend: the running engine.
        arguments: what it was made with.
        tokenizer: the model's, fast.
        identity: of the model, for the manifest.
        stops: token ids that end a reply.
        followed_mass: share of the probability at which the search for candidates stops.
        vision: the processor of a vision-language model.
        notes: lines for the user on what was chosen.
        thinking: whether the model is asked to think.
    """

    supports_grammar = True

    def __init__(
        self,
        backend: Backend,
        arguments: EngineArgs,
        tokenizer: Any,
        *,
        identity: dict[str, Any],
        stops: frozenset[int],
        followed_mass: float = FOLLOWED_MASS,
        vision: Vision | None = None,
        notes: tuple[str, ...] = (),
        thinking: Thinking = NOT_ASKED,
    ) -> None:
        self._backend: Backend | None = backend
        self._settled = resolved_args(backend.config)
        self._dtype = str(backend.config.model_config.dtype).removeprefix("torch.")
        self._notes = notes
        self._arguments = arguments
        self._tokenizer = tokenizer
        self._identity = identity
        self._stops = stops
        self._followed_mass = followed_mass
        self._vision = vision
        self.thinking = thinking
        self._truncator = Truncator(tokenizer, int(arguments.max_model_len or 0), vision, thinking.mode)
        self._candidates = CandidateTokenizer(tokenizer)
        self._adapters: dict[str, LoRARequest] = {}
        self._adapter: LoRARequest | None = None
        self._in_hand: dict[str, _InFlight] = {}
        self._by_id: dict[str, _InFlight] = {}
        self._serial = count()
        self._finished: list[Completion] = []
        self._counts = Counter(requests=0, branches=0, prompt_tokens=0, cached_prompt_tokens=0)

    @classmethod
    def load(cls, options: EngineOptions) -> "VllmEngine":
        """Start vLLM: in this process on one device, with worker processes over several.

        Raises:
            ModelError: the model or its adapter cannot be loaded.
            ConfigError: an engine argument that vLLM does not have.
        """
        base, adapter = split_adapter(options)
        tokenizer = load_tokenizer(base, adapter, options)
        choice = choose_dtype(base, options)
        arguments = engine_args(base, adapter, tokenizer, options, dtype=choice.dtype)
        backend = InProcessBackend(arguments) if device_count(arguments) == 1 else AsyncBackend(arguments)
        engine = cls(
            backend,
            arguments,
            tokenizer,
            identity=identity_of(base, adapter, options),
            stops=eos_ids(generation_config(base, options), tokenizer),
            vision=Vision.load(base, options) if has_vision(base, options) else None,
            notes=tuple(note for note in (choice.note, batch_note(backend.config, options)) if note),
            thinking=thinking_policy(options, window=int(arguments.max_model_len or 0) or None, resumes=True),
        )
        if adapter is not None:
            try:
                engine._adapter = engine._lora(adapter)
            except EngineError as error:
                engine.close()
                raise ModelError(str(error)) from error
        return engine

    @property
    def supports_images(self) -> bool:
        """Whether the model takes images."""
        return self._vision is not None

    @property
    def max_in_flight(self) -> int:
        """Twice what runs at once, so that a request is always waiting where one ends."""
        return 2 * int(self._arguments.max_num_seqs or 1)

    def submit(self, requests: Sequence[Request]) -> None:
        """Tokenise requests and hand them to vLLM, those that begin alike next to each other.

        Raises:
            EngineError: an adapter that cannot be loaded, or a way of sampling that vLLM does not have.
            ModelError: an adapter without weights, or with unsafe ones.
        """
        fresh: list[_InFlight] = []
        for request in requests:
            if self._vision is None:
                refuse_images(request, "its config has no vision part; choose a vision-language model")
            admitted = prepare_request(self._truncator, request)
            if isinstance(admitted, Completion):
                self._finished.append(admitted)
            else:
                fresh.append(_InFlight(*admitted, self._search(*admitted)))
        for one in sorted(fresh, key=lambda one: one.tokenized.ids):  # the prefix cache forgets what is far apart
            self._in_hand[one.request.key] = one
            self._counts["requests"] += 1
            self._add(one, ROOT, reply_sampling(one.request.sampling, one.search))

    def collect(self, timeout_s: float) -> list[Completion]:
        """Run until a request is finished or the time is up.

        Raises:
            EngineError: vLLM is dead.
        """
        until = time.monotonic() + timeout_s
        while not self._finished and self._by_id and (left := until - time.monotonic()) > 0:
            for output in self._running.collect(left):
                self._receive(output)
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """What the replies to these requests are so far; of several to one request nothing is known before the end."""
        under_way = ((key, self._in_hand[key]) for key in keys if key in self._in_hand)
        return {key: self._read(one, one.output.outputs[0])[0] for key, one in under_way if one.output is not None}

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests, their branches too."""
        dropped = set(keys)
        for key in dropped & self._in_hand.keys():
            self._forget(self._in_hand.pop(key))
        self._finished = [completion for completion in self._finished if completion.key not in dropped]

    def describe(self) -> dict[str, Any]:
        """Model, numeric format, device, vLLM's arguments and library versions."""
        arguments = self._arguments
        return {
            "engine": "vllm",
            "model": self._identity,
            "dtype": self._dtype,
            "device": current_platform.device_type,
            "window": self._truncator.window,
            "quantization": arguments.quantization,
            "engine_args": self._settled,
            **self.thinking.described(),
            "versions": {
                "vllm": vllm.__version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }

    def stats(self) -> dict[str, Any]:
        """Requests, those for branches of candidates, prompt tokens, how many came from the prefix cache, and notes."""
        return {"notes": list(self._notes), **self._counts}

    def close(self) -> None:
        """Drop what is in hand, end vLLM and its processes."""
        backend, self._backend = self._backend, None
        self._in_hand.clear()
        self._by_id.clear()
        if backend is not None:
            backend.close()

    @property
    def _running(self) -> Backend:
        if self._backend is None:
            raise EngineError("the engine is closed")
        return self._backend

    def _search(self, request: Request, tokenized: TokenizedPrompt) -> CandidateSearch | None:
        if not request.candidates:
            return None
        tree = self._candidates.tree(tokenized.text, request.candidates)
        if len(tree.vocabulary) > MAX_LOGPROB_TOKEN_IDS:
            raise EngineError(
                f"the candidates have {len(tree.vocabulary)} different tokens and vLLM takes {MAX_LOGPROB_TOKEN_IDS}; "
                "use --engine transformers, or a coarser scale"
            )
        return CandidateSearch(tree, self._followed_mass)

    def _add(self, one: _InFlight, node: int, sampling: SamplingParams) -> None:
        """Ask vLLM to go on from a node of the tree; the root is the prompt's end."""
        number = str(next(self._serial))
        self._by_id[number] = one
        one.pending[number] = node
        behind = [] if node == ROOT or one.search is None else one.search.tree.way_to(node)
        chat = one.request.prompt.chat
        prompt = tokens_prompt(one.tokenized, behind, chat=chat, truncator=self._truncator, vision=self._vision)
        adapter = self._adapter if one.request.adapter is None else self._lora(one.request.adapter)
        try:
            self._running.add(number, prompt, sampling, adapter)
        except RefusedError as error:
            self._receive((number, str(error)))

    def _receive(self, output: RequestOutput | tuple[str, str]) -> None:
        number = output[0] if isinstance(output, tuple) else output.request_id
        one = self._by_id.get(number)
        if one is None:
            return  # a branch beside one that failed
        if not isinstance(output, tuple) and not output.finished:
            one.output = output
            return
        del self._by_id[number]
        node = one.pending.pop(number)
        if isinstance(output, tuple):
            one.failure = output[1] or "vLLM refused the request"
        else:
            self._learn(one, node, output)
        if one.failure:
            self._forget(one)
        elif not one.pending and one.search is not None:
            for open_node in one.search.open_nodes():
                self._add(one, open_node, branch_sampling(one.search, open_node))
                self._counts["branches"] += 1
        if not one.pending and self._in_hand.pop(one.request.key, None) is not None:
            self._finished.append(self._completion(one))

    def _learn(self, one: _InFlight, node: int, output: RequestOutput) -> None:
        self._counts["prompt_tokens"] += len(output.prompt_token_ids or ())
        self._counts["cached_prompt_tokens"] += output.num_cached_tokens or 0
        if node == ROOT:
            one.output = output
        reply = output.outputs[0]
        if reply.finish_reason not in ("stop", "length"):
            one.failure = f"vLLM ended the reply with {reply.finish_reason!r}"
        elif one.search is not None:
            places = [{token: found.logprob for token, found in place.items()} for place in reply.logprobs or ()]
            one.search.learn(node, list(reply.token_ids), places)

    def _forget(self, one: _InFlight) -> None:
        for number in one.pending:
            del self._by_id[number]
        self._running.abort(one.pending)
        one.pending.clear()

    def _completion(self, one: _InFlight) -> Completion:
        request, tokenized = one.request, one.tokenized
        texts: list[str] = []
        reasons: list[FinishReason] = ["error"] if one.output is None or one.failure else []
        tokens = 0
        replies = list(one.output.outputs) if one.output is not None and not one.failure else []
        for reply in replies * (request.sampling.n // max(1, len(replies))):
            text, reason = self._read(one, reply)
            texts.append(text)
            reasons.append(reason or "stop")  # a grammar that is fulfilled ends a reply too
            tokens += len(reply.token_ids)
        return Completion(
            key=request.key,
            texts=tuple(texts),
            finish_reasons=tuple(reasons),
            candidate_logprobs=one.search.logprobs() if one.search and not one.failure else None,
            prompt_tokens=len(tokenized.ids),
            completion_tokens=tokens,
            truncations=tokenized.truncations,
            sanitized=tokenized.sanitized,
            error=one.failure,
        )

    def _read(self, one: _InFlight, reply: CompletionOutput) -> tuple[str, FinishReason | None]:
        text, reason = decode_reply(list(reply.token_ids), one.request.sampling, self._tokenizer, self._stops)
        return one.tokenized.opening + text, reason

    def _lora(self, adapter: str) -> LoRARequest:
        if adapter not in self._adapters:
            if not self._arguments.enable_lora:
                raise EngineError(f"adapter {adapter}: load the engine with --engine-arg enable_lora=true")
            check_weights(adapter)
            most = max_adapters(self._arguments)
            if most is not None and len(self._adapters) >= most:
                raise EngineError(
                    f"adapter {adapter}: on a CPU this engine has room for {most}; load it with "
                    f"--engine-arg max_loras={most + 1}"
                )
            lora = LoRARequest(adapter, len(self._adapters) + 1, adapter)
            try:
                self._running.load_adapter(lora)
            except Exception as error:  # whatever the worker that reads it raises
                raise EngineError(f"{adapter}: vLLM cannot load the adapter: {first_line(error)}") from error
            self._adapters[adapter] = lora
        return self._adapters[adapter]
