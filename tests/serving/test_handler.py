"""The handler: what is asked for a request, what fails, what is judged once, and what stands beside a reply."""

import asyncio
import re
import threading
from dataclasses import replace

import pytest

from judgelm.dialects.catalog import recognise
from judgelm.dialects.contract import ChatRequest, Message
from judgelm.errors import BusyError, InputError
from judgelm.records import Sample
from judgelm.serving import handler as handler_module
from judgelm.serving.chat_response import UnjudgedError
from judgelm.serving.tasks import ModeTask, headed_question, read_task
from tests.support import captures
from tests.support.known_judge import KnownEngine, handler_of, opinion
from tests.support.served import HeldEngine

HELLO = ChatRequest(messages=(Message(role="user", text="Hello, who are you?"),))
NATIVE = {"question": "q", "answer_1": "one", "answer_2": "two"}


def pandalm(first, second, **more):
    text = (
        "Below are two responses for a given task. The task is defined by the Instruction. Evaluate the responses and "
        f"generate a reference answer for the task.\n\n### Instruction:\nq\n\n### Response 1:\n{first}\n\n"
        f"### Response 2:\n{second}\n\n### Evaluation:\n"
    )
    return ChatRequest(messages=(Message(role="user", text=text),), **more)


def ask(handler, asked):
    return asyncio.run(handler.respond(asked))


def verdicts(response):
    return [text.split("\n")[0] for text in response.reply.texts]


def first_captured(shared_data, folder):
    return next(asked for _, asked in captures.requests(shared_data, folder))


def test_in_both_orders_a_judge_that_prefers_the_first_is_undecided():
    for both_orders, verdict in ((False, "1"), (True, "Tie")):
        with handler_of(KnownEngine(lambda prompt: {"9 4": 1.0}), both_orders=both_orders) as handler:
            assert verdicts(ask(handler, pandalm("a", "b"))) == [verdict]
            assert len(handler.judge.engine.prompts) == 1 + both_orders


def test_both_orders_show_each_of_four_answers_at_each_place(shared_data):
    asked = first_captured(shared_data, "rewardbench_v2_four")
    with handler_of(both_orders=True) as handler:
        ask(handler, asked)
        prompts = handler.judge.engine.prompts
        shown = [[span.text for span in prompt.spans if span.kind == "answer"] for prompt in prompts]
        assert len(shown) == 4
        assert {frozenset(places) for places in zip(*shown, strict=True)} == {frozenset(shown[0])}


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ({"I would rather not say": 1.0}, "off_grammar"),
        ({"80 6": 1.0}, "out_of_range"),
        ({"word " * 30: 1.0}, "truncated"),
        ({"Assistant 1": 0.4, "8 6": 0.3, "9 6": 0.3}, "off_grammar"),  # a likely distribution does not save it
    ],
)
def test_an_unreadable_verdict_is_a_failure_not_a_tie(lines, code):
    with handler_of(KnownEngine(lambda prompt: lines)) as handler, pytest.raises(UnjudgedError, match=code) as failed:
        ask(handler, pandalm("a", "b"))
    assert failed.value.failure.code == code


def test_one_unreadable_pair_of_a_batch_fails_it(shared_data):
    answers = []

    def third_is_odd(prompt):
        key = tuple(span.text for span in prompt.spans)
        answers.append(key) if key not in answers else None
        return {"no idea": 1.0} if answers.index(key) == 2 else opinion(prompt)

    with handler_of(KnownEngine(third_is_odd)) as handler, pytest.raises(UnjudgedError, match="off_grammar"):
        ask(handler, first_captured(shared_data, "alpaca_eval__alpaca_farm_greedy_gpt4"))


@pytest.mark.parametrize(
    ("folder", "max_tokens", "prompts"),
    [
        ("pandalm_prompt_only", 150, 2),
        ("pandalm_prompt_only", 10, 1),  # no room
        ("rewardbench_v1_offsetbias", 2048, 1),  # no place
        ("deepeval_geval_openai", None, 0),  # nothing to judge
    ],
)
def test_reasons_are_written_only_where_a_reply_has_room(shared_data, folder, max_tokens, prompts):
    request = replace(first_captured(shared_data, folder), max_tokens=max_tokens)
    for reasons, asked in ((True, prompts), (False, min(prompts, 1))):
        with handler_of(KnownEngine(reason="The first one is right."), reasons=reasons) as handler:
            text = "".join(ask(handler, request).reply.texts)
            assert len(handler.judge.engine.prompts) == asked
            assert ("The first one is right." in text) == (asked == 2)


def test_a_missing_reason_is_noted_and_the_verdict_kept():
    with handler_of(KnownEngine(reason=""), reasons=True) as handler:
        response = ask(handler, pandalm("a", "b"))
        assert verdicts(response) in (["1"], ["2"], ["Tie"])
        [note] = response.notes
        assert "valid reason: off_grammar, " in note


