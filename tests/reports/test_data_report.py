"""The data set's report, on real builds of a few rows."""

import json
import re

import pytest

from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build
from judgelm.reports import data_set_tables as data_tables
from judgelm.reports.data_set import AMBIGUOUS, DROPPED, render_data_report, sums_note

ALERT = "<script>alert(1)</script>"


def row(number, scores=(8, 6), reason="Assistant 1 is clear, Assistant 2 is not.", **more):
    return {
        "question_id": f"q{number} {ALERT}",
        "question_body": f"{WORDS[number % 40]} number {number}? {ALERT}",
        "answer1_body": f"one {number} {ALERT}",
        "answer2_body": f"two {number * 7}",
        "answer1_model_id": f"a {ALERT}",
        "answer2_model_id": "b",
        "score": list(scores),
        "text": f"{scores[0]} {scores[1]}\n{reason} {ALERT}",
    } | more


WORDS = [f"{first}{second}" for first in ("ba", "co", "du", "fe", "gi") for second in "klmnprst"]


def referenced(number):
    return row(number) | {
        "reference": {"text": f"right {ALERT}"},
        "score_w_reference": [5, 9],
        "text_w_reference": "5 9\nThe former answer is worse than the latter.",
    }


def built(folder, rows, **options):
    source = folder / "rows.jsonl"
    source.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in rows))
    values = {
        "inputs": [{"path": str(source), "name": f"mine {ALERT}"}],
        "out": str(folder / "built"),
        "near_duplicates": 1.0,
        "validation": 0,
    }
    options = build_options(values | options, "test")
    return build(options), options


def page(folder, rows, **options):
    return render_data_report(*built(folder, rows, **options), title=f"Set {ALERT}")


def text_of(html):
    body = re.sub(r"<svg.*?</svg>", "", html[html.index("<body>") :], flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body)).replace("\u00a0", " ")


