"""Training rows: the tokens that a judge reads at test time, a loss in the right places, and the rows of all epochs.

Workers import this module for `Dying`, so it imports nothing of TRL.
"""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from judgelm.data.labelled_pair import LabelledPair
from judgelm.errors import InputError, RunError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Label, Sample
from judgelm.training.rows.builder import IGNORED, RowCounts, RowOptions
from judgelm.training.rows.chunks import CHUNK, RowJob, make_chunks
from judgelm.training.rows.dataset import Schedule, build_epochs, training_order
from judgelm.training.rows.pairs import JudgingPromptBuilder, JudgingPromptOptions, PairRowBuilder, PairRowOptions
from judgelm.training.rows.sft import SFTRowBuilder
from tests.support.recipe_runs import write_rows, write_world

ROWS = 40
SAME = "a big fox jumps " * 100
SINGLE = Sample(id="s", question="what is it", answers=("a fox",), reference="a big fox")
GRADE = Label(sample_id="s", winner=None, scores=(7,))
THREE = Sample(id="m", question="what is it", answers=("a fox", "a dog", "a cat"))
RANKED = Label(sample_id="m", winner=None, scores=(8, 6, 1.5), reason="the fox can jump")
SAMPLE = Sample(id="1", question="what is it", answers=("a fox", "a dog"), reference="a big fox")
PLAIN = Label(sample_id="1", winner=1, scores=(8, 6), reason="the first can jump")
REFERENCED = Label(sample_id="1", winner=2, scores=(2, 9.5), reason="the dog is lazy")


def builder(tokenizer, **options):
    return SFTRowBuilder(tokenizer, RowOptions(**({"template": "judgelm-compact", "window": 200} | options)))


def build(rows, sample, plain, referenced=None):
    return rows.build(LabelledPair(sample=sample, plain=plain, referenced=referenced))


def halves(row, tokenizer):
    """Prompt and target of a row as text, by where the loss is."""
    prompt = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label == IGNORED]
    target = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label != IGNORED]
    assert list(row.input_ids) == prompt + target
    return tokenizer.decode(prompt), tokenizer.decode(target)


GIVEN, WITH_REFERENCE = "[Q] what is it\n[1] a fox\n[2] a dog\n[S]", "[R] a big fox\n"


@pytest.mark.parametrize(
    ("options", "referenced", "shown", "target"),
    [
        ({"reference_drop_prob": 1.0}, REFERENCED, False, "8 6\nthe first can jump</s>"),
        ({"reference_drop_prob": 0.0}, REFERENCED, True, "2 9.5\nthe dog is lazy</s>"),
        ({"reference_drop_prob": 0.0}, None, False, "8 6\nthe first can jump</s>"),  # nobody judged with it
        ({"reason_prob": 0.0}, None, False, "8 6\n"),  # a bare score line has no end
    ],
)
def test_prompt_and_target_change_together_with_the_reference(tokenizer, options, referenced, shown, target):
    prompt, learned = halves(build(builder(tokenizer, **options), SAMPLE, PLAIN, referenced), tokenizer)
    assert (WITH_REFERENCE in prompt, prompt.replace(WITH_REFERENCE, ""), learned) == (shown, GIVEN, target)


def test_prompt_tokens_are_those_of_a_batch_run(tokenizer):
    row = build(builder(tokenizer), SAMPLE, PLAIN, None)
    tokenized = Truncator(tokenizer, 200).truncate(get_template("judgelm-compact").render(SAMPLE, (0, 1), None), 16)
    assert list(row.input_ids[: len(tokenized.ids)]) == tokenized.ids


def test_a_special_token_in_a_reason_is_text(tokenizer):
    row = build(builder(tokenizer), SAMPLE, replace(PLAIN, reason="it ends with </s> here"))
    assert list(row.input_ids).count(tokenizer.eos_token_id) == 1


def test_a_long_answer_is_cut_and_the_target_kept_whole(tokenizer):
    rows = builder(tokenizer, window=120, reference_drop_prob=1.0)
    row = build(rows, Sample(id="1", question="what", answers=(" big" * 300, "a dog")), PLAIN)
    assert len(row.input_ids) <= 120
    assert (halves(row, tokenizer)[1], rows.counts.cut) == ("8 6\nthe first can jump</s>", 1)


