"""Exchange is undone by the inverse order, and reads a text alike whichever answer it names."""

import re
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.swap_names import NUMERALS, ORDINALS, Ambiguous, SwappedText, swap_names

ANSWERS = (
    'Take "Model A" in the first step, Assistant 1 said.',
    "Step 2 is the second answer ... and Option B.",
    "No.",
)

# Places in braces: {0} and {1} are two answers, in each way of naming one.
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
PLACE = {
    "n": [str(n + 1) for n in range(9)],
    "l": "ABCDEFGHI",
    "s": "abcdefghi",
    "w": NUMERALS,
    "W": [word.capitalize() for word in NUMERALS],
    "o": ORDINALS,
    "O": [word.capitalize() for word in ORDINALS],
    "t": ["1st", "2nd", "3rd"],
}


def said(pieces, places):
    slots = {f"{form}{at}": words[place] for form, words in PLACE.items() for at, place in enumerate(places)}
    return "".join(piece.format(**slots) + gap for piece, gap in pieces)


def lists_of(pieces):
    return st.lists(st.tuples(st.sampled_from(pieces), st.sampled_from([" ", " ", " ", "", ", ", "\n"])), max_size=9)


pieces = lists_of(NAMES + OTHERS)
unquoted = lists_of([piece for piece in NAMES + OTHERS if not set(piece) & set("\"'`“”")])
# Without what names an answer, or is a number, whichever answers fill the slots: beside it, the filling would matter.
FIXED = re.compile("[\"'`“”12]|former|latter")
unfixed = lists_of([piece for piece in NAMES + OTHERS if not FIXED.search(piece)])
answers = st.sampled_from([(), ANSWERS])


@given(pieces, answers, st.permutations([0, 1, 2]))
def test_the_inverse_order_undoes_an_exchange(pieces, answers, order):
    text = said(pieces, (0, 2))
    once = swap_names(text, tuple(order), answers)
    if isinstance(once, SwappedText):
        inverse = tuple(order.index(place) for place in range(3))
        assert swap_names(once.text, inverse, answers) == SwappedText(text=text, mentions=once.mentions)


@given(pieces, answers)
def test_a_text_is_ambiguous_in_each_order_or_in_none(pieces, answers):
    text = said(pieces, (0, 1))
    findings = [swap_names(text, order, answers) for order in permutations(range(3))]
    whys = {finding.code if isinstance(finding, Ambiguous) else None for finding in findings}
    assert len(whys) == 1


@given(unfixed)
def test_which_answer_is_named_does_not_make_a_text_ambiguous(pieces):
    given_names, swapped_names = (
        swap_names(said(pieces, places), (1, 0), ("Yes.", "No.")) for places in ((0, 1), (1, 0))
    )
    assert isinstance(given_names, Ambiguous) == isinstance(swapped_names, Ambiguous)


@given(unquoted, st.sampled_from(['"in the first step, Assistant 1"', "“the second answer”", "`Option B`"]))
def test_quotations_of_an_answer_are_never_touched(pieces, quote):
    text = f"{said(pieces, (0, 1))}\n{quote}\n{said(pieces, (1, 0))}"
    result = swap_names(text, (1, 0), ANSWERS)
    assert isinstance(result, Ambiguous) or result.text.count(quote) == 1
