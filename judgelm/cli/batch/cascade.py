"""`judgelm-batch --cascade SMALL,LARGE`: two runs one after the other, and the savings."""

from collections.abc import Callable
from typing import Any, Protocol

from judgelm.cli.batch.summary import summary_table
from judgelm.cli.console import console
from judgelm.engines.base import Engine
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.modes import BatchMode
from judgelm.records import Judgment
from judgelm.runs.batch import BatchJob
from judgelm.runs.cascade import Cascade, join_runs
from judgelm.runs.stats import RunStats

BAND = (0.3, 0.7)


class Run(Protocol):
    """One run with progress and a table at its end; see `judgelm.cli.batch.command`."""

    def __call__(
        self, job: BatchJob, judge: Judge, mode: BatchMode, *, total: int | None, look: Callable[[Judgment], None]
    ) -> RunStats:
        """Judge, and give the counts."""
        ...


def cascade_of(
    job: BatchJob, models: str | None, band: str | None, *, mode: str, model: str | None, adapter: str | None
) -> Cascade | None:
    """The cascade of `--cascade` and `--cascade-band`; None without the first.

    Raises:
        ConfigError: not two models, no band, or options that go with a single model.
    """
    if models is None:
        if band is not None:
            raise ConfigError("--cascade-band needs --cascade SMALL,LARGE")
        return None
    if mode != "pair":
        raise ConfigError(f"--cascade selects pairs by P(first better), which mode {mode} lacks; use --mode pair")
    names = tuple(name.strip() for name in models.split(","))
    if len(names) != 2 or not all(names):
        raise ConfigError(f"--cascade {models}: expected two models, the smaller first, as SMALL,LARGE")
    for value, option in ((model, "--model"), (adapter, "--adapter")):
        if value:
            raise ConfigError(
                f"{option} does not go with --cascade, whose models may be folders of adapters; leave it out"
            )
    return Cascade(job=job, models=(names[0], names[1]), band=BAND if band is None else _band(band))


def judge_in_cascade(
    cascade: Cascade,
    load: Callable[[str, BatchJob], Judge],
    pair_options: dict[str, Any],
    run: Run,
    *,
    begin: Callable[[BatchJob], None],
    quiet: bool,
) -> RunStats:
    """Run the small judge, the large one on what is left, and join; all judgments of OUT in counts.

    Args:
        cascade: what to judge.
        load: loads a judge by its name, for a job.
        pair_options: fields of the pair mode; the small judge gives probabilities in any case.
        run: runs one job.
        begin: is called with each job before its judge is loaded.
        quiet: print errors only.
    """
    cascade.check_out()
    small, large = cascade.models
    begin(cascade.small_job)
    with load(small, cascade.small_job) as judge:
        mode = judge.pairwise(**pair_options | {"distribution": True})
        look = cascade.refuse_without_probabilities()
        run(cascade.small_job, judge, mode, total=None, look=look)
        parameters = _parameters(judge.engine)
    unsure = cascade.unsure()
    if not quiet:
        console.print(f"\n{len(unsure)} pairs go to {large}", markup=False, highlight=False)
    large_job = cascade.large_job(unsure)
    begin(large_job)
    with load(large, large_job) as judge:
        mode = judge.pairwise(**pair_options)
        run(large_job, judge, mode, total=len(unsure), look=lambda judgment: None)
        both = (parameters, _parameters(judge.engine))
    stats, counts = join_runs(cascade, both)
    if not quiet:
        from judgelm.cli.tables import cascade_table  # pandas and scikit-learn take seconds to load
        from judgelm.reports.wording import cascade_rows

        console.print()
        console.print(summary_table(stats, mode, {}))
        console.print(cascade_table(cascade_rows(counts)))
        console.print(f"judgments of both in {cascade.job.out}", markup=False, highlight=False)
    return stats


def _parameters(engine: Engine) -> int | None:
    described = engine.describe()
    if described["engine"] not in {"transformers", "vllm"}:  # the others run no model here
        return None
    from judgelm.engines.weights import parameters_of_described  # loads torch

    return parameters_of_described(described)


def _band(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--cascade-band {text}: expected LOW,HIGH, such as 0.3,0.7") from error
    return low, high
