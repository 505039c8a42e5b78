"""Commands in this process, as their entry points run them."""

import sys

import pytest

from judgelm.cli import batch, main

ENTRIES = {"judgelm": main.main, "judgelm-batch": batch.main}


def exit_code(program, *arguments) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [program, *map(str, arguments)])
        patched.setattr("gc.unfreeze", lambda: None)  # or the next run would search all that this process imported
        with pytest.raises(SystemExit) as ended:
            ENTRIES[program]()
    return ended.value.code or 0
