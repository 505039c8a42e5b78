"""Exchanging the names of answers in a text, by hand, as properties, and in GPT-4's reviews of real answers."""

import gzip
import json
import re
from collections import Counter
from functools import partial
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.sources.layouts import split_review
from judgelm.data.swap_names import NUMERALS, ORDINALS, Ambiguous, SwappedText, swap_names
from tests.support.jsonl_files import rows_of

SWAP = (1, 0)
ANSWERS = (
    "There are four birds left. The first step is easy, and Model A costs less.\nAssistant 1 is a job title.",
    "Assistants are many; step 1 is the first answer, Option B is none.",
)


def exchanged(text, order=SWAP, answers=ANSWERS):
    result = swap_names(text, order, answers)
    assert isinstance(result, SwappedText), result
    return result.text


def why(text, answers=ANSWERS):
    result = swap_names(text, SWAP, answers)
    return result.code if isinstance(result, Ambiguous) else result.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Assistants 1 & 2, Assistant 1/2, Answers 1 or 2", "Assistants 2 & 1, Assistant 2/1, Answers 2 or 1"),
        ("Assistant 1's and 2's answers", "Assistant 2's and 1's answers"),
        ("Assistant #1, Assistant (2), Assistant no. 1", "Assistant #2, Assistant (1), Assistant no. 2"),
        ("Assistant One, ASSISTANT TWO", "Assistant Two, ASSISTANT ONE"),
        ("Response A beats Model B; Assistants A and B", "Response B beats Model A; Assistants B and A"),
        ("Output (a) and Output (b), both outputs (a) and (b)", "Output (b) and Output (a), both outputs (b) and (a)"),
        ("AI Assistant 1, AI 2, Chatbot 1, Bot 2", "AI Assistant 2, AI 1, Chatbot 2, Bot 1"),
        ("Candidate 1's Solution 2, Submission 1", "Candidate 2's Solution 1, Submission 2"),
        ("**Assistant 1** Assistant **2** [Assistant 1]:", "**Assistant 2** Assistant **1** [Assistant 2]:"),
        ("Assistant_1 assistant-2 Assistant1—Assistant 2’s", "Assistant_2 assistant-1 Assistant2—Assistant 1’s"),
        ("the 1st response and the 2ND ANSWER", "the 2nd response and the 1ST ANSWER"),
        ("the first and second assistants", "the second and first assistants"),
        ("the first of the two responses", "the second of the two responses"),
        ("Assistant 1 gets 8, Assistant 2 = 6, 1 > 0", "Assistant 2 gets 8, Assistant 1 = 6, 1 > 0"),
        ("Assistant 1: 8/10\nAssistant 2: 6/10", "Assistant 2: 8/10\nAssistant 1: 6/10"),
        ("Scores for Assistant 1 and 2:\n\n8 6", "Scores for Assistant 2 and 1:\n\n8 6"),
        ("Final verdict: [[A]] or [[B>A]], not [[C]]", "Final verdict: [[B]] or [[A>B]], not [[C]]"),
        ("answer 1, answer 2, like the first of the replies", "answer 2, answer 1, like the second of the replies"),
        ("Assistant 1 beats the other.", "Assistant 2 beats the other."),
        # the latter is Assistant 2, and is Assistant 1 (still named last) after the exchange
        ("Assistants 1 and 2 differ. The latter is better.", "Assistants 2 and 1 differ. The latter is better."),
        ("Assistant 1 and Assistant 2: the latter is good.", "Assistant 2 and Assistant 1: the latter is good."),
        ("Assistant 1 has more than 2 steps, not 2 tips.", "Assistant 2 has more than 2 steps, not 2 tips."),
        ("The first and second answers receive 8 and 6.", "The second and first answers receive 8 and 6."),
        ("Well. Assistants 1 and 2 receive 8 and 6.", "Well. Assistants 2 and 1 receive 8 and 6."),
    ],
)
def test_names_are_exchanged_where_they_stand(text, expected):
    answers = ("There are four birds left.", "None.")
    assert exchanged(text, answers=answers) == expected
    assert exchanged(expected, answers=answers) == text


