"""`judgelm <command>`."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from judgelm.cli.commands import LazyCommand, LazyCommands, LazyGroup
from judgelm.cli.console import run_app
from judgelm.version import VERSION

_EPILOG = """
Examples:

  judgelm doctor

  judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders

  judgelm eval judgments.jsonl --labels labelled.jsonl

  judgelm serve my-judge --name gpt-4

`judgelm COMMAND --help` has examples of each. Exit codes of all: 0 done, 1 usage or input error, or something to \
mend, 2 more failures than --max-failure-rate, 3 the judge drifted from its canary, 130 interrupted.
"""


_DATA_ANSWERS = {
    "collect": LazyCommand("data.answers:collect_command", "Let models answer questions, one model after another."),
    "pairs": LazyCommand(
        "data.answers:pairs_command", "Draw pairs of answers of different models, as rows for `judgelm data annotate`."
    ),
    "rows": LazyCommand(
        "data.answers:rows_command",
        "Make rows to judge of answers, one answer each, and the truth about them where questions have references.",
    ),
}
_DATA = {
    "get": LazyCommand(
        "data.sources:get_command",
        "Download a public data set by name into rows that judgelm data build reads.",
        no_args_is_help=False,
    ),
    "build": LazyCommand(
        "data.sets:build_command",
        "Clean, split and augment labelled pairs into training and validation sets, with a report.",
    ),
    "import": LazyCommand(
        "data.sources:import_command",
        "Read a published benchmark into rows that judgelm-batch judges and judgelm eval compares with.",
        no_args_is_help=False,
    ),
    "import-judgments": LazyCommand(
        "data.sources:import_judgments_command",
        "Turn published judgments into run files, so that eval and all studies score them like one's own.",
        no_args_is_help=False,
    ),
    "derive": LazyCommand(
        "data.sets:derive_command",
        "Derive training pairs from judged pairs: two answers with one baseline, or one to another question.",
    ),
    "overlap": LazyCommand(
        "data.sets:overlap_command",
        "Find questions and answers of test files in a training file: equal, near, or sharing a passage.",
    ),
    "sample": LazyCommand(
        "data.sets:sample_command",
        "Draw a seeded sample of a file's rows: so many for each value of a field, or of the whole file.",
    ),
    "answers": LazyCommands(
        "Collect answers of models to questions, and make pairs or rows to judge of them.",
        _DATA_ANSWERS,
        """
