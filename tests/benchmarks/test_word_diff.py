from hypothesis import given
from hypothesis import strategies as st

from benchmarks.row_preview import diff_words


def changed(pieces):
    return [piece.text for piece in pieces if piece.changed]


def test_exchanged_names_are_compared_word_by_word():
    before, after = diff_words("Assistant 1 and 2 get 8.5 and 6.", "Assistant 2 and 1 get 8.5 and 6.")
    # by common runs alone, "1" would be found again in the other text
    assert changed(before) == ["1", "2"]
    assert changed(after) == ["2", "1"]


def test_a_longer_text_keeps_what_it_shares():
    before, after = diff_words("one is clear", "one is very clear")
    assert (changed(before), changed(after)) == ([], ["very "])


@given(st.text(), st.text())
def test_pieces_joined_are_the_texts(before, after):
    assert tuple("".join(piece.text for piece in pieces) for pieces in diff_words(before, after)) == (before, after)
