"""Panels, which combine several judges' runs on the same samples.

The output has one judgment per sample. In `votes`, each run's name is mapped to its verdict, or to None if there is no
verdict. If there are fewer votes than the quorum, the panel is `undecided`.

Source: Play Favorites, section 7.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from judgelm.data.judged_texts import check_same_texts
from judgelm.errors import ConfigError, InputError
from judgelm.modes.votes import Opinion, combine, verdict_text
from judgelm.package import VERSION
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, Unparsed, Verdict
from judgelm.runs.run_files import RunFiles, check_output_is_no_input, latest_judgments, required_manifest
from judgelm.runs.session import common_mode, last_provenance, write_joined
from judgelm.runs.stats import PanelJudgeStats, PanelStats, RunStats

Rule = Literal["vote", "mean"]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Judges and the rule for combining their verdicts.

    Attributes:
        runs: two or more run files. Each judge is named after its file.
        rule: `vote` counts verdicts; `mean` compares mean scores.
        families: names of judges or models, keyed by family. A family's judges are combined first and count as one
            judge. All other judges count separately.
        quorum: minimum number of families with a verdict; None means more than half.
    """

    runs: tuple[Path, ...]
    out: Path
    rule: Rule = "vote"
    families: Mapping[str, Sequence[str]] = field(default_factory=dict)
    quorum: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if len(self.runs) < 2 or len(set(self.names)) < len(self.runs):
            raise ConfigError(f"panel of {', '.join(self.names)}: pass at least two runs with different names")
        check_output_is_no_input(self.out, self.runs)
        families = len(set(self.family_of.values()))
        if self.quorum is not None and not 1 <= self.quorum <= families:
            raise ConfigError(f"quorum is {self.quorum}; expected 1 to {families}, the number of families")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the judges, in the order of `runs`."""
        return tuple(run.name.removesuffix(".jsonl") for run in self.runs)

    @cached_property
    def manifests(self) -> dict[str, dict[str, Any]]:
        """The manifest of each judge."""
        way_out = "check the path, or run judgelm-batch first"
        return {name: required_manifest(run, way_out) for name, run in zip(self.names, self.runs, strict=True)}

    @cached_property
    def family_of(self) -> dict[str, str]:
        """The family of each judge, by default the judge's own name."""
        families = {name: name for name in self.names}
        models = {name: _model_of(self.manifests[name]) for name in self.names}
        for family, members in self.families.items():
            for member in members:
                judges = [name for name in self.names if member in (name, models[name])]
                if not judges:
                    known = ", ".join(dict.fromkeys([*self.names, *filter(None, models.values())]))
                    raise ConfigError(f"family {family}: judge {member!r} not found; available: {known}")
                families |= dict.fromkeys(judges, family)
        return families

    @cached_property
    def comparable(self) -> bool:
        """True if all judges have the same mode and scale."""
        modes = [manifest["fingerprint"].get("mode", {}) for manifest in self.manifests.values()]
        return len({(mode.get("name"), str(mode.get("scale"))) for mode in modes}) == 1


def aggregate(panel: Panel) -> tuple[RunStats, PanelStats]:
    """Merge all runs into the output file without rewriting existing judgments."""
    by_sample = _judgments_by_sample(panel)
    counts = PanelStats(judges={name: PanelJudgeStats(family=panel.family_of[name]) for name in panel.names})
    inputs = [manifest["fingerprint"].get("input", []) for manifest in panel.manifests.values()]
    counts.same_input = len({tuple(file.get("sha") for file in files) for files in inputs}) == 1
    joined = [_joined(panel, sample_id, judgments, counts) for sample_id, judgments in by_sample.items()]
    stats = RunStats()
    with RunFiles(
        panel.out, fingerprint=_fingerprint(panel), provenance=_provenance(panel), inputs=[], overwrite=panel.overwrite
    ) as files:
        write_joined(files, joined, stats, lambda: {"panel": asdict(counts)})
    return stats, counts


def _judgments_by_sample(panel: Panel) -> dict[str, dict[str, Judgment]]:
    by_sample: dict[str, dict[str, Judgment]] = {}
    kinds: dict[type[Verdict], str] = {}
    for name, run in zip(panel.names, panel.runs, strict=True):
        for judgment in latest_judgments(run):
            by_sample.setdefault(judgment.sample_id, {})[name] = replace(judgment, shown=(), self_answers=())
            if judgment.verdict is not None and not judgment.abstained:
                kinds.setdefault(type(judgment.verdict), name)
    if len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise ConfigError(f"panel: {first} and {second} have different kinds of verdicts; use runs of the same mode")
    if by_sample and all(len(judgments) == 1 for judgments in by_sample.values()):
        raise InputError(f"panel of {', '.join(panel.names)}: no ids in common; use runs on the same input")
    by_judge = {
        name: {key: judgments[name] for key, judgments in by_sample.items() if name in judgments}
        for name in panel.names
    }
    check_same_texts(by_judge)
    _check_rule(panel, next(iter(kinds), None), by_sample)
    return by_sample


