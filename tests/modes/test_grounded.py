"""Claims of answers, passages of contexts, and the probability that a claim is supported."""

from functools import partial

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.modes import make_mode
from judgelm.modes.claims import split_claims
from judgelm.modes.grounded import Grounded
from judgelm.prompts.passages import halves, read_passages
from judgelm.prompts.prompt_file import parse_prompts
from judgelm.records import LabelVerdict, PairVerdict, RankingVerdict, Sample, Truncation
from judgelm.serialization import judgment_from_row, judgment_row
from tests.support.flows import broken, drive, reply, text_of, yes

ANSWER = "The tower is in Paris. It was built in 1889."

by_sentence = partial(Grounded, claims="sentences")


def grounded(*answers, context="The tower stands in Paris.", question="", **metadata):
    return Sample(id="1", question=question, answers=answers, metadata={"context": context, **metadata})


def test_an_answer_is_as_supported_as_its_weakest_claim():
    [requests], judgment = drive(by_sentence(), [yes(0.9), yes(0.2)], sample=grounded(ANSWER))
    texts = [text_of(request.prompt) for request in requests]
    assert texts[0].split("Statement: ")[0] == texts[1].split("Statement: ")[0]  # the context is a shared prefix
    assert "Statement: It was built in 1889." in texts[1]
    assert [(shown.part, shown.order) for shown in judgment.shown] == [
        ("The tower is in Paris.", (0,)),
        ("It was built in 1889.", (0,)),
    ]
    assert (judgment.verdict, judgment.scores) == (LabelVerdict(label="unsupported"), (pytest.approx(0.2),))
    assert judgment.probability == pytest.approx(0.2)
    assert judgment_from_row(judgment_row(judgment)) == judgment


@pytest.mark.parametrize(
    ("options", "score", "label"),
    [
        ({"aggregate": "mean"}, 0.55, "supported"),  # (0.9 + 0.2) / 2
        ({"aggregate": "share", "threshold": 0.6}, 0.5, "unsupported"),  # 1 of 2
        ({"threshold": 0.2}, 0.2, "supported"),
        ({"claims": "answer"}, 0.9, "supported"),
    ],
)
def test_aggregate_and_threshold_decide_the_label(options, score, label):
    replies = [yes(0.9), yes(0.2)][: 1 if "claims" in options else 2]
    _, judgment = drive(by_sentence(**options), replies, sample=grounded(ANSWER))
    assert (judgment.scores, judgment.verdict) == ((pytest.approx(score),), LabelVerdict(label=label))


def test_two_answers_are_compared_and_three_are_ranked():
    _, judgment = drive(by_sentence(), [yes(0.5), yes(0.4), yes(0.7)], sample=grounded("One is. Two is.", "Three is."))
    assert (judgment.verdict, judgment.scores) == (PairVerdict(winner=2), (pytest.approx(0.4), pytest.approx(0.7)))
    _, judgment = drive(by_sentence(), [yes(0.5), yes(0.4), yes(0.7)], sample=grounded("A.", "B.", "C."))
    assert judgment.verdict == RankingVerdict(order=((2,), (0,), (1,)))
    _, judgment = drive(by_sentence(tie_margin=0.1), [yes(0.5), yes(0.45)], sample=grounded("A.", "B."))
    assert judgment.verdict == PairVerdict(winner="tie")


def test_a_claim_that_cannot_be_judged_fails_the_judgment():
    for lost, code in ((broken(), "engine"), (yes(0.5, unassigned=0.6), "low_coverage")):
        _, judgment = drive(by_sentence(), [yes(0.9), lost], sample=grounded(ANSWER))
        assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, code)
        assert judgment.failure.why.startswith("It was built in 1889.: ")


def test_the_question_is_shown_if_there_is_one():
    [[request]], _ = drive(by_sentence(), [yes(0.9)], sample=grounded("Paris.", question="Where is it?"))
    assert "answer to this question: Where is it?" in text_of(request.prompt)
    [[request]], _ = drive(by_sentence(), [yes(0.9)], sample=grounded("Paris."))
    assert "question" not in text_of(request.prompt)


