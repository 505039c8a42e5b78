"""The bytes that judges read."""

import json

import pytest

from judgelm.errors import ConfigError
from judgelm.prompts.catalog import TEMPLATES, get_template
from judgelm.records import Sample

SAMPLE = Sample(id="1", question="Why?", answers=("Because.", "No idea."), reference="So.")

# A change here is a change of what every trained judge expects: give the template a new id instead.
GOLDEN_SHA = {
    "judgelm-v1": "63beb0615b30431fa53eed744fa38c22e55f0153087f22a6c57116d23f5843c8",
    "judgelm-paper": "d6d1247f2fecacb8fec5898a312c99c21a7d9897024b478c078902b06d1fa044",
    "judgelm-chat": "86cf0d3a41068163cb815b6c7ab2455c912e611a4fc060022c6bf190a997f3da",
    "judgelm-compact": "659dceccf822cf439c0b6ba7ca377a7846828ffbb6656b4e4f8a6ff6b20f5e69",
}


def text_of(prompt):
    return "".join(span.text for span in prompt.spans)


def test_template_bytes_are_pinned():
    assert {name: template.sha for name, template in TEMPLATES.items()} == GOLDEN_SHA


@pytest.mark.parametrize("folder", ["judgelm_prompt_only", "judgelm_ref_prompt_only"])
def test_v1_gives_the_original_codes_bytes(shared_data, folder):
    compared = 0
    for line in (shared_data / "dialects" / folder / "requests.jsonl").read_text(encoding="utf-8").split("\n"):
        if not line:
            continue
        captured = json.loads(line)
        item = captured["item"]
        sample = Sample(id=item["id"], question=item["question"], answers=tuple(item["answers"]))
        prompt = get_template("judgelm-v1").render(sample, (0, 1), item["reference"])
        if prompt.neutralised == 0:
            assert text_of(prompt) == captured["body"]["prompt"]
            compared += 1
    assert compared == 4  # the fifth item is the look-alike, whose [System] must not stay as it is


def test_the_papers_reference_prompt_says_based_on_the_reference():
    # Figure 4 changes the instruction where a reference is shown; the original code does not.
    paper = text_of(get_template("judgelm-paper").render(SAMPLE, (0, 1), "So."))
    code = text_of(get_template("judgelm-v1").render(SAMPLE, (0, 1), "So."))
    assert "Based on the reference answer, please rate" in paper
    assert "Based on the reference answer" not in code
    assert code.endswith("\n\n### Response:")


def test_order_exchanges_the_answers_and_nothing_else():
    swapped = text_of(get_template("judgelm-compact").render(SAMPLE, (1, 0), None))
    assert swapped == "[Q] Why?\n[1] No idea.\n[2] Because.\n[S]"


def test_chat_messages_carry_roles():
    prompt = get_template("judgelm-chat").render(SAMPLE, (0, 1), None)
    assert prompt.chat
    assert [span.role for span in prompt.spans][:2] == ["system", "user"]


def test_an_unknown_template_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean judgelm-paper"):
        get_template("judgelm-papr")