LONG = Sample(id="s", question="what", answers=(" big" * 300,), reference="a fox")


@pytest.mark.parametrize(("sample", "scores", "line"), [(SAMPLE, (8, 6), "8 6\n"), (LONG, (7,), " 7\n")])
def test_a_reason_over_half_the_window_is_cut_without_an_end(tokenizer, sample, scores, line):
    label = Label(sample_id="1", winner=None, scores=scores, reason="fox " * 200)
    row = build(builder(tokenizer, window=120), sample, label, None)
    target = halves(row, tokenizer)[1]
    assert (target.startswith(f"{line}fox fox"), target.endswith("</s>")) == (True, False)
    assert len(row.input_ids) <= 120


@pytest.mark.parametrize(
    ("sample", "label", "reason"),
    [
        (SAMPLE, None, "no teacher scores"),
        (SAMPLE, Label(sample_id="1", winner=1), "no teacher scores"),
        (SAMPLE, Label(sample_id="1", winner=2, scores=(0, 9)), "scores outside the scale"),
        (Sample(id="1", question=" big" * 300, answers=("a", "b")), PLAIN, "too long"),
        (Sample(id="1", question="q", answers=(f"{SAME}over", f"{SAME}lazy")), PLAIN, "equal after cut"),
        (Sample(id="s", question="q", answers=("a",)), GRADE, "single answer without reference"),
        (SINGLE, None, "no teacher scores"),
        (SINGLE, Label(sample_id="s", winner=None, scores=(11,)), "scores outside the scale"),
        (THREE, Label(sample_id="m", winner=1, scores=(8, 6)), "not one score for each answer"),
    ],
)
def test_what_cannot_be_learned_is_left_out_and_counted(tokenizer, sample, label, reason):
    rows = builder(tokenizer)
    assert build(rows, sample, label) is None
    assert rows.counts.left_out == {reason: 1}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(PairRowBuilder, PairRowOptions), (JudgingPromptBuilder, partial(JudgingPromptOptions, reply_tokens=32))],
)
def test_other_rows_leave_out_pairs_that_are_equal_after_the_cut_too(tokenizer, kind, options):
    rows = kind(tokenizer, options(template="judgelm-compact", window=200))
    label = Label(sample_id="1", winner=1, scores=(8, 6), preference=0.9)
    assert build(rows, Sample(id="1", question="q", answers=(f"{SAME}over", f"{SAME}lazy")), label) is None
    assert rows.counts.left_out == {"equal after cut": 1}
    assert build(rows, Sample(id="2", question="q", answers=(f"over {SAME}", f"lazy {SAME}")), label) is not None


def test_draws_depend_on_seed_and_id_alone(tokenizer):
    def dropped(seed, ids):
        rows = builder(tokenizer, reference_drop_prob=0.5, seed=seed)
        samples = [Sample(id=name, question="q", answers=("a", "b"), reference="r") for name in ids]
        return {s.id: "[R]" not in tokenizer.decode(build(rows, s, PLAIN, REFERENCED).input_ids) for s in samples}

    ids = [str(i) for i in range(200)]
    assert dropped(0, ids) == dropped(0, ids[::-1])
    assert dropped(0, ids) != dropped(1, ids)
    assert 70 < sum(dropped(0, ids).values()) < 130  # 100 expected, standard deviation 7


def test_a_single_answer_stands_beside_its_reference_and_only_its_score_is_learned(tokenizer):
    rows = builder(tokenizer, reference_drop_prob=1.0)  # has no effect here
    expected = ("[Q] what is it\n[1] a big fox\n[2] a fox\n[S]10", " 7\n")
    assert halves(build(rows, SINGLE, GRADE, GRADE), tokenizer) == expected
    assert (rows.counts.kinds, rows.counts.with_reference) == ({"single": 1}, 0)  # no block of its own


def test_the_forced_score_is_the_highest_of_the_judges_scale(tokenizer):
    row = build(builder(tokenizer, scale=(0, 5)), SINGLE, Label(sample_id="s", winner=None, scores=(4,)), None)
    assert halves(row, tokenizer)[0].endswith("\n[S]5")


