"""Memory of a fine-tuning, worked by hand: parameters, states of a GPU under any sharding, activations and the loss."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from transformers import LlamaConfig

from judgelm.errors import ConfigError, InputError, ModelError
from judgelm.training.memory import RESERVE_BYTES, ModelSizes, TrainingSetup, memory_of, read_setup, sizes_of
from tests.support.in_process import exit_code

ROOT = Path(__file__).parents[2]
TRAINING_PAGE = (ROOT / "docs/training.md").read_text()
MODEL = ModelSizes(
    total=1000, linear=600, largest_module=100, block=300, layers=2, hidden=4, query=4, key_value=2, intermediate=8,
    vocab=50, adapter=10, adapter_inputs=8,
)  # fmt: skip
SETUP = TrainingSetup(window=10, micro_batch=2)
LORA = {"lora": True, "weight_bytes": 2}


@pytest.fixture
def written(tmp_path):
    def write(values):
        (tmp_path / "train.yaml").write_text(yaml.safe_dump(values))
        return tmp_path / "train.yaml"

    return write


def test_the_parameters_by_formula_are_those_of_the_meta_model():
    parameters = [sizes_of({}, shape).total for shape in ("llama-7b", "llama-13b", "llama-33b")]
    assert parameters == [6_738_415_616, 13_015_864_320, 32_528_943_616]


def test_a_block_and_its_layers_are_counted_apart():
    sizes = sizes_of({"use_peft": True}, "llama-7b")
    # four projections 4096 x 4096, three of the MLP 4096 x 11008, two norms; without the norms: linear
    block = 4 * 4096**2 + 3 * 4096 * 11_008
    assert (sizes.block, sizes.linear) == (block + 2 * 4096, 32 * block)
    assert (sizes.largest_module, sizes.vocab) == (32_000 * 4096, 32_000)
    # peft's q_proj and v_proj, rank 16: (4096 in + 4096 out) * 16 each; the base is counted without them
    assert (sizes.adapter, sizes.adapter_inputs, sizes.total) == (32 * 2 * 16 * 8192, 2 * 4096, 6_738_415_616)


def test_the_only_target_is_a_pattern_as_trl_hands_it_on(tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaConfig(vocab_size=100, num_key_value_heads=2, **sizes).save_pretrained(tmp_path)
    lora = {"model_name_or_path": str(tmp_path), "use_peft": True, "lora_r": 3}
    # q: 16 -> 16, k: 16 -> 8 (two of four heads), in both layers; up: 16 -> 24, in the first
    assert sizes_of(lora | {"lora_target_modules": [r".*(q|k)_proj"]}).adapter == 2 * 3 * (32 + 24)
    assert sizes_of(lora | {"lora_target_modules": [r"model\.layers\.0\.mlp\.up_proj"]}).adapter == 3 * 40


@pytest.mark.parametrize("targets", [["qq_proj", "v"], ["q_proj"], ["(q_proj"], [3]])
def test_targets_on_which_peft_would_put_no_adapter_are_refused(targets):
    with pytest.raises(ConfigError, match="lora_target_modules"):
        sizes_of({"use_peft": True, "lora_target_modules": targets}, "llama-7b")


def test_a_model_that_nothing_is_known_of_is_refused():
    with pytest.raises(ModelError, match=r"nobody/nothing-9b: .* --shape llama-7b or"):
        sizes_of({"model_name_or_path": "nobody/nothing-9b"})
    with pytest.raises(ConfigError, match="--set model_name_or_path=BASE"):
        sizes_of({})
    with pytest.raises(ConfigError, match="--shape 'gpt' does not exist"):
        sizes_of({}, "gpt")


@pytest.mark.parametrize(
    ("sharding", "setup", "expected"),
    [
        # weights 2 * 1000; gradients 2 * 1000 and 4 * 1000; master 4 and Adam 8 * 1000; a bucket of all, 2 * 1000
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
        ("ddp", LORA | {"quantisation": "4bit"}, (800 + 20 + 337.5, 20, 40, 0, 20)),
        # over 4 GPUs 2 bytes of 1000 frozen and 10 trained; of the 10 float32 gradients, master copies and two states;
        # the largest module, 100, without a gradient, and the other 900 live; a bucket of the 10 in 16 bits
        ("zero3", LORA, (2 * 1010 / 4, 4 * 10 / 4, 12 * 10 / 4, 2 * 100, 2 * 10 + 2 * 900)),
        # no stage of ZeRO splits the layers in 4 bits
        ("zero3", LORA | {"quantisation": "4bit"}, (337.5 + 2 * 410 / 4, 10, 30, 200, 1820)),
    ],
)
def test_states_of_a_gpu(sharding, setup, expected):
    memory = memory_of(MODEL, replace(SETUP, **setup), gpus=4, sharding=sharding)
    assert memory[:5] == expected
    assert sum(memory) == sum(expected) + memory.activations + memory.loss + RESERVE_BYTES


def test_activations_and_the_loss_by_hand():
    plain, kept = (memory_of(MODEL, replace(SETUP, checkpointing=on), sharding="zero2") for on in (False, True))
    # 20 tokens; norms 2 * (4 + 4) * 4, attention 4 * 4 + 4 * 2, MLP 8 * 8 = 152 bytes; two blocks, the last norm 8 * 4
    assert plain.activations == 20 * (2 * 152 + 32)
    # checkpointed: a 16-bit input of 4 features for each block, and one block at a time again: 20 * 152
    assert kept.activations == 20 * (2 * 2 * 4 + 32)
    # a tile of 20 tokens x 50 words, float32 gradients of 20 x 4 inputs and of 50 x 4 weights, which LoRA leaves
    assert plain.loss == 20 * 50 * 2 + 20 * 4 * 4 + 50 * 4 * 4
    assert kept.loss == max(20 * 152, plain.loss)
    lora = memory_of(MODEL, replace(SETUP, lora=True, checkpointing=False))
    assert lora.loss == 20 * 50 * 2 + 20 * 4 * 4


# rows of 2,048 tokens, gradient checkpointing, GiB that one H200 held at the peak (docs/benchmarks.md)
@pytest.mark.parametrize(("rows", "checkpointing", "measured"), [(8, True, 24.4), (4, False, 74.1)])
def test_the_estimate_of_lora_on_one_gpu_is_near_what_was_measured(rows, checkpointing, measured):
    changes = {"per_device_train_batch_size": rows, "gradient_checkpointing": checkpointing}
    values, setup = read_setup(ROOT / "configs/train/judgelm_7b_lora.yaml", changes)
    memory = memory_of(sizes_of(values, "llama-7b"), setup)
    estimated = (sum(memory) - memory.reserve) / 2**30  # torch does not count CUDA's own
    assert estimated == pytest.approx(measured, rel=0.2)


PLANNED = [  # training config, accelerate's, known shape, GB of a GPU as the config names it and GiB as torch does
    ("judgelm_7b", "zero3", "llama-7b", 40, 39.5),
    ("judgelm_7b_lora", "zero3", "llama-7b", 24, 22.0),
    ("judgelm_7b_qlora", "ddp", "llama-7b", 24, 22.0),
    ("judgelm_13b_lora", "zero3", "llama-13b", 24, 22.0),
    ("judgelm_13b_qlora", "ddp", "llama-13b", 24, 22.0),
    ("judgelm_33b_lora", "zero3", "llama-33b", 40, 39.5),
    ("judgelm_33b_qlora", "ddp", "llama-33b", 80, 79.2),
]


@pytest.mark.parametrize(("name", "accelerate", "shape", "size", "gib"), PLANNED)
def test_the_recipes_on_eight_gpus_fit_as_they_and_the_page_say(tmp_path, name, accelerate, shape, size, gib):
    train, out = ROOT / f"configs/train/{name}.yaml", tmp_path / "memory.json"
    options = ("--shape", shape, "--gpus", 8, "--sharding", accelerate, "--gpu-memory", gib, "--json", out)
    assert exit_code("judgelm", "doctor", "--train", train, *options) == 0
    estimate = json.loads(out.read_text())
    assert estimate["fits"] is True
    peak = f"{estimate['total_bytes'] / 2**30:.1f}"
    assert f"| `{name}.yaml`, `{accelerate}.yaml` | 8 of {size} GB | {peak} |" in TRAINING_PAGE
    assert f"of {size} GB" in train.read_text().partition("model_name_or_path")[0]


def test_what_is_absent_has_trls_default(written):
    _, setup = read_setup(written({"max_length": 2048, "optim": "paged_adamw_8bit"}), {})
    assert (setup.micro_batch, setup.weight_bytes, setup.compute_bytes, setup.checkpointing) == (8, 4, 2, True)
    assert (setup.state_numbers, setup.state_bytes, setup.prompts) == (2, 1, 1)
    path = written({"max_length": 1})
    assert read_setup(path, {"bf16": False})[1].compute_bytes == 4
    for changes in ({"score_line_weight": 0.1}, {"reading": "yes-no"}, {"template": "letters"}):
        assert read_setup(path, changes)[1].prompts == 2
    assert read_setup(path, {"score_line_weight": 0.1, "both_orders": False})[1].prompts == 1


@pytest.mark.parametrize(
    ("values", "finding"),
    [
        ({}, "max_length is 0; expected an integer"),
        ({"max_length": "2k"}, "max_length is '2k'"),
        ({"max_length": 1, "dtype": "int8"}, "dtype 'int8' does not exist"),
        ({"max_length": 1, "attn_implementation": "eager"}, "attn_implementation eager; use sdpa"),
        ({"max_length": 1, "num_generations": 8}, r"num_generations is an argument of train/grpo\.py"),
        ([1], "expected a mapping"),
    ],
)
def test_a_configuration_that_cannot_be_estimated_is_refused(written, values, finding):
    with pytest.raises((ConfigError, InputError), match=finding):
        read_setup(written(values), {})


def test_every_recipe_of_fine_tuning_is_estimated():
    for path in sorted((ROOT / "configs/train").glob("*.yaml")):
        if "grpo" in path.stem:
            with pytest.raises(ConfigError, match="cannot be estimated"):
                read_setup(path, {})
        else:
            assert read_setup(path, {})[1].window > 0


def test_a_gpu_that_is_too_small_ends_with_1(capsys):
    train = ROOT / "configs/train/judgelm_33b.yaml"
    options = ("--shape", "llama-33b", "--gpus", 8, "--sharding", "zero3", "--gpu-memory", 40)
    assert exit_code("judgelm", "doctor", "--train", train, *options) == 1
    assert "does not fit" in capsys.readouterr().out
