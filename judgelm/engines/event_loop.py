"""An event loop in a thread of its own, so that a synchronous engine can have many requests under way."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines; `close` cancels what is left and ends the thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai-engine", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine's result; an interrupt of the waiting thread cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, number: int, coroutine: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]) -> None:
        """Run a coroutine beside the others.

        Args:
            number: names it for `cancel`.
            coroutine: what to run.
            failed: is called in the loop's thread with the exception that it ended with.
        """

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.pop(number, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                failed(error)

        def begin() -> None:
            self._tasks[number] = self._loop.create_task(coroutine)
            self._tasks[number].add_done_callback(ended)

        self._loop.call_soon_threadsafe(begin)

    def cancel(self, number: int) -> None:
        """End a coroutine that was started, if it still runs."""

        def end() -> None:
            if (task := self._tasks.get(number)) is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(end)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel everything, run one last coroutine, end the thread."""

        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}  # also those that others have started
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await last
            await self._loop.shutdown_default_executor()

        try:
            self.run(finish())
        finally:  # also when the wait is interrupted
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
