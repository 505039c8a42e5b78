"""Compute rewards in [0, 1], except for reward models. An answer without a verdict gets the reward None, never 0."""

import asyncio
import hashlib
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from typing import Literal, NamedTuple, Self, get_args

from judgelm.engines.base import Engine
from judgelm.errors import ConfigError, EngineError, InputError, not_found
from judgelm.judge import Judge, expected_score, first_better
from judgelm.modes import BatchMode
from judgelm.modes.checklist import CRITERIA_FIELD, Criterion, parse_criteria
from judgelm.modes.flow import Flow
from judgelm.prompts.judge_prompt import FIELDS
from judgelm.prompts.prompt_template import check_fields
from judgelm.records import Judgment, Sample
from judgelm.runs.engine_worker import EngineWorker

DEFAULT_CACHE = 50_000
Method = Literal["reference", "group", "score", "checklist"]

METHODS: tuple[Method, ...] = get_args(Method)
ALONE: tuple[Method, ...] = ("reference", "score", "checklist")
"""Methods that score an answer independently of its group."""


class RewardedAnswer(NamedTuple):
    """An answer to reward. Answers with the same question, reference, and fields form a group.

    Attributes:
        fields: values of the other slots of the judge's prompt file.
    """

    question: str
    text: str
    reference: str | None = None
    criteria: Sequence[object] | None = None
    fields: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Options for `AnswerRewards`.

    Attributes:
        criteria: default criteria for `checklist`, used for answers without criteria.
        hard: for `checklist`, count each criterion as either met or not met instead of using P(yes).
        cache_size: maximum number of cached judgments.
    """

    criteria: tuple[str | Criterion, ...] = ()
    hard: bool = False
    both_orders: bool = True
    cache_size: int = DEFAULT_CACHE


class UnrewardedError(EngineError):
    """There is no verdict to compute a reward from."""


class AnswerRewards:
    """Computes rewards for answers using a judge.

    P(better) is averaged over both orders. If there are no probabilities, a win counts as 1, a tie as 0.5, and a loss
    as 0.

    Args:
        judge: must be closed by the caller.
        method: `reference`: P(better than the reference answer). `group`: P(better), averaged over the other answers to
            the same question; an identical answer counts as 0.5. `score`: the expected score or grade, or P(yes),
            scaled to [0, 1]; for reward models, the raw reward. `checklist`: the weighted share of criteria met,
            clipped to [0, 1] (Rubrics as Rewards, Gunjal et al. 2025).

    Raises:
        ConfigError: The method is unknown, or the judge does not support it.
    """

    def __init__(self, judge: Judge, method: Method = "reference", options: MethodOptions | None = None) -> None:
        if method not in METHODS:
            raise not_found("method", method, METHODS)
        self.method = method
        self._options = options or MethodOptions()
        self._prompt = judge.format.prompt
        self.fields = () if self._prompt is None else self._prompt.fields
        self._scale = None if judge.template.reading == "reward" else judge.format.scale
        if method == "score" and judge.template.reading == "letters":
            raise ConfigError("method score: letters cannot score single answers; use method reference or group")
        self.queue = JudgeQueue(self._mode(judge), judge.engine, cache_size=self._options.cache_size)

    def _mode(self, judge: Judge) -> BatchMode:
        if self.method == "checklist":
            return judge.mode("checklist", criteria=self._options.criteria, hard=self._options.hard)
        in_orders = {"both_orders": self._options.both_orders}
        name, options = ("single", {}) if self.method == "score" else ("pair", in_orders)
        try:
            return judge.mode(name, distribution=True, **options)
        except ConfigError:  # some released judges' prompts do not support probabilities
            return judge.mode(name, **options)

    def __call__(self, answers: Sequence[RewardedAnswer]) -> list[float | None]:
        """Return one reward per answer. Pass all answers in a group together."""
        if self.method in ALONE:
            known = {index: self.sample(answer) for index, answer in enumerate(answers)}
            samples = {index: sample for index, sample in known.items() if sample is not None}
            judgments = dict(zip(samples, self.queue.judge(list(samples.values())), strict=True))
            return [self.reward(judgments[index]) if index in judgments else None for index in known]
        return self._group_means(answers)

    async def reward_one(self, answer: RewardedAnswer) -> tuple[float, Judgment]:
        """Reward an answer with a method in `ALONE`. Concurrent calls share batches.

        Raises:
            InputError: the reference answer or the criteria are missing.
            UnrewardedError: there is no verdict.
        """
        sample = self.sample(answer)
        if sample is None:
            needed = "reference answer" if self.method == "reference" else "list of criteria"
            raise InputError(f"the row has no {needed}, which method {self.method} requires")
        judgment = await asyncio.wrap_future(self.queue.submit(sample))
        reward = self.reward(judgment)
        if reward is None:
            failure = judgment.failure
            cause = f"{failure.code}: {failure.why or failure.text}" if failure else "no winner"
            raise UnrewardedError(f"the judge gave no verdict ({cause})")
        return reward, judgment

    def sample(self, answer: RewardedAnswer) -> Sample | None:
        """Return the sample to judge with a method in `ALONE`, or None if the reference or criteria are missing.

        Raises:
            InputError: the judge's prompt file shows a field that the answer does not have.
        """
        if self.method == "reference":
            if answer.reference is None:
                return None
            return self._sample(answer, (answer.text, answer.reference), None)
        sample = self._sample(answer, (answer.text,), answer.reference)
        if self.method == "checklist" and answer.criteria is not None:
            return replace(sample, metadata={CRITERIA_FIELD: parse_criteria(answer.criteria)})
        return None if self.method == "checklist" and not self._options.criteria else sample

    def reward(self, judgment: Judgment) -> float | None:
        """Convert a judgment to a reward."""
        if self.method == "checklist":
            return min(1.0, max(0.0, judgment.scores[0])) if judgment.scores else None
        if self.method != "score":
            return first_better(judgment)
        return expected_score(judgment, self._scale)

    def close(self) -> None:
        """Stop the queue. The judge stays open."""
        self.queue.close()

    def _sample(self, answer: RewardedAnswer, answers: tuple[str, ...], reference: str | None) -> Sample:
        metadata = {FIELDS: answer.fields} if answer.fields else {}
        sample = Sample(id="", question=answer.question, answers=answers, reference=reference, metadata=metadata)
        if self._prompt is not None:
            check_fields(sample, self._prompt)
        return sample

    def _group_means(self, answers: Sequence[RewardedAnswer]) -> list[float | None]:
        matches = [match for members in groups_of(answers).values() for match in combinations(members, 2)]
        known: list[list[float]] = [[] for _ in answers]
        chances = self._compare([(answers[first], answers[second]) for first, second in matches])
        for (first, second), chance in zip(matches, chances, strict=True):
            if chance is not None:
                known[first].append(chance)
                known[second].append(1 - chance)
        return [sum(values) / len(values) if values else None for values in known]

    def _compare(self, pairs: Sequence[tuple[RewardedAnswer, RewardedAnswer]]) -> list[float | None]:
        differing = {index: pair for index, pair in enumerate(pairs) if pair[0].text != pair[1].text}
        samples = [
            self._sample(first, (first.text, second.text), first.reference) for first, second in differing.values()
        ]
        chances: list[float | None] = [0.5] * len(pairs)
        for index, judgment in zip(differing, self.queue.judge(samples), strict=True):
            chances[index] = first_better(judgment)
        return chances


@cache
def shared_rewards(model: str | None, engine: str, method: Method, options: str) -> AnswerRewards:
    """Load a judge once per process, for trainers that pass one answer at a time. `options` is a JSON object.

    Raises:
        ConfigError: `method` compares the answers in a group.
    """
    if method not in ALONE:
        raise ConfigError(f"method {method} is not supported, because answers are passed one at a time; use reference")
    return AnswerRewards(Judge(model, engine=engine, **json.loads(options)), method)


class JudgeQueue:
    """Runs a mode in a background thread, so that requests from several threads share batches.

    Successful judgments are kept in an LRU cache, keyed by question, answers, reference, and criteria.
    """

    def __init__(self, mode: BatchMode, engine: Engine, *, cache_size: int = DEFAULT_CACHE) -> None:
        self.mode = mode
        self._size = cache_size
        self._cache: OrderedDict[str, Judgment] = OrderedDict()
        self._closed = False
        self.judged = 0
        """Number of judged samples, excluding cache hits."""
        self._worker = EngineWorker(engine, max_queue=sys.maxsize, stop_on_error=True)

    def submit(self, sample: Sample) -> "Future[Judgment]":
        """Submit a sample for judging. Its ID is ignored.

        Raises:
            EngineError: The engine failed, or the queue is closed.
        """
        key = _key(sample)
        if (failure := self._worker.failure) is not None or self._closed:
            raise EngineError(f"the judge is not available: {failure or 'the queue is closed'}") from failure
        return self._worker.submit(partial(self._flow, replace(sample, id=key)), key=key)

    def judge(self, samples: Sequence[Sample]) -> list[Judgment]:
        """Judge samples and return the judgments in order."""
        futures = [self.submit(sample) for sample in samples]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Finish pending requests and stop."""
        self._closed = True
        self._worker.close(math.inf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _flow(self, sample: Sample) -> Flow:
        if (known := self._cache.get(sample.id)) is not None:
            self._cache.move_to_end(sample.id)
            return known
        judgment = yield from self.mode(sample)
        self.judged += 1
        if judgment.failure is None:
            self._cache[sample.id] = judgment
            if len(self._cache) > self._size:
                self._cache.popitem(last=False)
        return judgment


def _key(sample: Sample) -> str:
    reference = "" if sample.reference is None else f"reference {sample.reference}"
    criteria = parse_criteria(own) if (own := sample.metadata.get(CRITERIA_FIELD)) is not None else ()
    parts = [sample.question, *sample.answers, reference, *(f"{each.weight} {each.text}" for each in criteria)]
    parts += [f"fields {json.dumps(fields)}"] if (fields := sample.metadata.get(FIELDS)) is not None else []
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def groups_of(answers: Sequence[RewardedAnswer]) -> dict[tuple[str, str | None, str], list[int]]:
    """Group answer indices by question, reference, and fields."""
    groups: dict[tuple[str, str | None, str], list[int]] = {}
    for index, answer in enumerate(answers):
        groups.setdefault((answer.question, answer.reference, json.dumps(answer.fields)), []).append(index)
    return groups
