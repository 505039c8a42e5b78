"""Plans of a fine-tuning, worked by hand: parameters, memory by state, operations, and what is named as a way out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, LlamaConfig
from typer.testing import CliRunner

from judgelm.cli.main import app
from judgelm.doctor.plan_inputs import (
    clusters_of,
    known_shape,
    look_at_data,
    look_at_model,
    read_launch,
    read_training,
    training_of,
)
from judgelm.doctor.training_plan import (
    GIB,
    RESERVE_BYTES,
    Generation,
    GpuCluster,
    ModelFacts,
    TrainingSetup,
    fits,
    generation_bytes,
    memory_of,
    operations_of,
    plan,
    reference_bytes,
    steps_of,
    ways_out,
)
from judgelm.errors import ConfigError, ModelError
from tests.support.jsonl_files import write_rows

ROOT = Path(__file__).parents[2]
TRAINING_PAGE = (ROOT / "docs/training.md").read_text()
MODEL = ModelFacts(
    name="m", source="hand", total=1000, adapter=10, adapter_inputs=8, linear=600, largest_module=100, block=300,
    layers=2, hidden=4, query=4, key_value=2, intermediate=8, vocab=50,
)  # fmt: skip
RECIPE = TrainingSetup(window=10, micro_batch=2, accumulation=3)
CLUSTER = GpuCluster(name="c", gpus_per_node=4, gpu_memory_bytes=GIB, sharding="zero2")
BIG = replace(
    MODEL, total=7_000_000_000, adapter=4_000_000, linear=6_500_000_000, largest_module=131_000_000, block=200_000_000,
    layers=32, hidden=4096, query=4096, key_value=4096, intermediate=11_008, vocab=32_000,
)  # fmt: skip


def states(memory):
    return memory.weights, memory.gradients, memory.optimizer, memory.gathered, memory.communication


@pytest.fixture
def written(tmp_path):
    def write(name="train.yaml", **values):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(values))
        return path

    return write


@pytest.fixture
def configured(written):
    def read(model="lmsys/vicuna-7b-v1.5", **values):
        return read_training(written(model_name_or_path=str(model), **({"max_length": 2048} | values)))

    return read


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [
        ("llama-7b", 6_738_415_616),
        ("llama-13b", 13_015_864_320),
        ("llama-33b", 32_528_943_616),
        ("smollm2-135m", 134_515_008),
    ],
)
def test_the_parameters_by_formula_are_those_of_the_meta_model(configured, shape, parameters):
    facts, _ = look_at_model(configured(), shape=shape)
    assert facts.total == parameters


def test_a_block_and_its_layers_are_counted_apart(configured):
    facts, found = look_at_model(configured())
    # four projections 4096 x 4096, three of the MLP 4096 x 11008, two norms; without the norms: linear
    block = 4 * 4096**2 + 3 * 4096 * 11_008
    assert (facts.block, facts.linear) == (block + 2 * 4096, 32 * block)
    assert facts.largest_module == 32_000 * 4096
    # peft's q_proj and v_proj, rank 16: (4096 in + 4096 out) * 16 each
    assert (facts.adapter, facts.adapter_inputs) == (32 * 2 * 16 * 8192, 2 * 4096)
    assert found.recipe.heads == 32


@pytest.mark.parametrize(
    "targets",
    [
        None,
        ["q_proj", "down_proj"],
        "all-linear",
        ["All-Linear"],
        r".*layers\.1\..*_proj",
        [r".*(q|k)_proj"],
        [r"model\.layers\.0\.mlp\.up_proj"],
    ],
)
def test_an_adapter_has_as_many_parameters_as_peft_gives_it(tmp_path, configured, targets):
    peft = pytest.importorskip("peft")
    config = LlamaConfig(
        vocab_size=100, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    facts, _ = look_at_model(configured(tmp_path, lora_r=3, lora_target_modules=targets))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    given = targets[0] if isinstance(targets, list) and len(targets) == 1 else targets  # as TRL's ModelConfig does
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, task_type="CAUSAL_LM", target_modules=given))
    assert facts.adapter == sum(one.numel() for one in adapted.parameters() if one.requires_grad)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("lmsys/vicuna-7b-v1.5", "llama-7b"),
        ("meta-llama/Llama-2-13b-hf", "llama-13b"),
        ("huggyllama/llama-30b", "llama-33b"),
        ("BAAI/JudgeLM-33B-v1.0", "llama-33b"),
        ("weights/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m"),
        ("meta-llama/Llama-3.1-70B", None),
        ("codellama/CodeLlama-7b-hf", None),
    ],
)
def test_known_ids_have_a_known_shape(model, shape):
    assert known_shape(model) == shape


def test_a_model_that_nothing_is_known_of_is_refused(configured):
    with pytest.raises(ModelError, match="give --shape llama-7b or"):
        look_at_model(configured("nobody/nothing-9b"))


@pytest.mark.parametrize(
    ("targets", "finding"),
    [
        (["qq_proj", "v"], "not found in the model; available: q_proj"),
        # peft takes a single entry for a pattern of whole names, and adapts nothing
        (
            ["q_proj"],
            r"'q_proj': not found in the model; .* a single entry is a pattern of whole names, as '\.\*q_proj'",
        ),
        (["(q_proj"], r"'\(q_proj': not a pattern of layer names: "),
        ([3], r"lora_target_modules is \[3\]; it is a list of layer names"),
        ({"q_proj": True}, "it is a list of layer names"),
    ],
)
def test_targets_on_which_peft_would_put_no_adapter_are_refused(configured, targets, finding):
    with pytest.raises(ConfigError, match=finding):
        look_at_model(configured(lora_target_modules=targets))


RECIPES = [path for path in sorted((ROOT / "configs/train").glob("*.yaml")) if "dpo" not in path.stem]  # no plan yet


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_has_a_plan(path):
    configured = read_training(path)
    # models that the demo trains, or that only a hub has, are planned for in a known shape
    shape = "" if known_shape(configured.model) else "llama-7b"
    facts, configured = look_at_model(configured, shape=shape)
    assert facts.adapter > 0
    assert all(
        plan(facts, configured.on(one), one, gpu_flops=1e15, mfu=0.4).step_tokens
        for one in clusters_of(read_launch(None), gpus=None, gpu_memory_gib=None)
    )


LORA = {"lora": True, "weight_bytes": 2}


@pytest.mark.parametrize(
    ("sharding", "recipe", "expected"),
    [
        # weights 2 * 1000; gradients 2 * 1000 and 4 * 1000; master 4 and Adam 8 * 1000; a bucket of all, 2 * 1000
        ("zero1", {}, (2000, 2000 + 4000 / 4, 12_000 / 4, 0, 2000)),
        ("zero2", {}, (2000, 6000 / 4, 12_000 / 4, 0, 2000)),
        # the largest module, 100, gathered with its gradient: 2 * 2 * 100; the other 900 may be live: 2 * 900
        ("zero3", {}, (2000 / 4, 4000 / 4, 12_000 / 4, 400, 2000 + 1800)),
        # float32 weights under bf16: 4, 4 and 8 bytes, autocast's copies of the 600 linear, buckets like gradients
        ("ddp", {}, (4000, 4000, 8000, 1200, 4000)),
        # outside the blocks 400, and two blocks of 300 gathered, and two blocks' gradients: 2 * (1000 + 600)
        ("fsdp", {}, (1000, 1000, 2000, 3200, 0)),
        # 2 * 1000 frozen, 4 * 10 trained in float32; gradients 4 and Adam 8 bytes each
        ("ddp", LORA, (2040, 40, 80, 0, 40)),
        # 600 in 4 bit with a 4-byte scale for 64: 337.5; 400 in 16 bit; the adapter in 16 bit
        ("ddp", LORA | {"quantisation": "4bit"}, (round(800 + 20 + 337.5), 20, 40, 0, 20)),
        # over 4 GPUs 2 bytes of 1000 frozen and 10 trained; of the 10 float32 gradients, master copies and two states;
        # the largest module, 100, without a gradient, and the other 900 live; a bucket of the 10 in 16 bits
        ("zero3", LORA, (2 * 1010 / 4, 4 * 10 / 4, 12 * 10 / 4, 2 * 100, 2 * 10 + 2 * 900)),
    ],
)
def test_states_of_a_gpu(sharding, recipe, expected):
    memory = memory_of(MODEL, replace(RECIPE, **recipe), replace(CLUSTER, sharding=sharding))
    assert states(memory) == expected
    assert memory.total == sum(expected) + memory.activations + max(memory.logits, memory.recomputed) + RESERVE_BYTES


def test_offload_empties_the_gpu_and_fills_the_host():
    optimizer, everything = (replace(CLUSTER, sharding="zero3", offload=one) for one in ("optimizer", "all"))
    assert states(memory_of(MODEL, RECIPE, optimizer))[:4] == (500, 0, 0, 400)
    assert states(memory_of(MODEL, RECIPE, everything))[:4] == (0, 0, 0, 400)
    assert memory_of(MODEL, RECIPE, optimizer).host == 1.5 * 16 * 1000
    assert memory_of(MODEL, RECIPE, everything).host == 1.5 * 18 * 1000


def test_ddp_holds_a_quantised_base_on_every_gpu():
    recipe = replace(RECIPE, lora=True, weight_bytes=2, quantisation="4bit")
    single, eight = (
        memory_of(MODEL, recipe, replace(CLUSTER, gpus_per_node=gpus, sharding=sharding))
        for gpus, sharding in ((1, "none"), (8, "ddp"))
    )
    assert eight.weights == single.weights
    assert (single.communication, eight.communication) == (0, eight.gradients)  # buckets of the adapter's gradients
    # each process reads the 16-bit checkpoint a module at a time: 1.5 * 2 * 8 * 100, not the 1000 of a whole model
    assert eight.host == 1.5 * 2 * 8 * 100
    # no stage of ZeRO splits them either
    assert memory_of(MODEL, recipe, replace(CLUSTER, sharding="zero3")).weights == round(337.5 + 2 * (400 + 10) / 4)


PLANNED = [  # training config, accelerate's, known shape, GB of a GPU as the config names it and GiB as torch does
    ("judgelm_7b_lora", "zero3", "llama-7b", 24, 22.0),
    ("judgelm_7b_qlora", "ddp", "llama-7b", 24, 22.0),
    ("judgelm_13b_lora", "zero3", "llama-13b", 24, 22.0),
    ("judgelm_13b_qlora", "ddp", "llama-13b", 24, 22.0),
    ("judgelm_33b_lora", "zero3", "llama-33b", 40, 39.5),
    ("judgelm_33b_qlora", "ddp", "llama-33b", 80, 79.2),
]


@pytest.mark.parametrize(("name", "accelerate", "shape", "size", "memory"), PLANNED)
def test_the_recipes_for_adapters_on_eight_gpus_fit_as_they_say(name, accelerate, shape, size, memory):
    path = ROOT / f"configs/train/{name}.yaml"
    configured, launch = read_training(path), read_launch(ROOT / f"configs/accelerate/{accelerate}.yaml")
    (cluster,) = clusters_of(launch, gpus=8, gpu_memory_gib=memory)
    facts, configured = look_at_model(configured, shape=shape)
    planned = plan(facts, configured.on(cluster), cluster, gpu_flops=312e12, mfu=0.4)
    assert (cluster.sharding, planned.fits, planned.global_batch) == (accelerate, True, 128)
    assert f"of {size} GB" in path.read_text().partition("model_name_or_path")[0]
    peak = f"{planned.memory.total / GIB:.1f}"
    assert f"| `{name}.yaml`, `{accelerate}.yaml` | 8 of {size} GB | {peak} |" in TRAINING_PAGE


def test_activations_by_hand():
    plain = memory_of(MODEL, replace(RECIPE, checkpointing=False), CLUSTER)
    # 20 tokens; norms 2 * (4 + 4) * 4, attention 4 * 4 + 4 * 2, MLP 8 * 8 = 152 bytes; two blocks, the last norm 8 * 4
    assert (plain.activations, plain.recomputed) == (20 * (2 * 152 + 32), 0)
    # checkpointed: a 16-bit input of 4 features for each block, and one block at a time again
    kept = memory_of(MODEL, RECIPE, CLUSTER)
    assert (kept.activations, kept.recomputed) == (20 * (2 * 2 * 4 + 32), 20 * 152)
    # eager attention: float32 and 16-bit weights of 2 heads over 10 keys, keys and values of 4 features and not 2
    eager = memory_of(MODEL, replace(RECIPE, quadratic_attention=True, heads=2), CLUSTER)
    assert eager.recomputed - kept.recomputed == 20 * (6 * 2 * 10 + 4 * (4 - 2))


def test_logits_are_whole_or_a_tile_at_a_time():
    # 20 tokens x 50 words: 2 bytes, float32 log-softmax and gradient
    assert memory_of(MODEL, RECIPE, CLUSTER).logits == 20 * 50 * 10
    # one tile of all 20, float32 gradients of 20 x 4 inputs and of 50 x 4 weights; LoRA leaves the weights
    fused = replace(RECIPE, fused_head=True)
    assert memory_of(MODEL, fused, CLUSTER).logits == 20 * 50 * 2 + 20 * 4 * 4 + 50 * 4 * 4
    assert memory_of(MODEL, replace(fused, lora=True), CLUSTER).logits == 20 * 50 * 2 + 20 * 4 * 4


def test_operations_are_six_or_four_a_parameter_and_token():
    full, lora = (operations_of(MODEL, replace(RECIPE, lora=one), 100) for one in (False, True))
    assert (full.model, lora.model) == (6 * 1000 * 100, (4 * 1000 + 6 * 10) * 100)
    # causal: 2 blocks x 4 features x 10 keys, forward and backward 6; recomputed: one more forward, 2
    assert full.attention == 6 * 2 * 4 * 10 * 100
    assert full.recomputation == 2 * (1000 + 80) * 100
    # recomputation is no work done: (600000 + 48000) / (2 * 1000 * 0.5)
    assert full.seconds(gpus=2, gpu_flops=1000, mfu=0.5) == 648


def test_steps_are_counted_as_the_trainer_does():
    # 100 rows, 2 on each of 4 GPUs: 13 batches, 3 a step: 5 steps, 3 epochs
    assert steps_of(RECIPE, CLUSTER, 100) == 15
    assert steps_of(replace(RECIPE, max_steps=7), CLUSTER, 100) == 7


def test_a_plan_that_cannot_fit_names_what_would():
    cluster = GpuCluster(name="c", gpus_per_node=8, gpu_memory_bytes=40 * GIB, sharding="ddp")
    made = plan(BIG, replace(RECIPE, window=2048), cluster, gpu_flops=312e12, mfu=0.4)
    assert not made.fits
    assert made.global_batch == 2 * 3 * 8
    found = {way.change: way for way in made.ways}
    # ZeRO-1 alone: 4 bytes on each and 16 / 8 more, 6 * 7e9 = 42e9 bytes of 40.8e9 that are usable
    assert not found["zero_stage: 1"].fits
    assert found["zero_stage: 2"].fits
    assert found["use_peft: true, load_in_4bit: true (QLoRA), dtype: bfloat16"].fits
    batch = found["per_device_train_batch_size: 1, gradient_accumulation_steps: 6"]
    assert not batch.fits  # the states alone are too large; the global batch stays 1 * 6 * 8
    assert [way.fits for way in made.ways] == sorted((way.fits for way in made.ways), reverse=True)


def test_changes_are_put_together_where_none_is_enough():
    cluster = GpuCluster(name="c", gpus_per_node=2, gpu_memory_bytes=24 * GIB, sharding="ddp")
    recipe = TrainingSetup(window=2048, micro_batch=16, accumulation=1, checkpointing=False)
    found = ways_out(BIG, recipe, cluster)
    assert not any(way.fits and " + " not in way.change and not way.adapter for way in found)
    together = [way for way in found if way.fits and not way.adapter]
    assert len(together) == 1
    assert together[0].change.startswith("gradient_checkpointing: true + per_device_train_batch_size: 1,")
    assert "offload" in together[0].change


def test_of_smaller_batches_the_largest_that_fits_is_named():
    recipe = TrainingSetup(window=2048, micro_batch=16, accumulation=1)
    sizes = [memory_of(BIG, replace(recipe, micro_batch=one), CLUSTER).total for one in (16, 8)]
    cluster = replace(CLUSTER, gpu_memory_bytes=round((sizes[1] + 1) / 0.95))
    assert not fits(memory_of(BIG, recipe, cluster), cluster)
    changes = [way.change for way in ways_out(BIG, recipe, cluster) if way.fits]
    assert "per_device_train_batch_size: 8, gradient_accumulation_steps: 2" in changes


def test_what_is_absent_has_trls_default(configured):
    recipe = configured(attn_implementation="eager", optim="paged_adamw_8bit", learning_rate=1e-4).recipe
    assert (recipe.micro_batch, recipe.accumulation, recipe.epochs, recipe.weight_bytes) == (8, 1, 3.0, 4)
    assert recipe.checkpointing
    assert recipe.quadratic_attention
    assert (recipe.compute_bytes, recipe.state_numbers, recipe.state_bytes) == (2, 2, 1)
    assert configured(bf16=False).recipe.compute_bytes == 4


def test_the_accumulation_follows_from_the_global_batch_and_the_gpus(configured):
    def passes(gpus, **fields):
        cluster = GpuCluster(name="c", gpus_per_node=gpus, gpu_memory_bytes=GIB)
        return configured(per_device_train_batch_size=4, global_batch=128, **fields).on(cluster).accumulation

    # 128 rows, 4 a GPU: 32 passes on 1, 16 on 2, 4 on 8; 24 rows a pass on 6 make no 128, which is refused
    assert [passes(gpus) for gpus in (1, 2, 8, 6)] == [32, 16, 4, 1]
    assert passes(2, gradient_accumulation_steps=4) == 4


def test_a_configuration_no_plan_can_be_made_with_is_refused(written):
    with pytest.raises(ConfigError, match="model_name_or_path is missing; add --set model_name_or_path=BASE"):
        read_training(written(max_length=10))
    with pytest.raises(ConfigError, match="max_length is missing"):
        read_training(written(model_name_or_path="m"))
    with pytest.raises(ConfigError, match="cannot read"):
        read_training(written().parent / "nowhere.yaml")
    for config in (ROOT / "configs/train").glob("*dpo*.yaml"):  # two sequences a row, and a reference model
        with pytest.raises(ConfigError, match=r"judgments belongs to train/dpo\.py, which has no plan yet"):
            read_training(config)


def test_a_row_of_preferences_is_a_prompt_in_either_order(configured):
    assert configured(score_line_weight=0.1).recipe.prompts == 2
    assert configured(score_line_weight=0.1, both_orders=False).recipe.prompts == 1
    assert configured().recipe.prompts == 1
    assert [configured(**each).recipe.prompts for each in ({"reading": "yes-no"}, {"template": "letters"})] == [2, 2]


def test_an_accelerate_file_says_how_states_are_split(written):
    zero = {"zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "none"}
    launch = read_launch(written(distributed_type="DEEPSPEED", num_processes=16, num_machines=2, deepspeed_config=zero))
    assert (launch.sharding, launch.offload, launch.gpus, launch.nodes) == ("zero3", "optimizer", 16, 2)
    fsdp = {"fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_offload_params": True}
    launch = read_launch(written(distributed_type="FSDP", fsdp_config=fsdp))
    assert (launch.sharding, launch.offload, launch.reshards) == ("fsdp", "all", False)
    with pytest.raises(ConfigError, match="TPU is not supported"):
        read_launch(written(distributed_type="TPU"))


def test_a_deepspeed_json_is_followed(written, tmp_path):
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 2e8}
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": zero}))
    named = {"deepspeed_config_file": str(tmp_path / "zero.json")}
    launch = read_launch(written(distributed_type="DEEPSPEED", deepspeed_config=named))
    assert (launch.sharding, launch.offload, launch.reduce_bucket) == ("zero2", "optimizer", 200_000_000)


def test_without_gpus_three_usual_clusters_are_planned(written):
    launch = read_launch(written(distributed_type="MULTI_GPU", num_processes=4, num_machines=2))
    assert [one.gpus for one in clusters_of(launch, gpus=None, gpu_memory_gib=None)] == [8, 8, 16]
    (one,) = clusters_of(launch, gpus=None, gpu_memory_gib=24)
    assert (one.gpus_per_node, one.nodes, one.gpu_memory_bytes) == (2, 2, 24 * GIB)
    with pytest.raises(ConfigError, match="needs --gpu-memory"):
        clusters_of(launch, gpus=4, gpu_memory_gib=None)


def test_rows_are_counted_exactly_where_data_and_tokenizer_are_there(tiny_model, tmp_path, configured):
    rows = (
        {"id": str(one), "question": "what", "answers": ["a fox", "a dog " * one]} | ({"scores": [8, 6]} if one else {})
        for one in range(3)
    )
    data = str(write_rows(tmp_path / "rows.jsonl", rows))
    found = configured(tiny_model, train_data=[data], template="judgelm-compact", max_length=128)
    facts = look_at_data(found)
    assert facts.rows == 2, facts
    assert facts.tokens > facts.longest > 0
    assert sum(facts.left_out.values()) == 1
    training = training_of(MODEL, replace(RECIPE, epochs=2.0), facts, replace(CLUSTER, gpus_per_node=1))
    assert (training.steps, training.tokens) == (2, 2 * facts.tokens)


def test_data_that_is_not_there_is_unknown_and_not_zero(configured):
    facts = look_at_data(configured(train_data=["nowhere.jsonl"]))
    assert facts.rows is None
    assert facts.why == "nowhere.jsonl is not there"
    assert training_of(MODEL, RECIPE, facts, CLUSTER) is None


def test_the_command_refuses_and_its_json_says_why(written, tmp_path):
    train = written(model_name_or_path="huggyllama/llama-30b", max_length=2048, per_device_train_batch_size=1)
    command = ["doctor", "--train", str(train), "--gpus", "8", "--gpu-memory", "39.5"]
    out = tmp_path / "plan.json"
    done = CliRunner().invoke(app, [*command, "--json", str(out)])
    assert done.exit_code == 1, done.output
    assert "does not fit" in done.output
    (found,) = json.loads(out.read_text())["plans"]
    assert found["total_bytes"] > found["cluster"]["gpu_memory_bytes"]
    assert any(way["fits"] for way in found["ways"])
    zero = {"zero_stage": 3, "offload_optimizer_device": "cpu"}
    accelerate = written("zero3.yaml", distributed_type="DEEPSPEED", num_processes=8, deepspeed_config=zero)
    assert CliRunner().invoke(app, [*command, "--accelerate", str(accelerate)]).exit_code == 0


DRAWN = Generation(replies=8, share=0.35)


def test_vllm_takes_its_share_for_as_long_as_it_is_awake():
    # of a GPU of 1,000 bytes 350; asleep it only counts where it takes more than a training pass
    sizes = {"gpu": 1000, "weights": 200, "cached": 999, "gathers": True}
    assert generation_bytes(DRAWN, working=100, **sizes) == 350
    asleep = replace(DRAWN, sleeps=True)
    assert [generation_bytes(asleep, working=working, **sizes) for working in (100, 400)] == [250, 0]
    # weights of 400 bytes and a tenth for the cache do not fit into its share
    assert generation_bytes(DRAWN, working=100, **(sizes | {"weights": 400})) == 440
    # transformers keeps keys and values, and gathers sharded weights
    own, sizes = replace(DRAWN, vllm=False), {"gpu": 1000, "working": 100, "weights": 200, "cached": 300}
    assert [generation_bytes(own, gathers=gathers, **sizes) for gathers in (False, True)] == [200, 400]
    # a reference model is a copy in 16 bits, unless an adapter can be switched off
    for reference, lora, expected in ((True, False, 250), (True, True, 0), (False, False, 0)):
        assert reference_bytes(replace(DRAWN, reference=reference), total=1000, lora=lora, shards=8) == expected


def test_the_plan_of_a_reinforcement_adds_both_to_the_peak():
    recipe = replace(RECIPE, generation=replace(DRAWN, reference=True))
    bare, memory = (memory_of(BIG, each, CLUSTER) for each in (RECIPE, recipe))
    assert memory.total == bare.total + memory.reference + memory.generation
    assert (memory.reference, memory.generation) == (14_000_000_000, 15_400_000_000)  # weights x 1.1, as 1 GiB is less


def test_the_recipe_of_a_reinforcement_is_read():
    configured = read_training(ROOT / "configs/train/grpo_7b.yaml")
    assert configured.recipe.generation == Generation(replies=8, share=0.35, sleeps=True)
    assert (configured.recipe.window, configured.recipe.prompts) == (4096, 1)
    _, known = look_at_model(configured, shape="llama-7b")
    assert look_at_data(known).why == "the replies are drawn while training"


def test_sleeping_is_a_way_out():
    awake = replace(RECIPE, window=2048, generation=replace(DRAWN, share=0.01))
    needed = memory_of(BIG, awake, replace(CLUSTER, sharding="zero3")).total
    cluster = replace(CLUSTER, sharding="zero3", gpu_memory_bytes=round(needed / 0.95) - GIB)
    assert not fits(memory_of(BIG, awake, cluster), cluster)
    assert "vllm_enable_sleep_mode: true" in [way.change for way in ways_out(BIG, awake, cluster) if way.fits]
