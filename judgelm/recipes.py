"""A recipe: variables and a list of commands from a YAML file, run one after another and resumed step by step.

    variables:
      out: runs/mine
    folder: ${out}
    steps:
      - name: judge
        run: judgelm-batch pairs.jsonl -o ${out}/judgments.jsonl
        inputs: [pairs.jsonl]
        outputs: ["${out}/judgments.jsonl"]
        overwrite: --overwrite

A command is run without a shell, so that it means the same on every machine: a text is split into words first, and
`${name}` is replaced in each word, so that a value with spaces stays one argument.

Started and finished steps stand in a file beside the outputs. It is append-only JSONL, locked by the process that runs
the recipe: a line for each start and each end of a step, with the sha256 of its command and of its inputs. No output is
judged by its date.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from judgelm.engines.model_cache import cache_root
from judgelm.errors import ConfigError, InputError, RunError, not_found
from judgelm.jsonl import Appender, read_jsonl, repair_tail
from judgelm.package import extra_requirements, install_hint
from judgelm.yaml_files import read_yaml

CACHE_VARIABLE = "judgelm_cache"
"""A variable that every recipe has: the folder of judgelm's cache."""

_NAME = r"^[a-z][a-z0-9_-]*$"
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_OPERATOR = re.compile(r"\|\|?|&&?|;|\d?(>>?|<<?)\S*")

_Word = StrictStr | StrictInt | StrictFloat
_Words = StrictStr | list[_Word]


class _StepFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=_NAME)]
    run: _Words
    inputs: list[str] = []
    outputs: list[str] = []
    overwrite: _Words = []


class _RecipeFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    variables: dict[Annotated[str, Field(pattern=_NAME)], _Word] = {}
    folder: str
    extras: list[Annotated[str, Field(pattern=_NAME)]] = []
    steps: Annotated[list[_StepFields], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a recipe.

    Attributes:
        name: unique in the recipe; names the log.
        command: program and arguments.
        inputs: files and folders that the command reads; the step runs again when their bytes change.
        outputs: files and folders that are there once the command is done.
        overwrite: arguments added where the outputs of an earlier command or of other inputs are to be replaced.
    """

    name: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    overwrite: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe with its variables filled in.

    Attributes:
        path: the recipe file.
        folder: where state and logs are kept, beside the outputs.
        extras: judgelm's extras that the steps need.
        steps: in the order in which they run.
    """

    path: Path
    folder: Path
    extras: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def state_path(self) -> Path:
        """The file that records started and finished steps."""
        return self.folder / f"{self.path.stem}.state.jsonl"

    def log_path(self, step: Step) -> Path:
        """The file that a step's output is appended to."""
        return self.folder / f"{self.path.stem}.logs" / f"{step.name}.log"


def read_recipe(path: Path, changes: Mapping[str, str]) -> Recipe:
    """Read a recipe and fill in its variables.

    Args:
        path: the YAML file.
        changes: values that override those of the file's variables.

    Raises:
        ConfigError: not readable, an unknown field or variable, or a command that needs a shell.
    """
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping with folder and steps")
    try:
        fields = _RecipeFields.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_finding(error, content)}") from error
    filler = _Filler(path, _variables(path, fields, changes))
    recipe = Recipe(
        path=path,
        folder=Path(filler.fill(fields.folder, "folder")),
        extras=tuple(fields.extras),
        steps=tuple(_step(filler, step) for step in fields.steps),
    )
    names = [step.name for step in recipe.steps]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: two steps are named {twice}; give each its own name")
    return recipe


def _variables(path: Path, fields: _RecipeFields, changes: Mapping[str, str]) -> dict[str, str]:
    """Values by name; a value may use the variables above it."""
    if CACHE_VARIABLE in fields.variables:
        raise ConfigError(f"{path}: variables.{CACHE_VARIABLE}: every recipe has this one; choose another name")
    for name in changes:
        if name not in fields.variables:
            raise not_found(f"--set {name}: variable", name, fields.variables)
    values = {CACHE_VARIABLE: str(cache_root())}
    for name, value in fields.variables.items():
        values[name] = _Filler(path, values).fill(changes.get(name, str(value)), f"variables.{name}")
    return values


