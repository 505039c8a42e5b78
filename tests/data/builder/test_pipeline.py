"""The data builder, from labelled files to sets: rows that add up, the same bytes whoever works, no leaks."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic.pairs import generate
from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build
from judgelm.data.readers.files import read_rows
from judgelm.data.samples import SampleStream
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import Appender
from judgelm.training.rows.builder import RowOptions, SFTRowBuilder


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def built(source, out, **options):
    sources = source if isinstance(source, list) else [source]
    return build(build_options({"inputs": sources, "out": str(out), **options}, "test"))


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def rows_of(folder, name="train"):
    return lines_of(folder / f"{name}.jsonl")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """400 JudgeLM training rows of the synthetic world, with a category and models."""
    rows = [row | {"answer1_model_id": f"m{i % 3}", "answer2_model_id": f"m{3 + i % 2}", "category": "ab"[i % 2]}
            for i, row in enumerate(generate(400, seed=3, split="train"))]  # fmt: skip
    return write(tmp_path_factory.mktemp("world") / "world.jsonl", rows)


def test_every_row_is_written_or_named_with_its_reason(world, tmp_path):
    good = lines_of(world)[:20]
    bad = [
        good[0] | {"question_id": "copy"},
        good[1] | {"question_id": "swapped copy", "answer1_body": good[1]["answer2_body"],
                   "answer2_body": good[1]["answer1_body"], "score": good[1]["score"][::-1], "text": "1 2"},
        good[2] | {"question_id": "error", "question_body": "new 1", "text": "error", "text_w_reference": "error"},
        good[3] | {"question_id": "scale", "question_body": "new 2", "score": [0, 9], "score_w_reference": [0, 11],
                   "text": "0 9", "text_w_reference": "0 11"},
        good[4] | {"question_id": "lacks", "answer1_body": None},
    ]  # fmt: skip
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in good + bad) + "{torn\n")
    done = built(str(tmp_path / "in.jsonl"), tmp_path / "out", validation=0)
    counts = done.counts
    assert counts.read["in"] == 26
    assert counts.read["in"] == counts.before.pairs + sum(counts.dropped.values()) + sum(counts.rejected.values())
    left_out = {row.get("id", row.get("line")): row["why"] for row in rows_of(tmp_path / "out", "left_out")}
    assert left_out["copy"] == f"exact duplicate of {good[0]['question_id']}"
    assert left_out["swapped copy"] == f"exact duplicate of {good[1]['question_id']}"
    assert left_out["error"] == "no judgment"
    assert left_out["scale"] == "scores outside the scale"
    assert {25, 26} <= left_out.keys()
    assert len(left_out) == 6


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_any_number_of_workers_writes_the_same_bytes(world, tmp_path, kind):
    options = {"swap": "draw", "reference": "draw", "epochs": 2, "subsets": [50, 100], "format": kind, "seed": 5}
    for workers in (1, 3, "auto"):
        built(world, tmp_path / str(workers), workers=workers, **options)
    files = sorted(path.name for path in (tmp_path / "1").iterdir())
    sets = [f"{name}.{kind}" for name in ("train", "train-100", "train-50", "validation")]
    assert files == sorted(["left_out.jsonl", *sets])
    for name in files:
        alone = (tmp_path / "1" / name).read_bytes()
        assert (tmp_path / "3" / name).read_bytes() == alone
        assert (tmp_path / "auto" / name).read_bytes() == alone


def test_the_order_of_the_input_changes_the_order_of_the_output_alone(world, tmp_path):
    lines = Path(world).read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    (tmp_path / "world.jsonl").write_text("".join(lines))
    options = {"reference": "draw", "subsets": [60]}
    built(world, tmp_path / "a", **options)
    built(str(tmp_path / "world.jsonl"), tmp_path / "b", **options)
    for name in ("train", "validation", "train-60"):
        one, other = ({row["question_id"]: row for row in rows_of(tmp_path / side, name)} for side in "ab")
        assert one == other


def test_no_question_of_validation_is_in_training(world, tmp_path):
    rows = lines_of(world)
    again = [row | {"question_id": f"again-{row['question_id']}", "answer1_body": f"{row['answer1_body']} and more",
                    "question_body": f"  {row['question_body'].upper()}"} for row in rows[:100]]  # fmt: skip
    built(write(tmp_path / "in.jsonl", rows + again), tmp_path / "out", validation=0.2, near_duplicates=1.0)
    sides = [
        {" ".join(row["question_body"].lower().split()) for row in rows_of(tmp_path / "out", name)}
        for name in ("train", "validation")
    ]
    assert all(sides)
    assert not sides[0] & sides[1]


def test_validation_is_neither_swapped_nor_dropped_from(world, tmp_path):
    built(world, tmp_path / "out", validation=30, swap="both", reference="draw", epochs=2, resample={"tie": 0})
    originals = {str(row["question_id"]): row for row in lines_of(world)}
    found = rows_of(tmp_path / "out", "validation")
    assert len({row["question_body"] for row in found}) >= 30
    for row in found:
        before = originals[row["question_id"]]
        assert row["answer1_body"] == before["answer1_body"]
        assert (row["score"], row["score_w_reference"]) == (before["score"], before["score_w_reference"])
        assert not row["swapped"]


def test_both_orders_are_written_one_behind_the_other(world, tmp_path):
    done = built(world, tmp_path / "out", swap="both", validation=0)
    found = rows_of(tmp_path / "out")
    by_id = {row["question_id"]: row for row in found}
    assert len(by_id) == len(found) == done.counts.train.pairs
    swapped = [row for row in found if row["swapped"]]
    assert len(swapped) == done.counts.swapped["swapped"] > 300
    for row in swapped:
        original = by_id[row["question_id"].removesuffix(":swapped")]
        assert row["answer1_body"] == original["answer2_body"]
        for name in ("score", "score_w_reference"):
            assert row[name] == (None if original[name] is None else original[name][::-1])
        assert row["answer1_model_id"] == original["answer2_model_id"]


def test_epochs_hold_every_pair_anew(world, tmp_path):
    built(world, tmp_path / "out", epochs=3, reference="draw", validation=0)
    found = rows_of(tmp_path / "out")
    by_epoch = [{row["question_id"].split(":")[0]: row for row in found if row["epoch"] == e} for e in range(3)]
    assert by_epoch[0].keys() == by_epoch[1].keys() == by_epoch[2].keys()
    shown = [[by_epoch[e][i]["reference"] is not None for i in by_epoch[0]] for e in range(3)]
    assert shown[0] != shown[1] != shown[2]
    assert 0.4 < sum(shown[0]) / len(shown[0]) < 0.6
    for row in found:
        assert (row["score"] is None) == (row["reference"] is not None), "prompt and target change together"


def test_subsets_are_nested_and_exact(world, tmp_path):
    done = built(world, tmp_path / "out", subsets=[20, 80, 10_000], validation=0, swap="draw")
    small, large, whole = (
        {row["question_id"] for row in rows_of(tmp_path / "out", name)} for name in ("train-20", "train-80", "train")
    )
    assert (len(small), len(large)) == (20, 80)
    assert small < large < whole
    assert done.subsets.too_large == (10_000,)


def test_ties_can_be_taken_more_or_less_often(world, tmp_path):
    plain = built(world, tmp_path / "a", validation=0, swap="none").counts.train.winners
    more = built(world, tmp_path / "b", validation=0, swap="none", resample={"tie": 2, "1": 0.5}).counts.train.winners
    assert more["tie"] == 2 * plain["tie"]
    assert more["2"] == plain["2"]
    assert 0.35 * plain["1"] < more["1"] < 0.65 * plain["1"]
    ids = [row["question_id"] for row in rows_of(tmp_path / "b")]
    assert len(set(ids)) == len(ids)


def test_references_can_be_replaced_or_ignored(world, tmp_path):
    first = lines_of(world)[0]
    references = write(tmp_path / "references.jsonl", [{"id": first["question_id"], "reference": "Another one."}])
    done = built(world, tmp_path / "a", references=references, validation=0, swap="none")
    row = next(row for row in rows_of(tmp_path / "a") if row["question_id"] == str(first["question_id"]))
    assert (row["reference"], row["score_w_reference"]) == ({"text": "Another one."}, None)
    assert done.counts.references["replaced"] == 1
    built(world, tmp_path / "b", reference="ignore", validation=0)
    assert all(row["reference"] is row["score_w_reference"] is None for row in rows_of(tmp_path / "b"))


def test_reference_support_counts_what_the_reference_changed(world, tmp_path):
    counts = built(world, tmp_path / "out", validation=0).counts.references
    rows = [row for row in rows_of(tmp_path / "out") if row["score"] and row["score_w_reference"]]
    changed = sum(row["score"] != row["score_w_reference"] for row in rows)
    assert counts["both judgments"] == len(rows) > 300
    assert counts["score changed"] == changed > 0
    assert 0 < counts["winner changed"] < changed


def test_score_lines_alone(world, tmp_path):
    built(world, tmp_path / "out", reason_prob=0.0, validation=0)
    texts = [row[name] for row in rows_of(tmp_path / "out") for name in ("text", "text_w_reference")]
    assert not any("\n" in text for text in texts if text)


def test_several_sources_keep_their_names_and_ids_apart(world, tmp_path):
    outputs = {"evaluation_result": "1", "evaluation_reason": "Response 1 is right."}
    pandas = [{"inputs": {"instruction": f"i{i}", "input": "", "response1": f"a{i}", "response2": f"b{i}"},
               "outputs": outputs} for i in range(5)]  # fmt: skip
    prefer = [{"id": i, "prompt": f"p{i}", "chosen": "good", "rejected": "bad"} for i in range(5)]
    inputs = [
        world,
        {"path": write(tmp_path / "panda.jsonl", pandas), "name": "PandaLM", "winner_scores": [8, 4, 6]},
        {"path": write(tmp_path / "prefer.jsonl", prefer), "winner_scores": [9, 3, 6]},
    ]
    done = built(inputs, tmp_path / "out", validation=0, swap="none")
    found = rows_of(tmp_path / "out")
    assert {row["source"] for row in found} == {"world", "PandaLM", "prefer"}
    assert {row["question_id"].split("/")[0] for row in found} == {"world", "PandaLM", "prefer"}
    assert next(row for row in found if row["source"] == "PandaLM")["text"] == "8 4\nResponse 1 is right."
    assert done.counts.repaired["prefer", "scores made from the winner"] == 5


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_of_other_kinds_stand_in_files_of_their_own(world, tmp_path, tiny_model, kind):
    from transformers import AutoTokenizer

    rows = lines_of(world)[:60]
    again = [row | {"question_id": f"again-{i}", "answer1_body": f"another {i}", "answer2_body": f"a third {i}"}
             for i, row in enumerate(rows)]  # fmt: skip
    options = {"abilities": ["single", "multi", "chat"], "validation": 0.3, "epochs": 2, "format": kind}
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        done = built(write(tmp_path / "in.jsonl", rows + again), folder, workers=workers, **options)
    sides = ("train", "validation")
    kinds = {f"{side}-{of}.{kind}" for side in sides for of in ("single", "multi", "chat")}
    assert done.files.keys() == {f"train.{kind}", f"validation.{kind}", *kinds}
    for name in kinds:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()

    def found(name):
        return [row.data for row in read_rows(str(folder / f"{name}.{kind}"))]

    questions = [{row["question"] for of in ("single", "multi") for row in found(f"{side}-{of}")} for side in sides]
    assert not questions[0] & questions[1]
    assert all(3 <= len(row["answers"]) == len(row["scores"]) <= 4 for row in found("train-multi"))
    judgments = [row[name] for row in found("train") for name in ("score", "score_w_reference")]
    assert len(found("train-chat")) == sum(scores is not None for scores in judgments)
    assert found("train-chat")[0]["completion"][0]["role"] == "assistant"
    builder = SFTRowBuilder(
        AutoTokenizer.from_pretrained(tiny_model), RowOptions(template="judgelm-compact", window=512)
    )
    list(builder.read([str(folder / f"{name}.{kind}") for name in ("train", "train-single", "train-multi")]))
    assert builder.counts.kinds.keys() == {"single", "pair", "multi"}


def test_parquet_holds_the_same_rows_and_datasets_loads_both(world, tmp_path):
    import datasets

    for kind in ("jsonl", "parquet"):
        built(world, tmp_path / kind, format=kind)
    rows = rows_of(tmp_path / "jsonl")
    loaded = datasets.load_dataset("parquet", data_files=str(tmp_path / "parquet" / "train.parquet"), split="train",
                                   cache_dir=str(tmp_path / "cache"))  # fmt: skip
    assert loaded.to_list() == rows


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_trainer_takes_what_was_built(world, tmp_path, tiny_model, kind):
    from transformers import AutoTokenizer

    done = built(world, tmp_path / "out", format=kind, reference="draw")
    builder = SFTRowBuilder(
        AutoTokenizer.from_pretrained(tiny_model), RowOptions(template="judgelm-compact", window=512)
    )
    rows = list(builder.read([str(tmp_path / "out" / f"train.{kind}")]))
    left_out = sum(builder.counts.left_out.values()) - builder.counts.left_out["too long"]
    assert (len(rows) + builder.counts.left_out["too long"], left_out) == (done.files[f"train.{kind}"], 0)
    assert (
        builder.counts.with_reference
        == sum(row.reference is not None for row in SampleStream([str(tmp_path / "out" / f"train.{kind}")]))
        or builder.counts.left_out["too long"]
    )


def test_too_long_rows_are_measured_with_the_trainers_template(world, tmp_path, tiny_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    values = {"inputs": [world], "out": str(tmp_path / "out"), "validation": 0, "swap": "none",
              "tokenizer": str(tiny_model), "template": "judgelm-compact", "max_tokens": 200}  # fmt: skip
    done = build(build_options(values, "test"), tokenizer=tokenizer)
    dropped = done.counts.dropped["world", "too long"]
    assert 0 < dropped < 400
    options = RowOptions(template="judgelm-compact", window=200, reference_drop_prob=0)
    builder = SFTRowBuilder(tokenizer, options)
    rows = list(builder.read([str(tmp_path / "out" / "train.jsonl")]))
    assert len(rows) == 400 - dropped - done.counts.dropped["world", "near duplicate"]
    assert builder.counts.cut == 0
    assert max(len(row.input_ids) for row in rows) <= 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"swap_probability": 1}, "unknown option swap_probability; available: inputs, out"),
        ({"swap_prob": 2}, r"swap_prob=2: Input should be less than or equal to 1"),
        ({"max_tokens": 100}, "max_tokens needs a tokenizer"),
        ({"validation": 2.5}, "a share below 1, or a whole number"),
        ({"validation": 4000}, "leaves none for training"),
        ({"inputs": []}, "inputs"),
        ({"inputs": ["a/train.jsonl", "b/train.jsonl"]}, "2 inputs are named train; give each its own name"),
        ({"resample": {"tie": -1}}, "a share below 0"),
        ({"workers": 0}, "workers=0: a number of processes from 1, or auto"),
        ({"workers": "all"}, "workers='all': a number of processes from 1, or auto"),
    ],
)
def test_bad_options_are_named(world, tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        built(change.pop("inputs", world), tmp_path / "out", **change)


def test_nothing_left_is_an_error_that_says_where_to_look(tmp_path):
    rows = [{"question": "q", "answer_1": "a", "answer_2": "b", "winner": 1}]
    with pytest.raises(InputError, match=r"no pair can be trained on; .*left_out.jsonl says why"):
        built(write(tmp_path / "in.jsonl", rows), tmp_path / "out")
    assert "winner without scores" in (tmp_path / "out" / "left_out.jsonl").read_text()


def test_a_folder_that_cannot_be_made(world, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file.out: cannot write here: Not a directory; .* choose another out"):
        built(world, tmp_path / "file" / "out")


@pytest.mark.parametrize(("kind", "limit"), [("jsonl", 500_000), ("parquet", 40_000)])
def test_a_full_disk_changes_no_set(world, tmp_path, kind, limit):
    built(world, tmp_path / "out", format=kind)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob(f"*.{kind}") if "left" not in path.name}
    code = f"""
