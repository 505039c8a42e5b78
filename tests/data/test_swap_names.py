import pytest

from judgelm.data.swap_names import Ambiguous, SwappedText, swap_names

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
        ("Assistant 1 has more than 2 steps, not 2 tips.", "Assistant 2 has more than 2 steps, not 2 tips."),
        ("The first and second answers receive 8 and 6.", "The second and first answers receive 8 and 6."),
        ("Well. Assistants 1 and 2 receive 8 and 6.", "Well. Assistants 2 and 1 receive 8 and 6."),
    ],
)
def test_names_are_exchanged_where_they_stand(text, expected):
    answers = ("There are four birds left.", "None.")
    assert exchanged(text, answers=answers) == expected
    assert exchanged(expected, answers=answers) == text


def test_what_names_no_answer_stays():
    text = (
        "First, Step 1 and 2 reasons, 8/10, f(2) = 1, Newton's first law. At first, a second later, per second, in the "
        "first paragraph, a first response, its second answer, first-person, Question 1, Person A, Reference Answer 1. "
        "It should give the assistant a chance, go above "
        "and beyond, be the right answer, get the answer right, use the last part, a scale of 1 to 10. Both receive 9 "
        "and 9. One has to say so. Model 7, Assistant C, the answer 2%, a solution 1 out of 9.\n1. Good.\n2. Bad."
    )
    assert swap_names(text, SWAP, ANSWERS) == SwappedText(text=text, mentions=0)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1 is better than 2.", "bare_name"),
        ("Assistant 1 is better than 2.", "bare_name"),
        ("Compared to Answer 1, 2 is longer.", "bare_name"),
        ("Both A and B are fine.", "bare_name"),
        ("Neither A nor another helps.", "bare_name"),
        ("1: good\n2: bad", "bare_name"),
        ("Winner: A", "bare_name"),
        ("I choose B.", "bare_name"),
        ("Assistant A is long compared to B.", "bare_name"),
        ("Assistant 1 as well as 2", "bare_name"),
        ("Assistant 1's is clearer than 2's.", "bare_name"),
        ("I prefer Assistant 1, not 2.", "bare_name"),
        ("Assistant A wins against B.", "bare_name"),
        ("Assistant 1 outperforms 2 in detail.", "bare_name"),
        ("Assistant 1 rather than 2 is right.", "bare_name"),
        ("Assistant 1 gets 8, 2 gets 6.", "bare_name"),
        ("Assistants 1 then 2.", "bare_name"),
        ("Assistant 1 + 2 are good.", "bare_name"),
        ("Assistant 1 said 4, not 1.", "bare_name"),
        ("The better answer is 1.", "bare_name"),
        ("A1 is better than A2.", "bare_name"),
        ("assistant b is better", "bare_name"),
        ("It loses to assistant b.", "bare_name"),
        ("The assistant (1) is clear and (2) is brief.", "bare_name"),
        ("Assistant 1 and 2 other people", "bare_name"),
        ("The first is good, the second is not.", "unnamed_ordinal"),
        ("The first one is better.", "unnamed_ordinal"),
        ("FIRST ANSWER: good.", "unnamed_ordinal"),
        ("the assistant's 1st answer", "unnamed_ordinal"),
        ("It should first answer the question.", "unnamed_ordinal"),
        ("Assistant 1 lists reasons. The first one is good.", "unnamed_ordinal"),
        ("like the second example", "unnamed_ordinal"),
        ("the first answer given by Assistant 2", "unnamed_ordinal"),
        ("Both are good, but the latter is better.", "former_latter"),
        ("The answer above is better.", "position_word"),
        ("The last response is better.", "position_word"),
        ("the answer presented first", "position_word"),
        ("Scores: 8 6", "unnamed_scores"),
        ("Scores: 10 8", "unnamed_scores"),
        ("They differ. Scores: 8 6. That is all. Bye.", "unnamed_scores"),
        ("Assistant 1 and Assistant 2 differ. Scores: 8 6", "unnamed_scores"),
        ("Assistant 1 receives 8 and 6.", "unnamed_scores"),
        ("Fine.\n\n8 6\n\nThey differ.", "unnamed_scores"),
        ("\n8 6", "unnamed_scores"),
        ("Fine.\n# [8 6].", "unnamed_scores"),
        ("Fine.\n> 8/10 6/10", "unnamed_scores"),
        ("I'd rate them 8 and 6.", "unnamed_scores"),
        # two numbers are no scores unless they stand alone or are called so
        *((text, None) for text in ("From 1 to 9, the scores differ.", "They take 8 and 6 steps. Scores follow.")),
        *((text, None) for text in ("Fine.\n8 6 of them", "They take 8 6\nin all.", "Fine.\n8 6 x", "x 8 6")),
        ("They get 8/10 and 6/10 respectively.", "unnamed_scores"),
        ("They get 8/10 and 10/10 respectively.", "unnamed_scores"),
        ("Summary 1 is better.", "unsure_noun"),
        ("The answer 2 is correct.", "value_or_name"),
        ("Compared to answer 1 it is short.", "value_or_name"),
        ("Compared to first answer it is short.", "unnamed_ordinal"),
        ("Model A is better.", "said_in_answer"),
        ("The third assistant", "no_such_answer"),
        ("Assistant 10 is better.", "no_such_answer"),
        ("Assistant 1 chose Option B", "Assistant 2 chose Option B"),  # an option that an answer has
    ],
)
def test_what_cannot_be_told_is_ambiguous(text, code):
    assert why(text) == (code or text)


