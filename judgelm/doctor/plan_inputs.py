"""Inputs of a training plan: the training YAML and accelerate's file, sizes of the model, and the rows of the data.

Fields of the files that no plan needs are ignored. Sizes come from the model's config alone, on the meta device.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from judgelm.doctor.training_plan import (
    GIB,
    Generation,
    GpuCluster,
    ModelFacts,
    Offload,
    Operations,
    Quantisation,
    Sharding,
    TrainingSetup,
    operations_of,
    steps_of,
)
from judgelm.engines.gguf.checkpoint import gguf_checkpoint
from judgelm.errors import ConfigError, InputError, JudgelmError, ModelError
from judgelm.jsonl import parse_json
from judgelm.prompts.catalog import TEMPLATES
from judgelm.prompts.judge_card import is_gguf
from judgelm.training.arguments import accumulation_steps, optimizer_states
from judgelm.training.rows.builder import RowOptions, SFTRowBuilder
from judgelm.training.rows.preferences import PairRowBuilder, PairRowOptions
from judgelm.yaml_files import read_yaml

_DPO_ONLY = ("judgments", "min_distance", "beta", "precompute_ref_log_probs", "loss_weights", "sync_ref_model")
_PREFERENCE_ONLY = (
    "reading", "both_orders", "consistency_weight", "score_line_weight", "word_weight", "pointwise_weight"
)  # fmt: skip
_GRPO_ONLY = ("num_generations", "max_completion_length", "form_weight", "length_weight")
_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
_SETUPS = (
    ("8 x A100-40G", 1, 39.5),  # GiB as torch reports them
    ("8 x A100-80G", 1, 79.2),
    ("2 nodes of 8 x A100-80G", 2, 79.2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A training configuration, as far as a plan needs it.

    Attributes:
        model: folder or hub id of the base.
        recipe: what decides memory and time.
        lora_r: rank of the adapter.
        lora_targets: ends of the names of the layers it is on, or a pattern of whole names or `all-linear`; None is
            peft's choice.
        train_data: files of rows.
        values: all fields as they stand in the file.
        global_batch: rows of an optimiser step over all GPUs; None follows from the others.
    """

    model: str
    recipe: TrainingSetup
    lora_r: int
    lora_targets: tuple[str, ...] | str | None
    train_data: tuple[str, ...]
    values: Mapping[str, Any]
    global_batch: int | None = None

    def on(self, cluster: GpuCluster) -> TrainingSetup:
        """The recipe with the accumulation that `train/sft.py` computes there; unchanged where it would refuse."""
        recipe = self.recipe
        try:
            passes = accumulation_steps(
                self.global_batch,
                per_device=recipe.micro_batch,
                accumulation=recipe.accumulation,
                processes=cluster.gpus,
            )
        except ConfigError:
            return recipe
        return replace(recipe, accumulation=passes)


def read_training(path: Path, changes: Mapping[str, Any] | None = None) -> Configured:
    """Read a training YAML; what is absent has TRL's default.

    Args:
        path: the YAML file.
        changes: fields that override the file's.

    Raises:
        InputError: not readable, or no mapping.
        ConfigError: a field that no plan can be made with.
    """
    values = {**_read(path), **(changes or {})}
    if not is_grpo(values) and (only := next((name for name in _DPO_ONLY if name in values), None)):
        raise ConfigError(
            f"{path}: {only} belongs to train/dpo.py, which has no plan yet, as its rows are two sequences each and, "
            "without use_peft or precompute_ref_log_probs, the judge's weights lie in memory twice; plan the "
            "fine-tuning of train/sft.py alone"
        )
    model = values.get("model_name_or_path")
    if not isinstance(model, str):
        raise ConfigError(
            f"{path}: model_name_or_path is missing; add --set model_name_or_path=BASE, a folder, GGUF file or hub id"
        )
    return Configured(
        model=model,
        recipe=_recipe(values, path),
        lora_r=_positive(values, "lora_r", 16, path),
        lora_targets=_lora_targets(values, path),
        train_data=_texts(values.get("train_data")),
        values=values,
        global_batch=_positive(values, "global_batch", 1, path) if values.get("global_batch") is not None else None,
    )


