"""What a run costs: before it starts, and over the sessions that it had."""

import json

import pytest

from judgelm.errors import ConfigError, InputError, RunError
from judgelm.modes.generation import TeacherMode
from judgelm.records import Sample
from judgelm.runs.teacher import Prices, TeacherPrompts, estimate, prices_of, spent_usd

PRICES = Prices(prompt=2, reply=10)


def test_an_estimate_has_an_expected_and_a_worst_cost():
    mode = TeacherMode(template="judgelm-compact", reason_tokens=200)
    requests = [mode.request(Sample(id=str(i), question="q", answers=("a", "b"))) for i in range(10)]
    cost = estimate(requests, len, expected_reply=50, max_reply=200)
    # "[Q] q\n[1] a\n[2] b\n[S]" has 21 characters, each counted as a token
    assert (cost.requests, cost.prompt_tokens) == (10, 210)
    # 210 at 2 and 500, or 2000, at 10 USD a million
    assert cost.usd(PRICES) == pytest.approx((0.00542, 0.02042))
    assert estimate([], len, expected_reply=500, max_reply=200).expected_reply == 200  # no longer than it may be


def write(folder, sessions, judgments):
    """A run of sessions (tokens of prompts and replies, and cost) and judgments (tokens of prompts and replies)."""
    out = folder / "out.jsonl"
    entries = [
        {"prompt_tokens": a, "completion_tokens": b, "engine": {} if cost is None else {"cost_usd_at_most": cost}}
        for a, b, cost in sessions
    ]
    (folder / "out.run.json").write_text(json.dumps({"fingerprint": {}, "provenance": {}, "sessions": entries}))
    out.write_text("".join(json.dumps({"prompt_tokens": a, "completion_tokens": b}) + "\n" for a, b in judgments))
    return out


@pytest.mark.parametrize(
    ("sessions", "judgments", "usd"),
    [
        ([(1000, 10, 0.0021)], [(1000, 10)], 0.0021),  # 1000 at 2 and 10 at 10 USD a million
        ([(1000, 10, 0.5)], [(1000, 10)], 0.5),  # replies that were billed and lost
        ([(0, 0, 0.0001)], [(1000, 10), (2000, 90)], 0.0071),  # killed before it was saved: 0.0001, and 0.007 judged
        ([(1000, 10, 0.5), (0, 0, 0.0001)], [(1000, 10), (2000, 90)], 0.505),  # 0.007 + (0.5 - 0.0021) + 0.0001
        ([(1000, 10, None)], [(1000, 10)], 0.0021),  # an engine that counts no cost
        ([], [], 0.0),
    ],
)
def test_what_was_spent_is_what_was_judged_and_what_was_lost(tmp_path, sessions, judgments, usd):
    assert spent_usd(write(tmp_path, sessions, judgments), PRICES) == pytest.approx(usd)


def test_what_was_spent_on_an_unknown_run_is_not_guessed(tmp_path):
    assert spent_usd(tmp_path / "out.jsonl", PRICES) == 0.0  # it has not begun
    (tmp_path / "out.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match="is missing"):
        spent_usd(tmp_path / "out.jsonl", PRICES)


def test_prices_come_in_twos_and_ids_that_look_like_prompts_are_refused():
    with pytest.raises(InputError, match=r"#reference .*#swapped.* reserved"):
        list(TeacherPrompts()(Sample(id="1#swapped", question="q", answers=("a", "b"))))
    assert prices_of({}) is None
    assert prices_of({"price_in": 0, "price_out": 1.5}) == Prices(prompt=0, reply=1.5)
    for given in ({"price_in": 1}, {"price_in": "1", "price_out": 2}, {"price_in": -1, "price_out": 2}):
        with pytest.raises(ConfigError, match="set both price_in and price_out"):
            prices_of(given)
