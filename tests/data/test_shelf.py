"""Values that lie in a temporary file."""

from judgelm.data.shelf import Shelf
from judgelm.records import Sample


def sample(key, text):
    return Sample(id=key, question=text, answers=(text, "b"), metadata={"turns": [{"question": text}]})


def test_values_are_read_back_in_the_order_first_put():
    shelf = Shelf()
    for key, text in (("b", "one"), ("a", "two \ud800"), ("b", "three")):
        shelf[key] = sample(key, text)
        assert shelf[key] == sample(key, text)
    assert (dict(shelf), list(shelf)) == ({"b": sample("b", "three"), "a": sample("a", "two \ud800")}, ["b", "a"])


def test_a_value_is_removed_or_missing():
    shelf = Shelf()
    shelf["a"] = sample("a", "x")
    del shelf["a"]
    assert ("a" in shelf, len(shelf), shelf.get("a")) == (False, 0, None)
