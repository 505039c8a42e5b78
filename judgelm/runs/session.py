"""The scaffold of every run: counts, pending items, the session that an engine works in, and runs joined from others.

Batch runs and answer generation drive an engine over what is pending, in a `RunSession`. Cascades and panels judge
nothing themselves: `write_joined` copies what their runs decided. Counts enter into the run's manifest.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil

from judgelm.engines.base import Engine
from judgelm.errors import RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.modes.generation import GeneratedAnswer
from judgelm.parsing.scores import is_assigned, kind_of_approximation
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, PairVerdict, RankingVerdict, Shown, Verdict
from judgelm.runs.run_files import RunFiles
from judgelm.runs.runner import judgment_row


@dataclass(slots=True, kw_only=True)
class Stats:
    """Counts that grow while a run goes on."""

    def row(self) -> dict[str, Any]:
        """The counts for the manifest."""
        return {count.name: getattr(self, count.name) for count in fields(self)}


@dataclass(slots=True, kw_only=True)
class SessionStats(Stats):
    """Counts of one session, whatever an engine is asked for.

    Attributes:
        skipped: items that earlier sessions finished.
        failures: by code.
        earlier_failures: failures of earlier sessions that stand, by code.
        load_s: time to load the engine, in seconds; `judge_s` is the time since the session began.
    """

    skipped: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    earlier_failures: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    load_s: float = 0.0
    judge_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class RunStats(SessionStats):
    """Counts of judgments.

    Attributes:
        winners: verdicts on pairs, by winner.
        labels: verdicts of modes that end in a label.
        grades: verdicts that are one number; `grade_sum` is the sum of these numbers.
        shown: prompts that the judge was shown; `thinking` of them got a reply with thinking before it, of
            `thinking_characters` characters in total.
        repaired: replies that only a grammar-constrained retry made readable.
        reasons: reasons written; `reasons_incomplete` of them are truncated, or were written about answers cut further.
        reasons_failed: reasons requested and not written.
        parts_failed: prompts without a readable reply, in judgments that still have a verdict.
        probabilities: judgments with a P(first better).
        mostly_unassigned: judgments without one, because an order's score lines have less than half of the probability.
        grade_distributions: prompts for one answer with the probability of every grade.
        distributions: prompts with a distribution, `grade_distributions` among them; `unassigned` is the sum of what
            they leave to other replies.
        approximations: ways in which distributions are not exact, by wording.
        votes: samples drawn of a judge that is asked several times; `unanimous` judgments have votes that are all
            alike.
    """

    judged: int = 0
    rejected: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    rankings: int = 0
    grades: int = 0
    grade_sum: float = 0.0
    both_orders: int = 0
    consistent: int = 0
    coerced: int = 0
    repeated: int = 0
    cut: int = 0
    neutralised: int = 0
    shown: int = 0
    thinking: int = 0
    thinking_characters: int = 0
    repaired: int = 0
    reasons: int = 0
    reasons_incomplete: int = 0
    reasons_failed: int = 0
    parts_failed: int = 0
    probabilities: int = 0
    mostly_unassigned: int = 0
    grade_distributions: int = 0
    distributions: int = 0
    unassigned: float = 0.0
    approximations: Counter[str] = field(default_factory=Counter)
    votes: int = 0
    unanimous: int = 0

    def add(self, judgment: Judgment) -> None:
        """Count a judgment."""
        self.judged += 1
        if judgment.votes:
            self.votes += len(judgment.votes)
            self.unanimous += len(set(judgment.votes.values())) == 1 and judgment.verdict is not None
        if judgment.failure is not None:
            self.failures[judgment.failure.code] += 1
        else:
            self.parts_failed += len([shown for shown in judgment.shown if shown.failure is not None])
        self._add_verdict(judgment.verdict)
        if judgment.consistent is not None:
            self.both_orders += 1
            self.consistent += judgment.consistent
        self.cut += any([shown.truncations for shown in judgment.shown])
        self.neutralised += judgment.sanitized > 0
        self.prompt_tokens += judgment.prompt_tokens
        self.completion_tokens += judgment.completion_tokens
        for shown in judgment.shown:
            self._add_shown(shown)
        if judgment.probability is not None:
            self.probabilities += 1
            return
        distributions = [shown.distribution for shown in judgment.shown if shown.distribution is not None]
        self.mostly_unassigned += not all(map(is_assigned, distributions))

    def _add_verdict(self, verdict: Verdict | None) -> None:
        match verdict:
            case PairVerdict():
                self.winners[str(verdict.winner)] += 1
            case LabelVerdict():
                self.labels[verdict.label] += 1
            case GradeVerdict():
                self.grades += 1
                self.grade_sum += verdict.score
            case RankingVerdict():
                self.rankings += 1

    def _add_shown(self, shown: Shown) -> None:
        self.shown += 1
        self.thinking += shown.thinking is not None
        self.thinking_characters += len(shown.thinking or "")
        self.grade_distributions += shown.grades is not None
        self.repaired += shown.repaired is not None
        self.reasons += shown.reason is not None
        self.reasons_incomplete += shown.reason is not None and shown.reason_failure is not None
        self.reasons_failed += shown.reason is None and shown.reason_failure is not None
        if (distribution := shown.distribution or shown.grades) is not None:
            self.distributions += 1
            self.unassigned += distribution.unassigned
            if distribution.approximation:
                self.approximations[kind_of_approximation(distribution.approximation)] += 1

    @property
    def mean_unassigned(self) -> float | None:
        """Mean over `distributions` of the probability that is on other replies; None where there is none."""
        return self.unassigned / self.distributions if self.distributions else None

    @property
    def failure_rate(self) -> float:
        """Share of the input without a verdict, over all sessions; rejected lines count too. 0 when it was empty."""
        total = self.judged + self.skipped + self.rejected
        failed = sum(self.failures.values()) + sum(self.earlier_failures.values())
        return (failed + self.rejected) / total if total else 0.0

    def row(self) -> dict[str, Any]:
        """The counts for the manifest, with rates; `mostly_unassigned` is called `little_mass` there."""
        per_s = 1 / self.judge_s if self.judge_s else 0.0
        counts = SessionStats.row(self)
        counts["little_mass"] = counts.pop("mostly_unassigned")
        del counts["unassigned"]
        return counts | {
            "mean_unassigned": self.mean_unassigned,
            "samples_per_s": round(self.judged * per_s, 3),
            "prompt_tokens_per_s": round(self.prompt_tokens * per_s, 1),
        }


@dataclass(slots=True, kw_only=True)
class AnswerStats(SessionStats):
    """Counts of one model's answers to questions.

    Attributes:
        answered: answers, those at their token limit (`truncated`) included.
        no_final_answer: those from which none could be extracted, of tasks whose replies end in an answer.
        first_failure: message of the first failure; empty without one.
        engine_stats: the engine's own counts at the end.
    """

    answered: int = 0
    truncated: int = 0
    no_final_answer: int = 0
    first_failure: str = ""
    engine_stats: dict[str, Any] = field(default_factory=dict)

    def add(self, answer: GeneratedAnswer, *, has_final: bool = False) -> None:
        """Count an answer; `has_final` says that its task's replies end in one."""
        if answer.failure is not None:
            self.failures[answer.failure.code] += 1
            self.first_failure = self.first_failure or answer.failure.why
            return
        self.answered += 1
        self.truncated += answer.finish_reason == "length"
        self.no_final_answer += has_final and answer.final is None
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens

    def row(self) -> dict[str, Any]:
        """The counts for the manifest."""
        own = {"engine_stats", "load_s", "judge_s"}
        counts = {name: count for name, count in SessionStats.row(self).items() if name not in own}
        return counts | {"collect_s": round(self.judge_s, 3)}


