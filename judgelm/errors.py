"""judgelm's exceptions.

    JudgelmError
    ├── InputError              a file or row from the user
    │   ├── UnknownFieldsError  the fields have no known format
    │   └── GrammarError        a regular expression or JSON schema cannot be used
    ├── LabelCodeError          a file whose label values have no stated meaning
    ├── ConfigError             an unknown or unsuitable option, mode, template, or engine
    │   └── MissingExtraError   a package is not installed
    ├── ModelError              an unusable model folder or hub ID
    │   └── CardError           the `judge.json` contradicts the options
    ├── EngineError             the engine failed
    │   └── ShutdownError       the server is shutting down
    ├── BusyError               the server's queue is full
    ├── TrainingError           loss or weights are not finite
    └── RunError                the output cannot be written, or belongs to another run

Messages state where the problem is, what it is, and how to fix it. An unparseable reply is not an exception but a value
(`records.Unparsed`).
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class JudgelmError(Exception):
    """Base class. The command line prints the message and exits with 1."""


class InputError(JudgelmError):
    """A file or row could not be read. The message has the form `place: problem; fix`."""


class UnknownFieldsError(InputError):
    """The fields of a file match no known format. `columns` is a guess that maps names to the file's columns."""

    def __init__(self, message: str, columns: Mapping[str, str]) -> None:
        super().__init__(message)
        self.columns = dict(columns)


class GrammarError(InputError):
    """A grammar is invalid, too large, or takes too long to compile."""


class LabelCodeError(JudgelmError):
    """A label field has values without a stated meaning.

    The error affects the whole file, so readers must not just reject one row.
    """


class ConfigError(JudgelmError):
    """An option is unknown, or conflicts with other options."""


def not_found(kind: str, name: object, available: Iterable[object]) -> ConfigError:
    """Return an error for an unknown name, suggesting the closest available name."""
    names = [str(known) for known in available]
    close = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    return ConfigError(f"{kind} {name!r} does not exist{hint} available: {', '.join(names)}")


def out_of_range(name: str, value: object, minimum: float, maximum: float) -> ConfigError:
    """Return an error for a number that is out of range or NaN."""
    return ConfigError(f"{name} is {str(value)[:40]}; it must be a number between {minimum:.20g} and {maximum:.20g}")


class MissingExtraError(ConfigError):
    """A package from an optional extra is not installed."""


class ModelError(JudgelmError):
    """A model folder or hub ID could not be loaded."""


class CardError(ModelError):
    """The model's card contradicts the template, scale, or format in use."""


class EngineError(JudgelmError):
    """The engine failed, so the run stops. Finished judgments are on disk."""


class ShutdownError(EngineError):
    """The server shut down before the request was answered."""


class BusyError(JudgelmError):
    """The server's queue is full; try again later."""


class TrainingError(JudgelmError):
    """Training failed. The last checkpoint is intact."""


class RunError(JudgelmError):
    """The files of the run cannot be written, or belong to another run."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error message without its full stop, or the error type if it is empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    shown = f"{lines[0]} {lines[1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
    return shown.rstrip(".")
