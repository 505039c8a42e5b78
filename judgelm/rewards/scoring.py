"""Answers to rewards by a judge, in [0, 1] unless it is a reward model; None where it has no verdict, never 0."""

import hashlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple, Self, get_args

from judgelm.engines.base import Engine
from judgelm.errors import ConfigError, EngineError, not_found
from judgelm.judge import Judge, expected_score, first_better
from judgelm.modes import BatchMode
from judgelm.modes.checklist import CRITERIA_FIELD, Criterion, parse_criteria
from judgelm.records import Judgment, Sample
from judgelm.runs.runner import judge

DEFAULT_CACHE = 50_000
"""Judgments that are remembered."""


Method = Literal["reference", "group", "score", "checklist"]
"""What an answer is measured by, see `AnswerRewards`."""

METHODS: tuple[Method, ...] = get_args(Method)
ALONE: tuple[Method, ...] = ("reference", "score", "checklist")
"""Methods that reward an answer without the others of its group."""


class RewardedAnswer(NamedTuple):
    """An answer to be rewarded; answers to one question and reference are a group."""

    question: str
    text: str
    reference: str | None = None
    criteria: Sequence[object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Options of `AnswerRewards`.

    Attributes:
        criteria: of `checklist`, for answers that have none of their own.
        hard: of `checklist`: a criterion counts as met or not, instead of by its P(yes).
        both_orders: compare each pair in both orders.
        cache_size: judgments that are remembered.
    """

    criteria: tuple[str | Criterion, ...] = ()
    hard: bool = False
    both_orders: bool = True
    cache_size: int = DEFAULT_CACHE


class AnswerRewards:
    """Rewards answers by a judge.

    P(better) is the judge's probability, the mean over both orders; of a judge without probabilities its verdict: 1,
    0.5 for a tie, 0. Judges that are read off a word compare by that reading, `letters` in both orders always; `score`
    is then P(yes) or the expected grade.

    Args:
        judge: loaded; in this process, or a server by `engine="openai"`. It stays open.
        method: `reference` takes P(the answer is better than the reference answer); `group` the mean of P(better) over
            the other answers to the same question, where a copy counts 0.5; `score` the expected score, from 0 for the
            lowest to 1 for the highest of the judge's scale, of a reward model its own number;
            `checklist` the weighted share of the criteria that it meets, 0 where that is below 0 (Rubrics as Rewards,
            Gunjal et al. 2025).
        options: see `MethodOptions`.

    Raises:
        ConfigError: no such method, or one that the judge cannot do.
    """

    def __init__(self, judge: Judge, method: Method = "reference", options: MethodOptions | None = None) -> None:
        if method not in METHODS:
            raise not_found("method", method, METHODS)
        self.method = method
        self._options = options or MethodOptions()
        self._scale = None if judge.template.reading == "reward" else judge.format.scale
        if method == "score" and judge.template.reading == "letters":
            raise ConfigError(
                "method score: reading letters compares answers and gives one alone no score; use method reference "
                "or group, or a judge of reading yes-no or grade"
            )
        self.queue = JudgeQueue(self._mode(judge), judge.engine, cache_size=self._options.cache_size)

    def _mode(self, judge: Judge) -> BatchMode:
        if self.method == "checklist":
            return judge.mode("checklist", criteria=self._options.criteria, hard=self._options.hard)
        return score_mode(judge) if self.method == "score" else pair_mode(judge, both_orders=self._options.both_orders)

    def __call__(self, answers: Sequence[RewardedAnswer]) -> list[float | None]:
        """Reward answers, in their order; groups must be whole.

        Raises:
            EngineError: the engine as a whole broke.
        """
        if self.method in ALONE:
            known = {index: self.sample(answer) for index, answer in enumerate(answers)}
            samples = {index: sample for index, sample in known.items() if sample is not None}
            judgments = dict(zip(samples, self.queue.judge(list(samples.values())), strict=True))
            return [self.reward(judgments[index]) if index in judgments else None for index in known]
        return self._group_means(answers)

    def sample(self, answer: RewardedAnswer) -> Sample | None:
        """The sample that the judge is asked about one answer by a method of `ALONE`.

        None where the answer lacks what the method needs: a reference, or criteria.

        Raises:
            ConfigError: its criteria cannot be used.
        """
        if self.method == "checklist":
            own = {} if answer.criteria is None else {CRITERIA_FIELD: parse_criteria(answer.criteria)}
            if not own and not self._options.criteria:
                return None
            return Sample(
                id="", question=answer.question, answers=(answer.text,), reference=answer.reference, metadata=own
            )
        if self.method == "score":
            return Sample(id="", question=answer.question, answers=(answer.text,), reference=answer.reference)
        if answer.reference is None:
            return None
        return Sample(id="", question=answer.question, answers=(answer.text, answer.reference))

    def reward(self, judgment: Judgment) -> float | None:
        """The reward that a judgment of `sample` gives."""
        if self.method == "checklist":
            return min(1.0, max(0.0, judgment.scores[0])) if judgment.scores else None
        if self.method != "score":
            return first_better(judgment)
        return expected_score(judgment, self._scale)

    def close(self) -> None:
        """Stop asking; the judge stays open."""
        self.queue.close()

    def _group_means(self, answers: Sequence[RewardedAnswer]) -> list[float | None]:
        """Mean P(better) over the other answers of the group; None where no comparison has a verdict."""
        matches = [match for members in groups_of(answers).values() for match in combinations(members, 2)]
        known: list[list[float]] = [[] for _ in answers]
        chances = self._compare([(answers[first], answers[second]) for first, second in matches])
        for (first, second), chance in zip(matches, chances, strict=True):
            if chance is not None:
                known[first].append(chance)
                known[second].append(1 - chance)
        return [sum(values) / len(values) if values else None for values in known]

    def _compare(self, pairs: Sequence[tuple[RewardedAnswer, RewardedAnswer]]) -> list[float | None]:
        """P(first better) of each pair; equal texts are not judged."""
        differing = {index: pair for index, pair in enumerate(pairs) if pair[0].text != pair[1].text}
        samples = [
            Sample(id="", question=first.question, answers=(first.text, second.text), reference=first.reference)
            for first, second in differing.values()
        ]
        chances: list[float | None] = [0.5] * len(pairs)
        for index, judgment in zip(differing, self.queue.judge(samples), strict=True):
            chances[index] = first_better(judgment)
        return chances


class JudgeQueue:
    """Runs one mode on one engine in a thread of its own.

    Callers in several threads share the engine's batches. A judgment is remembered by question, answers, reference
    and criteria; one with a failure is not, so that it is asked for again.

    Args:
        mode: way of judging.
        engine: answers the requests; stays open when the queue is closed.
        cache_size: most judgments that are remembered; the least recently used ones go.
    """

    def __init__(self, mode: BatchMode, engine: Engine, *, cache_size: int = DEFAULT_CACHE) -> None:
        self.mode = mode
        self._engine = engine
        self._size = cache_size
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, Judgment] = OrderedDict()
        self._pending: dict[str, Future[Judgment]] = {}
        self._samples: queue.Queue[Sample | None] = queue.Queue()
        self._broken: Exception | None = None
        self.judged = 0
        """Samples that were judged, rather than remembered."""
        self._thread = threading.Thread(target=self._run, name="judge queue", daemon=True)
        self._thread.start()

    def submit(self, sample: Sample) -> "Future[Judgment]":
        """Ask for a judgment; the sample's own id does not matter.

        Raises:
            EngineError: the engine broke, or the queue is closed.
        """
        key = _key(sample)
        with self._lock:
            if self._broken is not None:
                raise EngineError(f"the judge cannot be asked: {self._broken}") from self._broken
            if (known := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                done: Future[Judgment] = Future()
                done.set_result(replace(known, sample_id=sample.id))
                return done
            if key not in self._pending:
                self._pending[key] = Future()
                self._samples.put(replace(sample, id=key))
            return self._pending[key]

    def judge(self, samples: Sequence[Sample]) -> list[Judgment]:
        """Judge samples, and return their judgments in the same order.

        Raises:
            EngineError: the engine as a whole broke.
        """
        futures = [self.submit(sample) for sample in samples]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Finish what was asked for, and stop."""
        with self._lock:
            self._broken = self._broken or EngineError("the queue is closed")
        self._samples.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for judgment in judge(self._source(), self.mode, self._engine):
                self._finish(judgment)
        except Exception as error:  # whoever waits must hear of it, whatever it is
            with self._lock:
                self._broken, waiting = error, list(self._pending.values())
                self._pending.clear()
            for future in waiting:
                future.set_exception(error)

    def _source(self) -> Iterator[Sample | None]:
        """Samples as they are asked for; None while others are being judged and no more have come."""
        while True:
            try:
                sample = self._samples.get(block=not self._pending)
            except queue.Empty:
                yield None
                continue
            if sample is None:
                return
            yield sample

    def _finish(self, judgment: Judgment) -> None:
        key = judgment.sample_id
        with self._lock:
            self.judged += 1
            if judgment.failure is None:
                self._cache[key] = judgment
                if len(self._cache) > self._size:
                    self._cache.popitem(last=False)
            future = self._pending.pop(key)
        future.set_result(judgment)


def _key(sample: Sample) -> str:
    """A name for what is judged."""
    reference = "" if sample.reference is None else f"reference {sample.reference}"
    criteria = parse_criteria(own) if (own := sample.metadata.get(CRITERIA_FIELD)) is not None else ()
    parts = [sample.question, *sample.answers, reference, *(f"{each.weight} {each.text}" for each in criteria)]
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def groups_of(answers: Sequence[RewardedAnswer]) -> dict[tuple[str, str | None], list[int]]:
    """Indices of the answers to each question with its reference."""
    groups: dict[tuple[str, str | None], list[int]] = {}
    for index, answer in enumerate(answers):
        groups.setdefault((answer.question, answer.reference), []).append(index)
    return groups


def pair_mode(judge: Judge, *, both_orders: bool) -> BatchMode:
    """The judge's way of comparing two answers, with probabilities where it has them."""
    try:
        return judge.mode("pair", both_orders=both_orders, distribution=True)
    except ConfigError:  # other released judges' prompts have none
        return judge.mode("pair", both_orders=both_orders)


def score_mode(judge: Judge) -> BatchMode:
    """The judge's way of scoring one answer, with the distribution where it has one.

    Raises:
        ConfigError: the judge compares pairs alone.
    """
    try:
        return judge.mode("single", distribution=True)
    except ConfigError:
        return judge.mode("single")
