"""Modes from names and options, as a command line or a file gives them."""

import math
from dataclasses import fields

import pytest

from judgelm.errors import ConfigError
from judgelm.modes import CARD_FIELDS, MODES, Pairwise, make_mode


def test_a_mode_takes_its_options_and_what_is_the_judges_own():
    made = make_mode("pair", {"both_orders": True}, {"template": "judgelm-chat", "scale": (1, 5), "unheard_of": 1})
    assert made == Pairwise(both_orders=True, template="judgelm-chat", scale=(1, 5))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pairs", {}, "mode 'pairs' does not exist; did you mean pair?"),
        ("pair", {"tau": 1}, "mode pair: unknown option tau; it has: accept_one_order, both_orders"),
        ("pair", {"template": "judgelm-v1"}, "unknown option template"),
        ("pair", {"tie_threshold": "wide"}, "mode pair: tie_threshold: Input should be a valid number.*'wide'"),
        ("pair", {"order_rule": "best"}, "order_rule: Input should be 'mean', 'given', 'tie' or 'probability'"),
        ("pair", {"tie_threshold": 2}, "tie_threshold is 2.0"),
    ],
)
def test_what_a_mode_cannot_have_is_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_mode(name, options)


def numbers():
    """Every numeric option of every mode that a user can set."""
    for name, mode in MODES.items():
        for option in fields(mode):
            if option.name not in CARD_FIELDS and ("int" in str(option.type) or "float" in str(option.type)):
                yield name, option.name


@pytest.mark.parametrize(("name", "option"), list(numbers()))
def test_every_number_has_finite_bounds(name, option):
    for value in (math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e300, 2**63):
        with pytest.raises(ConfigError):
            make_mode(name, {option: value})
