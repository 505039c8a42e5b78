"""The transformers engine: continuous batching without padding.

Each pass packs one row: the next token of every running reply, and new prompts up to the token budget. If memory runs
out, the budget is halved.
"""

import gc
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
import transformers
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from judgelm.engines.base import EngineOptions
from judgelm.engines.candidates import CandidateTokenizer
from judgelm.engines.grammars import GrammarCompiler
from judgelm.engines.preprocess import check_head, prepare_request, refuse_images
from judgelm.engines.transformers.batch import ImageFeatures, NewPrompt, PackedRow, begin_replies
from judgelm.engines.transformers.decode_blocks import DecodeBlocks
from judgelm.engines.transformers.kv_cache import kv_capacity
from judgelm.engines.transformers.layers import install_head
from judgelm.engines.transformers.loaded_model import LoadedModel, load, no_vision_reason
from judgelm.engines.transformers.lora import LoraAdapters
from judgelm.engines.transformers.pass_thread import PassThread, is_device_lost, is_out_of_memory
from judgelm.engines.transformers.prefix_cache import PrefixCache
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence, next_tokens
from judgelm.engines.transformers.states import StateRecorder
from judgelm.errors import EngineError
from judgelm.prompts.truncation import TokenizedPrompt
from judgelm.records import Completion, Request

_CPU_BATCH_TOKENS = 2048
_CUDA_BATCH_TOKENS = 8192
_MODEL = ("_loaded", "_adapters", "_states")
"""Attributes that refer to the model."""
_COMPILING_S = 0.02
"""Time to wait for grammars if there is nothing else to do."""


