"""`judgelm study self-reference`: does a judge judge better what it can answer itself?"""

from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study import options as study_options
from judgelm.cli.study.options import finish
from judgelm.errors import ConfigError


def self_reference_command(
    truth: Annotated[
        Path,
        typer.Option(
            "--truth",
            "-t",
            metavar="FILE",
            help="What is true of each judged answer, JSON lines: id, agent, dataset, truth (true or false); answer "
            "(the right one) or judge_correct; question.",
        ),
    ],
    out: study_options.OutOption,
    cot: Annotated[
        list[str] | None, typer.Option("--cot", metavar="[JUDGE=]RUN", help="A run without reference; once per judge.")
    ] = None,
    guided: Annotated[
        list[str] | None,
        typer.Option("--guided", metavar="[JUDGE=]RUN", help="A run guided by the judge's own answer; once per judge."),
    ] = None,
    overwrite: study_options.OverwriteOption = False,
    bootstrap: study_options.BootstrapOption = 2000,
    seed: study_options.SeedOption = 0,
    json: study_options.JsonOption = None,
) -> None:
    """Answering against judging: F1 where the judge knows the answer and where not, overconfidence, correlations.

    The runs are judgments of single answers as correct or incorrect, with CoT alone or with the judge's own answer as
    the reference. JUDGE is the file's name where it is not given; runs of one JUDGE are compared.

    Example: judgelm study self-reference --cot small=cot.jsonl --guided small=guided.jsonl -t truth.jsonl -o FOLDER
    """
    from judgelm.jsonl import read_jsonl
    from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.self_reference.study import self_reference_study
    from judgelm.studies.self_reference.truth import JudgeRuns, truth_from_row
    from judgelm.studies.truth_file import by_sample

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
    truths = by_sample(truth_from_row(row, f"{truth}:{number}") for number, row in read_jsonl(truth))
    result = self_reference_study(runs, truths, Resampling(seed=seed, resamples=bootstrap))
    finish(result, out, overwrite=overwrite, json=json)


def _by_judge(option: str, given: list[str] | None) -> dict[str, Path]:
    """Judge -> run file; a name that is not given is the file's.

    Raises:
        ConfigError: two runs of one judge under one option.
    """
    found: dict[str, Path] = {}
    for text in given or []:
        name, equals, path = text.partition("=")
        judge, file = (name, Path(path)) if equals and not Path(text).exists() else (Path(text).stem, Path(text))
        if judge in found:
            raise ConfigError(f"{option} {text}: judge {judge!r} has a run already; name the judges: NAME=RUN")
        found[judge] = file
    return found
