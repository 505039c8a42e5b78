"""`judgelm study judgelm`."""

from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study.options import BootstrapOption, JsonOption, OutOption, OverwriteOption, SeedOption, finish


def judgelm_command(
    tables: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML that says which run stands in which row of which table.")
    ],
    out: OutOption,
    overwrite: OverwriteOption = False,
    seed: SeedOption = 0,
    bootstrap: BootstrapOption = 2000,
    json: JsonOption = None,
) -> None:
    """JudgeLM's Tables 1 to 6 for your own judges: agreement, order effects, scaling, ablations, efficiency.

    Example: judgelm study judgelm configs/study/judgelm_tables.yaml -o tables
    """
    from judgelm.cli.study.table_runs import read_table_runs  # scikit-learn takes seconds to load
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.judgelm_tables import paper_tables

    result = paper_tables(read_table_runs(tables, Resampling(seed=seed, resamples=bootstrap)))
    finish(result, out, overwrite=overwrite, json=json)
