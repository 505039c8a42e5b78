"""The embedded engine: a transformers model, continuous batching, no padding.

Every forward pass takes the next token of all replies under way together with as many new prompts as the token budget
allows, packed into one row (see `packed_attention`). A reply that ends makes room at once. In float32 a greedy reply
does not depend on what else was in its passes. When memory runs out, the budget is halved and the pass repeated.
"""

import gc
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import transformers

from judgelm.engines.base import EngineOptions
from judgelm.engines.request_preparation import prepare_request, refuse_images
from judgelm.engines.score_tree import ScoreTree
from judgelm.engines.transformers.image_features import ImageFeatures
from judgelm.engines.transformers.loading import LoadedModel, load, no_vision_reason
from judgelm.engines.transformers.memory import is_out_of_memory, kv_capacity
from judgelm.engines.transformers.packed_attention import Segment
from judgelm.engines.transformers.prefix_cache import MIN_SHARED_TOKENS, CachedPrefix, PrefixCache, shared_tokens
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence, sample_token
from judgelm.engines.transformers.tree_scoring import CandidateTokenizer, tree_inputs, tree_logprobs
from judgelm.errors import EngineError
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Completion, Request

_CPU_BATCH_TOKENS = 1024
_CUDA_BATCH_TOKENS = 8192
_LOOK_AHEAD = 32