Examples:

  judgelm data answers collect questions.jsonl -o answers/ --config c.yaml

  judgelm data answers pairs q.jsonl --answers answers/*.jsonl -o pairs.jsonl

  judgelm data answers rows q.jsonl --answers a/*.jsonl -o rows.jsonl

Exit codes: 0 done, 1 usage or input error, 2 answers failed, 130 interrupted.
""",
    ),
    "annotate": LazyCommand(
        "data.annotate:annotate_command", "Let a teacher judge pairs, and write its judgments as training rows."
    ),
}
_STUDIES = {
    "judgelm": LazyCommand(
        "study.pairs:judgelm_command",
        "JudgeLM's Tables 1 to 6 for your own judges: agreement, order effects, scaling, ablations, time and cost.",
    ),
    "self-reference": LazyCommand(
        "study.answers:self_reference_command",
        "Answering against judging: F1 where the judge knows the answer and where not, overconfidence, correlations.",
    ),
    "ssr": LazyCommand(
        "study.answers:ssr_command",
        "Selective self-reference at every tau from two runs on the same self-solves: accuracy, gate, slices, cost.",
    ),
    "qa": LazyCommand(
        "study.answers:qa_command",
        "Exact match and F1 against judges and people, by data set, prompt and answer type; self-preference.",
    ),
    "self-bias": LazyCommand(
        "study.answers:self_bias_command",
        "Self- and family-bias of judges against human scores, with robustness checks (Play Favorites).",
    ),
    "position-bias": LazyCommand(
        "study.pairs:position_bias_command",
        "Effect of the order of answers on a judge's verdicts, for each file or pair of files; no labels.",
    ),
    "benchmark": LazyCommand(
        "study.pairs:benchmark_command",
        "A run by its benchmark's own metric, beside published scores: RewardBench, RMB, RM-Bench, "
        "JudgeBench and more.",
    ),
    "calibration": LazyCommand(
        "study.pairs:calibration_command",
        "Reliability of the judge's probabilities, and the effect of a temperature or a Platt scaling.",
    ),
    "capabilities": LazyCommand(
        "study.answers:capabilities_command",
        "Mean grades by the capabilities that questions ask for, alone and combined, as MM-Vet reports them.",
    ),
    "compare-judges": LazyCommand(
        "study.pairs:compare_judges_command",
        "Compare judges on the same labelled pairs: paired differences, kappa, flips, order effects, by category.",
    ),
    "win-rates": LazyCommand(
        "study.pairs:win_rates_command",
        "Win rates against a baseline as AlpacaEval computes them: weighted, discrete, length-controlled.",
    ),
    "leaderboard": LazyCommand(
        "study.pairs:leaderboard_command",
        "Elo ratings of many models by Bradley-Terry: soft verdicts, ties, order effects, intervals, ranks.",
    ),
    "run": LazyCommand(
        "recipe:study_run_command",
        "Run a whole study from its file: questions, answers, judgments, tables; a rerun continues.",
    ),
}
COMMANDS: Mapping[str, LazyCommand | LazyCommands] = {
    "batch": LazyCommand("batch:batch", "Judge answers with a local judge model: pairs, or as --mode says."),
    "eval": LazyCommand(
        "eval:eval_command",
        "Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals.",
    ),
    "report": LazyCommand(
        "eval:report_command",
        "Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure.",
    ),
    "estimate": LazyCommand(
        "eval:estimate_command",
        "Estimate how often a model really beats another: by the judge, the labels, Rogan-Gladen and PPI++.",
    ),
    "show": LazyCommand("eval:show", "Print the verdicts of a run over pairs, with probabilities; needs no labels."),
    "doctor": LazyCommand(
        "doctor.command:doctor", "Look at packages, devices and speed, and say what to mend.", no_args_is_help=False
    ),
    "modes": LazyCommand(
        "modes:modes_command",
        "List the ways of judging, or what one of them does and its options.",
        no_args_is_help=False,
    ),
    "judges": LazyCommand("judges:app", "List the judges that are known by name, or show or install one of them."),
    "canary": LazyCommands(
        "Record a judge's verdicts on a fixed set of pairs, or check that it still is the same judge.",
        {
            "record": LazyCommand(
                "canary:record_command",
                "Record a judge's verdicts and probabilities on a fixed set of pairs, in both orders.",
            ),
            "check": LazyCommand(
                "canary:check_command",
                "Check that a judge still is the one that was recorded: another version, "
                "engine, type, quantization or server.",
            ),
        },
    ),
    "panel": LazyCommand(
        "batch:panel_command", "Join several judges' runs over the same samples into one, by vote or by mean score."
    ),
    "serve": LazyCommand(
        "serve:serve",
        "Serve a judge to clients of GPT-4: OpenAI's API, answered in each judging client's own words.",
        no_args_is_help=False,
    ),
    "web": LazyCommand(
        "serve:web",
        "Judge by hand on a page, talk about a judgment, browse run files, compare and label them.",
        no_args_is_help=False,
    ),
    "recipe": LazyCommands(
        "Run a list of commands from a file, step by step.",
        {
            "run": LazyCommand(
                "recipe:run_command",
                "Run the steps of a recipe, skip those that are finished, and stop at the first that fails.",
            ),
        },
    ),
    "share": LazyCommand(
        "judges:share_command", "Upload a judge with its cards to the Hugging Face hub, or show what would be sent."
    ),
    "data": LazyCommands("Make training data for judges.", _DATA),
    "study": LazyCommands("Analyses of judgments: tables, figures and a page.", _STUDIES),
}


class _Commands(LazyGroup):
    lazy_commands: ClassVar = COMMANDS


app = typer.Typer(
    name="judgelm",
    cls=_Commands,
    help="Fine-tune open judge models and run them locally.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"judgelm {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fine-tune open judge models and run them locally."""


def main() -> None:
    """Entry point of `judgelm`."""
    run_app(app)