@pytest.mark.parametrize("template", ["judgelm-v1", "judgelm-paper", "judgelm-chat", "judgelm-compact"])
@given(score=st.integers(4, 40).map(lambda quarters: quarters / 4))
def test_a_single_answers_row_begins_with_the_tokens_that_are_continued_at_test_time(tokenizer, template, score):
    chat = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    chat.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    label = Label(sample_id="s", winner=None, scores=(score,))
    row = build(builder(chat, template=template, window=2000), SINGLE, label)
    prompt = get_template(template).render(SINGLE, (0,), SINGLE.reference)
    tokenized = Truncator(chat, 2000).truncate(prompt, 16)
    assert tokenized.text.endswith("10")
    assert list(row.input_ids[: len(tokenized.ids)]) == tokenized.ids
    assert (row.labels[: len(tokenized.ids)] == IGNORED).all()
    assert chat.decode(row.input_ids[len(tokenized.ids) :]) == f" {score:g}\n"


def test_of_three_answers_a_score_each_and_the_reason_are_learned(tokenizer):
    rows = builder(tokenizer)
    expected = ("[Q] what is it\n[1] a fox\n[2] a dog\n[3] a cat\n[S]", "8 6 1.5\nthe fox can jump</s>")
    assert halves(build(rows, THREE, RANKED), tokenizer) == expected
    assert (rows.counts.kinds, rows.counts.step) == ({"multi": 1}, 0.5)


def test_rows_of_every_kind_are_read_from_any_file_with_both_judgments(tokenizer, tmp_path):
    judgelm = {"question_id": "1", "question_body": "what", "answer1_body": "a fox", "answer2_body": "a dog"}
    judgelm |= {"score": [8, 6], "text": "8 6\nbecause"}
    judgelm |= {"reference": {"text": "a fox"}, "score_w_reference": [9, 2], "text_w_reference": "9 2\nit can"}
    files = {
        "single": [{"question": "q", "answer": "a fox", "score": 7, "reference": "a dog"}] * 2,
        "judgelm": [judgelm],
        "mixed": [
            {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6, 5], "reason": "it can"},
            {"question": "q", "answers": ["a", "b"], "scores": [8, 6]},
            {"question": "q", "answers": ["a"], "scores": [8], "reference": "r"},
            {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6]},
        ],
    }
    paths = [write_rows(tmp_path / f"{name}.jsonl", rows) for name, rows in files.items()]
    (tmp_path / "judgelm.jsonl").open("a").write("torn\n")
    rows = builder(tokenizer, reference_drop_prob=0.0)
    targets = [halves(row, tokenizer)[1] for row in rows.read(paths)]
    assert targets == [" 7\n", " 7\n", "9 2\nit can</s>", "8 6 5\nit can</s>", "8 6\n", " 8\n"]
    assert (rows.counts.kinds, rows.counts.made) == ({"single": 3, "pair": 2, "multi": 1}, 6)
    assert rows.counts.left_out == {"unusable line": 1, "unreadable label": 1}


@pytest.mark.parametrize(("swap_prob", "line"), [(0.0, "4 7"), (1.0, "7 4")])
def test_a_preference_is_learned_as_its_scores_in_either_order(tokenizer, tmp_path, swap_prob, line):
    path = write_rows(tmp_path / "rows.jsonl", [{"question": "q", "answers": ["a", "b"], "preference": 0.25}])
    [row] = builder(tokenizer, swap_prob=swap_prob).read([path])
    assert halves(row, tokenizer)[1].strip() == line


def test_the_step_is_the_widest_that_all_scores_share():
    scores = [(), (8, 6, 1, 10), (8, 6, 8.5), (8.25, 6), (8.1, 6), (8.33, 6)]
    assert [RowCounts(scores=set(each)).step for each in scores] == [1, 1, 0.5, 0.25, 0.1, 0.1]


def test_the_loss_can_count_the_prompt_too(tokenizer):
    row = build(builder(tokenizer, loss_on_prompt=True), SAMPLE, PLAIN, None)
    assert (row.labels == row.input_ids).all()


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
    runs = (("a", 0), ("b", 0), ("a", 1))
    orders = [laid_out(tokenizer, file, tmp_path / name, seed=seed).dataset["sample_id"] for name, seed in runs]
    assert orders[0] == orders[1] != orders[2]


