import base64
import csv
import hashlib
import io
import math
import re
from dataclasses import replace

from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import Sample, Unparsed
from judgelm.reports import pairs

ALERT = "<script>alert(1)</script>"


def body(html):
    return html[html.index("<body>") :]


def test_no_text_of_others_is_markup(run):
    html = run.html()
    assert "alert(1)" in html
    assert ALERT not in html
    assert html.count("<script") == 1


def test_only_the_own_script_may_run(run):
    html = run.html()
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


def test_verdict_in_words(run):
    text = body(run.html()).replace("\u00a0", " ")
    # a and c right, b wrong, d failed: 2 of 3; as ties 2 of 4; people say 1, 1, 2 of every pair: 1 of 3 pairs agree
    for part in (
        "66.7 % of 3 pairs", "50.0 % of the 2 pairs with a winner", "tie (1 of 1)", "1 of 4 judgments failed",
        "an agreement of 50.0 %", "With only 3 pairs", "not significantly different", "annotators agree 33.3 %",
        "By kind &lt;script&gt;",
    ):  # fmt: skip
        assert part in text


def test_lists_are_counted(run):
    text = body(run.html())
    assert "1 disagreement, 1 order flip, 1 failure." in text
    assert text.count('<details class="pair"') == 2
    assert 'data-kinds="disagreement|order flip"' in text


def test_the_list_is_there_as_csv_and_its_surest_disagreement_is_linked_at_the_top(run):
    html = run.html()
    coded = re.search(r'download="pairs-to-read.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"', html)[1]
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(coded).decode())))
    assert [(row["id"], row["kinds"]) for row in rows] == [("b", "disagreement; order flip"), ("d", "failure")]
    assert (rows[0]["judge"], rows[0]["label"]) == ("first better", "second better")
    assert re.search(r'Most confident disagreements:\s*<a href="#pair-1"><bdi>b</bdi></a>\.', html)
    assert '<tbody id="pair-1"' in html


def test_without_failures_a_figure_stands_once(run, without_failures):
    assert "Failures as ties" in run.html()
    assert "Failures count as ties here" in run.html(failures="as_tie")
    html = without_failures.html()
    assert "Failures as ties" not in html
    assert '<th scope="col" class="number">Value</th>' in html


def test_cap_is_stated_in_the_report(many_failures):
    html = many_failures.html()
    assert "2 of 502 failures are not listed: the limit is 500 per kind." in html
    assert html.count('<details class="pair"') == 500


def test_all_failed_is_said_plainly(failed_run):
    html = failed_run.html()
    assert "Agreement cannot be measured: all 2 judgments failed." in html
    assert "<svg" not in html


def test_last_session_gives_the_speed(run):
    html = run.html()
    assert "2.5 samples/s" in html
    assert "Throughput (last of 2 sessions)" in html
    assert "not recorded" in html
    run.manifest = {}
    assert "No run manifest was provided." in run.html()


def test_long_text_is_cut_and_said(run):
    run.samples["b"] = Sample(id="b", question="q" * (pairs.MAX_TEXT + 7), answers=("x", "y"))
    assert "[… 7 more characters are not shown]" in run.html()


def explained(judgment):
    """The same pair with all that can be asked for besides scores, and hostile text in each of it."""
    log = [-math.inf, math.log(0.2), math.log(0.7), -math.inf]
    given = replace(
        judgment.shown[0], text="8 3", distribution=pair_distribution(score_lines((1, 2), 1), log, f"sampled {ALERT}"),
        reason=f"The first is right {ALERT}", reason_failure=Unparsed("truncated", "", "no end within 9 tokens"),
    )  # fmt: skip
    swapped = replace(
        judgment.shown[1],
        repaired=Unparsed("off_grammar", ALERT, f"no numbers {ALERT}"),
        reason_failure=Unparsed("engine", f"gone {ALERT}"),
    )
    return replace(judgment, shown=(given, swapped), probability=0.75)


def test_reasons_probabilities_and_repairs_are_shown_with_their_pair(run):
    run.judgments["b"] = explained(run.judgments["b"])
    text = body(run.html()).replace("\u00a0", " ")
    assert ALERT not in text
    assert '<th scope="row">Judged after a constrained retry</th><td class="number">1</td>' in text
    assert '<th scope="col">P(first better)</th>' in text
    assert '<td data-order="0.75">0.750</td>' in text
    # (0.2 + 1.4) / 0.9 and (0.4 + 0.7) / 0.9; 0.7 of 0.9
    assert "expected scores 1.78 : 1.22 · P(shown first is better) 0.778 · 10.0 % on other replies (sampled" in text
    assert "<h3>Reason</h3>" in text
    assert "the reason is incomplete, truncated: no end within 9 tokens" in text
    assert "no reason, engine: gone" in text
    assert "after a constrained retry; before, unparseable" in text


def test_probabilities_are_scored_where_there_are_some(run):
    assert "Brier" not in run.html()
    run.judgments["b"] = explained(run.judgments["b"])  # its label is the second: 0.75^2
    text = body(run.html())
    assert '<th scope="row">Brier score</th><td class="number">0.562' in text
    assert "Excluded: 0 pairs labelled as ties, 3 without a probability." in text


def test_an_engines_own_counts_do_not_hide_its_name(run):
    run.manifest = {"sessions": [{"engine": {"retries": 3}}], "provenance": {"x": {"engine": "vllm"}}}
    assert "<li>engine: <bdi>vllm</bdi></li>" in run.html()
