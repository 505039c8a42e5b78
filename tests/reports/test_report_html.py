"""Reports of runs as HTML, and their sentences."""

import base64
import csv
import hashlib
import io
import math
import re
from dataclasses import replace

import pytest

from judgelm.metrics.agreement import HumanAgreement
from judgelm.metrics.resampling import Estimate
from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.reports import pairs
from judgelm.reports.html import render_report
from judgelm.reports.wording import human_sentence
from judgelm.studies.evaluation import EvaluationOptions, evaluate

ALERT = "<script>alert(1)</script>"


def judged(key, given, swapped):
    mean = ((given[0] + swapped[1]) / 2, (given[1] + swapped[0]) / 2)
    winner = 1 if mean[0] > mean[1] else 2 if mean[0] < mean[1] else "tie"
    shown = (
        Shown(order=(0, 1), text=f"{given[0]} {given[1]}\n{ALERT}", scores=given),
        Shown(order=(1, 0), text=f"{swapped[0]} {swapped[1]}\n", scores=swapped),
    )
    return Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=winner), shown=shown, scores=mean)


def unreadable(key):
    failure = Unparsed("off_grammar", f"No scores {ALERT}", "expected two numbers")
    shown = tuple(Shown(order=order, text=failure.text, failure=failure) for order in ((0, 1), (1, 0)))
    return Judgment(sample_id=key, mode="pair", verdict=None, shown=shown, failure=failure)


class Run:
    """Judgments, labels and samples that belong together, and their report."""

    def __init__(self, judgments, winners, votes=()):
        self.judgments = {judgment.sample_id: judgment for judgment in judgments}
        self.labels = {
            key: Label(sample_id=key, winner=winner, votes=votes)
            for key, winner in zip(self.judgments, winners, strict=True)
        }
        self.samples = {
            key: Sample(id=key, question=f"Question {key} {ALERT}", answers=("", f"Answer {ALERT}"), reference=ALERT)
            for key in self.judgments
        }
        self.manifest = {"model": f"judge {ALERT}", "sessions": [{"samples_per_s": 1}, {"samples_per_s": 2.5}]}

    def html(self, **options):
        groups = {f"kind {ALERT}": dict.fromkeys(self.judgments, f"code {ALERT}")}
        return render_report(
            evaluate(self.judgments, self.labels, groups=groups, options=EvaluationOptions(**options)),
            judgments=self.judgments, samples=self.samples, labels=self.labels, manifest=self.manifest,
            title=f"Report & {ALERT}",
        )  # fmt: skip


@pytest.fixture
def run():
    """A right pair, a wrong one that flips, a tie that is right, a failure; two of three votes for the label."""
    judgments = [judged("a", (8, 3), (3, 8)), judged("b", (8, 3), (6, 5)), judged("c", (5, 5), (5, 5)), unreadable("d")]
    return Run(judgments, [1, 2, "tie", 1], votes=(1, 1, 2))


def body(html):
    return html[html.index("<body>") :]


def test_no_text_of_others_is_markup_and_only_the_own_script_may_run(run):
    html = run.html()
    assert ("alert(1)" in html, ALERT in html, html.count("<script")) == (True, False, 1)
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_nothing_is_loaded(run):
    html = run.html()
    assert not re.search(r"https?://|\ssrc=|<link|@import|url\((?!#)", html)
    assert len(re.findall(r"<svg.*?</svg>", html, re.DOTALL)) == 1
    # links and references stay within the page, but for the table that it holds as a file
    assert all(target.startswith(("#", "data:text/csv;")) for target in re.findall(r'href="([^"]*)"', html))


def test_verdict_in_words_and_counted_lists(run):
    text = body(run.html()).replace("\u00a0", " ")
    # a and c right, b wrong, d failed: 2 of 3; as ties 2 of 4; people say 1, 1, 2 of every pair: 1 of 3 pairs agree
    for part in (
        "66.7 % of 3 pairs", "50.0 % of the 2 pairs with a winner", "tie (1 of 1)", "1 of 4 judgments failed",
        "agreement would be 50.0 %", "only 3 pairs", "not significantly different", "annotators agree 33.3 %",
        "By kind &lt;script&gt;", "1 disagreement, 1 order flip, 1 failure.", 'data-kinds="disagreement|order flip"',
    ):  # fmt: skip
        assert part in text
    assert text.count('<details class="pair"') == 2


