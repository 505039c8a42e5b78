"""What a mode is to the runner."""

from collections.abc import Generator
from typing import Protocol

from judgelm.records import Completion, Judgment, Request, Sample

Flow = Generator[list[Request], list[Completion], Judgment]
"""Yields requests, is sent their completions in the same order, returns a judgment."""


class Mode(Protocol):
    """A way of judging one sample."""

    def __call__(self, sample: Sample) -> Flow:
        """Begin to judge a sample."""
        ...
