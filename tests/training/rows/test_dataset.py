"""Rows of all epochs, one behind another: each epoch whole, drawn anew, in an order that the seed alone decides."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer
from trl import SFTConfig

from benchmarks.synthetic.pairs import generate
from judgelm.errors import InputError
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.dataset import Schedule, build_epochs, training_order
from judgelm.training.trainer import use_single_pass

ROWS = 40


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(ROWS, seed=0, split="train")))
    return str(path)


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


def test_a_swapped_row_teaches_the_swapped_scores(tokenizer, file, tmp_path):
    options = {"epochs": 1.0, "reference_drop_prob": 1.0, "reason_prob": 0.0}
    plain = laid_out(tokenizer, file, tmp_path, swap_prob=0.0, **options)
    swapped = laid_out(tokenizer, file, tmp_path, swap_prob=1.0, **options)
    forms = [
        {row["sample_id"]: tokenizer.decode(row["input_ids"]) for row in made.dataset} for made in (plain, swapped)
    ]
    assert plain.counts.swapped == 0
    assert swapped.counts.swapped == ROWS
    for name, text in forms[0].items():
        _, first, rest = text.replace("\n[2]", "\n[1]").split("\n[1]")
        second, scores = rest.split("\n[S]")
        _, other_first, other_rest = forms[1][name].replace("\n[2]", "\n[1]").split("\n[1]")
        assert other_first == second
        assert other_rest == f"{first}\n[S]" + " ".join(reversed(scores.split())) + "\n"


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
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in generate(ROWS, seed=1, split="train")))
    laid_out(tokenizer, str(other), tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 2


def test_steps_decide_how_many_epochs_there_are(tokenizer, file, tmp_path):
    assert laid_out(tokenizer, file, tmp_path, steps=5).epochs == 1
    assert laid_out(tokenizer, file, tmp_path, steps=6).epochs == 2
    assert laid_out(tokenizer, file, tmp_path, epochs=1.5).epochs == 2


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
    with pytest.raises(InputError, match="the file is empty"):
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


def test_what_is_counted_in_epochs_stays_so_where_all_epochs_are_one_pass(tokenizer, file, tmp_path):
    options = {"eval_strategy": "epoch", "eval_delay": 2, "save_strategy": "epoch", "bf16": False, "use_cpu": True}
    args = SFTConfig(output_dir=str(tmp_path), **options)
    schedule = Schedule(epochs=3.0, steps=None, batch=16, group_by_length=False, seed=0)
    rows = laid_out(tokenizer, file, tmp_path)
    use_single_pass(args, schedule, epochs=rows.epochs, rows_per_epoch=rows.per_epoch)
    # 40 rows, 16 a step: an epoch ends within the third
    assert (args.eval_steps, args.save_steps, args.eval_delay) == (3, 3, 6)
