"""Hashes of the texts judged, and joins by id that compare them."""

from dataclasses import replace

import pytest
from xxhash import xxh3_64_hexdigest

from judgelm.data.judged_texts import (
    TextComparison,
    check_reversed,
    check_same_texts,
    digest_of,
    match_samples,
    text_hashes,
)
from judgelm.data.labelled_set import LabelledSet, match_labels, match_labels_of_runs
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, PairVerdict, Sample

PAIR = Sample(id="1", question="q", answers=("good", "bad"), answer_models=("m", "n"))


def exchanged(sample):
    return replace(sample, answers=sample.answers[::-1], answer_models=sample.answer_models[::-1])


def judged(*samples):
    common = {"mode": "pair", "verdict": PairVerdict(winner=1), "shown": ()}
    return {each.id: Judgment(sample_id=each.id, hashes=text_hashes(each), **common) for each in samples}


def labelled(sample, **label):
    return LabelledSet(samples={sample.id: sample}, labels={sample.id: Label(sample_id=sample.id, **label)}, groups={})


def test_texts_are_hashed_as_read():
    hashes = text_hashes(Sample(id="1", question="ä?\n", answers=(" a", "\ud800")))
    assert hashes.question == xxh3_64_hexdigest("ä?\n".encode())
    assert hashes.answers == (xxh3_64_hexdigest(b" a"), xxh3_64_hexdigest(b"\xed\xa0\x80"))
    assert (hashes.images, hashes.context) == (None, None)


def test_every_turn_of_a_dialogue_counts():
    def dialogue(first):
        turns = [{"question": "hi", "answers": [first, "b"]}, {"question": "q", "answers": ["good", "bad"]}]
        return text_hashes(replace(PAIR, metadata={"turns": turns}))

    first, second = dialogue("a"), dialogue("c")
    assert first.question == second.question != text_hashes(PAIR).question
    assert first.answers[0] != second.answers[0]
    assert first.answers[1] == second.answers[1]


@pytest.mark.parametrize(
    "change", [{"reference": "r"}, {"metadata": {"options": ["x"]}}, {"metadata": {"rubric": "r"}}]
)
def test_what_is_shown_beside_the_answers_has_a_hash_of_its_own(change):
    plain, changed = text_hashes(PAIR), text_hashes(replace(PAIR, **change))
    assert plain == replace(changed, context=None) != changed
    assert digest_of(plain) != digest_of(changed)


def test_images_are_hashed_by_their_bytes(tmp_path):
    for name, content in (("a.png", b"1"), ("b.png", b"1"), ("c.png", b"2")):
        (tmp_path / name).write_bytes(content)

    def hashed(*names):
        images = tuple(name if name.startswith("data:") else str(tmp_path / name) for name in names)
        return text_hashes(replace(PAIR, images=images)).images

    before = hashed("a.png")
    assert before == hashed("b.png") == hashed("data:image/png;base64,MQ==")
    assert len({before, hashed("c.png"), hashed("a.png", "c.png")}) == 3
    assert hashed("none.png") is None
    (tmp_path / "a.png").write_bytes(b"23")
    assert hashed("a.png") != before


def test_a_label_of_the_exchanged_answers_is_turned_round():
    label = {"winner": 1, "scores": (9.0, 2.0), "votes": (1, 1, 2), "preference": 0.75, "reason": "Answer 1 is right."}
    result, texts = match_labels(judged(PAIR), labelled(exchanged(PAIR), **label), name="l.jsonl")
    turned = {"winner": 2, "scores": (2.0, 9.0), "votes": (2, 2, 1), "preference": 0.25, "reason": "Answer 2 is right."}
    assert result.labels["1"] == Label(sample_id="1", **turned)
    assert (result.samples, texts) == ({"1": PAIR}, TextComparison(turned=1))
    assert [note.partition(" and ")[0] for note in texts.notes()] == [
        "1 of 1 rows have the answers in a different order"
    ]


def test_votes_without_a_majority_are_turned_too_and_a_label_of_the_same_texts_stays():
    split = LabelledSet(samples={"1": exchanged(PAIR)}, labels={}, groups={}, split={"1": (1, 1, 2, "tie")})
    assert match_labels(judged(PAIR), split, name="l")[0].split == {"1": (2, 2, 1, "tie")}
    given = labelled(PAIR, winner=1)
    assert match_labels(judged(PAIR), given, name="l.jsonl") == (given, TextComparison(same=1))


