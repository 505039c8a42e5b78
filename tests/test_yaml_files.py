"""YAML written by users: repeated keys are refused, and all else is read as PyYAML reads it."""

import pytest

from judgelm.errors import ConfigError
from judgelm.yaml_files import parse_yaml


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ("a: 1\na: 2", "a", "line 2, column 1"),
        ("a: 1\nb: {c: 2, c: 3}", "c", "line 2, column 11"),
        ("- {a: 1}\n- b: 1\n  'b': 2", "b", "line 3, column 3"),
        ("a: &x {b: 1}\nc: {<<: *x, d: 1, d: 2}", "d", "line 2, column 19"),
    ],
)
@pytest.mark.parametrize("as_strings", [False, True])
def test_repeated_keys_are_refused_with_their_place(text, key, place, as_strings):
    with pytest.raises(ConfigError, match=rf"'{key}' is repeated, at {place}"):
        parse_yaml(text, as_strings=as_strings)


def test_merged_keys_aliases_and_repeated_values_are_read():
    assert parse_yaml("a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\ne: [*x, *x]") == {
        "a": {"b": 1, "c": 2},
        "d": {"b": 3, "c": 2},
        "e": [{"b": 1, "c": 2}] * 2,
    }
    assert parse_yaml("") is None
    within = parse_yaml("&a [*a]")
    assert within[0] is within
