"""Samples of a pipe as they arrive: a slow producer must not keep the judge from what is already there."""

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Queue

from judgelm.records import Sample

_WAIT_S = 0.02


def prefetch(samples: Iterable[Sample], *, hold: int) -> Iterator[Sample | None]:
    """Read samples in a thread and give each as it comes, None while there is none.

    Args:
        samples: the source; what it raises is raised here.
        hold: most samples to read ahead.
    """
    queue: Queue[Sample | Exception | None] = Queue(maxsize=hold)

    def read() -> None:
        try:
            for sample in samples:
                queue.put(sample)
        except Exception as error:  # handed over to the thread that asked
            queue.put(error)
        else:
            queue.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            found = queue.get(timeout=_WAIT_S)
        except Empty:
            yield None
            continue
        if found is None:
            return
        if isinstance(found, Exception):
            raise found
        yield found
