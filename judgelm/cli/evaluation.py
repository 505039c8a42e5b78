"""Compare run files with labels."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from judgelm.cli.console import errors, printed_rejects
from judgelm.cli.options import LabelChoice, Parser, ScoringOptions
from judgelm.data.judged_texts import check_common_ids, check_reversed
from judgelm.data.labelled_set import LabelledSet, hashes_in_row, match_labels, read_labels
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.inputs import is_stream
from judgelm.data.readers.rows import Row
from judgelm.data.samples import AS_WRITTEN, Reading
from judgelm.data.sources.reviews import read_results
from judgelm.data.training_questions import SeenQuestions, read_hashes, seen_questions
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import parse_json
from judgelm.metrics.resampling import Resampling
from judgelm.parsing.scores import LabelRule, parse_pair, parse_pair_anywhere, parse_pair_original
from judgelm.records import Judgment
from judgelm.runs.run_files import read_judgments
from judgelm.runs.session import last_provenance
from judgelm.runs.stored_judgments import StoredJudgments
from judgelm.serialization import is_judgment_row
from judgelm.studies.claim import ClaimOptions, WinRateClaim, claim_win_rate
from judgelm.studies.compare_judges import CompareOptions, compare_judges
from judgelm.studies.evaluation import Evaluation, EvaluationOptions, evaluate
from judgelm.studies.pair_labels import TIE_THRESHOLD, pair_label, scores_behind, winner_of
from judgelm.studies.result import StudyResult
from judgelm.studies.style_control import ControlledAgreement, controlled_agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """An evaluation and its inputs."""

    evaluation: Evaluation
    judgments: Mapping[str, Judgment]
    labelled: LabelledSet
    manifest: dict[str, Any]
    seen: SeenQuestions | None = None
    control: ControlledAgreement | None = None
    claim: WinRateClaim | str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all results for `--json`."""
        parts = {"training_questions": self.seen, "control": self.control}
        claim = {"win_rate": self.claim.to_json()} if isinstance(self.claim, WinRateClaim) else {}
        known = {name: asdict(part) for name, part in parts.items() if part is not None}
        return self.evaluation.to_json() | known | claim


def score(options: ScoringOptions) -> ScoredRun:
    """Load the files and evaluate the judgments."""
    whole, judgments = _read(options.judgments, options)
    reverse = None
    if options.reversed_ is not None:
        whole_reverse, reverse = _read(options.reversed_, options)
        check_common_ids(judgments, reverse, str(options.reversed_))
        if isinstance(whole_reverse, StoredJudgments):
            check_reversed(whole, whole_reverse)  # other programs may store the texts without swapping them
    manifest = load_manifest(options.judgments)
    if (name := _mode(manifest).get("name")) == "label":
        finding = f"{options.judgments}: mode {name} judges single answers, and eval compares pairs"
        raise ConfigError(f"{finding}; judgelm export -s FILE puts the verdicts next to your labels")
    reading = replace(options.reading_of(options.labels, options.judgments), as_authors=options.parser == "original")
    labelled = load_labels(options.labels, options.label_reference, manifest, reading)
    labelled = _by_order_rule(labelled, options)
    labelled, texts = match_labels(whole, labelled, name=str(options.labels))
    pandalm, mode = options.protocol == "pandalm", _mode(manifest)
    labels, samples = labelled.labels, labelled.samples
    clusters: dict[str, int] = {}
    names_models = False
    for key, sample in samples.items():
        clusters[key] = xxh3_64_intdigest((sample.question or key).encode(errors="surrogatepass"))
        names_models |= bool(sample.answer_models)
    threshold = mode.get("tie_threshold", TIE_THRESHOLD) if options.tie_threshold is None else options.tie_threshold
    protocol = EvaluationOptions(
        failures=options.failures or ("as_tie" if pandalm else "excluded"),
        order_rule=options.order_rule or _default_rule(mode, judgments, pandalm=pandalm),
        tie_threshold=threshold,
        run_rule=mode.get("order_rule"),
        scale=_scale_in_words(options, manifest),
        resampling=Resampling(seed=options.seed, resamples=options.bootstrap),
    )
    deciding = {key: f"{judgment.decided_by} judge" for key, judgment in judgments.items() if judgment.decided_by}
    evaluation = evaluate(
        judgments,
        labels,
        reverse=reverse,
        groups={**labelled.groups, **({"deciding judge": deciding} if deciding else {})},
        clusters=clusters or None,
        split=labelled.split,
        options=protocol,
    )
    evaluation = replace(evaluation, notes=(*labelled.notes(), *texts.notes()))
    control = None
    if options.control is not None:
        control = controlled_agreement(
            judgments, labels, samples, evaluation, control=options.control, options=protocol, reverse=reverse
        )
    return ScoredRun(
        evaluation=evaluation,
        judgments=whole,
        labelled=labelled,
        manifest=manifest,
        seen=_seen_questions(labelled, manifest),
        control=control,
        claim=_claim(judgments, labelled, options) if names_models else None,
    )