def test_scores_of_three_answers_are_put_into_the_order_judged_unless_two_are_equal():
    def matched(first, second):
        shown, named = (Sample(id="1", question="q", answers=tuple(answers)) for answers in (first, second))
        result, _ = match_labels(judged(shown), labelled(named, winner=None, scores=(3.0, 1.0, 2.0)), name="l")
        return result.labels["1"].scores

    assert matched("abc", "cab") == (1.0, 2.0, 3.0)
    with pytest.raises(InputError, match="the order of the answers differs"):
        matched("aab", "baa")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"question": "q?"}, 'the question differs: the row contains "q\\?"'),
        ({"answers": ("good", "worse")}, 'answer 2 differs: the row contains "worse"'),
        ({"answers": ("good", "bad ")}, 'answer 2 differs: the row contains "bad "'),
        ({"answers": ("good",)}, "the number of answers differs"),
    ],
)
def test_labels_of_other_texts_are_refused(change, finding):
    right, wrong = labelled(PAIR, winner=1), labelled(replace(PAIR, id="2", **change), winner=1)
    both = replace(right, samples={**right.samples, **wrong.samples}, labels={**right.labels, **wrong.labels})
    with pytest.raises(InputError, match=f'l.jsonl: 1 of 2 rows do not contain .* for example, id "2": {finding}'):
        match_labels(judged(PAIR, replace(PAIR, id="2")), both, name="l.jsonl")


def test_other_images_are_refused_and_missing_ones_are_not(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(name.encode())
    run = judged(replace(PAIR, images=(str(tmp_path / "a.png"),)))
    with pytest.raises(InputError, match="an image differs"):
        match_samples(run, {"1": replace(PAIR, images=(str(tmp_path / "b.png"),))}, name="rows")
    assert match_samples(run, {"1": PAIR}, name="rows")[1].same == 1


def test_rows_without_texts_and_runs_without_hashes_are_counted():
    run = judged(PAIR, replace(PAIR, id="2"))
    run["2"] = replace(run["2"], hashes=None)
    second = replace(exchanged(PAIR), id="2")
    labels = {"1": Label(sample_id="1", winner=1), "2": Label(sample_id="2", winner=1)}
    result, texts = match_labels(run, LabelledSet(samples={"2": second}, labels=labels, groups={}), name="l")
    assert (result.labels, texts) == (labels, TextComparison(not_compared=2))
    [note] = texts.notes()
    assert note.startswith("2 of 2 judgments were joined by id alone")


@pytest.mark.parametrize("other", [exchanged(PAIR), replace(PAIR, question="p")])
def test_runs_of_other_texts_under_one_id_are_refused(other):
    runs, finding = {"a": judged(PAIR), "b": judged(other)}, 'b: 1 of 1 judgments .* id "1": .* not the same as in a'
    with pytest.raises(InputError, match=finding):
        check_same_texts(runs)
    with pytest.raises(InputError, match=finding):
        match_labels_of_runs(runs, labelled(PAIR, winner=1), name="l")


def test_runs_that_cannot_be_compared_pass():
    old = {"1": replace(judged(PAIR)["1"], hashes=None)}
    check_same_texts({"a": old, "b": judged(PAIR), "c": judged(PAIR, replace(PAIR, id="2", question="p"))})
    result, texts = match_labels_of_runs({"a": old, "b": judged(PAIR)}, labelled(exchanged(PAIR), winner=1), name="l")
    assert (result.labels["1"].winner, texts.turned) == (2, 1)


def test_a_run_of_reversed_pairs_must_be_one():
    run, same = judged(PAIR), 'reversed judgments: 1 of 1 .* id "1": the answers are in the same order'
    check_reversed(run, judged(exchanged(PAIR)))
    with pytest.raises(InputError, match=same):
        check_reversed(run, run)
    with pytest.raises(InputError, match="the question differs"):
        check_reversed(judged(PAIR), judged(replace(exchanged(PAIR), question="p")))