def test_other_words_stay():
    text = (
        "First, Step 1 and 2 reasons, 8/10, f(2) = 1, Newton's first law. At first, a second later, per second, in the "
        "first paragraph, a first response, its second answer, first-person, Question 1, Person A, Reference Answer 1. "
        "It should give the assistant a chance, go above and beyond, be the right answer, get the answer right, use "
        "the last part, a scale of 1 to 10. Both receive 9 and 9. One has to say so. Model 7, Assistant C, the answer "
        "2%, a solution 1 out of 9.\n1. Good.\n2. Bad."
    )
    assert swap_names(text, SWAP, ANSWERS) == SwappedText(text=text, mentions=0)


BARE_NAMES = [
    "1 is better than 2.", "Assistant 1 is better than 2.", "Compared to Answer 1, 2 is longer.",
    "Both A and B are fine.", "Neither A nor another helps.", "1: good\n2: bad", "Winner: A", "I choose B.",
    "Assistant A is long compared to B.", "Assistant 1 as well as 2", "Assistant 1's is clearer than 2's.",
    "I prefer Assistant 1, not 2.", "Assistant A wins against B.", "Assistant 1 outperforms 2 in detail.",
    "Assistant 1 rather than 2 is right.", "Assistant 1 gets 8, 2 gets 6.", "Assistants 1 then 2.",
    "Assistant 1 + 2 are good.", "Assistant 1 said 4, not 1.", "The better answer is 1.", "A1 is better than A2.",
    "assistant b is better", "It loses to assistant b.", "The assistant (1) is clear and (2) is brief.",
    "Assistant 1 and 2 other people",
]  # fmt: skip
UNNAMED_ORDINALS = [
    "The first is good, the second is not.", "The first one is better.", "FIRST ANSWER: good.",
    "the assistant's 1st answer", "It should first answer the question.", "like the second example",
    "Assistant 1 lists reasons. The first one is good.", "the first answer given by Assistant 2",
    "Compared to first answer it is short.",
]  # fmt: skip
UNNAMED_SCORES = [
    "Scores: 8 6", "Scores: 10 8", "They differ. Scores: 8 6. That is all. Bye.", "\n8 6", "Fine.\n# [8 6].",
    "Assistant 1 and Assistant 2 differ. Scores: 8 6", "Assistant 1 receives 8 and 6.",
    "Fine.\n\n8 6\n\nThey differ.", "Fine.\n> 8/10 6/10", "I'd rate them 8 and 6.",
    "They get 8/10 and 6/10 respectively.", "They get 8/10 and 10/10 respectively.",
]  # fmt: skip
# two numbers are not scores unless they are alone or are called scores
OTHER_NUMBERS = [
    "From 1 to 9, the scores differ.", "They take 8 and 6 steps. Scores follow.", "Fine.\n8 6 of them",
    "They take 8 6\nin all.", "Fine.\n8 6 x", "x 8 6",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, "bare_name") for text in BARE_NAMES),
        *((text, "unnamed_ordinal") for text in UNNAMED_ORDINALS),
        *((text, "unnamed_scores") for text in UNNAMED_SCORES),
        *((text, text) for text in OTHER_NUMBERS),
        *((text, "position_word") for text in ("The answer above is better.", "The last response is better.")),
        ("the answer presented first", "position_word"),
        ("Both are good, but the latter is better.", "former_latter"),
        ("Summary 1 is better.", "unsure_noun"),
        *((text, "value_or_name") for text in ("The answer 2 is correct.", "Compared to answer 1 it is short.")),
        ("Model A is better.", "said_in_answer"),
        *((text, "no_such_answer") for text in ("The third assistant", "Assistant 10 is better.")),
        ("Assistant 1 chose Option B", "Assistant 2 chose Option B"),  # an option that an answer has
    ],
)
def test_unclear_names_are_ambiguous(text, expected):
    assert why(text) == expected


