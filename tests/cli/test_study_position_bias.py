"""`judgelm study position-bias` on GPT-4's real reviews in both orders."""

import json

import pytest

from tests.support.jsonl_files import rows_of, write_rows


@pytest.fixture
def study(cli, tmp_path):
    """Run the study; return the rows of its table by group, or the message."""

    def run(*arguments):
        options = ("-o", tmp_path / "study", "--bootstrap", "100", "--json", "-")
        code, out, err = cli("judgelm", "study", "position-bias", *arguments, *options)
        return err if code else {row["group"]: row for row in json.loads(out)["tables"][0]["rows"]}

    return run


def test_qloras_ratings_agree_with_an_independent_count(shared_data, study):
    files = sorted((shared_data / "qlora_ratings" / "relative-gpt-3.5").glob("*.jsonl"))
    # by the two answers' ids, whichever file they are in: no two of these seven models wrote the same text
    pairs = {}
    for review in (review for path in files for review in rows_of(path)):
        first, second = review["answer1_id"], review["answer2_id"]
        lead = review["score"][0] - review["score"][1]
        pairs.setdefault((review["question_id"], *sorted((first, second))), {})[first] = lead
    leads = [tuple(orders.values()) for orders in pairs.values() if len(orders) == 2]
    alike = sum((given > 0) - (given < 0) == (other < 0) - (other > 0) for given, other in leads)
    rows = study(*files)
    assert (rows["all"]["n"], len(leads)) == (480, 480)  # six models; flan's ids differ in its files
    assert rows["all"]["consistency"]["value"] == pytest.approx(alike / 480)
    assert rows["all"]["lead"]["value"] == pytest.approx(sum(map(sum, leads)) / 960)


def test_equal_texts_of_two_models_are_two_pairs(study, tmp_path):
    def write(name, first, second, *scores):
        row = {"question_id": 1, "answer1_id": first, "answer2_id": second, "score": scores}
        return write_rows(tmp_path / f"{name}-gpt4-reviewer.jsonl", [row])

    files = [
        write("a-7b-vs-gpt-3.5", "same", "g", 8, 6),
        write("b-7b-vs-gpt-3.5", "same", "g", 5, 6),
        write("gpt-3.5-vs-a-7b", "g", "same", 6, 8),
        write("gpt-3.5-vs-b-7b", "g", "same", 5, 6),
    ]
    rows = study(*files)
    # of a the same answer wins in both orders; of b the second place does: one pair in two is alike
    assert (rows["all"]["n"], rows["all"]["consistency"]["value"]) == (2, 0.5)
    assert [rows[path.stem]["consistency"]["value"] for path in files[:2]] == [1.0, 0.0]
    assert "given twice" in study(files[0], files[0])
