"""Rows of all epochs: each epoch whole, in an order that the seed decides, the same bytes on any number of processes.

Workers import this module for `Dying`, so it imports nothing of TRL.
"""

import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from judgelm.data.labelled_pair import LabelledPair
from judgelm.errors import InputError, RunError
from judgelm.prompts.catalog import get_template
from judgelm.records import Label, Sample
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.chunks import CHUNK, RowJob, make_chunks
from judgelm.training.rows.dataset import Schedule, build_epochs, training_order
from judgelm.training.rows.sft import SFTRowBuilder
from tests.support.recipe_runs import write_world

ROWS = 40


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("world") / "train.jsonl", ROWS)


def laid_out(tokenizer, file, folder, *, epochs=3.0, steps=None, group=False, seed=0, **options):
    rows = RowOptions(template="judgelm-compact", window=300, seed=seed, **options)
    schedule = Schedule(epochs=epochs, steps=steps, batch=8, group_by_length=group, seed=seed)
    return build_epochs(tokenizer, rows, [file], schedule, folder)


def test_every_epoch_holds_every_row_once(tokenizer, file, tmp_path):
    made = laid_out(tokenizer, file, tmp_path)
    ids = made.dataset["sample_id"]
    assert (made.epochs, made.per_epoch, len(ids)) == (3, ROWS, 3 * ROWS)
    for epoch in range(3):
        assert len(set(ids[epoch * ROWS : (epoch + 1) * ROWS])) == ROWS
    assert list(ids[:ROWS]) != list(ids[ROWS : 2 * ROWS])  # shuffled anew


def test_swaps_and_dropped_references_are_drawn_anew_in_every_epoch(tokenizer, file, tmp_path):
    made = laid_out(tokenizer, file, tmp_path, swap_prob=0.5, reference_drop_prob=0.0, reason_prob=0.0)
    seen: dict[str, set[tuple[int, ...]]] = {}
    for row in made.dataset:
        seen.setdefault(row["sample_id"], set()).add(tuple(row["input_ids"]))
    both = sum(len(forms) == 2 for forms in seen.values())
    assert all(len(forms) <= 2 for forms in seen.values())  # as it was, or exchanged
    assert ROWS / 2 < both < ROWS  # three draws of a half are alike in a quarter of the pairs
    assert 0 < made.counts.swapped < ROWS
    still = laid_out(tokenizer, file, tmp_path, swap_prob=0.0, reference_drop_prob=0.0, reason_prob=0.0)
    assert len({tuple(ids) for ids in still.dataset["input_ids"]}) == ROWS


def test_the_order_depends_on_the_seed_alone(tokenizer, file, tmp_path):
    first = laid_out(tokenizer, file, tmp_path / "a")
    again = laid_out(tokenizer, file, tmp_path / "b")
    other = laid_out(tokenizer, file, tmp_path / "a", seed=1)
    assert first.dataset["sample_id"] == again.dataset["sample_id"]
    assert first.dataset["sample_id"] != other.dataset["sample_id"]


