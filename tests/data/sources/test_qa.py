"""Question answering: published question files, EVOUNA's answers, and the types of answers."""

import gzip
import json

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.answer_types import answer_type
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import MODELS, read_qa
from judgelm.errors import ConfigError, InputError
from judgelm.parsing.short_answers import golds_of
from tests.support.benchmark_files import published

HOTPOT = {
    "_id": "h1", "question": "Which city hosts the festival?", "answer": "Lyon", "type": "bridge",
    "supporting_facts": [["Festival", 0]],
    "context": [["Festival", ["It is held yearly.", " Lyon hosts it."]], ["Lyon", ["A city."]]],
}  # fmt: skip


def gold(number="", spans=(), **date):
    return {"number": number, "date": {"day": "", "month": "", "year": ""} | date, "spans": list(spans)}


VALIDATED = [{"number": "", "spans": ["20 points"]}, {"number": "20", "spans": []}]
PAIRS = [
    {"query_id": "d1", "question": "How many points?", "answer": gold("20"), "validated_answers": VALIDATED},
    {"query_id": "d2", "question": "Which teams played?", "answer": gold(spans=["Bears", "Lions"])},
    {"query_id": "d3", "question": "When was the game?", "answer": gold(month="May", year="1990")},
]
DROP = {"nfl_1": {"passage": "The Bears won 20-13.", "qa_pairs": PAIRS}}
ASKED = [
    {"id": "q1", "question": "Who met?", "answers": [{"text": "Ann"}, {"text": "Bob"}]},
    {"id": "q2", "question": "Who left first?", "answers": [{"text": "Ann", "answer_start": 0}]},
]
QUOREF = {"data": [{"title": "A tale", "paragraphs": [{"context": "Ann and Bob met.", "qas": ASKED}]}]}


def written(tmp_path, value, indent=None):
    (tmp_path / "set.json").write_text(json.dumps(value, indent=indent), encoding="utf-8")
    return str(tmp_path / "set.json")


def test_paragraphs_become_one_context_and_evidences_mean_two_wiki(tmp_path):
    [sample] = read_qa(written(tmp_path, [HOTPOT]))
    assert (sample.id, sample.question, sample.reference, sample.answers) == ("h1", HOTPOT["question"], "Lyon", ())
    context = "Festival: It is held yearly. Lyon hosts it.\n\nLyon: A city."
    assert sample.metadata == {"data_set": "hotpotqa", "answer_type": "place", "context": context}
    columns = HOTPOT | {"context": {"title": ["Lyon"], "sentences": [["A city."]]}, "evidences": []}
    [sample] = read_qa(written(tmp_path, [columns]))
    assert (sample.metadata["data_set"], sample.metadata["context"]) == ("2wiki", "Lyon: A city.")


@pytest.mark.parametrize("indent", [None, 2])
def test_drops_passages_are_flattened(tmp_path, indent):
    points, teams, day = read_qa(written(tmp_path, DROP, indent))
    metadata = {"answer_type": "number", "context": "The Bears won 20-13.", "references": ["20", "20 points"]}
    assert points.metadata == metadata | {"data_set": "drop"}
    assert golds_of(points) == [("20",), ("20 points",)]
    assert (teams.reference, golds_of(teams)) == ("Bears, Lions", [("Bears", "Lions")])
    assert (day.id, day.reference, day.metadata["answer_type"]) == ("d3", "May 1990", "date")


def test_quorefs_answers_are_the_spans_of_one(tmp_path):
    both, first = read_qa(written(tmp_path, QUOREF))
    assert (both.metadata["data_set"], both.metadata["context"]) == ("quoref", "Ann and Bob met.")
    assert golds_of(both) == [("Ann", "Bob")]
    assert golds_of(first) == [("Ann",)]


def test_rows_of_lines_and_gzipped_files_are_read(write, tmp_path):
    lines = write(*(HOTPOT | {"_id": key} for key in ("h0", "h1", "h2")))
    assert [sample.id for sample in read_qa(lines)] == ["h0", "h1", "h2"]
    zipped = tmp_path / "drop.json.gz"
    zipped.write_bytes(gzip.compress(json.dumps(DROP).encode()))
    assert [sample.id for sample in read_qa(str(zipped))] == ["d1", "d2", "d3"]


def test_a_flat_row_may_hold_a_prediction_and_its_type(write):
    row = {"_id": 7, "question": "Why?", "gold_ans": 12.5, "answer_type": "Number"}
    [sample] = read_qa(write(row | {"pred_answer": "12.5 km", "model": "m"}), "drop")
    assert (sample.id, sample.reference, sample.answers, sample.answer_models) == ("7", "12.5", ("12.5 km",), ("m",))
    assert (sample.metadata["answer_type"], sample.metadata["data_set"]) == ("number", "drop")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"answer": ""}, "no gold answer"),
        ({"answer": None}, 'field "answer": expected text, or DROP'),
        ({"question": 3}, 'field "question": expected text'),
        ({"_id": None}, "no _id or id"),
        ({"context": [["Lyon"]]}, 'field "context": expected text, or'),
        ({"answer_type": "colour"}, 'field "answer_type": expected one of string'),
        ({"data_set": "squad"}, 'field "data_set": expected one of hotpotqa'),
        ({"answers": [3]}, 'field "answers": expected a list of objects'),
        ({"answers_spans": {}}, "DROP's original file"),
        ({"validated_answers": "x"}, 'field "validated_answers": expected a list'),
        ({"_id": "good"}, None),
    ],
)
def test_a_bad_row_is_named_with_its_place_and_the_others_are_read(write, change, finding):
    path = write(HOTPOT | {"_id": "good"}, HOTPOT | change)
    rejects = []
    assert [sample.id for sample in read_qa(path, on_reject=rejects.append)] == ["good"]
    assert (finding or '"good" appears more than once') in rejects[0].reason
    assert rejects[0].message.startswith(f"{path}:2")


