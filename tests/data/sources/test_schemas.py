"""Each published schema, on rows written by hand in it, and Prometheus' grading prompts."""

import gzip
import json

import pytest

from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.data.sources.registry import SOURCES
from judgelm.errors import InputError
from judgelm.judges.released import released_judge
from tests.support import benchmark_files
from tests.support.flows import text_of

HELPSTEER3 = {
    "domain": "code", "language": "python", "context": [{"role": "user", "content": "Sort it."}],
    "response1": "sorted(x)", "response2": "x", "overall_preference": -2,
}  # fmt: skip
PROMETHEUS = {"orig_criteria": "Is it right?", "orig_instruction": "2 + 2?", "orig_reference_answer": "4"}
PREFERENCE_COLLECTION = PROMETHEUS | {
    "orig_response_A": "five", "orig_response_B": "4", "orig_score_A": "1", "orig_score_B": "5", "orig_preference": "B",
    "orig_feedback": "B is right.", "instruction": "a whole prompt", "output": "Feedback: B is right. [RESULT] B",
}  # fmt: skip
FEEDBACK_COLLECTION = PROMETHEUS | {
    "orig_response": "about 4", "orig_score": "3", "orig_feedback": "Nearly.",
    **{f"orig_score{level}_description": f"level {level}" for level in range(1, 6)},
}  # fmt: skip
RANKED = [{"answer": text, "model": f"m{text}", "rank": rank} for text, rank in (("8", 3.0), ("7", 1.0), ("9", 2.0))]
NECTAR = {"prompt": "\n\nHuman: Name a prime. \n\nAssistant: ", "answers": RANKED, "turns": 1, "good_natured": True}
OFFSETBIAS = {"instruction": "Correct it.", "output_1": "right", "output_2": "a long one", "label": 1}
HH = {"chosen": "\n\nHuman: Name a prime.\n\nAssistant: 7", "rejected": "\n\nHuman: Name a prime.\n\nAssistant: 8"}
KAGGLE = {
    "id": "30192", "model_a": "m1", "model_b": "m2", "prompt": '["Hi"]', "response_a": '["a"]', "response_b": '["b"]',
    "winner_model_a": "0", "winner_model_b": "1", "winner_tie": "0",
}  # fmt: skip
PANDALM = {
    "inputs": {"instruction": "Find one.", "input": "data", "response1": "a", "response2": "b"},
    "outputs": {"evaluation_result": "Tie", "evaluation_reason": "Alike.", "reference_response": "c"},
}
JUDGELM = {
    "question_id": 0, "question_body": "\nA tattoo?", "answer1_body": "No.", "answer2_body": "A rose.",
    "score": [2.0, 8.0], "text": "2 8\nThe second helps.", "reference": {"text": "A bird."},
    "score_w_reference": [3.0, 7.0], "text_w_reference": "3 7\nNearer.",
}  # fmt: skip


def entries(write, name, *rows):
    """Reads rows as a schema: the rows that it makes, and the reasons of its rejects."""
    rejects = []
    made = [entry.row for entry in SOURCES[name].entries([write(*rows)], rejects.append)]
    return made, [reject.reason for reject in rejects]


def test_helpsteer3_prefers_the_first_response_below_zero(write):
    others = [HELPSTEER3 | {"overall_preference": value, "context": str(value)} for value in (1, 0, 4)]
    made, rejects = entries(write, "helpsteer3", HELPSTEER3, *others)
    assert [row["winner"] for row in made] == [1, 2, "tie"]
    assert (made[0]["question"], made[0]["answer_1"], made[0]["category"]) == ("Sort it.", "sorted(x)", "code")
    assert made[0]["metadata"]["overall_preference"] == -2
    assert rejects == ['field "overall_preference": expected a number from -3 to 3, got 4']


def test_prometheus_pairs_have_reference_reason_and_rubric(write):
    [row], _ = entries(write, "preference_collection", PREFERENCE_COLLECTION)
    assert (row["winner"], row["reference"], row["reason"]) == (2, "4", "B is right.")
    assert row["metadata"] == {"rubric": "[Is it right?]", "orig_score_A": "1", "orig_score_B": "5"}


@pytest.mark.parametrize("grade", ["6", "2.5", "good", None])
def test_prometheus_answers_have_a_grade_and_the_rubrics_levels(write, grade):
    [row], rejects = entries(
        write, "feedback_collection", FEEDBACK_COLLECTION, FEEDBACK_COLLECTION | {"orig_score": grade}
    )
    assert (row["answer"], row["scores"], row["reference"], len(rejects)) == ("about 4", [3], "4", 1)
    assert row["metadata"]["rubric"].splitlines()[:2] == ["[Is it right?]", "Score 1: level 1"]


SHARED_RANK = [{"answer": text, "model": "m", "rank": rank} for text, rank in (("7", 1), ("5", 1), ("8", 3))]


@pytest.mark.parametrize(
    "answers", [[], "7", [1, 2], [{"answer": "7"}, {"answer": "8"}], [{"rank": 1}, {"rank": 2}], SHARED_RANK]
)
def test_nectar_is_its_best_against_its_worst_answer(write, answers):
    [row], rejects = entries(write, "nectar", NECTAR, NECTAR | {"answers": answers})
    winner = row["winner"]
    assert (row["question"], {row["answer_1"], row["answer_2"]}) == ("Name a prime.", {"7", "8"})
    assert (row[f"answer_{winner}"], row["answer_models"][winner - 1], len(rejects)) == ("7", "m7", 1)


