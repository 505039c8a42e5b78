"""`judgelm study capabilities`."""

from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study.options import StudyOutput


def capabilities_command(
    judgments: Annotated[list[Path], typer.Argument(metavar="RUN")],
    questions: Annotated[Path, typer.Option("--questions", "-q", metavar="FILE")],
    name: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    *,
    output: StudyOutput,
) -> None:
    """Mean grades by the capabilities that questions ask for, alone and combined, as MM-Vet reports them.

    Example: judgelm study capabilities llava.jsonl emu.jsonl -q mm-vet/mm-vet.json -o capabilities

    Options:
        judgments: Run files that grade answers, one for each answering model.
        questions: MM-Vet's mm-vet.json, or rows: id, capabilities.
        name: Name of the model of each run, in order; default: the file's.
    """
    from judgelm.cli.evaluation import load_manifest  # scikit-learn takes seconds to load
    from judgelm.cli.study.inputs import read_judges
    from judgelm.data.sources.graded import read_capabilities
    from judgelm.studies.capabilities import CapabilityOptions, capability_study

    runs = read_judges(judgments, name or [], parser="judgelm", scale="any")
    scales = {model: _scale(load_manifest(path)) for model, path in zip(runs, judgments, strict=True)}
    stated = {model: scale for model, scale in scales.items() if scale is not None}
    options = CapabilityOptions(scales=stated, resampling=output.resampling)
    output.write(capability_study(runs, read_capabilities(questions), options))


def _scale(manifest: dict[str, object]) -> tuple[float, float] | None:
    """The judge's scale by the run's manifest."""
    fingerprint = manifest.get("fingerprint")
    mode = fingerprint.get("mode") if isinstance(fingerprint, dict) else None
    scale = mode.get("scale") if isinstance(mode, dict) else None
    return (float(scale[0]), float(scale[1])) if isinstance(scale, list) and len(scale) == 2 else None
