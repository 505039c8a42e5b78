"""Judges that others released, run as ours are; the format of their replies."""

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.judges.released import released_judge
from judgelm.modes.released import MarkedReply, ReleasedMode, ReleasedPrompt
from judgelm.records import GradeVerdict, Sample, Unparsed
from tests.support.flows import SAMPLE, drive, reply, text_of

ONE = Sample(id="1", question="q", answers=("a",))
AUTO_J = released_judge("auto-j").tasks["pair"]
PROMPTS = {
    "pandalm": released_judge("pandalm").prompt("pair"),
    "prometheus-relative": released_judge("prometheus-2").prompt("pair"),
    "prometheus-absolute": released_judge("prometheus-2").prompt("single"),
    "prometheus-1": released_judge("prometheus-1").prompt("single"),
    "auto-j": ReleasedPrompt(
        id="auto-j",
        texts={"": "Compare.\n[Query]: {question}\n[Response 1]: {answer_1}\n[Response 2]: {answer_2}"},
        delimiters=AUTO_J.delimiters,
        reply=AUTO_J.reply,
    ),
}


def mode_of(judge_name, **options):
    return ReleasedMode(prompt=PROMPTS[judge_name], **options)


def judged(judge_name, *texts, sample=SAMPLE, finish="stop", **options):
    mode = mode_of(judge_name, both_orders=len(texts) == 2, **options)
    [requests], judgment = drive(mode, [reply(text, finish=finish) for text in texts], sample=sample)
    return requests, judgment


@pytest.mark.parametrize(
    ("judge_name", "text", "winner"),
    [
        ("pandalm", "1", 1),
        ("auto-j", "So, the final decision is Tie.", "tie"),
        ("prometheus-relative", "[RESULT] B", 2),
    ],
)
def test_one_order(judge_name, text, winner):
    _, judgment = judged(judge_name, text)
    assert (judgment.winner, judgment.failure, judgment.consistent) == (winner, None, None)
    assert judgment.shown[0].label == str(winner)


def test_two_orders_are_put_back_in_sample_order():
    # Shown swapped, "2" is the sample's first answer.
    asked, judgment = judged("pandalm", "1", "2")
    assert (judgment.winner, judgment.consistent) == (1, True)
    assert "### Response 1:\nb\n\n### Response 2:\na\n" in text_of(asked[1].prompt)
    # orders that disagree are a tie
    for replies in (("1", "1"), ("1", "Tie"), ("Tie", "2")):
        _, judgment = judged("pandalm", *replies)
        assert (judgment.winner, judgment.consistent) == ("tie", False)


def test_an_unreadable_order_is_a_failure_unless_one_order_is_enough():
    _, judgment = judged("auto-j", "So, the final decision is Response 1", "Hm.")
    assert (judgment.verdict, judgment.failure.code, judgment.consistent) == (None, "off_grammar", None)
    _, judgment = judged("auto-j", "So, the final decision is Response 1", "Hm.", accept_one_order=True)
    assert (judgment.winner, judgment.failure) == (1, None)


def test_a_grade_and_one_out_of_range():
    _, judgment = judged("prometheus-absolute", "Clear. [RESULT] 4", sample=ONE)
    assert (judgment.verdict, judgment.scores) == (GradeVerdict(score=4), (4,))
    _, judgment = judged("prometheus-absolute", "Superb. [RESULT] 6", sample=ONE)
    assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, "out_of_range")


def test_pandalms_label_counts_although_its_reason_was_cut_off():
    [request], judgment = judged("pandalm", "2\n\n### Reason: because it", finish="length", explain=True)
    assert (judgment.winner, request.sampling.stop) == (2, ())
    [request], judgment = judged("pandalm", "2", finish="length")  # it could have become 25
    assert (judgment.failure.code, request.sampling.stop) == ("truncated", ("\n\n",))


def test_pandalm_shows_an_instructions_input_apart():
    metadata = {"instruction": "Sum up.", "input": "A long text."}
    sample = Sample(id="1", question="Sum up.\n\nA long text.", answers=("a", "b"), metadata=metadata)
    asked, _ = judged("pandalm", "1", sample=sample)
    assert "### Instruction:\nSum up.\n\n### Input:\nA long text.\n\n### Response 1:" in text_of(asked[0].prompt)
    other = Sample(id="1", question="Another question.", answers=("a", "b"), metadata=metadata)
    asked, _ = judged("pandalm", "1", sample=other)
    assert "### Instruction:\nAnother question.\n\n### Response 1:" in text_of(asked[0].prompt)