import resource
from judgelm.data.builder.pipeline import build
from judgelm.data.builder.options import build_options
values = {{"inputs": [{world!r}], "out": {str(tmp_path / "out")!r}, "format": {kind!r}, "epochs": 8}}
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
build(build_options(values, "test"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RunError" in done.stderr
    assert "cannot write here: File too large" in done.stderr
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").glob(f"*.{kind}") if "left" not in path.name}
    assert after == before
    assert not list((tmp_path / "out").glob("*.partial"))


def test_what_a_killed_build_left_behind_goes_and_a_running_one_is_not_disturbed(world, tmp_path):
    (tmp_path / "out" / ".build-killed").mkdir(parents=True)
    (tmp_path / "out" / ".build-killed" / "pairs").write_bytes(b"half of them")
    with Appender(tmp_path / "out" / "left_out.jsonl"), pytest.raises(RunError, match="another process is writing"):
        built(world, tmp_path / "out")
    assert (tmp_path / "out" / ".build-killed").exists()
    built(world, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".build-*"))


def test_a_build_that_breaks_leaves_the_old_sets_alone(world, tmp_path):
    built(world, tmp_path / "out")
    before = (tmp_path / "out" / "train.jsonl").read_bytes()
    with pytest.raises(ConfigError):
        built(world, tmp_path / "out", validation=4000, seed=9)
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == before
    assert not [path for path in (tmp_path / "out").iterdir() if "partial" in path.name or path.name.startswith(".")]
