"""The throughput engine: vLLM, on the GPU build or the CPU build.

Prompts are tokenised and truncated here, by the same code as in training and in the transformers engine, and replies
are decoded here too, so that both engines give the same results. vLLM provides continuous batching, prefix caching,
tensor and pipeline parallelism, quantised weights, LoRA adapters and grammars.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
import transformers
import vllm
from vllm import EngineArgs, RequestOutput, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput
from vllm.platforms import current_platform
from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS

from judgelm.engines.base import EngineOptions, thinking_policy
from judgelm.engines.candidate_search import FOLLOWED_MASS, CandidateSearch
from judgelm.engines.gguf import gguf_note
from judgelm.engines.model_files import eos_ids, identity_of, load_tokenizer, split_adapter
from judgelm.engines.request_preparation import prepare_request, refuse_images
from judgelm.engines.score_tree import ROOT
from judgelm.engines.transformers.sequences import decode_reply
from judgelm.engines.transformers.tree_scoring import CandidateTokenizer
from judgelm.engines.transformers.vision import Vision
from judgelm.engines.vllm.adapters import VllmAdapters
from judgelm.engines.vllm.backends import AsyncBackend, Backend, InProcessBackend, RefusedError
from judgelm.engines.vllm.engine_args import (
    batch_note,
    choose_dtype,
    device_count,
    engine_args,
    generation_config,
    has_vision,
    resolved_args,
)
from judgelm.engines.vllm.requests import RequestState, branch_sampling, reply_sampling, tokens_prompt
from judgelm.errors import EngineError, ModelError, first_line
from judgelm.prompts.chat_templates import NOT_ASKED, Thinking
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Completion, FinishReason, Request


class VllmEngine:
    """A model run by vLLM. Deterministic for greedy replies in float32; sampled ones repeat for the same seed.

    Args:
        backend: the running engine.
        arguments: its arguments.
        tokenizer: the model's fast tokenizer.
        identity: of the model, for the manifest.
        eos_ids: token ids that end a reply.
        followed_mass: share of the probability at which the search for candidates stops.
        vision: the processor of a vision-language model.
        notes: lines for the user on the choices made.
        thinking: the thinking settings.
    """

    supports_grammar = True

    def __init__(
        self,
        backend: Backend,
        arguments: EngineArgs,
        tokenizer: Any,
        *,
        identity: dict[str, Any],
        eos_ids: frozenset[int],
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
        self._eos_ids = eos_ids
        self.followed_mass = followed_mass
        self._vision = vision
        self.thinking = thinking
        self._truncator = Truncator(tokenizer, int(arguments.max_model_len or 0), vision, thinking.mode)
        self._candidates = CandidateTokenizer(tokenizer)
        self._adapters = VllmAdapters(backend, arguments, self._truncator)
        self._adapter: LoRARequest | None = None
        self._in_flight: dict[str, RequestState] = {}
        self._by_vllm_id: dict[str, RequestState] = {}
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
            eos_ids=eos_ids(generation_config(base, options), tokenizer),
            vision=Vision.load(base, options) if has_vision(base, options) else None,
            notes=tuple(note for note in (gguf_note(base), choice.note, batch_note(backend.config, options)) if note),
            thinking=thinking_policy(options, window=int(arguments.max_model_len or 0) or None, resumes=True),
        )
        try:
            if (weight := next(filter(None, backend.call_workers("first_weight_not_finite")), None)) is not None:
                raise EngineError(f"{base}: {weight} holds NaN or infinity; take another copy of the model")
            if adapter is not None:
                engine._adapter = engine._adapters.load(adapter)
            for other in options.adapters:
                engine.load_adapter(other)
        except EngineError as error:
            engine.close()
            raise ModelError(str(error)) from error
        return engine

    @property
    def supports_images(self) -> bool:
        """True if the model takes images."""
        return self._vision is not None

    @property
    def max_in_flight(self) -> int:
        """Twice the running sequences, so that a request is always queued when one finishes."""
        return 2 * int(self._arguments.max_num_seqs or 1)

    def submit(self, requests: Sequence[Request]) -> None:
        """Tokenise requests and pass them to vLLM, those that begin alike next to each other.

        Raises:
            EngineError: an adapter cannot be loaded, or the candidates have too many tokens.
            ModelError: an adapter has no weights, or unsafe ones.
        """
        fresh: list[RequestState] = []
        for request in requests:
            if self._vision is None:
                refuse_images(request, "its config has no vision part; choose a vision-language model")
            prepared = prepare_request(self._adapters.truncator(request.adapter), request)
            if isinstance(prepared, Completion):
                self._finished.append(prepared)
            else:
                fresh.append(RequestState(*prepared, self._search(*prepared)))
        for state in sorted(fresh, key=lambda state: state.tokenized.ids):  # the prefix cache keeps only recent prompts
            try:
                sampling = reply_sampling(state.request.sampling, state.search)
            except (ValueError, VLLMValidationError) as error:
                self._finished.append(Completion.failed(state.request.key, f"vLLM refuses: {first_line(error)}"))
                continue
            self._in_flight[state.request.key] = state
            self._counts["requests"] += 1
            self._add(state, ROOT, sampling)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Run until a request is finished or the time is up.

        Raises:
            EngineError: vLLM has died.
        """
        until = time.monotonic() + timeout_s
        while not self._finished and self._by_vllm_id and (left := until - time.monotonic()) > 0:
            for output in self._live_backend.collect(left):
                self._receive(output)
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """The unfinished replies to these requests; vLLM outputs several replies to one request only at the end."""
        states = {key: self._in_flight[key] for key in keys if key in self._in_flight}
        return {key: self._decode(state, state.output.outputs[0])[0] for key, state in states.items() if state.output}

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests, their branches too."""
        dropped = set(keys)
        for key in dropped & self._in_flight.keys():
            self._cancel(self._in_flight.pop(key))
        self._finished = [completion for completion in self._finished if completion.key not in dropped]

    def load_adapter(self, adapter: str) -> None:
        """Load a LoRA adapter for the requests that name it.

        Raises:
            EngineError, ModelError: as `submit`.
        """
        self._adapters.truncator(adapter)
        self._adapters.load(adapter)

    def unload_adapter(self, adapter: str) -> bool:
        """Free a LoRA adapter; False while requests name it."""
        if any(state.request.adapter == adapter for state in self._in_flight.values()):
            return False
        self._adapters.unload(adapter)
        return True

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
        """Notes, requests, requests for branches of candidates, prompt tokens, and those from the prefix cache."""
        return {"notes": [*self._notes, *self._truncator.notes], **self._counts}

    def close(self) -> None:
        """Drop all requests, end vLLM and its processes."""
        backend, self._backend = self._backend, None
        self._in_flight.clear()
        self._by_vllm_id.clear()
        if backend is not None:
            backend.close()

    @property
    def _live_backend(self) -> Backend:
        if self._backend is None:
            raise EngineError("the engine is closed")
        return self._backend

    def _search(self, request: Request, tokenized: TokenizedPrompt) -> CandidateSearch | None:
        if not request.candidates:
            return None
        tree = self._candidates.tree(tokenized.text, request.candidates)
        if len(tree.vocabulary) > MAX_LOGPROB_TOKEN_IDS:
            raise EngineError(
                f"the candidates have {len(tree.vocabulary)} different tokens, and vLLM takes {MAX_LOGPROB_TOKEN_IDS}; "
                "use --engine transformers, or a coarser scale"
            )
        return CandidateSearch(tree, self.followed_mass)

    def _add(self, state: RequestState, node: int, sampling: SamplingParams) -> None:
        """Have vLLM continue from a node of the tree; the root is the prompt's end."""
        vllm_id = str(next(self._serial))
        self._by_vllm_id[vllm_id] = state
        state.pending[vllm_id] = node
        path = state.begun if node == ROOT or state.search is None else state.search.tree.path_to(node)
        adapter = state.request.adapter
        prompt = tokens_prompt(state, path, truncator=self._adapters.truncator(adapter), vision=self._vision)
        lora = self._adapter if adapter is None else self._adapters.load(adapter)
        try:
            self._live_backend.add(vllm_id, prompt, sampling, lora)
        except RefusedError as error:
            self._receive((vllm_id, str(error)))

    def _receive(self, output: RequestOutput | tuple[str, str]) -> None:
        vllm_id = output[0] if isinstance(output, tuple) else output.request_id
        state = self._by_vllm_id.get(vllm_id)
        if state is None:
            return  # a branch of a failed request
        if not isinstance(output, tuple) and not output.finished:
            state.output = output
            return
        del self._by_vllm_id[vllm_id]
        node = state.pending.pop(vllm_id)
        if isinstance(output, tuple):
            state.failure = output[1] or "vLLM refused the request"
        else:
            self._record(state, node, output)
        if state.failure:
            self._cancel(state)
        elif node == ROOT and self._stopped_at_blank_line(state):
            self._go_on(state)
        elif not state.pending and state.search is not None:
            for open_node in state.search.open_nodes():
                self._add(state, open_node, branch_sampling(state.search, open_node))
                self._counts["branches"] += 1
        if not state.pending and self._in_flight.pop(state.request.key, None) is not None:
            self._finished.append(self._completion(state))

    def _record(self, state: RequestState, node: int, output: RequestOutput) -> None:
        self._counts["prompt_tokens"] += len(output.prompt_token_ids or ())
        self._counts["cached_prompt_tokens"] += output.num_cached_tokens or 0
        if node == ROOT:
            state.output = output
        reply = output.outputs[0]
        if reply.finish_reason not in ("stop", "length"):
            state.failure = f"vLLM ended the reply with {reply.finish_reason!r}"
        elif state.search is not None and not (node == ROOT and state.begun):
            logprobs = [{token: entry.logprob for token, entry in step.items()} for step in reply.logprobs or ()]
            state.search.add(node, list(reply.token_ids), logprobs)

    def _stopped_at_blank_line(self, state: RequestState) -> bool:
        """True if vLLM stopped at a blank stop string before the reply said anything; such a one ends no reply."""
        if state.output is None or len(state.output.outputs) != 1 or not state.request.sampling.blank_stops:
            return False
        reply = state.output.outputs[0]
        return isinstance(reply.stop_reason, str) and self._decode(state, reply)[1] is None

    def _go_on(self, state: RequestState) -> None:
        assert state.output is not None, "a reply that goes on has begun"
        state.begun += state.output.outputs[0].token_ids
        state.output = None
        sampling = state.request.sampling
        rest = replace(sampling, max_tokens=sampling.max_tokens - len(state.begun))
        self._add(state, ROOT, reply_sampling(rest, None))

    def _cancel(self, state: RequestState) -> None:
        for vllm_id in state.pending:
            del self._by_vllm_id[vllm_id]
        self._live_backend.abort(state.pending)
        state.pending.clear()

    def _completion(self, state: RequestState) -> Completion:
        request, tokenized = state.request, state.tokenized
        prompt: dict[str, Any] = {
            "prompt_tokens": len(tokenized.ids),
            "truncations": tokenized.truncations,
            "sanitized": tokenized.sanitized,
        }
        if state.output is None or state.failure:
            return Completion.failed(request.key, state.failure, **prompt)
        outputs = list(state.output.outputs)
        outputs *= request.sampling.n // max(1, len(outputs))
        replies = [self._decode(state, output) for output in outputs]
        return Completion(
            key=request.key,
            texts=tuple(text for text, _ in replies),
            finish_reasons=tuple(reason or "stop" for _, reason in replies),  # a fulfilled grammar ends a reply too
            candidate_logprobs=state.search.logprobs() if state.search else None,
            completion_tokens=sum(len(state.begun) + len(output.token_ids) for output in outputs),
            **prompt,
        )

    def _decode(self, state: RequestState, reply: CompletionOutput) -> tuple[str, FinishReason | None]:
        ids = [*state.begun, *reply.token_ids]
        text, reason = decode_reply(ids, state.request.sampling, self._tokenizer, self._eos_ids)
        return state.tokenized.opening + text, reason
