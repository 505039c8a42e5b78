"""Judges that abstain: modes, evaluation, reports, cascades, panels, votes, the web page, and the server."""

from dataclasses import replace

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.modes import Pairwise
from judgelm.modes.votes import Voted
from judgelm.records import AbstainVerdict, Label, PairVerdict, Sample
from judgelm.runs.batch import BatchJob
from judgelm.runs.cascade import Cascade
from judgelm.runs.panel import Panel, aggregate
from judgelm.runs.run_files import read_judgments
from judgelm.runs.runner import judge
from judgelm.serving.web.browse_state import start_browsing, verdict_counts
from judgelm.studies.evaluation import evaluate
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.judged_items import run_of
from tests.support.served import CHAT, review, served
from tests.support.word_engine import WordEngine

# P(first better) by letters: 0.982, 0.622, 0.378, 0.018, and 0.5
LEADS = {"p0": 4.0, "p1": 0.5, "p2": -0.5, "p3": -4.0, "p4": 0.0}
LABELS = {key: Label(sample_id=key, winner=winner) for key, winner in zip(LEADS, (1, 1, 1, 1, "tie"), strict=True)}


def pair(key):
    return Sample(id=key, question=f"q {key}", answers=(f"0 {LEADS[key]}", "0 0"))


def judged(**options):
    mode = Pairwise(template="letters", tie_threshold=0.0, **options)
    return {each.sample_id: each for each in judge(map(pair, LEADS), mode, WordEngine())}


@pytest.fixture
def judgments():
    return judged(abstain_below=0.9)


@pytest.mark.parametrize(
    ("below", "verdicts"),
    [
        (None, (1, 1, 2, 2, "tie")),
        (0.5, (1, 1, 2, 2, None)),  # without a likelier answer, there is no verdict
        (0.62, (1, 1, 2, 2, None)),
        (0.63, (1, None, None, 2, None)),
        (0.99, (None, None, None, None, None)),
    ],
)
def test_a_verdict_needs_the_confidence_and_is_never_a_tie(below, verdicts):
    judgments = judged(abstain_below=below)
    assert tuple(judgments[key].winner for key in LEADS) == verdicts
    assert [each.abstained for each in judgments.values()] == [each.winner is None for each in judgments.values()]
    assert all(each.failure is None and each.probability is not None for each in judgments.values())


def test_verdicts_of_a_run_file_are_read_again(cli, tmp_path, judgments):
    from judgelm.serialization import judgment_from_row, judgment_row

    for judgment in judgments.values():
        assert judgment_from_row(judgment_row(judgment)) == judgment
    assert judgment_row(judgments["p1"])["verdict"] == {"kind": "abstain"}


@pytest.mark.parametrize("options", [{"tie_threshold": 0.1}, {"order_rule": "tie"}])
def test_options_that_change_what_was_calibrated_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} cannot be set"):
        Pairwise(template="letters", abstain_below=0.9, **{"tie_threshold": 0.0} | options)


def test_votes_are_refused():
    mode = Pairwise(template="letters", tie_threshold=0.0, abstain_below=0.9)
    with pytest.raises(ConfigError, match="abstains"):
        Voted(mode=mode, votes=3)


def test_abstentions_are_left_out_of_an_evaluation_and_counted(judgments):
    evaluation = evaluate(judgments, LABELS)
    assert (evaluation.counts.abstained, evaluation.counts.joined, evaluation.counts.failed) == (3, 2, 0)
    assert evaluation.headline.accuracy.value == 0.5
    assert evaluation.as_tie.accuracy.value == 0.5
    assert "abstained on 3 pairs" in evaluation.protocol
    everything = {key: replace(each, verdict=AbstainVerdict()) for key, each in judgments.items()}
    with pytest.raises(InputError, match="abstained on all 5"):
        evaluate(everything, LABELS)


@pytest.fixture
def run_file(tmp_path, judgments):
    from judgelm.serialization import judgment_row

    write_rows(
        tmp_path / "rows.jsonl",
        ({"id": key, "question": f"q {key}", "answers": list(pair(key).answers)} for key in LEADS),
    )
    return write_rows(tmp_path / "run.jsonl", map(judgment_row, judgments.values()))


