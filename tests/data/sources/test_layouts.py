import re
from collections import Counter
from dataclasses import replace

import pytest

from judgelm.data.labelled_set import groups_of, read_labels
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.alpaca_eval import join_outputs
from judgelm.data.sources.reviews import read_results
from judgelm.errors import ConfigError, InputError
from judgelm.parsing.scores import parse_pair_original
from judgelm.records import Label, Sample

PLAIN = {"id": "7", "question": "q", "answer_1": "a", "answer_2": "b"}
JUDGELM = {"question_id": 7, "question_body": "\nq\n", "answer1_body": "a", "answer2_body": "b"}
PANDALM = {"idx": 7, "instruction": "i", "input": "", "response1": "a", "response2": "b", "cmp_key": "m-1_m-2"}


def sample_of(write, *rows, **options):
    [sample] = SampleStream([write(*rows)], **options)
    return sample


def stream_with_rejects(paths, **options):
    messages = []
    stream = SampleStream(paths, on_reject=lambda reject: messages.append(reject.message), **options)
    return stream, list(stream), messages


def test_judgelm_rows_keep_the_line_ends_of_the_question(write):
    row = JUDGELM | {"answer1_model_id": "m", "answer2_model_id": "n", "reference": {"text": "r", "model": "t"}}
    made = Sample(id="7", question="\nq\n", answers=("a", "b"), reference="r", answer_models=("m", "n"))
    assert sample_of(write, row) == made


@pytest.mark.parametrize(
    ("fields", "scores", "winner", "reason"),
    [
        ({"score": [8, 6], "text": "8 6\nwhy\nmore"}, (8, 6), 1, "why\nmore"),
        ({"score": [8, 8.5], "text": "8 8.5\n\nwhy"}, (8, 8.5), 2, "why"),
        ({"score": [0, 0], "text": "0 0"}, (0, 0), "tie", None),
        ({"text": "8 6\nwhy"}, (8, 6), 1, "why"),
        ({"score": [8, 6]}, (8, 6), 1, None),
        # A review that first solves the problem: its score was repaired by hand, the text is all reason.
        ({"score": [1, 7], "text": "First, I solve.\n\n8"}, (1, 7), 2, "First, I solve.\n\n8"),
    ],
)
def test_judgelm_labels(labelled, fields, scores, winner, reason):
    label = Label(sample_id="7", winner=winner, scores=scores, reason=reason)
    assert labelled(JUDGELM | fields)[0].labels["7"] == label


@pytest.mark.parametrize(
    "fields", [{}, {"text": "error"}, {"text": "error", "score": [-1, -1]}, {"score": [-1, -1], "text": "?"}]
)
def test_rows_without_a_readable_label_are_counted(labelled, fields):
    read, _ = labelled(JUDGELM | fields, JUDGELM | {"question_id": 8, "score": [1, 2]})
    assert (list(read.labels), list(read.samples), read.unlabelled) == (["8"], ["7", "8"], 1)


def test_the_label_made_with_a_reference_is_another_one(labelled):
    fields = {"score": [8, 6], "text": "8 6\nx", "score_w_reference": [2, 9], "text_w_reference": "2 9\n\ny"}
    bad = {"question_id": 8, "score": [8, 6], "text_w_reference": "error"}
    read, _ = labelled(JUDGELM | fields, JUDGELM | bad, with_reference=True)
    assert (read.labels, read.unlabelled) == ({"7": Label(sample_id="7", winner=2, scores=(2, 9), reason="y")}, 1)


def test_a_file_without_any_label_is_an_error(labelled):
    with pytest.raises(InputError, match=r"none of the 1 rows has a usable label; .* as judgelm"):
        labelled(JUDGELM)
    with pytest.raises(InputError, match="has a usable score_w_reference or text_w_reference"):
        labelled(JUDGELM | {"score": [1, 2]}, with_reference=True)


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"winner": "tie"}, ("tie", None, None)),
        ({"text": "8 6\nShort."}, (1, (8.0, 6.0), "Short.")),
        ({"annotator1": 1, "annotator2": 1, "annotator3": 0}, (1, None, None)),
        ({"preference": 1.5}, ("tie", None, None)),
        ({"label": 2}, (2, None, None)),
    ],
)
def test_rows_of_an_id_and_a_label_cannot_be_judged(labelled, fields, label):
    read, _ = labelled({"id": "1", **fields})
    assert [(each.winner, each.scores, each.reason) for each in read.labels.values()] == [label]
    assert read.samples == {}
    with pytest.raises(InputError, match=r"fields not recognised|rows have labels but no answers to judge"):
        SampleStream(["pairs.jsonl"])


