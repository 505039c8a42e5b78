"""Questions put to models, and a teacher's replies."""

from dataclasses import replace

import pytest

from judgelm.errors import ConfigError
from judgelm.modes.generation import AnswerMode, AnswerTask, Decoding, TeacherMode
from judgelm.parsing.scores import split_score_line
from judgelm.prompts.catalog import get_template
from judgelm.records import PairVerdict, Sample, Span
from tests.support.flows import SAMPLE, broken, drive, reply, text_of

QUESTION = Sample(id="7", question="why?", answers=())

DRAW = AnswerTask(QUESTION, Decoding())


def test_a_chat_model_gets_messages():
    [[request]], answer = drive(AnswerMode(system="Be brief."), [reply(" so \n")], sample=DRAW)
    assert request.prompt.chat
    assert request.prompt.spans == (Span("Be brief.", "template", "system"), Span("why?", "question", "user"))
    assert (answer.text, answer.failure, answer.finish_reason) == ("so", None, "stop")


def test_a_base_model_gets_text_and_is_stopped_before_it_asks_on():
    [[request]], _ = drive(AnswerMode(chat=False), [reply("so")], sample=DRAW)
    assert "".join(span.text for span in request.prompt.spans) == "Question: why?\nAnswer:"
    assert request.sampling.stop == ("\nQuestion:",)


def test_a_decoding_has_a_name_and_the_question_its_own_seed():
    warm = AnswerTask(QUESTION, Decoding(temperature=0.7, seed=1))
    assert (DRAW.decoding.name, warm.decoding.name) == ("greedy", "temperature=0.7,seed=1")
    [[first]], _ = drive(AnswerMode(), [reply("x")], sample=warm)
    [[second]], _ = drive(AnswerMode(), [reply("x")], sample=AnswerTask(QUESTION, Decoding(temperature=0.7, seed=2)))
    assert first.sampling.temperature == second.sampling.temperature == 0.7
    assert first.sampling.seed != second.sampling.seed
    # another question with the same id is another draw
    assert DRAW.id != AnswerTask(Sample(id="7", question="how?", answers=()), Decoding()).id


def test_a_failed_request_has_no_text():
    _, answer = drive(AnswerMode(), [broken()], sample=DRAW)
    assert (answer.text, answer.failure.code, answer.failure.why) == (None, "engine", "out of order")


QA_SAMPLE = Sample(id="1", question="Which city?", answers=(), metadata={"context": "Paris lies on the Seine."})

CITIES = {"options": ["Rome", "Paris", "Oslo"]}
CHOICE_SAMPLE = Sample(id="1", question="Which city?", answers=(), category="geography", metadata=CITIES)


def answered(sample, completion, **options):
    [[request]], answer = drive(AnswerMode(**options), [completion], sample=AnswerTask(sample, Decoding()))
    return text_of(request.prompt), answer


def test_the_prompt_has_the_options_or_is_the_papers():
    prompt, answer = answered(CHOICE_SAMPLE, reply("Paris"))
    assert (prompt, answer.final) == ("Which city?\nOptions:\nA. Rome\nB. Paris\nC. Oslo", None)
    # Figure 5, Figure 6, Figure 7 and Table 8
    prompt, _ = answered(QUESTION, reply("The answer is 1,200."), task="number")
    assert prompt.startswith("The question is: why?. Let's")
    prompt, answer = answered(CHOICE_SAMPLE, reply("So the answer is (B)."), task="choice")
    assert "multiple-choice questions (with answers) about geography" in prompt
    assert (answer.final, answer.text) == ("B", "So the answer is (B).")
    pair = Sample(id="1", question="Which city?", answers=(), metadata={"pair": ["Rome", "Paris"]})
    prompt, answer = answered(pair, reply("[[B]]"), task="preference")
    assert "[The Start of Assistant B's Answer]\nParis\n" in prompt
    assert answer.final == "B"
    prompt, answer = answered(QA_SAMPLE, reply("<ans>Paris</ans>"), task="qa")
    assert prompt.endswith("* Question: Which city?\n* Context: Paris lies on the Seine.")
    assert answer.final == "Paris"


TWICE = "First <ans> Rome </ans>, no: <ans> Paris </ans>."


