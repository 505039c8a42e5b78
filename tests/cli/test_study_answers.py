"""`judgelm study qa`, `ssr` and `self-reference`."""

import json

import pytest

from judgelm.records import Judgment, LabelVerdict, PairVerdict, SelfAnswer, Shown
from tests.support.jsonl_files import write_rows
from tests.support.judged_items import write_run


@pytest.fixture
def study(cli, tmp_path):
    """Run a study; return its tables by name, or the exit code and the message."""

    def run(*arguments):
        code, out, err = cli(
            "judgelm", "study", *arguments, "-o", tmp_path / "out", "--bootstrap", "100", "--json", "-"
        )
        if code:
            assert not (tmp_path / "out").exists()
            return code, " ".join(err.split())
        assert (tmp_path / "out/report.html").is_file()
        return {table["name"]: table["rows"] for table in json.loads(out)["tables"]}

    return run


def own(answers):
    return tuple(SelfAnswer(text="", answer=answer) for answer in answers)


@pytest.fixture
def qa(study, tmp_path):
    answers = write_rows(
        tmp_path / "answers.jsonl",
        (
            {"id": f"q{i}", "question": "Who won?", "answer": text, "reference": "Ann", "answer_models": ["m"]}
            for i, text in enumerate(["ann", "Ann Lee", "Bob", "Ms Ann"])
        ),
    )
    labels = ["correct", "correct", "incorrect", "correct"]
    run = write_run(
        tmp_path / "qwen.jsonl",
        [
            Judgment(
                sample_id=f"q{i}", mode="qa", verdict=LabelVerdict(label=label), shown=(),
                decided_by="judge" if i else "exact_match",
            )
            for i, label in enumerate(labels)
        ],
    )  # fmt: skip
    return lambda *more: study("qa", answers, "-j", f"qwen={run}", *more)


def test_qa(qa, tmp_path):
    human = [{"id": f"q{i}", "label": label} for i, label in enumerate([1, "correct", False, "incorrect"])]
    tables = qa("--human", write_rows(tmp_path / "people.jsonl", human))
    assert tables["scores"][0]["judge_qwen"]["value"] == 3 / 4
    # people 1100, judge 1101: both 2, judge alone 1, neither 1: phi = 2 / sqrt(2*2*3*1)
    assert tables["human-correlation"][0]["qwen"]["value"] == pytest.approx(2 / 12**0.5)


def test_the_original_authors_rows_are_read_with_their_predictions(qa, tmp_path):
    rows = [{"_id": f"q{i}", "question": "Who?", "answer": "Ann", "pred_answer": t} for i, t in enumerate("abcd")]
    write_rows(tmp_path / "answers.jsonl", rows)
    assert qa()["scores"][0]["judge_qwen"]["value"] == 3 / 4


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        (["-j", "qwen"], "--judgments qwen: expected JUDGE=RUN"),
        (["--sibling", "m"], "--sibling m: expected KEY=VALUE"),
        (["--own", "m=a", "--own", "m=b"], "m is given twice"),
        (["--own", "m=other"], "no run by judge 'other'"),
        (["--human", "people.jsonl"], "people.jsonl:1: expected id and label"),
    ],
)
def test_invalid_arguments_are_refused(qa, tmp_path, monkeypatch, more, finding):
    monkeypatch.chdir(tmp_path)
    write_rows("people.jsonl", [{"id": "q0", "label": "maybe"}])
    code, err = qa(*more)
    assert (code, finding in err) == (1, True), err


@pytest.fixture
def ssr(study, tmp_path):
    """The judge picks the same response in both orders; its five self-answers are G, G, G, G, B."""

    def judged(key, winner):
        labels = ("1", "2") if winner == 1 else ("2", "1")
        orders = zip(((0, 1), (1, 0)), labels, strict=True)
        shown = tuple(Shown(order=order, text="", label=label) for order, label in orders)
        verdict = PairVerdict(winner=winner)
        return Judgment(sample_id=str(key), mode="ssr", verdict=verdict, shown=shown, self_answers=own("GGGGB"))

    rows = ({"id": str(key), "winner": 1, "answer": "G", "category": "math"} for key in range(4))
    truth = write_rows(tmp_path / "truth.jsonl", rows)
    winners = {"never": [1, 2, 2, 2], "always": [1, 1, 1, 2]}
    runs = []
    for name, named in winners.items():
        runs += [f"--{name}", write_run(tmp_path / f"{name}.jsonl", map(judged, range(4), named))]
    return lambda *more: study("ssr", *runs, "-t", truth, *more)


def test_ssr(ssr):
    assert ssr("--tau", 4)[0] == 1
    # agreement 4/5 passes tau = 0.8, so selective is always: 3 of 4 against 1 of 4
    assert [row["accuracy"]["value"] for row in ssr()["comparison"][:3]] == [0.25, 0.75, 0.75]


@pytest.fixture
def self_reference(study, tmp_path):
    def judged(name, labels):
        made = [
            Judgment(sample_id=str(key), mode="correctness", verdict=LabelVerdict(label=label), shown=(),
                     self_answers=own(answer))
            for key, (label, answer) in enumerate(zip(labels, "GGBB", strict=True))
        ]  # fmt: skip
        return write_run(tmp_path / name, made)

    right, wrong = "correct", "incorrect"
    cot, guided = (
        judged("cot.jsonl", [right, right, right, wrong]),
        judged("guided.jsonl", [right, wrong, wrong, right]),
    )
    rows = [{"id": str(key), "agent": "a", "dataset": "X", "truth": key in (0, 2), "answer": "G"} for key in range(4)]
    truth = write_rows(tmp_path / "truth.jsonl", rows)
    return lambda *options: study("self-reference", *(o.format(cot=cot, guided=guided) for o in options), "-t", truth)


def test_self_reference(self_reference):
    # own answers G, G are right. CoT on D_J+: TP 1, FP 1; guided: TP 1 alone
    table = self_reference("--cot", "big={cot}", "--guided", "big={guided}")["f1-by-own-answer"]
    assert [row["f1_right"]["value"] for row in table] == [pytest.approx(2 / 3), 1.0]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ([], "no runs; add --cot"),
        (["--cot", "a={cot}", "--cot", "a={guided}"], "'a' already has a run"),
        (["--cot", "{cot}"], "truth.jsonl:1"),
    ],
)
def test_missing_and_duplicate_runs_and_bad_lines_are_errors(self_reference, tmp_path, options, finding):
    if len(options) == 2:
        (tmp_path / "truth.jsonl").write_text('{"id": "1"}\n')
    code, err = self_reference(*options)
    assert (code, finding in err) == (1, True), err