def test_studies_leave_abstentions_out_and_say_so(cli, run_file, tmp_path):
    rows = ({"id": key, "winner": label.winner} for key, label in LABELS.items())
    labels = write_rows(tmp_path / "labels.jsonl", rows)
    code, _, err = cli(
        "judgelm",
        "study",
        "compare-judges",
        run_file,
        run_file,
        "--name",
        "a",
        "--name",
        "b",
        "-l",
        labels,
        "-o",
        tmp_path / "s",
    )
    assert "abstained on 3 of 5 pairs" in " ".join(err.split())
    assert code == 0, err


def test_a_cascade_passes_abstentions_on(tmp_path, judgments):
    job = BatchJob(inputs=(str(write_rows(tmp_path / "in.jsonl", [])),), out=str(tmp_path / "out.jsonl"))
    cascade = Cascade(job=job, models=("small", "large"), band=(0.49, 0.51))
    assert [cascade.is_unsure(each) for each in judgments.values()] == [False, True, True, False, True]
    cascade.refuse_without_probabilities()(judgments["p1"])  # P(first better) is enough


def test_a_judge_that_abstains_has_no_vote_in_a_panel(tmp_path, run_file, judgments):
    from judgelm.serialization import judgment_row

    other = {key: replace(each, verdict=PairVerdict(winner=2)) for key, each in judgments.items()}
    runs = [run_file, write_rows(tmp_path / "other.jsonl", map(judgment_row, other.values()))]
    for path in runs:
        path.with_name(f"{path.stem}.run.json").write_text(
            '{"fingerprint": {"mode": {}}, "sessions": [], "provenance": {}}'
        )
    _, counts = aggregate(Panel(runs=tuple(runs), out=tmp_path / "panel.jsonl", quorum=1))
    assert [counts.judges[name].abstained for name in ("run", "other")] == [3, 0]
    assert [counts.judges[name].verdicts for name in ("run", "other")] == [2, 5]
    panel = read_judgments(tmp_path / "panel.jsonl")
    assert [panel[key].winner for key in ("p1", "p2", "p4")] == [2, 2, 2]


def test_the_page_lists_abstentions_first(judgments):
    browsing = start_browsing(run_of(*judgments.values()))
    assert browsing.listed == ("p1", "p2", "p4", "p0", "p3")
    assert verdict_counts(browsing)["abstain"] == 3
    assert browsing.labelled(1).labels == {"p1": 1}


def test_the_server_counts_abstentions_in_a_header():
    with served(WordEngine(), template="letters") as server:
        server.handler.judge.format = replace(server.handler.judge.format, abstain_below=0.9)
        sure = server.http.post(CHAT, json=review(first="0 4", second="0 0"))
        doubtful = server.http.post(CHAT, json=review(first="0 0.5", second="0 0"))
        assert (sure.status_code, doubtful.status_code) == (200, 200)
        assert "X-Judgelm-Abstained" not in sure.headers
        assert doubtful.headers["X-Judgelm-Abstained"] == "1"
        assert "only the likelier answer" in doubtful.headers["X-Judgelm-Note"]
        bodies = [{"question": "q", "answer_1": f"0 {strength}", "answer_2": "0 0"} for strength in (4, 0.5, -0.5)]
        answer = server.http.post("/v1/judge", json={"samples": bodies})
        assert [each["verdict"]["kind"] for each in answer.json()["judgments"]] == ["pair", "abstain", "abstain"]
        assert answer.headers["X-Judgelm-Abstained"] == "2"


def test_abstentions_are_verdicts_in_exports_and_reports(cli, run_file, tmp_path):
    code, out, _ = cli("judgelm", "report", run_file)
    assert (code, "1 first better, 0 ties, 1 second better, 3 abstained." in " ".join(out.split())) == (0, True)
    code, _, err = cli("judgelm", "export", run_file, "--samples", tmp_path / "rows.jsonl", "-o", tmp_path / "out.csv")
    assert code == 0, err
    assert (tmp_path / "out.csv").read_text().count(",abstain,") == 3
    assert rows_of(run_file)[1]["failure"] is None
