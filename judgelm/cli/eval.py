"""`judgelm eval`: compare judgments with labels."""

from judgelm.cli.console import Results
from judgelm.cli.help import essential
from judgelm.cli.options import ScoringOptions


@essential("labels protocol failures order_rule control column label_code reversed_ json_out quiet")
def eval_command(scoring: ScoringOptions, results: Results) -> None:
    """Compare judgments with labels: agreement, position bias, and failures, with intervals.

    Examples:
        judgelm eval judgments.jsonl --labels labelled.jsonl
        judgelm eval judgments.jsonl -l labelled.jsonl --protocol pandalm
        judgelm eval judgments.jsonl -l labelled.jsonl --quiet --json eval.json

    Exit codes: 0 done, 1 usage or input error, 2 too many unreadable labels (--max-reject-rate).
    """
    scoring.check_files()
    from judgelm.cli.evaluation import score  # scikit-learn and pandas take seconds to load
    from judgelm.cli.tables import print_evaluation

    scored = score(scoring)
    if results.write(None if results.json_out is None else scored.to_json()):
        print_evaluation(scored)
    scoring.check_rejected(scoring.labels, scored.labelled.rejected, scored.labelled.read)
