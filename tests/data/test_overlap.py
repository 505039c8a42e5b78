"""Overlap by hand: equal, near and shared passages, in questions and answers; hashes of training questions."""

import pytest

from judgelm.data.overlap import IndexedTexts
from judgelm.data.training_questions import hashes_of_files, read_hashes, seen_questions, write_hashes
from judgelm.errors import InputError

LONG = "Please write a short and friendly note to my neighbour about the noisy dog that barks all through the night"
ANSWER = "Dear neighbour, your dog has been barking through the night, could we talk about it this week please?"


def pair(number, question, first="Yes.", second="No."):
    return {"id": str(number), "question": question, "answer_1": first, "answer_2": second}


@pytest.fixture
def train(write):
    return write(pair("a", LONG, ANSWER), pair("b", "What is two plus two?"), name="train.jsonl")


@pytest.fixture
def overlap(train, write):
    return lambda *rows, **options: IndexedTexts(train, **options).check(write(*rows))


def test_case_punctuation_and_blanks_do_not_hide_a_question(overlap):
    found = overlap(pair(1, "what is  TWO plus two"), pair(2, "What is two plus three?"))
    assert (found.rows, found.questions, found.question_overlaps["exact"], found.clean) == (2, 2, 1, False)
    [example] = found.examples
    assert (example.part, example.kind, example.of, example.text) == ("question", "exact", "b", "what is  TWO plus two")


def test_a_question_with_one_other_word_is_near(overlap):
    # 20 words, 19 pairs of words; one word replaced changes two: 17 of 21 in common, 0.81
    found = overlap(pair(1, LONG.replace("friendly", "polite")))
    assert found.question_overlaps == {"near": 1}
    assert found.examples[0].similarity == pytest.approx(17 / 21, abs=0.15)
    assert overlap(pair(1, LONG.replace("friendly", "polite")), threshold=1, words=0).clean


def test_a_long_passage_in_another_question_is_shared(overlap):
    passage = " ".join(LONG.split()[-13:])
    found = overlap(pair(1, f"In one word, of which animal is this said: {passage}, and of whom else?"))
    assert found.question_overlaps == {"passage": 1}
    assert found.examples[0].of == passage
    shorter = " ".join(LONG.split()[-12:])
    assert overlap(pair(1, f"In one word, of which animal is this said: {shorter}, and of whom?")).clean


def test_long_answers_are_compared_and_short_ones_passed_over(overlap):
    found = overlap(pair(1, "New?", "Yes.", ANSWER.upper()), pair(2, "Newer?", ANSWER))
    # the two answers are one text
    assert (found.answers, found.answer_overlaps, found.questions) == (1, {"exact": 1}, 2)


def test_equal_questions_count_once_and_their_rows_all(overlap):
    found = overlap(*(pair(i, "What is two plus two?") for i in range(3)))
    assert (found.questions, found.question_overlaps["exact"], found.rows_with_question) == (1, 1, 3)


@pytest.mark.parametrize("row", [{"question_id": 1, "turns": ["Hello?", LONG]}, {"question_id": 1, "text": LONG}])
def test_files_of_questions_alone_are_compared_too(overlap, row):
    found = overlap(row, {"category": "no question"})
    assert (found.question_overlaps["exact"], found.rejected) == (1, 1)


def test_a_file_without_questions_is_refused_and_never_clean(overlap):
    with pytest.raises(InputError, match="not recognised: colour"):
        overlap({"colour": "red"})


def test_hashes_travel_beside_the_card_and_find_the_questions(train, tmp_path):
    write_hashes(tmp_path, hashes_of_files([train]))
    hashes = read_hashes(tmp_path)
    assert len(hashes) == 2
    seen = seen_questions(["what is two plus two", "What is two plus two?", "New?"], hashes)
    assert (seen.questions, seen.pairs, seen.questions_in_training, seen.pairs_in_training) == (2, 3, 1, 2)
    assert str(seen).startswith("warning: 1 of 2 questions are in the judge's training set (2 of 3 pairs)")
    assert str(seen_questions(["New?"], hashes)) == "0 of 1 questions are in the judge's training set"
    assert read_hashes(tmp_path / "elsewhere") is None


def test_a_damaged_file_of_hashes_is_refused(tmp_path):
    (tmp_path / "training_questions.sha").write_text("0123456789abcdef\n01234567\n")
    with pytest.raises(InputError, match="expected 16 hexadecimal digits per line, got '01234567'; restore"):
        read_hashes(tmp_path)
