"""Rows that the benchmarks' scripts make: joined reviews, converted labels, derived pairs, seeds."""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from benchmarks import convert
from benchmarks.convert import JoinedReview, join_reviews
from benchmarks.derived_pairs import Derivation, derived_pairs, main
from benchmarks.seeds import Seed, SeedSource, apportion, normalised, read_seeds, redistributed, sample_seeds
from judgelm.data.labelled_pair import LabelledPair
from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.records import Label, Sample
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.processes import run_command


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(*rows, name="rows.jsonl"):
    return write_rows(name, rows)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the recipe: exit code, standard output and standard error."""

    def main(*arguments):
        monkeypatch.setattr(sys, "argv", ["convert.py", *arguments, "-o", "o.jsonl"])
        capsys.readouterr()
        return convert.main(), *capsys.readouterr()

    return main


def tables(*reviews, questions=2):
    """Two answers, `1x` and `1y`, to each question; reviews given as (id, question, answer, answer, text, score)."""
    names = ("review_id", "question_id", "answer1_id", "answer2_id", "text", "score")
    numbers = range(1, questions + 1)
    answers = [{"answer_id": f"{n}{m}", "question_id": n, "text": m, "model_id": m} for n in numbers for m in "xy"]
    return (
        write_rows("q.jsonl", [{"question_id": n, "text": f"q{n}", "category": "c"} for n in numbers]),
        [write_rows("a.jsonl", answers)],
        [write_rows("r.jsonl", [dict(zip(names, review, strict=True)) for review in reviews])],
    )


GOOD = ("r1", 1, "1x", "1y", "8 6\nwhy", [8.0, 6.0])


def test_reviews_are_joined_with_their_answers_and_question():
    rebuilt = ("r2", 1, "1x", "1y", "First, I solve.\n7 8", [1.5, 7])
    first, second = join_reviews(*tables(GOOD, rebuilt))
    row = {
        "question_id": "r1", "question_body": "q1", "answer1_body": "x", "answer2_body": "y", "answer1_model_id": "x",
        "answer2_model_id": "y", "score": [8, 6], "text": "8 6\nwhy",
        "metadata": {"question_id": "1", "category": "c", "source": "r.jsonl:1"},
    }  # fmt: skip
    assert first == JoinedReview(row=row, question_id="1", rebuilt=False)
    assert (second.row["text"], second.rebuilt) == ("1.5 7\nFirst, I solve.\n7 8", True)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({0: "r1"}, 'review_id "r1" appeared before'),
        ({0: None}, 'field "review_id" is missing'),
        ({1: 3}, 'field "question_id": "3" is in none of the given files'),
        ({3: "9y"}, 'field "answer2_id": "9y" is in none of the given files'),
        ({3: "2y"}, 'its answer in a.jsonl:4 belongs to another question than "1"'),
        ({5: [-1, -1]}, "score [-1, -1]: the source could not read this review"),
        ({5: [8, 7]}, 'score [8, 7] and the text, which opens "8 6", disagree'),
        ({5: None}, 'field "score" is missing'),
        ({4: None}, 'field "text": expected text, got null'),
        ({5: [float("nan"), 6]}, 'field "score": expected 2 finite numbers, got [null, 6]'),
    ],
)
def test_a_review_that_cannot_be_joined_is_a_reject(change, finding):
    review = ("r2", *GOOD[1:])
    good, reject = join_reviews(*tables(GOOD, tuple(change.get(place, value) for place, value in enumerate(review))))
    assert isinstance(good, JoinedReview)
    assert reject.message.startswith(f"r.jsonl:2: {finding}")


def test_reviews_are_counted_and_split_by_question(run, tmp_path):
    reviews = [(f"r{n}{k}", n, f"{n}x", f"{n}y", "8 6", [8, 6]) for n in range(1, 11) for k in range(3)]
    questions, [answers], [table] = tables(*reviews, ("r", 2, "2x", "2y", "?", [-1, -1]), questions=10)
    options = ("reviews", "--questions", questions, "--answers", answers, "--reviews", table)
    code, out, _ = run(*options)
    counts = {line[10:].split(":")[0]: int(line[:8]) for line in out.splitlines()}
    assert (code, counts) == (0, {"rows read": 31, "rows written": 30, "in o.jsonl": 30, "rebuilt": 0, "dropped": 1})
    assert [row["line"] for row in rows_of("o.rejects.jsonl")] == [31]
    assert not list(tmp_path.glob("*.partial"))
    split = ("--split-by", "question", "--seed", "1", "--holdout")
    assert run(*options, *split, "4")[0] == 0
    train, holdout = (rows_of(f"o.{side}.jsonl") for side in ("train", "holdout"))
    assert (len(train), len(holdout)) == (18, 12)
    assert not {row["metadata"]["question_id"] for row in train} & {row["metadata"]["question_id"] for row in holdout}
    run(*options, *split, "4")
    assert rows_of("o.holdout.jsonl") == holdout
    code, _, error = run(*options, *split, "10")
    assert (code, error) == (1, "--holdout 10: the files have 10 questions; leave some on each side\n")


PANDALM = {"idx": 1, "instruction": "i", "input": "c", "response1": True, "response2": "b", "cmp_key": "m_n"}
VOTES = {"annotator1": 2, "annotator2": 2, "annotator3": 0}


def test_winners_stay_winners_unless_scores_stand_for_them(run):
    write(PANDALM | VOTES, PANDALM | {"idx": 2}, name="p.jsonl")
    write(PANDALM | VOTES, name="s.jsonl")
    _, out, _ = run("rows", "p.jsonl", "s.jsonl")
    assert "dropped: no label; rows without one cannot be trained on (see o.rejects.jsonl)" in out
    [row] = rows_of("o.jsonl")
    assert (row["winner"], row["votes"], row["answer1_body"], "score" in row) == (2, [2, 2, "tie"], "True", False)
    assert read_labels("o.jsonl").labels == read_labels("p.jsonl").labels
    assert rows_of("o.rejects.jsonl")[1]["reason"].startswith('id "1" appeared before in another file')
    run("rows", "p.jsonl", "--scores", "8", "4", "6")
    [row] = rows_of("o.jsonl")
    assert (row["score"], row["text"], row["question_body"]) == ([4, 8], "4 8\n", "i\n\nc")


def judged(number, question, first, second, preference):
    models = (f"m-{first}", f"m-{second}")
    metadata = {"annotator": "teacher"}
    sample = Sample(id=str(number), question=question, answers=(first, second), answer_models=models, metadata=metadata)
    label = Label(sample_id=sample.id, winner=1, preference=preference)
    return LabelledPair(sample=sample, plain=label, referenced=None)


def derived(pairs, same=50, other=0, **options):
    return list(derived_pairs(pairs, Derivation(same_baseline=same, other_question=other, **options)))


def preferences(pairs):
    """P(first better) by the two answers, in alphabetical order."""
    by_answers = {pair.sample.answers: pair.plain.preference for pair in pairs}
    return {tuple(sorted(each)): share if each[0] < each[1] else 1 - share for each, share in by_answers.items()}


@pytest.mark.parametrize(
    ("first", "second", "preference"),
    [
        # logit .8 - logit .3 = log 4 + log 7/3 = log 28/3: 28/31
        (("aa", "cc", 0.8), ("cc", "bb", 0.7), 28 / 31),
        # a clear win and a clear loss count as nine to one each
        (("aa", "cc", 1.0), ("bb", "cc", 0.0), 81 / 82),
    ],
)
def test_log_odds_against_one_baseline_subtract(first, second, preference):
    pairs = [judged(1, "Q?", *first), judged(2, "Q?", *second)]
    assert preferences(derived(pairs)) == {("aa", "bb"): pytest.approx(preference)}


def test_an_answer_to_another_question_loses_to_one_of_this_question():
    pairs = [judged(n, f"Question {n}?", f"right {n} a", f"right {n} b", 1.0) for n in range(10)]
    made = derived(pairs, same=0, other=4)
    assert made
    for pair in made:
        number = pair.sample.question.removeprefix("Question ").rstrip("?")
        better, worse = pair.sample.answers[:: 1 if pair.plain.preference == 1 else -1]
        assert better.startswith(f"right {number}")
        assert not worse.startswith(f"right {number}")
        assert pair.sample.metadata["rule"] == "other question"


def world():
    """Answers a to h of 30 questions against one baseline; the longer ones win more often."""
    chances = (0.05, 0.1, 0.9, 0.95)
    return [
        judged(f"{q}{n}", f"Question {q}?", f"{q} " + "x" * (30 * n), "the baseline", chances[(n + q) % 4])
        for q in range(30)
        for n in range(8)
    ]


def test_the_order_of_the_rows_changes_nothing_and_no_pair_comes_twice():
    made, reversed_, other_seed = (
        [(pair.sample.id, pair.plain.preference) for pair in derived(pairs, other=3, seed=seed)]
        for pairs, seed in ((world(), 0), (world()[::-1], 0), (world(), 1))
    )
    assert made == reversed_ != other_seed
    assert len({name for name, _ in made}) == len(made)


def test_the_command_writes_rows_for_training_and_skips_test_questions(monkeypatch):
    row, rows = {"answer_1": "a", "answer_2": "base"}, []
    for q, n in product(range(6), range(4)):
        answer = {"answer_1": f"{q} {n}", "preference": (0.1, 0.9)[n % 2]}
        rows.append(row | answer | {"id": f"{q}{n}", "question": f"Question {q}?"})
    write(*rows)
    write(row | {"id": "t", "question": "Question 3?"}, name="test.jsonl")
    monkeypatch.setattr("sys.argv", ["derived_pairs", "rows.jsonl", "-o", "out.jsonl", "--exclude", "test.jsonl"])
    main()
    pairs = list(read_labelled("out.jsonl", source="x"))
    assert {pair.sample.question for pair in pairs} == {f"Question {q}?" for q in (0, 1, 2, 4, 5)}
    assert all(not any(text.startswith("3 ") for text in pair.sample.answers) for pair in pairs)
    rules = {row["source"].split(": ")[1].split(",")[0] for row in rows_of("out.jsonl")}
    assert rules == {"same baseline", "other question"}


ALPACA = {"instruction": "i", "input": "", "output": "o"}
DOLLY = {"instruction": "i", "context": "c", "response": "r", "category": "closed_qa"}
GPT4ALL = {"prompt": "p", "response": "r", "source": "laion/unified_chip2"}
TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "more"}]
SHAREGPT = {"id": "QWJhYvA_0", "conversations": [*TURNS, {"from": "odd", "value": None}]}


def source(*paths):
    return SeedSource(paths=paths)


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
def test_each_kind_is_recognised_by_its_fields(row, kind, question, reference, category):
    [seed] = read_seeds(write(row))
    assert seed == Seed(
        id=seed.id, question=question, reference=reference, source=kind, category=category, origin="rows.jsonl:1"
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
def test_a_bad_row_is_a_reject_with_place_finding_and_way_out(good, row, message):
    seed, reject = read_seeds(write(good, row))
    assert (type(seed), type(reject)) == (Seed, Reject)
    assert reject.message.startswith(f"rows.jsonl:2: {message}")


def test_the_mix_is_kept_and_the_questions_are_distinct():
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


def test_the_choice_does_not_depend_on_the_order_of_rows_files_and_sources():
    rows = [*alpacas(0, 40), *({**row, "output": "p"} for row in alpacas(0, 10))]
    other = [DOLLY | {"instruction": f"question {number}", "context": "", "response": "o"} for number in range(30, 60)]
    one = {"x": source(write(*rows, name="x.jsonl")), "y": source(write(*other, name="y.jsonl"))}
    parts = write(*rows[:7:-1], name="v.jsonl"), write(*rows[7::-1], name="w.jsonl")
    two = {"y": source(write(*other[::-1], name="z.jsonl")), "x": source(*parts)}
    mix = {"x": 0.6, "y": 0.4}
    drawn, again = ({replace(seed, origin="") for seed in sample_seeds(each, mix, 25, 3)} for each in (one, two))
    assert (len(drawn), drawn) == (25, again)


def test_largest_remainders():
    # 10 x (0.34, 0.33, 0.33) = 3.4, 3.3, 3.3: one left over, to the largest remainder
    assert apportion(10, {"a": 0.34, "b": 0.33, "c": 0.33}) == {"a": 4, "b": 3, "c": 3}
    # a gives 1 of 5; of the 9 left 3/5 are 5.4 and 2/5 are 3.6, but c has 3: then b gives 6
    filled = redistributed({"a": 5, "b": 3, "c": 2}, {"a": 1, "b": 9, "c": 3}, {"a": 0.5, "b": 0.3, "c": 0.2})
    assert filled == {"a": 1, "b": 6, "c": 3}


def run_recipe(config, code=0):
    Path("seeds.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    script = Path(__file__).parents[2] / "data_tools/sample_seeds.py"
    return run_command(sys.executable, script, "--config", "seeds.yaml", "-o", "out.jsonl", code=code)


def test_the_recipe_writes_seeds_and_rejects_or_nothing(tmp_path):
    write(*alpacas(0, 20), {"instruction": 3}, name="x.jsonl")
    config = {"sources": {"x": {"paths": ["x.jsonl"]}}, "mix": {"x": 1.0}, "size": 25}
    assert run_recipe(config, code=1).stderr.startswith("too few seeds for size 25. ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seeds.yaml", "x.jsonl"]
    done = run_recipe(config | {"size": 5})
    assert done.stderr == ""
    rows = rows_of("out.jsonl")
    assert [row["line"] for row in rows_of("out.rejects.jsonl")] == [21]
    assert done.stdout.split()[-8:] == ["x", "21", "1", "0", "0", "20", "5", "5"]
    samples = list(SampleStream([write(*(row | {"answers": ["a", "b"]} for row in rows), name="joined.jsonl")]))
    assert [(sample.id, sample.reference) for sample in samples] == [(row["id"], row["reference"]) for row in rows]
