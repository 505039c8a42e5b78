import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.seeds import Seed, SeedSource, apportion, normalised, read_seeds, redistributed, sample_seeds
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.errors import ConfigError, InputError

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


def questions(sample):
    return [seed.question for seed in sample]


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


def test_unknown_fields_and_kinds(write):
    [seed] = read_seeds(write(DOLLY | {"output": "o"}), "alpaca", source="mine")  # a kind given goes before the fields
    assert (seed.question, seed.reference, seed.source) == ("i", "o", "mine")
    path = write({"question": "q"})
    with pytest.raises(InputError, match="fields of no seed source"):
        list(read_seeds(path))
    with pytest.raises(ConfigError, match="'flan'"):
        read_seeds(path, "flan")


def test_only_the_categories_asked_for(write):
    path = write(GPT4ALL, GPT4ALL | {"prompt": "code", "source": "stackoverflow"})
    sample = sample_seeds({"g": source(path, categories=("laion/unified_chip2",))}, {"g": 1}, 1, 0)
    assert (questions(sample), sample.counts["g"].other_category) == (["p"], 1)
    with pytest.raises(InputError, match="no row is of laion"):
        sample_seeds({"g": source(path, categories=("laion",))}, {"g": 1}, 1, 0)


def test_questions_are_the_same_in_any_case_width_and_spacing():
    assert normalised("  What\n is\tＡＩ? ") == normalised("what is ai?") == "what is ai?"
    assert normalised("what is ai") != normalised("what is ai?")


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


def test_a_question_of_two_sources_is_kept_in_one_and_counted_in_the_other(write):
    first = source(write(*alpacas(0, 30), name="x.jsonl"))
    second = source(write(*({**row, "output": "p"} for row in alpacas(20, 40)), name="y.jsonl"))
    counts = sample_seeds({"x": first, "y": second}, {"x": 0.5, "y": 0.5}, 2, 0).counts
    # 40 distinct questions, 10 of them in both
    assert counts["x"].available + counts["y"].available == 40
    assert counts["x"].duplicates + counts["y"].duplicates == 10
    assert 0 < counts["x"].duplicates < 10


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


def test_a_larger_size_adds_and_another_seed_draws_anew(write):
    sources = {"x": source(write(*alpacas(0, 200)))}
    small, large, other = (
        set(questions(sample_seeds(sources, {"x": 1}, *args))) for args in [(20, 0), (50, 0), (20, 1)]
    )
    assert small < large
    assert small != other
    assert len(other) == 20


def test_too_few_says_what_is_missing_and_redistribution_is_counted(write):
    sources = {
        name: source(write(*alpacas(*ends), name=f"{name}.jsonl")) for name, ends in (("x", (0, 10)), ("y", (10, 90)))
    }
    mix = {"x": 0.5, "y": 0.5}
    with pytest.raises(InputError, match=r"x: 25 asked \(share 0.5\), 10 .* 15 missing.* take a size of about 20"):
        sample_seeds(sources, mix, 50, 0)
    sample = sample_seeds(sources, mix, 50, 0, redistribute=True)
    assert [(count.requested, count.taken) for count in sample.counts.values()] == [(25, 10), (25, 40)]
    assert len(list(sample)) == 50
    with pytest.raises(InputError, match="have 90 seeds"):
        sample_seeds(sources, mix, 91, 0, redistribute=True)


@pytest.mark.parametrize(
    ("path", "mix", "size", "finding"),
    [
        ("x", {"x": 1}, 0, "size 0"),
        ("x", {"y": 1}, 1, "do not fit"),
        ("x", {"x": 0.5}, 1, "sum to 0.5"),
        ("x", {"x": -1}, 1, "is -1"),
        ("-", {"x": 1}, 1, "standard input"),
    ],
)
def test_a_mix_or_source_that_cannot_be_drawn_from_is_refused(path, mix, size, finding):
    with pytest.raises(ConfigError, match=finding):
        sample_seeds({"x": source(path)}, mix, size, 0)


def test_files_that_change_between_the_readings_are_an_error(write):
    sample = sample_seeds({"x": source(write(*alpacas(0, 3)))}, {"x": 1}, 3, 0)
    write(*alpacas(1, 3))
    with pytest.raises(InputError, match="1 of the chosen seeds are gone"):
        list(sample)


def test_largest_remainders():
    # 10 x (0.34, 0.33, 0.33) = 3.4, 3.3, 3.3: one left over, to the largest remainder
    assert apportion(10, {"a": 0.34, "b": 0.33, "c": 0.33}) == {"a": 4, "b": 3, "c": 3}
    # a gives 1 of 5; of the 9 left 3/5 are 5.4 and 2/5 are 3.6, but c has 3: then b gives 6
    filled = redistributed({"a": 5, "b": 3, "c": 2}, {"a": 1, "b": 9, "c": 3}, {"a": 0.5, "b": 0.3, "c": 0.2})
    assert filled == {"a": 1, "b": 6, "c": 3}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=5), st.data())
def test_filling_up_gives_the_size_and_no_more_than_there_is(given_sources, data):
    shares = {str(place): float(share) for place, (share, _) in enumerate(given_sources)}
    available = {str(place): count for place, (_, count) in enumerate(given_sources)}
    size = data.draw(st.integers(0, sum(available.values())))
    taken = redistributed(apportion(size, shares), available, shares)
    assert sum(taken.values()) == size
    assert all(0 <= taken[name] <= available[name] for name in available)


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


def test_the_example_config_is_read():
    config = yaml.safe_load((ROOT / "configs" / "data" / "seeds.yaml").read_text(encoding="utf-8"))
    assert set(config["sources"]) == set(config["mix"])
    assert sum(config["mix"].values()) == pytest.approx(1)
