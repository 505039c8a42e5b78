"""Runs the steps of a recipe one after another; finished ones are skipped."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from judgelm.errors import ConfigError, InputError, RunError, not_found
from judgelm.extras import extra_requirements, install_hint
from judgelm.recipes.recipe import Recipe, Step
from judgelm.recipes.state import Decision, StateFile, StepRecord, decide, input_shas, read_state

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step and its treatment.

    Attributes:
        step: as the recipe has it.
        decision: its treatment, and why.
        command: with the arguments that overwrite, where the treatment is that.
    """

    step: Step
    decision: Decision
    command: tuple[str, ...]


class StepError(RunError):
    """A step failed.

    Attributes:
        exit_code: of the step's command.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def plan_steps(recipe: Recipe, *, restart: str | None = None) -> list[PlannedStep]:
    """The treatment of each step if the recipe ran now.

    Args:
        recipe: with its variables filled in.
        restart: name of a step that is run again, with all behind it, even if it is finished.

    Raises:
        ConfigError: no step of that name.
        InputError: the state file is damaged.
    """
    _check_restart(recipe, restart)
    records = read_state(recipe)
    planned: list[PlannedStep] = []
    for step in recipe.steps:
        record = records.get(step.name)
        if any(earlier.decision.action != "skip" for earlier in planned):
            decision = _behind(record)
        elif missing := [name for name in step.inputs if not Path(name).exists()]:
            decision = Decision(action="run", reason=f"its input {missing[0]} is missing")
        else:
            decision = _restarted(step, restart, decide(step, record, input_shas(step)))
        planned.append(_planned(step, decision))
    return planned


def run_steps(
    recipe: Recipe,
    *,
    restart: str | None = None,
    announce: Callable[[PlannedStep], None],
    write: Callable[[bytes], None],
) -> None:
    """Run the steps that are not finished.

    Args:
        recipe: with its variables filled in.
        restart: name of a step that is run again, with all behind it.
        announce: called before each step, skipped ones too.
        write: takes the output of the steps, which their logs get as well.

    Raises:
        ConfigError: a program or a package is not installed, or no step is named as `restart`.
        InputError: an input is missing.
        StepError: a step failed, or did not write an output.
        RunError: state or log cannot be written.
        KeyboardInterrupt: interrupted; the step was asked to end, and has ended.
    """
    _check_programs(recipe)
    _check_extras(recipe)
    _check_restart(recipe, restart)
    check_inputs(recipe)
    state = StateFile(recipe)
    try:
        for step in recipe.steps:
            inputs = input_shas(step)
            decision = _restarted(step, restart, decide(step, read_state(recipe).get(step.name), inputs))
            planned = _planned(step, decision)
            announce(planned)
            if decision.action == "skip":
                continue
            state.record(step, "started", inputs)
            _run(recipe, planned, write)
            state.record(step, "finished", inputs)
    finally:
        state.close()


def command_text(planned: PlannedStep) -> str:
    """The command as one types it."""
    return shlex.join(planned.command)


def _restarted(step: Step, restart: str | None, decision: Decision) -> Decision:
    if step.name != restart:
        return decision
    return Decision(action="run" if decision.action == "run" else "overwrite", reason="--restart names it")


def _planned(step: Step, decision: Decision) -> PlannedStep:
    more = step.overwrite if decision.action == "overwrite" else ()
    return PlannedStep(step=step, decision=decision, command=(*step.command, *more))


def _behind(record: StepRecord | None) -> Decision:
    """The treatment of a step behind one that runs."""
    if record is None:
        return Decision(action="run", reason="it has not run")
    return Decision(action="overwrite", reason="an earlier step runs")


def _check_restart(recipe: Recipe, restart: str | None) -> None:
    names = [step.name for step in recipe.steps]
    if restart is not None and restart not in names:
        raise not_found("--restart: step", restart, names)


def check_inputs(recipe: Recipe) -> None:
    """Refuse inputs that are missing before anything runs, so that hours of work do not end in one.

    Raises:
        InputError: an input is neither there nor among the outputs of an earlier step.
    """
    written: set[Path] = set()
    for step in recipe.steps:
        for name in step.inputs:
            path = Path(name)
            if not (path.exists() or written & {path, *path.parents}):
                raise InputError(
                    f"{name}: input of step {step.name}: no such file, and no earlier step has it among its outputs; "
                    "check the path, or set the recipe's variable with --set"
                )
        written |= {Path(name) for name in step.outputs}


def _check_programs(recipe: Recipe) -> None:
    for step in recipe.steps:
        if shutil.which(step.command[0], path=_search_path()) is None:
            raise ConfigError(
                f"{recipe.path}: step {step.name}: program {step.command[0]} not found; install it, or write its path"
            )


def _check_extras(recipe: Recipe) -> None:
    judgelm = distribution("judgelm")
    for extra in recipe.extras:
        if extra not in (known := judgelm.metadata.get_all("Provides-Extra", [])):
            raise not_found(f"{recipe.path}: extras: judgelm's extra", extra, known)
        if missing := [each.name for each in extra_requirements(extra) if not _is_installed(each.name)]:
            raise ConfigError(f"{recipe.path}: {', '.join(missing)} not installed; run: {install_hint(extra)}")


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _search_path() -> str:
    """PATH, after the folder of this Python's own programs, so that no environment needs to be activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _run(recipe: Recipe, planned: PlannedStep, write: Callable[[bytes], None]) -> None:
    """Run one command until it ends; its output goes to the log and to `write`."""
    step, log = planned.step, recipe.log_path(planned.step)
    width = str(shutil.get_terminal_size((120, 24)).columns)
    environment = {"COLUMNS": width, **os.environ, "PATH": _search_path(), "PYTHONUNBUFFERED": "1"}
    program = shutil.which(planned.command[0], path=_search_path()) or planned.command[0]
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            file.write(f"$ {command_text(planned)}\n".encode())
            with subprocess.Popen(
                [program, *planned.command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the step by SIGTERM
            ) as process:
                _copy_output(process, [file.write, lambda chunk: file.flush(), write])
    except OSError as error:
        raise RunError(f"{log}: step {step.name} cannot be run: {error.strerror or error}") from error
    if process.returncode:
        code = process.returncode if process.returncode > 0 else 128 - process.returncode
        raise StepError(_failure(recipe, step, f"failed with exit code {code}"), code)
    if missing := [name for name in step.outputs if not Path(name).exists()]:
        raise StepError(_failure(recipe, step, f"ended well, but did not write {', '.join(missing)}"), 1)


def _copy_output(process: subprocess.Popen[bytes], targets: Sequence[Callable[[bytes], object]]) -> None:
    """Copy a step's output until it ends; on an interruption, ask it to end, and wait until it has.

    A second interruption kills the step.
    """
    assert process.stdout is not None

    def copy() -> None:
        for chunk in iter(partial(process.stdout.read1, _CHUNK), b""):  # type: ignore[union-attr]
            for target in targets:
                target(chunk)
        process.wait()

    try:
        copy()
    except BaseException:
        _signal_group(process, signal.SIGTERM)  # training saves a checkpoint
        try:
            copy()
        except BaseException:
            _signal_group(process, signal.SIGKILL)
            raise
        raise


def _signal_group(process: subprocess.Popen[bytes], signal_sent: signal.Signals) -> None:
    """Signal a step and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal_sent)


def _failure(recipe: Recipe, step: Step, finding: str) -> str:
    return (
        f"step {step.name} {finding}; its output is in {recipe.log_path(step)}. Correct the cause and run the same "
        f"command again: finished steps are skipped, and this step goes on where it was "
        f"(--restart {step.name} starts it over)"
    )