@dataclass(frozen=True, slots=True)
class _Filler:
    """Replaces `${name}` by the variable's value."""

    path: Path
    values: Mapping[str, str]

    def fill(self, text: str, location: str) -> str:
        for name in _REFERENCE.findall(text):
            if name not in self.values:
                raise ConfigError(
                    f"{self.path}: {location}: variable {name!r} does not exist; available: {', '.join(self.values)}"
                )
        return _REFERENCE.sub(lambda match: self.values[match[1]], text)

    def words(self, value: _Words, location: str) -> tuple[str, ...]:
        words = self._split(value, location) if isinstance(value, str) else [str(word) for word in value]
        return tuple(self.fill(word, location) for word in words)

    def _split(self, text: str, location: str) -> list[str]:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {location}: {str(error).lower()}; close the quotation mark") from error
        for word in words:
            if _OPERATOR.fullmatch(word):
                raise ConfigError(
                    f"{self.path}: {location}: {word} is for a shell, and a command is run without one; make it two "
                    "steps, or write a list: [bash, -c, '...'], or a list of words if it is an argument"
                )
        return words


def _step(filler: _Filler, fields: _StepFields) -> Step:
    location = f"step {fields.name}"
    command = filler.words(fields.run, f"{location}: run")
    if not command or not command[0]:
        raise ConfigError(f"{filler.path}: {location}: run is empty; give a command")
    return Step(
        name=fields.name,
        command=command,
        inputs=tuple(filler.fill(text, f"{location}: inputs") for text in fields.inputs),
        outputs=tuple(filler.fill(text, f"{location}: outputs") for text in fields.outputs),
        overwrite=filler.words(fields.overwrite, f"{location}: overwrite"),
    )


def _finding(error: ValidationError, content: Mapping[str, Any]) -> str:
    errors = error.errors()
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])  # a typing error
    location = ".".join(_location(first["loc"], content))
    if first["type"] == "extra_forbidden":
        known = _StepFields if first["loc"][0] == "steps" else _RecipeFields
        return f"{location}: unknown field; available: {', '.join(known.model_fields)}"
    if first["type"] == "missing":
        return f"{location}: missing; add it"
    if first["type"] == "string_pattern_mismatch":
        return (
            f"{location}: {first['input']!r}: a name is lower-case letters, digits, - and _, and begins with a letter"
        )
    if first["type"] == "too_short":
        return f"{location}: empty; add a step"
    if first["type"].startswith("model"):
        return f"{location}: expected a mapping with name and run"
    if first["loc"][0] == "variables":
        return f"{location}: expected a text or a number; quote words such as true and null"
    if {"run", "overwrite"} & set(first["loc"]):
        return f"{location}: expected a command, as a text or a list of words; quote words such as true and null"
    return f"{location}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _location(parts: tuple[int | str, ...], content: Mapping[str, Any]) -> Iterator[str]:
    """The place of a finding, with the name of the step instead of its index."""
    if parts[0] == "steps" and len(parts) > 1 and isinstance(parts[1], int):
        step = content["steps"][parts[1]]
        name = step.get("name") if isinstance(step, dict) else None
        yield f"step {name}" if isinstance(name, str) else f"steps[{parts[1]}]"
        parts = parts[2:3]  # behind a field's name stands the kind that pydantic tried
    yield from (str(part) for part in parts[:2] if part != "[key]")


Event = Literal["started", "finished"]
Action = Literal["skip", "run", "resume", "overwrite"]


class StepRecord(NamedTuple):
    """The last event of a step: sha256 (hex) of its command's words, and of its inputs by path.

    Attributes:
        event: its start or its end.
        command: of the command's words.
        inputs: by path.
        stale: an earlier step was started since.
    """

    event: Event
    command: str
    inputs: Mapping[str, str]
    stale: bool = False


class Decision(NamedTuple):
    """The treatment of a step, and why in words.

    It is to `skip` a finished step, `run` one for the first time, `resume` one that was interrupted, or `overwrite` the
    outputs of another command, of other inputs, or from before an earlier step ran again.
    """

    action: Action
    reason: str