@dataclass(slots=True, kw_only=True)
class CascadeStats(Stats):
    """Counts of a cascade: what the large judge was spared, and where it decided otherwise.

    Attributes:
        pairs: judged by the small judge.
        passed_on: of them to the large judge: those it was unsure of, and `passed_on_failed`, which it could not judge.
        waiting: of those passed on, not yet judged by the large judge, and so not in the joined file.
        small_tokens: prompt tokens that the small judge read.
        large_tokens: prompt tokens that the large judge read.
        compared: passed on, with a verdict of both judges; of them `changed` have another winner.
        mended: passed on without a verdict of the small judge, and given one by the large.
    """

    pairs: int = 0
    passed_on: int = 0
    passed_on_failed: int = 0
    waiting: int = 0
    small_tokens: int = 0
    large_tokens: int = 0
    compared: int = 0
    changed: int = 0
    mended: int = 0


@dataclass(slots=True, kw_only=True)
class PanelJudgeStats(Stats):
    """Counts of one judge of a panel.

    Attributes:
        missing: samples that its run lacks.
        same: verdicts that equal the panel's.
    """

    family: str
    verdicts: int = 0
    failed: int = 0
    missing: int = 0
    same: int = 0


@dataclass(slots=True, kw_only=True)
class PanelStats(Stats):
    """Counts of a panel.

    Attributes:
        judges: by name.
        unanimous: samples with a verdict of the panel on which all judges gave the same verdict.
        same_input: whether all runs read the same files, by their hashes.
    """

    judges: dict[str, PanelJudgeStats]
    unanimous: int = 0
    same_input: bool = True

    def row(self) -> dict[str, Any]:
        """The counts for the manifest."""
        return Stats.row(self) | {"judges": {name: judge.row() for name, judge in self.judges.items()}}


_SAVE_EVERY_S = 30.0


Item = TypeVar("Item")


def pending(items: Iterable[Item], is_finished: Callable[[Any], bool], stats: SessionStats) -> Iterator[Item]:
    """The items that are not finished; the others are counted as skipped. A None passes."""
    for item in items:
        if item is not None and is_finished(item):
            stats.skipped += 1
        else:
            yield item


