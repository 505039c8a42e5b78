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
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import Appender
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.sft import SFTRowBuilder


def built(source, out, **options):
    sources = source if isinstance(source, list) else [source]
    return build(build_options({"inputs": sources, "out": str(out), **options}, "test"))


def rows_of(path):
    return [row.data for row in read_rows(str(path))]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """400 JudgeLM training rows of the synthetic world, with a category and models."""
    path = tmp_path_factory.mktemp("world") / "world.jsonl"
    with path.open("w") as file:
        for i, row in enumerate(generate(400, seed=3, split="train")):
            models = {"answer1_model_id": f"m{i % 3}", "answer2_model_id": f"m{3 + i % 2}"}
            file.write(json.dumps(row | models | {"category": "ab"[i % 2]}) + "\n")
    return str(path)


def test_every_row_is_written_or_named_with_its_reason(world, write):
    good = rows_of(world)[:20]
    swapped = {"answer1_body": good[1]["answer2_body"], "answer2_body": good[1]["answer1_body"],
               "score": good[1]["score"][::-1], "text": "1 2"}  # fmt: skip
    error = {"question_body": "new 1", "text": "error", "text_w_reference": "error"}
    scale = {"score": [0, 9], "score_w_reference": [0, 11], "text": "0 9", "text_w_reference": "0 11"}
    bad = [
        good[0] | {"question_id": "copy"},
        good[1] | swapped | {"question_id": "swapped copy"},
        good[2] | error | {"question_id": "error"},
        good[3] | scale | {"question_id": "scale", "question_body": "new 2"},
        good[4] | {"question_id": "lacks", "answer1_body": None},
    ]
    counts = built(write(*good, *bad, name="in.jsonl"), "out", validation=0).counts
    assert counts.read["in"] == 25
    assert counts.read["in"] == counts.before.pairs + sum(counts.dropped.values()) + sum(counts.rejected.values())
    left_out = {row.get("id", row.get("line")): row["why"] for row in rows_of("out/left_out.jsonl")}
    assert left_out.pop(25).startswith('field "answer1_body": expected text, got null')
    assert left_out == {
        "copy": f"exact duplicate of {good[0]['question_id']}",
        "swapped copy": f"exact duplicate of {good[1]['question_id']}",
        "error": "no judgment",
        "scale": "scores outside the scale",
    }


@pytest.mark.distributed
def test_any_number_of_workers_writes_the_same_bytes_and_either_format_the_same_rows(world, tmp_path):
    draws = {"swap": "draw", "reference": "draw", "epochs": 2, "seed": 5}
    options = draws | {"subsets": [50, 100]}
    for folder, workers, kind in (("one", 1, "jsonl"), ("three", 3, "jsonl"), ("parquet", 3, "parquet")):
        built(world, tmp_path / folder, workers=workers, format=kind, **options)
    names = ["train", "train-100", "train-50", "validation"]
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files.keys() == {"left_out.jsonl", *(f"{name}.jsonl" for name in names)}
    assert {path.name: path.read_bytes() for path in (tmp_path / "three").iterdir()} == files
    for name in names:
        assert rows_of(tmp_path / f"parquet/{name}.parquet") == rows_of(tmp_path / f"one/{name}.jsonl")


def test_the_order_of_the_input_changes_the_order_of_the_output_alone(world, tmp_path):
    lines = Path(world).read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    (tmp_path / "world.jsonl").write_text("".join(lines))
    options = {"reference": "draw", "subsets": [60]}
    built(world, tmp_path / "a", **options)
    built(str(tmp_path / "world.jsonl"), tmp_path / "b", **options)
    for name in ("train", "validation", "train-60"):
        first, second = (
            {row["question_id"]: row for row in rows_of(tmp_path / f"{side}/{name}.jsonl")} for side in "ab"
        )
        assert first == second