def test_judgelms_validation_set_is_joined_by_question(write):
    unreadable = {"text": "error", "score": [-1, -1]}
    answers = {"answer1_body": "a", "answer2_body": "b", "score": [{"bleu": 1.0}, {"bleu": 2.0}]}
    good = {"question_id": 2, "text": "8 7\nBetter.", "score": [8.0, 7.0]}
    rows_by_file = {
        "": [{"question_id": n, "question_body": f"q{n}"} | answers for n in (1, 2, 3)],
        "_gpt4": [good, *({"question_id": n} | unreadable for n in (1, 3))],
        "_gpt4_with_reference": [{"question_id": 1, "text": "3 4\nNearer.", "score": [3.0, 4.0]}],
        "_references": [{"question_id": 1, "reference": {"text": "r"}}],
    }
    files = [write(*rows, name=f"judgelm_val_5k{name}.jsonl") for name, rows in rows_by_file.items()]
    rejects = []
    made = [entry.row for entry in SOURCES["judgelm"].entries(files, rejects.append)]
    # question 1 has a judgment with reference alone, 2 one without, 3 none
    judgments = [(row["question_id"], row["score"], row["score_w_reference"]) for row in made]
    assert judgments == [("1", None, [3, 4]), ("2", [8, 7], None)]
    assert [reject.reason.partition(",")[0] for reject in rejects] == ["no parseable judgment"]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("helpsteer3", HELPSTEER3), ("preference_collection", PREFERENCE_COLLECTION), ("nectar", NECTAR),
        ("offsetbias", OFFSETBIAS), ("preference", HH), ("responses", KAGGLE), ("pandalm_train", PANDALM),
        ("judgelm", JUDGELM),
    ],
)  # fmt: skip
def test_the_builder_reads_what_a_schema_makes(write, name, row):
    made, _ = entries(write, name, row)
    [pair] = read_labelled(write(*made), source=name)
    assert str(pair.winner) == str(made[0].get("winner") or 2)


def test_a_file_of_another_schema_is_refused_with_its_fields(write):
    for name, lacks in (("helpsteer3", "context, response1.*"), ("arena", "conversation_a, conversation_b; ")):
        with pytest.raises(InputError, match=f"not a {name} row: missing {lacks}found the fields chosen, rejected"):
            entries(write, name, HH)


PROMPT = """###Task Description:
Grade.

###The instruction to evaluate:
Say hello.
In two words.

###Response to evaluate:
Hello there.

###Reference Answer (Score 5):
Hello you.

###Score Rubrics:
[Is it kind?]
Score 1: No.
Score 5: Yes.

###Feedback: """
GRADED = {"idx": 7, "response_source": "vicuna", "category": "generic", "instruction": PROMPT, "gpt4_score": [5, 4, 5]}


def test_a_prompt_becomes_its_parts(imported):
    without = PROMPT.replace("###Reference Answer (Score 5):\nHello you.\n\n", "")
    _, [row, other] = imported("prometheus", GRADED, GRADED | {"instruction": without})
    assert row == {
        "id": "pairs-1", "question": "Say hello.\nIn two words.", "answer": "Hello there.", "reference": "Hello you.",
        "metadata": {"rubric": "[Is it kind?]\nScore 1: No.\nScore 5: Yes.", "gpt4_score": [5, 4, 5]},
        "answer_models": ["vicuna"], "scores": [pytest.approx(14 / 3)], "category": "generic",
    }  # fmt: skip
    assert ("reference" in other, other["answer"]) == (False, "Hello there.")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"instruction": "Say hello."}, 'field "instruction": expected a single grading prompt'),
        ({"instruction": PROMPT + PROMPT}, 'field "instruction": expected a single grading prompt'),
        ({"gpt4_score": [5, 9]}, 'field "gpt4_score": expected a list of scores from 1 to 5'),
        ({"gpt4_score": []}, 'field "gpt4_score": expected a list of scores from 1 to 5'),
    ],
)
def test_unusable_prompts_are_rejects(imported, change, finding):
    done, rows = imported("prometheus", GRADED, GRADED | {"idx": 8} | change)
    assert len(rows) == 1
    assert finding in done.rejects[0].message


def test_the_real_prompts_come_back_byte_for_byte_from_the_judge_of_their_makers(shared_data, tmp_path):
    source = shared_data / "prometheus" / "vicuna_eval.json.gz"
    done, _ = benchmark_files.imported("prometheus", tmp_path, source)
    assert (done.rows, len(done.rejects), len(done.categories)) == (320, 0, 9)
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    rows = json.loads(gzip.decompress(source.read_bytes()))
    originals = {f"vicuna_eval-{number}": row["instruction"] for number, row in enumerate(rows, 1)}
    mode = released_judge("prometheus-1").mode("single", {})  # whose words these are
    rebuilt = {key: text_of(next(mode(sample))[0].prompt) for key, sample in labelled.samples.items()}
    assert [key for key in rebuilt if originals[key].strip() not in rebuilt[key]] == []
