"""Labels of rows: documented fields, reviews, votes of several rows with one id, and codes for winners."""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.label_codes import parse_label_code
from judgelm.data.labelled_set import read_labelled, read_labelled_set, read_labels
from judgelm.data.samples import Reading, SampleStream
from judgelm.errors import ConfigError, InputError, LabelCodeError


def vote(winner, key="q1", **fields):
    return {"id": key, "winner": winner} | fields


def annotation(first, second, preference, **fields):
    return {"instruction": "Name a prime.", "output_1": first, "output_2": second, "preference": preference} | fields


def test_the_majority_is_the_label_in_every_order_of_the_rows(labelled):
    for rows in permutations([vote(1), vote(2), vote(2), vote("tie", "q2")]):
        result = labelled(*rows)[0]
        assert {key: label.winner for key, label in result.labels.items()} == {"q1": 2, "q2": "tie"}
        assert (sorted(result.labels["q1"].votes), result.voted, result.split, result.rejected) == ([1, 2, 2], 1, {}, 0)


def test_votes_without_a_majority_are_neither_a_label_nor_a_tie(labelled):
    result = labelled(vote(1), vote(2), vote(1, "q2"), vote(1, "q2"), vote(2, "q2"), vote("tie", "q2"))[0]
    assert result.labels == {}
    split = {key: sorted(votes, key=str) for key, votes in result.split.items()}
    assert split == {"q1": [1, 2], "q2": [1, 1, 2, "tie"]}
    [note] = result.notes()
    assert note.startswith("2 ids have labels in several rows;")
    assert "2 with no majority" in note


def test_rows_without_a_label_are_not_votes(labelled):
    result = labelled(vote(None), vote(1), vote(None))[0]
    assert (result.labels["q1"].winner, result.unlabelled, result.voted) == (1, 2, 0)


def test_scores_of_several_rows_are_means_that_never_contradict_the_majority(labelled):
    def scored(*scores):
        return labelled(*({"id": "q1", "score": pair} for pair in scores))[0].labels["q1"]

    assert scored([8, 6], [9, 3]).scores == (8.5, 4.5)
    # two of three for the second, yet the mean of the first is higher: (9 + 4 + 4) / 3 against (1 + 5 + 5) / 3
    label = scored([9, 1], [4, 5], [4, 5])
    assert (label.winner, label.scores) == (2, None)
    result = labelled(*({"id": "q1", "question": "q", "answer": "a", "score": score} for score in (4, 7)))[0]
    assert (result.labels["q1"].scores, result.labels["q1"].winner, result.split) == ((5.5,), None, {})


def test_one_pair_of_alpaca_eval_is_named_alike_in_both_orders_of_its_outputs(labelled):
    rows = [annotation("9", "7", 2.0), annotation("7", "9", 1.0), annotation("9", "7", 1.0), annotation("9", "8", 1.0)]
    for order in permutations(rows):
        result = labelled(*order)[0]
        [pair, other] = sorted(result.labels, key=lambda key: -len(result.labels[key].votes))
        right = result.samples[pair].answers.index("7") + 1
        assert (result.labels[pair].winner, len(result.labels[pair].votes)) == (right, 3)
        assert result.labels[other].votes == ()


