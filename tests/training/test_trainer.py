"""The loss: the same without padding, weighted on the score line, never seen across rows."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import is_liger_kernel_available
from trl import ModelConfig, SFTConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from benchmarks.synthetic.pairs import generate
from judgelm.errors import ConfigError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.trainer import ScoreLineCollator, is_padding_free, score_line_tokens
from tests.support.recipe_runs import build

ROOT = Path(__file__).parents[2]
COMMON = {
    "max_length": 384, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 2,
    "learning_rate": 0.001, "use_cpu": True, "bf16": False, "save_strategy": "no", "report_to": "none",
    "gradient_checkpointing": False, "disable_tqdm": True, "logging_steps": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(40, seed=0, split="train")))
    return str(path)


@pytest.fixture
def tune(tiny_model, train_file, tmp_path):
    """Builds a trainer of the tiny model on the world's rows."""

    def prepared(judge=None, **options):
        arguments = JudgeArguments(train_data=[train_file], template="judgelm-compact", **(judge or {}))
        sft = SFTConfig(output_dir=str(tmp_path / "judge"), **COMMON | options)
        return build("sft", arguments, sft, ModelConfig(model_name_or_path=str(tiny_model)))

    return prepared


def logged(trainer):
    """Train; each step's loss and norm of its gradients."""
    trainer.train()
    return [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]


def batch_of(trainer):
    return next(iter(trainer.get_train_dataloader()))


def weighted_by_hand(base, rows, weight):
    """Sum of weight x nll over sum of weights, and the norm of its gradients, one row at a time from the logits."""
    model = AutoModelForCausalLM.from_pretrained(base)
    [newline] = AutoTokenizer.from_pretrained(base)("\n")["input_ids"]
    total = weights = 0.0
    for row in rows:
        log_probs = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
        in_score_line = True
        for place, label in enumerate(row["labels"]):
            if label != -100:
                one = weight if in_score_line else 1.0
                total, weights = total - one * log_probs[place - 1, label], weights + one
                in_score_line = in_score_line and label != newline
    loss = total / weights
    loss.backward()
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    return loss.item(), norm.item()


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 1e-5), (True, 2e-3)])
def test_the_loss_and_its_gradients_are_the_same_without_padding(tune, bf16, tolerance):
    padded, free = tune(bf16=bf16), tune(bf16=bf16, padding_free=True)
    assert len(batch_of(padded)["input_ids"]) == 4
    assert len(batch_of(free)["input_ids"]) == 1
    for one, other in zip(logged(padded), logged(free), strict=True):
        assert other == pytest.approx(one, rel=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_see_the_tokens_of_another(tune, dtype):
    trainer = tune(padding_free=True)
    batch, model = batch_of(trainer), trainer.model.to(dtype).eval()
    first = int(batch["cu_seq_lens_q"][1])
    other = batch | {"input_ids": batch["input_ids"].clone()}
    other["input_ids"][0, :first] = other["input_ids"][0, :first].flip(0)
    with torch.no_grad():
        before, after = (model(**one, fused_lm_head=True).log_probs[0] for one in (batch, other))
    assert torch.equal(before[first:], after[first:])
    assert not torch.allclose(before[:first], after[:first])


@pytest.mark.parametrize(
    ("asked", "attention", "expected"),
    [
        (False, "flash_attention_2", True),
        (False, "flash_attention_3", True),
        (False, "kernels-community/flash-attn3", True),
        (False, "sdpa", False),
        (False, None, False),
        (True, "sdpa", True),
    ],
)
def test_a_kernel_that_takes_any_lengths_gets_no_padding(asked, attention, expected):
    assert is_padding_free(asked, attention) is expected


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize("weight", [3.0, 0.25])
def test_score_tokens_weigh_more_or_less_over_the_whole_step(tune, tiny_model, weight, padding_free):
    trainer = tune({"score_weight": weight}, padding_free=padding_free, max_steps=1)
    rows = trainer.rows.dataset.select(range(8))  # two passes of four rows
    assert logged(trainer) == [pytest.approx(weighted_by_hand(tiny_model, rows, weight), rel=1e-4)]


def test_the_eval_loss_is_weighted_alike(tune, tiny_model, train_file):
    judge = {"score_weight": 3.0, "eval_data": [train_file], "swap_prob": 0}
    trainer = tune(judge, per_device_eval_batch_size=40)
    expected, _ = weighted_by_hand(tiny_model, trainer.eval_dataset, 3.0)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("padding_free", "expected"),
    [(False, [[0, 0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0, 0]]), (True, [[0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1]])],
)
def test_score_lines_are_marked_where_their_tokens_stand_in_the_batch(tiny_model, padding_free, expected):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    pair, single = (tokenizer(text)["input_ids"] for text in ("10 3\n", " 10\n"))
    assert (len(pair), len(single)) == (4, 3)  # digits are tokens of their own
    rows = [
        {"input_ids": [5, 6, *pair, 9], "labels": [-100, -100, *pair, 9]},
        {"input_ids": [5, *single], "labels": [-100, *single]},
    ]
    collator = ScoreLineCollator(DataCollatorForLanguageModeling(0, padding_free=padding_free), tokenizer)
    assert collator(rows)["score_line"].int().tolist() == expected


