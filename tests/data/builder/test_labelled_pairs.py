"""What becomes of a labelled pair: findings about its judgments, and rows for one answer, several, and chat."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.builder.options import build_options
from judgelm.data.builder.other_tasks import chat_rows, multi_rows, single_row
from judgelm.data.builder.reader import clean
from judgelm.data.labelled_pair import LabelledPair
from judgelm.errors import ConfigError
from judgelm.prompts.catalog import get_template
from judgelm.records import Label, Sample, winner_of

CHAT = get_template("judgelm-chat")


def label_of(scores, reason=None):
    return Label(sample_id="", winner=winner_of(scores), scores=scores, reason=reason)


def pair_of(answers, plain=None, referenced=None, *, pair_id="7", question="q", reference="r", source="s", models=()):
    texts = {"question": question, "answers": answers, "reference": reference}
    sample = Sample(id=pair_id, answer_models=models, category="c", **texts)
    return LabelledPair(sample=sample, plain=plain, referenced=referenced, source=source)


def test_a_single_answer_has_its_score_from_the_judgment_with_the_reference():
    pair = pair_of(("one", "two"), label_of((1.0, 2.0)), label_of((8.0, 6.5), "why"), models=("m", "n"))
    common = {"id": "7:single", "question": "q", "reference": "r", "category": "c", "source": "s"}
    first, second = (single_row(pair, seed=seed) for seed in (3, 0))
    assert first == common | {"answer": "one", "score": 8, "answer_models": ["m"]}
    assert second == common | {"answer": "two", "score": 6.5, "answer_models": ["n"]}


@pytest.mark.parametrize(
    "pair",
    [
        pair_of(("one", "two"), label_of((8.0, 6.0))),
        pair_of(("one", "two"), None, label_of((8.0, 6.0)), reference=None),
        pair_of(("one", "two"), None, Label(sample_id="", winner=1)),
    ],
)
def test_without_a_reference_that_was_judged_with_there_is_no_single_row(pair):
    assert single_row(pair, seed=0) is None


def test_scores_of_several_are_means_on_the_scales_step():
    pairs = [
        pair_of(("a", "b"), label_of((8.0, 6.0)), pair_id="1"),
        pair_of(("c", "a"), label_of((3.0, 9.0)), pair_id="2"),
        pair_of(("b", "c"), label_of((4.0, 4.0)), label_of((10.0, 1.0)), pair_id="3"),
    ]
    [row] = multi_rows(pairs, seed=0)
    # a: (8 + 9) / 2 = 8.5 is as near to 8 as to 9; b: (6 + 4) / 2 = 5; c: (3 + 4) / 2 = 3.5; with references: not used
    assert dict(zip(row["answers"], row["scores"], strict=True)) == {"a": 9, "b": 5, "c": 4}
    assert (row["id"], row["question"], row["category"], row["source"]) == ("1:multi1", "q", "c", "s")
    assert "reference" not in row
    [halves] = multi_rows(pairs, seed=0, step=0.5)
    assert dict(zip(halves["answers"], halves["scores"], strict=True)) == {"a": 8.5, "b": 5, "c": 3.5}


def test_pairs_of_another_source_or_question_or_without_plain_scores_stay_apart():
    pairs = [
        pair_of(("a", "b"), label_of((8.0, 6.0)), pair_id="1"),
        pair_of(("b", "c"), label_of((8.0, 6.0)), pair_id="2", source="t"),
        pair_of(("b", "d"), label_of((8.0, 6.0)), pair_id="3", question="Q"),
        pair_of(("b", "e"), None, label_of((8.0, 6.0)), pair_id="4"),
        pair_of(("b", "f"), Label(sample_id="", winner=1), pair_id="5"),
    ]
    assert list(multi_rows(pairs, seed=0)) == []
    assert len(list(multi_rows([*pairs, pair_of(("b", "g"), label_of((1.0, 2.0)), pair_id="6")], seed=0))) == 1


@pytest.mark.parametrize(
    ("answers", "sizes"),
    [(2, []), (3, [3]), (4, [4]), (5, [4]), (6, [3, 3]), (7, [4, 3]), (8, [4, 4]), (9, [3, 3, 3]), (11, [4, 4, 3])],
)
def test_answers_are_dealt_to_rows_of_three_and_four(answers, sizes):
    pairs = [
        pair_of((f"a{n}", f"a{n + 1}"), label_of((5.0, 5.0)), pair_id=str(n), models=(f"m{n}", f"m{n + 1}"))
        for n in range(answers - 1)
    ]
    rows = list(multi_rows(pairs, seed=0))
    assert [len(row["answers"]) for row in rows] == sizes
    assert all(row["answer_models"] == [answer.replace("a", "m") for answer in row["answers"]] for row in rows)


PAIRS = st.lists(
    st.builds(
        lambda answers, scores, source: pair_of(answers, label_of(scores), source=source),
        st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("abcdefghij")),
        st.tuples(st.integers(2, 20).map(lambda n: n / 2), st.integers(2, 20).map(lambda n: n / 2)),
        st.sampled_from("st"),
    ),
    max_size=20,
).map(lambda pairs: [pair.with_id(str(number)) for number, pair in enumerate(pairs)])


@given(PAIRS, st.integers(0, 3), st.randoms(use_true_random=False))
def test_rows_of_several_do_not_depend_on_the_pairs_order_and_use_no_answer_twice(pairs, seed, random):
    rows = list(multi_rows(pairs, seed=seed))
    assert rows == list(multi_rows(random.sample(pairs, len(pairs)), seed=seed))
    assert len({row["id"] for row in rows}) == len(rows)
    for source in "st":
        used = [answer for row in rows if row["source"] == source for answer in row["answers"]]
        there = {answer for pair in pairs if pair.source == source for answer in pair.sample.answers}
        assert len(used) == len(set(used))
        # every answer is used, but of five one
        assert len(used) == (0 if len(there) < 3 else 4 if len(there) == 5 else len(there))


def test_derived_rows_read_back_as_samples_with_labels(labelled):
    labels = label_of((5.0, 6.5)), label_of((7.0, 7.0))
    pairs = [pair_of((f"a{n}", f"a{n + 1}"), *labels, pair_id=str(n)) for n in range(3)]
    [several] = multi_rows(pairs, seed=0, step=0.5)
    read, _ = labelled(single_row(pairs[0], seed=0), several)
    one, many = read.samples.values()
    assert (one.id, one.reference, one.category, read.labels[one.id].scores) == ("0:single", "r", "c", (7,))
    assert (many.answers, many.reference) == (tuple(several["answers"]), None)
    assert read.labels[many.id].scores == tuple(several["scores"])


def test_a_chat_row_holds_the_templates_messages_and_the_reply():
    row, referenced = chat_rows(pair_of(("one", "two"), label_of((8.0, 6.5), "why\nso"), label_of((1.0, 2.0))), CHAT)
    system, user = CHAT.layout(2).plain
    assert row == {
        "prompt": [
            {"role": "system", "content": system[1]},
            {"role": "user", "content": user[1].format(question="q", answer_1="one", answer_2="two")},
        ],
        "completion": [{"role": "assistant", "content": "8 6.5\nwhy\nso"}],
    }
    assert "[Reference Answer]\nr\n" in referenced["prompt"][1]["content"]
    assert referenced["completion"] == [{"role": "assistant", "content": "1 2"}]


def test_a_chat_row_needs_scores_and_a_template_of_messages():
    assert list(chat_rows(pair_of(("one", "two"), Label(sample_id="", winner=1)), CHAT)) == []
    with pytest.raises(ConfigError, match="template judgelm-v1 is a plain-text template"):
        next(chat_rows(pair_of(("one", "two"), label_of((1.0, 2.0))), get_template("judgelm-v1")))


FROM_WINNER = "scores made from the winner"
GOOD = Label(sample_id="", winner=1, scores=(8.0, 6.0), reason="Assistant 1 is right.")


def judged_pair(plain, referenced=None, *, answers=("a", "b")):
    return pair_of(answers, plain, referenced)


def cleaned(pair, winner_scores=None, **options):
    repaired = []
    values = {"inputs": ["x"], "out": "out", **options}
    return clean(pair, build_options(values, "test"), winner_scores, repaired), repaired


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (judged_pair(None), "no judgment"),
        (judged_pair(Label(sample_id="", winner=1)), "winner without scores"),
        (judged_pair(Label(sample_id="", winner=2, scores=(0.0, 9.0))), "scores outside the scale"),
        (judged_pair(replace(GOOD, reason="8 7\nFine.")), "score line and scores differ"),
        (judged_pair(GOOD, answers=("a", "a")), "equal answers judged unequal"),
    ],
)
def test_what_is_dropped_and_why(pair, why):
    assert cleaned(pair) == (why, [])


OFF_SCALE = Label(sample_id="", winner=2, scores=(0.0, 9.0))
LOW = Label(sample_id="", winner=2, scores=(0.0, 1.0))
WON, LOST, TIED = (Label(sample_id="", winner=winner) for winner in (1, 2, "tie"))
TIE = Label(sample_id="", winner="tie", scores=(7.0, 7.0))
CLIPPED = replace(TIE, scores=(1.0, 1.0))
LEFT_OUT = "the judgment with reference left out: scores outside the scale"


@pytest.mark.parametrize(
    ("pair", "options", "plain", "referenced", "repaired"),
    [
        (judged_pair(GOOD, GOOD), {}, GOOD, GOOD, []),
        (judged_pair(GOOD, OFF_SCALE), {}, GOOD, None, [LEFT_OUT]),
        (judged_pair(LOW), {"out_of_scale": "clip"}, CLIPPED, None, ["scores clipped to the scale"]),
        (judged_pair(WON), {"winner_scores": (8, 4, 6)}, replace(WON, scores=(8.0, 4.0)), None, [FROM_WINNER]),
        (judged_pair(LOST), {"winner_scores": (8, 4, 6)}, replace(LOST, scores=(4.0, 8.0)), None, [FROM_WINNER]),
        (judged_pair(TIED), {"winner_scores": (8, 4, 6)}, replace(TIED, scores=(6.0, 6.0)), None, [FROM_WINNER]),
        (judged_pair(TIE, answers=("a", "a")), {}, TIE, None, []),
    ],
)
def test_what_stays_and_what_is_repaired(pair, options, plain, referenced, repaired):
    done, found = cleaned(pair, **options)
    assert (done.plain, done.referenced, found) == (plain, referenced, repaired)
