"""Inputs of studies: spoiled answers, samples of QA questions, HELM Instruct's ratings, stored rewards."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.helm_instruct import DIMENSIONS, helm_instruct_ratings, main
from benchmarks.stored_rewards import OUT, TABLE_3, accuracies, verdicts
from benchmarks.study_rows import attention_checks, dropped_characters, reversed_words, sample_by_type, type_counts
from judgelm.errors import ConfigError
from judgelm.records import Sample


def samples(count):
    return [Sample(id=str(i), question=f"question {i}", answers=(f"Answer {i}. Yes it is.",)) for i in range(count)]


def test_words_are_reversed_within_their_sentence():
    assert reversed_words("The cat sat. Did it stay?\nYes!") == "sat cat The. stay it Did?\nYes!"


@given(st.text(max_size=60), st.integers())
def test_a_third_of_the_characters_goes_and_what_is_left_is_in_order_and_repeats_with_the_seed(text, seed):
    left = dropped_characters(text, seed=seed)
    rest = iter(text)
    assert all(letter in rest for letter in left)
    assert len(text) - len(left) == len(text) // 3
    assert left == dropped_characters(text, seed=seed)


def test_random_pairing_gives_every_question_the_answer_to_another():
    for seed in range(5):
        spoiled = attention_checks(samples(5), "random_pairing", seed=seed)
        assert all(new.answers != old.answers for new, old in zip(spoiled, samples(5), strict=True))
        assert {new.answers for new in spoiled} == {old.answers for old in samples(5)}
    assert (spoiled[0].id, spoiled[0].metadata) == ("0#random_pairing", {"check": "random_pairing"})
    for given_samples, finding in ((samples(1), "at least two"), (samples(1) * 2, "occurs twice")):
        with pytest.raises(ValueError, match=finding):
            attention_checks(given_samples, "random_pairing")


def questions(data_set="hotpotqa", **counts):
    return [
        Sample(id=f"{kind}{i}", question="q", answers=(), metadata={"data_set": data_set, "answer_type": kind})
        for kind, count in counts.items()
        for i in range(count)
    ]


def test_small_types_are_whole_and_large_ones_drawn_in_proportion():
    # without the 500 yes/no questions there are 4,000; name: 1000 * 3000/4000 = 750, place: 1000 * 910/4000 = 227.5,
    # rounded to 228; the 90 jobs are fewer than 100 and all kept
    everything = questions(name=3000, place=910, job=90, bool=500)
    assert type_counts(sample_by_type(everything)) == {"name": 750, "place": 228, "job": 90}
    assert sample_by_type(everything[:500]) == everything[:500]  # a small data set is kept whole
    assert type_counts(sample_by_type(questions("quoref", name=50, date=50, year=50, bool=50))) == {"name": 50}
    with pytest.raises(ConfigError, match="target is 0"):
        sample_by_type(everything, target=0)


def test_what_is_drawn_depends_on_ids_and_seed_alone():
    everything = questions(name=2000, place=500)
    one, backwards = sample_by_type(everything, target=100), sample_by_type(everything[::-1], target=100)
    assert {sample.id for sample in one} == {sample.id for sample in backwards}
    assert {sample.id for sample in one} != {sample.id for sample in sample_by_type(everything, target=100, seed=1)}


GPT_4, CLAUDE = "openai_gpt-4-0314", "anthropic_claude-v1.3"


def stat(name, mean=4.0, count=1):
    return {"name": {"name": name, "split": "test"}, "count": count, "sum": 0, "mean": mean}


def write_run(folder, scenario, model, evaluator, instances, texts=None):
    """A run folder: instance id -> its stats, and the completions where there are some."""
    run = folder / f"{scenario}{',' if ':' in scenario else ':'}model={model},evaluator={evaluator}"
    run.mkdir(parents=True)
    stats = [{"instance_id": key, "train_trial_index": 0, "stats": stats} for key, stats in instances.items()]
    (run / "per_instance_stats.json").write_text(json.dumps(stats, indent=2))
    if texts is not None:
        states = [{"instance": {"id": key}, "result": {"completions": [{"text": text}]}} for key, text in texts.items()]
        (run / "scenario_state.json").write_text(json.dumps({"request_states": states}))
    return run


def ratings_of(folder):
    rejects = []
    return [row.data for row in helm_instruct_ratings(folder, rejects.append)], rejects


def test_a_rating_is_a_row_with_the_papers_names(tmp_path):
    stats = [stat(name, mean) for name, mean in zip(DIMENSIONS, (1.0, 2.5, 3.0, 4.0, 5.0), strict=True)]
    stats.append(stat("Keyword Feedback", 0.0))
    write_run(tmp_path / "runs" / "v1", "self_instruct", GPT_4, "mturk", {"id7": stats}, {"id7": "Three short words."})
    rows, rejects = ratings_of(tmp_path)
    assert rejects == []
    assert [row["score"] for row in rows] == [1.0, 2.5, 3.0, 4.0, 5.0]
    assert rows[1] == {
        "judge": "human", "model": "GPT-4", "item": "self_instruct/id7", "task": "self_instruct",
        "dimension": "Understandability", "score": 2.5, "length": 3,
    }  # fmt: skip


def test_raters_that_are_not_the_papers_are_left_out_and_said_and_what_nobody_rated_is_missing(tmp_path):
    write_run(tmp_path, "koala", GPT_4, "scale", {"id1": [stat("Helpfulness")], "id2": [stat("Helpfulness")]})
    write_run(tmp_path, "koala", GPT_4, "mturk", {"id1": [{"name": {"name": "Helpfulness"}, "count": 0}]})
    [row], [reject] = ratings_of(tmp_path)
    assert row["score"] is None
    assert "evaluator scale is none of the paper's (mturk, gpt4, claude)" in reject.reason


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        ([stat("Helpfulness", 0.0)], "Helpfulness: expected a mean from 1 to 5, got the number 0.0"),
        ([stat("Helpfulness", 7)], "expected a mean from 1 to 5"),
        ([stat("Helpfulness", True)], "expected a mean from 1 to 5, got true"),
        ([stat("Helpfulness", "4")], 'expected a mean from 1 to 5, got "4"'),
        ([{"name": "Helpfulness", "count": 1, "mean": 3}], "a stat without a name"),
        ({"Helpfulness": 3}, "expected instance_id and a list of stats"),
    ],
)
def test_an_instance_that_cannot_be_used_is_a_reject_as_a_whole(tmp_path, stats, reason):
    write_run(tmp_path, "koala", GPT_4, "gpt4", {"id1": stats, "id2": [stat("Helpfulness")]})
    rows, [reject] = ratings_of(tmp_path)
    assert [row["item"] for row in rows] == ["koala/id2"]
    assert reason in reject.reason


def test_the_command_prints_rows_and_says_what_it_left_out(tmp_path, monkeypatch, capsys):
    write_run(tmp_path, "koala", GPT_4, "gpt4", {"id1": [stat("Helpfulness", 5)], "id2": [stat("Helpfulness", 0)]})
    monkeypatch.setattr(sys, "argv", ["helm_instruct", str(tmp_path)])
    main()
    printed = capsys.readouterr()
    [row] = map(json.loads, printed.out.splitlines())
    assert (row["judge"], row["model"], row["score"]) == ("GPT-4", "GPT-4", 5.0)
    assert "left out: " in printed.err


def row(number, label, scores, source="mmlu-pro-law"):
    judgment = {"judgment": {"scores": scores}, "decision": ""}
    return {"pair_id": f"p{number}", "question": "q", "label": label, "source": source, "judgments": [judgment]}


def test_stored_rewards_become_verdicts_and_accuracies():
    rows = [
        row(1, "A>B", [1.5, -2]),
        row(2, "A>B", [3, 4], "livebench-math"),
        row(3, "B>A", [5.0, 5.0], "livebench-reasoning"),
        row(4, "B>A", [5.0, 6.0], "livecodebench"),
    ]
    winners = verdicts(rows)
    assert winners == [1, 2, "tie", 2]
    # by the authors' rule a tie is the second answer: right in 3 of 4
    assert accuracies(rows, winners, tie=2) == {
        "Knowledge": 100.0, "Math": 0.0, "Reasoning": 100.0, "Coding": 100.0, "Overall": 75.0,
    }  # fmt: skip
    assert accuracies(rows, winners, tie="tie")["Overall"] == 50.0


def test_the_stored_results_equal_the_published_table():
    results = json.loads(OUT.read_text(encoding="utf-8"))
    assert results.keys() == TABLE_3.keys()
    for name, result in results.items():
        assert result["pairs"] == 350
        assert tuple(result["by_authors_rule"].values()) == TABLE_3[name]
