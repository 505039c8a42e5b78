"""Modes from names and options, as a command line or a file gives them: what options and samples they refuse."""

import math
from dataclasses import fields

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.modes import CARD_FIELDS, MODES, Pairwise, make_mode, mode_type
from judgelm.records import Sample


def test_a_mode_takes_its_options_and_what_is_the_judges_own():
    made = make_mode("pair", {"both_orders": True}, {"template": "judgelm-chat", "scale": (1, 5), "unheard_of": 1})
    assert made == Pairwise(both_orders=True, template="judgelm-chat", scale=(1, 5))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pairs", {}, "mode 'pairs' does not exist; did you mean pair?"),
        ("pair", {"tau": 1}, "mode pair: unknown option tau; available options: accept_one_order, both_orders"),
        ("pair", {"template": "judgelm-v1"}, "unknown option template"),
        ("pair", {"tie_threshold": "wide"}, "mode pair: tie_threshold: Input should be a valid number.*'wide'"),
        ("pair", {"order_rule": "best"}, "order_rule: Input should be 'mean', 'given', 'tie' or 'probability'"),
        ("pair", {"tie_threshold": 2}, r"tie_threshold is 2\.0"),
        ("pair", {"order_rule": "given", "accept_one_order": True}, "remove accept_one_order"),
        ("pair", {"reasons": "flips"}, "add --both-orders"),
        ("pair", {"close_threshold": 0.6}, r"close_threshold is 0\.6"),
        ("pair", {"reason_tokens": 0}, "reason_tokens is 0"),
        ("single", {"max_tokens": 0}, "max_tokens is 0"),
        ("multi", {"permutations": 0}, "permutations is 0"),
        ("multi", {"min_answer_tokens": 15}, "minimum is 16"),
        ("multimodal", {"wording": "x"}, "wording"),
        ("multimodal", {"max_tokens": 0}, "max_tokens is 0"),
        ("qa", {"shots": 1}, "shots"),
        ("qa", {"exact": "squad"}, "exact"),
        ("qa", {"max_tokens": 0}, "max_tokens is 0"),
        ("qa", {"distribution": True, "labels": "original"}, "requires labels strict"),
        ("qa", {"shots": 2, "with_context": True, "wording": "released"}, "shots=6"),
        ("qa", {"shots": 6, "wording": "released"}, "shots=6"),
        ("correctness", {"max_tokens": 0}, "max_tokens is 0"),
        ("correctness", {"temperature": -1}, "temperature"),
        ("ssr", {"task": "preference"}, "no final answers to compare"),
        ("ssr", {"tau": 1.2}, r"tau is 1\.2"),
        ("ssr", {"solves": 0}, "solves is 0"),
        ("ssr", {"solve_temperature": 0}, "5 solves at temperature 0"),
        ("ssr", {"solve_temperature": -1}, "solve_temperature"),
        ("ssr", {"max_tokens": 0}, "max_tokens is 0"),
        ("chat", {"reply_tokens": 0}, "reply_tokens is 0"),
    ],
)
def test_what_a_mode_cannot_have_is_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_mode(name, options)


@pytest.mark.parametrize(
    "card", [{"step": 0}, {"step": 0.01, "distribution": True}, {"scale": (0, 1000), "retry_unparseable": True}]
)
def test_a_card_of_too_many_scores_is_refused(card):
    with pytest.raises(ConfigError, match=r"must be above 0|has \d+ scores"):
        Pairwise(**card)


def sample(*answers, **fields):
    return Sample(id="x", question="q", answers=answers, **fields)


@pytest.mark.parametrize(
    ("name", "options", "given", "finding"),
    [
        ("single", {}, sample("a", "b"), "expected 1 answer, got 2"),
        ("single", {"against": "reference"}, sample("a"), "no reference to grade against"),
        ("single", {"against": "anchor"}, sample("a"), "no anchor"),
        ("single", {"against": "anchor"}, sample("a", metadata={"anchor": 3}), "expected a string"),
        ("multimodal", {}, sample("a"), "one answer and a reference, got 1 answer"),
        ("multimodal", {"images": "use"}, sample("a", reference="r"), "no image"),
        ("rubric", {}, sample("a", "b"), "expected 1 answer, got 2"),
        ("correctness", {}, sample("a", "b"), "expected 1 answer, got 2"),
        ("qa", {}, sample("a"), "one answer and a reference, got 1 answer"),
        ("qa", {}, sample("a", "b", reference="c"), "got 2 answer"),
        ("qa", {"with_context": True}, sample("a", reference="c"), 'no "context"'),
        ("ssr", {}, sample("a"), "expected 2 answers, got 1"),
        ("reasoned", {}, sample("a", "b", "c"), "expected 2 answers, got 3"),
        ("conversation", {}, sample("a", "b", "c"), "expected 1 or 2 answers, got 3"),
        ("chat", {}, sample("a", "b", metadata={"follow_ups": "Why?"}), "follow_ups: expected a list of questions"),
        ("chat", {}, sample("a", "b", metadata={"follow_ups": ["Why?", 7]}), "expected a list of questions"),
        ("chat", {}, sample("a", "b", metadata={"follow_ups": ["Why?", ""]}), "expected a list of questions"),
    ],
)
def test_a_sample_without_what_the_mode_needs_is_refused(name, options, given, finding):
    with pytest.raises(InputError, match=f"sample x: .*{finding}"):
        next(make_mode(name, options)(given))


def numbers():
    """Every numeric option of every mode that a user can set."""
    for name in MODES:
        for option in fields(mode_type(name)):
            if option.name not in CARD_FIELDS and ("int" in str(option.type) or "float" in str(option.type)):
                yield name, option.name


@pytest.mark.parametrize(("name", "option"), list(numbers()))
def test_every_number_has_finite_bounds(name, option):
    for value in (math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e300, 2**63):
        with pytest.raises(ConfigError):
            make_mode(name, {option: value})
