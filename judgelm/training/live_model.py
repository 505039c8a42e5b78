"""TODO."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from judgelm.engines.transformers.attention import ATTENTION_NAME, KVCache, PromptSegment
from judgelm.errors import EngineError

if TYPE_CHECKING:
    pass


class LiveModel:
    """The interface that the transformers engine needs of a model, around one that is being trained.

    Where the weights are sharded over processes (ZeRO-3, FSDP) a forward pass needs all processes: each announces its
    passes, and a process that has finished makes idle ones until all have.

    Args:
        model: the model itself, whose configuration and numeric format the engine reads.
        forward: makes a pass; the wrapper where it holds the weights.
        device: of the inputs.
        in_step: whether all processes must make each pass together.
    """

    def __init__(self, model: Any, forward: Callable[..., Any], *, device: torch.device, in_step: bool) -> None:
        self.config = model.config
        self.dtype = model.dtype
        self.device = device
        self.score = getattr(model, "score", None)  # the head of a reward model
        self._forward = forward
        self._in_step = in_step

    def __call__(self, **inputs: Any) -> Any:
        """Make one pass, outside the engine's inference mode, which gathered weights outlive.

        Raises:
            EngineError: out of memory while the other processes wait within the same pass.
        """
        with torch.inference_mode(False), torch.no_grad():
            if not self._in_step:
                return self._forward(**inputs)
            self._any_passes(True)
            try:
                return self._forward(**inputs)
            except torch.OutOfMemoryError as error:
                raise EngineError(
                    f"out of memory while the model in training judged, its weights sharded over processes: {error}; "
                    "eval_pairs: 0 trains without judging, a smaller per_device_train_batch_size leaves more memory"
                ) from error

    def finish(self) -> None:
        """Make idle passes until the other processes have finished too."""
        if not self._in_step:
            return
        with torch.inference_mode(False), torch.no_grad():
            while self._any_passes(False):
                zero = torch.zeros((1, 1), dtype=torch.long, device=self.device)
                self._forward(
                    input_ids=zero,
                    position_ids=zero,
                    use_cache=False,
                    logits_to_keep=zero[0],
                    segments=[PromptSegment(KVCache(), 1)],
                )

    def _any_passes(self, own: bool) -> bool:
        passing = torch.tensor([int(own)], device=self.device)
        torch.distributed.all_reduce(passing)
        return bool(passing.item())


@contextmanager
def unwrapped(model: Any, forward: Callable[..., Any], *, device: torch.device, in_step: bool) -> Iterator[LiveModel]:
    """Set the model up for the engine (no dropout, packed attention), and restore it afterwards.

    Args: see `LiveModel`.
    """
    attention, training = model.config._attn_implementation, model.training
    model.config._attn_implementation = ATTENTION_NAME
    model.eval()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # memory in training's cache would look used to the engine
    try:
        live = LiveModel(model, forward, device=device, in_step=in_step)
        yield live
        live.finish()
    finally:
        model.config._attn_implementation = attention
        model.train(training)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore every random state, so that training continues unaffected."""
    python, array = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
