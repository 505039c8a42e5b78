"""Generators: models that answer questions, with their decoding settings.

An entry in a YAML file under `generators`; any field of `EngineOptions` is allowed:

    name: vicuna-7b
    model: lmsys/vicuna-7b-v1.5
    decodings: [{}, {temperature: 0.7, seed: 1}]
    dtype: bfloat16

The equivalent on the command line: `--generator name=vicuna-7b,model=lmsys/vicuna-7b-v1.5,temperature=0.7,seed=1`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError
from judgelm.modes.generation import AnswerMode, Decoding, QuestionTask
from judgelm.yaml_files import parse_yaml, read_yaml

Form = Literal["auto", "chat", "plain"]
"""Prompt format of a question; `auto` means chat if the model's tokenizer has a chat template."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OWN, _DECODING = ("name", "engine", "form"), ("temperature", "seed")
_ASKING = ("system", "plain", "task", "tags", "max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGenerator:
    """A model that generates answers, with its prompt format and decoding settings.

    Attributes:
        name: the value of `model` in answer rows, and the name of the model's file.
        decodings: decoding settings; each question is answered once per entry.
        asking: prompt options; `chat` is ignored if `form` is `auto`.
    """

    name: str
    options: EngineOptions
    engine: str = "auto"
    form: Form = "auto"
    decodings: tuple[Decoding, ...] = (Decoding(),)
    asking: AnswerMode = field(default_factory=AnswerMode)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError(
                f"generator name {self.name!r}: use only letters, digits, dots, underscores, and "
                "dashes, because it is used as a file name"
            )
        if self.form not in get_args(Form):
            known = ", ".join(get_args(Form))
            raise ConfigError(f"generator {self.name}: unknown form {self.form!r}; available: {known}")


def build_generator(settings: Mapping[str, Any]) -> AnswerGenerator:
    """Build a generator from a mapping of settings."""
    rest = dict(settings)
    label = f"generator {rest.get('name', f'of {len(settings)} settings')}"
    if not rest.get("name") or not rest.get("model"):
        raise ConfigError(f"{label}: set a name and a model, such as name=vicuna-7b,model=lmsys/vicuna-7b-v1.5")
    own = {name: rest.pop(name) for name in _OWN if name in rest}
    asking = {name: rest.pop(name) for name in _ASKING if name in rest}
    decodings = rest.pop("decodings", None)
    alone = {name: rest.pop(name) for name in _DECODING if name in rest}
    if decodings is not None and alone:
        raise ConfigError(f"{label}: set temperature and seed either in decodings or separately, not both")
    if decodings is not None and not (isinstance(decodings, list) and decodings):
        raise ConfigError(f"{label}: decodings: expected a list, such as [{{}}, {{temperature: 0.7, seed: 1}}]")
    return AnswerGenerator(
        **own | {"name": str(own["name"])},
        options=_checked(EngineOptions, rest, label, more=(*_OWN, *_ASKING, "decodings", *_DECODING)),
        decodings=tuple(_checked(Decoding, decoding, f"{label}: decodings") for decoding in decodings or [alone]),
        asking=_checked(AnswerMode, asking, label),
    )


def read_generators(path: Path | None) -> list[AnswerGenerator]:
    """Read the list `generators` from a YAML file; return an empty list if `path` is None."""
    if path is None:
        return []
    values = read_yaml(path)
    if not isinstance(values, dict) or values.keys() != {"generators"} or not isinstance(values["generators"], list):
        raise ConfigError(f"--config {path}: expected a single key, generators, with a list")
    return [build_generator(value if isinstance(value, dict) else {"name": value}) for value in values["generators"]]


def parse_generator(text: str) -> AnswerGenerator:
    """Parse `name=a,model=b,temperature=0.7,engine_args.base_url=...`; values are YAML.

    Raises:
        ConfigError: a part cannot be parsed, or a setting is invalid.
    """
    settings: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        into, _, inner = name.strip().rpartition(".")
        if not equals or into not in ("", "engine_args"):
            finding = f"expected NAME=VALUE,NAME=VALUE,..., got {name!r}"
            raise ConfigError(f"--generator: {finding}; put values with commas into a --config file")
        target = settings.setdefault(into, {}) if into else settings
        try:
            target[inner] = value if inner in ("name", "model") else parse_yaml(value)
        except ConfigError as error:  # the value may contain a password
            raise ConfigError(f"--generator {name}=...: invalid YAML ({error}); quote the value") from error
    return build_generator(settings)


def merge_generators(generators: Sequence[AnswerGenerator]) -> list[AnswerGenerator]:
    """Merge entries with the same name so that each model is loaded only once."""
    by_name: dict[str, AnswerGenerator] = {}
    for generator in generators:
        earlier = by_name.get(generator.name)
        if earlier is not None and replace(earlier, decodings=generator.decodings) != generator:
            raise ConfigError(f"generator {generator.name} is defined twice with different settings; rename one")
        decodings = (earlier.decodings if earlier else ()) + generator.decodings
        by_name[generator.name] = replace(generator, decodings=decodings)
    for generator in by_name.values():
        if len({decoding.name for decoding in generator.decodings}) < len(generator.decodings):
            raise ConfigError(f"generator {generator.name} has two equal decodings; use other temperatures or seeds")
    return list(by_name.values())


def for_task(generator: AnswerGenerator, task: QuestionTask) -> AnswerGenerator:
    """Return a copy of the generator for a different task."""
    return replace(generator, asking=replace(generator.asking, task=task))


def with_samples(generator: AnswerGenerator, count: int, temperature: float) -> AnswerGenerator:
    """Return a copy of the generator that samples `count` answers per question."""
    if count < 1:
        raise ConfigError(f"--samples {count}: must be at least 1")
    if count > 1 and temperature == 0:
        raise ConfigError(f"--samples {count}: samples at temperature 0 are identical; set --temperature above 0")
    return replace(generator, decodings=tuple(Decoding(temperature=temperature, seed=seed) for seed in range(count)))


def _checked(kind: Any, values: Any, label: str, more: Sequence[str] = ()) -> Any:
    known = [option.name for option in fields(kind)]
    if not isinstance(values, Mapping):
        raise ConfigError(f"{label}: expected a mapping with the keys {', '.join(known)}, got {type(values).__name__}")
    if unknown := values.keys() - set(known):
        available = ", ".join(dict.fromkeys((*more, *known)))
        raise ConfigError(f"{label}: {', '.join(sorted(map(str, unknown)))} not found; available: {available}")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first: Any = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        shown = "" if name.startswith("engine_args") else f"={first['input']!r}"
        raise ConfigError(f"{label}: {name}{shown}: {first['msg']}") from error
