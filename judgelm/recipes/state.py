"""Started and finished steps of a recipe, in a file beside its outputs, and what a rerun makes of them.

The file is append-only JSONL, locked by the process that runs the recipe: a line for each start and each end of a step,
with the sha256 of its command and of its inputs. No output is judged by its date.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

from judgelm.errors import InputError, RunError
from judgelm.jsonl import Appender, read_jsonl, repair_tail
from judgelm.recipes.recipe import Recipe, Step

Event = Literal["started", "finished"]
Action = Literal["skip", "run", "resume", "overwrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """The last event of a step.

    Attributes:
        event: its start or its end.
        command: sha256 (hex) of the command's words.
        inputs: sha256 (hex) by path.
        stale: an earlier step was started since.
    """

    event: Event
    command: str
    inputs: Mapping[str, str]
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The treatment of a step, and why.

    Attributes:
        action: `skip` a finished step, `run` one for the first time, `resume` one that was interrupted, `overwrite` the
            outputs of another command, of other inputs, or from before an earlier step ran again.
        reason: in words.
    """

    action: Action
    reason: str


class StateFile:
    """The state of a recipe's run, locked until it is closed.

    Raises:
        RunError: the folder cannot be written, or another process runs this recipe there.
    """

    def __init__(self, recipe: Recipe) -> None:
        try:
            recipe.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{recipe.folder}: cannot make the folder: {error.strerror}; choose another") from error
        self._file = Appender(recipe.state_path)

    def record(self, step: Step, event: Event, inputs: Mapping[str, str]) -> None:
        """Append the start or the end of a step.

        Raises:
            RunError: the disk is full.
        """
        self._file.write(
            {
                "step": step.name,
                "event": event,
                "command": command_sha(step),
                "inputs": dict(inputs),
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
            }
        )

    def close(self) -> None:
        """Give the lock back."""
        self._file.close()


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
        name, record = _read_event(row, f"{path}:{line_number}")
        if name not in order:
            continue  # of an earlier version of the recipe
        if record.event == "started":
            for later in records.keys() & {later for later, index in order.items() if index > order[name]}:
                records[later] = replace(records[later], stale=True)
        records[name] = record
    return records


def _read_event(row: Mapping[str, object], location: str) -> tuple[str, StepRecord]:
    match row:
        case {"step": str(name), "event": "started" | "finished" as event, "command": str(command), "inputs": dict()}:
            return name, StepRecord(event=event, command=command, inputs=cast(dict[str, str], row["inputs"]))
    raise InputError(f"{location}: not an event of a step; remove the file to run all steps again")


def decide(step: Step, record: StepRecord | None, inputs: Mapping[str, str]) -> Decision:
    """Skip, run, resume or overwrite a step whose earlier steps are all finished.

    Args:
        step: with its command as it is now.
        record: its last event; None if it never ran here.
        inputs: sha256 of its inputs as they are now.
    """
    if record is None:
        return Decision(action="run", reason="it has not run")
    if record.command != command_sha(step):
        return Decision(action="overwrite", reason="its command changed")
    if record.inputs != dict(inputs):
        changed = [path for path, sha in inputs.items() if record.inputs.get(path) != sha]
        return Decision(action="overwrite", reason=f"its inputs changed: {', '.join(changed) or 'fewer than before'}")
    if record.stale:
        return Decision(action="overwrite", reason="an earlier step ran again")
    if record.event == "started":
        return Decision(action="resume", reason="it did not finish")
    if missing := [path for path in step.outputs if not Path(path).exists()]:
        return Decision(action="run", reason=f"{', '.join(missing)} is missing")
    return Decision(action="skip", reason="it is finished")


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