def test_validation_is_neither_swapped_nor_dropped_from_and_epochs_hold_every_pair_anew(world, tmp_path):
    options = {"swap": "none", "reference": "draw", "epochs": 2, "resample": {"tie": 0}}
    built(world, tmp_path / "out", validation=30, **options)
    originals = {str(row["question_id"]): row for row in rows_of(world)}
    validation = rows_of(tmp_path / "out" / "validation.jsonl")
    assert len({row["question_body"] for row in validation}) >= 30
    for row in validation:
        before = originals[row["question_id"]]
        assert (row["swapped"], row["answer1_body"]) == (False, before["answer1_body"])
        assert (row["score"], row["score_w_reference"]) == (before["score"], before["score_w_reference"])
    train = rows_of(tmp_path / "out" / "train.jsonl")
    first, second = ({row["question_id"].split(":")[0]: row for row in train if row["epoch"] == e} for e in range(2))
    assert first.keys() == second.keys()
    assert [row["reference"] for row in first.values()] != [row["reference"] for row in second.values()]
    for row in train:
        assert (row["score"] is None) == (row["reference"] is not None), "prompt and target change together"
        before = originals[row["question_id"].split(":")[0]]
        assert len(set(before["score"] or before["score_w_reference"])) == 2, "ties are left out"


def test_subsets_are_nested_and_exact(world, tmp_path):
    done = built(world, tmp_path / "out", subsets=[20, 80, 10_000], validation=0, swap="draw")
    paths = [tmp_path / f"out/{name}.jsonl" for name in ("train-20", "train-80", "train")]
    small, large, whole = ({row["question_id"] for row in rows_of(path)} for path in paths)
    assert (len(small), len(large)) == (20, 80)
    assert small < large < whole
    assert done.subsets.too_large == (10_000,)


def test_references_can_be_replaced_or_ignored_and_what_they_changed_is_counted(world, write):
    first = rows_of(world)[0]
    references = write({"id": first["question_id"], "reference": "Another one."}, name="references.jsonl")
    counts = built(world, "a", references=references, validation=0, swap="none").counts.references
    rows = rows_of("a/train.jsonl")
    row = next(row for row in rows if row["question_id"] == str(first["question_id"]))
    assert (row["reference"], row["score_w_reference"]) == ({"text": "Another one."}, None)
    assert counts["replaced"] == 1
    both = [row for row in rows if row["score"] and row["score_w_reference"]]
    assert counts["both judgments"] == len(both) > 300
    assert counts["score changed"] == sum(row["score"] != row["score_w_reference"] for row in both) > 0
    assert 0 < counts["winner changed"] < counts["score changed"]
    built(world, "b", reference="ignore", validation=0)
    assert all(row["reference"] is row["score_w_reference"] is None for row in rows_of("b/train.jsonl"))


def test_several_sources_keep_their_names_and_ids_apart(world, write):
    outputs = {"evaluation_result": "1", "evaluation_reason": "Response 1 is right."}
    sides = [{"instruction": f"i{i}", "input": "", "response1": f"a{i}", "response2": f"b{i}"} for i in range(5)]
    panda = write(*({"inputs": inputs, "outputs": outputs} for inputs in sides), name="panda.jsonl")
    prefer = [{"id": i, "prompt": f"p{i}", "chosen": "good", "rejected": "bad"} for i in range(5)]
    inputs = [
        world,
        {"path": panda, "name": "PandaLM", "winner_scores": [8, 4, 6]},
        {"path": write(*prefer, name="prefer.jsonl"), "winner_scores": [9, 3, 6]},
    ]
    done = built(inputs, "out", validation=0, swap="none")
    found = rows_of("out/train.jsonl")
    assert {row["source"] for row in found} == {"world", "PandaLM", "prefer"}
    assert {row["question_id"].split("/")[0] for row in found} == {"world", "PandaLM", "prefer"}
    assert next(row for row in found if row["source"] == "PandaLM")["text"] == "8 4\nResponse 1 is right."
    assert done.counts.repaired["prefer", "scores made from the winner"] == 5