class RunSession:
    """One process's entry in the manifest of a run, from entering the `with` block to leaving it.

    The entry is saved every half minute, so that a killed session leaves its trace.

    Args:
        files: open; whoever opened them closes them after the session.
        stats: counts of the session.
        engine: that the run uses; None for a run joined from others.
    """

    def __init__(self, files: RunFiles, stats: SessionStats, engine: Engine | None = None) -> None:
        self._files = files
        self._stats = stats
        self._engine = engine
        self._began = self._saved = time.monotonic()
        self._entry: dict[str, Any] = {"started": _now(), "outcome": "running", "pid": os.getpid()}

    def __enter__(self) -> Self:
        self._update()
        self._files.start_session(self._entry)
        return self

    def tick(self) -> None:
        """Count time, and save when the last save is long ago."""
        now = time.monotonic()
        self._stats.judge_s = now - self._began
        if now - self._saved > _SAVE_EVERY_S:
            self._saved = now
            self._update()
            self._files.save()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._update()
        self._entry |= {"outcome": _outcome(error), "ended": _now()}
        if error is None:
            self._files.save()
            return
        with suppress(RunError):  # a full disk does not hide the first error
            self._files.save()

    def _update(self) -> None:
        """Enter the counts of the run and of its engine, and the engine's processes, as they are now."""
        self._entry |= self._stats.row()
        if self._engine is not None:
            self._entry |= {"engine": self._engine.stats(), "children": children(str(self._files.out))}


def write_joined(
    files: RunFiles, judgments: Iterable[Judgment], stats: RunStats, entries: Callable[[], Mapping[str, Any]]
) -> None:
    """Write judgments that other runs decided, except those that stand in the file already.

    Args:
        files: of the joined run.
        judgments: all of them, one per sample.
        stats: counts them.
        entries: gives further entries of the manifest, called at the end.
    """
    with RunSession(files, stats):
        written = {hash(row["id"]): _hash_of_content(row) for _, row in read_jsonl(files.out)}
        for judgment in judgments:
            stats.add(judgment)
            content = _hash_of_content(judgment_row(judgment))
            if written.get(hash(judgment.sample_id)) != content:
                files.write(judgment)
                written[hash(judgment.sample_id)] = content
        files.manifest |= entries()


def _hash_of_content(row: Mapping[str, object]) -> int:
    """A hash of a row, whichever session wrote it."""
    return hash(encode_line({**row, "provenance": ""}))


def common_mode(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The options of the mode that all runs have in common."""
    first, *others = (manifest["fingerprint"].get("mode", {}) for manifest in manifests)
    return {key: value for key, value in first.items() if all(mode.get(key) == value for mode in others)}


def last_provenance(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a run's last session; empty without sessions."""
    return next(reversed(manifest["provenance"].values()), {})


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt | GeneratorExit) else type(error).__name__


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


_MARK = "JUDGELM_RUN"
_POLL_S = 0.05
_CLOCK_S = 1.0
"""Maximum error between the start times of two processes: the kernel states the time of the boot in whole seconds."""


def mark_children(out: str) -> None:
    """Mark this process's environment, so that the programs it starts from now on belong to the run of `out`.

    vLLM's setproctitle is told to leave the environment readable, over which it would write the process's title.
    """
    os.environ[_MARK] = _own_mark(out)
    os.environ.setdefault("SPT_NOENV", "1")


def children(out: str) -> list[int]:
    """Ids of the living processes that this process has started for the run of `out`, and of their children."""
    own = _own_mark(out)
    return sorted(process.pid for process, mark in _marked() if mark == own)


def end_orphans(out: str, grace_s: float = 5.0) -> list[int]:
    """End the processes that earlier runs of the same file left behind: SIGTERM, and SIGKILL after `grace_s` seconds.

    Returns:
        Ids of the processes ended; empty where there were none.
    """
    run = _run_id(out)
    orphans = [process for process, mark in _marked() if _is_orphan(process.pid, mark, run)]
    _end(orphans, grace_s)
    return sorted(process.pid for process in orphans)


def _end(processes: Sequence[psutil.Process], grace_s: float) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    until = time.monotonic() + grace_s
    while (left := [process for process in processes if _lives(process)]) and time.monotonic() < until:
        time.sleep(_POLL_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()


def _is_orphan(pid: int, mark: str, run: str) -> bool:
    """True if a process was started for this run by a process that no longer lives."""
    name, _, parent = mark.partition(":")
    if name != run or not parent.isdigit():
        return False
    try:
        # both anew, so that both start times count from the same boot
        started, parent_started = (psutil.Process(process).create_time() for process in (pid, int(parent)))
        return not _lives(psutil.Process(int(parent))) or parent_started > started + _CLOCK_S
    except psutil.NoSuchProcess:
        return True


def _lives(process: psutil.Process) -> bool:
    """True if a process still runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _own_mark(out: str) -> str:
    return f"{_run_id(out)}:{os.getpid()}"


def _run_id(out: str) -> str:
    """12 hex digits of the run's file, the same for every path to it."""
    return hashlib.sha256(os.fsencode(Path(out).resolve())).hexdigest()[:12]


def _marked() -> Iterator[tuple[psutil.Process, str]]:
    """Other living processes with a mark; only those of this process's pid namespace (no other container's)."""
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(_MARK)
            same = Path(f"/proc/{process.pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
        if mark is not None and same and process.pid != os.getpid():
            yield process, mark
