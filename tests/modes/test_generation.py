"""Questions put to models, and a teacher's replies."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError
from judgelm.modes.generation import AnswerMode, AnswerTask, Decoding, TeacherMode
from judgelm.parsing.scores import split_score_line
from judgelm.prompts.catalog import get_template
from judgelm.records import PairVerdict, Sample, Span
from judgelm.runs.runner import drive as run
from tests.support.flows import SAMPLE, broken, drive, reply

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
    [[one]], _ = drive(AnswerMode(), [reply("x")], sample=warm)
    [[two]], _ = drive(AnswerMode(), [reply("x")], sample=AnswerTask(QUESTION, Decoding(temperature=0.7, seed=2)))
    assert one.sampling.temperature == two.sampling.temperature == 0.7
    assert one.sampling.seed != two.sampling.seed


def test_another_question_under_the_same_id_is_another_draw():
    assert DRAW.id != AnswerTask(Sample(id="7", question="how?", answers=()), Decoding()).id


def test_what_was_not_answered_has_no_text():
    _, answer = drive(AnswerMode(), [broken()], sample=DRAW)
    assert (answer.text, answer.failure.code, answer.failure.why) == (None, "engine", "out of order")


def test_the_runner_drives_answers_as_it_drives_judgments():
    draws = [AnswerTask(Sample(id=str(i), question=f"q{i}", answers=()), Decoding()) for i in range(20)]
    engine = ScriptedEngine(lambda prompt: prompt.spans[-1].text.upper(), max_in_flight=3)
    assert {one.draw.question.id: one.text for one in run(draws, AnswerMode(), engine)} == {
        str(i): f"Q{i}" for i in range(20)
    }


def test_a_plain_form_needs_a_place_for_the_question():
    with pytest.raises(ConfigError, match="it must hold"):
        AnswerMode(plain="Question:")


QA_SAMPLE = Sample(id="1", question="Which city?", answers=(), metadata={"context": "Paris lies on the Seine."})

CHOICE_SAMPLE = Sample(
    id="1", question="Which city?", answers=(), category="geography", metadata={"options": ["Rome", "Paris", "Oslo"]}
)


def shown(request):
    return "".join(span.text for span in request.prompt.spans)


def answered(sample, completion, **options):
    [[request]], answer = drive(AnswerMode(**options), [completion], sample=AnswerTask(sample, Decoding()))
    return shown(request), answer


def test_a_question_reaches_the_model_with_its_options():
    prompt, answer = answered(CHOICE_SAMPLE, reply("Paris"))
    assert prompt == "Which city?\nOptions:\nA. Rome\nB. Paris\nC. Oslo"
    assert answer.final is None


def test_the_papers_prompts_ask_by_task():
    # Figure 5, Figure 6, Figure 7 and Table 8
    assert answered(QUESTION, reply("The answer is 1,200."), task="number")[0].startswith(
        "The question is: why?. Let's"
    )
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


def test_a_letter_behind_the_options_is_no_answer():
    assert answered(CHOICE_SAMPLE, reply("The answer is (D)."), task="choice")[1].final is None


def test_an_answer_that_was_cut_off_may_lack_its_end():
    # "The answer is 1" could go on to be 12
    assert answered(QUESTION, reply("The answer is 1", finish="length"), task="number")[1].final is None


def test_the_answer_stands_in_the_last_tags():
    text = "First <ans> Rome </ans>, no: <ans> Paris </ans>."
    answer = answered(QA_SAMPLE, reply(text), task="qa")[1]
    assert (answer.final, answer.text) == ("Paris", text)


def test_the_original_rule_takes_the_first_tags_or_all():
    assert answered(QA_SAMPLE, reply("<ans>Rome</ans> <ans>Paris</ans>"), task="qa", tags="first")[1].final == "Rome"
    assert answered(QA_SAMPLE, reply("Paris "), task="qa", tags="first")[1].final == "Paris"


@pytest.mark.parametrize("completion", [reply("Paris"), reply("<ans> </ans>"), reply("Let me think", finish="length")])
def test_without_tags_there_is_a_reply_and_no_answer(completion):
    answer = answered(QA_SAMPLE, completion, task="qa")[1]
    assert (answer.final, answer.failure) == (None, None)
    assert answer.text


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"task": "number", "system": "Be brief."}])
def test_options_that_do_not_exist_or_do_not_fit_are_refused(options):
    with pytest.raises(ConfigError):
        AnswerMode(**options)


def judged(*args, **fields):
    [asked], judgment = drive(TeacherMode(), [reply(*args, **fields)])
    assert len(asked) == 1
    return judgment


def test_scores_and_reason_come_in_one_reply():
    judgment = judged("8 6\n\nAssistant 1 is right.\nAssistant 2 is not.\n")
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
        ("", "stop", "off_grammar"),
        ("Let me think about", "length", "truncated"),
    ],
)
def test_a_reply_without_scores_is_a_failure_that_keeps_its_text(text, finish, code):
    judgment = judged(text, finish=finish)
    assert (judgment.failure.code, judgment.scores, judgment.verdict) == (code, None, None)
    assert judgment.shown[0].text == text


def test_half_a_reason_is_not_kept_and_the_scores_are():
    judgment = judged("8 6\nAssistant 1 is", finish="length")
    assert (judgment.scores, judgment.reason, judgment.failure) == ((8.0, 6.0), None, None)
    assert judgment.shown[0].reason_failure.code == "truncated"


def test_scores_alone_lack_a_reason():
    assert judged("8 6\n").shown[0].reason_failure.why == "nothing follows the score line"


def test_the_reference_is_shown_where_the_sample_has_one():
    plain, referenced = (
        TeacherMode().request(Sample(id="1", question="q", answers=("a", "b"), reference=reference)).prompt
        for reference in (None, "r")
    )
    assert "[Reference Answer]" not in "".join(span.text for span in plain.spans)
    assert referenced == get_template("judgelm-paper").render(
        Sample(id="1", question="q", answers=("a", "b")), (0, 1), "r"
    )


def test_the_seed_is_the_samples_own():
    drawing = TeacherMode(temperature=0.7, seed=3)
    one, again = (drawing.request(SAMPLE).sampling for _ in range(2))
    other = drawing.request(Sample(id="2", question="q", answers=("a", "b"))).sampling
    assert one == again
    assert one.seed != other.seed
