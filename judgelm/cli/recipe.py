"""`judgelm recipe`: runs the commands of a recipe file, and goes on where it was interrupted."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import EXIT_INTERRUPTED, Quiet, console, echo
from judgelm.cli.options import parse_pairs

if TYPE_CHECKING:
    from judgelm.recipes import PlannedStep, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeOptions:
    """A recipe and how it is run.

    Options:
        file: The recipe; see configs/recipes/.
        changes: Override a variable of the recipe. Repeatable.
        dry_run: Print the commands and run nothing.
        restart: Run this step again, from its start, and all steps behind it.
    """

    file: Annotated[Path, typer.Argument(metavar="FILE")]
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None
    dry_run: bool = False
    restart: Annotated[str | None, typer.Option(metavar="STEP")] = None
    quiet: Quiet = False


def run_command(recipe: RecipeOptions) -> None:
    """Run the steps of a recipe, skip those that are finished, and stop at the first that fails.

    A step is finished until its command or an input changes; then it runs again, with all steps behind it. After Ctrl-C
    or a failure, run the same command to go on. Each step's output is also in a log.

    Examples:
        judgelm recipe run configs/recipes/small.yaml
        judgelm recipe run configs/recipes/judgelm_7b.yaml --dry-run
        judgelm recipe run configs/recipes/small.yaml --set out=runs/second

    Exit codes: 0 all steps are finished, 1 usage or input error, 130 interrupted (run it again to go on); a step that
    fails ends the recipe with its own exit code.
    """
    from judgelm.recipes import StepError, check_inputs, plan_steps, read_recipe, run_steps

    plan = read_recipe(recipe.file, parse_pairs(recipe.changes or (), "--set", example="out=runs/second", parse=str))
    if recipe.dry_run:
        for planned in plan_steps(plan, restart=recipe.restart):
            _print_planned(planned)
        check_inputs(plan)
        return
    announced: list[str] = []

    def announce(planned: "PlannedStep") -> None:
        announced.append(planned.step.name)
        if not recipe.quiet:
            _announce(plan, planned, len(announced))

    try:
        run_steps(plan, restart=recipe.restart, announce=announce, write=_write)
    except StepError as error:
        console.message(str(error), label="error:", style="bold red")
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        step = f" in step {announced[-1]}" if announced else ""
        console.message(f"interrupted{step}; run the same command again to go on")
        raise typer.Exit(EXIT_INTERRUPTED) from error
    if not recipe.quiet:
        console.message(f"all {len(plan.steps)} steps are finished; state and logs are in {plan.folder}")


def study_run_command(recipe: RecipeOptions) -> None:
    """Run a whole study from its file: questions, answers, judgments, tables; a rerun continues.

    The files in configs/study are recipes (see judgelm recipe run), one for each paper. The last step writes the study.

    Example: judgelm study run configs/study/self_reference.yaml --set judge=my-judge
    """
    run_command(recipe)


def _print_planned(planned: "PlannedStep") -> None:
    """The step as a shell script's comment and command; a skipped command stands in a comment too."""
    from judgelm.recipes import command_text

    done = planned.decision.action == "skip"
    echo(f"# {planned.step.name}: {'skipped' if done else planned.decision.action}, {planned.decision.reason}")
    echo(f"{'# ' if done else ''}{command_text(planned)}")


def _announce(plan: "Recipe", planned: "PlannedStep", index: int) -> None:
    from judgelm.recipes import command_text

    head = f"step {index} of {len(plan.steps)}, {planned.step.name}: "
    if planned.decision.action == "skip":
        console.message(f"{head}skipped, {planned.decision.reason}")
        return
    why = "" if planned.decision.action == "run" else f" ({planned.decision.reason})"
    console.message(f"{head}{command_text(planned)}{why}")


def _write(chunk: bytes) -> None:
    typer.echo(chunk, nl=False)