def together(handler, *works):
    """All at once, answered only when all are in flight; the results and how often the engine was asked."""
    engine = handler.judge.engine

    async def run():
        tasks = [asyncio.ensure_future(work) for work in works]
        await asyncio.sleep(0.2)
        engine.gate.set()
        return await asyncio.gather(*tasks)

    return asyncio.run(run()), len(engine.prompts)


def test_the_same_request_in_flight_is_judged_once():
    with handler_of(HeldEngine()) as handler:
        same = (pandalm("a", "b", **options) for options in ({}, {"temperature": 1.5}, {"n": 4}))
        requests = (*same, pandalm("b", "a"))
        (first, same, more, _), asked = together(handler, *map(handler.respond, requests))
        assert asked == 2  # the number of replies and the temperature do not change what the judge reads
        assert (first, len(more.reply.texts)) == (same, 4)
        assert (handler.worker.counts.submitted, handler.worker.counts.joined) == (4, 2)


@pytest.mark.parametrize(
    "change", [{"reference": "r"}, {"question": "p"}, {"options": {"both_orders": True}}, {"mode": "multi"}]
)
def test_samples_that_differ_beyond_the_answers_are_judged_apart(change):
    with handler_of(HeldEngine()) as handler:
        together(handler, *(handler.run_task(read_task(NATIVE | {"id": "1"} | more)) for more in ({}, change)))
        assert handler.worker.counts.joined == 0


@pytest.mark.parametrize(("options", "judged"), [({}, 1), ({"temperature": 0.7}, 2)])  # an id seeds its draws
def test_equal_samples_under_other_ids_are_judged_once_and_keep_their_ids(options, judged):
    with handler_of(HeldEngine()) as handler:
        tasks = [read_task(NATIVE | {"id": key, "options": options}) for key in ("1", "2", "2")]
        judgments, asked = together(handler, *map(handler.run_task, tasks))
        assert ([judgment.sample_id for judgment in judgments], asked) == (["1", "2", "2"], judged)


def test_a_long_request_is_recognised_in_another_thread(monkeypatch):
    """Its recognition must not run where all other requests wait for it."""
    threads = []

    def noting(request):
        threads.append(threading.current_thread())
        return recognise(request)

    monkeypatch.setattr(handler_module, "recognise", noting)
    with handler_of() as handler:
        for answer in ("short", "long " * 10_000):
            asyncio.run(handler.respond(pandalm(answer, "b")))
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def test_a_batch_that_does_not_fit_leaves_the_queue_empty(shared_data):
    with handler_of(HeldEngine()) as handler:
        handler.worker.max_queue = 3
        with pytest.raises(BusyError):
            ask(handler, first_captured(shared_data, "alpaca_eval__alpaca_farm_greedy_gpt4"))
        assert handler.worker.in_flight == 0
        handler.judge.engine.gate.set()


METADATA = {"criterion": "Is it kind?", "context": "It rained.", "inputs": (("user_query", "x"), ("tone", "dry"))}
HEADED = "q\n\nContext:\nIt rained.\n\nUser query:\nx\n\nTone:\ndry\n\nEvaluation criterion:\nIs it kind?"


@pytest.mark.parametrize(
    ("question", "metadata", "headed"),
    [("q", METADATA, HEADED), (" q\n", {}, " q\n"), ("", {"criterion": "c"}, "Evaluation criterion:\nc")],
)
def test_metadata_of_the_question_has_headings(question, metadata, headed):
    assert headed_question(Sample(id="1", question=question, answers=(), metadata=metadata)) == headed


def prompt_of(request):
    with handler_of() as handler:
        ask(handler, request)
        [prompt] = handler.judge.engine.prompts
        return prompt


@pytest.mark.parametrize("folder", ["prometheus_absolute", "ragas_rubrics_langchain", "promptfoo_closedqa"])
def test_the_criterion_reaches_the_judge(shared_data, folder):
    request = first_captured(shared_data, folder)
    shown = "".join(span.text for span in prompt_of(request).spans if span.kind == "question")
    criterion = recognise(request)[1].sample.metadata["criterion"]
    assert re.sub(r"\W", "", criterion) in re.sub(r"\W", "", shown)  # its signs may be sanitized


@pytest.mark.parametrize("folder", ["fastchat_pair_mt", "rewardbench_v1_pair_mt", "fastchat_single_math_mt"])
def test_a_dialogue_is_judged_by_its_last_turn_with_the_others_before_it(shared_data, folder):
    prompt = prompt_of(first_captured(shared_data, folder))
    assert "[Turn 2]" in "".join(span.text for span in prompt.spans)


def test_images_are_refused_before_judging_if_the_engine_does_not_support_them():
    sample = replace(read_task(NATIVE).sample, images=("data:,x",))
    with handler_of() as handler:
        handler.judge.engine.supports_images = False
        with pytest.raises(InputError, match="does not support images"):
            asyncio.run(handler.run_task(ModeTask(sample=sample)))
        assert handler.worker.counts.submitted == 0
