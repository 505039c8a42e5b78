"""Prometheus' grading prompts taken apart into question, answer, reference and rubric, with GPT-4's scores."""

import gzip
import json

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.judges.released import released_judge
from tests.support import benchmark_files

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
ROW = {"idx": 7, "response_source": "vicuna", "category": "generic", "instruction": PROMPT, "gpt4_score": [5, 4, 5]}


def test_a_prompt_becomes_its_parts(imported):
    without = PROMPT.replace("###Reference Answer (Score 5):\nHello you.\n\n", "")
    _, [row, other] = imported("prometheus", ROW, ROW | {"instruction": without})
    assert row["id"] == "pairs-1"
    assert (row["question"], row["answer"]) == ("Say hello.\nIn two words.", "Hello there.")
    assert (row["reference"], row["answer_models"]) == ("Hello you.", ["vicuna"])
    assert row["metadata"] == {"rubric": "[Is it kind?]\nScore 1: No.\nScore 5: Yes.", "gpt4_score": [5, 4, 5]}
    assert row["scores"] == [pytest.approx(14 / 3)]
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
def test_what_cannot_be_used_is_a_reject_that_says_why(imported, change, finding):
    done, rows = imported("prometheus", ROW, ROW | {"idx": 8} | change)
    assert len(rows) == 1
    assert finding in done.rejects[0].message


def prompt_of(flow):
    return "".join(span.text for span in next(flow)[0].prompt.spans)


def test_the_real_prompts_come_back_byte_for_byte_from_the_judge_of_their_makers(shared_data, tmp_path):
    source = shared_data / "prometheus" / "vicuna_eval.json.gz"
    done, _ = benchmark_files.imported("prometheus", tmp_path, source)
    assert (done.rows, len(done.rejects), len(done.categories)) == (320, 0, 9)
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    rows = json.loads(gzip.decompress(source.read_bytes()))
    originals = {f"vicuna_eval-{number}": row["instruction"] for number, row in enumerate(rows, 1)}
    mode = released_judge("prometheus-1").mode("single", {})  # whose words these are
    rebuilt = {key: prompt_of(mode(sample)) for key, sample in labelled.samples.items()}
    assert [key for key in rebuilt if originals[key].strip() not in rebuilt[key]] == []
