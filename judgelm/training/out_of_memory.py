"""One sentence where a training runs out of memory: what it did, what needs less, and where it goes on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from judgelm.engines.transformers.memory import is_out_of_memory
from judgelm.errors import RunError
from judgelm.training.checkpoints import going_on


@contextlib.contextmanager
def out_of_memory_in_words(trainer: Any) -> Iterator[None]:
    """Turn torch's error into the way out. Fewer rows at once, with the same batch, are the same run to a checkpoint.

    Raises:
        RunError: memory ran out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        args, state = trainer.args, trainer.state
        where = f"in step {state.global_step + 1} of {state.max_steps}"
        said = str(error).partition("\n")[0] or type(error).__name__
        raise RunError(
            f"{args.output_dir}: memory ran out {where} ({said}); {'; or '.join(_ways(args))}; the run then "
            f"{going_on(Path(args.output_dir))}"
        ) from error


def _ways(args: Any) -> list[str]:
    """What needs less memory, the least cost first."""
    rows, ways = args.per_device_train_batch_size, []
    if rows > 1:
        ways.append(
            f"per_device_train_batch_size {rows // 2} (now {rows}) with gradient_accumulation_steps raised "
            f"accordingly (now {args.gradient_accumulation_steps}) makes the same steps of fewer rows at once"
        )
    if not args.gradient_checkpointing:
        ways.append("gradient_checkpointing: true keeps fewer activations")
    return [*ways, "`judgelm doctor --train` says what would fit"]