@pytest.mark.parametrize(
    ("fields", "scores"),
    [
        ({"answer": "a", "score": "7.5"}, (7.5,)),
        ({"answers": ["a"], "scores": [7]}, (7,)),
        ({"answers": ["a", "b", "c"], "scores": [8, 6.5, 1]}, (8, 6.5, 1)),
        ({"answers": ["a", "b", "c"], "score": "8, 6.5 1"}, (8, 6.5, 1)),
        ({f"answer_{n}": "a" for n in (1, 2, 3)} | {"score_1": 8, "score_2": "6.5", "score_3": 1}, (8, 6.5, 1)),
    ],
)
def test_one_answer_and_more_have_scores_and_no_winner(labelled, fields, scores):
    read, _ = labelled({"id": "7", "question": "q", "reference": "r", "reason": "y"} | fields)
    assert read.labels == {"7": Label(sample_id="7", winner=None, scores=scores, reason="y")}
    assert (len(read.samples["7"].answers), read.samples["7"].metadata) == (len(scores), {})


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"answer": "a", "score": [8, 6]}, 'field "score": expected 1 finite number, got [8, 6]'),
        ({"answer": "a", "score": None}, None),
        ({"answer": "a", "score": float("inf")}, 'field "score": expected a finite number, got'),
        ({"answers": ["a", "b", "c"], "scores": [8, 6]}, 'field "scores": expected 3 finite numbers, got [8, 6]'),
        ({"answers": ["a", "b", "c"], "scores": "8 6 x"}, 'field "scores": expected 3 finite numbers, got "8 6 x"'),
        ({"answers": ["a", "b", "c"], "scores": 8}, 'field "scores": expected 3 finite numbers, got the number 8'),
        ({"answer_1": "a", "answer_2": "b", "answer_3": "c", "score_1": 1}, 'field "score_2": expected a finite'),
        ({"answers": ["a", "b", "c"], "winner": 1}, 'field "winner": a winner requires two answers, but the row has 3'),
    ],
)
def test_scores_that_do_not_fit_the_answers_are_rejects_and_none_is_no_label(labelled, fields, finding):
    read, messages = labelled({"question": "q", "answer": "a", "score": 1}, {"question": "q"} | fields)
    assert (len(read.labels), read.unlabelled, read.rejected) == (1, int(finding is None), int(finding is not None))
    assert all(message.startswith(f"pairs.jsonl:2: {finding}") for message in messages)


def test_a_stream_can_ask_for_a_number_of_answers(write):
    path = write({"question": "q", "answer": "a"}, {"question": "q", "answers": ["a", "b", "c"]})
    for wanted, count in (((1, 1), 1), ((3, 3), 3), ((2, None), 3)):
        _, samples, messages = stream_with_rejects([path], answers=wanted)
        assert ([len(sample.answers) for sample in samples], len(messages)) == ([count], 1)


@pytest.mark.parametrize(("key", "models"), [("m-1_m-2", ("m-1", "m-2")), ("a_b_c", ())])
def test_pandalm_joins_instruction_and_input_and_guesses_no_models(write, key, models):
    sample = sample_of(write, PANDALM | {"input": "ctx", "motivation_app": "Gmail", "cmp_key": key})
    assert (sample.id, sample.question, sample.answers) == ("7", "i\n\nctx", ("a", "b"))
    assert (sample.answer_models, sample.category, sample.metadata) == (models, "Gmail", {"cmp_key": key})


def test_only_pandalm_coerces_booleans_and_counts_them(write):
    stream, [sample], _ = stream_with_rejects([write(PANDALM | {"response1": True, "response2": 4})])
    assert (sample.answers, stream.coerced) == (("True", "4"), 2)
    assert sample.metadata["coerced"] == ["response1", "response2"]


@pytest.mark.parametrize(
    ("votes", "winner"), [((1, 1, 2), 1), ((0, 2, 0), "tie"), ((2, 2, 2), 2), ((0, 1, 2), None), ((1,), 1), ((), None)]
)
def test_pandalm_votes_need_a_majority(labelled, votes, winner):
    row = PANDALM | {f"annotator{place}": vote for place, vote in enumerate(votes, 1)}
    label = labelled(row, PANDALM | {"idx": 8, "annotator1": 1})[0].labels.get("7")
    assert (label.winner if label else None) == winner