UNCHANGED = [
    "an answer one needs", "first two answers", "a second one", "its first answer, every second answer",
    "second approach", "second, in turn", "the right response", "the answer right is better", "the answer below it",
    "the latter half", "Reference answer 1", "Answer 2 points to it",
]  # fmt: skip
AMBIGUOUS = {
    "bare_name": ["Assistants 1, 2, and more", "both (Answers 1, 2)"],
    "unnamed_ordinal": [
        "the first two answers", "the first answer of the assistant", "the second approach", "The second, in turn",
    ],
    "no_such_answer": ["the fourth answer"],
    "position_word": ["the left response", "the answer on the right is better", "the answer below is better"],
    "former_latter": [
        "The latter answer is better.", "the latter approach", "the latter is better",
        "Assistant 1 is long. The latter is better.",
    ],
    "value_or_name": [
        "assistant one is good", "the answer one is good", "the correct answer 2 and the answer 2",
        "output 1 is longer", "to answer 2 questions",
    ],
    "unsure_noun": ["Assistant 1 chose Option B"],
}  # fmt: skip


# The rules of names, with texts on both sides of each border.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, text) for text in UNCHANGED),
        *((text, code) for code, texts in AMBIGUOUS.items() for text in texts),
        # lists: a count behind a comma is not part of one, and a name must be near
        ("Assistant 1, 2 other people", "Assistant 2, 2 other people"),
        ("Assistant 1, 2 steps on", "Assistant 2, 2 steps on"),
        ("Assistant 1 gives 2 tips", "Assistant 2 gives 2 tips"),
        ("Assistant 1 and B", "Assistant 2 and B"),
        ("Assistants A and B, and 1 more", "Assistants B and A, and 1 more"),
        ("Response One is good", "Response Two is good"),
        ("Model One is good.", "Model Two is good."),
        ("Second assistant wins", "First assistant wins"),
        ("Output 1 is longer", "Output 2 is longer"),
    ],
)
def test_the_words_around_decide_whether_a_word_is_a_name(text, expected):
    assert why(text, answers=("Yes.", "No.")) == expected


QUOTATIONS = [
    '"The first step is easy"', "“the first STEP is easy,”", "'step 1 is the first answer'", "`Model A costs less`",
    "```\nstep 1 is the first answer\n```", "\n> The first step\n> is easy\n",
]  # fmt: skip


@pytest.mark.parametrize("quote", QUOTATIONS)
def test_quotations_of_an_answer_stay(quote):
    assert exchanged(f"Assistant 1 says {quote} at last.") == f"Assistant 2 says {quote} at last."


def test_other_quotations_with_a_name_are_ambiguous():
    answers = ("Yes.", "No.")
    assert why('the so-called "Assistant 1"') == "quoted_name"  # an answer says so itself
    assert why('the so-called "Assistant 1"', answers=answers) == "quoted_name"
    assert why('"Assistant 1 is right" is wrong', answers=answers) == "quoted_name"
    assert why('Assistant "1" is right') == "quoted_name"  # an answer has a 1, but the name is not quoted whole


def test_three_answers_take_their_new_places():
    # Place 0 now holds the old third answer, place 1 the old first, place 2 the old second.
    text = "Assistants 1, 2 and 3: the third answer beats Response B, the 1st response."
    expected = "Assistants 2, 3 and 1: the first answer beats Response C, the 2nd response."
    assert exchanged(text, order=(2, 0, 1)) == expected
    assert exchanged(expected, order=(1, 2, 0)) == text


