"""The vLLM engine, for GPUs and CPUs.

It tokenises and decodes like the transformers engine, so that both return the same results.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
import transformers
import vllm
from transformers import GenerationConfig
from vllm import PoolingParams, RequestOutput, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput
from vllm.platforms import current_platform
from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS, RequestOutputKind, StructuredOutputsParams

from judgelm.engines.base import EngineOptions
from judgelm.engines.candidates import FOLLOWED_MASS, ROOT, CandidateSearch, CandidateTokenizer
from judgelm.engines.gguf.checkpoint import gguf_note
from judgelm.engines.grammars import mismatch, normalized, refusal
from judgelm.engines.images import Vision
from judgelm.engines.model_files import eos_ids, identity_of, load_config, load_tokenizer, split_adapter
from judgelm.engines.preprocess import check_head, decode_reply, prepare_request, refuse_images, thinking_policy
from judgelm.engines.token_logprobs import LogprobStep, reply_logprobs
from judgelm.engines.vllm.adapters import VllmAdapters
from judgelm.engines.vllm.arguments import batch_note, choose_dtype, device_count, engine_args, resolved_args
from judgelm.engines.vllm.backends import AsyncBackend, Backend, InProcessBackend, PromptRefusedError, VllmSampling
from judgelm.errors import ConfigError, EngineError, ModelError, first_line
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Completion, FinishReason, Grammar, Request, Sampling, TokenLogprobs


@dataclass(slots=True, eq=False)
class RequestState:
    """A request in flight.

    Attributes:
        pending: the tree node for each unfinished vLLM request.
        begun: token ids generated before the reply was continued after a blank line.
        begun_steps: log-probabilities of these tokens, if requested.
    """

    request: Request
    tokenized: TokenizedPrompt
    search: CandidateSearch | None
    output: RequestOutput | None = None
    pending: dict[str, int] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    begun_steps: list[LogprobStep] = field(default_factory=list)
    failure: str = ""
    reward: float | None = None


def tokens_prompt(
    state: RequestState, continuation: Sequence[int], *, truncator: Truncator, vision: Vision | None
) -> TokensPrompt:
    """Build vLLM's prompt, including the start of a reply. vLLM inserts the image tokens."""
    tokenized = state.tokenized
    if vision is None or not tokenized.images:
        return TokensPrompt(prompt_token_ids=[*tokenized.ids, *continuation])
    images = [vision.process(image) for image in tokenized.images]
    text, rest = "", tokenized.text
    for image in images:
        before, _, rest = rest.partition(image.text)
        text += before + vision.placeholder
    return TokensPrompt(
        prompt_token_ids=[*truncator.encode(text + rest, chat=state.request.prompt.chat), *continuation],
        multi_modal_data={"image": [image.picture for image in images]},
    )


def _generation_config(base: str, options: EngineOptions) -> Any:
    try:
        return GenerationConfig.from_pretrained(base, revision=options.revision or "main")
    except OSError:
        return None


def _structured(grammar: Grammar | None) -> StructuredOutputsParams | None:
    if grammar is None:
        return None
    text = normalized(grammar, one_line=True).text
    return StructuredOutputsParams(**{"regex" if grammar.kind == "regex" else "json": text})


def _steps(reply: CompletionOutput, wanted: int) -> Iterator[LogprobStep]:
    for token, known in zip(reply.token_ids, reply.logprobs or (), strict=False):
        possible = [(each, entry.logprob) for each, entry in known.items() if entry.logprob > -math.inf]
        ranked = sorted(possible, key=lambda pair: -pair[1])
        yield LogprobStep(token, known[token].logprob, tuple(ranked[:wanted]))


