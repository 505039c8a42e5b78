"""`judgelm train` and the command-line interface of the recipes in `train/`."""

import os
import re
import runpy
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli.console import console, echo, printable
from judgelm.errors import ConfigError, InputError, JudgelmError, MissingExtraError, not_found
from judgelm.package import missing_packages
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.training.arguments import JudgeArguments
    from judgelm.training.run import TrainingRun

_FOLDER = Path(__file__).parents[1] / "training"
RECIPES, CONFIGS = _FOLDER / "recipes", _FOLDER / "configs"
"""The wheel contains copies of `train/` and `configs/`."""
_CHECKED_ROWS = 1000


def train_command(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="[RECIPE]")] = "",
    config: Annotated[str, typer.Option(metavar="NAME|FILE")] = "",
    accelerate: Annotated[str, typer.Option(metavar="NAME|FILE")] = "",
    copy: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
) -> None:
    """Train a judge with a recipe: sft, preference, reward, or grpo. Other options are passed to the recipe.

    Options:
        recipe: `sft` trains on scores and reasons, `preference` and `reward` (a reward model) on pairwise preferences;
            `grpo` continues training a judge.
        config: Recipe settings: a YAML file, or a built-in name such as few_pairs.
        accelerate: Launch with accelerate on several GPUs or machines, using this YAML file or a built-in name such as
            zero3. Default: train in a single process.
        copy: Copy the recipes and their settings to this folder, and exit.

    Examples:
        judgelm train preference --config few_pairs --train_data pairs.csv
        judgelm train sft --config judgelm_7b --accelerate zero3
        judgelm train sft -- --help
        judgelm train --copy my-recipes

    Exit codes: 0 done, 1 usage or input error, 128 + signal number if stopped (resumable).
    """
    if copy is not None:
        _copy(copy)
        return
    recipes = sorted(path.stem for path in RECIPES.glob("*.py") if path.stem != "merge_lora")
    if recipe not in recipes:
        raise not_found("recipe", recipe, recipes)
    rest = context.args
    settings = _named(CONFIGS / "train", config, "config") if config else None
    launched = _named(CONFIGS / "accelerate", accelerate, "file") if accelerate else None
    options = (read_yaml(settings) if settings else None) or {}
    _check_rows(recipe, options, rest)
    _check_packages(options, rest, (read_yaml(launched) if launched else None) or {})
    script = RECIPES / f"{recipe}.py"
    command = [str(script), *(["--config", str(settings)] if settings else []), *rest]
    if launched:
        launch = ["accelerate.commands.launch", "--config_file", str(launched)]
        console.message(f"accelerate launch {shlex.join([*launch[1:], *command])}")
        os.execv(sys.executable, [sys.executable, "-m", *launch, *command])
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # otherwise transformers would use DataParallel
    sys.argv = command
    runpy.run_path(str(script), run_name="__main__")


train_command.context_settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]


def _named(folder: Path, name: str, kind: str) -> Path:
    for path in (Path(name), folder / name, folder / f"{name}.yaml"):
        if path.is_file():
            return path
    raise not_found(kind, name, sorted(path.stem for path in folder.glob("*.yaml")))


def _copy(folder: Path) -> None:
    sources = {"train": RECIPES.glob("*.py")}
    sources |= {f"configs/{kind}": CONFIGS.glob(f"{kind}/*.yaml") for kind in ("train", "accelerate")}
    files = [(folder / name / path.name, path) for name, paths in sources.items() for path in sorted(paths)]
    if taken := [target for target, _ in files if target.exists()]:
        raise ConfigError(f"--copy: {taken[0]} already exists; choose a different folder")
    for target, source in files:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    echo(f"copied {len(files)} files to {folder}; run: cd {folder} && accelerate launch train/sft.py --help")


def _check_rows(recipe: str, settings: Any, arguments: Sequence[str]) -> None:
    """Before loading torch, reject files whose first thousand rows have no labels for the recipe."""
    from judgelm.data.labelled_pair import training_scores
    from judgelm.data.samples import SampleStream
    from judgelm.prompts.prompt_file import read_prompt
    from judgelm.prompts.prompt_template import field_check

    prompt = next(iter(map(read_prompt, _values("prompt", settings, arguments))), None)
    for file in _values("train_data", settings, arguments):
        rejects: list[object] = []
        labels: Counter[str] = Counter()
        stream = SampleStream(
            [file],
            on_reject=lambda reject: rejects.append(reject.message),  # noqa: B023
            prompt=prompt,
            check=field_check(prompt),
        )
        for row, _ in islice(stream.pairs(), _CHECKED_ROWS):
            try:
                for label in stream.labels(row, False, True):
                    labels["scores"] += label is not None and training_scores(label) is not None
                    labels["winners"] += label is not None and label.winner is not None
            except InputError as error:
                rejects.append(error)
        if labels["scores" if recipe == "sft" else "winners"]:
            continue
        if labels["winners"]:
            way_out = "to train on winners, use: judgelm train preference --config few_pairs"
            raise InputError(f"{file}: the rows have winners but no scores, which sft requires; {way_out}")
        wanted = "scores for the answers" if recipe == "sft" else "a winner, scores, or a preference"
        raise InputError(str(rejects[0]) if rejects else f"{file}: no row has {wanted}; see docs/training.md")


_PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "accelerate", "peft", "gguf", "trl",
    "datasets", "pyarrow",
)  # fmt: skip
"""Packages imported by all recipes."""
_BITSANDBYTES = re.compile(r"bnb|paged|ademamix|^(adamw|lion)_8bit")
"""transformers' names for bitsandbytes optimizers."""


def _check_packages(settings: Any, arguments: Sequence[str], launched: Any) -> None:
    used = [*_PACKAGES]
    if _values("eval_data", settings, arguments):
        used += ["scipy", "scikit-learn", "statsmodels"]
    in_bits = any(_is_on(name, settings, arguments) for name in ("load_in_4bit", "load_in_8bit"))
    if in_bits or any(map(_BITSANDBYTES.search, _values("optim", settings, arguments))):
        used.append("bitsandbytes")
    by_accelerate = isinstance(launched, Mapping) and launched.get("distributed_type") == "DEEPSPEED"
    if by_accelerate or _values("deepspeed", settings, arguments):
        used.append("deepspeed")
    if missing := missing_packages("train", used):
        raise MissingExtraError(missing)


def _is_on(name: str, settings: Any, arguments: Sequence[str]) -> bool:
    value = _values(name, settings, arguments)
    return value[0].lower() in ("true", "1", "yes") if value else f"--{name}" in arguments


def _values(name: str, settings: Any, arguments: Sequence[str]) -> list[str]:
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith(f"--{name}=") else [word])]
    if f"--{name}" in words:
        after = words[words.index(f"--{name}") + 1 :]
        end = next((index for index, word in enumerate(after) if word.startswith("--")), len(after))
        return list(after[:end])
    value = settings.get(name, []) if isinstance(settings, Mapping) else []
    return [value] if isinstance(value, str) else list(map(str, value))


def run_training(
    build_trainer: "Callable[[TrainingRun], Any]",
    arguments: "type[JudgeArguments]",
    config: type[Any],
    *,
    facts: "Callable[[TrainingRun], Mapping[str, Any]] | None" = None,
) -> None:
    """Parse the command line, train, and exit with 0, with 1 after an error, or with 128 + signal number if stopped.

    Args:
        build_trainer: builds the recipe's trainer.
        arguments: dataclass with the recipe's arguments.
        config: TRL's configuration class.
        facts: returns additional training facts for the judge's card.
    """
    try:
        code = _train(build_trainer, (arguments, config), facts)
    except JudgelmError as error:
        sys.exit(printable(f"error: {error}"))
    if code:
        sys.exit(code)


def _train(
    build_trainer: "Callable[[TrainingRun], Any]",
    types: tuple[type[Any], ...],
    facts: "Callable[[TrainingRun], Mapping[str, Any]] | None",
) -> int:
    from trl import ModelConfig  # type: ignore[attr-defined]  # mypy does not see trl's lazy imports

    from judgelm.training.disk_space import disk_full_as_error
    from judgelm.training.finished_judge import save_judge
    from judgelm.training.interruption import PreemptionCallback, out_of_memory_as_error
    from judgelm.training.process_group import connect_processes, end_processes
    from judgelm.training.run import TrainingRun, parse_arguments

    judge, args, base = parse_arguments(*types, ModelConfig)
    connect_processes(args, log=echo)
    preemption = PreemptionCallback()
    run = TrainingRun(judge, args, base, preemption)
    trainer = build_trainer(run)
    summary = run.summary(trainer)
    if trainer.is_world_process_zero():
        echo(summary)
    with preemption.handle_signals(), disk_full_as_error(args.output_dir), out_of_memory_as_error(trainer):
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        if preemption.stopped_by is None:
            save_judge(trainer, judge, base, facts=facts and facts(run), tuned_from=run.tuned_from)
    if trainer.is_world_process_zero():
        echo(preemption.summary(trainer))
    end_processes(trainer, preemption.exit_code)
    return preemption.exit_code
