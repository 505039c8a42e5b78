"""The bytes that judges read."""

import json

import pytest

from judgelm.errors import ConfigError
from judgelm.prompts.catalog import TEMPLATES, get_template
from judgelm.records import Sample

SAMPLE = Sample(id="1", question="Why?", answers=("Because.", "No idea."), reference="So.")

# A change here is a change of what every trained judge expects: give the template a new id instead.
GOLDEN_SHA = {
    "judgelm-v1": "5d23d777ff49d8d6f3c5066f8e5c0f6a1d3f34508815abf2f540eba482b3cb44",
    "judgelm-paper": "9bb91e8e1398b6bf5576283c0bb2b015e691d9deb2f5b498080ea7cfb9994cf7",
    "judgelm-chat": "6b585b6fdffce807346509155a69e401cb839542cc1554d27a1636abc223ada1",
    "judgelm-compact": "be4a2157e9fe5cb0cca34db5128d28ecbf0a6aacebd598c23e76e1c9dc98753e",
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
