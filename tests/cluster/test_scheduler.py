"""Who gets which request: windows, shared beginnings, lost workers; no process anywhere."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from judgelm.cluster.engine import Scheduler
from judgelm.records import Completion, Request, Sampling
from tests.support.driving import prompt_of


def request(key, question="what is it", answer="a big fox", prefill="", max_tokens=24):
    prompt = replace(prompt_of(answer, question), prefill=prefill)
    return Request(key=str(key), prompt=prompt, sampling=Sampling(max_tokens=max_tokens))


def scheduler_of(workers=2, window=100):
    scheduler = Scheduler()
    for worker in range(workers):
        scheduler.add_worker(worker, window)
    return scheduler


def finish(scheduler, worker, sent, now=1.0):
    return scheduler.complete(worker, Completion(key=sent.key, texts=("8 6",), finish_reasons=("stop",)), now)


def test_requests_are_spread_and_come_back_under_their_own_keys():
    scheduler = scheduler_of(2)
    scheduler.add(request(f"k{i}", question=f"q{i}") for i in range(6))
    dispatched = scheduler.dispatch(0.0)
    assert {worker: len(sent) for worker, sent in dispatched.items()} == {0: 3, 1: 3}
    keys = [finish(scheduler, worker, request).key for worker, sent in dispatched.items() for request in sent]
    assert sorted(keys) == [f"k{i}" for i in range(6)]
    assert not scheduler.is_busy


def test_both_orders_of_a_pair_and_its_reason_go_to_one_worker():
    scheduler = scheduler_of(2)
    scheduler.add(request(f"{pair}:{order}", f"q{pair}", f"answer {order}") for pair in (0, 1) for order in (0, 1))
    dispatched = scheduler.dispatch(0.0)
    shown = [{span.text for each in dispatched[worker] for span in each.prompt.spans} for worker in (0, 1)]
    assert [len(dispatched[worker]) for worker in (0, 1)] == [2, 2]
    [home] = [worker for worker, texts in enumerate(shown) if any("q1" in text for text in texts)]
    scheduler.add(request(f"new {i}", f"new {i}") for i in range(4))
    scheduler.add([request("1:0", "q1", prefill="8 6\n")])
    later = scheduler.dispatch(1.0)
    assert later[home][0].prompt.prefill == "8 6\n", "it goes first, and home"


def test_a_workers_tokens_in_flight_are_bounded():
    # each is more than 1,000 tokens (4,000 bytes, the template, a reply), and the window begins at 4,096
    scheduler = scheduler_of(1)
    scheduler.add(request(i, question=f"{i}" + "x" * 4000) for i in range(50))
    assert [len(scheduler.dispatch(0.0).get(0, [])) for _ in range(2)] == [4, 0]


def test_a_quick_worker_is_given_more_than_a_slow_one():
    scheduler = scheduler_of(2, window=10_000)
    scheduler.add(request(i, question=f"{i}" + "x" * 4000) for i in range(400))
    hands = {0: [], 1: []}
    for turn in range(1, 8):  # worker 0 answers all it has each second, worker 1 one request in 20 seconds
        for worker, sent in scheduler.dispatch(float(turn)).items():
            hands[worker] += sent
        for sent_request in hands[0]:
            finish(scheduler, 0, sent_request, turn + 1.0)
        hands[0] = []
        finish(scheduler, 1, hands[1].pop(0), turn + 20.0)
    scheduler.dispatch(9.0)
    assert scheduler.in_flight(0) > 10 * scheduler.in_flight(1) > 0


def test_a_late_answer_of_a_dropped_request_is_nobodys():
    scheduler = scheduler_of(1)
    scheduler.add([request("a")])
    [sent] = scheduler.dispatch(0.0)[0]
    assert scheduler.abort(["a"]) == {0: [sent.key]}
    scheduler.add([request("a", question="something else")])
    scheduler.dispatch(0.0)
    assert finish(scheduler, 0, sent) is None
    assert scheduler.in_flight(0) == 1


def test_only_the_request_that_ends_workers_fails():
    scheduler = scheduler_of(3)
    scheduler.add(request(i, question=f"q{i}") for i in range(12))
    done, lost = {}, 0
    while scheduler.is_busy:
        dispatched = scheduler.dispatch(0.0)
        assert dispatched, "something is always sent, as all is settled at once"
        for worker, sent in dispatched.items():
            if any(span.text == "q7" for sent_request in sent for span in sent_request.prompt.spans):
                lost += 1
                completions = scheduler.lose_worker(worker, "out of memory")
                scheduler.add_worker(worker, 100)
            else:
                completions = [finish(scheduler, worker, sent_request) for sent_request in sent]
            done |= {completion.key: completion for completion in completions}
    assert sorted(done, key=int) == [str(i) for i in range(12)]
    assert [key for key, completion in done.items() if completion.finish_reasons == ("error",)] == ["7"]
    assert re.search("3 workers were lost .*out of memory", done["7"].error)
    assert lost == 3


@given(st.data())
def test_whatever_happens_each_request_is_answered_once(data):
    scheduler = scheduler_of(3, window=data.draw(st.integers(1, 5)))
    added, dropped, done, hands = 0, set(), [], {0: {}, 1: {}, 2: {}}

    def dispatch():
        for worker, sent in scheduler.dispatch(0.0).items():
            hands[worker] |= {sent_request.key: sent_request for sent_request in sent}

    for what in data.draw(st.lists(st.sampled_from(["add", "finish", "lose", "drop"]), max_size=40)):
        worker = data.draw(st.integers(0, 2))
        if what == "add":
            count = data.draw(st.integers(1, 6))
            scheduler.add(request(i, question=f"q{i % 4}") for i in range(added, added + count))
            added += count
        elif what == "finish" and hands[worker]:
            done.append(finish(scheduler, worker, hands[worker].pop(data.draw(st.sampled_from(sorted(hands[worker]))))))
        elif what == "lose":
            done += scheduler.lose_worker(worker, "killed")
            hands[worker] = {}
            scheduler.add_worker(worker, 3)
        elif what == "drop" and added:
            key = str(data.draw(st.integers(0, added - 1)))
            dropped |= {key} - {completion.key for completion in done if completion is not None}
            scheduler.abort([key])
        dispatch()
    while scheduler.is_busy:
        for worker, hand in hands.items():
            done += [finish(scheduler, worker, sent_request) for sent_request in hand.values()]
            hands[worker] = {}
        dispatch()
    keys = [completion.key for completion in done if completion is not None]
    assert sorted(keys) == sorted({str(i) for i in range(added)} - dropped)
