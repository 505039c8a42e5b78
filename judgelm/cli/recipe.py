"""`judgelm recipe`: runs the commands of a recipe file, and goes on where it was interrupted."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import EXIT_INTERRUPTED, console, echo
from judgelm.cli.options import Command
from judgelm.cli.output import Quiet
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.recipes.recipe import Recipe
    from judgelm.recipes.runner import PlannedStep

RUN_EPILOG = """
Examples:

  judgelm recipe run configs/recipes/small.yaml

  judgelm recipe run configs/recipes/judgelm_7b.yaml --dry-run

  judgelm recipe run configs/recipes/small.yaml --set out=runs/second

Exit codes: 0 all steps are finished, 1 usage or input error, 130 interrupted (run it again to go on); a step that fails
ends the recipe with its own exit code.
"""

app = typer.Typer(help="Run a list of commands from a file, step by step.", no_args_is_help=True)


@app.callback()
def recipe() -> None:
    """Run a list of commands from a file, step by step."""


RecipeFile = Annotated[Path, typer.Argument(metavar="FILE", help="The recipe; see configs/recipes/.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a variable of the recipe. Repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar="", help="Print the commands and run nothing.")]
Restart = Annotated[
    str | None,
    typer.Option(metavar="STEP", help="Run this step again, from its start, and all steps behind it."),
]


@app.command("run", cls=Command, epilog=RUN_EPILOG, no_args_is_help=True)
def run_command(
    file: RecipeFile,
    changes: Changes = None,
    dry_run: DryRun = False,
    restart: Restart = None,
    quiet: Quiet = False,
) -> None:
    """Run the steps of a recipe, skip those that are finished, and stop at the first that fails.

    A step is finished until its command or an input changes; then it runs again, with all steps behind it. After Ctrl-C
    or a failure, run the same command to go on. Each step's output is also in a log.
    """
    run_recipe(file, changes or [], dry_run=dry_run, restart=restart, quiet=quiet)


def run_recipe(file: Path, changes: Sequence[str], *, dry_run: bool, restart: str | None, quiet: bool) -> None:
    """Run a recipe, and say on standard error which step runs and why."""
    from judgelm.recipes.recipe import read_recipe
    from judgelm.recipes.runner import StepError, check_inputs, plan_steps, run_steps

    plan = read_recipe(file, _parse_changes(changes))
    if dry_run:
        for planned in plan_steps(plan, restart=restart):
            _print_planned(planned)
        check_inputs(plan)
        return
    announced: list[str] = []

    def announce(planned: "PlannedStep") -> None:
        announced.append(planned.step.name)
        if not quiet:
            _announce(plan, planned, len(announced))

    try:
        run_steps(plan, restart=restart, announce=announce, write=_write)
    except StepError as error:
        console.message(str(error), label="error:", style="bold red")
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        step = f" in step {announced[-1]}" if announced else ""
        console.message(f"interrupted{step}; run the same command again to go on")
        raise typer.Exit(EXIT_INTERRUPTED) from error
    if not quiet:
        console.message(f"all {len(plan.steps)} steps are finished; state and logs are in {plan.folder}")


def _parse_changes(changes: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {change}: expected KEY=VALUE, such as out=runs/second")
        if name in values:
            raise ConfigError(f"--set {name}=...: {name} is given twice; keep one of them")
        values[name] = value
    return values


def _print_planned(planned: "PlannedStep") -> None:
    """The step as a shell script's comment and command; a skipped command stands in a comment too."""
    from judgelm.recipes.runner import command_text

    done = planned.decision.action == "skip"
    echo(f"# {planned.step.name}: {'skipped' if done else planned.decision.action}, {planned.decision.reason}")
    echo(f"{'# ' if done else ''}{command_text(planned)}")


def _announce(plan: "Recipe", planned: "PlannedStep", index: int) -> None:
    from judgelm.recipes.runner import command_text

    head = f"step {index} of {len(plan.steps)}, {planned.step.name}: "
    if planned.decision.action == "skip":
        console.message(f"{head}skipped, {planned.decision.reason}")
        return
    why = "" if planned.decision.action == "run" else f" ({planned.decision.reason})"
    console.message(f"{head}{command_text(planned)}{why}")


def _write(chunk: bytes) -> None:
    typer.echo(chunk, nl=False)
