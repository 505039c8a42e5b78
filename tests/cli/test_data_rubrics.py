"""`judgelm data rubrics` from the outside: a writer and judge whose replies are known."""

import json

import pytest
import yaml

from judgelm.engines.catalog import ENGINES
from judgelm.engines.scripted import ScriptedEngine
from tests.support.jsonl_files import rows_of, write_rows

WRITTEN = (
    "1. The answer says kale.\n2. It says leek somewhere.\n3. It says nothing at all.\n4. The other answer is worse.\n"
)


class Writer(ScriptedEngine):
    """Writes four criteria, and says yes where an answer holds the vegetable that a criterion names, or nothing."""

    asked = 0

    def __init__(self, options):
        super().__init__(self._reply_to)

    @staticmethod
    def _reply_to(prompt):
        Writer.asked += 1
        text = "".join(span.text for span in prompt.spans)
        if "numbered list" in text:
            return WRITTEN
        answer = next(span.text for span in prompt.spans if span.kind == "answer")
        criterion = text.partition("Criterion: ")[2]
        wanted = next((word for word in ("kale", "leek") if word in criterion), "")
        return "Yes" if wanted in answer else "No"


@pytest.fixture(autouse=True)
def known_writer(monkeypatch, tmp_path):
    monkeypatch.setitem(ENGINES, "scripted", Writer)
    monkeypatch.setattr(Writer, "asked", 0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pairs(tmp_path):
    """16 pairs whose better answer says kale, the other leek."""
    rows = [
        {"id": f"p{n}", "question": f"q{n}", "winner": 1 + n % 2, "answer_1": "leek", "answer_2": "leek"}
        | {f"answer_{1 + n % 2}": "kale"}
        for n in range(16)
    ]
    return write_rows(tmp_path / "pairs.jsonl", rows)


def test_criteria_of_pairs_are_merged_sifted_and_measured(cli, pairs, tmp_path):
    options = ("-o", "rubric", "--engine", "scripted", "--model", "m", "--prompts", "3", "--json", "-")
    _, stdout, _ = cli("judgelm", "data", "rubrics", pairs, *options)
    result = json.loads(stdout)
    assert yaml.safe_load((tmp_path / "rubric" / "criteria.yaml").read_text()) == ["The answer says kale."]
    # 3 prompts with 4 criteria, of which one compares answers; 3 of the 9 usable ones are different
    assert result["counts"] | {"kept": 1} == {
        "prompts": 3, "prompts failed": 0, "criteria written": 12, "not usable": 3, "merged": 6, "kept": 1,
        "prefers the wrong answer": 1, "separates nothing": 1,
    }  # fmt: skip
    assert result["criteria"]["It says leek somewhere."]["lead"] == pytest.approx(-1)
    # the plain question names no vegetable, so all answers are a yes, and all pairs ties
    assert (result["checklist"]["value"], result["yes-no"]["value"], result["gain"]["value"]) == (1, 0, 1)
    assert result["checklist"]["n"] == 8
    asked = Writer.asked
    assert json.loads(cli("judgelm", "data", "rubrics", pairs, *options)[1]) == result
    assert Writer.asked == asked  # nothing is written or judged twice
    out = ("-o", "out.jsonl", "--mode", "checklist", "--criteria", "rubric/criteria.yaml")
    cli("judgelm-batch", pairs, *out, "--engine", "scripted", "--model", "m")
    assert [row["verdict"]["winner"] for row in rows_of(tmp_path / "out.jsonl")[:2]] == [1, 2]


def test_criteria_of_a_guide(cli, pairs, tmp_path):
    (tmp_path / "guide.txt").write_text("Good answers say kale.")
    options = ("-o", "rubric", "--engine", "scripted", "--model", "m", "--from", "guide", "--guide", "guide.txt")
    _, stdout, _ = cli("judgelm", "data", "rubrics", pairs, *options)
    assert "1 prompts, 4 criteria written, 1 not usable, 1 kept" in stdout
    assert "held-out pairs ordered as labelled: 100.0 %" in stdout


def test_criteria_of_questions_go_into_their_rows(cli, tmp_path):
    rows = [{"question": "q", "topic": "soup"}, {"question": "r", "topic": "salad"}]
    questions = write_rows(tmp_path / "q.jsonl", rows)
    cli(
        "judgelm",
        "data",
        "rubrics",
        questions,
        "-o",
        "rows",
        "--engine",
        "scripted",
        "--model",
        "m",
        "--from",
        "question",
    )
    first, second = rows_of(tmp_path / "rows" / "rows.jsonl")
    assert (first["topic"], len(first["criteria"]), second["topic"]) == ("soup", 3, "salad")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (("--from", "guide"), "--guide FILE belong together"),
        (("--guide", "guide.txt"), "--guide FILE belong together"),
        (("--from", "guide", "--guide", "gone.txt"), "gone.txt"),
        (("--held-out", "0.05", "--prompts", "1"), "no criterion is left"),
        (("--writer", "name=w"), "give it a name and a model"),
    ],
)
def test_what_cannot_work_is_said(cli, pairs, monkeypatch, options, finding):
    monkeypatch.setattr("tests.cli.test_data_rubrics.WRITTEN", "1. It says nothing at all.")
    base = ("-o", "rubric", "--engine", "scripted", "--model", "m")
    code, _, stderr = cli("judgelm", "data", "rubrics", pairs, *base, *options)
    assert (code, finding in stderr) == (1, True)


def test_a_writer_without_criteria_is_an_error(cli, pairs, monkeypatch):
    monkeypatch.setattr("tests.cli.test_data_rubrics.WRITTEN", "Sure!")
    base = ("-o", "rubric", "--engine", "scripted", "--model", "m")
    code, _, message = cli("judgelm", "data", "rubrics", pairs, *base)
    assert code == 1
    assert "no criterion that can be used (8 prompts, 8 criteria written, 8 not usable)" in message
