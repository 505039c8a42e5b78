"""The model in training, lent to the transformers engine for a while and given back as it was."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from judgelm.engines.transformers.packed_attention import ATTENTION_NAME, KVCache, Segment
from judgelm.errors import EngineError


class LiveModel:
    """What the transformers engine asks of a model, answered by one that is being trained.

    Where the weights are spread over processes (ZeRO-3, FSDP) a pass needs all of them: each says before every pass
    that it makes one, and whoever is done passes along idly until all are.

    Args:
        model: the model itself, whose configuration and numeric format the engine reads.
        forward: makes a pass; the wrapper where the weights lie with it.
        device: where inputs belong.
        in_step: whether all processes must make each pass together.
    """

    def __init__(self, model: Any, forward: Callable[..., Any], *, device: torch.device, in_step: bool) -> None:
        self.config = model.config
        self.dtype = model.dtype
        self.device = device
        self._forward = forward
        self._in_step = in_step

    def __call__(self, **inputs: Any) -> Any:
        """One pass; its tensors are ordinary ones, as gathered weights outlive the engine's inference mode.

        Raises:
            EngineError: memory ran out where the other processes wait within the same pass.
        """
        with torch.inference_mode(False), torch.no_grad():
            if not self._in_step:
                return self._forward(**inputs)
            self._someone_passes(True)
            try:
                return self._forward(**inputs)
            except torch.OutOfMemoryError as error:
                raise EngineError(
                    f"memory ran out while the model in training judged, its weights spread over processes: {error}; "
                    "eval_pairs: 0 trains without judging, a smaller per_device_train_batch_size leaves it more room"
                ) from error

    def finish(self) -> None:
        """Pass along until the other processes are done too."""
        if not self._in_step:
            return
        with torch.inference_mode(False), torch.no_grad():
            while self._someone_passes(False):
                nought = torch.zeros((1, 1), dtype=torch.long, device=self.device)
                self._forward(
                    input_ids=nought,
                    position_ids=nought,
                    use_cache=False,
                    logits_to_keep=nought[0],
                    segments=[Segment(KVCache(1), 1)],
                )

    def _someone_passes(self, own: bool) -> bool:
        passing = torch.tensor([int(own)], device=self.device)
        torch.distributed.all_reduce(passing)
        return bool(passing.item())


@contextmanager
def lent(model: Any, forward: Callable[..., Any], *, device: torch.device, in_step: bool) -> Iterator[LiveModel]:
    """The model set up for the engine: no dropout, packed attention; put back when the engine is done.

    Args: see `LiveModel`.
    """
    attention, training = model.config._attn_implementation, model.training
    model.config._attn_implementation = ATTENTION_NAME
    model.eval()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what training's cache holds back would look taken to the engine
    try:
        live = LiveModel(model, forward, device=device, in_step=in_step)
        yield live
        live.finish()
    finally:
        model.config._attn_implementation = attention
        model.train(training)


@contextmanager
def same_random_state() -> Iterator[None]:
    """Leave every random state as it was, so that training goes on as if nothing had happened between."""
    python, array = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