def test_the_list_is_there_as_csv_and_its_surest_disagreement_is_linked_at_the_top(run):
    html = run.html()
    coded = re.search(r'download="pairs-to-read.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"', html)[1]
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(coded).decode())))
    assert [(row["id"], row["kinds"]) for row in rows] == [("b", "disagreement; order flip"), ("d", "failure")]
    assert (rows[0]["judge"], rows[0]["label"]) == ("first better", "second better")
    assert re.search(r'Most confident disagreements:\s*<a href="#pair-1"><bdi>b</bdi></a>\.', html)
    assert '<tbody id="pair-1"' in html


def test_without_failures_a_figure_stands_once(run):
    assert "Failures as ties" in run.html()
    assert "Failures are counted as ties here" in run.html(failures="as_tie")
    html = Run([judged("a", (8, 3), (3, 8)), judged("b", (8, 3), (6, 5))], [1, 2]).html()
    assert "Failures as ties" not in html
    assert '<th scope="col" class="number">Value</th>' in html


def test_cap_is_stated_in_the_report():
    html = Run([unreadable(str(i)) for i in range(502)], [1] * 502).html()
    assert "2 of 502 failures are not listed" in html
    assert html.count('<details class="pair"') == 500


def test_a_run_of_failures_alone_has_no_agreement():
    html = Run([unreadable("a"), unreadable("b")], [1, "tie"]).html()
    assert "all 2 judgments failed" in html
    assert "<svg" not in html


def test_the_manifest_gives_speed_and_engine_and_long_text_is_cut(run):
    html = run.html()
    for part in ("2.5 samples/s", "Throughput (last of 2 sessions)", "not recorded"):
        assert part in html
    run.manifest = {"sessions": [{"engine": {"retries": 3}}], "provenance": {"x": {"engine": "vllm"}}}
    assert "<li>engine: <bdi>vllm</bdi></li>" in run.html()  # and not the engine's own counts
    run.manifest = {}
    run.samples["b"] = Sample(id="b", question="q" * (pairs.MAX_TEXT + 7), answers=("x", "y"))
    html = run.html()
    assert "No run manifest was provided." in html
    assert "[… 7 more characters are not shown]" in html


def explained(judgment):
    """The same pair with all that can be asked for besides scores, and hostile text in each of it."""
    log = [-math.inf, math.log(0.2), math.log(0.7), -math.inf]
    given = replace(
        judgment.shown[0], text="8 3", distribution=pair_distribution(score_lines((1, 2), 1), log, f"sampled {ALERT}"),
        reason=f"The first is right {ALERT}", reason_failure=Unparsed("truncated", "", "no end within 9 tokens"),
    )  # fmt: skip
    repaired, gone = Unparsed("off_grammar", ALERT, f"no numbers {ALERT}"), Unparsed("engine", f"gone {ALERT}")
    swapped = replace(judgment.shown[1], repaired=repaired, reason_failure=gone)
    return replace(judgment, shown=(given, swapped), probability=0.75)


def test_reasons_probabilities_and_repairs_are_shown_with_their_pair(run):
    assert "Brier" not in run.html()
    run.judgments["b"] = explained(run.judgments["b"])  # its label is the second: Brier score 0.75^2
    text = body(run.html()).replace("\u00a0", " ")
    assert ALERT not in text
    for part in (
        '<th scope="row">Judged after a constrained retry</th><td class="number">1</td>',
        '<th scope="col">P(first better)</th>', '<td data-order="0.75">0.750</td>',
        # (0.2 + 1.4) / 0.9 and (0.4 + 0.7) / 0.9; 0.7 of 0.9
        "expected scores 1.78 : 1.22 ·", "P(shown first is better) 0.778 ·", "· 10.0 % on other replies (sampled",
        "<h3>Reason</h3>", "the reason is incomplete, truncated: no end", "no reason, engine: gone",
        "after a constrained retry; first reply: unparseable",
        '<th scope="row">Brier score</th><td class="number">0.562',
        "Excluded: 0 pairs labelled as ties, 3 without a prob",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.01, 0.1, "more often"), (-0.2, -0.1, "less often"), (-0.1, 0.1, "not significant")]
)
def test_people_sentence_follows_the_interval(low, high, words):
    share = Estimate(value=0.8, low=0.7, high=0.9, n=10)
    difference = Estimate(value=math.nan, low=low, high=high, n=10)
    humans = HumanAgreement(
        human_human=share, judge_human=share, difference=difference, fleiss_kappa=None, annotators=(3, 3)
    )
    assert words in human_sentence(humans)
