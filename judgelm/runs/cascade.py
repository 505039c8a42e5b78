"""Cascades, in which a large judge decides the pairs that a small judge is unsure about.

    OUT.small.jsonl   the small judge's run on all samples, with probabilities
    OUT.large.jsonl   the large judge's run on the unsure pairs
    OUT.jsonl         both runs joined; each judgment records which judge decided

Each run can be resumed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from judgelm.data.readers.inputs import is_stream
from judgelm.errors import ConfigError, RunError
from judgelm.jsonl import read_jsonl
from judgelm.package import VERSION
from judgelm.records import Judgment, TextHashes
from judgelm.runs.batch import BatchJob, files_of_job
from judgelm.runs.run_files import (
    RunFiles,
    check_output_is_no_input,
    latest_judgments,
    read_manifest,
    required_manifest,
    run_paths,
    shown_id,
)
from judgelm.runs.session import common_mode, last_provenance, write_joined
from judgelm.runs.stats import CascadeStats, RunStats

_RERUN = "rerun the cascade, starting with the small judge"
_WAY_OUT = "a cascade requires them; use --engine transformers, vllm, or a server with logprobs, and pass --overwrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A job with a small and a large judge.

    Attributes:
        band: inclusive range of the small judge's P(first better) in which the large judge decides.
    """

    job: BatchJob
    models: tuple[str, str]
    band: tuple[float, float]

    def __post_init__(self) -> None:
        low, high = self.band
        if not 0 <= low <= 0.5 <= high <= 1:
            raise ConfigError(f"cascade band {low:g},{high:g}: expected LOW,HIGH with 0 <= LOW <= 0.5 <= HIGH <= 1")
        if self.job.out == "-":
            raise ConfigError("a cascade cannot write to standard output; set an output file with -o")
        files = files_of_job(self.job)
        if any(map(is_stream, files)):
            raise ConfigError("input -: a cascade reads its input twice; save it to a file first")
        for out in (self.job.out, *self.paths):
            check_output_is_no_input(out, [*self.job.inputs, *files])

    @property
    def paths(self) -> tuple[Path, Path]:
        """The run files of the small and the large judge."""
        return cascade_paths(Path(self.job.out))

    def check_out(self) -> None:
        """Raise RunError if the output file exists and is not from a cascade."""
        earlier = None if self.job.overwrite else read_manifest(Path(self.job.out))
        if earlier is not None and "cascade" not in earlier["fingerprint"]:
            raise RunError(f"{self.job.out}: not the output of a cascade; choose another -o, or pass --overwrite")

    @property
    def small_job(self) -> BatchJob:
        """The job for the small judge, with all samples."""
        return replace(self.job, out=str(self.paths[0]))

    def unsure(self) -> set[str]:
        """Return the IDs of samples that the small judge is unsure about."""
        judged = [judgment for judgment in latest_judgments(self.paths[0]) if judgment.verdict is not None]
        if judged and not any(map(has_probabilities, judged)):
            raise ConfigError(f"{self.paths[0]}: {self.models[0]} returned no probabilities, but {_WAY_OUT}")
        return {judgment.sample_id for judgment in latest_judgments(self.paths[0]) if self.is_unsure(judgment)}

    def large_job(self, unsure: set[str]) -> BatchJob:
        """Return the job for the large judge, with the given samples."""
        small, large = self.paths
        before = {"band": list(self.band), "small": _without_input(required_manifest(small, _RERUN)["fingerprint"])}
        return replace(
            self.job,
            out=str(large),
            parts=lambda sample: (sample,) if sample.id in unsure else (),
            fingerprint={"cascade": before},
        )

    def is_unsure(self, judgment: Judgment) -> bool:
        """Return True if P(first better) is in the band or unknown, or if the small judge failed or abstained."""
        low, high = self.band
        if judgment.verdict is None or judgment.abstained or judgment.probability is None:
            return True
        return low - 1e-9 <= judgment.probability <= high + 1e-9  # the mean of 0.2 and 0.4 is slightly above 0.3

    def refuse_without_probabilities(self) -> Callable[[Judgment], None]:
        """Return a callback that raises ConfigError if the small judge's first verdict has no probabilities."""
        seen = False

        def look(judgment: Judgment) -> None:
            nonlocal seen
            if not seen and judgment.verdict is not None:
                seen = True
                if not has_probabilities(judgment):
                    raise ConfigError(f"{self.models[0]}: the engine returns no probabilities, but {_WAY_OUT}")

        return look


