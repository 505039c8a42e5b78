"""Prints as JSON what each script that is named says to `--help`; the heavy libraries are imported once for all.

python recipe_helps.py SCRIPT... -> {SCRIPT: [exit code, what it printed]}
"""

import io
import json
import multiprocessing
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout


def help_of(script):
    """The exit code and the output; the process that asks is the script's own."""
    printed = io.StringIO()
    sys.argv = [script, "--help"]
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            runpy.run_path(script, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, printed.getvalue()


if __name__ == "__main__":
    scripts = sys.argv[1:]
    if any(script.startswith(("train/", "benchmarks/")) for script in scripts):
        import trl.trainer.sft_trainer  # noqa: F401 (forked into every script's process, not imported there again)

    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found = pool.map(help_of, scripts, chunksize=1)
    json.dump(dict(zip(scripts, found, strict=True)), sys.stdout)
