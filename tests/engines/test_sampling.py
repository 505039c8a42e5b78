"""Limits of sampling parameters."""

import math

import pytest

from judgelm.errors import ConfigError
from judgelm.records import Sampling


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [math.nan, math.inf, -math.inf, -0.1, 101, 1e308, 10**400]),
        ("max_tokens", [0, -1, 2**31, 10**400]),
        ("n", [0, -1, 10_001]),
        ("seed", [-1, 2**62 + 1, 2**64, 10**400]),
        ("reserve", [-1, 2**31]),
        ("stop", [("",), ("a", "")]),
    ],
)
def test_values_out_of_range_are_rejected(field, values):
    for value in values:
        with pytest.raises(ConfigError, match=field):
            Sampling(**({"max_tokens": 8} | {field: value}))


@pytest.mark.parametrize(
    ("given", "used"), [(0, 0), (1e-300, 0.01), (5e-324, 0.01), (0.01, 0.01), (0.7, 0.7), (100, 100)]
)
def test_very_low_temperature_is_raised(given, used):
    assert Sampling(max_tokens=8, temperature=given).temperature == used
