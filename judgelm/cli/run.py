"""Helpers for `judgelm-batch`: checks, loading, progress, and the final table."""

import gc
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from judgelm.cli.console import console, errors, is_stdout, result_table, resumable, speed, watch
from judgelm.cli.options import JudgeOptions
from judgelm.cluster.plan import RayCluster
from judgelm.data.readers.inputs import all_input_files, is_stream
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.judges.released import ReleasedJudge
from judgelm.judges.resolve import ResolvedJudge
from judgelm.modes import CARD_FIELDS, BatchMode, Pairwise, make_mode
from judgelm.modes.readings import prompt_of, reading_of
from judgelm.modes.votes import Voted
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.prompts.prompt_template import prompt_template
from judgelm.records import Judgment, failure_name
from judgelm.runs.batch import BatchHooks, BatchJob, count_rows, run_batch, run_dtype, run_engine
from judgelm.runs.cascade import Cascade, join_runs
from judgelm.runs.process_cleanup import end_orphans, mark_children
from judgelm.runs.stats import CascadeStats, RunStats

_LOGS = {"judgelm.vllm_start": logging.INFO, "judgelm.openai": logging.WARNING}
"""Loggers whose messages are printed: vLLM startup stages and pauses for a server's rate limit."""


def announce(resolved: ResolvedJudge, cluster: RayCluster | None = None) -> None:
    """Print the model and the engine, and start printing log messages from `_LOGS`."""
    if cluster is None:
        name, reason = resolved.engine, resolved.engine_reason
    else:
        name, reason = resolved.asked_engine, f"on workers, Ray address {cluster.address}"
    console.message(f"loading {resolved.display_name} ({name} engine{reason and f': {reason}'})")
    for source, level in _LOGS.items():
        log = logging.getLogger(source)
        log.setLevel(level)
        if not any(isinstance(handler, _ConsoleHandler) for handler in log.handlers):
            log.addHandler(_ConsoleHandler())


class _ConsoleHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        console.message(record.getMessage())


@contextmanager
def loaded_judge(resolved: ResolvedJudge, *, cluster: RayCluster | None = None, **options: Any) -> Iterator[Judge]:
    """Announce and load a judge, passing `options` to `Judge`."""
    announce(resolved, cluster)
    with Judge(resolved, cluster=cluster, **options) as judge, heap_frozen():
        console.messages(judge.notes)
        if cluster is not None:
            stats = judge.engine.stats()
            console.message(f"{stats['workers']} on {', '.join(stats['nodes'])}")
        yield judge


_NEW_OBJECTS = 50_000
"""Number of new objects that triggers a collection: about 100 pairs."""


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Exclude existing objects (about a million with torch) from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    often = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)
        gc.unfreeze()  # otherwise some libraries report leaks at exit


def shown_address(host: str, port: int) -> str:
    """Return a URL for clients on this machine."""
    name = f"[{host}]" if ":" in host else {"0.0.0.0": "127.0.0.1"}.get(host, host)
    return f"http://{name}:{port}"


_SHOWN_REJECTS = 5
_NO_HOOKS = BatchHooks()


def checked_mode(
    mode: str, chosen: dict[str, Any], judge: JudgeOptions, *, released: ReleasedJudge | None, is_default: bool
) -> str:
    """Check the mode and its options, and return the mode's name. Released judges default to their first mode."""
    if (prompt := judge.judge_prompt()) is not None:
        if mode not in prompt.modes:
            raise ConfigError(
                f"prompt {prompt.name} cannot be used in mode {mode}; use --mode {' or '.join(prompt.modes)}"
            )
        own = {"template": prompt_template(prompt).id, "scale": prompt.reply.scale, "prompt": prompt}
        make_mode(mode, chosen, own)
        return mode
    if released is None or released.template:
        if "criterion" in chosen and judge.reading == "score-line":
            raise ConfigError("--criterion is not supported for score lines; use --reading yes-no, letters, or grade")
        reads = "criterion" in chosen or mode == "label"
        likely = judge.template or judge.reading or ("yes-no" if reads else "score-line")
        make_mode(mode, chosen, {} if likely == "score-line" else {"template": likely})
        return mode
    if is_default and mode not in released.modes:
        mode = released.modes[0]
    released.mode(mode, chosen)
    return mode


