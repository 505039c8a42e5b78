"""The steps of the rehearsal, in the order in which they run. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step: `call` is `module.function` of this package, called with the setting and `options`.

    Attributes:
        does: the line of `--list`.
        packages: modules that must be importable, else the step is `not installed`.
        gpus: GPUs that it needs on a GPU machine.
        on_cpu: `--device cpu` can run it; else it reports that it needs a GPU.
    """

    does: str
    call: str
    options: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    gpus: int = 1
    on_cpu: bool = True


_JUDGING = ("torch", "transformers", "typer")
_TRAINING = (*_JUDGING, "trl", "accelerate", "datasets")
_SERVING = (*_JUDGING, "uvicorn", "starlette", "fastapi")
_VLLM = {"engine": "vllm"}


def _judge(does: str, *packages: str, call: str = "engine", **others: Any) -> Step:
    return Step(does=does, call=f"judging.{call}", packages=(*_JUDGING, *packages), **others)


def _train(does: str, *packages: str, call: str = "sft", **others: Any) -> Step:
    return Step(does=does, call=f"training.{call}", packages=(*_TRAINING, *packages), **others)


STEPS: dict[str, Step] = {
    "facts": Step(does="devices and versions", call="judging.facts", packages=("torch",)),
    "judge-transformers": _judge(
        "the transformers engine: both orders, score trees, seeds", options={"engine": "transformers"}
    ),
    "judge-vllm": _judge("vLLM: prefix caching on and off, score trees, seeds", "vllm", options=_VLLM),
    "judge-vllm-runners": _judge(
        "vLLM's Model Runner V2, its default on GPUs, against V1", "vllm", "triton", call="runners", on_cpu=False
    ),
    "judge-vllm-fp8": _judge("vLLM in FP8: verdicts that differ from bf16's", "vllm", call="fp8", on_cpu=False),
    "lora-transformers": _judge(
        "two adapters trained, merged and by request", *_TRAINING, *_SERVING, "peft", call="adapters",
        options={"engine": "transformers"},
    ),
    "lora-vllm": _judge(
        "the same in vLLM", *_TRAINING, *_SERVING, "peft", "vllm", call="adapters", options=_VLLM
    ),
    "serve-transformers": _judge(
        "the server under 256 clients", *_SERVING, "psutil", call="server", options={"engine": "transformers"}
    ),
    "serve-vllm": _judge("the same with vLLM", *_SERVING, "psutil", "vllm", call="server", options=_VLLM),
    "ray-transformers": _judge(
        "two Ray workers that share one GPU", "ray", call="shared_gpu", options={"engine": "transformers"}
    ),
    "ray-vllm": _judge("the same with vLLM", "ray", "vllm", call="shared_gpu", options=_VLLM),
    "sft-one": _train("full SFT on one device, packed without padding: save, resume, judge", options={"kind": "one"}),
    "sft-flash": _train(
        "the same with FlashAttention", "flash_attn", options={"kind": "one", "attention": "flash_attention_2"},
        on_cpu=False,
    ),
    "sft-fsdp2": _train("FSDP2 at world size 1 (on a CPU 2): save, resume, judge", options={"kind": "fsdp2"}),
    "sft-zero3": _train("ZeRO-3 at world size 1: save, resume, judge", "deepspeed", options={"kind": "zero3"}),
    "sft-qlora": _train(
        "QLoRA: save, resume, merge, judge", "peft", "bitsandbytes",
        options={"kind": "one", "recipe": "judgelm_13b_qlora"},
    ),
    "grpo": _train("GRPO that generates with transformers", call="grpo"),
    "grpo-vllm": _train("GRPO colocated with vLLM", "vllm", call="grpo", options={"vllm": True}, on_cpu=False),
    "sft-fsdp2-all": _train("FSDP2 on all GPUs", options={"kind": "fsdp2", "everywhere": True}, gpus=2),
    "sft-zero3-all": _train(
        "ZeRO-3 on all GPUs", "deepspeed", options={"kind": "zero3", "everywhere": True}, gpus=2
    ),
    "judge-tensor-parallel": _judge("vLLM, tensor parallel on all GPUs", "vllm", call="tensor_parallel", gpus=2),
    "judge-gpus": _judge("a judge on each GPU", "ray", call="each_gpu", gpus=2),
    "eight-zero3": _train(
        "7B by configs/accelerate/zero3.yaml as it is", "deepspeed",
        options={"kind": "zero3", "everywhere": True, "large": True}, gpus=8, on_cpu=False,
    ),
    "eight-vllm": _judge(
        "13B, tensor parallel on 8 GPUs", "vllm", call="tensor_parallel", options={"large": True}, gpus=8, on_cpu=False
    ),
}  # fmt: skip
