"""What one process finds on the disk, told to all: they go on alike, or end alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from judgelm.errors import JudgelmError, RunError

T = TypeVar("T")


def decided_by_first(decide: Callable[[], T]) -> T:
    """What `decide` gives on the first process, on every process; called on the first alone.

    A process that ended by itself would leave the others waiting for it, so an error is raised on all.

    Raises:
        JudgelmError: `decide` raised it.
    """
    outcome: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            outcome[0] = decide()
        except JudgelmError as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    found: T = outcome[0]
    return found


def refuse_unshared(checkpoint: Path) -> None:
    """Refuse to go on from a checkpoint that lies on the first machine alone; to be called on every process.

    The others would begin at the first row, and train other rows than the step is to have, without an error.

    Raises:
        RunError: on every process, if one of them does not find it.
    """
    if not all(gather_object([checkpoint.is_dir()])):
        raise RunError(
            f"{checkpoint}: is not there on every machine, so they cannot go on from it together; put output_dir on a "
            "disk that all of them share"
        )