def test_a_context_that_is_too_long_is_read_in_halves_and_the_highest_probability_counts():
    sample = grounded("A claim.", context=["First.", "Second.", "Third one is long."])
    too_long = broken("too_long", "the prompt has 9 tokens")
    # whole, then [First. Second.] and [Third ...], then First. and Second.
    asked, judgment = drive(by_sentence(), [too_long], [too_long, yes(0.3)], [yes(0.8), yes(0.1)], sample=sample)
    assert ["First." in text_of(request.prompt) for request in asked[2]] == [True, False]
    [shown] = judgment.shown
    assert (shown.scores, shown.passage, shown.context_parts) == ((pytest.approx(0.8),), "1", 3)
    cut = yes(0.9, truncations=(Truncation(answer=0, tokens_before=9, tokens_after=5),))
    _, judgment = drive(
        by_sentence(), [cut], [yes(0.3), yes(0.2)], sample=grounded("A claim.", context=["One.", "Two."])
    )
    assert judgment.scores == (pytest.approx(0.3),)  # instead of 0.9 for the beginning of the claim
    _, judgment = drive(by_sentence(), [too_long], sample=grounded("A claim.", context="One sentence."))
    assert judgment.failure.code == "too_long"
    _, judgment = drive(
        by_sentence(), [too_long], [too_long, yes(0.3)], sample=grounded("A.", context=["First.", "B."])
    )
    assert judgment.failure.code == "too_long"  # a part that was not read could support the claim


def test_evidence_names_the_passage_that_supports_a_claim_best():
    chunks = [{"id": "x", "text": "Kale."}, {"page_content": "Leek.", "metadata": {"source": "b.pdf"}}]
    asked, judgment = drive(
        by_sentence(evidence=True),
        [yes(0.9), yes(0.2)],
        [yes(0.1), yes(0.3), yes(0.8), yes(0.2)],  # both claims with x, then with b.pdf
        sample=grounded("One. Two is.", context=chunks),
    )
    assert ["Kale." in text_of(request.prompt) for request in asked[1]] == [True, True, False, False]
    assert [(shown.passage, shown.scores[0]) for shown in judgment.shown] == [
        ("b.pdf", pytest.approx(0.9)),
        ("x", pytest.approx(0.2)),
    ]


def test_the_judge_can_list_the_claims():
    mode = Grounded(claims="judge")
    asked, judgment = drive(
        mode, [reply("1. It is red.\n- It is big.\n\n")], [yes(0.9), yes(0.6)], sample=grounded("x")
    )
    assert "List all factual claims" in text_of(asked[0][0].prompt)
    assert [shown.part for shown in judgment.shown] == ["It is red.", "It is big."]
    for lost, code in ((reply("A", finish="length"), "truncated"), (reply(" - \n"), "off_grammar")):
        _, judgment = drive(mode, [lost], sample=grounded("x"))
        assert (judgment.failure.code, judgment.verdict) == (code, None)


def test_claims_in_a_row_override_the_options():
    sample = grounded("a", "b", claims=[["One.", "Two."], ["Three."]])
    [requests], _ = drive(Grounded(claims="judge"), [yes(0.9)] * 3, sample=sample)
    assert len(requests) == 3
    [requests], _ = drive(by_sentence(), [yes(0.9)], sample=grounded("a. b is.", claims='["Only this."]'))
    assert "Statement: Only this." in text_of(requests[0].prompt)
    for answers, claims in ((("a",), "x"), (("a",), [1]), (("a", "b"), ["One."]), (("a",), [" "])):
        with pytest.raises(InputError, match='sample 1: field "claims": expected'):
            by_sentence().check(grounded(*answers, claims=claims))


def test_by_default_an_answer_is_checked_as_a_whole():
    [[request]], judgment = drive(Grounded(), [yes(0.7)], sample=grounded(ANSWER))
    assert f"Statement: {ANSWER}\n" in text_of(request.prompt)
    assert [shown.part for shown in judgment.shown] == [ANSWER]
    assert (judgment.verdict, judgment.scores) == (LabelVerdict(label="supported"), pytest.approx((0.7,)))