def test_further_votes_on_a_pair_are_judged_once_and_counted(write):
    path = write(annotation("9", "7", 2.0), annotation("7", "9", 1.0), annotation("9", "7", 1.0, id="named"))
    stream = SampleStream([path], repeats="skip")
    assert [sample.answers for sample in stream] == [("9", "7"), ("9", "7")]
    assert (stream.repeated, stream.read, stream.rejected) == (1, 3, 0)
    with pytest.raises(InputError, match="jsonl:2: this pair appears more than once"):
        list(SampleStream([path]))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"question": "p"}, "the question"),
        ({"answer_1": "c"}, "answer 1"),
        ({"answers": [*"abc"], "answer_1": None, "answer_2": None, "winner": None, "scores": [1, 2, 3]}, "the number"),
    ],
)
def test_rows_of_one_id_with_other_texts_are_refused(write, change, part):
    row = {"id": "q1", "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1}
    with pytest.raises(InputError, match=f'pairs.jsonl:2: {part}.* differs from an earlier row with id "q1"'):
        read_labels(write(row, row | change))


def test_exchanged_rows_of_one_id_vote_for_the_same_answer(labelled):
    row = {"id": "q1", "question": "q", "answer_1": "good", "answer_2": "bad", "winner": 1}
    turned = row | {"answer_1": "bad", "answer_2": "good", "winner": 2}
    result = labelled(row, turned, turned)[0]
    assert (result.labels["q1"].winner, result.labels["q1"].votes) == (1, (1, 1, 1))
    assert result.samples["q1"].answers == ("good", "bad")


def test_a_file_of_samples_needs_no_label(write):
    path = write({"id": "q1", "question": "q", "answer_1": "a", "answer_2": "b"})
    assert read_labelled_set(path).labels == {}


FISH = {"id": "0", "question": "Name a fish.", "answer_1": "Tench", "answer_2": "Wren"}


def numbered(*rows):
    return [FISH | {"id": str(number)} | row for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("fields", "winner", "votes"),
    [
        ({"annotator1": 2, "annotator2": 0, "annotator3": 2}, 2, (2, "tie", 2)),
        ({"annotator1": "B", "annotator2": None}, 2, (2,)),
        ({"label": "right"}, 2, ()),
        ({"g1_winner": "model_2", "g2_winner": "model_2"}, 2, (2, 2)),
        ({"g1_winner": "model_2", "g2_winner": "model_1"}, "tie", (2, 1)),
        ({"winner": 2, "annotator1": 2, "annotator2": 1}, 2, (2, 1)),
    ],
)
def test_votes_and_labels(labelled, fields, winner, votes):
    [label] = labelled(FISH | fields)[0].labels.values()
    assert (label.winner, label.votes) == (winner, votes)


@pytest.mark.parametrize(
    ("fields", "scores", "reason"),
    [
        ({"text": "3 8\nWrens fly."}, (3.0, 8.0), "Wrens fly."),
        ({"scores": [3, 8], "text": "3 8\nWrens fly."}, (3.0, 8.0), "Wrens fly."),
        ({"winner": 2, "text": "3 8\nWrens fly."}, (3.0, 8.0), "Wrens fly."),
        ({"winner": 2, "text": "Wrens fly."}, None, "Wrens fly."),
        ({"winner": 2, "text": "An article on wrens.", "reason": "They fly."}, None, "They fly."),
    ],
)
def test_a_review_in_text_has_the_reason(labelled, fields, scores, reason):
    [label] = labelled(FISH | fields)[0].labels.values()
    assert (label.winner, label.scores, label.reason) == (2, scores, reason)


def test_a_review_with_reference(labelled):
    row = FISH | {"reference": "Tench", "scores": [2, 3], "text_w_reference": "9 1\nIt is a fish."}
    assert labelled(row)[0].labels["0"].winner == 2
    [label] = labelled(row, with_reference=True)[0].labels.values()
    assert (label.winner, label.reason) == (1, "It is a fish.")


def test_a_review_that_contradicts_the_winner_is_a_reject(labelled):
    result, [message] = labelled(*numbered({"winner": 1}, {"winner": 1, "text": "3 8\nWrens fly."}))
    assert [*result.labels] == ["0"]
    assert '"text"' in message


def test_a_failed_review_and_a_text_without_scores_are_not_labels(labelled):
    rows = numbered({"winner": 1}, {"scores": [-1, -1]}, {"text": "error"}, {"text": "Some article."})
    assert [*labelled(*rows)[0].labels] == ["0"]


def test_words_in_label_name_winners_in_all_rows_or_in_none(labelled):
    rows = numbered({"winner": 1, "label": "easy"}, {"winner": 2, "label": "hard"})
    assert [*labelled(*rows)[0].labels] == ["0", "1"]
    for rows in ([{"label": "A"}, {"label": "easy"}], [{"label": "easy"}], [{"label": 0}, {"label": 1}]):
        with pytest.raises(LabelCodeError, match="--label-code"):
            labelled(*numbered(*rows))


def test_pairs_to_build_of_keep_their_reasons(write):
    path = write(FISH | {"scores": [9, 2], "text": "9 2\nA tench is a fish."})
    [pair] = read_labelled(path, source="mine")
    assert pair.plain.reason == "A tench is a fish."


PAIR = {"question": "q", "answer_1": "a", "answer_2": "b"}


def named(write, *rows):
    return write(*({"id": f"r{number}"} | row for number, row in enumerate(rows)))


def winners(path, **reading):
    return [label.winner for label in read_labels(path, reading=Reading(**reading)).labels.values()]


REFUSED = [[0, 1], [0, 1, 2], [1, 0, 2], [2, 0], [1, 2, 3], [-1, 0, 1], ["0", "1"], [1.0, 0.0]]


@pytest.mark.parametrize("field", ["winner", "label"])
@pytest.mark.parametrize("values", REFUSED)
def test_other_numbers_than_1_and_2_require_a_code(write, field, values):
    path = named(write, *({field: value} for value in values))
    with pytest.raises(LabelCodeError, match=rf'field "{field}" has the values .*--label-code'):
        read_labels(path, on_reject=lambda reject: None)


def test_the_error_counts_the_values_of_the_whole_file(write):
    path = named(write, *({"winner": value} for value in [1, 0, 1, 2, "tie", 0]))
    with pytest.raises(LabelCodeError, match=r'the values 1 \(2 times\), 0 \(2 times\), 2 \(1 times\), "tie" \(1'):
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
    path = named(write, {"winner": 0}, {"winner": "1.0"}, {"winner": " 2 "})
    assert winners(path, label_code=parse_label_code(code)) == expected


def test_a_value_outside_the_stated_code_is_refused(write):
    with pytest.raises(LabelCodeError, match="--label-code is 0=first, 1=second"):
        winners(named(write, {"winner": 0}, {"winner": 2}), label_code=parse_label_code("0=first,1=second"))


@pytest.mark.parametrize("text", ["0", "0=left", "=first", "0=first,0=second", "0=first,,1=second"])
def test_a_code_of_another_form_is_refused(text):
    with pytest.raises(ConfigError, match="--label-code"):
        parse_label_code(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, 1) for value in (1, 1.0, "1", " 1 ", "1.0", "A", "Model A", "model_a", "MODEL_1", "[[A]]", "A>>B")],
        *[(value, 2) for value in (2, 2.0, "2", "b", "Model B", "model_2", "[[B]]", "B>A")],
        *[(value, "tie") for value in ("TIE", "Tie", " tie ", "tie (bothbad)", "tie (inconsistent)", "both_bad")],
    ],
)
def test_published_spellings(write, value, expected):
    assert winners(named(write, {"winner": value})) == [expected]


