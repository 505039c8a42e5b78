"""Create JudgeLM training rows from a teacher's judgments.

A pair has up to four prompts: with and without its reference, each in both orders. Each prompt is a separate sample, so
a rerun requests only the missing replies. The IDs are `q1`, `q1#swapped`, `q1#reference`, and `q1#reference#swapped`.
The scores of a swapped sample are in swapped order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from judgelm.data.judged_texts import difference, text_hashes
from judgelm.data.labelled_pair import pair_fields, score_line
from judgelm.data.plain_rows import json_scores
from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import atomic_write, read_jsonl
from judgelm.records import Judgment, Request, Sample, Winner
from judgelm.runs.batch import BatchJob, input_samples
from judgelm.runs.run_files import read_manifest, shown_id
from judgelm.runs.stored_judgments import StoredJudgments

GPT4_REVIEW_TOKENS = 170
"""Assumed number of tokens per reply.

The 1,694 published GPT-4 reviews have 657 characters on average, 1,218 at the 95th percentile, and 2,363 at most.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in USD per million tokens."""

    prompt: float
    reply: float

    def usd(self, prompt_tokens: float, reply_tokens: float) -> float:
        """Return the cost in USD."""
        return (prompt_tokens * self.prompt + reply_tokens * self.reply) / 1e6


def prices_of(arguments: Mapping[str, Any]) -> Prices | None:
    """Return the prices from an engine's arguments, or None if they are not set."""
    prices = [arguments.get(name) for name in ("price_in", "price_out")]
    if prices == [None, None]:
        return None
    if not all(isinstance(price, int | float) and price >= 0 for price in prices):
        raise ConfigError("set both price_in and price_out (in USD per million tokens); 0 is allowed")
    return Prices(prompt=float(prices[0] or 0), reply=float(prices[1] or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Estimated number of requests and tokens in a run. Reply tokens are per request."""

    requests: int
    prompt_tokens: int
    expected_reply: int
    max_reply: int

    def usd(self, prices: Prices) -> tuple[float, float]:
        """Return the cost for replies of expected and maximum length, excluding retries."""
        expected, highest = (self.requests * each for each in (self.expected_reply, self.max_reply))
        return prices.usd(self.prompt_tokens, expected), prices.usd(self.prompt_tokens, highest)


def estimate(
    requests: Iterable[Request], tokens_of: Callable[[str], float], *, expected_reply: int, max_reply: int
) -> CostEstimate:
    """Estimate the cost of the requests, excluding retries."""
    count = 0
    tokens = 0.0
    for request in requests:
        count += 1
        tokens += tokens_of("".join(span.text for span in request.prompt.spans))
    return CostEstimate(
        requests=count, prompt_tokens=round(tokens), expected_reply=min(expected_reply, max_reply), max_reply=max_reply
    )


def spent_usd(out: Path, prices: Prices) -> float:
    """Return an upper bound on the cost of a run's earlier sessions, including replies that were billed but lost.

    If a session was killed, up to half a minute of lost replies and any requests in flight are not included.
    """
    manifest = read_manifest(out)
    if manifest is None or not out.is_file():
        return 0.0
    judged = sum(_usd_of(row, prices) for _, row in read_jsonl(out))
    lost = (
        max(0.0, (session.get("engine", {}).get("cost_usd_at_most") or 0.0) - _usd_of(session, prices))
        for session in manifest["sessions"]
    )
    return judged + sum(lost)


def _usd_of(counted: Mapping[str, Any], prices: Prices) -> float:
    return prices.usd(counted.get("prompt_tokens", 0), counted.get("completion_tokens", 0))


def token_counter(tokenizer: str | None, characters_per_token: float) -> Callable[[str], float]:
    """Return a function that counts tokens with a tokenizer, or estimates the count from the text length."""
    if tokenizer is None:
        return lambda text: len(text) / characters_per_token
    from judgelm.engines.model_files import load_tokenizer  # importing transformers takes seconds

    loaded = load_tokenizer(tokenizer, None, EngineOptions(model=tokenizer))
    return lambda text: len(loaded(text, verbose=False)["input_ids"])


ReferenceUse = Literal["without", "with", "both"]

_REFERENCE, _SWAPPED = "#reference", "#swapped"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPrompts:
    """Creates the prompts for each pair.

    Attributes:
        reference: whether to judge without the reference, with the reference (if there is one), or both ways.
    """

    reference: ReferenceUse = "without"
    both_orders: bool = False

    def readings(self, sample: Sample) -> tuple[bool, ...]:
        """Return False for a prompt without the reference, and True for a prompt with the reference."""
        requested = {"without": (False,), "with": (True,), "both": (False, True)}[self.reference]
        return requested if sample.reference is not None else tuple(each for each in requested if not each)

    def __call__(self, sample: Sample) -> Iterator[Sample]:
        """Yield the prompts for a pair as samples."""
        if sample.id.endswith((_REFERENCE, _SWAPPED)):
            raise InputError(f"id {shown_id(sample.id)}: endings {_REFERENCE} and {_SWAPPED} are reserved; rename it")
        for with_reference in self.readings(sample):
            prompt = replace(
                sample,
                id=prompt_id(sample.id, with_reference=with_reference),
                reference=sample.reference if with_reference else None,
            )
            yield prompt
            if self.both_orders:
                yield replace(
                    prompt,
                    id=prompt_id(sample.id, with_reference=with_reference, swapped=True),
                    answers=prompt.answers[::-1],
                    answer_models=prompt.answer_models[::-1],
                )


def prompt_id(pair: str, *, with_reference: bool = False, swapped: bool = False) -> str:
    """Return the sample ID of a prompt."""
    return f"{pair}{_REFERENCE if with_reference else ''}{_SWAPPED if swapped else ''}"


class RowWriter:
    """Builds JudgeLM rows from pairs and replies; `counts` is the number of pairs per outcome.

    `drop_disagreeing` drops a judgment if the orders disagree on the winner or one order failed.
    """

    def __init__(self, prompts: TeacherPrompts, replies: StoredJudgments, *, drop_disagreeing: bool = False) -> None:
        self._prompts = prompts
        self._replies = replies
        self._drop = drop_disagreeing
        self.counts: Counter[str] = Counter()

    def row(self, sample: Sample) -> dict[str, Any] | None:
        """Return a pair's row, or None if it has no usable judgment."""
        labels: dict[str, Any] = {}
        agree: dict[str, bool] = {}
        readings = self._prompts.readings(sample)
        if len(readings) < (2 if self._prompts.reference == "both" else 1):
            self.counts["pairs without a reference"] += 1
        for with_reference in readings:
            suffix = "_w_reference" if with_reference else ""
            judgment = self._usable(sample, with_reference, agree)
            if judgment is not None and judgment.scores is not None:
                labels[f"score{suffix}"] = json_scores(judgment.scores)
                labels[f"text{suffix}"] = f"{score_line(judgment.scores)}\n{judgment.reason or ''}"
        self.counts["rows" if labels else "pairs without a usable judgment (no row)"] += 1
        return _row(sample, labels, agree) if labels else None

    def _usable(self, pair: Sample, with_reference: bool, agree: dict[str, bool]) -> Judgment | None:
        reading = "with reference" if with_reference else "without reference"
        judgment = self._judged(pair, reading, with_reference=with_reference)
        if not self._prompts.both_orders:
            return judgment
        other = self._judged(pair, f"{reading}, swapped", with_reference=with_reference, swapped=True)
        if judgment is None:
            return None
        if other is None:
            return self._doubtful(judgment, f"{reading}: judged in only one order")
        opposite: dict[Winner | None, Winner] = {1: 2, 2: 1, "tie": "tie"}
        same = judgment.winner == opposite[other.winner]
        agree["orders_agree_w_reference" if with_reference else "orders_agree"] = same
        return judgment if same else self._doubtful(judgment, f"{reading}: orders disagree on the winner")

    def _doubtful(self, judgment: Judgment, finding: str) -> Judgment | None:
        self.counts[f"{finding}, {'dropped' if self._drop else 'kept'}"] += 1
        return None if self._drop else judgment

    def _judged(self, pair: Sample, reading: str, *, with_reference: bool, swapped: bool = False) -> Judgment | None:
        name = prompt_id(pair.id, with_reference=with_reference, swapped=swapped)
        judgment = self._replies.get(name)
        if judgment is not None and judgment.hashes is not None:
            prompt = replace(pair, answers=pair.answers[::-1]) if swapped else pair
            if part := difference(judgment.hashes, text_hashes(prompt)):
                finding = (
                    f"{part} differs from the text that the teacher judged; use the input of that run, or pass "
                    "--overwrite"
                )
                raise InputError(f"id {shown_id(name)}: {finding}")
        if judgment is None:
            self.counts[f"{reading}: no reply yet"] += 1
        elif judgment.failure is not None:
            self.counts[f"{reading}: failed, {judgment.failure.code}"] += 1
        else:
            lacks = judgment.shown[0].reason_failure
            if lacks is not None and not swapped:
                self.counts[f"{reading}: scores with an incomplete reason ({lacks.code})"] += 1
            return judgment
        return None


def _row(sample: Sample, labels: dict[str, Any], agree: dict[str, bool]) -> dict[str, Any]:
    metadata, row = dict(sample.metadata), pair_fields(sample)
    row |= {name: metadata.pop(name) for name in ("answer1_metadata", "answer2_metadata") if name in metadata}
    if sample.reference is not None:
        row["reference"] = {"text": sample.reference}
    category = {} if sample.category is None else {"category": sample.category}
    return row | labels | {"metadata": {**category, **metadata, **agree}}


def write_rows(job: BatchJob, prompts: TeacherPrompts, out: Path, *, drop_disagreeing: bool) -> Counter[str]:
    """Write a row for each pair that has replies so far, in input order. Return the number of pairs per outcome."""
    with atomic_write(out) as file:
        writer = RowWriter(prompts, StoredJudgments(Path(job.out)), drop_disagreeing=drop_disagreeing)
        for sample in input_samples(job):
            if (row := writer.row(sample)) is not None:
                file.write(row)
    return writer.counts