# The rules of names, each with the texts on both sides of its border; a code where the text is ambiguous.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # lists: a count behind a comma is none of it, and a name must stand near
        ("Assistant 1, 2 other people", "Assistant 2, 2 other people"),
        ("Assistants 1, 2, and more", "bare_name"),
        ("both (Answers 1, 2)", "bare_name"),
        ("Assistant 1, 2 steps on", "Assistant 2, 2 steps on"),
        ("Assistant 1 gives 2 tips", "Assistant 2 gives 2 tips"),
        ("Assistant 1 and B", "Assistant 2 and B"),
        ("Assistants A and B, and 1 more", "Assistants B and A, and 1 more"),
        # numerals in lower case
        ("assistant one is good", "value_or_name"),
        ("the answer one is good", "value_or_name"),
        ("an answer one needs", "an answer one needs"),
        ("Response One is good", "Response Two is good"),
        # ordinals
        ("the first two answers", "unnamed_ordinal"),
        ("first two answers", "first two answers"),
        ("a second one", "a second one"),
        ("Model One is good.", "Model Two is good."),
        ("its first answer, every second answer", "its first answer, every second answer"),
        ("Second assistant wins", "First assistant wins"),
        ("the first answer of the assistant", "unnamed_ordinal"),
        ("second approach", "second approach"),
        ("the second approach", "unnamed_ordinal"),
        ("The second, in turn", "unnamed_ordinal"),
        ("second, in turn", "second, in turn"),
        ("the fourth answer", "no_such_answer"),
        # places
        ("the left response", "position_word"),
        ("the right response", "the right response"),
        ("the answer on the right is better", "position_word"),
        ("the answer right is better", "the answer right is better"),
        ("the answer below is better", "position_word"),
        ("the answer below it", "the answer below it"),
        # sides
        ("The latter answer is better.", "former_latter"),
        ("the latter approach", "former_latter"),
        ("the latter is better", "former_latter"),
        ("the latter half", "the latter half"),
        ("Assistant 1 is long. The latter is better.", "former_latter"),
        # what an answer holds
        ("Reference answer 1", "Reference answer 1"),
        ("the correct answer 2 and the answer 2", "value_or_name"),
        ("to answer 2 questions", "value_or_name"),
        ("Answer 2 points to it", "Answer 2 points to it"),
        ("output 1 is longer", "value_or_name"),
        ("Assistant 1 chose Option B", "unsure_noun"),
        ("Output 1 is longer", "Output 2 is longer"),
    ],
)
def test_a_word_is_a_name_by_those_around_it(text, expected):
    assert why(text, answers=("Yes.", "No.")) == expected


def test_former_and_latter_go_with_the_names_before_them():
    # The latter is Assistant 2, and is Assistant 1 (still the one named last) after the exchange.
    text = "Assistant 1 and Assistant 2 differ. The latter is better."
    assert exchanged(text) == "Assistant 2 and Assistant 1 differ. The latter is better."


@pytest.mark.parametrize(
    "quote",
    [
        '"The first step is easy"',
        "“the first STEP is easy,”",
        "'step 1 is the first answer'",
        "`Model A costs less`",
        "```\nstep 1 is the first answer\n```",
        "\n> The first step\n> is easy\n",
    ],
)
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


def test_finding_holds_the_words():
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
