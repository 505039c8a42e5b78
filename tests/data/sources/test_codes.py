"""Codes of labels: which numbers are read, which make a file unreadable, and what the user may state."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.labelled_set import read_labels
from judgelm.data.samples import Reading, SampleStream
from judgelm.data.sources.codes import label_text, parse_label_code
from judgelm.errors import ConfigError, LabelCodeError

PAIR = {"question": "q", "answer_1": "a", "answer_2": "b"}


@pytest.fixture
def write(tmp_path):
    def written(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps({"id": f"r{n}"} | row) + "\n" for n, row in enumerate(rows)))
        return str(path)

    return written


def winners(path, **reading):
    return [label.winner for label in read_labels(path, reading=Reading(**reading)).labels.values()]


@pytest.mark.parametrize("field", ["winner", "label"])
@pytest.mark.parametrize(
    "values", [[0, 1], [0, 1, 2], [1, 0, 2], [2, 0], [1, 2, 3], [-1, 0, 1], ["0", "1"], [1.0, 0.0]]
)
def test_numbers_beside_1_and_2_are_refused_until_stated(write, field, values):
    path = write(*({field: value} for value in values))
    with pytest.raises(LabelCodeError, match=rf'field "{field}" holds the values .*--label-code'):
        read_labels(path, on_reject=lambda reject: None)


def test_the_error_counts_the_values_of_the_whole_file(write):
    path = write(*({"winner": value} for value in [1, 0, 1, 2, "tie", 0]))
    with pytest.raises(
        LabelCodeError, match=r'holds the values 1 \(2 times\), 0 \(2 times\), 2 \(1 times\), "tie" \(1'
    ):
        read_labels(path)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("0=first,1=tie,2=second", [1, "tie", 2]),
        ("0=tie,1=first,2=second", ["tie", 1, 2]),
        ("0=second, 1=First, 2=none", [2, 1]),
    ],
)
def test_a_stated_code_is_read(write, code, expected):
    path = write({"winner": 0}, {"winner": "1.0"}, {"winner": " 2 "})
    assert winners(path, label_code=parse_label_code(code)) == expected


def test_a_value_outside_the_stated_code_is_refused(write):
    with pytest.raises(LabelCodeError, match="--label-code says 0=first, 1=second; no row is read by guess"):
        winners(write({"winner": 0}, {"winner": 2}), label_code=parse_label_code("0=first,1=second"))


@pytest.mark.parametrize("text", ["0", "0=left", "=first", "0=first,0=second", "0=first,,1=second"])
def test_a_code_of_another_form_is_refused(text):
    with pytest.raises(ConfigError, match="--label-code"):
        parse_label_code(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, 1) for value in (1, 1.0, "1", " 1 ", "1.0", "A", "Model A", "model_a", "MODEL_1", "[[A]]", "A>>B")],
        *[(value, 2) for value in (2, 2.0, "2", "b", "Model B", "model_2", "[[B]]", "B>A")],
        *[
            (value, "tie")
            for value in ("tie", "TIE", "Tie", " tie ", "tie (bothbad)", "tie (inconsistent)", "both_bad")
        ],
    ],
)
def test_published_spellings(write, value, expected):
    assert winners(write({"winner": value})) == [expected]


@pytest.mark.parametrize("value", [None, "", "  ", float("nan")])
def test_a_missing_value_is_no_label(write, value):
    labelled = read_labels(write({"winner": value}, {"winner": 1}))
    assert (list(labelled.labels), labelled.unlabelled, labelled.rejected) == (["r1"], 1, 0)


@pytest.mark.parametrize("value", ["left", "C", True, "1 or 2"])
def test_a_word_without_meaning_is_a_reject_that_shows_it(write, value):
    messages = []
    labelled = read_labels(
        write({"winner": value}, {"winner": 1}), on_reject=lambda each: messages.append(each.message)
    )
    assert list(labelled.labels) == ["r1"]
    assert messages[0].endswith(f"got {json.dumps(value)}")


def test_votes_are_decoded_too(write):
    path = write(PAIR | {"winner": 0, "votes": [0, 0, 1]})
    [label] = read_labels(path, reading=Reading(label_code=parse_label_code("0=first,1=second"))).labels.values()
    assert (label.winner, label.votes) == (1, (1, 1, 2))


@pytest.mark.parametrize(
    ("fields", "values"),
    [(PAIR, [0, 1]), (PAIR, [0, 0.5, 1]), ({}, [0, 1]), ({}, [0, 1, 2]), ({}, [0.3, 1.7])],
    ids=["pairs", "pairs with ties", "labels", "labels with ties", "two codes at once"],
)
def test_preferences_that_two_codes_explain_are_refused(write, fields, values):
    with pytest.raises(LabelCodeError, match='field "preference" holds the values'):
        read_labels(write(*(fields | {"preference": value} for value in values)))


def test_preferences_of_one_code_are_read(write):
    assert winners(write(PAIR | {"preference": 0.9}, PAIR | {"preference": 0})) == [1, 2]
    assert winners(write({"preference": 1}, {"preference": 2}, {"preference": 1.5})) == [1, 2, "tie"]
    assert winners(write({"preference": 0.2})) == [2]


def test_a_stated_code_holds_for_preferences(write):
    code = parse_label_code("0=first,1=second")
    assert winners(write(PAIR | {"preference": 0}, PAIR | {"preference": 1}), label_code=code) == [1, 2]


def test_alpaca_eval_without_a_second_output_that_wins_is_refused(write):
    outputs = {"instruction": "q", "output_1": "a", "output_2": "b"}
    with pytest.raises(LabelCodeError):
        read_labels(write(outputs | {"preference": 0}, outputs | {"preference": 1}))
    assert winners(write(outputs | {"preference": 0}, outputs | {"preference": 2})) == ["tie", 2]


def test_layouts_state_their_codes(write):
    pandalm = {"instruction": "q", "response1": "a", "response2": "b"}
    assert winners(write(pandalm | {"annotator1": 0, "annotator2": 0})) == ["tie"]
    safe = {"prompt": "q", "response_0": "a", "response_1": "b"}
    assert winners(write(safe | {"better_response_id": 0}, safe | {"better_response_id": 1})) == [1, 2]
    with pytest.raises(LabelCodeError, match="this layout's code is 0=first, 1=second"):
        winners(write(safe | {"better_response_id": 2}))
    llmbar = {"input": "q", "output_1": "a", "output_2": "b"}
    with pytest.raises(LabelCodeError, match="this layout's code is 1=first, 2=second"):
        winners(write(llmbar | {"label": 1}, llmbar | {"label": 0}))


def test_names_that_differ_in_case_alone_stay_apart_where_both_are_known(write):
    row = {
        "pair_id": "p",
        "source": "mmlu-pro-x",
        "question": "q",
        "response_A": "a",
        "response_B": "b",
        "label": "B>A",
    }
    labelled = read_labels(write(row))
    assert (labelled.samples["p"].answers, labelled.labels["p"].winner) == (("a", "b"), 2)


def test_columns_may_be_exchanged(write):
    [sample] = SampleStream([write(PAIR)], reading=Reading(columns={"answer_1": "answer_2", "answer_2": "answer_1"}))
    assert sample.answers == ("b", "a")


@given(st.lists(st.sampled_from([0, 1, 2, "1", "2", "tie", "A", 3, -1, None]), min_size=1, max_size=8), st.randoms())
def test_the_order_of_the_rows_never_decides_what_a_value_means(tmp_path_factory, values, random):
    def read(rows):
        path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
        path.write_text("".join(json.dumps({"id": name, "winner": value}) + "\n" for name, value in rows))
        try:
            return {name: label.winner for name, label in read_labels(str(path)).labels.items()}
        except LabelCodeError:
            return "refused"
        except Exception as error:
            return type(error).__name__

    rows = [(f"r{n}", value) for n, value in enumerate(values)]
    shuffled = random.sample(rows, len(rows))
    assert read(rows) == read(shuffled)


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), ("1.0", "1"), (" Model  A ", "model a"), (True, "true")])
def test_values_as_codes_write_them(value, text):
    assert label_text(value) == text


def test_tables_hold_votes_and_preferences_as_text(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("id,winner,votes\n1,1,\"[1, 1, 2]\"\n2,tie,\"['tie', 'tie']\"\n")
    assert [label.votes for label in read_labels(str(table)).labels.values()] == [(1, 1, 2), ("tie", "tie")]
    table.write_text("instruction,output_1,output_2,preference\nq,a,b,1.0\nr,a,b,1.8\n")
    assert winners(str(table)) == [1, 2]
    table.write_text("id,annotator1,annotator2\n1,0,0\n2,1,1.0\n")
    assert winners(str(table)) == ["tie", 1]


def test_messages_that_python_printed_are_messages(write):
    sides = {name: str([{"role": "user", "content": "q"}, {"role": "assistant", "content": name}]) for name in "ab"}
    [sample] = SampleStream([write({"conversation_a": sides["a"], "conversation_b": sides["b"]})])
    assert (sample.question, sample.answers) == ("q", ("a", "b"))