def _check_rule(panel: Panel, kind: type[Verdict] | None, by_sample: Mapping[str, Mapping[str, Judgment]]) -> None:
    if panel.rule == "vote":
        if kind is GradeVerdict:
            raise ConfigError("rule vote: grades are numbers and cannot be counted; use --rule mean")
        return
    if kind is LabelVerdict:
        raise ConfigError("rule mean: verdicts are labels without scores; use --rule vote")
    if not panel.comparable:
        raise ConfigError("rule mean: the judges have different modes or scales; use --rule vote")
    for judgments in by_sample.values():
        for name, judgment in judgments.items():
            if judgment.verdict is not None and not judgment.abstained and judgment.scores is None:
                raise ConfigError(f"rule mean: {name} has no scores; use --rule vote")


def _joined(panel: Panel, sample_id: str, judgments: Mapping[str, Judgment], counts: PanelStats) -> Judgment:
    decision = _decide(panel, sample_id, judgments)
    opinion, failure = (None, decision) if isinstance(decision, Unparsed) else (decision, None)
    votes = {name: _vote(judgments.get(name)) for name in panel.names}
    panel_vote = None if opinion is None else verdict_text(opinion.verdict)
    for name, judge in counts.judges.items():
        judge.missing += name not in judgments
        declined = name in judgments and judgments[name].abstained
        judge.abstained += declined
        judge.failed += name in judgments and votes[name] is None
        judge.verdicts += votes[name] is not None and not declined
        judge.same += panel_vote is not None and votes[name] == panel_vote
    counts.unanimous += panel_vote is not None and set(votes.values()) == {panel_vote}
    return Judgment(
        sample_id=sample_id,
        mode=next(iter(judgments.values())).mode,
        verdict=None if opinion is None else opinion.verdict,
        shown=(),
        scores=None if opinion is None else opinion.scores,
        probability=None if opinion is None else opinion.probability,
        failure=failure,
        sanitized=max(judgment.sanitized for judgment in judgments.values()),
        prompt_tokens=sum(judgment.prompt_tokens for judgment in judgments.values()),
        completion_tokens=sum(judgment.completion_tokens for judgment in judgments.values()),
        votes=votes,
        hashes=next((judgment.hashes for judgment in judgments.values() if judgment.hashes is not None), None),
    )


def _decide(panel: Panel, sample_id: str, judgments: Mapping[str, Judgment]) -> Opinion | Unparsed:
    by_family: dict[str, list[Opinion]] = {}
    for name, judgment in judgments.items():
        if judgment.verdict is not None and not judgment.abstained:
            opinion = Opinion(verdict=judgment.verdict, scores=judgment.scores, probability=judgment.probability)
            by_family.setdefault(panel.family_of[name], []).append(opinion)
    try:
        combined = [combine(family, panel.rule, comparable=panel.comparable) for family in by_family.values()]
        opinions = [opinion for opinion in combined if isinstance(opinion, Opinion)]
        voters = len(set(panel.family_of.values()))
        quorum = panel.quorum or voters // 2 + 1
        if len(opinions) < quorum:
            failures = _failure_counts(judgments)
            return Unparsed(
                "undecided", failures, f"{len(opinions)} of {voters} families have a verdict; {quorum} required"
            )
        return combine(opinions, panel.rule, comparable=panel.comparable)
    except ValueError as error:
        raise InputError(f"sample {sample_id}: {error}; use runs on the same samples") from error


def _failure_counts(judgments: Mapping[str, Judgment]) -> str:
    codes: Counter[str] = Counter(
        judgment.failure.code for judgment in judgments.values() if judgment.failure is not None
    )
    if abstained := sum(judgment.abstained for judgment in judgments.values()):
        codes["abstained"] = abstained
    return ", ".join(f"{code} {count}" for code, count in codes.most_common())


def _vote(judgment: Judgment | None) -> str | None:
    return None if judgment is None or judgment.verdict is None else verdict_text(judgment.verdict)


def _model_of(manifest: Mapping[str, Any]) -> str | None:
    model = last_provenance(manifest).get("model", {})
    location = model.get("name") or model.get("adapter") or model.get("path")
    return Path(location).name if isinstance(location, str) else None


def _fingerprint(panel: Panel) -> dict[str, Any]:
    return {
        "panel": {
            "rule": panel.rule,
            "quorum": panel.quorum,
            "families": panel.family_of,
            "runs": {name: manifest["fingerprint"] for name, manifest in panel.manifests.items()},
        },
        "mode": common_mode(list(panel.manifests.values())),
    }


def _provenance(panel: Panel) -> dict[str, Any]:
    return {
        "judgelm": VERSION,
        "model": {"name": f"panel of {', '.join(panel.names)}"},
        "mode": common_mode(list(panel.manifests.values())),
        "panel": {name: last_provenance(manifest) for name, manifest in panel.manifests.items()},
    }