def test_pandalm_training_rows(labelled):
    inputs = {"instruction": "i", "input": "c", "response1": "a", "response2": "b"}
    outputs = {"evaluation_result": "Tie", "evaluation_reason": "why", "reference_response": "r"}
    row = {"inputs": inputs, "outputs": outputs}
    [alone] = labelled(row)[0].labels.values()
    assert (alone.winner, alone.reason, alone.sample_id[:2]) == ("tie", "why", "c-")
    twice, _ = labelled(row, row)  # the same content: two votes
    assert [sample.reference for sample in twice.samples.values()] == ["r"]
    assert twice.labels[alone.sample_id].votes == ("tie", "tie")


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        (PLAIN, ("a", "b")),
        ({"question": "q", "answers": ["a", "b", "c"]}, ("a", "b", "c")),
        (PLAIN | {"answer_3": "c", "answer_4": None}, ("a", "b", "c")),
        ({"question": "q", "answer": "a"}, ("a",)),
        (PLAIN | {"answer_1": "", "answer_2": ""}, ("", "")),
    ],
)
def test_plain_rows(write, row, answers):
    assert sample_of(write, row).answers == answers


def test_unknown_fields_of_plain_rows_are_metadata(write):
    row = PLAIN | {"metadata": {"kind": "k"}, "site": "x", "category": "c", "winner": 1, "answer_models": ["m", "n"]}
    sample = sample_of(write, row)
    assert (sample.metadata, sample.category, sample.answer_models) == ({"kind": "k", "site": "x"}, "c", ("m", "n"))


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"winner": 2}, Label(sample_id="7", winner=2)),
        ({"winner": "tie", "score": [3, 3]}, Label(sample_id="7", winner="tie", scores=(3, 3))),
        ({"scores": [0.5, 99], "reason": "y"}, Label(sample_id="7", winner=2, scores=(0.5, 99), reason="y")),
        ({"score_1": "8", "score_2": "6.5", "winner": ""}, Label(sample_id="7", winner=1, scores=(8, 6.5))),
        ({"score": "8 6"}, Label(sample_id="7", winner=1, scores=(8, 6))),
    ],
)
def test_plain_labels(labelled, fields, label):
    assert labelled(PLAIN | fields)[0].labels == {"7": label}


def outputs(write, model, *pairs):
    rows = [{"instruction": name, "output": text, "generator": model} for name, text in pairs]
    return write(*rows, name=f"{model}.jsonl")


def test_alpaca_eval_outputs_are_joined_by_instruction(write):
    paths = [outputs(write, "m", ("x", "a"), ("y", "b")), outputs(write, "n", ("y", "c"), ("x", "d"))]
    stream, samples, messages = stream_with_rejects(paths)
    assert [(sample.question, sample.answers) for sample in samples] == [("x", ("a", "d")), ("y", ("b", "c"))]
    assert {sample.answer_models for sample in samples} == {("m", "n")}
    assert (stream.source.name, messages) == ("alpaca-eval", [])


def test_outputs_without_partner_or_doubly_present_are_rejects(write):
    first = outputs(write, "m", ("x", "a"), ("x", "b"), ("only 1", "c"))
    rows = list(join_outputs(first, outputs(write, "n", ("x", "d"), ("only 2", "e"), ("x", "f"))))
    assert [row.data["output_2"] for row in rows if isinstance(row, Row)] == ["d"]
    messages = sorted(row.message.split(";")[0] for row in rows if not isinstance(row, Row))
    twice = "this instruction is repeated in this file"
    assert messages[::3] == [f"m.jsonl:2: {twice}", f"n.jsonl:3: {twice}"]
    other = "this instruction is not in"
    assert messages[1:3] == [f"m.jsonl:3: {other} n.jsonl", f"n.jsonl:2: {other} m.jsonl"]