def _read(path: Path, options: ScoringOptions) -> tuple[Mapping[str, Judgment], dict[str, Judgment]]:
    if is_run_file(path):
        stored = StoredJudgments(path)
        return stored, stored.compact
    judgments = read_run(path, options.parser, options.scale)
    return judgments, judgments


def _claim(judgments: dict[str, Judgment], labelled: LabelledSet, options: ScoringOptions) -> WinRateClaim | str:
    try:
        return claim_win_rate(judgments, labelled.labels, labelled.samples, ClaimOptions(control=options.control))
    except InputError as error:
        return str(error)


def _seen_questions(labelled: LabelledSet, manifest: dict[str, Any]) -> SeenQuestions | None:
    model = last_provenance(manifest).get("model", {}) if manifest.get("provenance") else {}
    for folder in (model.get("adapter"), model.get("path")):
        hashes = read_hashes(folder) if isinstance(folder, str) and folder else None
        if hashes is not None and labelled.samples:
            return seen_questions([sample.question for sample in labelled.samples.values()], hashes)
    return None


def read_run(path: Path, parser: Parser = "judgelm", scale: str = "any") -> dict[str, Judgment]:
    """Load a run file, or parse replies from another program."""
    if is_run_file(path):
        return read_judgments(path)
    if parser == "original":
        results = read_results(str(path), parse_pair_original, hashes=hashes_in_row)
    else:
        limits = _scale(scale)
        fallback = partial(parse_pair_anywhere, scale=limits) if parser == "anywhere" else None
        results = read_results(str(path), partial(parse_pair, scale=limits), fallback=fallback, hashes=hashes_in_row)
    judgments = {result.sample_id: result for result in results}
    failures = [judgment.failure for judgment in judgments.values() if judgment.failure is not None]
    beyond = sum(failure.code == "out_of_range" for failure in failures)
    if beyond and parser != "original":
        finding = f"{beyond:,} of {len(judgments):,} replies have scores outside the range {scale}"
        errors.message(f"{path}: {finding}; try --scale any")
    return judgments


def decided(judgments: dict[str, Judgment], path: Path) -> dict[str, Judgment]:
    """Return the judgments without abstentions, and print how many there are."""
    kept = {key: judgment for key, judgment in judgments.items() if not judgment.abstained}
    if left_out := len(judgments) - len(kept):
        errors.message(f"{path}: the judge abstained on {left_out:,} of {len(judgments):,} pairs, which are excluded")
    return kept


