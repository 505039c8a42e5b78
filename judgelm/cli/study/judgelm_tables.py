"""`judgelm study judgelm`."""

from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study.options import StudyOutput


def judgelm_command(
    tables: Annotated[Path, typer.Argument(metavar="FILE")],
    runs: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="LABELS")] = None,
    gpu_hour: Annotated[float | None, typer.Option(min=0.0, metavar="USD")] = None,
    api_prompt_1k: Annotated[float | None, typer.Option(min=0.0, metavar="USD")] = None,
    api_reply_1k: Annotated[float | None, typer.Option(min=0.0, metavar="USD")] = None,
    *,
    output: StudyOutput,
) -> None:
    """JudgeLM's Tables 1 to 6 for your own judges: agreement, order effects, scaling, ablations, time and cost.

    Example: judgelm study judgelm configs/study/judgelm_tables.yaml -o tables

    Options:
        tables: YAML that puts runs into the rows of the paper's tables.
        runs: Folder of the runs in FILE; default: FILE's own folder.
        labels: Labels, in place of those in FILE.
        gpu_hour: Table 3: price of one GPU for one hour.
        api_prompt_1k: Table 3: an API's price of 1,000 prompt tokens.
        api_reply_1k: Table 3: an API's price of 1,000 reply tokens.
    """
    from judgelm.cli.study.table_runs import PriceOptions, read_table_runs  # scikit-learn takes seconds to load
    from judgelm.studies.judgelm_tables import paper_tables

    prices = PriceOptions(gpu_hour=gpu_hour, api_prompt_1k=api_prompt_1k, api_reply_1k=api_reply_1k)
    read = read_table_runs(tables, output.resampling, folder=runs, labels=labels, prices=prices)
    output.write(paper_tables(read.runs, read.prices))