def test_one_file_of_outputs_and_none_at_all_are_refused(write):
    with pytest.raises(InputError, match="give two files to join them"):
        SampleStream([outputs(write, "m", ("x", "a"))])
    with pytest.raises(ConfigError, match="no input; pass a file"):
        SampleStream([])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "answer_1": "a"}, '"answer_2" is missing; each row must contain question, answer_1'),
        (PLAIN | {"answer_1": 42}, '"answer_1": expected text, got the number 42; write it as "42"'),
        (PLAIN | {"answer_1": True}, '"answer_1": expected text, got true; write it as "true"'),
        (PLAIN | {"answer_1": None}, '"answer_1": expected text, got null or NaN; write "" for empty text'),
        (PLAIN | {"answer_1": ["x"]}, '"answer_1": expected text, got ["x"]; write it as one string'),
        (PLAIN | {"answer_1": "\ud800"}, '"answer_1": contains half a surrogate pair'),
        (PLAIN | {"answers": []}, '"answers": expected a list of strings, got 0'),
        (PLAIN | {"answers": ["a", None]}, '"answers": expected a list of strings, but the list contains null'),
        (PLAIN | {"answer_models": ["m"]}, '"answer_models": expected 2 strings, got 1'),
        (PLAIN | {"id": [1]}, '"id": expected the id to be text or a whole number, got [1]'),
        (PLAIN | {"id": True}, '"id": expected the id to be text or a whole number, got true'),
        (PLAIN | {"reference": 3}, '"reference": expected text, got the number 3; write it as "3"'),
    ],
)
def test_a_bad_field_is_a_reject_with_place_finding_and_way_out(write, row, message):
    path = write(PLAIN | {"id": 1}, row, PLAIN | {"id": 3})
    stream, samples, messages = stream_with_rejects([path])
    assert [each.startswith(f"pairs.jsonl:2: field {message}") for each in messages] == [True]
    assert ([sample.id for sample in samples], stream.read, stream.rejected) == (["1", "3"], 3, 1)


@pytest.mark.parametrize("row", [{"question": "q", "context": "c"}, {"question": "q"}, {"context": "c"}])
def test_a_row_without_answers_is_a_reject_with_all_fields_for_answers(write, row):
    _, samples, messages = stream_with_rejects([write({"question": "q", "answer": "a"}, row)])
    assert [each.split(";")[0] for each in messages] == ["pairs.jsonl:2: the row has no answer"]
    assert [sample.answers for sample in samples] == [("a",)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"score": [float("nan"), 3]}, 'field "score": expected 2 finite numbers, got [null, 3]'),
        ({"score": [1, 1e999]}, 'field "score[1]": expected a finite number, got Infinity'),
        ({"score": [10**400, 1]}, f'field "score": expected 2 finite numbers, got [1{"0" * 58}...'),
        ({"score": [1]}, 'field "score": expected 2 finite numbers, got [1]'),
        ({"score": [True, 1]}, 'field "score": expected 2 finite numbers, got [true, 1]'),
        ({"score": 8}, 'field "score": expected 2 finite numbers, got the number 8'),
        ({"score_1": 8}, 'field "score_2": expected a finite number, got null'),
        ({"winner": "C"}, 'field "winner": expected 1=first, 2=second, a side such as'),
        ({"winner": [1]}, 'field "winner": expected 1, 2 or "tie", got [1]'),
        ({"winner": 1, "score": [1, 2]}, "winner 1 contradicts the scores 1 and 2; correct one"),
    ],
)
def test_a_bad_label_is_a_reject(labelled, fields, message):
    read, messages = labelled(PLAIN | {"id": 1, "winner": 1}, PLAIN | fields)
    assert [each.startswith(f"pairs.jsonl:2: {message}") for each in messages] == [True]
    assert (list(read.labels), read.rejected) == (["1"], 1)


def test_unknown_fields_name_what_was_found_and_what_is_needed(write):
    with pytest.raises(InputError) as caught:
        SampleStream([write({"qestion": "q", "answer_1": "a", "answer_2": "b"})])
    assert str(caught.value).startswith("pairs.jsonl:1: fields not recognised: qestion, answer_1, answer_2; ")
    hints = ('"qestion" looks like', "nearest layout is plain", "--column", "docs/formats.md")
    assert [hint for hint in hints if hint not in str(caught.value)] == []


def test_content_ids_depend_on_content_alone_and_repeats_are_kept(write):
    bare = {name: value for name, value in PLAIN.items() if name != "id"}
    first, second, third, other = SampleStream([write(bare, bare, bare | {"id": ""}, bare | {"answer_1": "z"})])
    assert len(first.id) == len("c-") + 16
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")
    assert other.id not in (first.id, second.id, third.id)
    path = write(bare | {"reference": "r"})
    [kept], [ignored] = SampleStream([path]), SampleStream([path], reference="ignore")
    assert replace(kept, reference=None) == ignored  # of the same id


def test_reference_policies(write):
    path = write(PLAIN | {"reference": "r"}, PLAIN | {"id": 8, "reference": " "})
    assert [sample.reference for sample in SampleStream([path])] == ["r", None]
    assert [sample.reference for sample in SampleStream([path], reference="ignore")] == [None, None]
    _, samples, messages = stream_with_rejects([path], reference="use")
    assert [sample.reference for sample in samples] == ["r"]
    assert messages[0].startswith("pairs.jsonl:2: no reference; add one to the row or with --references")