def test_what_an_earlier_run_left_is_used_until_the_data_changes(tokenizer, file, tmp_path):
    made = laid_out(tokenizer, file, tmp_path)
    [kept] = tmp_path.glob("*.arrow")
    before = kept.stat().st_mtime_ns
    again = laid_out(tokenizer, file, tmp_path)
    assert (kept.stat().st_mtime_ns, again.counts) == (before, made.counts)
    laid_out(tokenizer, write_world(tmp_path / "other.jsonl", ROWS + 1), tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 2


def test_steps_decide_how_many_epochs_there_are(tokenizer, file, tmp_path):
    assert [laid_out(tokenizer, file, tmp_path, **given).epochs for given in ({"steps": 5}, {"epochs": 1.5})] == [1, 2]
    # 15 x 8 rows are 3 epochs of 40, which is known once the first is made
    by_steps, by_epochs = laid_out(tokenizer, file, tmp_path, steps=15), laid_out(tokenizer, file, tmp_path)
    assert (by_steps.epochs, by_steps.dataset["input_ids"]) == (3, by_epochs.dataset["input_ids"])


def test_grouping_by_length_keeps_epochs_whole_and_saves_padding():
    lengths = np.random.default_rng(0).integers(10, 1000, 640)
    schedule = Schedule(epochs=2, steps=None, batch=16, group_by_length=True, seed=0)
    order = training_order(lengths, [320, 320], schedule)
    assert sorted(order[:320]) + sorted(order[320:]) == list(range(640))

    def padded(indices):
        return sum(16 * lengths[indices[i : i + 16]].max() for i in range(0, 640, 16))

    assert padded(order) < 0.75 * padded(np.arange(640))


def test_a_broken_file_leaves_nothing_that_a_later_run_would_take_for_whole(tokenizer, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="contains no rows"):
        laid_out(tokenizer, str(tmp_path / "empty.jsonl"), tmp_path)
    assert not {".arrow", ".json"} & {path.suffix for path in tmp_path.iterdir()}


def test_rows_that_would_be_others_are_not_taken_for_those_of_an_earlier_run(tokenizer, tiny_model, file, tmp_path):
    first = laid_out(tokenizer, file, tmp_path, epochs=3, swap_prob=1)
    # a YAML file gives 3, a flag 3.0: the same rows, by the same name
    assert laid_out(tokenizer, file, tmp_path, epochs=3.0, swap_prob=1.0).name == first.name
    other = AutoTokenizer.from_pretrained(tiny_model)
    other.eos_token = other.convert_ids_to_tokens(300)  # as a chat model's ends where its base's does not
    made = laid_out(other, file, tmp_path, epochs=3, swap_prob=1)
    assert made.name != first.name
    ends, others = ({row["input_ids"][-1] for row in rows.dataset} for rows in (first, made))
    assert tokenizer.eos_token_id in ends - others
    assert 300 in others


MANY = 2 * CHUNK + 40
OPTIONS = RowOptions(template="judgelm-compact", window=300, swap_prob=0.5)
SCHEDULE = Schedule(epochs=3.0, steps=None, batch=8, group_by_length=False, seed=0)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = write_world(tmp_path_factory.mktemp("world") / "train.jsonl", MANY)
    with open(path, "a") as lines:
        lines.write("torn\n")
    return path


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
def test_the_files_are_the_same_bytes_on_any_number_of_workers(tokenizer, tiny_model, many, tmp_path):
    (tmp_path / "script.py").write_text(WITHOUT_GUARD)  # it runs once: workers do not import it
    command = [sys.executable, str(tmp_path / "script.py"), str(tiny_model), many, str(tmp_path / "2")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (done.stdout, done.returncode) == (f"main runs\n{MANY}\n", 0), done.stderr
    made = build_epochs(tokenizer, OPTIONS, [many], SCHEDULE, tmp_path / "1", workers=1)
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
        build_epochs(tokenizer, OPTIONS, [many], SCHEDULE, tmp_path, builder=Dying, workers=2)
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
    label = Label(sample_id="1", winner=1, scores=scores, reason="the first can jump")
    row = build(builder(tokenizer, template=template, window=2000), PAIR, label)
    alone, whole = (tokenizer(each)["input_ids"] for each in (text, text + target))
    assert (whole[: len(alone)] != alone) == joined
    assert tokenizer.unk_token_id not in whole
    behind = tokenizer(target)["input_ids"] if joined else whole[len(alone) :]
    assert row.input_ids.tolist() == [*alone, *behind, tokenizer.eos_token_id]