def output_of(inputs: list[str], out: str | None, json_out: Path | None) -> str:
    """Return the output path, which defaults to standard output if the input is standard input."""
    if out is None and inputs == ["-"]:
        out = "-"
    if out == "-" and is_stdout(json_out):
        raise ConfigError("--json -: the judgments already go to standard output; write one of the two to a file")
    if out is None:
        raise ConfigError("-o is missing; add -o judgments.jsonl")
    if out != "-" and not out.endswith(".jsonl"):
        raise ConfigError(f"-o {out}: the name must end in .jsonl")
    return out


def check_paths(job: BatchJob, prompt: JudgePrompt | None = None, *, compares: bool = False) -> None:
    """Raise an error for mistyped paths, unknown formats, and literal text in the prompt that is a column's name."""
    files = all_input_files(job.inputs)  # raises an error that suggests similar names
    if job.out != "-" and Path(job.out).is_dir():
        raise InputError(f"{job.out} is a folder; expected a file")
    if job.out != "-" and not Path(job.out).resolve().parent.is_dir():
        raise InputError(f"{job.out}: no such folder; create {Path(job.out).parent} first")
    if not any(map(is_stream, files)):
        answers = (2, None) if compares else None
        SampleStream(job.inputs, on_reject=lambda reject: None, reading=job.reading, prompt=prompt, answers=answers)


def clear_and_mark(out: str) -> None:
    """End processes left by a killed run with the same output file, and mark the processes of this run."""
    if out != "-":
        if ended := end_orphans(out):
            console.print(f"ended {len(ended)} processes left by a killed run")
        mark_children(out)


def run(
    job: BatchJob,
    judge: Judge,
    mode: BatchMode,
    *,
    total: int | None = None,
    look: Callable[[Judgment], None] = lambda judgment: None,
) -> RunStats:
    """Run a job, show progress, and print a summary table; call `look` with each judgment."""
    notes = judge.notes
    if total is None and (total := count_rows(job.inputs, sheet=job.reading.sheet)) is not None:
        total = total if job.limit is None else min(total, job.limit)
    console.messages(notes)
    hooks = BatchHooks(
        on_input=lambda stream: show_input(stream, judge, mode),
        on_resume=show_resume,
        on_judgment=lambda stats, judgment: look(judgment),
        on_reject=_reject_printer(None if job.out == "-" else _SHOWN_REJECTS),
    )
    stats = judge_watched(job, mode, judge, total, hooks)
    console.print(summary_table(stats, mode, judge.engine.stats()))
    console.messages(note for note in judge.notes if note not in notes)
    if job.out != "-":
        console.print(f"wrote judgments to {job.out}")
    return stats


def judge_watched(
    job: BatchJob, mode: BatchMode, judge: Judge, total: int | None, hooks: BatchHooks = _NO_HOOKS
) -> RunStats:
    """Run a job and show progress."""

    def on_judgment(stats: RunStats, judgment: Judgment) -> None:
        update(stats, judgment)
        hooks.on_judgment(stats, judgment)

    with resumable(job.out), watch(total) as update, heap_frozen():
        watched = replace(hooks, on_judgment=on_judgment)
        return run_batch(job, mode, judge.engine, load_s=judge.load_s, hooks=watched)


def show_input(stream: SampleStream, judge: Judge, mode: BatchMode) -> None:
    """Print the field mapping and the judging options."""
    mapping = ", ".join(f"{target} = {source}" for target, source in stream.source.fields.items())
    console.message(f"input: {stream.source.name} ({mapping})")
    description = _pairs(judge, mode) if type(mode) is Pairwise else _others(judge, mode)
    console.message(f"judging: {description}")
    if getattr(mode, "reasons", "none") != "none" and judge.format.never_explained:
        finding = "according to its card, this judge was not trained to give reasons; do not trust them"
        console.message(finding, label="reasons:", style="yellow")


