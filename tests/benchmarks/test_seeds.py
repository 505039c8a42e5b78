import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks.seeds import Seed, SeedSource, apportion, normalised, read_seeds, redistributed, sample_seeds
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream

ROOT = Path(__file__).parents[2]

ALPACA = {"instruction": "i", "input": "", "output": "o"}
DOLLY = {"instruction": "i", "context": "c", "response": "r", "category": "closed_qa"}
GPT4ALL = {"prompt": "p", "response": "r", "source": "laion/unified_chip2"}
TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "more"}]
SHAREGPT = {"id": "QWJhYvA_0", "conversations": [*TURNS, {"from": "odd", "value": None}]}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_rows(*rows, name="seeds.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return name

    return write_rows


def source(*paths, **fields):
    return SeedSource(paths=paths, **fields)


def alpacas(start, stop):
    return [ALPACA | {"instruction": f"question {number}"} for number in range(start, stop)]


@pytest.mark.parametrize(
    ("row", "kind", "question", "reference", "category"),
    [
        (ALPACA, "alpaca", "i", "o", None),
        (ALPACA | {"input": "x"}, "alpaca", "i\n\nx", "o", None),
        (DOLLY, "dolly", "i\n\nc", "r", "closed_qa"),
        (DOLLY | {"context": ""}, "dolly", "i", "r", "closed_qa"),
        (GPT4ALL, "gpt4all", "p", "r", "laion/unified_chip2"),
        (GPT4ALL | {"source": "", "response": " "}, "gpt4all", "p", None, None),
        (SHAREGPT, "sharegpt", "q", "a", None),
        ({"conversations": [{"from": "system", "value": "s"}, *SHAREGPT["conversations"]]}, "sharegpt", "q", "a", None),
        ({"conversations": [{"from": "human", "value": "q"}]}, "sharegpt", "q", None, None),
    ],
)
def test_each_kind_is_recognised_by_its_fields(write, row, kind, question, reference, category):
    [seed] = read_seeds(write(row))
    assert seed == Seed(
        id=seed.id, question=question, reference=reference, source=kind, category=category, origin="seeds.jsonl:1"
    )


@pytest.mark.parametrize(
    ("good", "row", "message"),
    [
        (ALPACA, {"instruction": "i"}, 'field "output" is missing'),
        (ALPACA, ALPACA | {"instruction": " \n"}, 'field "instruction": the question is blank; leave the row out'),
        (SHAREGPT, {"conversations": []}, 'field "conversations": expected a list of turns'),
        (SHAREGPT, {"conversations": TURNS[1:]}, 'field "conversations": the first turn is not the human\'s'),
        (SHAREGPT, SHAREGPT | {"id": "QWJhYvA_14"}, 'field "id": QWJhYvA_14 is a later part of a conversation'),
    ],
)
def test_a_bad_row_is_a_reject_with_place_finding_and_way_out(write, good, row, message):
    seed, reject = read_seeds(write(good, row))
    assert (type(seed), type(reject)) == (Seed, Reject)
    assert reject.message.startswith(f"seeds.jsonl:2: {message}")


def test_the_mix_is_kept_and_the_questions_are_distinct(write):
    others = [DOLLY | {"instruction": f"other {number}"} for number in range(50)]
    sources = {"x": source(write(*alpacas(0, 60), *alpacas(0, 5), name="x.jsonl"))}
    sources["y"] = source(write(*others, {}, name="y.jsonl"))
    rejects = []
    sample = sample_seeds(sources, {"x": 0.7, "y": 0.3}, 50, 0, on_reject=rejects.append)
    found = list(sample)
    # 50 x 0.7 = 35, 50 x 0.3 = 15
    assert [seed.source for seed in found] == ["x"] * 35 + ["y"] * 15
    assert len({normalised(seed.question) for seed in found}) == len({seed.id for seed in found}) == 50
    first, second = sample.counts["x"], sample.counts["y"]
    assert (first.read, first.duplicates, first.available, first.requested, first.taken) == (65, 5, 60, 35, 35)
    assert (second.read, second.rejected, second.available, second.taken) == (51, 1, 50, 15)
    assert [reject.line for reject in rejects] == [51]
    assert all(seed.origin.startswith(f"{seed.source}.jsonl:") for seed in found)


def test_the_choice_does_not_depend_on_the_order_of_rows_files_and_sources(write):
    rows = [*alpacas(0, 40), *({**row, "output": "p"} for row in alpacas(0, 10))]
    other = [DOLLY | {"instruction": f"question {number}", "context": "", "response": "o"} for number in range(30, 60)]
    one = {"x": source(write(*rows, name="x.jsonl")), "y": source(write(*other, name="y.jsonl"))}
    parts = write(*rows[:7:-1], name="v.jsonl"), write(*rows[7::-1], name="w.jsonl")
    two = {"y": source(write(*other[::-1], name="z.jsonl")), "x": source(*parts)}
    mix = {"x": 0.6, "y": 0.4}
    drawn, again = ({replace(seed, origin="") for seed in sample_seeds(each, mix, 25, 3)} for each in (one, two))
    assert len(drawn) == 25
    assert drawn == again


def test_largest_remainders():
    # 10 x (0.34, 0.33, 0.33) = 3.4, 3.3, 3.3: one left over, to the largest remainder
    assert apportion(10, {"a": 0.34, "b": 0.33, "c": 0.33}) == {"a": 4, "b": 3, "c": 3}
    # a gives 1 of 5; of the 9 left 3/5 are 5.4 and 2/5 are 3.6, but c has 3: then b gives 6
    filled = redistributed({"a": 5, "b": 3, "c": 2}, {"a": 1, "b": 9, "c": 3}, {"a": 0.5, "b": 0.3, "c": 0.2})
    assert filled == {"a": 1, "b": 6, "c": 3}


def run_recipe(config, tmp_path):
    (tmp_path / "seeds.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    script = ROOT / "data_tools" / "sample_seeds.py"
    command = [sys.executable, script, "--config", "seeds.yaml", "-o", "out.jsonl"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_the_recipe_writes_seeds_and_rejects_or_nothing(write, tmp_path):
    write(*alpacas(0, 20), {"instruction": 3}, name="x.jsonl")
    config = {"sources": {"x": {"paths": ["x.jsonl"]}}, "mix": {"x": 1.0}, "size": 25}
    done = run_recipe(config, tmp_path)
    assert (done.returncode, done.stderr[:27]) == (1, "too few seeds for size 25. ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seeds.yaml", "x.jsonl"]
    done = run_recipe(config | {"size": 5}, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert json.loads((tmp_path / "out.rejects.jsonl").read_text(encoding="utf-8"))["line"] == 21
    assert done.stdout.split()[-8:] == ["x", "21", "1", "0", "0", "20", "5", "5"]
    samples = list(SampleStream([write(*(row | {"answers": ["a", "b"]} for row in rows), name="joined.jsonl")]))
    assert [(sample.id, sample.reference) for sample in samples] == [(row["id"], row["reference"]) for row in rows]
