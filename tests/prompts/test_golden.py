"""The bytes of every prompt that judgelm has, by their hashes, and some of them whole.

A change here is a change of what trained judges expect and of what was measured: give the template a new id instead.
"""

import json
from pathlib import Path

import pytest

from judgelm.modes.multimodal import MULTIMODAL_TEMPLATES
from judgelm.modes.qa import QA_ANSWERING, qa_template
from judgelm.modes.rubric import PLAY_FAVORITES, scales_sha
from judgelm.prompts.catalog import TEMPLATES, get_template, grading_family, grading_prompt
from judgelm.prompts.conversation import dialogue_sha, talk_sha
from judgelm.prompts.self_reference import SELF_REFERENCE, SSR
from judgelm.records import Sample

GOLDEN = Path(__file__).parents[1] / "golden"
SCORED = [name for name, template in TEMPLATES.items() if not template.reasons_first]
QA = [
    qa_template(shots, context, words) for shots in (6, 2, 0) for context in (1, 0) for words in ("paper", "reworded")
]
SHAS = {
    "pairs": {name: template.sha for name, template in TEMPLATES.items()},
    "answers": {f"{name} {count}": get_template(name).sha_for(count) for name in SCORED for count in (1, 3, 4, 20)},
    "dialogues": {name: dialogue_sha(get_template(name)) for name in SCORED},
    "talk": {name: talk_sha(get_template(name)) for name in SCORED},
    "qa": {template.id: template.sha for template in (*QA, qa_template(6, True, "released"), QA_ANSWERING)},
    "multimodal": {wording: template.sha for wording, template in MULTIMODAL_TEMPLATES.items()},
    "rubric": {name: scales_sha([scale]) for name, scale in PLAY_FAVORITES.items()},
    "others": {family.id: family.sha for family in (grading_family((1, 10)), SELF_REFERENCE, SSR)},
}


@pytest.mark.parametrize("kind", SHAS)
def test_the_bytes_are_pinned(kind):
    assert SHAS[kind] == json.loads((GOLDEN / "template_shas.json").read_text())[kind]


ANSWERS = ("Air scatters blue light most.", "No idea.", "It mirrors the sea.", "Blue paint.")
SKY = Sample(id="sky", question="Why is the sky blue?\nIn one line.", answers=ANSWERS)
ROOTS = Sample(id="x", question="What is d?\nIn the last.", answers=("x is 8x.",), reference="-1<AND>-5")
EQUATION = Sample(
    id="d",
    question="What is d in the last equation?",
    answers=("x in the equation is 8x + 11 = 4x + 14.",),
    reference="0.75<OR>=0.75<OR>3/4",
)
DIRECTOR = {
    "question": "What nationality is the director?",
    "gold": "United States",
    "predicted": "American",
    "context": "He was born in Ohio.",
}


def sky(name, order, reference=None):
    return get_template(name).render(SKY, order, reference)


PROMPTS = {
    # Figures 5 and 6 as the paper prints them
    "judgelm-paper-single": sky("judgelm-paper", (0,), "Rayleigh scattering."),
    "judgelm-paper-three": sky("judgelm-paper", (0, 1, 2)),
    # Figure 3 with what the original code changes: a blank line before each end, blocks put in before [System]
    "judgelm-v1-single": sky("judgelm-v1", (0,), "Rayleigh scattering."),
    "judgelm-v1-three-with-reference": sky("judgelm-v1", (0, 1, 2), "Rayleigh scattering."),
    "judgelm-v1-four": sky("judgelm-v1", (0, 1, 2, 3)),
    "judgelm-grade": grading_prompt(SKY, (1, 10), chat=False),
    "multimodal-v1": MULTIMODAL_TEMPLATES["code"].render(ROOTS),
    "multimodal-paper": MULTIMODAL_TEMPLATES["paper"].render(EQUATION),
    "qa-6-shot": qa_template(6, True).render(DIRECTOR, chat=True),
    "qa-0-shot-no-context": qa_template(0, False).render(DIRECTOR, chat=True),
    "qa-answering": QA_ANSWERING.render(DIRECTOR, chat=True),
}


@pytest.mark.parametrize("file", PROMPTS)
def test_a_rendered_prompt_has_the_published_bytes(file):
    prompt = PROMPTS[file]
    roles = dict.fromkeys(span.role for span in prompt.spans)
    messages = ["".join(span.text for span in prompt.spans if span.role == role) for role in roles]
    assert ("\n---\n".join(messages) + prompt.prefill).encode() == (GOLDEN / "prompts" / f"{file}.txt").read_bytes()