def _lora_targets(values: Mapping[str, Any], path: Path) -> tuple[str, ...] | str | None:
    """The targets as TRL hands them to peft: a list of one is its entry, which peft takes for a pattern."""
    targets = values.get("lora_target_modules")
    if targets is None or targets == []:
        return None
    if isinstance(targets, str):
        return targets
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise ConfigError(f"{path}: lora_target_modules is {targets!r}; it is a list of layer names")
    return targets[0] if len(targets) == 1 else tuple(targets)


def _recipe(values: Mapping[str, Any], path: Path) -> TrainingSetup:
    if is_grpo(values):
        values = {"max_length": 2048, **values}
    if not values.get("max_length"):
        raise ConfigError(f"{path}: max_length is missing; it is the judge's window in tokens (JudgeLM: 2048)")
    half = bool(values.get("fp16")) or values.get("bf16", True) is not False
    numbers, width = optimizer_states(str(values.get("optim", "adamw_torch")))
    quantisation: Quantisation = "4bit" if values.get("load_in_4bit") else "none"
    if values.get("load_in_8bit"):
        quantisation = "8bit"
    dtype = str(values.get("dtype") or "auto") if "dtype" in values else "float32"
    if dtype not in _DTYPES:
        raise ConfigError(f"{path}: dtype {dtype!r} not found; available: {', '.join(_DTYPES)}")
    return TrainingSetup(
        window=_positive(values, "max_length", 0, path),
        micro_batch=_positive(values, "per_device_train_batch_size", 8, path),
        accumulation=_positive(values, "gradient_accumulation_steps", 1, path),
        prompts=2 if is_preference(values) and values.get("both_orders", True) is not False else 1,
        epochs=float(values.get("num_train_epochs", 3.0)),
        max_steps=int(values.get("max_steps", -1)),
        weight_bytes=_DTYPES[dtype],
        compute_bytes=2 if half or _DTYPES[dtype] == 2 else 4,
        state_numbers=numbers,
        state_bytes=width,
        checkpointing=values.get("gradient_checkpointing", True) is not False,
        lora=bool(values.get("use_peft")),
        quantisation=quantisation,
        fused_head=True,  # TRL 1.16
        quadratic_attention=values.get("attn_implementation") == "eager",
        generation=_generation(values, path) if is_grpo(values) else None,
    )


def _generation(values: Mapping[str, Any], path: Path) -> Generation:
    return Generation(
        replies=_positive(values, "num_generations", 8, path),
        vllm=values.get("use_vllm") is not False,
        share=float(values.get("vllm_gpu_memory_utilization", 0.3)),
        sleeps=values.get("vllm_enable_sleep_mode") is True,
        reference=float(values.get("beta", 0)) > 0,
    )


def is_preference(values: Mapping[str, Any]) -> bool:
    """True for a configuration of `train/preference.py`, by the fields and templates that it alone has."""
    template = TEMPLATES.get(_template_of(values))
    return any(name in values for name in _PREFERENCE_ONLY) or (template is not None and template.reads_words)


def _template_of(values: Mapping[str, Any]) -> str:
    """The template, or that of the reading."""
    reading = values.get("reading")
    return str(values.get("template") or (reading if reading not in (None, "score-line") else "judgelm-v1"))


def is_grpo(values: Mapping[str, Any]) -> bool:
    """True for a configuration of `train/grpo.py`, by the fields that it alone has."""
    return any(name in values for name in _GRPO_ONLY)