def reply_sampling(sampling: Sampling, search: CandidateSearch | None) -> SamplingParams:
    """Build sampling parameters for a reply."""
    n = sampling.n if sampling.temperature > 0 else 1  # vLLM rejects n > 1 for greedy replies, which are identical
    # multiple replies cannot be restarted after an empty line, so they are cut when decoded
    stop = [mark for mark in sampling.stop if n == 1 or not mark.isspace()]
    return SamplingParams(
        n=n,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=max(sampling.top_p, 1e-6),  # vLLM rejects 0
        top_k=sampling.top_k,
        seed=sampling.seed if sampling.temperature > 0 else None,
        stop=stop or None,
        include_stop_str_in_output=sampling.include_stop,
        structured_outputs=_structured(sampling.grammar),
        logprobs=sampling.logprobs if search is None else None,  # vLLM does not combine them
        logprob_token_ids=list(search.tree.vocabulary) if search else None,
        output_kind=RequestOutputKind.CUMULATIVE if n == 1 else RequestOutputKind.FINAL_ONLY,
    )


def branch_sampling(search: CandidateSearch, node: int) -> SamplingParams:
    """Build sampling parameters for a branch."""
    return SamplingParams(
        max_tokens=search.tree.depth_below[node],
        temperature=0.0,
        detokenize=False,
        logprob_token_ids=list(search.tree.vocabulary),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


class VllmEngine:
    """Runs a model with vLLM. Sampling with the same seed is reproducible."""

    supports_grammar = True
    gives_rewards = False

    def __init__(self, options: EngineOptions) -> None:
        base, adapter = split_adapter(options)
        self._tokenizer = load_tokenizer(base, adapter, options)
        choice = choose_dtype(base, options)
        arguments = self._arguments = engine_args(base, adapter, self._tokenizer, options, dtype=choice.dtype)
        self._identity = identity_of(base, adapter, options)
        self._eos_ids = eos_ids(_generation_config(base, options), self._tokenizer)
        has_vision = getattr(load_config(base, options), "vision_config", None) is not None
        self._vision = Vision.load(base, options) if has_vision else None
        self.supports_images = has_vision
        self.max_in_flight = 2 * int(arguments.max_num_seqs or 1)  # large enough to keep requests queued
        window = int(arguments.max_model_len or 0)
        self.thinking = thinking_policy(options, window=window or None, resumes=True)
        self._truncator = Truncator(self._tokenizer, window, self._vision, self.thinking.mode)
        self._candidates = CandidateTokenizer(self._tokenizer)
        self.followed_mass = FOLLOWED_MASS
        self._in_flight: dict[str, RequestState] = {}
        self._by_vllm_id: dict[str, RequestState] = {}
        self._serial = count()
        self._finished: list[Completion] = []
        self._counts = Counter(requests=0, branches=0, prompt_tokens=0, cached_prompt_tokens=0)
        backend = InProcessBackend(arguments) if device_count(arguments) == 1 else AsyncBackend(arguments)
        self._backend: Backend | None = backend
        self._notes = [note for note in (gguf_note(base), choice.note, batch_note(backend.config, options)) if note]
        self._settled = resolved_args(backend.config)
        self._dtype = str(backend.config.model_config.dtype).removeprefix("torch.")
        self._adapters = VllmAdapters(backend, arguments, self._truncator)
        self._adapter: LoRARequest | None = None

    @classmethod
    def load(cls, options: EngineOptions) -> "VllmEngine":
        """Start vLLM, check the weights, and load adapters."""
        engine = cls(options)
        base, adapter = engine._identity["path"], engine._identity.get("adapter")
        try:
            finite = engine._live_backend.call_workers("first_weight_not_finite")
            if (weight := next(filter(None, finite), None)) is not None:
                raise EngineError(f"{base}: {weight} contains NaN or infinity; use another copy of the model")
            if adapter is not None:
                engine._adapter = engine._adapters.load(adapter)
            for other in options.adapters:
                engine.load_adapter(other)
        except EngineError as error:
            engine.close()
            raise ModelError(str(error)) from error
        return engine

    def submit(self, requests: Sequence[Request]) -> None:
        """Tokenise requests and send them to vLLM, sorted by token ids."""
        fresh: list[RequestState] = []
        for request in requests:
            check_head(request, rewards=self.gives_rewards)
            if self._vision is None:
                refuse_images(request, "its config has no vision_config; use a vision-language model")
            prepared = prepare_request(self._adapters.truncator(request.adapter), request)
            if isinstance(prepared, Completion):
                self._finished.append(prepared)
            elif why := refusal(request.sampling):
                self._finished.append(Completion.failed(request.key, why))
            else:
                fresh.append(RequestState(*prepared, self._search(*prepared)))
        for state in sorted(fresh, key=lambda state: state.tokenized.ids):  # the prefix cache only keeps recent prompts
            try:
                sampling = reply_sampling(state.request.sampling, state.search)
            except (ValueError, VLLMValidationError) as error:
                failed = Completion.failed(state.request.key, f"vLLM rejected the request: {first_line(error)}")
                self._finished.append(failed)
                continue
            self._in_flight[state.request.key] = state
            self._counts["requests"] += 1
            self._add(state, ROOT, sampling)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Run until a request finishes or the timeout expires."""
        until = time.monotonic() + timeout_s
        while not self._finished and self._by_vllm_id and (left := until - time.monotonic()) > 0:
            for output in self._live_backend.collect(left):
                self._receive(output)
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """See `Engine`. Only supports requests for a single reply."""
        states = {key: self._in_flight[key] for key in keys if key in self._in_flight}
        return {key: self._decode(state, state.output.outputs[0])[0] for key, state in states.items() if state.output}

    def abort(self, keys: Iterable[str]) -> None:
        """Cancel requests and their branches."""
        dropped = set(keys)
        for key in dropped & self._in_flight.keys():
            self._cancel(self._in_flight.pop(key))
        self._finished = [completion for completion in self._finished if completion.key not in dropped]

    def load_adapter(self, adapter: str) -> None:
        """See `HoldsAdapters`."""
        self._adapters.truncator(adapter)
        self._adapters.load(adapter)

    def describe(self) -> dict[str, Any]:
        """See `Engine`."""
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
            "versions": {module.__name__: module.__version__ for module in (vllm, torch, transformers)},
            **({"head": "reward"} if self.gives_rewards else {}),
        }

    def stats(self) -> dict[str, Any]:
        """See `Engine`."""
        return {"notes": [*self._notes, *self._truncator.notes], **self._counts}

    def close(self) -> None:
        """Cancel all requests, and stop vLLM and its processes."""
        backend, self._backend = self._backend, None
        self._in_flight.clear()
        self._by_vllm_id.clear()
        if backend is not None:
            backend.close()

    @property
    def _live_backend(self) -> Backend:
        if self._backend is None:
            raise EngineError("the vllm engine is closed; load it again")
        return self._backend

    def _search(self, request: Request, tokenized: TokenizedPrompt) -> CandidateSearch | None:
        if not request.candidates:
            return None
        tree = self._candidates.tree(tokenized.text, request.candidates)
        if len(tree.vocabulary) > MAX_LOGPROB_TOKEN_IDS:
            finding = f"the candidates have {len(tree.vocabulary)} different tokens (vLLM's maximum is "
            way_out = "use --engine transformers, or a coarser scale"
            raise EngineError(f"{finding}{MAX_LOGPROB_TOKEN_IDS}); {way_out}")
        return CandidateSearch(tree, self.followed_mass)

    def _add(self, state: RequestState, node: int, sampling: VllmSampling) -> None:
        vllm_id = str(next(self._serial))
        self._by_vllm_id[vllm_id] = state
        state.pending[vllm_id] = node
        path = state.begun if node == ROOT or state.search is None else state.search.tree.path_to(node)
        adapter = state.request.adapter
        prompt = tokens_prompt(state, path, truncator=self._adapters.truncator(adapter), vision=self._vision)
        lora = self._adapter if adapter is None else self._adapters.load(adapter)
        try:
            self._live_backend.add(vllm_id, prompt, sampling, lora)
        except PromptRefusedError as error:
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
            state.failure = output[1] or "vLLM rejected the request"
        else:
            self._counts["prompt_tokens"] += len(output.prompt_token_ids or ())
            self._counts["cached_prompt_tokens"] += output.num_cached_tokens or 0
            self._record(state, node, output)
        if state.failure:
            self._cancel(state)
        elif node == ROOT and self._stopped_at_blank_line(state):
            self._continue(state)
        elif not state.pending and state.search is not None:
            for open_node in state.search.open_nodes():
                self._add(state, open_node, branch_sampling(state.search, open_node))
                self._counts["branches"] += 1
        if not state.pending and self._in_flight.pop(state.request.key, None) is not None:
            self._finished.append(self._completion(state))

    def _record(self, state: RequestState, node: int, output: RequestOutput) -> None:
        if node == ROOT:
            state.output = output
        reply = output.outputs[0]
        if reply.finish_reason not in ("stop", "length"):
            state.failure = f"vLLM ended the reply with {reply.finish_reason!r}"
        elif state.search is not None and not (node == ROOT and state.begun):
            logprobs = [{token: entry.logprob for token, entry in step.items()} for step in reply.logprobs or ()]
            state.search.add(node, list(reply.token_ids), logprobs)

    def _stopped_at_blank_line(self, state: RequestState) -> bool:
        """Return True if a blank line stopped the reply before its end."""
        if state.output is None or len(state.output.outputs) != 1 or not state.request.sampling.blank_stops:
            return False
        reply = state.output.outputs[0]
        return isinstance(reply.stop_reason, str) and self._decode(state, reply)[1] is None

    def _continue(self, state: RequestState) -> None:
        assert state.output is not None, "the reply has begun"
        state.begun += state.output.outputs[0].token_ids
        state.begun_steps += _steps(state.output.outputs[0], state.request.sampling.logprobs or 0)
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
        begin = len(tokenized.opening)
        if failure := next(filter(None, (mismatch(request.sampling, text[begin:], why) for text, why in replies)), ""):
            return Completion.failed(request.key, failure, **prompt)
        return Completion(
            key=request.key,
            texts=tuple(text for text, _ in replies),
            finish_reasons=tuple(reason or "stop" for _, reason in replies),  # None means that the grammar is complete
            candidate_logprobs=state.search.logprobs() if state.search else None,
            logprobs=self._logprobs(state, outputs, [text[begin:] for text, _ in replies]),
            completion_tokens=sum(len(state.begun) + len(output.token_ids) for output in outputs),
            **prompt,
        )

    def _logprobs(
        self, state: RequestState, outputs: Sequence[CompletionOutput], texts: Sequence[str]
    ) -> tuple[tuple[TokenLogprobs, ...], ...] | None:
        wanted = state.request.sampling.logprobs
        if wanted is None or state.search is not None:
            return None
        steps = ([*state.begun_steps, *_steps(output, wanted)] for output in outputs)
        return tuple(reply_logprobs(each, text, self._tokenizer) for each, text in zip(steps, texts, strict=True))

    def _decode(self, state: RequestState, reply: CompletionOutput) -> tuple[str, FinishReason | None]:
        ids = [*state.begun, *reply.token_ids]
        text, reason = decode_reply(ids, state.request.sampling, self._tokenizer, self._eos_ids)
        return state.tokenized.opening + text, reason


class VllmRewardEngine(VllmEngine):
    """Runs a reward model with vLLM's pooling runner."""

    supports_grammar = False
    gives_rewards = True

    def __init__(self, options: EngineOptions) -> None:
        base, adapter = split_adapter(options)
        if adapter is not None or options.adapters:
            way_out = "merge the adapter (train/merge_lora.py), or use --engine transformers"
            raise ConfigError(f"{adapter or options.adapters[0]}: vLLM does not support reward adapters; {way_out}")
        self._pad_id = load_config(base, options).get_text_config().pad_token_id
        super().__init__(replace(options, engine_args={"runner": "pooling", **options.engine_args}))

    def _add(self, state: RequestState, node: int, sampling: VllmSampling) -> None:
        while len(state.tokenized.ids) > 1 and state.tokenized.ids[-1] == self._pad_id:
            state.tokenized = replace(state.tokenized, ids=state.tokenized.ids[:-1])
        super()._add(state, node, PoolingParams(task="classify", use_activation=False))

    def _record(self, state: RequestState, node: int, output: Any) -> None:
        state.reward = float(output.outputs.data.item())

    def _completion(self, state: RequestState) -> Completion:
        ended = super()._completion(state)
        if state.reward is None:
            return ended
        return replace(ended, texts=("",), finish_reasons=("stop",), reward=state.reward, error="")
