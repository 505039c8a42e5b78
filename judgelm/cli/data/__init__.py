"""`judgelm data`."""

from typing import ClassVar

import typer

from judgelm.cli.lazy import LazyCommand, LazyGroup


class _DataCommands(LazyGroup):
    lazy_commands: ClassVar = {
        "get": LazyCommand(
            module="judgelm.cli.data.get",
            name="get_command",
            help="Download a public data set by name into rows that judgelm data build reads.",
            no_args_is_help=False,
        ),
        "build": LazyCommand(
            module="judgelm.cli.data.build",
            name="build_command",
            help="Clean, split and augment labelled pairs into training and validation sets, with a report.",
        ),
        "import": LazyCommand(
            module="judgelm.cli.data.import_benchmark",
            name="import_command",
            help="Read a published benchmark into rows that judgelm-batch judges and judgelm eval compares with.",
            no_args_is_help=False,
        ),
        "import-judgments": LazyCommand(
            module="judgelm.cli.data.import_judgments",
            name="import_judgments_command",
            help="Turn published judgments into run files, so that eval and all studies score them like one's own.",
            no_args_is_help=False,
        ),
        "derive": LazyCommand(
            module="judgelm.cli.data.derive",
            name="derive_command",
            help="Derive training pairs from judged pairs: two answers with one baseline, or one to another question.",
        ),
        "overlap": LazyCommand(
            module="judgelm.cli.data.overlap",
            name="overlap_command",
            help="Find questions and answers of test files in a training file: equal, near, or sharing a passage.",
        ),
        "sample": LazyCommand(
            module="judgelm.cli.data.sample",
            name="sample_command",
            help="Draw a seeded sample of a file's rows: so many for each value of a field, or of the whole file.",
        ),
        "answers": LazyCommand(
            module="judgelm.cli.data.answers",
            name="app",
            help="Collect answers of models to questions, and make pairs or rows to judge of them.",
        ),
        "annotate": LazyCommand(
            module="judgelm.cli.data.annotate",
            name="annotate_command",
            help="Let a teacher judge pairs, and write its judgments as training rows.",
        ),
    }


app = typer.Typer(cls=_DataCommands, no_args_is_help=True, help="Make training data for judges.")


@app.callback()
def data() -> None:
    """Make training data for judges."""
