"""Run a model with the transformers engine during training."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from judgelm.engines.transformers.attention import ATTENTION_NAME, KVCache, PromptSegment
from judgelm.errors import EngineError


class LiveModel:
    """Adapts a model that is being trained to the transformers engine's interface.

    If the weights are sharded (`in_step`), each forward pass needs all processes, so finished processes run idle passes
    until all processes are done.
    """

    def __init__(self, model: Any, forward: Callable[..., Any], *, device: torch.device, in_step: bool) -> None:
        self.config = model.config
        self.dtype = model.dtype
        self.device = device
        self.score = getattr(model, "score", None)  # head of a reward model
        self._forward = forward
        self._in_step = in_step

    def __call__(self, **inputs: Any) -> Any:
        """Run one forward pass outside inference mode, because gathered weights outlive the pass."""
        with torch.inference_mode(False), torch.no_grad():
            if not self._in_step:
                return self._forward(**inputs)
            self._any_passes(True)
            try:
                return self._forward(**inputs)
            except torch.OutOfMemoryError as error:
                raise EngineError(f"out of memory while judging: {error}; set eval_pairs: 0") from error

    def finish(self) -> None:
        """Run idle passes until all other processes have finished."""
        if not self._in_step:
            return
        with torch.inference_mode(False), torch.no_grad():
            while self._any_passes(False):
                zero = torch.zeros((1, 1), dtype=torch.long, device=self.device)
                inputs = {"input_ids": zero, "position_ids": zero, "logits_to_keep": zero[0]}
                self._forward(**inputs, use_cache=False, segments=[PromptSegment(KVCache(), 1)])

    def _any_passes(self, own: bool) -> bool:
        passing = torch.tensor([int(own)], device=self.device)
        torch.distributed.all_reduce(passing)
        return bool(passing.item())


@contextmanager
def unwrapped(model: Any, forward: Callable[..., Any], *, device: torch.device, in_step: bool) -> Iterator[LiveModel]:
    """Prepare a model for the engine (no dropout, packed attention), and restore it on exit."""
    attention, training = model.config._attn_implementation, model.training
    model.config._attn_implementation = ATTENTION_NAME
    model.eval()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # otherwise, the engine would count cached memory from training as used
    try:
        live = LiveModel(model, forward, device=device, in_step=in_step)
        yield live
        live.finish()
    finally:
        model.config._attn_implementation = attention
        model.train(training)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore all random states on exit, so that training is not affected."""
    python, array = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