@pytest.mark.parametrize("value", [None, "", "  ", float("nan")])
def test_a_missing_value_is_not_a_label(write, value):
    result = read_labels(named(write, {"winner": value}, {"winner": 1}))
    assert (list(result.labels), result.unlabelled, result.rejected) == (["r1"], 1, 0)


@pytest.mark.parametrize("value", ["upper", "C", True, "1 or 2"])
def test_an_unknown_word_is_a_reject_that_contains_it(write, value):
    rejects = []
    assert list(read_labels(named(write, {"winner": value}, {"winner": 1}), on_reject=rejects.append).labels) == ["r1"]
    assert f"got {json.dumps(value)}; define its meaning, for example with --label-code" in rejects[0].reason


def test_a_stated_code_holds_for_votes_and_preferences(write):
    code = parse_label_code("0=first,1=second")
    path = named(write, PAIR | {"winner": 0, "votes": [0, 0, 1]})
    [label] = read_labels(path, reading=Reading(label_code=code)).labels.values()
    assert (label.winner, label.votes) == (1, (1, 1, 2))
    assert winners(named(write, PAIR | {"preference": 0}, PAIR | {"preference": 1}), label_code=code) == [1, 2]


@pytest.mark.parametrize(
    ("fields", "values"), [(PAIR, [0, 1]), ({}, [0, 0.5, 1]), ({}, [0, 1]), ({}, [0, 1, 2]), ({}, [0.3, 1.7])]
)
def test_preferences_that_two_codes_explain_are_refused(write, fields, values):
    with pytest.raises(LabelCodeError, match='field "preference" has the values'):
        read_labels(named(write, *(fields | {"preference": value} for value in values)))


def test_preferences_of_one_code_are_read(write):
    assert winners(named(write, PAIR | {"preference": 0.9}, PAIR | {"preference": 0})) == [1, 2]
    assert winners(named(write, *(PAIR | {"preference": value} for value in (0, 0.5, 1)))) == [2, "tie", 1]
    assert winners(named(write, {"preference": 1}, {"preference": 2}, {"preference": 1.5})) == [1, 2, "tie"]
    assert winners(named(write, {"preference": 0.2})) == [2]