def test_a_reference_is_shown_where_there_is_a_place_for_it():
    sample = Sample(id="1", question="q", answers=("a", "b"), reference="REF")
    shown = {name: "REF" in text_of(judged(name, "x", sample=sample)[0][0].prompt) for name in ("pandalm", "auto-j")}
    assert shown == {"pandalm": False, "auto-j": False}
    for reference, there in (("auto", True), ("use", True), ("ignore", False)):
        asked, _ = judged("prometheus-relative", "x", sample=sample, reference=reference)
        assert ("###Reference Answer:\nREF\n" in text_of(asked[0].prompt)) == there


def test_prometheus_1_always_expects_a_reference():
    assert mode_of("prometheus-1").reference == "use"
    with pytest.raises(InputError, match="requires a reference"):
        judged("prometheus-1", "x", sample=ONE)


def test_the_samples_rubric_goes_before_the_modes_and_ours():
    own = Sample(id="1", question="q", answers=("a",), metadata={"rubric": "[Is it kind?]"})
    assert "###Score Rubrics:\n[Is it kind?]\n" in text_of(judged("prometheus-absolute", "x", sample=own)[0][0].prompt)
    asked, _ = judged("prometheus-absolute", "x", sample=ONE, rubric="[Is it short?]")
    assert "###Score Rubrics:\n[Is it short?]\n" in text_of(asked[0].prompt)
    asked, _ = judged("prometheus-relative", "x")  # ours, without its levels
    assert "useful level of detail?]\n\n###Feedback:" in text_of(asked[0].prompt)


@pytest.mark.parametrize(
    ("judge_name", "options", "finding"),
    [
        ("prometheus-absolute", {"both_orders": True}, "remove --both-orders"),
        ("pandalm", {"reference": "use"}, "does not support references"),
        ("prometheus-1", {"reference": "ignore"}, "always requires a reference"),
        ("auto-j", {"rubric": "[Is it kind?]"}, "does not support rubrics"),
        ("auto-j", {"explain": True}, "always reasons before"),
        ("pandalm", {"max_tokens": 0}, "must be above 0"),
    ],
)
def test_options_and_samples_that_do_not_fit_are_rejected(judge_name, options, finding):
    with pytest.raises(ConfigError, match=finding):
        mode_of(judge_name, **options)
    with pytest.raises(InputError, match="expected 1 answer, got 2"):
        judged("prometheus-absolute", "x")


LETTERS = MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2", "A=B": "tie"})
GRADE = MarkedReply(before="**Result:**", scale=(1, 5))
BOXED = MarkedReply(before="\\boxed{", after="}", separator=",", scale=(1, 10), values=2)
DEDUCTED = MarkedReply(before="reduction of ", scale=(-10, 0), deducts=True)
BARE = MarkedReply(labels={"A": "1", "B": "2"})


def code(result):
    return result.code if isinstance(result, Unparsed) else getattr(result, "values", result)


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (LETTERS, "First ... so [[A]]", "1"),
        (LETTERS, "[[a=b]].", "tie"),
        (LETTERS, "[[A]] or rather [[B]]", "off_grammar"),
        (LETTERS, "[[A]] as I said [[A]]", "1"),
        (LETTERS, "[[rating]]", "off_grammar"),
        (LETTERS, "[[A", "off_grammar"),
        (LETTERS, "", "off_grammar"),
        (MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2"}, takes="last"), "[[A]] no, [[B]]", "2"),
        (GRADE, "**Reasoning:** well\n\n**Result:** 4", (4.0,)),
        (GRADE, "**Result:** 4/5\nthe end", (4.0,)),
        (GRADE, "**Result:** 7", "out_of_range"),
        (GRADE, "**Result:** four", "off_grammar"),
        (DEDUCTED, "2 errors, with a total score reduction of 4.5.\nError", (-4.5,)),
        (DEDUCTED, "0 errors, with a total score reduction of 0.", (0.0,)),
        (DEDUCTED, "with a total score reduction of 12", "out_of_range"),
        (BOXED, "<scores>\n\\boxed{9, 3}\n</scores>", (9.0, 3.0)),
        (BOXED, "\\boxed{9}", "off_grammar"),
        (BOXED, "\\boxed{9, 3} \\boxed{1, 2}", "off_grammar"),
        (BARE, " B.\n", "2"),
        (BARE, "B is better", "off_grammar"),
    ],
)
def test_what_a_reply_says(read, text, expected):
    assert code(read(text)) == expected


def test_a_format_has_labels_or_a_scale_and_reads_a_long_reply_quickly():
    with pytest.raises(ConfigError, match="labels or a scale"):
        MarkedReply(before="[[")
    assert code(LETTERS("[[" * 200_000)) == "off_grammar"