def cascade_paths(out: Path) -> tuple[Path, Path]:
    """Return the run files of the small and the large judge."""
    stem = out.name.removesuffix(".jsonl")
    return out.with_name(f"{stem}.small.jsonl"), out.with_name(f"{stem}.large.jsonl")


def has_probabilities(judgment: Judgment) -> bool:
    """Return True if the engine returned P(first better), or probabilities for score lines in at least one order."""
    return judgment.probability is not None or any(prompt.distribution is not None for prompt in judgment.shown)


def join_runs(cascade: Cascade) -> tuple[RunStats, CascadeStats]:
    """Merge both runs into the output file without rewriting existing judgments."""
    manifests = [required_manifest(path, _RERUN) for path in cascade.paths]
    stats = RunStats(load_s=_seconds(manifests, "load_s"), judge_s=_seconds(manifests, "judge_s"))
    counts = CascadeStats()
    small_rejects = run_paths(cascade.paths[0])[2]
    with RunFiles(
        Path(cascade.job.out),
        fingerprint=_fingerprint(cascade, manifests),
        provenance=_provenance(cascade, manifests),
        inputs=files_of_job(cascade.job),
        overwrite=cascade.job.overwrite,
    ) as files:
        for _, row in read_jsonl(small_rejects) if small_rejects.is_file() else ():
            files.reject(row)
            stats.rejected += 1
        entry = {"models": list(cascade.models), "band": list(cascade.band)}
        write_joined(files, _joined(cascade, counts), stats, lambda: {"cascade": {**entry, "counts": asdict(counts)}})
    return stats, counts


def _joined(cascade: Cascade, counts: CascadeStats) -> Iterator[Judgment]:
    small, large = cascade.paths
    passed: dict[int, tuple[object, TextHashes | None]] = {}
    for judgment in latest_judgments(small):
        counts.pairs += 1
        counts.small_tokens += judgment.prompt_tokens
        if not cascade.is_unsure(judgment):
            yield replace(judgment, decided_by="small")
            continue
        passed[hash(judgment.sample_id)] = (judgment.winner, judgment.hashes)
        counts.passed_on += 1
        counts.passed_on_failed += judgment.verdict is None
        counts.passed_on_abstained += judgment.abstained
    counts.waiting = len(passed)
    for judgment in latest_judgments(large):
        if hash(judgment.sample_id) not in passed:  # the small judge has judged it again and is now sure
            continue
        before, hashes = passed[hash(judgment.sample_id)]
        if hashes != judgment.hashes:
            raise RunError(
                f"{large}: id {shown_id(judgment.sample_id)}: the texts differ from those in {small}; pass --overwrite"
            )
        counts.waiting -= 1
        counts.large_tokens += judgment.prompt_tokens
        if judgment.verdict is not None and not judgment.abstained:
            counts.mended += before is None
            counts.compared += before is not None
            counts.changed += before is not None and judgment.winner != before
        yield replace(judgment, decided_by="large")


def _without_input(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fingerprint.items() if key not in {"input", "cascade"}}


def _fingerprint(cascade: Cascade, manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    small, large = (manifest["fingerprint"] for manifest in manifests)
    return {
        "cascade": {"band": list(cascade.band), "small": _without_input(small), "large": _without_input(large)},
        "mode": common_mode(manifests),
        "input": small["input"],
    }


def _provenance(cascade: Cascade, manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    small, large = map(last_provenance, manifests)
    alike = {key: small[key] for key in ("engine", "template", "mode") if small[key] == large[key]}
    return {
        "judgelm": VERSION,
        "model": {"name": f"{cascade.models[0]}, then {cascade.models[1]}"},
        **alike,
        "cascade": {"band": list(cascade.band), "small": small, "large": large},
    }


def _seconds(manifests: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(session.get(name, 0.0) for manifest in manifests for session in manifest["sessions"]))
