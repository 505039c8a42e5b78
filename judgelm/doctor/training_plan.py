"""Plan of a fine-tuning before it starts: memory of each GPU by state, FLOPs, time, and changes that make it fit.

No weights, no torch. Model states follow DeepSpeed's own estimators (`estimate_zero2_model_states_mem_needs`,
`estimate_zero3_...`) and the paper behind them (Rajbhandari et al., 2020, "ZeRO"); activations follow what autograd
keeps of a Llama block as transformers writes it (Korthikanti et al., 2022, count a GPT block the same way). Operations
are the usual 6 for each parameter and token, 4 where the weights are frozen.

While a judge is reinforced (GRPO), a colocated vLLM takes a share of each GPU for whole weights and the cache, and
keeps it during training unless its sleep mode frees it. transformers keeps the keys and values of a generation's
replies, and under ZeRO-3 or FSDP gathers the whole weights for it. Source: TRL 1.16,
`trl/generation/vllm_generation.py`, `GRPOConfig`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple


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
class TrainingSetup:
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
class GpuCluster:
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


def memory_of(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> Memory:
    """Bytes by state, under any sharding."""
    states = _zero_states if cluster.sharding.startswith("zero") else _torch_states
    stored, recomputed = _activations(model, recipe, cluster)
    memory = Memory(
        **{state: round(size) for state, size in states(model, recipe, cluster)._asdict().items()},
        activations=stored,
        recomputed=recomputed,
        logits=_logits(model, recipe),
        reserve=RESERVE_BYTES,
        host=round(_host(model, recipe, cluster)),
    )
    if (drawn := recipe.generation) is None:
        return memory
    shards, samples = _shards(cluster), recipe.micro_batch * recipe.accumulation
    reference = reference_bytes(drawn, total=model.total, lora=recipe.lora, shards=shards)
    cached = 4 * model.layers * model.key_value * recipe.window * samples
    sizes = {"gpu": cluster.gpu_memory_bytes, "weights": 2 * model.total, "cached": cached}
    generation = generation_bytes(drawn, working=memory.working, gathers=shards > 1, **sizes)
    return replace(memory, reference=reference, generation=generation)


def _shards(cluster: GpuCluster) -> int:
    """GPUs over which frozen weights are spread."""
    return cluster.gpus if cluster.sharding in ("zero3", "fsdp") else 1


def fits(memory: Memory, cluster: GpuCluster) -> bool:
    """True if a GPU holds it, with an allowance for fragmentation."""
    return memory.total <= USABLE_SHARE * cluster.gpu_memory_bytes


def _trainable(model: ModelFacts, recipe: TrainingSetup) -> int:
    return model.adapter if recipe.lora else model.total


def _quantised_bytes(model: ModelFacts, recipe: TrainingSetup) -> float:
    """Bytes of the layers that bitsandbytes shrinks; no sharding splits them."""
    return 0.0 if recipe.quantisation == "none" else model.linear * _QUANTISED_BYTES[recipe.quantisation]


def _plain_parameters(model: ModelFacts, recipe: TrainingSetup) -> int:
    """Frozen and trained parameters that are held as they are, without the adapter."""
    return model.total if recipe.quantisation == "none" else model.total - model.linear


class _States(NamedTuple):
    """Bytes of one GPU before they are rounded."""

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    communication: float


def _zero_states(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> _States:
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
        communication = bucket + live if count > 1 or cluster.offload == "all" else bucket
        weights += _quantised_bytes(model, recipe)
        return _States(weights, gradients, 0.0 if offloaded else optimizer, gathered, communication)
    exact = 4 * trained / count if half else 0.0
    gradients = exact + (single / count if cluster.sharding == "zero2" else single)
    if offloaded:
        gradients, optimizer = 0.0 if cluster.sharding == "zero2" else single, 0.0
    return _States(held + _quantised_bytes(model, recipe), gradients, optimizer, 0.0, bucket)


def _torch_states(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> _States:
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
        weights = held / count
        if cluster.offload != "none":
            weights = gradients = optimizer = 0.0
        return _States(weights + _quantised_bytes(model, recipe), gradients, optimizer, gathered, 0.0)
    cast = 0 if recipe.lora and recipe.checkpointing else model.linear if recipe.quantisation == "none" else 0
    buckets = gradients if cluster.gpus > 1 else 0.0  # DDP copies gradients into buckets of its own
    return _States(held + _quantised_bytes(model, recipe), gradients, optimizer, copy * cast, buckets)


def _host(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> float:
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


def _activations(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> tuple[int, int]:
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


def _logits(model: ModelFacts, recipe: TrainingSetup) -> int:
    """Bytes of the loss: logits, their float32 log-softmax and its gradient; one tile of them in a fused head.

    A fused head holds the float32 gradients of its input and, where it is trained, of its weights instead.
    """
    tokens = recipe.micro_batch * recipe.prompts * recipe.window
    if not recipe.fused_head:
        return tokens * model.vocab * (recipe.compute_bytes + 8)
    trained = 0 if recipe.lora else 4 * model.vocab * model.hidden
    tile = min(tokens, _HEAD_TILE) * model.vocab * recipe.compute_bytes
    return tile + 4 * tokens * model.hidden + trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Floating-point operations; `model` and `attention` count forward and backward, `recomputation` comes on top."""

    model: float
    attention: float
    recomputation: float

    @property
    def all(self) -> float:
        """All operations that the GPUs compute."""
        return self.model + self.attention + self.recomputation

    def seconds(self, *, gpus: int, gpu_flops: float, mfu: float) -> float:
        """Time at a model FLOPs utilisation, which by its definition does not count recomputation as work done."""
        return (self.model + self.attention) / (gpus * gpu_flops * mfu)


