"""judgelm's exceptions.

    JudgelmError
    ├── InputError          a file or row from the user
    │   └── UnknownFieldsError    unknown layout
    ├── LabelCodeError      a file whose label values have no stated meaning
    ├── ConfigError         an unknown or unsuitable option, mode, template or engine
    │   └── MissingExtraError     a package is not installed
    ├── ModelError          an unusable model folder or hub id
    │   └── CardError             the `judge.json` contradicts the options
    ├── EngineError         the engine broke
    │   └── ShutdownError         the server is shutting down
    ├── BusyError           the server's queue is full
    ├── TrainingError       loss or weights are not finite
    └── RunError            the output cannot be written, or belongs to another run

Messages name the place, the finding and the way out. An unparseable reply is a value (`records.Unparsed`).
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class JudgelmError(Exception):
    """Base class; the command line prints the message and exits with 1."""


class InputError(JudgelmError):
    """A file or row that cannot be read: `place: finding; way out`."""


class UnknownFieldsError(InputError):
    """The fields of a file have no known layout; `columns` guesses them: name -> column of the file."""

    def __init__(self, message: str, columns: Mapping[str, str]) -> None:
        super().__init__(message)
        self.columns = dict(columns)


class LabelCodeError(JudgelmError):
    """A label field has values without a stated meaning.

    It concerns the whole file, so readers must not count it as one rejected row.
    """


class ConfigError(JudgelmError):
    """An option is unknown or does not fit the others."""


def not_found(kind: str, name: object, available: Iterable[object]) -> ConfigError:
    """Return the error for an unknown name, with the closest available one."""
    names = [str(known) for known in available]
    close = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    return ConfigError(f"{kind} {name!r} does not exist{hint} available: {', '.join(names)}")


def out_of_range(name: str, value: object, minimum: float, maximum: float) -> ConfigError:
    """Return the error for a number outside its range; NaN is always outside."""
    return ConfigError(f"{name} is {str(value)[:40]}; it must be a number from {minimum:.20g} to {maximum:.20g}")


class MissingExtraError(ConfigError):
    """A package of an optional extra is not installed."""


class ModelError(JudgelmError):
    """A model folder or hub id cannot be loaded."""


class CardError(ModelError):
    """The model's card contradicts template, scale or format in use."""


class EngineError(JudgelmError):
    """The engine broke and the run stops; finished judgments are on disk."""


class ShutdownError(EngineError):
    """The server shut down before the request was answered."""


class BusyError(JudgelmError):
    """The server's queue is full; try again later."""


class TrainingError(JudgelmError):
    """A training broke; its last checkpoint is intact."""


class RunError(JudgelmError):
    """The run's files cannot be written, or belong to another run."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text without its full stop, or the error's type.

    If the first line ends in a colon, the second is appended.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    shown = f"{lines[0]} {lines[1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
    return shown.rstrip(".")