@pytest.mark.parametrize(
    ("sample", "finding"),
    [
        (grounded("A.", context=" "), "the context is empty"),
        (grounded("A.", context=None), "which is null"),
        (grounded("A.", context=[1]), "expected a context as"),
        (grounded("A.", context=[]), "the context is empty"),
        (grounded("A.", "# Title"), "answer 2 has no claims"),
        (grounded("A is. " * 1001), "answer 1 has 1,001 claims, more than 1,000"),
    ],
)
def test_samples_that_cannot_be_judged_are_refused(sample, finding):
    with pytest.raises(InputError, match=f"sample 1: .*{finding}"):
        by_sentence().check(sample)


def test_own_prompts_must_show_the_context_and_ask_for_a_label():
    [good] = parse_prompts("prompt: 'C: {context} A: {answer} Supported?'\nreply: Yes/No\n", "own.yaml")
    [[request]], _ = drive(
        make_mode("grounded", {}, {"prompt": good}), [reply("Yes", shares=[0.9, 0, 0.1, 0])], sample=grounded("B.")
    )
    assert text_of(request.prompt) == "C: The tower stands in Paris. A: B. Supported?"
    own = "prompt: '{policy} {context} {answer}?'\nreply: Yes/No\n"
    sample = grounded("B.", prompt_fields={"policy": "P", "context": "C"})
    [[request]], _ = drive(
        by_sentence(prompt=parse_prompts(own, "own.yaml")[0]), [reply("Yes", shares=[1, 0, 0, 0])], sample=sample
    )
    assert text_of(request.prompt) == "P C B.?"
    for text in ("prompt: 'A: {answer}?'\nreply: Yes/No\n", "prompt: 'C: {context} A: {answer}?'\nreply: 1-5\n"):
        [bad] = parse_prompts(text, "own.yaml")
        with pytest.raises(ConfigError, match="mode grounded requires a label reply and the slots"):
            by_sentence(prompt=bad)
    with pytest.raises(ConfigError, match=r"threshold is 1\.5; it must be between 0 and 1"):
        by_sentence(threshold=1.5)


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("Dr. Smith et al. came. He left.", ["Dr. Smith et al. came.", "He left."]),
        ("# Result\n\nIt works.\n\n---\n", ["It works."]),
        ("Are in:\n\n- France.\n- Spain. Since 1986.", ["Are in: France.", "Are in: Spain.", "Are in: Since 1986."]),
        ("1. Mix it.\n2. Bake it.", ["Mix it.", "Bake it."]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |", ["| a | b |\n| 1 | 2 |", "| a | b |\n| 3 | 4 |"]),
        ("Use this:\n\n```python\nx = 1. + 2\n```\n", ["Use this:", "x = 1. + 2"]),
        ("今天天气很好。我们去公园吧！", ["今天天气很好。", "我们去公园吧！"]),
        ("> Quoted. Twice.\n\nAll: 3", ["Quoted.", "Twice.", "All: 3"]),
        ("...\n\n***", []),
    ],
)  # fmt: skip
def test_answers_are_split_into_claims(answer, claims):
    assert [claim.in_full for claim in split_claims(answer)] == claims


def test_contexts_are_split_at_paragraphs_then_at_sentences():
    one = read_passages("One is. Two is.\n\nThree.", split=True)
    assert [passage.text for passage in one] == ["One is. Two is.", "Three."]
    assert [passage.text for passage in read_passages("One is. Two is.", split=True)] == ["One is.", "Two is."]
    assert read_passages('[{"id": 7, "text": "a"}]', split=False)[0] == ("7", "a")
    assert read_passages("[1] says so.", split=False)[0].text == "[1] says so."
    first, second = halves(read_passages(["a" * 9, "b", "c"], split=False))
    assert ([passage.id for passage in first], [passage.id for passage in second]) == (["1"], ["2", "3"])