def read_launch(path: Path | None) -> GpuCluster:
    """Read accelerate's file, and the DeepSpeed JSON it may name; without one, DDP.

    Returns:
        A cluster whose GPUs have no size yet; without `num_processes` in the file it has none.

    Raises:
        InputError: a file that cannot be read.
        ConfigError: a stage, a device or a way of sharding that no plan knows.
    """
    values = _read(path) if path else {}
    kind = str(values.get("distributed_type", "MULTI_GPU")).upper()
    nodes = int(values.get("num_machines") or 1)
    gpus = int(values.get("num_processes") or 0) // nodes
    cluster = GpuCluster(name="", gpus_per_node=gpus, nodes=nodes, gpu_memory_bytes=0)
    if kind == "DEEPSPEED":
        assert path is not None
        zero = _zero_options(values.get("deepspeed_config") or {}, path)
        stages: dict[object, Sharding] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
        if zero["stage"] not in stages:
            raise ConfigError(f"{path}: zero_stage {zero['stage']!r} not found; available: 0, 1, 2, 3")
        offload: Offload = (
            "all" if zero["param"] and zero["stage"] == 3 else "optimizer" if zero["optimizer"] else "none"
        )
        return replace(cluster, sharding=stages[zero["stage"]], offload=offload, reduce_bucket=zero["bucket"])
    if kind == "FSDP":
        options = values.get("fsdp_config") or {}
        strategy = str(options.get("fsdp_sharding_strategy") or options.get("fsdp_reshard_after_forward", True)).upper()
        return replace(
            cluster,
            sharding="ddp" if strategy in ("NO_SHARD", "3") else "fsdp",
            reshards=strategy not in ("SHARD_GRAD_OP", "2", "FALSE"),
            offload="all" if options.get("fsdp_offload_params") in (True, "true") else "none",
        )
    if kind not in ("NO", "MULTI_GPU", "MULTI_CPU"):
        raise ConfigError(
            f"{path}: distributed_type {kind} is not supported; available: NO, MULTI_GPU, DEEPSPEED, FSDP"
        )
    return cluster