def read_state(recipe: Recipe) -> dict[str, StepRecord]:
    """The last event of each step; nothing where the recipe has not run in its folder.

    Raises:
        InputError: the file is damaged.
    """
    path = recipe.state_path
    if not path.is_file():
        return {}
    repair_tail(path)
    order = {step.name: index for index, step in enumerate(recipe.steps)}
    records: dict[str, StepRecord] = {}
    for line_number, row in read_jsonl(path):
        match row:
            case {"step": str(name), "event": "started" | "finished" as event, "command": str(sha), "inputs": dict()}:
                record = StepRecord(event, sha, cast(dict[str, str], row["inputs"]))
            case _:
                finding = "not an event of a step; remove the file to run all steps again"
                raise InputError(f"{path}:{line_number}: {finding}")
        if name not in order:
            continue  # of an earlier version of the recipe
        if event == "started":
            for later in records.keys() & {later for later, index in order.items() if index > order[name]}:
                records[later] = records[later]._replace(stale=True)
        records[name] = record
    return records


_NEVER_RAN = "it has not run"


def decide(step: Step, record: StepRecord | None, inputs: Mapping[str, str], restart: str | None) -> Decision:
    """Skip, run, resume or overwrite a step whose earlier steps are all finished.

    Args:
        step: with its command as it is now.
        record: its last event; None if it never ran here.
        inputs: sha256 of its inputs as they are now.
        restart: name of the step to be started over.
    """
    decision = Decision("skip", "it is finished")
    if record is None:
        decision = Decision("run", _NEVER_RAN)
    elif record.command != command_sha(step):
        decision = Decision("overwrite", "its command changed")
    elif record.inputs != dict(inputs):
        changed = [path for path, sha in inputs.items() if record.inputs.get(path) != sha]
        decision = Decision("overwrite", f"its inputs changed: {', '.join(changed) or 'fewer than before'}")
    elif record.stale:
        decision = Decision("overwrite", "an earlier step ran again")
    elif record.event == "started":
        decision = Decision("resume", "it did not finish")
    elif missing := [path for path in step.outputs if not Path(path).exists()]:
        decision = Decision("run", f"{', '.join(missing)} is missing")
    if step.name != restart:
        return decision
    return Decision("run" if decision.action == "run" else "overwrite", "--restart names it")


def command_sha(step: Step) -> str:
    """sha256 (hex) of a step's command."""
    return hashlib.sha256(json.dumps(step.command).encode()).hexdigest()


def input_shas(step: Step) -> dict[str, str]:
    """sha256 (hex) of each input of a step; a folder's is that of its files' names and bytes.

    Raises:
        InputError: an input is missing or cannot be read.
    """
    return {path: _sha_of(step, Path(path)) for path in step.inputs}


def _sha_of(step: Step, path: Path) -> str:
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256()
        for part in sorted(part for part in path.rglob("*") if part.is_file()):
            digest.update(f"{part.relative_to(path).as_posix()}\0{_sha_of(step, part)}\n".encode())
        return digest.hexdigest()
    except OSError as error:
        raise InputError(f"{path}: input of step {step.name}: {error.strerror}; check the path") from error


_CHUNK = 1 << 16


class PlannedStep(NamedTuple):
    """A step, its treatment, and its command with the arguments that overwrite, where the treatment is that."""

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
            decision = Decision("overwrite", "an earlier step runs") if record else Decision("run", _NEVER_RAN)
        elif missing := [name for name in step.inputs if not Path(name).exists()]:
            decision = Decision("run", f"its input {missing[0]} is missing")
        else:
            decision = decide(step, record, input_shas(step), restart)
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
    try:
        recipe.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{recipe.folder}: cannot make the folder: {error.strerror}; choose another") from error
    with Appender(recipe.state_path) as state:
        for step in recipe.steps:
            inputs = input_shas(step)
            planned = _planned(step, decide(step, read_state(recipe).get(step.name), inputs, restart))
            announce(planned)
            if planned.decision.action == "skip":
                continue
            state.write(_event(step, "started", inputs))
            _run(recipe, planned, write)
            state.write(_event(step, "finished", inputs))


def _event(step: Step, event: Event, inputs: dict[str, str]) -> dict[str, object]:
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return {"step": step.name, "event": event, "command": command_sha(step), "inputs": inputs, "time": time}


def command_text(planned: PlannedStep) -> str:
    """The command as one types it."""
    return shlex.join(planned.command)


def _planned(step: Step, decision: Decision) -> PlannedStep:
    more = step.overwrite if decision.action == "overwrite" else ()
    return PlannedStep(step, decision, (*step.command, *more))


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
