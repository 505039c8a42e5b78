"""Several judges as one: their runs over the same samples, joined by id.

Nothing is judged here. Each judge has a run file of its own, made by `judgelm-batch`, and OUT is a run file again, with
one judgment per sample: `votes` says what each judge concluded, by the name of its run. A judge that failed on a
sample, or whose run does not hold it, has no vote; where fewer than the quorum have one, the panel is `undecided`. A
rerun adds to OUT what is missing or has changed.

Source: Play Favorites, section 7.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, Unparsed, Verdict
from judgelm.runs.aggregation import Opinion, Rule, combine, verdict_text
from judgelm.runs.run_files import RunFiles, read_manifest, run_paths, standing_judgments
from judgelm.runs.serialization import judgment_row
from judgelm.runs.stats import RunStats
from judgelm.version import VERSION


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Judges and how they decide.

    Attributes:
        runs: their run files, two or more; a judge's name is its file's, without `.jsonl`.
        out: the joined run file.
        rule: `vote` or `mean`, see `judgelm.runs.aggregation`.
        families: family -> names of its judges, or of their models. The judges of a family become one opinion first,
            so that a family counts once however many judges it has. A judge in none is a family of its own.
        quorum: how many judges, or families where there are any, must have an opinion; None is more than half.
        overwrite: start OUT over.

    Raises:
        ConfigError: fewer than two runs, names that come twice, files that get in each other's way, or a family of a
            judge that is not there.
        RunError: a run has no manifest.
    """

    runs: tuple[Path, ...]
    out: Path
    rule: Rule = "vote"
    families: Mapping[str, Sequence[str]] = field(default_factory=dict)
    quorum: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise ConfigError(f"rule {self.rule!r} does not exist; there are: {', '.join(get_args(Rule))}")
        if len(self.runs) < 2 or len(set(self.names)) < len(self.runs):
            raise ConfigError(
                f"panel of {', '.join(self.names) or 'no judge'}: it needs two run files or more, each with a name of "
                "its own"
            )
        own = {path.resolve() for path in run_paths(self.out)}
        for run in self.runs:
            if run.resolve() in own:
                raise ConfigError(f"-o {self.out}: this would write over {run}, a judge's run; choose another -o")
        most = len(set(self.family_of.values()))
        if self.quorum is not None and not 1 <= self.quorum <= most:
            raise ConfigError(f"quorum {self.quorum}: expected 1 to {most}, as many as can have an opinion")

    @property
    def names(self) -> tuple[str, ...]:
        """The judges' names, in the order of `runs`."""
        return tuple(run.name.removesuffix(".jsonl") for run in self.runs)

    @cached_property
    def manifests(self) -> dict[str, dict[str, Any]]:
        """Each judge's manifest."""
        found = {name: read_manifest(run) for name, run in zip(self.names, self.runs, strict=True)}
        if lacking := [str(run) for run, one in zip(self.runs, found.values(), strict=True) if one is None]:
            raise RunError(f"{lacking[0]}: no such run file; judge with judgelm-batch first, or correct the path")
        return {name: one for name, one in found.items() if one is not None}

    @cached_property
    def family_of(self) -> dict[str, str]:
        """Each judge's family; its own name where it is in none."""
        found = {name: name for name in self.names}
        models = {name: _model_of(self.manifests[name]) for name in self.names}
        for family, members in self.families.items():
            for member in members:
                judges = [name for name in self.names if member in (name, models[name])]
                if not judges:
                    known = ", ".join(dict.fromkeys([*self.names, *filter(None, models.values())]))
                    raise ConfigError(f"family {family}: no judge is named {member!r}; there are: {known}")
                found |= dict.fromkeys(judges, family)
        return found

    @cached_property
    def comparable(self) -> bool:
        """Whether all judges score on one scale, in one way of judging."""
        ways = [one["fingerprint"].get("mode", {}) for one in self.manifests.values()]
        return all((way.get("name"), way.get("scale")) == (ways[0].get("name"), ways[0].get("scale")) for way in ways)