def test_the_excerpt_of_a_finding():
    result = swap_names("In all, 1 is better than 2.", SWAP)
    assert result == Ambiguous(code="bare_name", excerpt="In all, 1 is better than 2.")
    # 30 characters on each side
    long = f"{'x' * 40}. 1 is better. {'x' * 40}"
    assert swap_names(long, SWAP) == Ambiguous(code="bare_name", excerpt=f"{'x' * 28}. 1 is better. {'x' * 18}")
    assert swap_names("Scores: 8 6", SWAP) == Ambiguous(code="unnamed_scores", excerpt="Scores: 8 6")


@pytest.mark.parametrize("order", [(), (0,), (0, 0), (1, 2), tuple(range(10))])
def test_order_is_a_permutation(order):
    with pytest.raises(ValueError, match=f"expected each position from 0 to {len(order) - 1} once"):
        swap_names("Assistant 1", order)


QUOTED_ANSWERS = (
    'Take "Model A" in the first step, Assistant 1 said.',
    "Step 2 is the second answer ... and Option B.",
    "No.",
)

# {n0} and {n1} are two answers; there is a letter for each form of a name.
NAMES = [
    "Assistant {n0}", "assistants {n0} and {n1}", "Answer {l0}", "AI {n0}", "Model {l0}", "Output ({s0})", "({s1})",
    "assistant {w0}", "Assistant {W0}", "the {o0} answer", "The {O0} assistant's", "the {o0} and {o1} responses",
    "{O0} answer", "the {o0} one", "the {o0}", "the {t0} reply", "[[{l0}>{l1}]]", "{n0}", "{l0}", "option {l0}",
    "{n0} is better than {n1}", '"Assistant {n0}"', '"the {o0} answer"', "answer {n0}",
]  # fmt: skip
OTHERS = [
    "the former", "the latter", "the former answer", "'s", "8 6", "9/10 and 7/10", "scores", "respectively", "a second",
    '"in the first step"', "“Step 2 is ...”", "`Model A`", '"', "'", "`", "*", "is", "better than", "prefer", "both",
    "and", "or", ",", "/", ":", ". ", "\n", "\n\n", "- ", "(", ")", "the", "one", "Step 1", "2 reasons", "First,",
    "above", "last", "assistant b", "the answer", "to answer", "Reference Answer", "1,000",
]  # fmt: skip
PLACE = {"n": "123456789", "l": "ABCDEFGHI", "s": "abcdefghi", "w": NUMERALS, "o": ORDINALS, "t": ["1st", "2nd", "3rd"]}
PLACE |= {"W": [word.capitalize() for word in NUMERALS], "O": [word.capitalize() for word in ORDINALS]}


def filled(pieces, places):
    slots = {f"{form}{at}": words[place] for form, words in PLACE.items() for at, place in enumerate(places)}
    return "".join(piece.format(**slots) + gap for piece, gap in pieces)


def lists_of(pieces):
    return st.lists(st.tuples(st.sampled_from(pieces), st.sampled_from([" ", " ", " ", "", ", ", "\n"])), max_size=9)


pieces = lists_of(NAMES + OTHERS)
unquoted = lists_of([piece for piece in NAMES + OTHERS if not set(piece) & set("\"'`“”")])
# Without what names an answer, or is a number, whichever answers fill the slots: beside it, the filling would matter.
FIXED = re.compile("[\"'`“”12]|former|latter")
unfixed = lists_of([piece for piece in NAMES + OTHERS if not FIXED.search(piece)])
answers = st.sampled_from([(), QUOTED_ANSWERS])


@given(pieces, answers, st.permutations([0, 1, 2]))
def test_the_inverse_order_undoes_an_exchange(pieces, answers, order):
    text = filled(pieces, (0, 2))
    once = swap_names(text, tuple(order), answers)
    if isinstance(once, SwappedText):
        inverse = tuple(order.index(place) for place in range(3))
        assert swap_names(once.text, inverse, answers) == SwappedText(text=text, mentions=once.mentions)


