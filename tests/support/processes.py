"""Commands in processes of their own."""

import subprocess


def run_command(*words, code=0, **options):
    """The finished process; it must end with this exit code."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    return done