@dataclass(slots=True, kw_only=True)
class PanelJudgeStats:
    """One judge of a panel: its verdicts, failures, samples its run lacks, and verdicts that the panel shares."""

    family: str
    verdicts: int = 0
    failed: int = 0
    missing: int = 0
    same: int = 0


@dataclass(slots=True, kw_only=True)
class PanelStats:
    """A panel in counts.

    Attributes:
        judges: by name.
        unanimous: samples with a verdict of the panel on which all judges gave the same one.
        same_input: whether all runs read the same files, by their hashes.
    """

    judges: dict[str, PanelJudgeStats]
    unanimous: int = 0
    same_input: bool = True


def aggregate(panel: Panel) -> tuple[RunStats, PanelStats]:
    """Write OUT from all runs; what already stands in it is not written again.

    Returns:
        All judgments of the panel in counts, and what each judge had to do with them.

    Raises:
        ConfigError: the rule cannot be applied to these judges.
        InputError: a line is no judgment, or one id stands for different samples.
        RunError: OUT cannot be written, or belongs to another run.
    """
    ballots = _ballots(panel)
    counts = PanelStats(judges={name: PanelJudgeStats(family=panel.family_of[name]) for name in panel.names})
    inputs = [one["fingerprint"].get("input", []) for one in panel.manifests.values()]
    counts.same_input = len({tuple(file.get("sha") for file in one) for one in inputs}) == 1
    joined = [_judged(panel, sample_id, given, counts) for sample_id, given in ballots.items()]
    stats = RunStats()
    files = RunFiles(
        panel.out, fingerprint=_fingerprint(panel), provenance=_provenance(panel), inputs=[], overwrite=panel.overwrite
    )
    session = {"started": _now(), "outcome": "running", "pid": os.getpid()}
    try:
        files.start_session(session)
        written = {row["id"]: _content(row) for _, row in read_jsonl(panel.out)}
        for judgment in joined:
            stats.add(judgment)
            if written.get(judgment.sample_id) != _content(judgment_row(judgment)):
                files.write(judgment)
        session |= {"outcome": "finished", "ended": _now(), **stats.row()}
        files.manifest["panel"] = asdict(counts)
        files.save()
    finally:
        files.close()
    return stats, counts


def _ballots(panel: Panel) -> dict[str, dict[str, Judgment]]:
    """By sample, in the order of the runs: each judge's judgment, without what was shown to it."""
    found: dict[str, dict[str, Judgment]] = {}
    kinds: dict[type[Verdict], str] = {}
    for name, run in zip(panel.names, panel.runs, strict=True):
        for judgment in standing_judgments(run):
            found.setdefault(judgment.sample_id, {})[name] = replace(judgment, shown=(), self_answers=())
            if judgment.verdict is not None:
                kinds.setdefault(type(judgment.verdict), name)
    if len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise ConfigError(f"panel: {first} and {second} come to verdicts of different kinds; join runs of one mode")
    _check_rule(panel, next(iter(kinds), None), found)
    return found


def _check_rule(panel: Panel, kind: type[Verdict] | None, ballots: Mapping[str, Mapping[str, Judgment]]) -> None:
    if panel.rule == "vote":
        if kind is GradeVerdict:
            raise ConfigError("rule vote: grades are numbers; use --rule mean")
        return
    if kind is LabelVerdict:
        raise ConfigError("rule mean: these judges end in a word and give no scores; use --rule vote")
    if not panel.comparable:
        raise ConfigError("rule mean: the judges have different modes or scales; use --rule vote")
    for given in ballots.values():
        for name, judgment in given.items():
            if judgment.verdict is not None and judgment.scores is None:
                raise ConfigError(f"rule mean: {name} gives no scores; use --rule vote")


