"""Needs of a fine-tuning before it starts: memory of each GPU by state, FLOPs, time. No weights, no torch.

Model states follow DeepSpeed's own estimators (`estimate_zero2_model_states_mem_needs`, `estimate_zero3_...`) and the
paper behind them (Rajbhandari et al., 2020, "ZeRO"); activations follow what autograd keeps of a Llama block as
transformers writes it (Korthikanti et al., 2022, count a GPT block the same way). Operations are the usual 6 for each
parameter and token, 4 where the weights are frozen.
"""

from dataclasses import dataclass, replace
from typing import Literal

from judgelm.doctor.training_plan.generation import Generation, generation_bytes, reference_bytes

Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]
Offload = Literal["none", "optimizer", "all"]
Quantisation = Literal["none", "8bit", "4bit"]

GIB = 1 << 30
RESERVE_BYTES = 3 * GIB // 2
"""CUDA context, cuBLAS and NCCL workspaces."""
USABLE_SHARE = 0.95
"""The rest of a GPU's memory is lost between blocks of the allocator."""
HOST_BUFFERS = 1.5
"""Host memory over the states in it, DeepSpeed's `additional_buffer_factor`."""
_BUCKET, _MOST_LIVE = 500_000_000, 1_000_000_000
_QUANTISED_BYTES = {"8bit": 1.0, "4bit": 0.5 + 4 / 64}  # nf4: a float32 scale for 64 weights
_HEAD_TILE = 4096
_DROPOUT_BYTES = 3  # a LoRA layer's dropped input and its mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Sizes of a causal language model, in parameters and in features.

    Attributes:
        name: what was asked for.
        source: where the sizes come from.
        total: parameters, shared ones once.
        adapter: parameters of the LoRA adapter that the configuration describes, used or not.
        adapter_inputs: features that a block's adapted layers read, together.
        linear: parameters of linear layers without the output head, which a quantised load shrinks.
        largest_module: parameters of the largest module itself, which ZeRO-3 gathers as a whole.
        block: parameters of a transformer block.
        layers: transformer blocks.
        hidden: width of the residual stream.
        query: heads x width of a head.
        key_value: heads of keys x width of a head.
        intermediate: width of the MLP.
        vocab: rows of the output head.
    """

    name: str
    source: str
    total: int
    adapter: int
    adapter_inputs: int
    linear: int
    largest_module: int
    block: int
    layers: int
    hidden: int
    query: int
    key_value: int
    intermediate: int
    vocab: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The part of a training configuration that decides memory and time.

    Attributes:
        window: tokens of the longest row.
        micro_batch: rows a GPU sees at once.
        accumulation: micro-batches a step.
        prompts: sequences of a row: 2 where both orders of a pair are one row.
        epochs: passes over the data.
        max_steps: optimiser steps if the configuration fixes them, else -1.
        weight_bytes: of a parameter as the model is loaded; TRL's default is float32, 4.
        compute_bytes: of an activation: 2 under bf16 or fp16.
        state_numbers: of the optimizer for each parameter: 2 for Adam.
        state_bytes: of each such number; None follows the parameters.
        lora: whether an adapter is trained and the rest frozen.
        fused_head: whether TRL folds the loss into the output head, so that logits never stand in memory as a whole.
        quadratic_attention: whether attention keeps its weights (`eager`); sdpa and flash do not.
        generation: how replies are drawn while training; None for a training on given targets.
    """

    window: int
    micro_batch: int
    accumulation: int
    prompts: int = 1
    epochs: float = 3.0
    max_steps: int = -1
    weight_bytes: int = 4
    compute_bytes: int = 2
    state_numbers: int = 2
    state_bytes: int | None = None
    checkpointing: bool = True
    lora: bool = False
    quantisation: Quantisation = "none"
    fused_head: bool = False
    quadratic_attention: bool = False
    heads: int = 1
    generation: Generation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The machines and how the states lie on them.

    Attributes:
        gpus_per_node: processes of a machine, one a GPU.
        gpu_memory_bytes: what torch reports as total.
        reduce_bucket: numbers that DeepSpeed reduces at once.
        reshards: whether FSDP frees gathered weights after the forward pass (FULL_SHARD).
    """

    name: str
    gpus_per_node: int
    nodes: int = 1
    gpu_memory_bytes: int
    sharding: Sharding = "ddp"
    offload: Offload = "none"
    reduce_bucket: int = _BUCKET
    reshards: bool = True

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.gpus_per_node * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one GPU at the moment of most need, by what lies there, and of one machine's host memory.

    `logits` and `recomputed` never stand at once: the larger counts. `generation` is what drawing replies adds to the
    peak, `reference` a frozen copy of the model.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    communication: int
    activations: int
    recomputed: int
    logits: int
    reserve: int
    host: int
    reference: int = 0
    generation: int = 0

    @property
    def model_states(self) -> int:
        """The states that DeepSpeed's estimators cover."""
        return self.weights + self.gradients + self.optimizer + self.gathered

    @property
    def working(self) -> int:
        """Needs of a forward and backward pass beside the states."""
        return self.activations + max(self.recomputed, self.logits)

    @property
    def total(self) -> int:
        """Of one GPU."""
        return self.model_states + self.communication + self.working + self.reserve + self.reference + self.generation