def _pairs(judge: Judge, mode: Pairwise) -> str:
    template = reading_of(mode)
    if template.verdict is not None:
        return _prompted(judge, mode)
    if template.reads_words:
        orders = "each answer by itself" if template.reads_alone else "both orders"
        return f"{orders}, reading {template.reading}, {_template(judge, mode)}"
    orders = "both orders" if mode.both_orders else "one order"
    if mode.both_orders or mode.order_rule == "probability":
        orders += f", rule {mode.order_rule}"
    low, high = mode.scale
    return f"{orders}, {_template(judge, mode)}, scores {low:g} to {high:g}"


def _prompted(judge: Judge, mode: BatchMode) -> str:
    prompt = prompt_of(mode)
    assert prompt is not None, "checked by the caller"
    words = "/".join(prompt.reply.words)
    reason = "" if prompt.reply.reason is None else f", after a reason of at most {prompt.reply.reason} tokens"
    return f"mode {mode.name}, prompt {prompt.name} ({prompt.file}), probabilities of {words}{reason}"


def _others(judge: Judge, mode: BatchMode) -> str:
    if prompt_of(mode) is not None and not isinstance(mode, Voted):
        return _prompted(judge, mode)
    if isinstance(mode, Voted):
        return f"{_others(judge, mode.mode)}, {mode.votes} votes, by {mode.vote_rule}"
    options = [
        f"{field.name} {value}"
        for field in fields(cast(Any, mode))
        if field.name not in CARD_FIELDS
        and (value := getattr(mode, field.name))
        != (field.default if field.default_factory is MISSING else field.default_factory())
    ]
    return ", ".join([f"mode {mode.name}", _template(judge, mode), *options])


def _template(judge: Judge, mode: BatchMode) -> str:
    if "template" not in {field.name for field in fields(cast(Any, mode))}:
        return f"template {mode.template}"
    source = f"from the {judge.format.source}"
    if judge.format.source != "card" and judge.engine.describe()["engine"] == "openai":
        source += ", because models on a server do not have a card"
    return f"template {mode.template} ({source})"


def show_resume(finished: int, repaired: int) -> None:
    """Print how many samples are finished, and whether the file was repaired."""
    if repaired:
        console.print(f"removed an incomplete line at the end of the file ({repaired} bytes)")
    if finished:
        console.print(f"resuming: {finished} samples have already been judged")


def _reject_printer(most: int | None) -> Callable[[Reject], None]:
    numbers = itertools.count(1)

    def print_reject(reject: Reject) -> None:
        number = next(numbers)
        if most is None or number <= most:
            errors.message(f"rejected {reject.message}")
        elif number == most + 1:
            errors.print("the remaining rejects are in the rejects file")

    return print_reject


_SHOWN_STATS = (
    "retries", "not_taken_by_server", "out_of_memory", "workers", "lost_workers", "requests_sent_again",
)  # fmt: skip


def summary_table(stats: RunStats, mode: BatchMode, engine_stats: Mapping[str, Any]) -> Table:
    """Return a table of the session's counts."""
    return result_table("judgments", ("", ""), _summary(stats, mode, engine_stats))