def test_an_unknown_data_set_and_a_broken_nest_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="data set 'squad' not found"):
        list(read_qa(written(tmp_path, [HOTPOT]), "squad"))
    with pytest.raises(InputError, match="is in neither Quoref's nor DROP's format"):
        list(read_qa(written(tmp_path, {"data": [{"paragraphs": [{}]}]})))


def test_a_qa_set_is_not_mistaken_for_another_unless_its_rows_are_flat(imported):
    _, [row, *_] = imported("drop", DROP, file="drop.json")
    assert row["reference"] == "20"
    with pytest.raises(InputError, match="is in drop format, not quoref"):
        imported("quoref", DROP, file="drop.json")
    flat = {"context": "One paragraph.\n\nAnother.", "pred_answer": "Lyon", "model": "m1"}
    _, [row] = imported("drop", HOTPOT | flat)
    assert (row["metadata"]["data_set"], row["answer"], row["answer_models"]) == ("drop", "Lyon", ["m1"])
    with pytest.raises(InputError, match="is in hotpotqa format, not drop"):
        imported("drop", HOTPOT)


EVOUNA = {"question": "Who wrote it?", "golden_answer": "A. Author/The Author", "improper": False}
EVOUNA |= {f"answer_{model}": f"By {model}." for model in MODELS}
EVOUNA |= {f"judge_{model}": model != "fid" for model in MODELS}


def test_each_models_answer_is_a_row(imported, tmp_path):
    _, rows = imported("evouna", EVOUNA, file="NQ.json")
    assert [row["id"] for row in rows] == [f"NQ-1-{model}" for model in MODELS]
    assert (rows[0]["reference"], rows[0]["category"]) == ("A. Author", "NQ fid")
    assert rows[0]["metadata"]["references"] == ["A. Author", "The Author"]
    labels = read_labels(str(tmp_path / "out.jsonl")).labels
    assert (labels["NQ-1-fid"].scores, labels["NQ-1-gpt4"].scores) == ((0.0,), (1.0,))


def test_improper_questions_and_answers_without_a_verdict_are_rejects(imported):
    done, rows = imported("evouna", EVOUNA, EVOUNA | {"improper": True}, EVOUNA | {"judge_gpt4": None}, file="NQ.json")
    assert len(rows) == 9
    reasons = " ".join(reject.reason for reject in done.rejects)
    assert "marked as improper" in reasons
    assert "the answer was not judged" in reasons


def test_the_published_files(tmp_path):
    done = import_benchmark("evouna", published("evouna", "EVOUNA/TQ.json"), tmp_path / "out.jsonl")
    # 62 of 2,000 questions are improper
    assert done.rows == 5 * 1938


TABLE_5 = [  # the questions with a type in the paper
    ("What profession did Willi Forst and Elmer Clifton share?", "job"),
    ("What is Michael Nakasone job at the college prep school in Honolulu?", "job"),
    ("What was the profession of the one who wrote a song on a 2005 album he collaborated on with Marc Predka?", "job"),
    ("What date did the take over of Enniscorthy end?", "date"),
    ("Why did the director of film The Obsessed Of Catule die?", "string"),
    ("How many field goals between 25 and 40 yards were made?", "number"),
    ("Who was involved in observing the natural progression of untreated syphilis in Alabama?", "name"),
    ("Where was the place of burial of Amun-Her-Khepeshef's mother?", "place"),
]
OURS = [
    ("What city is the university in?", "place"),
    ("In which country was the director of the film born?", "place"),
    ("What nationality is the performer of song Daddy, Come Home?", "place"),
    ("What is the last name of the person who is friends with Cap'n Billau?", "name"),
    ("Which player scored the longest touchdown?", "name"),
    ("Michael J. Hunter replaced the lawyer who became the administrator of which agency??", "name"),
    ("What is the date of birth of the composer of the song?", "date"),
    ("What year was the stadium opened?", "year"),
    ("Rejuvelac was invented by a practitioner born in which year?", "year"),
    ("How much longer was the longest field goal?", "number"),
    ("What percentage of the households had no car?", "number"),
    ("What was the population of the county in 2010?", "number"),
    ("What occupation do both men have?", "job"),
    ("What does the narrator find beneath the floor?", "string"),
]


@pytest.mark.parametrize(("question", "expected"), [*TABLE_5, *OURS])
def test_types_of_answers_by_question(question, expected):
    assert answer_type(question, ("x",)) == expected


def test_yes_and_no_answers_by_the_gold_answer():
    assert answer_type("Which of the two films is longer?", ("Yes.",)) == "bool"
    assert answer_type("Are both from the same country?", ("no",)) == "bool"
    assert answer_type("Are both from the same country?") == "bool"
    # a comparison that begins with a verb but is answered with a name is not a yes/no question
    assert answer_type("Are the Beatles or the Kinks older?", ("the Kinks",)) == "string"