def test_too_long_rows_are_measured_with_the_trainers_template(world, tmp_path, tiny_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    values = {"inputs": [world], "out": str(tmp_path / "out"), "validation": 0, "swap": "none",
              "tokenizer": str(tiny_model), "template": "judgelm-compact", "max_tokens": 200}  # fmt: skip
    counts = build(build_options(values, "test"), tokenizer=tokenizer).counts
    builder = SFTRowBuilder(tokenizer, RowOptions(template="judgelm-compact", window=200, reference_drop_prob=0))
    rows = list(builder.read([str(tmp_path / "out" / "train.jsonl")]))
    assert 0 < counts.dropped["world", "too long"] < 400
    assert len(rows) == 400 - counts.dropped.total()
    assert builder.counts.cut == 0
    assert max(len(row.input_ids) for row in rows) <= 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"swap_probability": 1}, "unknown option swap_probability; available: inputs, out"),
        ({"swap_prob": 2}, r"swap_prob=2: Input should be less than or equal to 1"),
        ({"max_tokens": 100}, "max_tokens requires tokenizer"),
        ({"validation": 2.5}, "expected a share below 1 or a whole number"),
        ({"validation": 4000}, "leaves no questions for training"),
        ({"inputs": []}, "inputs"),
        ({"inputs": ["a/train.jsonl", "b/train.jsonl"]}, "2 inputs have the name train"),
        ({"resample": {"tie": -1}}, "resample: expected values of at least 0"),
        ({"workers": 0}, "workers=0: expected auto"),
        ({"workers": "all"}, "workers='all': expected auto"),
    ],
)
def test_bad_options_are_named(world, tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        built(change.pop("inputs", world), tmp_path / "out", **change)


def test_nothing_left_is_an_error_that_says_where_to_look(write):
    path = write({"question": "q", "answer_1": "a", "answer_2": "b", "winner": 1})
    with pytest.raises(InputError, match=r"no usable pairs; .*left_out.jsonl"):
        built(path, "out")
    assert [row["why"] for row in rows_of("out/left_out.jsonl")] == ["winner without scores"]


def test_a_folder_that_cannot_be_made(world, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file.out: cannot write here: Not a directory; .* choose another"):
        built(world, tmp_path / "file" / "out")


def test_a_full_disk_changes_no_set(world, tmp_path):
    built(world, tmp_path / "out", format="parquet")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    code = f"""
import resource
from judgelm.data.builder.pipeline import build
from judgelm.data.builder.options import build_options
values = {{"inputs": [{world!r}], "out": {str(tmp_path / "out")!r}, "format": "parquet", "epochs": 8}}
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
build(build_options(values, "test"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RunError" in done.stderr
    assert "cannot write here: File too large" in done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")} == before
    assert not list((tmp_path / "out").glob("*.partial"))


def test_what_a_killed_build_left_behind_goes_and_a_running_one_is_not_disturbed(world, tmp_path):
    (tmp_path / "out" / ".build-killed").mkdir(parents=True)
    (tmp_path / "out" / ".build-killed" / "pairs").write_bytes(b"half of them")
    with Appender(tmp_path / "out" / "left_out.jsonl"), pytest.raises(RunError, match="another process is writing"):
        built(world, tmp_path / "out")
    assert (tmp_path / "out" / ".build-killed").exists()
    built(world, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".build-*"))


ROOT = Path(__file__).parents[3]


def test_real_reviews_and_preferences(shared_data, tmp_path):
    reviews = shared_data / "vicuna_reviews"
    command = [sys.executable, ROOT / "data_tools" / "convert.py", "reviews", "-o", tmp_path / "reviews.jsonl",
               "--questions", reviews / "question.jsonl", "--answers", *sorted((reviews / "answer").iterdir()),
               "--reviews", *sorted((reviews / "review").iterdir())]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    llmbar = {"natural": "llmbar/Natural/dataset.json", "neighbor": "llmbar/Adversarial_Neighbor/dataset.json"}
    inputs = [str(tmp_path / "reviews.jsonl")] + [
        {"path": str(shared_data / path), "name": name, "winner_scores": [8, 4, 6]}
        for name, path in ({"pandalm": "pandalm/testset-v1.json"} | llmbar).items()
    ]
    values = {"inputs": inputs, "out": str(tmp_path / "out"), "validation": 0.1, "subsets": [500], "swap": "both"}
    done = build(build_options(values, "test"))
    counts = done.counts
    assert counts.read == {"reviews": 640, "pandalm": 999, "natural": 100, "neighbor": 134}
    assert counts.dropped == {
        ("reviews", "scores outside the scale"): 2,  # GPT-4 wrote `0 9` on a scale of 1 to 10
        ("pandalm", "exact duplicate"): 148,
        ("pandalm", "near duplicate"): 6,
    }
    assert (counts.before.pairs, counts.ambiguous) == (640 + 999 + 100 + 134 - 2 - 148 - 6, {})
    assert counts.swapped == {"swapped": counts.before.pairs - counts.validation.pairs}
    winners = counts.train.winners
    assert winners["1"] == winners["2"], "both orders of every pair"
    for row in rows_of(tmp_path / "out" / "train-500.jsonl"):
        assert row["text"].split("\n")[0] == " ".join(f"{score:g}" for score in row["score"])