def load_manifest(judgments: Path) -> dict[str, Any]:
    """Load the manifest of a run, or return an empty manifest."""
    path = judgments.with_name(f"{judgments.name.removesuffix('.jsonl')}.run.json")
    if not path.is_file():
        return {}
    try:
        return dict(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: could not load the manifest: {error}") from error


def is_run_file(path: Path) -> bool:
    """Return True if a file is a run file."""
    if is_stream(path):
        raise InputError(f"{path}: reading judgments from a pipe is not supported; save them to a file")
    first = next(iter(read_rows(str(path))), None)
    return isinstance(first, Row) and is_judgment_row(first.data)


def load_labels(
    path: Path, choice: LabelChoice, manifest: dict[str, Any], reading: Reading = AS_WRITTEN
) -> LabelledSet:
    """Load labels made with or without references; `auto` uses the setting in the run's manifest."""
    if choice == "auto" and _mode(manifest).get("reference", "ignore") != "ignore":
        with suppress(InputError):
            return _printed_labels(path, reading, with_reference=True)
    return _printed_labels(path, reading, with_reference=choice == "with")


def _by_order_rule(labelled: LabelledSet, options: ScoringOptions) -> LabelledSet:
    """If the labels are a run file, combine its two orders by `--label-order-rule` and drop failed judgments."""
    rule = options.label_order_rule
    if rule == "as_judged":
        return labelled
    if is_stream(options.labels) or not is_run_file(options.labels):
        raise ConfigError(f"--label-order-rule {rule}: {options.labels} is not a run file; remove the option")
    labels = {}
    for key, judgment in read_judgments(options.labels).items():
        value = pair_label(judgment, rule)
        if value is not None and key in labelled.labels:
            scores = scores_behind(judgment, rule)
            labels[key] = replace(labelled.labels[key], winner=winner_of(value), scores=scores, preference=None)
    unlabelled = labelled.unlabelled + len(labelled.labels) - len(labels)
    return replace(labelled, labels=labels, unlabelled=unlabelled)


def _printed_labels(path: Path, reading: Reading, *, with_reference: bool) -> LabelledSet:
    with printed_rejects("label skipped") as rejects:
        return read_labels(str(path), with_reference=with_reference, on_reject=rejects, reading=reading)


def _default_rule(mode: dict[str, Any], judgments: dict[str, Judgment], *, pandalm: bool) -> LabelRule | None:
    if pandalm:
        return "tie" if any(len(judgment.compared) > 1 for judgment in judgments.values()) else "as_judged"
    chosen = mode.get("order_rule") in ("tie", "probability") or mode.get("accept_one_order")
    return "as_judged" if chosen else None


def _mode(manifest: dict[str, Any]) -> dict[str, Any]:
    return dict(manifest.get("fingerprint", {}).get("mode", {}))


def _scale(text: str) -> tuple[float, float]:
    if text == "any":
        return (float("-inf"), float("inf"))
    low, _, high = text.partition("-")
    try:
        return (float(low), float(high))
    except ValueError as error:
        raise ConfigError(f"--scale {text}: expected LOW-HIGH, such as 1-10, or any") from error


def _scale_in_words(options: ScoringOptions, manifest: dict[str, Any]) -> str | None:
    if manifest:
        low, high = _mode(manifest).get("scale", (None, None))
        return None if low is None else f"{low:g}-{high:g}"
    return "any" if options.parser == "original" else options.scale


def check_once(paths: Iterable[Path]) -> None:
    """Raise an error if a file is given twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise ConfigError(f"{path} is given twice; pass each file once")
        seen.add(path.resolve())


def compare_with(options: ScoringOptions, scored: ScoredRun, other: Path) -> StudyResult:
    """Compare the evaluated run with another judge's run."""
    judges = read_judges([options.judgments, other], [], parser=options.parser, scale=options.scale)
    rules = CompareOptions(
        failures=options.failures or "excluded",
        order_rule=options.order_rule or "as_judged",
        resampling=Resampling(resamples=options.bootstrap, seed=options.seed),
    )
    return compare_judges(judges, scored.labelled, rules)


def read_judges(
    paths: Sequence[Path], names: Sequence[str], *, parser: Parser, scale: str
) -> dict[str, dict[str, Judgment]]:
    """Load each judge's judgments, keyed by the given name or the file name."""
    if names and len(names) != len(paths):
        raise ConfigError(f"--name: got {len(names)} names for {len(paths)} files; give one per file, in order")
    named = list(names) or [path.stem for path in paths]
    if not names and len(set(named)) < len(named):
        named = [f"{path.resolve().parent.name}/{path.stem}" for path in paths]
    if len(set(named)) < len(named):
        raise ConfigError(f"duplicate judge names ({', '.join(named)}); use --name to name each file")
    return {name: decided(read_run(path, parser, scale), path) for name, path in zip(named, paths, strict=True)}