def memory_of(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> Memory:
    """Bytes by state, under any sharding."""
    states = _zero_states if cluster.sharding.startswith("zero") else _torch_states
    weights, gradients, optimizer, gathered, communication = states(model, recipe, cluster)
    stored, recomputed = _activations(model, recipe, cluster)
    memory = Memory(
        weights=round(weights),
        gradients=round(gradients),
        optimizer=round(optimizer),
        gathered=round(gathered),
        communication=round(communication),
        activations=stored,
        recomputed=recomputed,
        logits=_logits(model, recipe),
        reserve=RESERVE_BYTES,
        host=round(_host(model, recipe, cluster)),
    )
    drawn = recipe.generation
    return memory if drawn is None else replace(
        memory,
        reference=reference_bytes(drawn, total=model.total, lora=recipe.lora, shards=_shards(cluster)),
        generation=generation_bytes(
            drawn, gpu=cluster.gpu_memory_bytes, working=memory.working, weights=2 * model.total,
            cached=4 * model.layers * model.key_value * recipe.window * recipe.micro_batch * recipe.accumulation,
            gathers=_shards(cluster) > 1,
        ),
    )  # fmt: skip


def _shards(cluster: Cluster) -> int:
    """GPUs over which frozen weights are spread."""
    return cluster.gpus if cluster.sharding in ("zero3", "fsdp") else 1


def fits(memory: Memory, cluster: Cluster) -> bool:
    """True if a GPU holds it, with an allowance for fragmentation."""
    return memory.total <= USABLE_SHARE * cluster.gpu_memory_bytes


def _trainable(model: ModelFacts, recipe: Recipe) -> int:
    return model.adapter if recipe.lora else model.total


def _quantised_bytes(model: ModelFacts, recipe: Recipe) -> float:
    """Bytes of the layers that bitsandbytes shrinks; no sharding splits them."""
    return 0.0 if recipe.quantisation == "none" else model.linear * _QUANTISED_BYTES[recipe.quantisation]


def _plain_parameters(model: ModelFacts, recipe: Recipe) -> int:
    """Frozen and trained parameters that are held as they are, without the adapter."""
    return model.total if recipe.quantisation == "none" else model.total - model.linear


def _zero_states(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> tuple[float, float, float, float, float]:
    """DeepSpeed: 16-bit weights, a float32 master copy and float32 states of what is trained.

    As its estimators count: gradients twice, in 16 and 32 bit, under ZeRO-1 and ZeRO-2; once, in 32 bit, with 2 bytes
    less, under ZeRO-3 (18 bytes a parameter in all). In float32 training there is one copy of everything.
    """
    count, trained, width = cluster.gpus, _trainable(model, recipe), recipe.compute_bytes
    half = width == 2
    held = width * (_plain_parameters(model, recipe) + (model.adapter if recipe.lora else 0))
    master = 4 if half else 0
    optimizer = trained * (master + recipe.state_numbers * (recipe.state_bytes or 4)) / count
    single = width * trained  # as the backward pass makes them
    bucket = width * min(cluster.reduce_bucket, trained) if count > 1 else 0
    offloaded = cluster.offload != "none"
    if cluster.sharding == "zero3":
        weights = 0.0 if cluster.offload == "all" else held / count
        gradients = 0.0 if offloaded else 4 * trained / count
        gathered = (1 if recipe.lora else 2) * width * model.largest_module  # a frozen one has no gradient
        live = max(0, width * min(_MOST_LIVE, model.total) - width * model.largest_module)
        return (
            weights + _quantised_bytes(model, recipe),
            gradients,
            0.0 if offloaded else optimizer,
            gathered,
            (bucket + live if count > 1 or cluster.offload == "all" else bucket),
        )
    exact = 4 * trained / count if half else 0.0
    gradients = exact + (single / count if cluster.sharding == "zero2" else single)
    if offloaded:
        gradients, optimizer = 0.0 if cluster.sharding == "zero2" else single, 0.0
    return held + _quantised_bytes(model, recipe), gradients, optimizer, 0.0, bucket


def _torch_states(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> tuple[float, float, float, float, float]:
    """One GPU, DDP or FSDP: parameters as loaded, gradients and states in the same width, autocast's copies."""
    sharded = cluster.sharding == "fsdp"
    count = cluster.gpus if sharded else 1
    trained, width = _trainable(model, recipe), recipe.weight_bytes
    adapter_width = 2 if recipe.quantisation != "none" else 4  # peft's choice, and TRL's for a quantised base
    trained_width = adapter_width if recipe.lora else width
    held = width * _plain_parameters(model, recipe) + (adapter_width * model.adapter if recipe.lora else 0)
    gradients = trained_width * trained / count
    optimizer = trained * recipe.state_numbers * (recipe.state_bytes or trained_width) / count
    copy = recipe.compute_bytes if recipe.compute_bytes < width else 0
    if sharded:
        outer = model.total - model.layers * model.block
        live = outer + 2 * model.block if cluster.reshards else model.total
        gathered = recipe.compute_bytes * (live + 2 * (model.block if not recipe.lora else 0))
        weights, gradients, optimizer = (
            (0.0, 0.0, 0.0) if cluster.offload != "none" else (held / count, gradients, optimizer)
        )
        return weights + _quantised_bytes(model, recipe), gradients, optimizer, gathered, 0.0
    cast = 0 if recipe.lora and recipe.checkpointing else model.linear if recipe.quantisation == "none" else 0
    buckets = gradients if cluster.gpus > 1 else 0.0  # DDP copies gradients into buckets of its own
    return held + _quantised_bytes(model, recipe), gradients, optimizer, copy * cast, buckets


def _host(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> float:
    """Host memory of a machine: the checkpoint while each process reads it, or the states that were offloaded.

    ZeRO-3 shards, and bitsandbytes quantises on the GPU, one module after another; the files are mapped, not copied.
    """
    trained = _trainable(model, recipe)
    by_module = cluster.sharding == "zero3" or recipe.quantisation != "none"
    loading = recipe.weight_bytes * cluster.gpus_per_node * (model.largest_module if by_module else model.total)
    if cluster.offload == "none":
        return HOST_BUFFERS * loading
    states = 16 * trained + (2 * model.total if cluster.offload == "all" else 0)
    return HOST_BUFFERS * max(loading, states / cluster.nodes)


def _activations(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> tuple[int, int]:
    """Bytes kept from forward to backward, and of the one block that is recomputed.

    Of a block autograd keeps, for each token: of both norms the float32 input, the normed and the scaled output;
    queries, keys, values and the attention's output; gate, its activation, up and their product. Eager attention keeps
    its weights twice, in float32 and as it computes, and keys and values repeated for every head.
    """
    width, tokens = recipe.compute_bytes, recipe.micro_batch * recipe.prompts * recipe.window
    mixed = cluster.sharding in ("none", "ddp") and recipe.weight_bytes > width  # autocast: the stream in float32
    norm = (8 + width if mixed else 4 + 2 * width) * model.hidden
    attention = 2 * width * (model.query + model.key_value)
    if recipe.quadratic_attention:
        attention += (4 + width) * recipe.heads * recipe.window + 2 * width * (model.query - model.key_value)
    adapters = _DROPOUT_BYTES * model.adapter_inputs if recipe.lora else 0
    block = tokens * (2 * norm + attention + 4 * width * model.intermediate + adapters)
    last = tokens * norm
    if not recipe.checkpointing:
        return model.layers * block + last, 0
    return model.layers * tokens * model.hidden * (4 if mixed else width) + last, block


def _logits(model: ModelFacts, recipe: Recipe) -> int:
    """Bytes of the loss: logits, their float32 log-softmax and its gradient; one tile of them in a fused head.

    A fused head holds the float32 gradients of its input and, where it is trained, of its weights instead.
    """
    tokens = recipe.micro_batch * recipe.prompts * recipe.window
    if not recipe.fused_head:
        return tokens * model.vocab * (recipe.compute_bytes + 8)
    trained = 0 if recipe.lora else 4 * model.vocab * model.hidden
    tile = min(tokens, _HEAD_TILE) * model.vocab * recipe.compute_bytes
    return tile + 4 * tokens * model.hidden + trained
