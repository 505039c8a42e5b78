"""Rewards of answers, and the queue that judges them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.judge import Judge
from judgelm.modes import Pairwise, Reasoned
from judgelm.modes.checklist import Criterion
from judgelm.records import Sample
from judgelm.rewards.scoring import AnswerRewards, JudgeQueue, MethodOptions, RewardedAnswer
from tests.support.known_judge import CHANCES, KnownEngine, known_judge, of_quality, quality, word_opinion


def rewarding(method, engine=None, template=None, **options):
    return AnswerRewards(known_judge(engine, template=template), method, MethodOptions(**options))


def answers(*qualities, reference=None):
    texts = [of_quality(wanted, qualities[:index].count(wanted)) for index, wanted in enumerate(qualities)]
    return [RewardedAnswer("q", text, reference) for text in texts]


@pytest.mark.parametrize(
    ("template", "method", "expected"),
    [
        ("yes-no", "score", [4 / 9, 6 / 9]),  # P(yes)
        # odds 4/5 and 6/3 against the reference's 5/4 (quality 6): 16/25 to 1, and 8/5 to 1
        ("yes-no", "reference", [16 / 41, 8 / 13]),
        ("yes-no", "group", [2 / 7, 5 / 7]),  # odds 4/5 against 2: 2/5 to 1
        ("letters", "reference", [1 / 3, 2 / 3]),  # each step of quality doubles the odds
        ("letters", "group", [1 / 5, 4 / 5]),
    ],
)
def test_judges_that_are_read_off_a_word_reward_by_their_reading(template, method, expected):
    given = answers(5, 7, reference=of_quality(6) if method == "reference" else None)
    assert rewarding(method, KnownEngine(word_opinion), template)(given) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "method", "expected"),
    [
        ("{context} {answer}\nreply: Yes/No", "score", [4 / 9, 6 / 9]),  # P(Yes)
        ("{context} {answer}\nreply: Yes/No", "group", [2 / 7, 5 / 7]),
        ("{context} {answer_1} {answer_2}\nreply: A/B", "reference", [1 / 3, 2 / 3]),
    ],
)
def test_a_prompt_rewards_answers_and_gets_its_fields(tmp_path, text, method, expected):
    (tmp_path / "mine.txt").write_text(text)
    engine = KnownEngine(word_opinion)
    rewards = AnswerRewards(known_judge(engine, prompt=tmp_path / "mine.txt"), method)
    given = answers(5, 7, reference=of_quality(6) if method == "reference" else None)
    assert rewards([answer._replace(fields={"context": "c"}) for answer in given]) == pytest.approx(expected)
    assert engine.prompts[0].spans[0].text == "c"
    judged = rewards.queue.judged
    with pytest.raises(InputError, match=r"prompt mine shows \{context\}"):
        rewards(given)
    # other fields make another sample, and another group
    others = [given[0]._replace(fields={"context": "d"}), given[1]._replace(fields={"context": "e"})]
    assert (rewards(others) == [None, None]) == (method == "group")
    assert rewards.queue.judged - judged == (0 if method == "group" else 2)


def test_a_grade_of_a_prompt_is_rescaled(tmp_path):
    (tmp_path / "mine.txt").write_text("{question} {answer}\nreply: 1-5")
    engine = KnownEngine(lambda prompt: {"4": 0.5, "5": 0.5})
    # the mean of 4 and 5, from 1 to 5: 3.5 / 4
    assert AnswerRewards(known_judge(engine, prompt=tmp_path / "mine.txt"), "score")(answers(5)) == [0.875]


def test_a_checklist_rewards_the_weighted_share_of_what_is_met():
    # P(yes) of quality 5 is 4/9, of the word opinion, whatever the criterion: (3 + 1 - 2) / 4 of it
    [good, bad] = answers(5, 7)
    own, engine = ["c", {"text": "d", "weight": -2}], KnownEngine(word_opinion)
    criteria = (Criterion(text="c", weight=3), "d", Criterion(text="e", weight=-2))
    rewards = rewarding("checklist", engine, criteria=criteria)
    # the second answer has criteria of its own: (1 - 2) / 1 of its P(yes) is below 0
    assert rewards([good, bad._replace(criteria=own)]) == [pytest.approx(4 / 9 / 2), 0]
    assert rewards([bad]) == [pytest.approx(6 / 9 / 2)]  # the same answer by other criteria is another judgment
    assert rewarding("checklist", engine)([good]) == [None]
    with pytest.raises(ConfigError, match="occurs twice"):
        rewards([good._replace(criteria=["c", "c"])])


def test_letters_give_no_answer_a_score_alone():
    with pytest.raises(ConfigError, match="letters cannot score"):
        rewarding("score", template="letters")


class Unreadable(KnownEngine):
    """Writes nonsense about answers of one quality."""

    def write(self, prompt):
        texts = [span.text for span in prompt.spans if span.kind == "answer"]
        return "nonsense" if any(quality(text) == 4 for text in texts) else super().write(prompt)


@pytest.mark.parametrize(
    ("method", "qualities", "expected"),
    [
        # the chance to be better than a reference of quality 5
        ("reference", (5, 6, 4, 7), [CHANCES[0], CHANCES[1], CHANCES[-1], CHANCES[2]]),
        ("score", (2, 5, 9), [1 / 9, 4 / 9, 8 / 9]),  # expected scores on 1 to 10
        # the mean chance over the others: 5 meets 6 and 7, 6 meets 5 and 7, 7 meets 5 and 6
        ("group", (5, 6, 7), [(CHANCES[by] + CHANCES[other]) / 2 for by, other in ((-1, -2), (1, -1), (2, 1))]),
    ],
)
def test_rewards_of_answers(method, qualities, expected):
    assert rewarding(method)(answers(*qualities, reference=of_quality(5, 1))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("method", "qualities", "reference", "expected"),
    [
        ("reference", (5,), None, [None]),  # nothing to compare with
        ("group", (5,), None, [None]),
        ("reference", (4, 6), of_quality(5), [None, pytest.approx(CHANCES[1])]),
        ("score", (4, 6), None, [None, pytest.approx(5 / 9)]),
        # 4 fails against both others, whose own comparison stands
        ("group", (4, 6, 5), None, [None, pytest.approx(CHANCES[1]), pytest.approx(CHANCES[-1])]),
    ],
)
def test_what_has_no_verdict_has_no_reward_and_never_0(method, qualities, reference, expected):
    assert rewarding(method, Unreadable())(answers(*qualities, reference=reference)) == expected


def test_copies_are_equal_without_being_asked():
    rewards, [copy] = rewarding("group"), answers(5)
    assert rewards([copy, copy]) == [0.5, 0.5]
    assert rewards.queue.judged == 0
    assert rewards([copy, copy, *answers(6)]) == pytest.approx([(0.5 + CHANCES[-1]) / 2] * 2 + [CHANCES[1]])
    assert rewards.queue.judged == 1


def test_without_probabilities_the_verdict_counts():
    engine = KnownEngine(logprobs=False)
    assert rewarding("reference", engine)(answers(5, 6, 4, reference=of_quality(5, 1))) == [0.5, 1.0, 0.0]


def test_the_mode_is_the_judges_own():
    with Judge("So.\n[[1]]", engine="scripted", template="reasoned-compact") as judge:
        mode = Reasoned(template="reasoned-compact", both_orders=True, distribution=True)
        assert AnswerRewards(judge).queue.mode == mode
        with pytest.raises(ConfigError, match="mode single needs scores"):
            AnswerRewards(judge, "score")
    with Judge("8 6", engine="scripted") as judge:
        assert isinstance(AnswerRewards(judge).queue.mode, Pairwise)
        with pytest.raises(ConfigError, match="method 'best' does not exist"):
            AnswerRewards(judge, "best")


MODE = Pairwise(template="judgelm-compact")


def pair(first, second="b", **fields):
    return Sample(id="any", question="q", answers=(first, second), **fields)


class CountingEngine(ScriptedEngine):
    """Counts the requests of each batch; its script may change."""

    def __init__(self, script):
        super().__init__(lambda prompt: self.script(prompt))
        self.script = script
        self.batches = []

    def collect(self, timeout_s):
        self.batches.append(len(self.waiting))
        return super().collect(timeout_s)


def length_of(prompt):
    """The longer answer is better."""
    first, second = (len(span.text) for span in prompt.spans if span.kind == "answer")
    return f"{min(first, 10)} {min(second, 10)}\n"


def test_judgments_come_in_the_order_asked_and_each_sample_is_judged_once():
    with JudgeQueue(MODE, CountingEngine(length_of)) as queue:
        samples = [pair("a" * size) for size in (3, 1, 3, 2)]
        assert [judgment.scores for judgment in queue.judge(samples)] == [(3, 1), (1, 1), (3, 1), (2, 1)]
        assert [judgment.scores for judgment in queue.judge(samples[::-1])] == [(2, 1), (3, 1), (1, 1), (3, 1)]
        assert queue.judged == 3


def test_a_reference_makes_another_sample():
    with JudgeQueue(MODE, CountingEngine(length_of)) as queue:
        queue.judge([pair("a"), pair("a", reference="r"), pair("a", reference="s"), pair("", "ab"), pair("a", "b")])
        assert queue.judged == 4


def test_a_failure_is_a_judgment_that_is_not_remembered():
    with JudgeQueue(MODE, engine := CountingEngine(lambda prompt: "nonsense")) as queue:
        assert queue.judge([pair("a")])[0].failure.code == "off_grammar"
        engine.script = length_of
        assert queue.judge([pair("a")])[0].failure is None
        assert queue.judged == 2


def test_the_cache_forgets_the_least_recently_used():
    with JudgeQueue(MODE, CountingEngine(length_of), cache_size=2) as queue:
        for answer in ("a", "aa", "a", "aaa", "a", "aa"):
            queue.judge([pair(answer)])
        assert queue.judged == 4  # a, aa, aaa, and aa again


def test_many_threads_share_batches():
    together, engine = threading.Barrier(8), CountingEngine(length_of)
    release = threading.Event()

    def slow(prompt):
        release.wait(20)
        return length_of(prompt)

    engine.script = slow
    with JudgeQueue(MODE, engine) as queue, ThreadPoolExecutor(8) as pool:

        def ask(size):
            together.wait(20)
            future = queue.submit(pair("a" * size))
            release.set()
            return future.result(20).scores

        assert list(pool.map(ask, range(1, 9))) == [(size, 1) for size in range(1, 9)]
    assert sum(engine.batches) == 8


def test_a_broken_engine_is_told_to_all_who_wait_and_to_all_who_come_later():
    class Broken(ScriptedEngine):
        def collect(self, timeout_s):
            raise EngineError("out of order")

    queue = JudgeQueue(MODE, Broken({"*": "1 2\n"}))
    with pytest.raises(EngineError, match="out of order"):
        queue.judge([pair("a"), pair("aa")])
    with pytest.raises(EngineError, match="is not available: out of order"):
        queue.submit(pair("aaa"))
    queue.close()


def test_a_rejected_request_is_raised_and_never_becomes_an_answer_without_a_reward():
    class Rejecting(ScriptedEngine):
        def submit(self, requests):
            raise ValueError("the prompt is not valid")

    with JudgeQueue(MODE, Rejecting({"*": "1 2\n"})) as queue:
        with pytest.raises(ValueError, match="the prompt is not valid"):
            queue.judge([pair("a"), pair("aa")])
        with pytest.raises(EngineError, match="is not available: the prompt is not valid"):
            queue.submit(pair("aaa"))


def test_a_closed_queue_finishes_what_was_asked_and_takes_no_more():
    queue = JudgeQueue(MODE, CountingEngine(length_of))
    futures = [queue.submit(pair("a" * size)) for size in range(1, 5)]
    queue.close()
    assert [future.result(0).scores[0] for future in futures] == [1, 2, 3, 4]
    with pytest.raises(EngineError, match="closed"):
        queue.submit(pair("b"))
