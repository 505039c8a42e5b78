"""Published judgments of each format: places, orders and failures as their programs write them."""

import gzip
import json

import pytest

from judgelm.data.sources.registry import get_published, recognise_published
from judgelm.data.sources.source import publications
from judgelm.errors import ConfigError, InputError
from judgelm.records import GradeVerdict, LabelVerdict


def published(write, *rows, name="o.jsonl"):
    """Reads rows of one file as published judgments: the source's name, and the judgments."""
    return read(write(*rows, name=name))


def read(*files):
    source = recognise_published(list(files))
    return source.name, list(source.runs.read(list(files), lambda reject: pytest.fail(reject.message)))


def orders(judgment):
    return [(part.order, part.label) for part in judgment.shown]


LLMBAR = {"input": "q", "output_1": "x", "output_2": "y", "label": 1, "results": []}


def test_llmbar_winners_name_the_rows_own_order_in_both_orders(write):
    game = {"completion": ["Output (a) is better.", "stop"]}
    rows = []
    for second in ("1", "2", None):
        games = {"swap = False": game | {"winner": "1"}, "swap = True": game | {"winner": second}}
        rows.append(LLMBAR | {"results": [games]})
    name, [agreed, split, failed] = published(write, *rows, name="Natural/evaluators/GPT-4/CoT/result.jsonl")
    assert (name, agreed.judge, agreed.judgment.sample_id) == ("llmbar", "GPT-4/CoT", "Natural-1")
    # the first answer is better in both orders: place 1 as given, place 2 swapped
    assert orders(agreed.judgment) == [((0, 1), "1"), ((1, 0), "2")]
    assert (agreed.judgment.winner, agreed.judgment.consistent) == (1, True)
    assert (split.judgment.winner, split.judgment.consistent) == ("tie", False)
    assert failed.judgment.failure.code == "off_grammar"


def judgebench(decisions, **inner):
    judgments = [None if decision is None else {"judgment": {"judge_model": "m", "response": "r", **inner},
                 "decision": decision} for decision in decisions]  # fmt: skip
    return {"pair_id": "p", "question": "q", "response_A": "x", "response_B": "y", "label": "A>B",
            "judge_name": "arena_hard", "judgments": judgments}  # fmt: skip


@pytest.mark.parametrize(
    ("decisions", "winner", "consistent"),
    [
        (["A>B", "B>A"], 1, True),  # x is better in both orders
        (["A>B", "A>B"], "tie", False),  # always the first place
        (["A=B", "A=B"], "tie", True),
        (["B>A"], 2, None),
    ],
)
def test_judgebench_decisions_name_places(write, decisions, winner, consistent):
    _, [result] = published(write, judgebench(decisions))
    assert (result.judge, result.judgment.winner, result.judgment.consistent) == ("arena_hard/m", winner, consistent)


def test_judgebench_scores_of_reward_models_are_put_back(write):
    row = judgebench(["B>A", "A>B"])
    for judgment, scores in zip(row["judgments"], ([1.0, 2.0], [4.0, 1.0]), strict=True):
        judgment["judgment"]["scores"] = scores
    _, [result] = published(write, row)
    # as given (1, 2); swapped (4, 1) is (1, 4) in sample order; mean (1, 3)
    assert (result.judgment.scores, result.judgment.winner) == ((1.0, 3.0), 2)


def test_judgebench_failures_stay_failures(write):
    without_decision = judgebench(["A>B", "B>A"])
    without_decision["judgments"][1]["decision"] = None
    for row, code in ((judgebench(["A>B", None]), "engine"), (without_decision, "off_grammar")):
        _, [read] = published(write, row)
        assert (read.judgment.verdict, read.judgment.failure.code) == (None, code)


def test_auto_j_joins_two_files_line_by_line(write):
    given = write({"output": 0}, {"output": 2}, {"output": -1}, name="pairwise.jsonl")
    swapped = write({"output": 1}, {"output": 0}, {"output": 0}, name="pairwise_exchange.jsonl")
    name, [agreed, split, failed] = read(swapped, given)
    assert (name, agreed.judgment.sample_id, agreed.judgment.winner) == ("auto-j", "auto-j-1", 1)
    assert (split.judgment.winner, split.judgment.consistent) == ("tie", False)
    assert failed.judgment.failure.code == "off_grammar"
    with pytest.raises(InputError, match="different numbers of lines"):
        read(given, write({"output": 1}, name="pairwise_exchange.jsonl"))


def test_pandalm_results(write):
    rows = [{"idx": 0, "gpt_result": "Tie", "gpt_reason": "alike"}, {"idx": 1, "gpt_result": "garbage"}]
    name, [tie, failed] = published(write, *rows, name="gpt.jsonl")
    assert (name, tie.judge, tie.judgment.winner) == ("pandalm", "gpt", "tie")
    assert failed.judgment.failure.code == "off_grammar"


def test_alpaca_eval_preferences_become_winners_and_probabilities(write):
    row = {"instruction": "q", "output_1": "x", "output_2": "y", "annotator": "a"}
    name, judged = published(write, *(row | {"preference": preference} for preference in (1.25, 2.0, 1.5, None)))
    results = [(each.judgment.winner, each.judgment.probability) for each in judged]
    assert (name, results) == ("alpaca-eval", [(1, 0.75), (2, None), ("tie", None), (None, None)])
    assert judged[3].judgment.failure.code == "off_grammar"


def fastchat(first, second, models=("a", "b")):
    return {"question_id": 81, "model_1": models[0], "model_2": models[1], "g1_winner": first, "g2_winner": second,
            "judge": ["gpt-4", "pair-v2"], "g1_judgment": "one", "g2_judgment": "two", "turn": 2}  # fmt: skip