def test_a_line_end_that_is_a_byte_ends_the_score_line_too():
    # as Vicuna's tokenizer has it
    vocabulary = {"▁8": 0, "▁": 1, "3": 2, "<0x0A>": 3, "because": 4}
    fast = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast)
    assert score_line_tokens([0, 1, 2, 3, 4], tokenizer) == 4
    assert score_line_tokens([0, 1, 2], tokenizer) == 3  # the whole of what there is


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        ({"score_weight": 0}, {}, "score_weight is 0; it is a number above 0"),
        ({"score_weight": -1.0}, {}, "score_weight is -1.0"),
        ({"score_weight": math.inf}, {}, "score_weight is inf"),
        ({"score_weight": math.nan}, {}, "score_weight is nan"),
        ({"score_weight": 2.0, "loss_on": "all"}, {}, "loss_on 'all' has no score line"),
        ({"score_weight": 2.0}, {"loss_type": "dft"}, "loss_type is 'dft'"),
        ({"score_weight": 2.0}, {"label_smoothing_factor": 0.1}, "label_smoothing_factor 0.1"),
    ],
)
def test_a_weight_that_cannot_be_is_refused(tune, judge, options, message):
    with pytest.raises(ConfigError, match=message):
        tune(judge, **options)


@pytest.mark.skipif(is_liger_kernel_available(), reason="it is installed")
def test_liger_kernels_that_are_not_installed_are_refused_with_the_way_out(tune):
    with pytest.raises(ConfigError, match="run: pip install liger-kernel"):
        tune(use_liger_kernel=True)


@pytest.mark.slow
def test_two_processes_divide_by_the_weights_of_all_rows(tune, tiny_model, train_file, tmp_path):
    judge = {"score_weight": 3.0, "reference_drop_prob": 0.5, "swap_prob": 0.5}
    expected = [loss for loss, _ in logged(tune(judge))]
    options = COMMON | judge | {
        "gradient_accumulation_steps": 1, "model_name_or_path": str(tiny_model), "train_data": [train_file],
        "template": "judgelm-compact", "output_dir": str(tmp_path / "two"),
    }  # fmt: skip
    (tmp_path / "two.yaml").write_text(json.dumps(options))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        str(ROOT / "train/sft.py"), "--config", str(tmp_path / "two.yaml"),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=280, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(line.split("'loss': '")[1].split("'")[0]) for line in done.stdout.splitlines() if "'loss'" in line]
    assert losses == pytest.approx(expected, rel=1e-3)  # printed with four digits


@pytest.mark.parametrize(
    "option",
    [
        {"eos_token": "<pad>"},
        {"chat_template_path": "elsewhere"},
        {"shuffle_dataset": True},
        {"assistant_only_loss": True},
        {"eval_packing": True},
        {"ignore_data_skip": True},
        {"auto_find_batch_size": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_that_would_undo_the_rows_are_refused(tune, option):
    [name] = option
    with pytest.raises(ConfigError, match=rf"^{name} is .*; leave {name} out$"):
        tune(**option)