@given(pieces, answers)
def test_a_text_is_ambiguous_in_each_order_or_in_none(pieces, answers):
    text = filled(pieces, (0, 1))
    results = [swap_names(text, order, answers) for order in permutations(range(3))]
    assert len({result.code if isinstance(result, Ambiguous) else None for result in results}) == 1


@given(unfixed)
def test_which_answer_is_named_does_not_make_a_text_ambiguous(pieces):
    results = [swap_names(filled(pieces, places), SWAP, ("Yes.", "No.")) for places in ((0, 1), SWAP)]
    assert len({isinstance(result, Ambiguous) for result in results}) == 1


@given(unquoted, st.sampled_from(['"in the first step, Assistant 1"', "“the second answer”", "`Option B`"]))
def test_quotations_of_an_answer_are_never_touched(pieces, quote):
    text = f"{filled(pieces, (0, 1))}\n{quote}\n{filled(pieces, (1, 0))}"
    result = swap_names(text, SWAP, QUOTED_ANSWERS)
    assert isinstance(result, Ambiguous) or result.text.count(quote) == 1


def reviews(folder, data):
    """The reasons of a folder's reviews, with those of their answers that are there."""
    files = (data / "vicuna_reviews" / "answer").iterdir()
    answers = {row["answer_id"]: row["text"] for path in files for row in rows_of(path)}
    for path in sorted((data / folder).iterdir()):
        for row in rows_of(path):
            judged = [answers[row[name]] for name in ("answer1_id", "answer2_id") if row[name] in answers]
            yield split_review(row["text"])[1], judged


def llmbar(data):
    for path in sorted((data / "llmbar").glob("*/evaluators/*/CoT/result.json.gz")):
        for row in json.loads(gzip.decompress(path.read_bytes())):
            for shown in row["results"][-1].values():
                yield shown["completion"][0], [row["input"], row["output_1"], row["output_2"]]


def pandalm(data):
    pairs = {row["idx"]: row for row in json.loads((data / "pandalm" / "testset-v1.json").read_text())}
    for row in json.loads((data / "pandalm" / "pandalm-7b-testset-v1.json").read_text()):
        yield row["pandalm_reason"], [str(pairs[row["idx"]][name]) for name in ("response1", "response2")]


VICUNA, QLORA = partial(reviews, "vicuna_reviews/review"), partial(reviews, "qlora_ratings/relative-gpt-3.5")


@pytest.mark.parametrize(
    ("source", "counts", "mentions"),
    [
        (VICUNA, {"exchanged": 640}, 2791),
        (QLORA, {"exchanged": 1117, "unnamed_ordinal": 2, "unnamed_scores": 1}, 4927),
        (llmbar, {"exchanged": 1403, "unnamed_scores": 1}, 5548),
        (pandalm, {"exchanged": 999}, 1054),
    ],
)
def test_real_reasons_are_exchanged_and_given_back(shared_data, source, counts, mentions):
    outcomes, names = Counter(), 0
    for text, answers in source(shared_data):
        result = swap_names(text, SWAP, answers)
        if isinstance(result, Ambiguous):
            outcomes[result.code] += 1
            continue
        outcomes["exchanged"] += 1
        names += result.mentions
        assert swap_names(result.text, SWAP, answers) == SwappedText(text=text, mentions=result.mentions)
    assert (dict(outcomes), names) == (counts, mentions)


def test_each_assistant_of_the_reviews_is_exchanged_and_no_other_word(shared_data):
    # Both were checked by eye: these 1,760 reviews name answers as "Assistant 1" and in one other way, "the second
    # assistant", in a review that is ambiguous for another reason.
    for text, answers in (*VICUNA(shared_data), *QLORA(shared_data)):
        result = swap_names(text, SWAP, answers)
        if isinstance(result, SwappedText):
            assert result.text == re.sub("(ssistants? )([12])", lambda m: m[1] + "21"[int(m[2]) - 1], text)
