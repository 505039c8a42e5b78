"""Counts and logs the unrecognised prompts that go to the model instead of the judge."""

import logging
from collections import Counter
from collections.abc import Sequence
from threading import Lock

from judgelm.dialects.catalog import nearest_prompt, normalised, wants_a_verdict
from judgelm.dialects.contract import ChatRequest, Dialect

log = logging.getLogger("judgelm.serving")

_NONE = "none"


class UnknownPrompts:
    """Counts prompts by the most similar known prompt (`none` if no prompt is similar).

    The first prompt of each kind is logged with its difference. Otherwise, nobody would notice that a client's new
    release is no longer judged.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: set[str] = set()
        self._lock = Lock()

    def add(self, request: ChatRequest, dialects: Sequence[Dialect]) -> None:
        """Count a prompt, and log the first of its kind. Long prompts are recognised in a thread."""
        nearest = nearest_prompt(normalised(request), dialects)
        name = _NONE if nearest is None else nearest.dialect
        finding = "it asks for a verdict" if nearest is None and wants_a_verdict(request) else str(nearest or "")
        with self._lock:
            self.counts[name] += 1
            is_first = bool(finding) and name not in self._logged
            self._logged |= {name} if is_first else set()
        if is_first:
            log.warning("unrecognised prompt, so the model answers it and does not judge; %s", finding)

    @property
    def summary(self) -> str:
        """One line for the end of a run; empty if all prompts were recognised."""
        if not self.counts:
            return ""
        nearest = ", ".join(f"{name} ({count:,})" for name, count in self.counts.most_common(5))
        return f"{self.counts.total():,} unrecognised prompts were not judged; most similar known prompts: {nearest}"
