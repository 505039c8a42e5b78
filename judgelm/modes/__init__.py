"""Ways of judging, one pure generator each, by the name the command line gives them.

A mode is a frozen dataclass with its own options as fields. Called with a sample it yields lists of requests, is sent
the completions in the same order, and returns the judgment. It does no I/O and knows no engine.
"""

from judgelm.modes.flow import Flow, Mode
from judgelm.modes.pairwise import Pairwise

MODES: dict[str, type[Pairwise]] = {"pair": Pairwise}

__all__ = ["MODES", "Flow", "Mode", "Pairwise"]