def test_what_an_earlier_run_left_is_used_until_the_data_changes(tokenizer, file, tmp_path):
    made = laid_out(tokenizer, file, tmp_path)
    [kept] = tmp_path.glob("*.arrow")
    before = kept.stat().st_mtime_ns
    again = laid_out(tokenizer, file, tmp_path)
    assert kept.stat().st_mtime_ns == before
    assert again.counts == made.counts
    laid_out(tokenizer, write_world(tmp_path / "other.jsonl", ROWS + 1), tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 2


def test_steps_decide_how_many_epochs_there_are(tokenizer, file, tmp_path):
    assert laid_out(tokenizer, file, tmp_path, steps=5).epochs == 1
    assert laid_out(tokenizer, file, tmp_path, epochs=1.5).epochs == 2
    # 15 x 8 rows are 3 epochs of 40, which is known once the first is made
    by_steps, by_epochs = laid_out(tokenizer, file, tmp_path, steps=15), laid_out(tokenizer, file, tmp_path)
    assert by_steps.epochs == 3
    assert by_steps.dataset["input_ids"] == by_epochs.dataset["input_ids"]


def test_grouping_by_length_keeps_epochs_whole_and_saves_padding():
    lengths = np.random.default_rng(0).integers(10, 1000, 640)
    schedule = Schedule(epochs=2, steps=None, batch=16, group_by_length=True, seed=0)
    order = training_order(lengths, [320, 320], schedule)
    assert sorted(order[:320]) == list(range(320))
    assert sorted(order[320:]) == list(range(320, 640))

    def padded(indices):
        return sum(16 * lengths[indices[i : i + 16]].max() for i in range(0, 640, 16))

    assert padded(order) < 0.75 * padded(np.arange(640))


def test_a_broken_file_leaves_nothing_that_a_later_run_would_take_for_whole(tokenizer, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(InputError, match="contains no rows"):
        laid_out(tokenizer, str(empty), tmp_path)
    assert not list(tmp_path.glob("*.arrow"))
    assert not list(tmp_path.glob("*.json"))


def test_rows_that_would_be_others_are_not_taken_for_those_of_an_earlier_run(tokenizer, tiny_model, file, tmp_path):
    first = laid_out(tokenizer, file, tmp_path, epochs=3, swap_prob=1)
    # a YAML file gives 3, a flag 3.0: the same rows, by the same name
    assert laid_out(tokenizer, file, tmp_path, epochs=3.0, swap_prob=1.0).name == first.name
    other = AutoTokenizer.from_pretrained(tiny_model)
    other.eos_token = other.convert_ids_to_tokens(300)  # as a chat model's ends where its base's does not
    made = laid_out(other, file, tmp_path, epochs=3, swap_prob=1)
    assert made.name != first.name
    ends = [{row["input_ids"][-1] for row in rows.dataset} for rows in (first, made)]
    assert tokenizer.eos_token_id in ends[0]
    assert 300 in ends[1]
    assert tokenizer.eos_token_id not in ends[1]


MANY = 2 * CHUNK + 40
OPTIONS = RowOptions(template="judgelm-compact", window=300, swap_prob=0.5)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = write_world(tmp_path_factory.mktemp("world") / "train.jsonl", MANY)
    with open(path, "a") as lines:
        lines.write("torn\n")
    return path


def laid_out_by(tokenizer, file, folder, **options):
    schedule = Schedule(epochs=3.0, steps=None, batch=8, group_by_length=False, seed=0)
    return build_epochs(tokenizer, OPTIONS, [file], schedule, folder, **options)


def bytes_in(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


WITHOUT_GUARD = """
import sys
from pathlib import Path
from transformers import AutoTokenizer
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.dataset import Schedule, build_epochs
print("main runs")
options = RowOptions(template="judgelm-compact", window=300, swap_prob=0.5)
schedule = Schedule(epochs=3.0, steps=None, batch=8, group_by_length=False, seed=0)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(build_epochs(tokenizer, options, [sys.argv[2]], schedule, Path(sys.argv[3]), workers=2).counts.made)
"""


@pytest.mark.distributed
def test_the_files_are_the_same_bytes_on_any_number_of_workers_started_by_any_script(
    tokenizer, tiny_model, many, tmp_path
):
    (tmp_path / "script.py").write_text(WITHOUT_GUARD)  # it runs once: workers do not import it
    command = [sys.executable, str(tmp_path / "script.py"), str(tiny_model), many, str(tmp_path / "2")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (done.stdout, done.returncode) == (f"main runs\n{MANY}\n", 0), done.stderr
    made = laid_out_by(tokenizer, many, tmp_path / "1", workers=1)
    assert bytes_in(tmp_path / "1") == bytes_in(tmp_path / "2")
    assert (made.counts.made, made.per_epoch, made.epochs) == (MANY, MANY, 3)
    assert made.counts.left_out == {"unusable line": 1}
    alone = {row.sample_id: row.input_ids.tolist() for row in SFTRowBuilder(tokenizer, OPTIONS).read([many], 1)}
    second = made.dataset.select(range(MANY, 2 * MANY))
    assert dict(zip(second["sample_id"], second["input_ids"], strict=True)) == alone


class Dying(SFTRowBuilder):
    """Ends its process as the kernel would for want of memory, but not the one that reads."""

    def build(self, item, epoch=0):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.distributed
def test_a_worker_that_dies_ends_the_run_with_a_sentence_and_no_file(tokenizer, many, tmp_path):
    with pytest.raises(RunError, match=r"a process that builds rows died.*dataset_num_proc: 1"):
        laid_out_by(tokenizer, many, tmp_path, builder=Dying, workers=2)
    assert not list(tmp_path.iterdir())


def test_few_items_are_made_here(tokenizer):
    job = RowJob(builder=Dying, tokenizer=tokenizer, options=OPTIONS, epochs=[])
    assert sum(chunk.items for chunk in make_chunks(range(5), job, None)) == 5  # no epoch, so nothing is made of them


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
