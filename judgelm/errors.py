"""Every error judgelm raises on purpose.

    JudgelmError
    ├── InputError     a file or a row the user gave: place, finding, way out
    ├── ConfigError    an option, a mode, a template or an engine that does not exist or does not fit
    │   └── MissingExtraError   the feature needs a package that is not installed
    ├── ModelError     a model folder or hub id that cannot be used
    │   └── CardError  the model's `judge.json` contradicts what was asked for
    ├── EngineError    the engine itself broke; nothing was learned about any sample
    ├── BusyError      a server has no room for another question
    ├── TrainingError  a training broke: its loss or its weights are no numbers any more
    └── RunError       the output cannot be written, or belongs to another run

Each message names the place, the finding and the way out. A judge's unusable reply is none of these: that is a
value (`records.Unparsed`), counted and reported.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class JudgelmError(Exception):
    """Root of the tree; the command line prints its message and exits with 1."""


class InputError(JudgelmError):
    """A file or row that cannot be read: `place: finding; way out`."""


class ConfigError(JudgelmError):
    """An option that does not exist or does not fit the others."""


def not_found(kind: str, name: object, available: Iterable[object]) -> ConfigError:
    """The error of a name that does not exist, with the closest of the available ones."""
    names = [str(known) for known in available]
    close = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    return ConfigError(f"{kind} {name!r} does not exist{hint} available: {', '.join(names)}")


class MissingExtraError(ConfigError):
    """A package of an optional extra is not installed."""


class ModelError(JudgelmError):
    """A model folder or hub id that cannot be loaded."""


class CardError(ModelError):
    """The model's card contradicts the template, scale or format in use."""


class EngineError(JudgelmError):
    """The engine broke as a whole, so the run stops; what was judged so far is on disk."""


class BusyError(JudgelmError):
    """A server takes nothing more for the moment; whoever asked may ask again later."""


class TrainingError(JudgelmError):
    """A training broke and was stopped; its last checkpoint is whole."""


class RunError(JudgelmError):
    """The run's files cannot be written, or belong to another run."""
