"""Memory that drawing replies needs while a judge is reinforced (GRPO): by vLLM on the same GPUs, or transformers.

A colocated vLLM takes a share of each GPU for whole weights and the cache, and keeps it while the judge is trained,
unless its sleep mode frees it then. transformers keeps the keys and values of a generation's replies, and under ZeRO-3
or FSDP gathers the whole weights for it. Source: TRL 1.16, `trl/generation/vllm_generation.py`, `GRPOConfig`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Settings of the drawing of replies.

    Attributes:
        replies: to each prompt.
        vllm: whether a colocated vLLM draws them, else transformers.
        share: of a GPU that vLLM takes (`vllm_gpu_memory_utilization`).
        sleeps: whether vLLM frees it while the judge is trained (`vllm_enable_sleep_mode`).
        reference: whether a frozen copy of the model is kept (`beta` above 0).
    """

    replies: int
    vllm: bool = True
    share: float = 0.3
    sleeps: bool = False
    reference: bool = False


def reference_bytes(generation: Generation, *, total: int, lora: bool, shards: int) -> int:
    """Bytes of the frozen copy on a GPU; an adapter is switched off instead.

    Args:
        generation: how replies are drawn.
        total: parameters of the model.
        lora: whether an adapter is trained.
        shards: GPUs over which it is spread.
    """
    return 2 * total // shards if generation.reference and not lora else 0


def generation_bytes(
    generation: Generation, *, gpu: int, working: int, weights: int, cached: int, gathers: bool
) -> int:
    """Bytes that drawing replies adds to the peak of a GPU.

    Args:
        generation: how replies are drawn.
        gpu: bytes of a GPU.
        working: of a training pass beside the states; they are not needed while replies are drawn.
        weights: of the whole model in 16 bits.
        cached: keys and values of a GPU's replies of one step, all as long as the window.
        gathers: whether the weights are spread over GPUs and gathered to generate.
    """
    if not generation.vllm:
        return max(0, cached + (weights if gathers else 0) - working)
    # its weights lie in its share; where that is too small for them and a little cache, it needs more
    taken = max(round(generation.share * gpu), round(1.1 * weights))
    return max(0, taken - working) if generation.sleeps else taken
