"""`judgelm eval`."""

from dataclasses import asdict

from judgelm.cli import options
from judgelm.cli.options import ScoringOptions
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json

EPILOG = """
Examples:

  judgelm eval judgments.jsonl --labels labelled.jsonl

  judgelm eval judgments.jsonl -l labelled.jsonl --protocol pandalm

  judgelm eval judgments.jsonl -l labelled.jsonl --quiet --json eval.json

Exit codes: 0 done, 1 usage or input error.
"""


def eval_command(
    judgments: options.JudgmentsArgument,
    labels: options.LabelsOption,
    reversed_: options.ReversedOption = None,
    protocol: options.ProtocolOption = "judgelm",
    failures: options.FailuresOption = None,
    order_rule: options.RuleOption = None,
    tie_band: options.TieBandOption = None,
    label_reference: options.LabelReferenceOption = "auto",
    parser: options.ParserOption = "judgelm",
    scale: options.ScaleOption = "1-10",
    bootstrap: options.BootstrapOption = 2000,
    seed: options.SeedOption = 0,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals."""
    asked = ScoringOptions(
        judgments=judgments,
        labels=labels,
        reverse=reversed_,
        protocol=protocol,
        failures=failures,
        order_rule=order_rule,
        tie_band=tie_band,
        label_reference=label_reference,
        parser=parser,
        scale=scale,
        bootstrap=bootstrap,
        seed=seed,
    )
    from judgelm.cli.evaluation import score  # scikit-learn and pandas take seconds to load
    from judgelm.cli.tables import print_evaluation

    scored = score(asked)
    cascade = {} if scored.cascade is None else {"cascade": asdict(scored.cascade)}
    write_json(json_out, scored.evaluation.to_json() | cascade)
    if not (quiet or is_stdout(json_out)):
        print_evaluation(scored)
