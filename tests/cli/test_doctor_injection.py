"""`judgelm doctor --injection`: the table, the model's own tokens, attack success, and the exit code."""

import json

from judgelm.prompts import template
from judgelm.prompts.sanitization import Sanitizer


def test_every_family_is_listed_and_none_gets_through(cli):
    code, printed, _ = cli("judgelm", "doctor", "--injection", "--template", "judgelm-compact")
    assert code == 0
    assert "attacks on judgelm-compact and the parser; no model, so no tokens" in printed
    assert all(family in printed for family in ("block end", "look-alike", "role marker", "fake reference"))
    assert "none got out of its block" in printed


def test_a_models_tokens_are_attacked_and_its_judge_is_measured(cli, tiny_judge, tmp_path):
    out = tmp_path / "found.json"
    code, printed, said = cli(
        "judgelm",
        "doctor",
        "--injection",
        "--model",
        tiny_judge,
        "--engine",
        "transformers",
        "--seconds",
        1,
        "--json",
        out,
    )
    assert code == 0, said
    assert "attacks on judgelm-compact and the parser; its special tokens" in printed  # the card's template
    assert "verdicts moved towards the attacker" in printed
    found = json.loads(out.read_text())
    assert len(found["attacks"]) > 200
    assert found["attacks"][0].keys() == {"spoof", "defused", "escapes"}  # keys of earlier versions
    assert "place" in found["attacks"][0]["spoof"]
    assert found["swayed"]["share"]["n"] + found["swayed"]["already"] + found["swayed"]["unreadable"] > 0
    assert 0 <= found["swayed"]["share"]["low"] <= found["swayed"]["share"]["high"] <= 1


def test_an_attack_that_gets_through_is_named_and_ends_with_1(cli, monkeypatch):
    monkeypatch.setattr(template.Layout, "sanitizer", property(lambda layout: Sanitizer([])))
    code, printed, _ = cli("judgelm", "doctor", "--injection")
    assert code == 1
    assert "got through block end/[Question] in answer_" in printed
    assert "more in --json" in printed


def test_a_template_is_attacked_only_when_asked(cli):
    code, _, said = cli("judgelm", "doctor", "--template", "judgelm-compact")
    assert code == 1
    assert "--template is for --injection" in said
