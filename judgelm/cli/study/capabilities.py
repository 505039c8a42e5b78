"""`judgelm study capabilities`."""

from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study.options import BootstrapOption, JsonOption, OutOption, OverwriteOption, SeedOption, finish


def capabilities_command(
    judgments: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run files that grade answers, one for each model that answered."),
    ],
    questions: Annotated[
        Path,
        typer.Option(
            "--questions", "-q", metavar="FILE", help="MM-Vet's mm-vet.json, or rows with id and capabilities."
        ),
    ],
    out: OutOption,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name of the model of each run, in order; else the file's."),
    ] = None,
    overwrite: OverwriteOption = False,
    seed: SeedOption = 0,
    bootstrap: BootstrapOption = 2000,
    json: JsonOption = None,
) -> None:
    """Mean grades by the capabilities that questions ask for, alone and combined, as MM-Vet reports them.

    Example: judgelm study capabilities llava.jsonl emu.jsonl -q mm-vet/mm-vet.json -o capabilities
    """
    from judgelm.cli.evaluation import load_manifest  # scikit-learn takes seconds to load
    from judgelm.cli.study.inputs import read_judges
    from judgelm.data.benchmarks.mm_vet import read_capabilities
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.capabilities import CapabilityOptions, capability_study

    runs = read_judges(judgments, name or [], parser="judgelm", scale="any")
    scales = {model: _scale(load_manifest(path)) for model, path in zip(runs, judgments, strict=True)}
    result = capability_study(
        runs,
        read_capabilities(questions),
        CapabilityOptions(
            scales={model: scale for model, scale in scales.items() if scale is not None},
            resampling=Resampling(seed=seed, resamples=bootstrap),
        ),
    )
    finish(result, out, overwrite=overwrite, json=json)


def _scale(manifest: dict[str, object]) -> tuple[float, float] | None:
    """What the run's manifest says of the judge's scale."""
    fingerprint = manifest.get("fingerprint")
    mode = fingerprint.get("mode") if isinstance(fingerprint, dict) else None
    scale = mode.get("scale") if isinstance(mode, dict) else None
    return (float(scale[0]), float(scale[1])) if isinstance(scale, list) and len(scale) == 2 else None