def test_alpaca_eval_without_a_second_output_that_wins_is_refused(write):
    outputs = {"instruction": "q", "output_1": "a", "output_2": "b"}
    with pytest.raises(LabelCodeError):
        read_labels(named(write, outputs | {"preference": 0}, outputs | {"preference": 1}))
    assert winners(named(write, outputs | {"preference": 0}, outputs | {"preference": 2})) == ["tie", 2]


def test_layouts_state_their_codes(write):
    pandalm = {"instruction": "q", "response1": "a", "response2": "b"}
    assert winners(named(write, pandalm | {"annotator1": 0, "annotator2": 0})) == ["tie"]
    safe = {"prompt": "q", "response_0": "a", "response_1": "b"}
    assert winners(named(write, safe | {"better_response_id": 0}, safe | {"better_response_id": 1})) == [1, 2]
    with pytest.raises(LabelCodeError, match="this layout uses 0=first, 1=second"):
        winners(named(write, safe | {"better_response_id": 2}))
    llmbar = {"input": "q", "output_1": "a", "output_2": "b"}
    with pytest.raises(LabelCodeError, match="this layout uses 1=first, 2=second"):
        winners(named(write, llmbar | {"label": 1}, llmbar | {"label": 0}))


USUAL = (0, 1, 2, 3, -1, 0.5, 1.0, "0", " 1 ", "1.0", "A", "Model B", "TIE", "tie (bothbad)", "", None, True)
VALUES = st.one_of(
    st.sampled_from(USUAL),
    st.sampled_from((1e999, float("nan"), 10**400, [1], [0, 2], {"winner": 1}, "inf", "1e999", "²", "一", "1_0")),
    st.text(max_size=5),
)
LABEL_FIELDS = st.sampled_from(("winner", "label", "preference", "votes", "annotator1", "annotator2", "score"))


def labelled_rows(*texts):
    """Rows with one of the texts: the first row decides the file's layout, so either all rows have texts or none."""
    ids, fields = st.sampled_from(("r1", "r2", "r3")), st.dictionaries(LABEL_FIELDS, VALUES, max_size=3)
    row = st.tuples(ids, fields, st.sampled_from(texts)).map(
        lambda parts: {"id": parts[0], "winner": None, **parts[1], **parts[2]}
    )
    return st.lists(row, min_size=1, max_size=6)


ROWS = labelled_rows({}) | labelled_rows(PAIR, PAIR | {"answer_1": "b", "answer_2": "a"}, PAIR | {"answer_2": "a"})
CODES = st.sampled_from((None, "0=first,1=second", "0=first,1=tie,2=second", "a=none"))


@given(ROWS, CODES)
def test_a_file_is_read_by_one_code_or_refused_in_any_order_of_its_rows(tmp_path_factory, rows, text):
    path = tmp_path_factory.getbasetemp() / "labels.jsonl"
    code = None if text is None else parse_label_code(text)

    def read(rows):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        try:
            result = read_labels(str(path), on_reject=lambda reject: None, reading=Reading(label_code=code))
        except (InputError, LabelCodeError):
            return "refused"
        named = {name: result.samples[name].answers if name in result.samples else () for name in result.labels}
        winners = {name: label.winner for name, label in result.labels.items()}
        return {name: named[name][winner - 1] if named[name] and winner in (1, 2) else winner
                for name, winner in winners.items()} | {"split": sorted(result.split)}  # fmt: skip

    assert read(rows) == read(rows[::-1])


def test_tables_hold_votes_and_preferences_as_text(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("id,winner,votes\n1,1,\"[1, 1, 2]\"\n2,tie,\"['tie', 'tie']\"\n")
    assert [label.votes for label in read_labels(str(table)).labels.values()] == [(1, 1, 2), ("tie", "tie")]
    table.write_text("instruction,output_1,output_2,preference\nq,a,b,1.0\nr,a,b,1.8\n")
    assert winners(str(table)) == [1, 2]
    table.write_text("id,annotator1,annotator2\n1,0,0\n2,1,1.0\n")
    assert winners(str(table)) == ["tie", 1]
