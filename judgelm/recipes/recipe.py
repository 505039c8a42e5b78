"""The recipe file: variables, and a list of commands with the files that they read and write.

    variables:
      out: runs/mine
    folder: ${out}
    steps:
      - name: judge
        run: judgelm-batch pairs.jsonl -o ${out}/judgments.jsonl
        inputs: [pairs.jsonl]
        outputs: ["${out}/judgments.jsonl"]
        overwrite: --overwrite

A command is run without a shell, so that it means the same on every machine: a text is split into words first, and
`${name}` is replaced in each word, so that a value with spaces stays one argument.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from judgelm.engines.model_cache import cache_root
from judgelm.errors import ConfigError, not_found
from judgelm.yaml_files import read_yaml

CACHE_VARIABLE = "judgelm_cache"
"""A variable that every recipe has: the folder of judgelm's cache."""

_NAME = r"^[a-z][a-z0-9_-]*$"
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_OPERATOR = re.compile(r"\|\|?|&&?|;|\d?(>>?|<<?)\S*")

_Word = StrictStr | StrictInt | StrictFloat
_Words = StrictStr | list[_Word]


class _StepFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=_NAME)]
    run: _Words
    inputs: list[str] = []
    outputs: list[str] = []
    overwrite: _Words = []


class _RecipeFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    variables: dict[Annotated[str, Field(pattern=_NAME)], _Word] = {}
    folder: str
    extras: list[Annotated[str, Field(pattern=_NAME)]] = []
    steps: Annotated[list[_StepFields], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a recipe.

    Attributes:
        name: unique in the recipe; names the log.
        command: program and arguments.
        inputs: files and folders that the command reads; the step runs again when their bytes change.
        outputs: files and folders that are there once the command is done.
        overwrite: arguments added where the outputs of an earlier command or of other inputs are to be replaced.
    """

    name: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    overwrite: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe with its variables filled in.

    Attributes:
        path: the recipe file.
        folder: where state and logs are kept, beside the outputs.
        extras: judgelm's extras that the steps need.
        steps: in the order in which they run.
    """

    path: Path
    folder: Path
    extras: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def state_path(self) -> Path:
        """The file that records started and finished steps."""
        return self.folder / f"{self.path.stem}.state.jsonl"

    def log_path(self, step: Step) -> Path:
        """The file that a step's output is appended to."""
        return self.folder / f"{self.path.stem}.logs" / f"{step.name}.log"


def read_recipe(path: Path, changes: Mapping[str, str]) -> Recipe:
    """Read a recipe and fill in its variables.

    Args:
        path: the YAML file.
        changes: values that override those of the file's variables.

    Raises:
        ConfigError: not readable, an unknown field or variable, or a command that needs a shell.
    """
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping with folder and steps")
    try:
        fields = _RecipeFields.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_finding(error, content)}") from error
    filler = _Filler(path, _variables(path, fields, changes))
    recipe = Recipe(
        path=path,
        folder=Path(filler.fill(fields.folder, "folder")),
        extras=tuple(fields.extras),
        steps=tuple(_step(filler, step) for step in fields.steps),
    )
    _check_names(recipe)
    return recipe


def _variables(path: Path, fields: _RecipeFields, changes: Mapping[str, str]) -> dict[str, str]:
    """Values by name; a value may use the variables above it."""
    if CACHE_VARIABLE in fields.variables:
        raise ConfigError(f"{path}: variables.{CACHE_VARIABLE}: every recipe has this one; choose another name")
    for name in changes:
        if name not in fields.variables:
            raise not_found(f"--set {name}: variable", name, fields.variables)
    values = {CACHE_VARIABLE: str(cache_root())}
    for name, value in fields.variables.items():
        values[name] = _Filler(path, values).fill(changes.get(name, str(value)), f"variables.{name}")
    return values


@dataclass(frozen=True, slots=True)
class _Filler:
    """Replaces `${name}` by the variable's value."""

    path: Path
    values: Mapping[str, str]

    def fill(self, text: str, location: str) -> str:
        for name in _REFERENCE.findall(text):
            if name not in self.values:
                raise ConfigError(
                    f"{self.path}: {location}: variable {name!r} does not exist; available: {', '.join(self.values)}"
                )
        return _REFERENCE.sub(lambda match: self.values[match[1]], text)

    def words(self, value: _Words, location: str) -> tuple[str, ...]:
        words = self._split(value, location) if isinstance(value, str) else [str(word) for word in value]
        return tuple(self.fill(word, location) for word in words)

    def _split(self, text: str, location: str) -> list[str]:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {location}: {str(error).lower()}; close the quotation mark") from error
        for word in words:
            if _OPERATOR.fullmatch(word):
                raise ConfigError(
                    f"{self.path}: {location}: {word} is for a shell, and a command is run without one; make it two "
                    "steps, or write a list: [bash, -c, '...'], or a list of words if it is an argument"
                )
        return words


def _step(filler: _Filler, fields: _StepFields) -> Step:
    location = f"step {fields.name}"
    command = filler.words(fields.run, f"{location}: run")
    if not command or not command[0]:
        raise ConfigError(f"{filler.path}: {location}: run is empty; give a command")
    return Step(
        name=fields.name,
        command=command,
        inputs=tuple(filler.fill(text, f"{location}: inputs") for text in fields.inputs),
        outputs=tuple(filler.fill(text, f"{location}: outputs") for text in fields.outputs),
        overwrite=filler.words(fields.overwrite, f"{location}: overwrite"),
    )


def _check_names(recipe: Recipe) -> None:
    names: set[str] = set()
    for step in recipe.steps:
        if step.name in names:
            raise ConfigError(f"{recipe.path}: two steps are named {step.name}; give each its own name")
        names.add(step.name)


def _finding(error: ValidationError, content: Mapping[str, Any]) -> str:
    errors = error.errors()
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])  # a typing error
    location = ".".join(_location(first["loc"], content))
    if first["type"] == "extra_forbidden":
        known = _StepFields if first["loc"][0] == "steps" else _RecipeFields
        return f"{location}: unknown field; available: {', '.join(known.model_fields)}"
    if first["type"] == "missing":
        return f"{location}: missing; add it"
    if first["type"] == "string_pattern_mismatch":
        return (
            f"{location}: {first['input']!r}: a name is lower-case letters, digits, - and _, and begins with a letter"
        )
    if first["type"] == "too_short":
        return f"{location}: empty; add a step"
    if first["type"].startswith("model"):
        return f"{location}: expected a mapping with name and run"
    if first["loc"][0] == "variables":
        return f"{location}: expected a text or a number; quote words such as true and null"
    if {"run", "overwrite"} & set(first["loc"]):
        return f"{location}: expected a command, as a text or a list of words; quote words such as true and null"
    return f"{location}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _location(parts: tuple[int | str, ...], content: Mapping[str, Any]) -> Iterator[str]:
    """The place of a finding, with the name of the step instead of its index."""
    if parts[0] == "steps" and len(parts) > 1 and isinstance(parts[1], int):
        step = content["steps"][parts[1]]
        name = step.get("name") if isinstance(step, dict) else None
        yield f"step {name}" if isinstance(name, str) else f"steps[{parts[1]}]"
        parts = parts[2:3]  # behind a field's name stands the kind that pydantic tried
    yield from (str(part) for part in parts[:2] if part != "[key]")