class TransformersEngine:
    """Runs a loaded model. Sampling with the same seed is reproducible."""

    gives_rewards = False

    def __init__(
        self, loaded: LoadedModel, *, max_num_batched_tokens: int | None = None, max_num_seqs: int = 256
    ) -> None:
        self._loaded = loaded
        self._device = torch.device(loaded.model.device)
        on_gpu = self._device.type == "cuda"
        self.max_num_batched_tokens = max_num_batched_tokens or (_CUDA_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS)
        self.max_num_seqs = max_num_seqs
        self.halvings = 0
        self._has_worked = False  # if the first pass fails, the model is not supported
        self.thinking = loaded.thinking
        self._adapters = LoraAdapters(loaded)
        self.supports_images = loaded.vision is not None
        self._images = None if loaded.vision is None else ImageFeatures(loaded.model, loaded.vision)
        self._candidates = CandidateTokenizer(loaded.tokenizer)
        self._head = install_head(loaded.model)
        self._states = StateRecorder(loaded.model)
        self.supports_grammar = isinstance(loaded.tokenizer, PreTrainedTokenizerFast) and not self.gives_rewards
        self._grammars = GrammarCompiler(partial(grammar_tokenizer, loaded))
        self._compiling: list[tuple[QueuedRequest, Future[LLMatcher]]] = []
        self._waiting: deque[QueuedRequest] = deque()
        self._finished: list[Completion] = []
        self._pass_thread = PassThread()
        self.kv_capacity = kv_capacity(loaded.model, self._device)
        self._prefix_cache = PrefixCache(self.kv_capacity // 8)
        self._decoding = DecodeBlocks(idle_tokens=self.kv_capacity // 16)

    @classmethod
    def load(cls, options: EngineOptions) -> "TransformersEngine":
        """Load the model and its adapters."""
        loaded = load(options)
        engine = cls(loaded, max_num_batched_tokens=options.max_num_batched_tokens, max_num_seqs=options.max_num_seqs)
        for adapter in options.adapters:
            engine.load_adapter(adapter)
        return engine

    @property
    def state_layers(self) -> int:
        """Number of layers whose states can be requested; 0 if the architecture is not supported."""
        return self._states.layers

    @property
    def max_in_flight(self) -> int:
        """See `Engine`."""
        return 2 * self.max_num_seqs

    def submit(self, requests: Sequence[Request]) -> None:
        """Tokenise and queue requests."""
        for request in requests:
            check_head(request, rewards=self.gives_rewards or (request.reward and self._loaded.head is not None))
            if request.reward and not self.gives_rewards:
                request = replace(request, states=(self._loaded.head_layer,))
            self._states.check(request.states)
            if self._loaded.vision is None:
                refuse_images(request, no_vision_reason(str(self._loaded.model.config.model_type)))
            prepared = prepare_request(self._adapters.truncator(request.adapter), request)
            if isinstance(prepared, Completion):
                self._finished.append(prepared)
                continue
            queued = self._queue_entry(*prepared)
            if (grammar := request.sampling.grammar) is None:
                self._enqueue(queued)
                continue
            self._compiling.append((queued, self._grammars.start(grammar)))

    def _enqueue(self, queued: QueuedRequest) -> None:
        if self._prefix_cache.has_continued(queued):
            self._waiting.appendleft(queued)  # start it before the cache drops the prompt that it continues
        else:
            self._waiting.append(queued)

    def _enqueue_compiled(self) -> None:
        if not (self._waiting or len(self._decoding)):
            wait([result for _, result in self._compiling], _COMPILING_S, FIRST_COMPLETED)
        compiling, self._compiling = self._compiling, []
        for queued, result in compiling:
            if not result.done():
                self._compiling.append((queued, result))
            elif (error := result.exception()) is not None:
                self._finished.append(queued.failed(str(error)))
            else:
                queued.matcher = result.result()
                self._enqueue(queued)

    def _queue_entry(self, request: Request, tokenized: TokenizedPrompt) -> QueuedRequest:
        tree = self._candidates.tree(tokenized.text, request.candidates) if request.candidates else None
        if tree is not None and self._head is not None:
            self._head.compute_exactly(tree.vocabulary)
        vision = self._loaded.vision
        if vision is None or not tokenized.images:
            return QueuedRequest(request, tokenized, tree)
        images = tuple(vision.process(image) for image in tokenized.images)
        last = max(position for position, token in enumerate(tokenized.ids) if token == vision.token_id)
        return QueuedRequest(request, tokenized, tree, images, last + 1)

    @torch.inference_mode()
    def collect(self, timeout_s: float) -> list[Completion]:
        """Run passes until a request finishes."""
        until = time.monotonic() + timeout_s
        while not self._finished and (self._waiting or len(self._decoding) or self._compiling):
            self._enqueue_compiled()
            if self._waiting or len(self._decoding):
                self._step()
            if time.monotonic() > until:
                break
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> dict[str, str]:
        """See `Engine`."""
        wanted = set(keys)
        return {
            sequence.parent.request.key: sequence.parent.tokenized.opening
            + self._loaded.tokenizer.decode(sequence.ids, skip_special_tokens=True)
            for sequence in self._decoding
            if sequence.index == 0 and sequence.parent.request.key in wanted
        }

    def abort(self, keys: Iterable[str]) -> None:
        """See `Engine`."""
        dropped = set(keys)
        self._compiling = [entry for entry in self._compiling if entry[0].request.key not in dropped]
        self._waiting = deque(queued for queued in self._waiting if queued.request.key not in dropped)
        self._decoding.discard(dropped)
        self._finished = [completion for completion in self._finished if completion.key not in dropped]

    def load_adapter(self, adapter: str) -> None:
        """See `HoldsAdapters`."""
        self._adapters.load(adapter)

    def describe(self) -> dict[str, Any]:
        """See `Engine`."""
        return {
            "engine": "transformers",
            "model": self._loaded.identity,
            "dtype": str(self._loaded.model.dtype).removeprefix("torch."),
            "device": str(self._device),
            "window": self._loaded.window,
            "quantization": self._loaded.quantization,
            **self.thinking.described(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            **({"head": "reward"} if self.gives_rewards else {}),
        }

    def stats(self) -> dict[str, Any]:
        """See `Engine`."""
        return {
            "notes": [*self._loaded.notes, *self._adapters.truncator(None).notes],
            "out_of_memory": self.halvings,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "reused_prompt_tokens": self._prefix_cache.reused_tokens,
        }

    def close(self) -> None:
        """Cancel all requests and release the model."""
        self._waiting.clear()
        self._compiling.clear()
        self._decoding.clear()
        self._prefix_cache.clear()
        self._images = self._head = None
        self.__dict__ = {name: value for name, value in vars(self).items() if name not in _MODEL}

    def _step(self) -> None:
        """Run a pass. A failed pass does not change any replies."""
        fresh = self._schedule()
        try:
            self._decoding.make_room()
            running = list(self._decoding)
            logits = self._pass_thread.run(self._forward, fresh, alone=len(running) + len(fresh) == 1)
            greedy = logits.argmax(-1).tolist()  # synchronises with the device, which trees and sampling also do
            begun = self._begin(fresh, logits[len(running) :], greedy[len(running) :])
            tokens = next_tokens(running, logits[: len(running)], greedy)
        except (RuntimeError, MemoryError, AssertionError, ValueError, LookupError) as error:
            if is_device_lost(error) or not (self._has_worked or is_out_of_memory(error)):
                raise EngineError(f"the forward pass failed: {error}") from error
            message, out_of_memory = str(error), is_out_of_memory(error)
        else:
            self._has_worked = True
            for sequence, token in zip(running, tokens, strict=True):
                sequence.append(token, self._loaded.tokenizer, self._loaded.eos_ids)
            for sequence in running + begun:
                if sequence.finish_reason is not None:
                    self._finish(sequence)
            return
        gc.collect()  # reference cycles keep the failed pass's tensors alive
        fresh_requests = [new.queued for new in fresh]
        self._decoding.discard({queued.request.key for queued in fresh_requests})
        if out_of_memory:
            self._shrink_batch(fresh_requests, message)
        else:
            self._isolate(fresh_requests, message)

    def _schedule(self) -> list[NewPrompt]:
        fresh: list[NewPrompt] = []
        tokens = sequences = len(self._decoding)
        reserved = self._decoding.tokens
        alone = any(sequence.parent.alone for sequence in self._decoding)
        while self._waiting:
            queued = self._waiting[0]
            n = queued.request.sampling.n
            room = queued.capacity * n
            prefix = self._prefix_cache.longest_prefix(queued, fresh)
            new = len(queued.ids) - prefix.tokens + queued.tree_nodes
            if (fresh or sequences) and (
                sequences + n > self.max_num_seqs
                or reserved + room > self.kv_capacity
                or alone
                or queued.alone
                or tokens + new > self.max_num_batched_tokens
            ):
                break
            tokens, reserved, sequences = tokens + new, reserved + room, sequences + n
            self._waiting.popleft()
            fresh.append(NewPrompt(queued, self._prefix_cache.new_kv(queued, prefix)))
            alone = queued.alone
        return sorted(fresh, key=lambda new: new.queued.request.adapter or "")

    def _forward(self, fresh: list[NewPrompt]) -> torch.Tensor:
        row = PackedRow.build(self._decoding.blocks, fresh, self._device)
        self._adapters.select(row.owners)
        begun = len(self._decoding)
        with self._states.recording(fresh, row.logit_places[begun : begun + len(fresh)]):
            if self._images is None or not any(new.queued.images for new in fresh):
                return self.run_pass(row)
            ids = torch.tensor([row.ids], device=self._device)
            return self.run_pass(row, self._images.embed(ids, fresh, start=begun))

    def run_pass(self, row: PackedRow, embeddings: torch.Tensor | None = None) -> torch.Tensor:
        """Run a pass and return logits of shape (places, vocabulary)."""
        places = torch.tensor(row.logit_places, device=self._device)
        ids = torch.tensor([row.ids], device=self._device) if embeddings is None else None
        output = self._run_model(row, input_ids=ids, inputs_embeds=embeddings, logits_to_keep=places)
        return cast(torch.Tensor, output.logits[0])

    def _run_model(self, row: PackedRow, **inputs: Any) -> Any:
        positions = torch.tensor([row.positions], device=self._device)
        return self._loaded.model(position_ids=positions, use_cache=False, segments=row.segments, **inputs)

    def _begin(self, fresh: list[NewPrompt], logits: torch.Tensor, greedy: list[int]) -> list[RunningSequence]:
        for new in fresh:
            new.kv.advance(new.new_tokens)
        replies = begin_replies(fresh, logits, greedy, self._loaded.tokenizer, self._loaded.eos_ids)
        for reply in replies:
            if reply.sequence.finish_reason is None:
                self._decoding.join(reply.sequence, reply.prompt.kv, reply.path)
        for new in fresh:
            self._prefix_cache.add(new.queued, new.kv)
        return [reply.sequence for reply in replies]

    def _finish(self, sequence: RunningSequence) -> None:
        if sequence in self._decoding:
            if sequence.parent.request.sampling.n == 1:
                self._prefix_cache.add_reply(sequence, self._decoding)
            self._decoding.leave(sequence)
        if (completion := sequence.parent.finish(sequence)) is not None:
            self._finished.append(self._with_reward(completion, sequence.parent.request))

    def _with_reward(self, completion: Completion, request: Request) -> Completion:
        head = self._loaded.head
        if head is None or completion.states is None or not request.reward:
            return completion
        return replace(completion, reward=float(head[request.reward_row].cpu().numpy() @ completion.states[-1]))

    def _isolate(self, fresh: list[QueuedRequest], message: str) -> None:
        running = list({id(sequence.parent): sequence.parent for sequence in self._decoding}.values())
        self._decoding.clear()
        self._prefix_cache.clear()
        requests = [*running, *fresh]
        if len(requests) == 1:
            self._finished.append(requests[0].failed(f"the forward pass failed: {message}"))
            return
        for queued in requests:
            queued.reset()
            queued.alone = True
        self._waiting.extendleft(reversed(requests))

    def _shrink_batch(self, fresh: list[QueuedRequest], message: str) -> None:
        self.halvings += 1
        self._decoding.free_idle()
        self._prefix_cache.clear()
        if self._images is not None:
            self._images.clear()
        oldest_first = sorted(self._decoding, key=lambda sequence: -len(sequence.ids))
        running = list({id(sequence.parent): sequence.parent for sequence in oldest_first}.values())
        if fresh and len(fresh) + len(running) > 1:
            total = sum(len(queued.ids) for queued in fresh) + len(self._decoding)
            self.max_num_batched_tokens = max(1, min(self.max_num_batched_tokens, total) // 2)
            self._waiting.extendleft(reversed(fresh))
        elif fresh:
            self._finished.append(fresh[0].failed(f"out of memory: {message}"))
        elif len(running) > 1:
            self.max_num_seqs = max(1, len(self._decoding) // 2)
            preempted = running[len(running) // 2 :]
            self._decoding.discard({queued.request.key for queued in preempted})
            for queued in preempted:
                queued.reset()
            self._waiting.extendleft(reversed(preempted))
        else:
            self._decoding.clear()
            self._finished += [parent.failed(f"out of memory: {message}") for parent in running]


def grammar_tokenizer(loaded: LoadedModel) -> LLTokenizer:
    """Build the token table for grammars, which takes about 2 s for 150,000 tokens."""
    vocabulary = max(len(loaded.tokenizer), int(loaded.model.config.get_text_config().vocab_size))
    return from_tokenizer(loaded.tokenizer, vocabulary, sorted(loaded.eos_ids))


class RewardEngine(TransformersEngine):
    """Runs a reward model, whose head maps the last token of each prompt to a number.

    The head runs in float32, because 16-bit rewards would produce ties.
    """

    gives_rewards = True

    def __init__(self, loaded: LoadedModel, **options: Any) -> None:
        super().__init__(loaded, **options)
        head = loaded.model.score
        self._score = getattr(head, "modules_to_save", {"default": head})["default"]  # when training an adapter
        self._weight = loaded.head
        self._pad_id = loaded.model.config.get_text_config().pad_token_id

    def load_adapter(self, adapter: str) -> None:
        """Reject the adapter, because reward adapters include the head."""
        raise EngineError(f"{adapter}: reward models cannot load adapters later; pass --adapter when loading the model")

    def _queue_entry(self, request: Request, tokenized: TokenizedPrompt) -> QueuedRequest:
        ids = list(tokenized.ids)
        while len(ids) > 1 and ids[-1] == self._pad_id:
            ids.pop()
        return super()._queue_entry(request, replace(tokenized, ids=ids))

    def run_pass(self, row: PackedRow, embeddings: torch.Tensor | None = None) -> torch.Tensor:
        """Run a pass and return rewards of shape (prompts, rows of the head)."""
        places = torch.tensor(row.logit_places, device=self._device)
        rewards: list[torch.Tensor] = []

        def compute(head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            weight = cast(torch.Tensor, head.weight if self._weight is None else self._weight)
            rewards.append(F.linear(inputs[0][0, places].float(), weight.float()))

        hook = self._score.register_forward_pre_hook(compute)  # sharded weights are gathered here
        try:
            self._run_model(row, input_ids=torch.tensor([row.ids], device=self._device))
        finally:
            hook.remove()
        return rewards[0]

    def _begin(self, fresh: list[NewPrompt], logits: torch.Tensor, greedy: list[int]) -> list[RunningSequence]:
        for new, rewards in zip(fresh, logits.tolist(), strict=True):
            reward = rewards[new.queued.request.reward_row]
            new.kv.advance(new.new_tokens)
            self._prefix_cache.add(new.queued, new.kv)
            self._finished.append(new.queued.rewarded(reward))
        return []
