"""OpenMP's threads: as many as cores while an engine runs, in whichever thread it was loaded."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP and /proc are Linux's")


def run(code):
    """What a process with two OpenMP threads for each of its own prints; `count()` is its number of threads."""
    start = "import os, threading, torch\ncount = lambda: len(os.listdir('/proc/self/task'))\n"
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code)],
        env=os.environ | {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_released_threads_end_and_come_back():
    counts = run(
        """
        from judgelm.engines.base import release_openmp_threads
        release_openmp_threads()
        before = count()
        for _ in range(2):
            torch.ones(1 << 20).add(1)
            print(count() - before)
            release_openmp_threads()
            print(count() - before)
        """
    )
    assert counts == ["1", "0", "1", "0"]


def test_a_pass_that_moves_to_the_other_thread_leaves_no_threads_behind():
    counts = run(
        """
        from judgelm.engines.transformers.engine import PassThread

        def run_out():
            torch.ones(1 << 20).add(1)
            raise RuntimeError("could not create a primitive")

        passes = PassThread()
        before = count()
        try:
            passes.run(run_out)
        except RuntimeError:
            print(count() - before)
        passes.run(lambda: torch.ones(1 << 20).add(1))
        print(count() - before)
        """
    )
    assert counts == ["0", "1"]


def test_a_process_without_openmp_has_nothing_to_release():
    code = "import sys\nfrom judgelm.engines.base import *\nrelease_openmp_threads()\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["False"]


def test_an_engine_has_as_many_openmp_threads_in_another_thread_than_it_was_loaded_in(tiny_model):
    code = f"""
        from judgelm.engines.base import EngineOptions
        from judgelm.engines.catalog import load_engine
        from judgelm.records import Request, Sampling
        from tests.support.driving import prompt_of, run
        engine = load_engine("transformers", EngineOptions(model={str(tiny_model)!r}))
        prompt, sampling = prompt_of("", "a big fox jumps " * 60), Sampling(max_tokens=4)
        requests = [Request(key=str(index), prompt=prompt, sampling=sampling) for index in range(20)]
        after = []
        def judge():
            run(engine, requests)
            after.append(count() - threading.active_count())
        """
    alone, in_main = run(code + "torch.set_num_threads(1); judge(); torch.set_num_threads(2); judge(); print(*after)")
    [elsewhere] = run(code + "thread = threading.Thread(target=judge); thread.start(); thread.join(); print(*after)")
    assert int(elsewhere) == int(in_main) == int(alone) + 1
