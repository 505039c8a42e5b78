"""A training plan on one cluster: whether it fits, and which changes would make it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from judgelm.doctor.training_plan.estimate import (
    Cluster,
    Memory,
    ModelFacts,
    Recipe,
    Sharding,
    fits,
    memory_of,
)
from judgelm.doctor.training_plan.operations import Operations, operations_of

_Setup = tuple[Recipe, Cluster]
_Change = tuple[str, Callable[[Recipe, Cluster], _Setup | None]]
_STAGES: tuple[Sharding, ...] = ("zero1", "zero2", "zero3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A change that keeps the global batch, and the bytes of one GPU then; `adapter` trains less than was asked."""

    change: str
    total_bytes: int
    fits: bool
    adapter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One configuration on one cluster.

    Attributes:
        step: operations of an optimiser step with every row as long as the window, on all GPUs.
        step_seconds: at the stated utilisation.
        ways: what would fit if this does not, each computed; empty if it does.
    """

    cluster: Cluster
    memory: Memory
    fits: bool
    global_batch: int
    step_tokens: int
    step: Operations
    step_seconds: float
    ways: tuple[Way, ...]


def plan(model: ModelFacts, recipe: Recipe, cluster: Cluster, *, gpu_flops: float, mfu: float) -> Plan:
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
    return Plan(
        cluster=cluster,
        memory=memory,
        fits=held,
        global_batch=batch,
        step_tokens=step_tokens,
        step=step,
        step_seconds=step.seconds(gpus=cluster.gpus, gpu_flops=gpu_flops, mfu=mfu),
        ways=() if held else ways_out(model, recipe, cluster),
    )


def ways_out(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> tuple[Way, ...]:
    """Every single change, and where none is enough one upon another as far as is needed; LoRA and QLoRA as well.

    The global batch stays in each: a smaller micro-batch has more accumulation.
    """
    singles = [_way(model, name, setup) for name, setup in _alternatives(model, recipe, cluster)]
    starts: list[tuple[list[str], Recipe, Cluster]] = []
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


def _alternatives(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> Iterator[tuple[str, _Setup]]:
    for name, change in (*_CHANGES, *_ADAPTERS):
        setup = _smaller_batch(model, recipe, cluster) if change is _single_rows else change(recipe, cluster)
        if setup:
            yield name.format(*setup), setup


def _smaller_batch(model: ModelFacts, recipe: Recipe, cluster: Cluster) -> _Setup | None:
    """The largest smaller micro-batch that fits and divides the given one; one row where none does."""
    for rows in range(recipe.micro_batch - 1, 0, -1):
        if recipe.micro_batch % rows:
            continue
        times = recipe.micro_batch // rows
        smaller = replace(recipe, micro_batch=rows, accumulation=recipe.accumulation * times)
        if rows == 1 or fits(memory_of(model, smaller, cluster), cluster):
            return smaller, cluster
    return None


def _ladder(model: ModelFacts, names: list[str], recipe: Recipe, cluster: Cluster) -> Way | None:
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


def _together(changes: Sequence[_Change], recipe: Recipe, cluster: Cluster) -> tuple[list[str], _Setup]:
    """The changes one upon another, and the names of those that change something."""
    names = []
    for name, change in changes:
        if setup := change(recipe, cluster):
            recipe, cluster = setup
            names.append(name.format(*setup))
    return names, (recipe, cluster)


def _sleep(recipe: Recipe, cluster: Cluster) -> _Setup | None:
    drawn = recipe.generation
    if drawn is None or not drawn.vllm or drawn.sleeps:
        return None
    return replace(recipe, generation=replace(drawn, sleeps=True)), cluster


def _checkpoint(recipe: Recipe, cluster: Cluster) -> _Setup | None:
    return None if recipe.checkpointing else (replace(recipe, checkpointing=True), cluster)


def _single_rows(recipe: Recipe, cluster: Cluster) -> _Setup | None:
    if recipe.micro_batch == 1:
        return None
    return replace(recipe, micro_batch=1, accumulation=recipe.accumulation * recipe.micro_batch), cluster


def _raise_to(stage: Sharding) -> Callable[[Recipe, Cluster], _Setup | None]:
    def change(recipe: Recipe, cluster: Cluster) -> _Setup | None:
        if cluster.gpus == 1 or cluster.sharding == "fsdp":
            return None
        if cluster.sharding in _STAGES and _STAGES.index(cluster.sharding) >= _STAGES.index(stage):
            return None
        return recipe, replace(cluster, sharding=stage)

    return change


def _offload_optimizer(recipe: Recipe, cluster: Cluster) -> _Setup | None:
    if cluster.sharding == "fsdp" or cluster.offload != "none":
        return None
    stage: Sharding = cluster.sharding if cluster.sharding in _STAGES else "zero2"
    return recipe, replace(cluster, sharding=stage, offload="optimizer")


def _offload_all(recipe: Recipe, cluster: Cluster) -> _Setup | None:
    if cluster.offload == "all":
        return None
    stage: Sharding = "fsdp" if cluster.sharding == "fsdp" else "zero3"
    return recipe, replace(cluster, sharding=stage, offload="all")


def _lora(recipe: Recipe, cluster: Cluster) -> _Setup | None:
    return None if recipe.lora else (replace(recipe, lora=True, weight_bytes=2), cluster)


def _qlora(recipe: Recipe, cluster: Cluster) -> _Setup | None:
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
