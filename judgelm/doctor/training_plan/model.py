"""Sizes of a model from its config alone, on the meta device, and what its data comes to under its own tokenizer."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from judgelm.doctor.training_plan.configs import Configured, is_preference
from judgelm.doctor.training_plan.estimate import Cluster, ModelFacts, Recipe
from judgelm.doctor.training_plan.operations import Operations, operations_of, steps_of
from judgelm.engines.gguf import gguf_checkpoint
from judgelm.errors import ConfigError, JudgelmError, ModelError
from judgelm.prompts.judge_card import is_gguf
from judgelm.training.rows.builder import SFTRowBuilder
from judgelm.training.rows.pair_prompts import PairRowBuilder, PairRowOptions
from judgelm.training.rows.records import RowOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """The sizes of a Llama; without `key_value_heads` it has as many as of queries.

    `tied` is True where the output head is the embedding.
    """

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocab: int = 32_000
    key_value_heads: int | None = None
    tied: bool = False

    @property
    def parameters(self) -> int:
        """Embedding and head; four projections, three of the MLP and two norms a block; the last norm."""
        keys = self.hidden * (self.key_value_heads or self.heads) // self.heads
        block = 2 * self.hidden * (self.hidden + keys) + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return (2 - self.tied) * self.vocab * self.hidden + self.layers * block + self.hidden


SHAPES = {  # Touvron et al., 2023, Table 2; the MLP's width, and all of SmolLM2, from the released configs
    "llama-7b": LlamaShape(hidden=4096, layers=32, heads=32, intermediate=11_008),
    "llama-13b": LlamaShape(hidden=5120, layers=40, heads=40, intermediate=13_824),
    "llama-33b": LlamaShape(hidden=6656, layers=60, heads=52, intermediate=17_920),
    "smollm2-135m": LlamaShape(
        hidden=576, layers=30, heads=9, intermediate=1536, vocab=49_152, key_value_heads=3, tied=True
    ),
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


def training_of(model: ModelFacts, recipe: Recipe, data: DataFacts, cluster: Cluster) -> Training | None:
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
    known = SHAPES[name]
    config = LlamaConfig(
        vocab_size=known.vocab,
        hidden_size=known.hidden,
        intermediate_size=known.intermediate,
        num_hidden_layers=known.layers,
        num_attention_heads=known.heads,
        num_key_value_heads=known.key_value_heads,
        tie_word_embeddings=known.tied,
    )
    return config, f"known shape {name}"


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
    return pairs, [len(ids) for row in rows for ids in (row.prompt_ids, row.swapped_ids) if len(ids)]


def _row_options(configured: Configured) -> RowOptions:
    values = configured.values
    low, high = values.get("scale", (1, 10))
    return RowOptions(
        template=str(values.get("template", "judgelm-v1")),
        window=configured.recipe.window,
        scale=(low, high),
        swap_prob=float(values.get("swap_prob", 0.5)),
        reference_drop_prob=float(values.get("reference_drop_prob", 0.5)),
        reason_prob=float(values.get("reason_prob", 1.0)),
        loss_on_prompt=values.get("loss_on") == "all",
        seed=int(values.get("seed", 42)),
    )