MIXED = [
    *(row(number) for number in range(20)),
    *(referenced(number) for number in range(20, 24)),
    *(row(number, (4, 4)) for number in range(24, 28)),
    row(28, (0, 9)),
    row(29, question_body=" "),
    row(30) | {key: row(0)[key] for key in ("question_body", "answer1_body", "answer2_body")},
    "not json\n",
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return page(tmp_path_factory.mktemp("mixed"), MIXED, swap="both", subsets=(5, 500), validation=4)


def test_no_text_of_others_is_markup_and_no_script_is_allowed(mixed):
    assert "alert(1)" in mixed
    assert "<script" not in mixed
    assert "script-src" not in mixed
    assert "default-src &#39;none&#39;" in mixed
    assert not re.search(r"https?://|\ssrc=|<link|@import|url\((?!#)", mixed)
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', mixed))
    assert mixed.count("<svg") == 1


def test_every_row_is_accounted_for(mixed):
    text = text_of(mixed)
    # 28 good pairs, 2 dropped, an empty question and a line that is no JSON
    assert "Of 32 rows read, 28 were kept (87.5 %, 95 % interval 71.9 to 95.0), 2 dropped and 2 rejected" in text
    assert re.search(r"mine &lt;script&gt;alert\(1\)&lt;/script&gt; 32 28 2 2 yes", text)
    for reason in ("exact duplicate", "the question is empty", "scores outside the scale", "not JSON: Expecting value"):
        assert reason in text
    assert "do not add up" not in text


def test_sets_and_subsets_are_named(mixed):
    text = text_of(mixed)
    # 24 training pairs; those with references stay once, since their reasons are ambiguous
    assert re.search(r"The training set has \d\d rows made of 24 pairs; 4 pairs on other questions are held out", text)
    assert "Too large for this data, and not written: 500 pairs." in text
    assert re.search(r"validation.jsonl 4 ", text)


def test_references_and_ambiguous_reasons(tmp_path):
    text = text_of(page(tmp_path, [referenced(number) for number in range(4)], swap="both"))
    # 8 6 becomes 5 9 in all four; "the former" forbids the swap in all four
    assert "100.0 % of 4 pairs judged both ways get another score (51.0 to 100.0)" in text
    assert "in 100.0 % of them (95 % interval 51.0 to 100.0) a reason does not say clearly" in text
    assert f"former_latter {AMBIGUOUS['former_latter']} 4 100.0 % 51.0 to 100.0 n = 4" in text
    assert "No pair was swapped." in text


def test_an_unbalanced_set_is_said_to_be_so(tmp_path):
    text = text_of(page(tmp_path, [row(number) for number in range(20)], swap="none"))
    assert "the first answer wins 100.0 % (95 % interval 83.9 to 100.0, n = 20)" in text
    assert "a judge could learn to prefer the first position" in text
    assert "No row was to be swapped." in text


def test_both_orders_are_balanced_and_two_rows_of_a_pair_count_once(tmp_path):
    text = text_of(page(tmp_path, [row(number) for number in range(20)], swap="both"))
    # 40 rows, but 20 pairs: Wilson's interval of 10 in 20
    assert "wins 50.0 % (95 % interval 29.9 to 70.1, n = 40), against 100.0 % of 20 before augmentation" in text
    assert "Its answers score 7.00 (6.56 to 7.44) points on average at position 1 and 7.00" in text


def test_ties_do_not_narrow_the_interval_of_those_that_are_none(tmp_path):
    rows = [row(number, (4, 4) if number < 10 else (8, 6)) for number in range(20)]
    # 20 of 40 rows are decided, of 10 of 20 pairs: Wilson's interval of 5 in 10
    assert "wins 50.0 % (95 % interval 23.7 to 76.3, n = 20)" in text_of(page(tmp_path, rows, swap="both"))


def test_examples_stand_side_by_side_with_exchanged_words_marked(tmp_path):
    html = page(tmp_path, [row(number) for number in range(30)], swap="both")
    assert html.count('<details class="pair"') == 20
    assert "<mark>8</mark> <mark>6</mark>\nAssistant <mark>1</mark> is clear, Assistant <mark>2</mark> is not." in html
    assert "<mark>6</mark> <mark>8</mark>\nAssistant <mark>2</mark> is clear, Assistant <mark>1</mark> is not." in html


def test_sums_that_do_not_add_up_are_shouted(tmp_path):
    done, options = built(tmp_path, MIXED)
    assert sums_note(done) is None
    done.counts.dropped[f"mine {ALERT}", "too long"] += 1
    done.files["train.jsonl"] -= 1
    html = render_data_report(done, options, title="t")
    assert "do not trust this set" in html
    assert "the rows of the train file" in html
    assert "<td>NO</td>" in html


def test_winners_alone_make_a_report_too(tmp_path):
    winners = [{"question": f"{WORDS[n]}?", "answer_1": f"x{n}", "answer_2": f"y{n}", "winner": "A"} for n in range(9)]
    text = text_of(page(tmp_path, winners, inputs=[{"path": str(tmp_path / "rows.jsonl"), "winner_scores": (8, 4, 6)}]))
    assert "scores made from the winner" in text
    assert "No pair was judged with a reference." in text
    assert "How often a model" not in text


def test_lengths_are_bounded_by_the_ends_of_their_steps():
    [row] = data_tables.length_rows({("answer", 40): 5, ("answer", 0): 4, ("answer", 400): 1})
    # 4 below 20, 9 below 60, 10 below 420
    assert (row.text_kind, row.n, row.half, row.most, row.all) == ("answer", 10, 60, 60, 420)


def test_every_reason_to_drop_is_explained():
    from typing import get_args

    from judgelm.data.builder.reader import DropReason
    from judgelm.data.swap_names import AmbiguityCode

    assert set(DROPPED) == set(get_args(DropReason))
    assert set(AMBIGUOUS) == set(get_args(AmbiguityCode))