def _judged(panel: Panel, sample_id: str, given: Mapping[str, Judgment], counts: PanelStats) -> Judgment:
    """The panel's judgment of one sample."""
    decided = _decide(panel, sample_id, given)
    votes = {name: _vote(given.get(name)) for name in panel.names}
    word = None if isinstance(decided, Unparsed) else verdict_text(decided.verdict)
    for name, judge in counts.judges.items():
        judge.missing += name not in given
        judge.failed += name in given and votes[name] is None
        judge.verdicts += votes[name] is not None
        judge.same += word is not None and votes[name] == word
    counts.unanimous += word is not None and set(votes.values()) == {word}
    reached, failure = (None, decided) if isinstance(decided, Unparsed) else (decided, None)
    return Judgment(
        sample_id=sample_id,
        mode=next(iter(given.values())).mode,
        verdict=None if reached is None else reached.verdict,
        shown=(),
        scores=None if reached is None else reached.scores,
        probability=None if reached is None else reached.probability,
        failure=failure,
        sanitized=max(one.sanitized for one in given.values()),
        prompt_tokens=sum(one.prompt_tokens for one in given.values()),
        completion_tokens=sum(one.completion_tokens for one in given.values()),
        votes=votes,
    )


def _decide(panel: Panel, sample_id: str, given: Mapping[str, Judgment]) -> Opinion | Unparsed:
    """Families first, then all of them; `undecided` below the quorum."""
    by_family: dict[str, list[Opinion]] = {}
    for name, one in given.items():
        if one.verdict is not None:
            opinion = Opinion(verdict=one.verdict, scores=one.scores, probability=one.probability)
            by_family.setdefault(panel.family_of[name], []).append(opinion)
    try:
        found = [combine(own, panel.rule, comparable=panel.comparable) for own in by_family.values()]
        opinions = [one for one in found if isinstance(one, Opinion)]
        could = len(set(panel.family_of.values()))
        quorum = panel.quorum or could // 2 + 1
        if len(opinions) < quorum:
            return Unparsed("undecided", _failures(given), f"{len(opinions)} of {could} have an opinion, not {quorum}")
        return combine(opinions, panel.rule, comparable=panel.comparable)
    except ValueError as error:
        raise InputError(f"sample {sample_id}: {error}; the runs are not of the same samples") from error


def _failures(given: Mapping[str, Judgment]) -> str:
    """`off_grammar 2, engine 1`."""
    codes = Counter(one.failure.code for one in given.values() if one.failure is not None)
    return ", ".join(f"{code} {count}" for code, count in codes.most_common())


def _vote(judgment: Judgment | None) -> str | None:
    return None if judgment is None or judgment.verdict is None else verdict_text(judgment.verdict)


def _content(row: Mapping[str, object]) -> int:
    """A hash of a row, whatever session wrote it."""
    return hash(encode_line({**row, "provenance": ""}))


def _model_of(manifest: Mapping[str, Any]) -> str | None:
    """What the judge's model is called in its run."""
    sessions = list(manifest["provenance"].values())
    model = sessions[-1].get("model", {}) if sessions else {}
    place = model.get("name") or model.get("adapter") or model.get("path")
    return Path(place).name if isinstance(place, str) else None


def _fingerprint(panel: Panel) -> dict[str, Any]:
    ways = [one["fingerprint"].get("mode", {}) for one in panel.manifests.values()]
    return {
        "panel": {
            "rule": panel.rule,
            "quorum": panel.quorum,
            "families": panel.family_of,
            "runs": {name: one["fingerprint"] for name, one in panel.manifests.items()},
        },
        "mode": {key: value for key, value in ways[0].items() if all(way.get(key) == value for way in ways)},
    }


def _provenance(panel: Panel) -> dict[str, Any]:
    return {
        "judgelm": VERSION,
        "model": {"name": f"panel of {', '.join(panel.names)}"},
        "mode": _fingerprint(panel)["mode"],
        "panel": {name: list(one["provenance"].values())[-1] for name, one in panel.manifests.items()},
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
