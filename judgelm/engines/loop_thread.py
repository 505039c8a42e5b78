"""Run an event loop in a separate thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a background thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and wait for its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def start(
        self, key: Hashable, coroutine: Coroutine[Any, Any, None], on_error: Callable[[BaseException], None]
    ) -> None:
        """Start a coroutine without waiting for it."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                on_error(error)

        def begin() -> None:
            self._tasks[key] = self._loop.create_task(coroutine)
            self._tasks[key].add_done_callback(ended)

        self._loop.call_soon_threadsafe(begin)

    def cancel(self, key: Hashable) -> None:
        """Cancel the coroutine with this key."""

        def end() -> None:
            if (task := self._tasks.get(key)) is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(end)

    def close(self, last: Coroutine[Any, Any, None] | None = None, timeout_s: float | None = None) -> None:
        """Cancel all coroutines, run `last`, and stop the thread."""

        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}  # includes tasks started by libraries
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if last is not None:
                await last
            await self._loop.shutdown_default_executor()

        try:
            self.run(finish(), timeout_s)
        finally:  # even if the wait is interrupted
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout_s)
            self._loop.close()