@pytest.mark.parametrize(
    ("sample", "completion", "options", "final"),
    [
        (QA_SAMPLE, reply(TWICE), {"task": "qa"}, "Paris"),
        (QA_SAMPLE, reply(TWICE), {"task": "qa", "tags": "first"}, "Rome"),  # as the original code
        (QA_SAMPLE, reply("Paris "), {"task": "qa", "tags": "first"}, "Paris"),
        (QA_SAMPLE, reply("Paris"), {"task": "qa"}, None),
        (QA_SAMPLE, reply("<ans> </ans>"), {"task": "qa"}, None),
        (QA_SAMPLE, reply("Let me think", finish="length"), {"task": "qa"}, None),
        (CHOICE_SAMPLE, reply("The answer is (D)."), {"task": "choice"}, None),  # behind the options
        (QUESTION, reply("The answer is 1", finish="length"), {"task": "number"}, None),  # it could become 12
    ],
)
def test_the_final_answer_of_a_reply_if_it_has_one(sample, completion, options, final):
    answer = answered(sample, completion, **options)[1]
    assert (answer.final, answer.failure, answer.text) == (final, None, completion.texts[0].strip())


@pytest.mark.parametrize(
    "options", [{"max_tokens": 0}, {"task": "number", "system": "Be brief."}, {"plain": "Question:"}]
)
def test_invalid_options_are_rejected(options):
    with pytest.raises(ConfigError):
        AnswerMode(**options)
    with pytest.raises(ConfigError, match="asks for one word"):
        TeacherMode(template="yes-no")


def taught(*args, **fields):
    [[_]], judgment = drive(TeacherMode(), [reply(*args, **fields)])
    return judgment


def test_scores_and_reason_come_in_one_reply():
    judgment = taught("8 6\n\nAssistant 1 is right.\nAssistant 2 is not.\n")
    assert (judgment.scores, judgment.verdict) == ((8.0, 6.0), PairVerdict(winner=1))
    assert judgment.reason == "Assistant 1 is right.\nAssistant 2 is not."
    assert judgment.shown[0].text == "8 6\n\nAssistant 1 is right.\nAssistant 2 is not.\n"
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (10, 3)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("8 6\nwhy", "8 6\n", "why"),
        ("\n\n8, 6\r\nwhy\nso", "8, 6\r\n", "why\nso"),
        ("Assistant 1: 8\nAssistant 2: 6\nwhy", "Assistant 1: 8\nAssistant 2: 6\n", "why"),
        ("**8 6**\n7 9 is not meant", "**8 6**\n", "7 9 is not meant"),
        ("8 6", "8 6", ""),
        ("no\nscores", "no\n", "scores"),
        ("", "", ""),
    ],
)
def test_where_the_score_line_ends(text, line, reason):
    assert split_score_line(text, (1, 10)) == (line, reason)


@pytest.mark.parametrize(
    ("text", "finish", "code"),
    [
        ("I would say 8 and 6", "stop", "off_grammar"),
        ("11 5\nwhy", "stop", "out_of_range"),
        ("8 1", "length", "truncated"),
    ],
)
def test_a_reply_without_scores_is_a_failure_that_keeps_its_text(text, finish, code):
    judgment = taught(text, finish=finish)
    assert (judgment.failure.code, judgment.scores, judgment.verdict) == (code, None, None)
    assert judgment.shown[0].text == text


@pytest.mark.parametrize("reference", [None, "r"])
def test_the_reference_is_shown_where_the_sample_has_one(reference):
    sample = replace(SAMPLE, reference=reference)
    expected = get_template("judgelm-paper").render(sample, (0, 1), reference)
    assert TeacherMode().request(sample).prompt == expected


@pytest.mark.parametrize(
    ("text", "finish", "code"), [("8 6\nAssistant 1 is", "length", "truncated"), ("8 6\n", "stop", "off_grammar")]
)
def test_scores_without_a_whole_reason_are_kept(text, finish, code):
    judgment = taught(text, finish=finish)
    assert (judgment.scores, judgment.reason, judgment.failure) == ((8.0, 6.0), None, None)
    assert judgment.shown[0].reason_failure.code == code