def test_fastchat_winners_name_models(write):
    games = [("model_1", "model_1"), ("model_1", "tie"), ("model_1", "error")]
    name, [agreed, split, failed] = published(write, *(fastchat(*game) for game in games))
    assert (name, agreed.judge, agreed.judgment.sample_id) == ("fastchat-pair", "gpt-4", "81:a:b:2")
    assert (agreed.judgment.winner, orders(agreed.judgment)) == (1, [((0, 1), "1"), ((1, 0), "2")])
    assert split.judgment.winner == "tie"
    assert failed.judgment.failure.code == "off_grammar"


def test_fastchat_pairs_stand_in_the_order_of_the_models_names(write):
    _, [result] = published(write, fastchat("model_1", "model_1", models=("b", "a")))
    # model b is the sample's second answer; game 1 showed it first
    assert (result.judgment.sample_id, result.judgment.winner) == ("81:a:b:2", 2)
    assert orders(result.judgment) == [((0, 1), "2"), ((1, 0), "1")]
    assert [part.text for part in result.judgment.shown] == ["two", "one"]


def test_fastchat_grades(write):
    row = {"question_id": 1, "model": "m", "judge": ["gpt-4", "single-v1"], "judgment": "[[8]]", "score": 8, "turn": 1}
    name, [grade, failed] = published(write, row, row | {"score": -1})
    assert (name, grade.judgment.verdict) == ("fastchat-single", GradeVerdict(score=8.0))
    assert failed.judgment.failure.code == "off_grammar"


def review(number, answers, score):
    return {"review_id": f"r{number}", "question_id": 1, "answer1_id": answers[0], "answer2_id": answers[1],
            "text": "8 7\nwell", "score": score}  # fmt: skip


def test_reviews_of_both_orders_are_joined_by_their_answers_and_unparsed_ones_are_failures(write):
    given = write(review(1, ("x", "y"), [8, 7]), name="a-vs-b.jsonl")
    name, [result] = read(given, write(review(2, ("y", "x"), [9, 6]), name="b-vs-a.jsonl"))
    # as given (8, 7); swapped (9, 6) is (6, 9) in sample order; mean (7, 8)
    assert (name, result.judgment.sample_id, result.judgment.scores) == ("reviews", "r1", (7.0, 8.0))
    assert (result.judgment.winner, result.judgment.consistent) == (2, False)
    _, [unparsed] = published(write, review(1, ("x", "y"), [-1, -1]))
    assert unparsed.judgment.failure.code == "off_grammar"


def test_cherry_reviews_hold_both_orders(write):
    row = {"text": "q", "Answer1": "x", "Answer2": "y", "review": "9 8", "scores": "[9.0, 8.0]",
           "review_reverse": "7 8", "scores_reverse": "[7.0, 8.0]"}  # fmt: skip
    name, [result] = published(write, row)
    assert (name, result.judgment.scores, result.judgment.winner) == ("cherry", (8.5, 7.5), 1)


def test_mmlu_pro_predictions_are_verdicts_on_answers(write):
    row = {"question_id": 7, "question": "q", "options": ["x", "y"], "answer": "B"}
    output = {"text": "B", "l1": None, "l2": "B", "stored_pred": "A"}
    name, judged = published(write, row | {"outputs": {"m": output}})
    verdicts = {each.judge: each.judgment.verdict for each in judged}
    assert name == "mmlu-pro"
    assert verdicts == {"l1": None, "l2": LabelVerdict(label="correct"), "stored_pred": LabelVerdict(label="incorrect")}
    assert {each.judgment.sample_id for each in judged} == {"mmlu-pro-7/m"}
    _, [result] = published(
        write, row | {"pred": "B", "model_outputs": "so B"}, name="model_outputs_gpt-4o_5shots.jsonl"
    )
    assert (result.judgment.sample_id, result.judge) == ("mmlu-pro-7/gpt-4o", "pred")


@pytest.mark.parametrize(
    ("row", "finding"),
    [({"id": 1, "verdict": 2}, r"unknown fields \(id, verdict\)"), (LLMBAR, "SET/evaluators/JUDGE/PROMPT")],
)
def test_unknown_fields_and_missing_folders_are_refused(write, row, finding):
    with pytest.raises(InputError, match=finding):
        published(write, row)


def test_files_of_two_formats_are_refused(write):
    with pytest.raises(ConfigError, match="different formats"):
        read(write({"output": 1}, name="a.jsonl"), write(fastchat("tie", "tie"), name="b.jsonl"))


def test_an_unknown_format_names_the_others():
    with pytest.raises(ConfigError, match="did you mean llmbar"):
        get_published("llmbaar")


def test_only_what_was_tried_on_published_files_is_verified():
    assert [name for name, files in publications().judgments.items() if files.unverified] == []


@pytest.mark.parametrize("subset", ["Natural", "Adversarial_Neighbor"])
def test_llmbars_own_counts_come_out(shared_data, subset):
    folder = shared_data / "llmbar" / subset / "evaluators" / "GPT-4" / "CoT"
    _, judged = read(str(folder / "result.json.gz"))
    labels = [row["label"] for row in json.loads(gzip.decompress((folder / "result.json.gz").read_bytes()))]
    pairs = zip([each.judgment for each in judged], labels, strict=True)
    both = sum(judgment.consistent and judgment.winner == label for judgment, label in pairs)
    counts = json.loads((folder / "statistics.json").read_text())
    assert counts["correct_both"].startswith(f"{both} / {len(labels)}")