def _zero_options(options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Stage, offloads and bucket, from accelerate's own fields or from the DeepSpeed JSON they name."""
    bucket: object = None
    if file := options.get("deepspeed_config_file"):
        try:
            zero = parse_json(Path(file).read_text(encoding="utf-8")).get("zero_optimization") or {}
        except (OSError, ValueError, AttributeError) as error:
            raise InputError(f"{path}: deepspeed_config_file {file}: cannot read: {error}") from error
        stage, bucket = zero.get("stage", 0), zero.get("reduce_bucket_size")
        devices = {name: (zero.get(f"offload_{name}") or {}).get("device") for name in ("optimizer", "param")}
    else:
        stage = options.get("zero_stage", 2)
        devices = {name: options.get(f"offload_{name}_device") for name in ("optimizer", "param")}
    away = {name: device not in (None, "none") for name, device in devices.items()}
    bucket_size = bucket if isinstance(bucket, int | float) else 500_000_000
    return {"stage": int(stage), "bucket": int(bucket_size), **away}


def clusters_of(launch: GpuCluster, *, gpus: int | None, gpu_memory_gib: float | None) -> list[GpuCluster]:
    """The clusters to plan for: the one that is stated, else three usual ones.

    Args:
        launch: from accelerate's file.
        gpus: all GPUs, over all machines; None takes the file's, where the memory is stated.
        gpu_memory_gib: of each.

    Raises:
        ConfigError: GPUs without their memory, none at all, or not the same number on every machine.
    """
    setups = [(name, 8, nodes, memory) for name, nodes, memory in _SETUPS]
    if gpus is not None or gpu_memory_gib is not None:
        gpus = gpus if gpus is not None else launch.gpus or 1
        if gpu_memory_gib is None:
            raise ConfigError(f"--gpus {gpus} needs --gpu-memory, in GiB of one GPU")
        if gpus < 1 or gpu_memory_gib <= 0 or gpus % launch.nodes:
            raise ConfigError(f"{gpus} GPUs of {gpu_memory_gib} GiB on {launch.nodes} machines: no such cluster")
        setups = [(f"{gpus} x {gpu_memory_gib:g} GiB", gpus // launch.nodes, launch.nodes, gpu_memory_gib)]
    clusters = [
        replace(launch, name=name, gpus_per_node=each, nodes=nodes, gpu_memory_bytes=round(memory * GIB))
        for name, each, nodes, memory in setups
    ]
    return [
        replace(cluster, sharding="none") if cluster.sharding == "ddp" and cluster.gpus == 1 else cluster
        for cluster in clusters
    ]


def _read(path: Path) -> Mapping[str, Any]:
    values = read_yaml(path) or {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected fields with values, as in configs/train/demo.yaml")
    return values


def _positive(values: Mapping[str, Any], name: str, default: int, path: Path) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{path}: {name} is {value!r}; it is a number of at least 1")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list) else ()


def _llama(hidden: int, layers: int, heads: int, intermediate: int, **others: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {"vocab_size": 32_000, "intermediate_size": intermediate, **sizes, **others}


SHAPES = {  # Touvron et al., 2023, Table 2; the MLP's width, and all of SmolLM2, from the released configs
    "llama-7b": _llama(4096, 32, 32, 11_008),
    "llama-13b": _llama(5120, 40, 40, 13_824),
    "llama-33b": _llama(6656, 60, 52, 17_920),
    "smollm2-135m": _llama(576, 30, 9, 1536, vocab_size=49_152, num_key_value_heads=3, tie_word_embeddings=True),
}
_KNOWN = re.compile(r"^(?:vicuna|judgelm|(?:open_)?llama(?:-2)?)[-_]?(7|13|30|33)b(?![0-9a-z])", re.IGNORECASE)
_SMOLLM2 = re.compile(r"^smollm2-135m(?![0-9a-z])", re.IGNORECASE)
_USUAL_TARGETS = ("q_proj", "v_proj")  # peft's choice for a Llama


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """Size of the training files; `rows` is None if it is unknown, and `why` says why.

    Attributes:
        rows: rows that are trained on.
        tokens: of all of them, padding excluded.
        longest: tokens of the longest row.
        cut: rows with an answer cut to the window.
        left_out: rows that teach nothing, by reason.
    """

    rows: int | None = None
    tokens: int = 0
    longest: int = 0
    cut: int = 0
    left_out: Mapping[str, int]
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A whole training: optimiser steps, tokens over all epochs without padding, and their operations."""

    steps: int
    tokens: float
    operations: Operations


def training_of(model: ModelFacts, recipe: TrainingSetup, data: DataFacts, cluster: GpuCluster) -> Training | None:
    """Totals over all steps; None if the data is unknown."""
    if not data.rows:
        return None
    steps = steps_of(recipe, cluster, data.rows)
    rows = steps * recipe.micro_batch * recipe.accumulation * cluster.gpus
    mean = data.tokens / data.rows
    tokens = mean * (rows if recipe.max_steps > 0 else recipe.epochs * data.rows)
    return Training(steps=steps, tokens=tokens, operations=operations_of(model, recipe, tokens, mean_length=mean))


def known_shape(model: str) -> str | None:
    """The shape that a hub id such as `lmsys/vicuna-7b-v1.5` or `huggyllama/llama-30b` is known to have."""
    name = model.rsplit("/", 1)[-1]
    if _SMOLLM2.match(name):
        return "smollm2-135m"
    match = _KNOWN.match(name)
    return None if match is None else f"llama-{'33' if match[1] == '30' else match[1]}b"


def look_at_model(configured: Configured, *, shape: str = "") -> tuple[ModelFacts, Configured]:
    """Sizes of the base model, from its config on disk, else from a known shape.

    Returns:
        The sizes, and the configuration with the number of heads, which eager attention needs; its model is the
        checkpoint of a GGUF file that is there.

    Raises:
        ConfigError: no such shape, or an adapter on layers that the model lacks.
        ModelError: neither a config nor a known shape, or a GGUF file that cannot be converted.
        RunError: it is converted into the cache, which cannot be written.
    """
    if is_gguf(configured.model) and (Path(configured.model).is_file() or not (shape or known_shape(configured.model))):
        configured = replace(configured, model=gguf_checkpoint(configured.model))
    config, source = _config(configured.model, shape)
    text = config.get_text_config()
    build: Any = AutoModelForCausalLM.from_config  # untyped in transformers
    with torch.device("meta"):
        model = build(config)
    head = model.get_output_embeddings()
    linear = {
        name: part for name, part in model.named_modules() if isinstance(part, torch.nn.Linear) and part is not head
    }
    adapted = _adapted(linear, configured.lora_targets)
    blocks = max((part for part in model.modules() if isinstance(part, torch.nn.ModuleList)), key=_parameters)
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    facts = ModelFacts(
        name=configured.model,
        source=source,
        total=_parameters(model),
        adapter=configured.lora_r * sum(layer.in_features + layer.out_features for layer in adapted),
        adapter_inputs=sum(layer.in_features for layer in adapted) // text.num_hidden_layers,
        linear=sum(layer.weight.numel() for layer in linear.values()),
        largest_module=max(sum(p.numel() for p in part.parameters(recurse=False)) for part in model.modules()),
        block=_parameters(blocks[0]),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        query=heads * width,
        key_value=(getattr(text, "num_key_value_heads", None) or heads) * width,
        intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        vocab=text.vocab_size,
    )
    return facts, replace(configured, recipe=replace(configured.recipe, heads=heads))


def _config(model: str, shape: str) -> tuple[Any, str]:
    if shape and shape not in SHAPES:
        raise ConfigError(f"--shape {shape} not found; available: {', '.join(SHAPES)}")
    reason = ""
    if not shape:
        try:
            return AutoConfig.from_pretrained(model, local_files_only=True), f"config of {model}"
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
    name = shape or known_shape(model)
    if name is None:
        raise ModelError(f"{model}: cannot read its config here ({reason}); give --shape {' or '.join(SHAPES)}")
    return LlamaConfig(**SHAPES[name]), f"known shape {name}"


def _parameters(module: Any) -> int:
    return sum(tensor.numel() for tensor in module.parameters())  # parameters() names a shared one once


def _adapted(linear: Mapping[str, Any], targets: tuple[str, ...] | str | None) -> list[Any]:
    """The layers that peft would put an adapter on; its choice for a Llama where none are stated."""
    if isinstance(targets, str) and targets.lower() == "all-linear":
        return list(linear.values())
    wanted = targets or _USUAL_TARGETS
    if isinstance(wanted, str):
        try:
            pattern = re.compile(wanted)
        except re.error as error:
            raise ConfigError(f"lora_target_modules {wanted!r}: not a pattern of layer names: {error}") from error
        adapted = [layer for name, layer in linear.items() if pattern.fullmatch(name)]
    else:
        ends = tuple(f".{end}" for end in wanted)
        adapted = [layer for name, layer in linear.items() if f".{name}".endswith(ends)]
    if targets and not adapted:
        ends_of_names = ", ".join(Counter(name.rsplit(".", 1)[-1] for name in linear))
        hint = f"; a single entry is a pattern of whole names, as '.*{targets}'" if isinstance(targets, str) else ""
        raise ConfigError(f"lora_target_modules {targets!r}: not found in the model; available: {ends_of_names}{hint}")
    return adapted


def look_at_data(configured: Configured) -> DataFacts:
    """Count the rows that the recipe would train on, exactly: same tokenizer, same builder, same seed."""
    if configured.recipe.generation is not None:
        return DataFacts(left_out={}, why="the replies are drawn while training")
    files = configured.train_data
    missing = [file for file in files if not Path(file).exists()]
    if not files or missing:
        return DataFacts(left_out={}, why=f"{missing[0]} is not there" if missing else "train_data is missing")
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(configured.model, local_files_only=True)
    except (OSError, ValueError):
        return DataFacts(left_out={}, why=f"no tokenizer of {configured.model} on this machine")
    try:
        builder, lengths = _row_lengths(configured, tokenizer)
    except JudgelmError as error:
        return DataFacts(left_out={}, why=str(error))
    counts = builder.counts
    return DataFacts(
        rows=counts.made, tokens=sum(lengths), longest=max(lengths), cut=counts.cut, left_out=dict(counts.left_out)
    )


def _row_lengths(configured: Configured, tokenizer: Any) -> tuple[SFTRowBuilder, list[int]]:
    """The builder of the rows, with its counts, and the tokens of each of their sequences."""
    options = _row_options(configured)
    if not is_preference(configured.values):
        builder = SFTRowBuilder(tokenizer, options)
        return builder, [len(row.input_ids) for row in builder.read(configured.train_data)]
    pairs = PairRowBuilder(tokenizer, PairRowOptions(**asdict(options), both_orders=configured.recipe.prompts == 2))
    rows = pairs.read(configured.train_data)
    return pairs, [len(ids) for row in rows for ids in (row.prompt_ids, row.second_ids) if len(ids)]


def _row_options(configured: Configured) -> RowOptions:
    values = configured.values
    low, high = values.get("scale", (1, 10))
    return RowOptions(
        template=_template_of(values),
        window=configured.recipe.window,
        scale=(low, high),
        swap_prob=float(values.get("swap_prob", 0.5)),
        reference_drop_prob=float(values.get("reference_drop_prob", 0.5)),
        reason_prob=float(values.get("reason_prob", 1.0)),
        loss_on_prompt=values.get("loss_on") == "all",
        seed=int(values.get("seed", 42)),
    )
