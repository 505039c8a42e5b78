"""Which model is of which family: by its name, or as the user says."""

import re
from collections.abc import Callable, Mapping, Sequence

FamilyOf = Callable[[str], str | None]
"""Name of a judge or model -> its family; None where it has no relatives that are known."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("Claude", r"claude"),
    ("GPT", r"\bgpt-?\d|\bgpt\b|chatgpt"),
    ("Llama 3", r"llama-?\s?3"),
    ("Llama 2", r"llama-?\s?2"),
    ("Mistral", r"mistral|mixtral"),
    ("Command", r"\bcommand"),
    ("Qwen", r"qwen|\bqwq"),
    ("Gemma", r"gemma"),
    ("Gemini", r"gemini"),
    ("DeepSeek", r"deepseek"),
    ("Phi", r"\bphi-?\d"),
)


def family_by_name(name: str) -> str | None:
    """The family that a model's name tells, or None.

    The first five families are those of the paper's data and of HELM-Instruct; the others are ours.
    """
    return next((family for family, pattern in _PATTERNS if re.search(pattern, name, re.IGNORECASE)), None)


def families_given(families: Mapping[str, Sequence[str]]) -> FamilyOf:
    """Families as the user lists them, `family -> names`; a model in no list has none.

    Raises:
        ValueError: a model is in two families.
    """
    known: dict[str, str] = {}
    for family, names in families.items():
        for name in names:
            if known.setdefault(name, family) != family:
                raise ValueError(f"families: {name} is in {known[name]} and in {family}; list it once")
    return known.get