def _summary(stats: RunStats, mode: BatchMode, engine_stats: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "judged", str(stats.judged)
    yield from ((f"  {name}", value) for name, value in verdict_rows(stats))
    yield "  failed", _counts({failure_name(code): count for code, count in stats.failures.items()})
    if stats.both_orders:
        same = "same ranking in all orders" if stats.rankings else "same winner in both orders"
        yield same, f"{stats.consistent / stats.both_orders:.1%} of {stats.both_orders}"
    if isinstance(mode, Voted):
        most = stats.judged * mode.votes
        saved = f", {most - stats.votes} skipped (verdict already decided)" if stats.votes < most else ""
        yield "votes", f"{stats.votes} of {most} sampled{saved}; unanimous for {stats.unanimous} of {stats.judged}"
    yield from _requested(stats, mode)
    yield from _noticed(stats)
    yield "prompt / reply tokens", f"{stats.prompt_tokens:,} / {stats.completion_tokens:,}"
    for name in _SHOWN_STATS:
        if engine_stats.get(name):
            yield f"engine: {name.replace('_', ' ')}", _stat(engine_stats[name])
    if engine_stats.get("cost_usd") is not None:
        yield "cost", f"{engine_stats['cost_usd']:,.4f} USD"
    if unknown := engine_stats.get("replies_of_unknown_cost"):
        at_most = f", at most {engine_stats['cost_usd_at_most']:,.4f} USD" if "cost_usd_at_most" in engine_stats else ""
        yield "replies with unknown cost", f"{unknown}{at_most}"
    yield "time to load / judge", f"{stats.load_s:.1f} s / {stats.judge_s:.1f} s"
    if stats.judge_s:
        yield "speed", speed(stats.judged, stats.judge_s)


def verdict_rows(stats: RunStats) -> Iterator[tuple[str, str]]:
    """Yield each verdict with its count."""
    for label, count in stats.labels.most_common():
        yield label, str(count)
    if stats.rankings:
        yield "ranked", str(stats.rankings)
    if stats.grades:
        yield "graded, mean", f"{stats.grades}, {stats.grade_sum / stats.grades:.2f}"
    if stats.winners:
        yield "first / tie / second better", " / ".join(str(stats.winners[name]) for name in ("1", "tie", "2"))
    if stats.abstained:
        yield "abstained", str(stats.abstained)


def _requested(stats: RunStats, mode: BatchMode) -> Iterator[tuple[str, str]]:
    if getattr(mode, "retry_unparseable", False):
        yield "replies parsed only after a constrained retry", str(stats.repaired)
    if getattr(mode, "reasons", "none") != "none":
        incomplete = f" ({stats.reasons_incomplete} incomplete)" if stats.reasons_incomplete else ""
        yield "reasons written / failed", f"{stats.reasons}{incomplete} / {stats.reasons_failed}"
    if (prompt := prompt_of(mode)) is not None and prompt.reply.reason is not None:
        yield "reasons written / cut at the limit", f"{stats.reasons} / {stats.reason_cut}"
    if getattr(mode, "distribution", False):
        if stats.grade_distributions:
            yield "with a probability for every grade", f"{stats.grade_distributions} prompts"
        else:
            known = f"with P({'correct' if stats.labels else 'first better'})"
            yield known, f"{stats.probabilities} of {stats.judged}"
        if stats.mostly_unassigned:
            yield "without: score lines have less than half of the probability", str(stats.mostly_unassigned)
        if stats.judged and not (stats.distributions or stats.grade_distributions or stats.probabilities):
            yield "without: the engine returned no probabilities", str(stats.judged)
    if stats.mean_unassigned is not None:
        yield "mean probability on other replies", f"{stats.mean_unassigned:.3f} (n = {stats.distributions})"
    for wording, count in stats.approximations.most_common():
        yield f"approximation: {wording}", f"{count} of {stats.distributions}"


def _noticed(stats: RunStats) -> Iterator[tuple[str, str]]:
    if stats.thinking:
        mean = stats.thinking_characters / stats.thinking
        yield "replies with thinking", f"{stats.thinking} of {stats.shown}, {mean:,.0f} characters on average"
    for name, count in (
        ("failed in an earlier session (see --retry)", sum(stats.earlier_failures.values())),
        ("rejected input lines", stats.rejected),
        ("judged in an earlier session", stats.skipped),
        ("repeated rows of a pair (judged only once)", stats.repeated),
        ("input cells converted to text", stats.coerced),
        ("samples with an empty text in a slot", stats.empty_slots),
        ("unparseable replies in judgments with a verdict", stats.parts_failed),
        ("samples with a truncated answer", stats.cut),
        ("samples whose context was read in parts", stats.split_contexts),
        ("samples with sanitised confusables", stats.neutralised),
    ):
        if count:
            yield name, str(count)


def _stat(value: object) -> str:
    if isinstance(value, Mapping):
        return _counts(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _counts(kinds: Mapping[str, int]) -> str:
    """Format failure counts, such as `3 (unparseable 2, engine 1)`."""
    named = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items(), key=lambda item: -item[1]))
    return f"{sum(kinds.values())} ({named})" if named else "0"