class TransformersEngine:
    """Runs a loaded model. Deterministic for greedy replies; sampled ones repeat for the same seed.

    Args:
        loaded: model and tokenizer.
        max_num_batched_tokens: most tokens in a pass (one prompt may be longer); None chooses by device.
        max_num_seqs: most replies under way at once.
    """

    supports_grammar = False

    def __init__(
        self, loaded: LoadedModel, *, max_num_batched_tokens: int | None = None, max_num_seqs: int = 256
    ) -> None:
        self._loaded = loaded
        self._notes = loaded.notes
        self._device = torch.device(loaded.model.device)
        default = _CUDA_BATCH_TOKENS if self._device.type == "cuda" else _CPU_BATCH_TOKENS
        self.max_num_batched_tokens = max_num_batched_tokens or default
        self.max_num_seqs = max_num_seqs
        self.halvings = 0
        self.thinking = loaded.thinking
        self._truncator = Truncator(loaded.tokenizer, loaded.window, loaded.vision, loaded.thinking.asked)
        self._images = None if loaded.vision is None else ImageFeatures(loaded.model, loaded.vision)
        self._candidates = CandidateTokenizer(loaded.tokenizer)
        self._waiting: deque[QueuedRequest] = deque()
        self._running: list[RunningSequence] = []
        self._finished: list[Completion] = []
        self._kv_capacity = kv_capacity(loaded.model, self._device)
        self._prefix_cache = PrefixCache(self._kv_capacity // 8)

    @classmethod
    def load(cls, options: EngineOptions) -> "TransformersEngine":
        """Load the model that the options name.

        Raises:
            ModelError: it cannot be loaded.
        """
        loaded = load(options)
        return cls(loaded, max_num_batched_tokens=options.max_num_batched_tokens, max_num_seqs=options.max_num_seqs)

    @property
    def supports_images(self) -> bool:
        """Whether the model takes images."""
        return self._loaded.vision is not None

    @property
    def max_in_flight(self) -> int:
        """Twice what runs at once, so that the next prompts are tokenised before room is made."""
        return 2 * self.max_num_seqs

    def submit(self, requests: Sequence[Request]) -> None:
        """Tokenise requests and queue them; a prompt that cannot fit is finished at once.

        Raises:
            EngineError: a request asks for a grammar, for no reply at all, or for images to be seen by a model of text.
        """
        for request in requests:
            _check(request)
            if self._loaded.vision is None:
                refuse_images(request, no_vision_reason(str(self._loaded.model.config.model_type)))
            admitted = prepare_request(self._truncator, request)
            if isinstance(admitted, Completion):
                self._finished.append(admitted)
                continue
            request, tokenized = admitted
            tree = self._candidates.tree(tokenized.text, request.candidates) if request.candidates else None
            waiting = self._queued(request, tokenized, tree)
            if self._prefix_cache.goes_on(waiting):
                self._waiting.appendleft(waiting)  # before what it goes on from is forgotten
            else:
                self._waiting.append(waiting)

    def _queued(self, request: Request, tokenized: TokenizedPrompt, tree: ScoreTree | None) -> QueuedRequest:
        """The request with its images as the model takes them."""
        vision = self._loaded.vision
        if vision is None or not tokenized.images:
            return QueuedRequest(request, tokenized, tree)
        seen = tuple(vision.see(image) for image in tokenized.images)
        last = max(place for place, token in enumerate(tokenized.ids) if token == vision.token_id)
        return QueuedRequest(request, tokenized, tree, seen, last + 1)

    @torch.inference_mode()
    def collect(self, timeout_s: float) -> list[Completion]:
        """Run passes until a request is finished or the time is up."""
        until = time.monotonic() + timeout_s
        while not self._finished and (self._waiting or self._running):
            self._step()
            if time.monotonic() > until:
                break
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> dict[str, str]:
        """What the first replies to these requests are so far."""
        wanted = set(keys)
        return {
            reply.source.request.key: reply.source.tokenized.opening
            + self._loaded.tokenizer.decode(reply.ids, skip_special_tokens=True)
            for reply in self._running
            if reply.number == 0 and reply.source.request.key in wanted
        }

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests."""
        dropped = set(keys)
        self._waiting = deque(one for one in self._waiting if one.request.key not in dropped)
        self._running = [reply for reply in self._running if reply.source.request.key not in dropped]
        self._finished = [completion for completion in self._finished if completion.key not in dropped]

    def describe(self) -> dict[str, Any]:
        """Model, numeric format, device and library versions."""
        return {
            "engine": "transformers",
            "model": self._loaded.identity,
            "dtype": str(self._loaded.model.dtype).removeprefix("torch."),
            "device": str(self._device),
            "window": self._loaded.window,
            "quantization": self._loaded.quantization,
            **self.thinking.described(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    def stats(self) -> dict[str, Any]:
        """How often memory was short, the pass that fitted, prompt tokens that were not read again, and notes."""
        return {
            "notes": list(self._notes),
            "out_of_memory": self.halvings,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "reused_prompt_tokens": self._prefix_cache.reused_tokens,
        }

    def close(self) -> None:
        """Drop what is in hand, and the model."""
        self._waiting.clear()
        self._running.clear()
        self._prefix_cache.clear()
        self._images = None
        self.__dict__.pop("_loaded", None)

    def _step(self) -> None:
        """One pass; on out-of-memory nothing has changed but the budget, which is halved."""
        admitted = self._admit()
        try:
            fresh = [
                RunningSequence(waiting, self._prefix_cache.resume(waiting, known), 0) for waiting, known in admitted
            ]
            logits = self._forward(fresh)
            for reply in fresh:
                reply.kv.advance(len(reply.source.tokenized.ids) - reply.kv.length)
            self._score_trees(fresh, logits[len(self._running) :])
            begun = [reply.branches() for reply in fresh]
            for reply in fresh:
                self._prefix_cache.keep(reply)
        except (torch.OutOfMemoryError, RuntimeError, AssertionError) as error:
            if not is_out_of_memory(error):
                raise EngineError(f"the forward pass failed: {error}") from error
            message = str(error)
        else:
            for reply in self._running:
                reply.kv.advance(1)
            self._extend([[reply] for reply in self._running] + begun, logits)
            return
        gc.collect()  # the failed pass's frames stand in reference cycles and would hold its tensors
        self._shrink_batch([waiting for waiting, _ in admitted], message)

    def _admit(self) -> list[tuple[QueuedRequest, CachedPrefix]]:
        """New prompts for this pass, with what is known of them, within the budgets of tokens, sequences and memory.

        A prompt that has much in common with another of this pass waits for the next, when that is known.
        """
        fresh: list[tuple[QueuedRequest, CachedPrefix]] = []
        passed_over: list[QueuedRequest] = []
        tokens = len(self._running)
        stored = sum(reply.kv.capacity for reply in self._running)
        sequences = len(self._running)
        while self._waiting and len(passed_over) < _LOOK_AHEAD:
            waiting = self._waiting[0]
            busy = bool(fresh or self._running)
            room = waiting.capacity * waiting.request.sampling.n
            replies = waiting.request.sampling.n
            if busy and (sequences + replies > self.max_num_seqs or stored + room > self._kv_capacity):
                break
            known = self._prefix_cache.known(waiting)
            alike = [one for one, _ in fresh if one.tokenized.images == waiting.tokenized.images]
            soon = max((shared_tokens(one.ids, waiting) for one in alike), default=0)
            if soon >= known.tokens + MIN_SHARED_TOKENS:
                passed_over.append(self._waiting.popleft())
                continue
            new = len(waiting.ids) - known.tokens
            if busy and tokens + new > self.max_num_batched_tokens:
                break
            tokens, stored, sequences = tokens + new, stored + room, sequences + replies
            self._waiting.popleft()
            fresh.append((waiting, known))
        self._waiting.extendleft(reversed(passed_over))
        return fresh

    def _forward(self, fresh: list[RunningSequence]) -> torch.Tensor:
        """Logits at the last token of every reply under way and every new prompt, shape (sequences, vocabulary)."""
        ids: list[int] = []
        places: list[int] = []
        segments: list[Segment] = []
        for reply in self._running:
            ids.append(reply.ids[-1])
            places.append(reply.kv.length)
            segments.append(Segment(reply.kv, 1))
        for reply in fresh:
            prompt, begun = reply.source.tokenized.ids, reply.kv.length
            ids += prompt[begun:]
            places += range(begun, len(prompt))
            segments.append(Segment(reply.kv, len(prompt) - begun))
        last = torch.tensor([segment.tokens for segment in segments]).cumsum(0) - 1
        if self._images is None or not any(reply.source.seen for reply in fresh):
            return self._run(ids, places, segments, last)
        row = self._images.embedded(torch.tensor([ids], device=self._device), fresh, start=len(self._running))
        return self._run(ids, places, segments, last, row)

    def _run(
        self,
        ids: list[int],
        places: list[int],
        segments: list[Segment],
        keep: torch.Tensor,
        embedded: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A pass over a packed row, of its tokens or of what they are embedded as."""
        row = {"inputs_embeds": embedded}
        if embedded is None:
            row = {"input_ids": torch.tensor([ids], device=self._device)}
        output = self._loaded.model(
            **row,
            position_ids=torch.tensor([places], device=self._device),
            use_cache=False,
            logits_to_keep=keep.to(self._device),
            segments=segments,
        )
        logits: torch.Tensor = output.logits[0]
        return logits

    def _score_trees(self, fresh: list[RunningSequence], logits: torch.Tensor) -> None:
        """Evaluate the candidates of new prompts, one more pass for all of them."""
        scored = [(place, reply, reply.source.tree) for place, reply in enumerate(fresh) if reply.source.tree]
        if not scored:
            return
        trees: list[ScoreTree] = [tree for _, _, tree in scored if tree is not None]
        ids, places, segments = tree_inputs(trees, [reply.kv for _, reply, _ in scored], self._device)
        inner = self._run(ids, places, segments, torch.arange(len(ids))) if ids else logits[:0]
        start = 0
        for (place, reply, _), tree in zip(scored, trees, strict=True):
            end = start + len(tree.tokens)
            reply.source.candidate_logprobs = tree_logprobs(
                tree, torch.cat((logits[place : place + 1], inner[start:end]))
            )
            start = end

    def _extend(self, rows: list[list[RunningSequence]], logits: torch.Tensor) -> None:
        """Add the next token to each reply; the `n` replies of a new prompt share a row of logits."""
        greedy = logits.argmax(-1).tolist()
        running: list[RunningSequence] = []
        for row, replies in enumerate(rows):
            for reply in replies:
                reply.add(sample_token(reply, logits[row], greedy[row]), self._loaded.tokenizer, self._loaded.eos_ids)
                if reply.finish_reason is None:
                    running.append(reply)
                elif (completion := reply.source.collect(reply)) is not None:
                    self._finished.append(completion)
                    self._prefix_cache.keep(reply)
        self._running = running

    def _shrink_batch(self, fresh: list[QueuedRequest], message: str) -> None:
        """Make the next pass half as large; a request that does not fit even alone has failed."""
        self.halvings += 1
        self._prefix_cache.clear()
        if self._images is not None:
            self._images.clear()
        under_way = {id(reply.source): reply.source for reply in self._running}
        if fresh and len(fresh) + len(under_way) > 1:
            total = sum(len(waiting.ids) for waiting in fresh) + len(self._running)
            self.max_num_batched_tokens = max(1, min(self.max_num_batched_tokens, total) // 2)
            self._waiting.extendleft(reversed(fresh))
        elif fresh:
            self._finished.append(fresh[0].failed(f"out of memory: {message}"))
        elif len(under_way) > 1:
            self.max_num_seqs = max(1, len(self._running) // 2)
            self._restart(list(under_way.values())[len(under_way) // 2 :])
        else:
            self._running = []
            self._finished += [source.failed(f"out of memory: {message}") for source in under_way.values()]

    def _restart(self, sources: list[QueuedRequest]) -> None:
        """Put requests back to the start, all their replies with them."""
        dropped = {id(source) for source in sources}
        self._running = [reply for reply in self._running if id(reply.source) not in dropped]
        for source in sources:
            source.reset()
        self._waiting.extendleft(reversed(sources))


def _check(request: Request) -> None:
    if request.sampling.grammar is not None:
        raise EngineError("the transformers engine does not constrain replies to a grammar; use --engine vllm")
    if request.adapter is not None:
        raise EngineError(
            "the transformers engine has one adapter for all requests; pass --adapter, or use --engine vllm"
        )
    if request.sampling.n < 1 or request.sampling.max_tokens < 1:
        raise EngineError(f"request {request.key}: n and max_tokens must be 1 or more")
