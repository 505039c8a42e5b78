"""`judgelm study self-reference`."""

from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study.options import StudyOutput, named_run
from judgelm.errors import ConfigError


def self_reference_command(
    truth: Annotated[Path, typer.Option("--truth", "-t", metavar="FILE")],
    cot: Annotated[list[str] | None, typer.Option(metavar="[JUDGE=]RUN")] = None,
    guided: Annotated[list[str] | None, typer.Option(metavar="[JUDGE=]RUN")] = None,
    *,
    output: StudyOutput,
) -> None:
    """Answering against judging: F1 where the judge knows the answer and where not, overconfidence, correlations.

    The runs judge single answers as correct or incorrect, with CoT alone or with the judge's own answer as the
    reference. JUDGE defaults to the file's name; runs of one JUDGE are compared.

    Example: judgelm study self-reference --cot small=cot.jsonl --guided small=guided.jsonl -t truth.jsonl -o FOLDER

    Options:
        truth: The truth about each judged answer, JSON lines: id, agent, dataset, truth (true or false); answer (the
            right one) or judge_correct; question.
        cot: A run without reference; once per judge.
        guided: A run guided by the judge's own answer; once per judge.
    """
    from judgelm.runs.run_files import read_judgments  # statsmodels takes seconds to load
    from judgelm.studies.self_reference import self_reference_study
    from judgelm.studies.self_reference_answers import JudgeRuns, truth_from_row
    from judgelm.studies.truth_file import read_truths

    with_cot, with_own = _by_judge("--cot", cot), _by_judge("--guided", guided)
    names = list(dict.fromkeys([*with_cot, *with_own]))
    if not names:
        raise ConfigError("study self-reference: no run is given; add --cot RUN, --guided RUN or both")
    runs = [
        JudgeRuns(
            judge=name,
            cot=read_judgments(with_cot[name]) if name in with_cot else None,
            guided=read_judgments(with_own[name]) if name in with_own else None,
        )
        for name in names
    ]
    output.write(self_reference_study(runs, read_truths(truth, truth_from_row), output.resampling))


def _by_judge(option: str, values: list[str] | None) -> dict[str, Path]:
    """Judge -> run file; the name defaults to the file's.

    Raises:
        ConfigError: two runs of one judge under one option.
    """
    runs: dict[str, Path] = {}
    for text in values or []:
        judge, path = named_run(text)
        if judge in runs:
            raise ConfigError(f"{option} {text}: judge {judge!r} has a run already; name the judges: NAME=RUN")
        runs[judge] = path
    return runs