def test_references_from_a_file_of_their_own(write):
    path = write(PLAIN, PLAIN | {"id": 8})
    references = write({"question_id": 7, "reference": {"text": "r"}}, {"id": "9", "reference": "s"}, name="r.jsonl")
    stream, samples, messages = stream_with_rejects([path], references=references, reference="use")
    assert ([sample.reference for sample in samples], stream.references_used, len(messages)) == (["r"], 1, 1)
    with pytest.raises(ConfigError, match="cannot be combined with reference ignore"):
        SampleStream([path], references=references, reference="ignore")
    twice = [{"id": 1, "reference": "r"}] * 2
    for rows, finding in (([{"id": 1, "text": "r"}], "a reference row must"), (twice, 'id "1" appears more than once')):
        with pytest.raises(InputError, match=finding):
            SampleStream([path], references=write(*rows, name="r.jsonl"))


@pytest.mark.parametrize(("limit", "read"), [(0, 0), (2, 2), (9, 3)])
def test_limit_counts_samples(write, limit, read):
    stream = SampleStream([write(*(PLAIN | {"id": number} for number in range(3)))], limit=limit)
    assert (len(list(stream)), stream.read) == (read, read)


def test_a_file_without_a_good_row_reports_each_line_and_then_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text("oops\n[]\n")
    messages = []
    with pytest.raises(InputError, match=r"none of the 2 rows is usable; first reject: a\.jsonl:1: invalid JSON"):
        SampleStream(["a.jsonl"], on_reject=lambda reject: messages.append(reject.message))
    assert len(messages) == 2


def test_groups_of_the_synthetic_world():
    vices = {"1": ["wordy", "blunt"], "2": [None, "wordy"], "3": []}
    samples = [
        Sample(id=name, question="q", answers=(), category="c", metadata={"kind": "k", "vices": each})
        for name, each in vices.items()
    ]
    common = {"category": dict.fromkeys(vices, "c"), "kind": dict.fromkeys(vices, "k")}
    groups = groups_of({sample.id: sample for sample in samples})
    assert groups == common | {"vice": {"1": "blunt / wordy", "2": "none / wordy"}}


def test_outputs_become_judgments_and_others_rejects(write):
    path = write(
        {"question_id": 1, "pred_text": "8 6\nwhy", "score": [1, 9]}, {"question_id": 2, "pred_text": "no idea"},
        {"question_id": 1, "pred_text": "8 6"}, {"question_id": 3}, {"pred_text": "8 6"},
    )  # fmt: skip
    messages = []
    good, bad = read_results(path, parse_pair_original, on_reject=lambda reject: messages.append(reject.message))
    assert (good.sample_id, good.scores, good.verdict.winner, good.reason) == ("1", (8, 6), 1, "why")
    assert (bad.verdict, bad.failure.code, bad.shown[0].text) == (None, "off_grammar", "no idea")
    twice = 'pairs.jsonl:3: id "1" appears more than once in this file'
    reasons = [re.split(";|: exp", message)[0] for message in messages]
    assert reasons == [twice, "pairs.jsonl:4: no result", "pairs.jsonl:5: no id"]


@pytest.mark.parametrize(
    ("result", "winner"), [("1", 1), ("2", 2), ("Tie", "tie"), (0, "tie"), (2, 2), ("garbage", None), (3, None)]
)
def test_pandalm_outputs_become_judgments(write, result, winner):
    [judgment] = read_results(write({"idx": 1, "gpt_result": result, "gpt_reason": "why"}), parse_pair_original)
    assert (judgment.winner, judgment.failure and judgment.failure.code) == (winner, None if winner else "off_grammar")


@pytest.mark.parametrize(
    ("name", "counts"),
    [("gpt-3.5-turbo", {2: 476, 1: 460, "tie": 38, "off_grammar": 25}), ("pandalm-7b", {2: 459, 1: 433, "tie": 107})],
)
def test_the_real_pandalm_baselines(shared_data, name, counts):
    judgments = read_results(str(shared_data / "pandalm" / f"{name}-testset-v1.json"), parse_pair_original)
    assert Counter(j.verdict.winner if j.verdict else j.failure.code for j in judgments) == counts


def test_the_real_qlora_ratings_are_labels_without_answers_and_their_failures_no_labels(shared_data):
    files = sorted((shared_data / "qlora_ratings" / "relative-gpt-3.5").iterdir())
    sets = [read_labels(str(path)) for path in files]
    assert [each.samples for each in sets] == [{}] * len(files)
    assert sum(len(each.labels) + each.unlabelled for each in sets) == 14 * 80
    assert sum(len(each.labels) for each in sets) > 1100
