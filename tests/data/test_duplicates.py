"""Duplicates, near duplicates and groups of questions; overlap of evaluation rows with training rows."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from judgelm.data.duplicates import Duplicate, Duplicates, QuestionGroups, normalised
from judgelm.data.overlap import IndexedTexts
from judgelm.data.training_questions import hashes_of_files, read_hashes, seen_questions, write_hashes
from judgelm.errors import ConfigError, InputError

WORDS = tuple(f"word{number}" for number in range(1000))
QUESTIONS = st.lists(st.text(alphabet="ab .!", max_size=6) | st.sampled_from(["What?", "what", "Why"]), max_size=12)


def text(seed, count=100):
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def with_replaced(words, *places):
    replaced = words.split()
    for place in places:
        replaced[place] = f"other{place}"
    return " ".join(replaced)


def test_case_blanks_and_punctuation_do_not_matter_unless_the_meaning_differs():
    alike = [("What is it?", "  what IS\n it"), ("Don’t — stop.", "don't stop!"), ("Straße", "STRASSE"),
             ("你好！", "你好"), ("a well-known **list**:", "A well known list"), ("café", "cafe\u0301")]  # fmt: skip
    assert [pair for pair in alike if normalised(pair[0]) != normalised(pair[1])] == []
    apart = [("5", "-5"), ("3.5", "35"), (".5", "5"), ("a + b", "a / b"), ("C++", "C#"), ("???", "!!!"), ("कि", "का"),
             ("x²", "x2"), ("", "?")]  # fmt: skip
    assert [pair for pair in apart if normalised(pair[0]) == normalised(pair[1])] == []


def seen(*rows, **options):
    """What each row repeats: a question and its two answers, named by their numbers from 1."""
    duplicates = Duplicates(**options)
    return [duplicates.seen(str(number), *row) for number, row in enumerate(rows, 1)]


def why(*answers):
    return "Why?", answers


LONG = text(1, 300)


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([("a b", ("c", "d")), ("a", ("b c", "d")), ("c", ("a b", "d"))], {}),  # texts do not run into each other
        # the union of all three texts is nearly the same, but these are different pairs
        ([why(LONG, "I cannot say."), why(LONG, "Because it is so."), ("Where?", (LONG, "I cannot say."))], {}),
        # 10 words of 100, apart from each other: 30 of 98 shingles go and 30 come, 68 / 128 = 0.53
        ([why(text(1), text(2)), why(with_replaced(text(1), *range(5, 100, 10)), text(2))], {}),
        ([(text(n, 30), (text(-n - 1), text(n + 9999))) for n in range(500)], {}),
        ([why(LONG, "no"), why(with_replaced(LONG, 299), "no")], {"threshold": 1}),
    ],
    ids=["shared words", "another answer", "below the threshold", "unrelated", "a threshold of one"],
)
def test_rows_that_repeat_none(rows, options):
    assert set(seen(*rows, **options)) == {None}


def test_a_row_or_its_swapped_copy_is_an_exact_duplicate_of_the_first():
    exact = Duplicate(kind="exact", of="1", similarity=1.0)
    assert seen(why("yes", "no"), ("why", ("Yes.", "No.")), why("no", "yes")) == [None, exact, exact]
    assert seen(why(LONG, "no"), why("no", LONG), threshold=1) == [None, exact]


def test_the_similarity_is_the_share_of_bytes_that_agree_without_those_by_chance():
    words = " ".join(WORDS[:200])
    # 123 of 128 bytes agree: (123 / 128 - 1 / 256) / (1 - 1 / 256) = 245 / 255
    duplicate = seen(why(words, "no"), why(words.replace("word100 ", "x "), "no"))[1]
    assert duplicate == Duplicate(kind="near", of="1", similarity=pytest.approx(245 / 255))


@pytest.mark.parametrize("order", [("far", "near"), ("near", "far")])
def test_the_nearest_row_is_named(order):
    # 198 shingles; 8 words replaced leave 174 / 222 = 0.78, 6 others 180 / 216 = 0.83, between them 156 / 240 = 0.65
    long = text(1, 200)
    rows = {"far": with_replaced(long, *range(3, 200, 25)), "near": with_replaced(long, *range(10, 200, 33))}
    first, second, third = seen(*(why(rows[name], "no") for name in order), why("no", long), threshold=0.7)
    assert (first, second, third.of) == (None, None, str(order.index("near") + 1))


def test_the_near_row_is_named_among_others():
    # 3-grams as sets: the same words in a circle have the same ones, wherever they begin
    circle = [why("a b c " * 4, "no"), why("b c a " * 4, "no"), why("no", "c a b " * 4)]
    duplicates = seen(("Who?", (text(3), "no")), circle[0], ("When?", (text(4), "no")), *circle[1:], threshold=0.99)
    near = Duplicate(kind="near", of="2", similarity=1.0)
    assert duplicates == [None, None, None, near, near]


@pytest.mark.parametrize(("words", "near"), [(9, False), (10, True)])
def test_ten_words_are_enough_to_be_near(words, near):
    first, second = (" ".join((start * 4)[:words]) for start in ("abc", "bca"))  # the same 2-grams and 3-grams
    assert (seen(why(first, "no"), why(second, "no"))[1] is not None) is near
    groups = grouped([first, second])
    assert (groups.group(first) == groups.group(second)) is near


@pytest.mark.parametrize("similarity", [0.95, 0.97])
def test_nearly_all_near_duplicates_are_found(similarity):
    # k more words beside n shingles leave n / (n + k); 0.95 is 2.6 standard errors over 0.9, so few estimates miss it
    added = " ".join(f"new{number}" for number in range(round(188 / similarity) - 188))
    texts = [text(seed, 190) for seed in range(100)]
    assert sum(seen(why(long, "no"), why(f"{long} {added}", "no"))[1] is not None for long in texts) >= 92


@pytest.mark.parametrize("kind", [Duplicates, QuestionGroups])
def test_options_out_of_range_are_refused(kind):
    for options in ({"threshold": 0.5}, {"threshold": 1.1}, {"shingle": 0}, {"min_words": 1}):
        with pytest.raises(ConfigError):
            kind(**options)
    for options in ({"threshold": 0.7}, {"threshold": 1}, {"shingle": 1}, {"shingle": 10}):
        kind(**options)


def grouped(questions, **options):
    groups = QuestionGroups(**options)
    for question in questions:
        groups.add(question)
    return groups


def test_a_group_is_named_by_the_least_digest_in_it_and_the_largest_stands_first():
    question = text(1, 60)
    questions = [text(2, 60), question, with_replaced(question, 30), "What?"]
    groups = QuestionGroups()
    digests = [groups.add(added) for added in questions[:3]]
    assert list(groups.sizes().values()) == [2, 1]
    digests.append(groups.add(questions[3]))
    assert digests == [xxh3_128_digest(added.casefold().rstrip("?").encode()) for added in questions]
    near = min(digests[1:3]).hex()
    alone = sorted((digests[0].hex(), digests[3].hex()))
    assert list(groups.sizes().items()) == [(near, 2), (alone[0], 1), (alone[1], 1)]
    assert [groups.group(digest) for digest in digests] == [digests[0].hex(), near, near, digests[3].hex()]
    assert groups.group(" WHAT ") == groups.group("What?")


def test_a_chain_of_near_questions_is_one_group():
    # each differs from the next in one word of 60; the ends differ in 20: 59 - 40 of 59 + 40 shingles, 0.19
    chain = [with_replaced(text(1, 60), *range(0, 2 * count, 2)) for count in range(21)]
    groups = grouped(chain)
    assert groups.group(chain[0]) == groups.group(chain[-1])
    assert grouped([chain[0], chain[-1]]).group(chain[0]) != grouped([chain[0], chain[-1]]).group(chain[-1])


def test_a_template_filled_in_many_ways_is_one_group():
    template = text(1, 100)
    groups = grouped(with_replaced(template, 50).replace("other50", f"filled{number}") for number in range(300))
    assert len(groups.sizes()) == 1
    assert len(grouped([template, template.upper(), with_replaced(template, 5)], threshold=1).sizes()) == 2


@given(questions=QUESTIONS, seed=st.integers(0, 99), data=st.data())
def test_groups_do_not_depend_on_order_or_repetition(questions, seed, data):
    given_order = [*questions, *(with_replaced(text(seed, 40), place) for place in range(5))]
    shuffled = data.draw(st.permutations(given_order + given_order[:3]))
    given_groups, shuffled_groups = grouped(given_order), grouped(shuffled)
    assert given_groups.sizes() == shuffled_groups.sizes()
    assert [*map(given_groups.group, given_order)] == [*map(shuffled_groups.group, given_order)]


def test_a_question_that_was_not_added_has_no_group():
    with pytest.raises(ValueError, match=r"^question 'Why\?' was not added"):
        QuestionGroups().group("Why?")
    assert QuestionGroups().sizes() == {}


QUESTION = "Please write a short and friendly note to my neighbour about the noisy dog that barks all through the night"
ANSWER = "Dear neighbour, your dog has been barking through the night, could we talk about it this week please?"


def pair(number, question, first="Yes.", second="No."):
    return {"id": str(number), "question": question, "answer_1": first, "answer_2": second}


@pytest.fixture
def train(write):
    return write(pair("a", QUESTION, ANSWER), pair("b", "What is two plus two?"), name="train.jsonl")


@pytest.fixture
def overlap(train, write):
    return lambda *rows, **options: IndexedTexts(train, **options).check(write(*rows))


def test_case_punctuation_and_blanks_do_not_hide_a_question(overlap):
    overlaps = overlap(pair(1, "what is  TWO plus two"), pair(2, "What is two plus three?"))
    assert (overlaps.rows, overlaps.questions, overlaps.question_overlaps["exact"], overlaps.clean) == (2, 2, 1, False)
    [example] = overlaps.examples
    assert (example.part, example.kind, example.of, example.text) == ("question", "exact", "b", "what is  TWO plus two")


def test_a_question_with_one_other_word_is_near(overlap):
    # 20 words, 19 pairs of words; one word replaced changes two: 17 of 21 in common, 0.81
    overlaps = overlap(pair(1, QUESTION.replace("friendly", "polite")))
    assert overlaps.question_overlaps == {"near": 1}
    assert overlaps.examples[0].similarity == pytest.approx(17 / 21, abs=0.15)
    assert overlap(pair(1, QUESTION.replace("friendly", "polite")), threshold=1, words=0).clean


def test_a_long_passage_in_another_question_is_shared(overlap):
    passage = " ".join(QUESTION.split()[-13:])
    overlaps = overlap(pair(1, f"In one word, of which animal is this said: {passage}, and of whom else?"))
    assert (overlaps.question_overlaps, overlaps.examples[0].of) == ({"passage": 1}, passage)
    shorter = " ".join(QUESTION.split()[-12:])
    assert overlap(pair(1, f"In one word, of which animal is this said: {shorter}, and of whom?")).clean


def test_long_answers_are_compared_and_short_ones_passed_over(overlap):
    overlaps = overlap(pair(1, "New?", "Yes.", ANSWER.upper()), pair(2, "Newer?", ANSWER))
    # the two answers are one text
    assert (overlaps.answers, overlaps.answer_overlaps, overlaps.questions) == (1, {"exact": 1}, 2)


def test_equal_questions_count_once_and_their_rows_all(overlap):
    overlaps = overlap(*(pair(i, "What is two plus two?") for i in range(3)))
    assert (overlaps.questions, overlaps.question_overlaps["exact"], overlaps.rows_with_question) == (1, 1, 3)


@pytest.mark.parametrize(
    "row", [{"question_id": 1, "turns": ["Hello?", QUESTION]}, {"question_id": 1, "text": QUESTION}]
)
def test_files_of_questions_alone_are_compared_too(overlap, row):
    overlaps = overlap(row, {"category": "no question"})
    assert (overlaps.question_overlaps["exact"], overlaps.rejected) == (1, 1)


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