def cascade_of(
    job: BatchJob, models: str | None, band: str | None, *, mode: str, model: str | None, adapter: str | None
) -> Cascade | None:
    """Return the cascade for `--cascade`, or None."""
    if models is None:
        if band is not None:
            raise ConfigError("--cascade-band requires --cascade SMALL,LARGE")
        return None
    if mode != "pair":
        raise ConfigError(f"--cascade requires P(first better), which mode {mode} does not compute; use --mode pair")
    names = tuple(name.strip() for name in models.split(","))
    if len(names) != 2 or not all(names):
        raise ConfigError(f"--cascade {models}: expected two models as SMALL,LARGE, with the smaller one first")
    for value, option in ((model, "--model"), (adapter, "--adapter")):
        if value:
            raise ConfigError(f"{option} cannot be combined with --cascade; remove it")
    return Cascade(job=job, models=(names[0], names[1]), band=(0.3, 0.7) if band is None else _band(band))


def judge_for(
    job: BatchJob, resolved: ResolvedJudge, options: JudgeOptions, cluster: RayCluster | None = None
) -> Judge:
    """Load the judge for a job; a resumed run keeps its engine and dtype."""
    resolved = resolved.with_engine(run_engine(job, options.engine))
    dtype = run_dtype(job, options.dtype, options.engine)
    clear_and_mark(job.out)
    announce(resolved, cluster)
    return Judge(resolved, cluster=cluster, **options.judge_arguments() | {"dtype": dtype})


def judge_job(
    job: BatchJob | Cascade,
    judges: Sequence[ResolvedJudge],
    options: JudgeOptions,
    cluster: RayCluster | None,
    *,
    mode: str,
    chosen: dict[str, Any],
) -> RunStats:
    """Run a job with one judge or a cascade; `chosen` contains the mode's options."""
    load = partial(judge_for, options=options, cluster=cluster)
    if isinstance(job, Cascade):
        return _judge_in_cascade(job, judges, load, chosen)
    with load(job, judges[0]) as judge:
        if mode == "pair" and judge.reads_all_score_lines:
            chosen.setdefault("distribution", True)
        return run(job, judge, judge.mode(mode, **chosen))


def _judge_in_cascade(
    cascade: Cascade, judges: Sequence[ResolvedJudge], load: Callable[..., Judge], chosen: dict[str, Any]
) -> RunStats:
    cascade.check_out()
    small, large = judges
    with load(cascade.small_job, small) as judge:
        mode = judge.pairwise(**chosen | {"distribution": True})
        run(cascade.small_job, judge, mode, look=cascade.refuse_without_probabilities())
    unsure = cascade.unsure()
    console.print(f"\npassing {len(unsure)} pairs to {cascade.models[1]}")
    large_job = cascade.large_job(unsure)
    with load(large_job, large) as judge:
        mode = judge.pairwise(**chosen)
        run(large_job, judge, mode, total=len(unsure))
    stats, counts = join_runs(cascade)
    console.print()
    console.print(summary_table(stats, mode, {}))
    console.print(result_table("cascade", ("", ""), _cascade_rows(counts)))
    console.print(f"wrote the judgments of both judges to {cascade.job.out}")
    return stats


def _cascade_rows(counts: CascadeStats) -> Iterator[tuple[str, str]]:
    yield "pairs judged only by the small judge", f"{counts.pairs - counts.passed_on:,} of {counts.pairs:,}"
    if counts.passed_on_failed:
        yield (
            "passed on after the small judge failed; later judged",
            f"{counts.passed_on_failed:,}; {counts.mended:,}",
        )
    if counts.passed_on_abstained:
        yield "passed on because the small judge abstained", f"{counts.passed_on_abstained:,}"
    yield "verdicts changed by the large judge", f"{counts.changed:,} of {counts.compared:,} with both verdicts"
    if counts.waiting:
        yield "waiting for the large judge", f"{counts.waiting:,}"


def _band(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--cascade-band {text}: expected LOW,HIGH, such as 0.3,0.7") from error
    return low, high
