"""`judgelm study NAME`: what the papers did, as commands on the user's own judgments."""

import typer

study_app = typer.Typer(no_args_is_help=True, help="Analyses of judgments: tables, figures and a page.")
