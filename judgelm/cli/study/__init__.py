"""`judgelm study NAME`: what the papers did, as commands on the user's own judgments."""

import typer

from judgelm.cli.options import Command
from judgelm.cli.output import Quiet
from judgelm.cli.recipe import Changes, DryRun, RecipeFile, Restart, run_recipe
from judgelm.cli.study.benchmark import benchmark_command
from judgelm.cli.study.calibration import calibration_command
from judgelm.cli.study.capabilities import capabilities_command
from judgelm.cli.study.compare_judges import compare_judges_command
from judgelm.cli.study.judgelm_tables import judgelm_command
from judgelm.cli.study.leaderboard import leaderboard_command
from judgelm.cli.study.position_bias import position_bias_command
from judgelm.cli.study.qa import qa_command
from judgelm.cli.study.self_bias import self_bias_command
from judgelm.cli.study.self_reference import self_reference_command
from judgelm.cli.study.ssr import ssr_command
from judgelm.cli.study.win_rates import win_rates_command

study_app = typer.Typer(no_args_is_help=True, help="Analyses of judgments: tables, figures and a page.")
study_app.command("judgelm", cls=Command, no_args_is_help=True)(judgelm_command)
study_app.command("self-reference", cls=Command, no_args_is_help=True)(self_reference_command)
study_app.command("ssr", cls=Command, no_args_is_help=True)(ssr_command)
study_app.command("qa", cls=Command, no_args_is_help=True)(qa_command)
study_app.command("self-bias", cls=Command, no_args_is_help=True)(self_bias_command)
study_app.command("position-bias", cls=Command, no_args_is_help=True)(position_bias_command)
study_app.command("benchmark", cls=Command, no_args_is_help=True)(benchmark_command)
study_app.command("calibration", cls=Command, no_args_is_help=True)(calibration_command)
study_app.command("capabilities", cls=Command, no_args_is_help=True)(capabilities_command)
study_app.command("compare-judges", cls=Command, no_args_is_help=True)(compare_judges_command)
study_app.command("win-rates", cls=Command, no_args_is_help=True)(win_rates_command)
study_app.command("leaderboard", cls=Command, no_args_is_help=True)(leaderboard_command)


@study_app.command("run", cls=Command, no_args_is_help=True)
def run_command(
    file: RecipeFile,
    changes: Changes = None,
    dry_run: DryRun = False,
    restart: Restart = None,
    quiet: Quiet = False,
) -> None:
    """Run a whole study from its file: questions, answers, judgments, tables; a rerun continues.

    The files in configs/study are recipes (see judgelm recipe run), one for each paper. The last step writes the study.

    Example: judgelm study run configs/study/self_reference.yaml --set judge=my-judge
    """
    run_recipe(file, changes or [], dry_run=dry_run, restart=restart, quiet=quiet)