def operations_of(
    model: ModelFacts, recipe: TrainingSetup, tokens: float, *, mean_length: float | None = None
) -> Operations:
    """Operations for some tokens.

    Args:
        model: what is trained.
        recipe: how.
        tokens: how many.
        mean_length: of a row, which decides what attention costs; None takes the window.
    """
    frozen = 4 * model.total + 6 * model.adapter
    pairs = model.layers * model.query * (mean_length or recipe.window)  # causal: half of the window's square
    return Operations(
        model=tokens * (frozen if recipe.lora else 6 * model.total),
        attention=6 * tokens * pairs,
        recomputation=tokens * 2 * (model.total + pairs) if recipe.checkpointing else 0.0,
    )


def steps_of(recipe: TrainingSetup, cluster: GpuCluster, rows: int) -> int:
    """Optimiser steps of a whole training, as transformers' Trainer counts them."""
    if recipe.max_steps > 0:
        return recipe.max_steps
    batches = math.ceil(rows / (recipe.micro_batch * cluster.gpus))
    return math.ceil(recipe.epochs * max(1, math.ceil(batches / recipe.accumulation)))


_Setup = tuple[TrainingSetup, GpuCluster]
_Change = tuple[str, Callable[[TrainingSetup, GpuCluster], _Setup | None]]
_STAGES: tuple[Sharding, ...] = ("zero1", "zero2", "zero3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A change that keeps the global batch, and the bytes of one GPU then; `adapter` trains less than was asked."""

    change: str
    total_bytes: int
    fits: bool
    adapter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One configuration on one cluster.

    Attributes:
        step: operations of an optimiser step with every row as long as the window, on all GPUs.
        step_seconds: at the stated utilisation.
        ways: what would fit if this does not, each computed; empty if it does.
    """

    cluster: GpuCluster
    memory: Memory
    fits: bool
    global_batch: int
    step_tokens: int
    step: Operations
    step_seconds: float
    ways: tuple[Way, ...]


def plan(
    model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster, *, gpu_flops: float, mfu: float
) -> TrainingPlan:
    """Memory, operations and time of a configuration, and the ways out if it does not fit.

    Args:
        model: what is trained.
        recipe: how.
        cluster: on what.
        gpu_flops: a GPU's peak, operations per second.
        mfu: share of the peak that model operations reach.
    """
    memory = memory_of(model, recipe, cluster)
    held = fits(memory, cluster)
    batch = recipe.micro_batch * recipe.accumulation * cluster.gpus
    step_tokens = batch * recipe.prompts * recipe.window
    step = operations_of(model, recipe, step_tokens)
    return TrainingPlan(
        cluster=cluster,
        memory=memory,
        fits=held,
        global_batch=batch,
        step_tokens=step_tokens,
        step=step,
        step_seconds=step.seconds(gpus=cluster.gpus, gpu_flops=gpu_flops, mfu=mfu),
        ways=() if held else ways_out(model, recipe, cluster),
    )


def ways_out(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> tuple[Way, ...]:
    """Every single change, and where none is enough one upon another as far as is needed; LoRA and QLoRA as well.

    The global batch stays in each: a smaller micro-batch has more accumulation.
    """
    singles = [_way(model, name, setup) for name, setup in _alternatives(model, recipe, cluster)]
    starts: list[tuple[list[str], TrainingSetup, GpuCluster]] = []
    if not any(way.fits and not way.adapter for way in singles):
        starts.append(([], recipe, cluster))
    for name, change in _ADAPTERS:
        if setup := change(recipe, cluster):
            starts.append(([name], *setup))
    together = [way for start in starts if (way := _ladder(model, *start))]
    return tuple(sorted((*singles, *together), key=lambda way: not way.fits))


def _way(model: ModelFacts, change: str, setup: _Setup) -> Way:
    memory = memory_of(model, *setup)
    return Way(change=change, total_bytes=memory.total, fits=fits(memory, setup[1]), adapter="use_peft" in change)


def _alternatives(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> Iterator[tuple[str, _Setup]]:
    for name, change in (*_CHANGES, *_ADAPTERS):
        setup = _smaller_batch(model, recipe, cluster) if change is _single_rows else change(recipe, cluster)
        if setup:
            yield name.format(*setup), setup


def _smaller_batch(model: ModelFacts, recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    """The largest smaller micro-batch that fits and divides the given one; one row where none does."""
    for rows in range(recipe.micro_batch - 1, 0, -1):
        if recipe.micro_batch % rows:
            continue
        times = recipe.micro_batch // rows
        smaller = replace(recipe, micro_batch=rows, accumulation=recipe.accumulation * times)
        if rows == 1 or fits(memory_of(model, smaller, cluster), cluster):
            return smaller, cluster
    return None


def _ladder(model: ModelFacts, names: list[str], recipe: TrainingSetup, cluster: GpuCluster) -> Way | None:
    """One change upon another until it fits, less those not needed then; None where nothing or a single one does."""
    taken: list[_Change] = []
    for change in _CHANGES:
        if _way(model, "", _together(taken, recipe, cluster)[1]).fits:
            break
        taken.append(change)
    for change in tuple(taken):
        fewer = [other for other in taken if other is not change]
        if _way(model, "", _together(fewer, recipe, cluster)[1]).fits:
            taken = fewer
    changes, setup = _together(taken, recipe, cluster)
    names = [*names, *changes]
    way = _way(model, " + ".join(names), setup)
    return way if way.fits and len(names) > 1 else None


def _together(changes: Sequence[_Change], recipe: TrainingSetup, cluster: GpuCluster) -> tuple[list[str], _Setup]:
    """The changes one upon another, and the names of those that change something."""
    names = []
    for name, change in changes:
        if setup := change(recipe, cluster):
            recipe, cluster = setup
            names.append(name.format(*setup))
    return names, (recipe, cluster)


def _sleep(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    drawn = recipe.generation
    if drawn is None or not drawn.vllm or drawn.sleeps:
        return None
    return replace(recipe, generation=replace(drawn, sleeps=True)), cluster


def _checkpoint(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    return None if recipe.checkpointing else (replace(recipe, checkpointing=True), cluster)


def _single_rows(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    if recipe.micro_batch == 1:
        return None
    return replace(recipe, micro_batch=1, accumulation=recipe.accumulation * recipe.micro_batch), cluster


def _raise_to(stage: Sharding) -> Callable[[TrainingSetup, GpuCluster], _Setup | None]:
    def change(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
        if cluster.gpus == 1 or cluster.sharding == "fsdp":
            return None
        if cluster.sharding in _STAGES and _STAGES.index(cluster.sharding) >= _STAGES.index(stage):
            return None
        return recipe, replace(cluster, sharding=stage)

    return change


def _offload_optimizer(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    if cluster.sharding == "fsdp" or cluster.offload != "none":
        return None
    stage: Sharding = cluster.sharding if cluster.sharding in _STAGES else "zero2"
    return recipe, replace(cluster, sharding=stage, offload="optimizer")


def _offload_all(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    if cluster.offload == "all":
        return None
    stage: Sharding = "fsdp" if cluster.sharding == "fsdp" else "zero3"
    return recipe, replace(cluster, sharding=stage, offload="all")


def _lora(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    return None if recipe.lora else (replace(recipe, lora=True, weight_bytes=2), cluster)


def _qlora(recipe: TrainingSetup, cluster: GpuCluster) -> _Setup | None:
    if recipe.quantisation == "4bit":
        return None
    stage: Sharding = "ddp" if cluster.gpus > 1 else "none"
    return (
        replace(recipe, lora=True, quantisation="4bit", weight_bytes=2),
        replace(cluster, sharding=stage, offload="none"),
    )


_CHANGES: tuple[_Change, ...] = (
    ("vllm_enable_sleep_mode: true", _sleep),
    ("gradient_checkpointing: true", _checkpoint),
    ("per_device_train_batch_size: {0.micro_batch}, gradient_accumulation_steps: {0.accumulation}", _single_rows),
    ("zero_stage: 1", _raise_to("zero1")),
    ("zero_stage: 2", _raise_to("zero2")),
    ("zero_stage: 3", _raise_to("zero3")),
    ("offload of the optimizer to host memory ({1.sharding})", _offload_optimizer),
    ("offload of optimizer and parameters to host memory ({1.sharding})", _offload_all),
)
_ADAPTERS: tuple[_Change, ...] = (
    ("use_peft: true (LoRA), dtype: bfloat16", _lora),
    ("use_peft: true, load_in_4bit: true (QLoRA), dtype: bfloat16", _qlora),
)
