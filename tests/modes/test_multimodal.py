"""One answer to a question about an image, graded behind one that is known to be right."""

from dataclasses import replace

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.modes.single import Multimodal
from judgelm.records import GradeVerdict, Sample
from tests.support.flows import broken, drive, reply

SHAMPOO = Sample(
    id="1", question="What is right of the shampoo?", answers=("A conditioner.",), reference="conditioner<OR>balm"
)


def test_the_second_score_is_the_grade():
    # the prompt ends in the forced 10, the judge goes on: "10 7"
    [asked], judgment = drive(Multimodal(), [reply(" 7")], sample=SHAMPOO)
    assert asked[0].prompt.prefill == "10"
    assert judgment.verdict == GradeVerdict(score=7.0)
    assert (judgment.scores, judgment.shown[0].text, judgment.shown[0].anchor) == ((7.0,), "10 7", 10.0)


def test_without_anchor_the_judge_writes_both():
    [asked], judgment = drive(Multimodal(anchored=False), [reply("9 2")], sample=SHAMPOO)
    assert asked[0].prompt.prefill == ""
    assert (judgment.scores, judgment.shown[0].anchor) == ((2.0,), 9.0)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        (reply(" good"), "off_grammar"),
        (reply(" 11"), "out_of_range"),
        (reply(" 7", finish="length"), "truncated"),
        (reply("7"), "off_grammar"),  # 107 is one number: whether 7 was meant is a guess
        (broken(), "engine"),
        (broken("too_long"), "too_long"),
    ],
)
def test_what_cannot_be_read_is_a_failure(completion, code):
    _, judgment = drive(Multimodal(), [completion], sample=SHAMPOO)
    assert judgment.failure.code == code
    assert judgment.verdict is None
    assert judgment.scores is None


def test_samples_that_cannot_be_judged_are_named():
    with pytest.raises(InputError, match="one answer and a reference, got 1 and none"):
        Multimodal().check(Sample(id="1", question="q", answers=("a",)))


def test_images_are_shown_where_asked_for():
    seen = replace(SHAMPOO, images=("a.png",))
    shown = {images: Multimodal(images=images).prompt_of(seen).images for images in ("ignore", "auto", "use")}
    assert shown == {"ignore": (), "auto": ("a.png",), "use": ("a.png",)}
    assert Multimodal(images="auto").prompt_of(SHAMPOO).images == ()
    with pytest.raises(InputError, match="no image to show the judge"):
        Multimodal(images="use").check(SHAMPOO)


@pytest.mark.parametrize("options", [{"wording": "x"}, {"max_tokens": 0}])
def test_options_are_checked(options):
    with pytest.raises(ConfigError):
        Multimodal(**options)
