"""Rows on several processes: the same bytes on any number, nothing left of what failed, nobody waiting for the dead."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from benchmarks.synthetic.pairs import generate
from judgelm.data.builder.options import usable_workers
from judgelm.data.labelled_pair import LabelledPair
from judgelm.errors import RunError
from judgelm.prompts.catalog import get_template
from judgelm.records import Label, Sample
from judgelm.training.rows.builder import CHUNK, RowJob, RowOptions, SFTRowBuilder, make_chunks
from judgelm.training.rows.dataset import Schedule, build_epochs, rows_in

ROWS = 2 * CHUNK + 40


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(ROWS, seed=0, split="train")) + "torn\n")
    return str(path)


def laid_out(tokenizer, file, folder, *, steps=None, **options):
    rows = RowOptions(template="judgelm-compact", window=300, swap_prob=0.5)
    schedule = Schedule(epochs=3.0, steps=steps, batch=8, group_by_length=False, seed=0)
    return build_epochs(tokenizer, rows, [file], schedule, folder, **options)


def bytes_in(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_the_files_are_the_same_bytes_on_any_number_of_workers(tokenizer, file, tmp_path):
    made = [laid_out(tokenizer, file, tmp_path / str(count), workers=count) for count in (1, 2, 3)]
    assert made[0].counts.made == made[0].per_epoch == ROWS
    assert made[0].epochs == 3
    assert made[0].counts.left_out == {"unusable line": 1}
    assert bytes_in(tmp_path / "1") == bytes_in(tmp_path / "2") == bytes_in(tmp_path / "3")
    assert [one.counts for one in made[1:]] == [made[0].counts] * 2
    builder = SFTRowBuilder(tokenizer, RowOptions(template="judgelm-compact", window=300, swap_prob=0.5))
    alone = {row.sample_id: row.input_ids.tolist() for row in builder.read([file], 1)}
    second = made[1].dataset.select(range(ROWS, 2 * ROWS))
    assert dict(zip(second["sample_id"], second["input_ids"], strict=True)) == alone


def test_where_steps_decide_how_many_epochs_there_are_the_rows_are_the_same(tokenizer, file, tmp_path):
    # 150 x 8 rows are 3 epochs of 552, which is known once the first is made
    by_steps, by_epochs = (laid_out(tokenizer, file, tmp_path, workers=1, steps=steps) for steps in (150, None))
    assert by_steps.epochs == 3
    assert by_steps.dataset["input_ids"] == by_epochs.dataset["input_ids"]


class Dying(SFTRowBuilder):
    """Ends its process as the kernel would for want of memory, but not the one that reads."""

    def build(self, item, epoch=0):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_ends_the_run_with_a_sentence_and_no_file(tokenizer, file, tmp_path):
    with pytest.raises(RunError, match=r"a process that builds training rows died.*dataset_num_proc: 1"):
        laid_out(tokenizer, file, tmp_path, builder=Dying, workers=2)
    assert not list(tmp_path.iterdir())


ALONE = """
import sys
from transformers import AutoTokenizer
from judgelm.training.rows.builder import RowJob, make_chunks
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.builder import SFTRowBuilder
print("main runs")
job = RowJob(builder=SFTRowBuilder, tokenizer=AutoTokenizer.from_pretrained(sys.argv[1]), epochs=[0],
             options=RowOptions(template="judgelm-compact", window=300))
builder = SFTRowBuilder(job.tokenizer, job.options)
print(sum(chunk.rows[0].num_rows for chunk in make_chunks(builder.items([sys.argv[2]]), job, 2)))
"""


def test_a_script_without_main_guard_can_make_rows_and_runs_once(tiny_model, file, tmp_path):
    (tmp_path / "alone.py").write_text(ALONE)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "alone.py"), str(tiny_model), file],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (f"main runs\n{ROWS}\n", 0), done.stderr


def test_few_items_are_made_here(tokenizer, file):
    job = RowJob(
        builder=Dying, tokenizer=tokenizer, options=RowOptions(template="judgelm-compact", window=300), epochs=[]
    )
    assert sum(chunk.items for chunk in make_chunks(range(5), job, None)) == 5  # no epoch, so nothing is made of them
    assert usable_workers(3) == 3
    assert 1 <= usable_workers(None) == usable_workers("auto") <= 16


PAIR = Sample(id="1", question="what is it", answers=("a fox", "a big fox"))


def whole_text_tokenizer(text, *merges):
    """BPE over the whole text, blanks marked and one put in front, as Vicuna's has it: tokens may span words."""
    known = [("▁", "f"), ("▁f", "o"), ("▁fo", "x"), ("\n", "t"), ("▁", "8"), *merges]
    vocabulary = ["<unk>", "</s>", *sorted({*text.replace(" ", "▁"), *"▁8"}), *("".join(pair) for pair in known)]
    fast = Tokenizer(models.BPE({piece: at for at, piece in enumerate(vocabulary)}, known, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("template", ["judgelm-compact", "judgelm-v1"])
@pytest.mark.parametrize("joined", [False, True], ids=["border kept", "border spanned"])
@pytest.mark.parametrize("scores", [(8, 6), (10, 7), (1.5, 9)])
def test_a_targets_tokens_are_those_behind_the_whole_prompt(template, joined, scores):
    line = " ".join(f"{score:g}" for score in scores)
    target = f"{line}\nthe first can jump"
    prompt = get_template(template).render(PAIR, (0, 1), None)
    text = "".join(span.text for span in prompt.spans)
    tokenizer = whole_text_tokenizer(text + target, *([(text[-1], target[0])] if joined else []))
    row = SFTRowBuilder(tokenizer, RowOptions(template=template, window=2000)).build(
        LabelledPair(
            sample=PAIR,
            plain=Label(sample_id="1", winner=1, scores=scores, reason="the first can jump"),
            referenced=None,
        )
    )
    alone, whole = (tokenizer(found)["input_ids"] for found in (text, text + target))
    assert (whole[: len(alone)] != alone) == joined
    assert tokenizer.unk_token_id not in whole
    behind = tokenizer(target)["input_ids"] if joined else whole[len(alone) :]
    assert row.input_ids.tolist() == [*alone, *behind, tokenizer.eos_token_id]


def test_rows_are_counted_where_that_needs_no_parsing(file):
    assert rows_in([file]) == ROWS + 1  # the torn one counts
    assert rows_in([file, "rows.json"]) is None
