"""Commands in processes of their own."""

import re
import signal
import subprocess
from contextlib import contextmanager


def run_command(*words, code=0, **options):
    """The finished process; it must end with this exit code."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    return done


@contextmanager
def serving(*words, **options):
    """The address of a server while its command runs; it must exit with 0 on SIGTERM."""
    command = list(map(str, words))
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    try:
        yield next(found[0] for line in server.stdout if (found := re.search(r"http://[^ ]+/v1", line)))
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0
