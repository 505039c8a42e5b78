"""Values that the shell completes; the modules that list them are imported only then."""

from dataclasses import fields
from typing import Any, cast

import typer

MODE_NAMES = (
    "pair", "reasoned", "single", "multi", "multimodal", "rubric", "correctness", "qa", "ssr",
    "conversation", "chat",
)  # fmt: skip
"""The keys of `judgelm.modes.MODES`, for help that does not wait for that module."""


def modes() -> list[str]:
    """Ways of judging."""
    return list(MODE_NAMES)


def mode_args(ctx: typer.Context) -> list[str]:
    """The options of the mode that the line names, each up to its `=`."""
    from judgelm.modes import CARD_FIELDS, MODES

    kind = MODES.get(ctx.params.get("mode") or "pair")
    names = [] if kind is None else [field.name for field in fields(cast(Any, kind))]
    return [f"{name}=" for name in names if name not in CARD_FIELDS]


def templates() -> list[str]:
    """Prompt templates for pairs."""
    from judgelm.prompts.catalog import TEMPLATES

    return list(TEMPLATES)


def benchmarks() -> list[str]:
    """Published benchmarks that can be imported."""
    from judgelm.data.sources import registry

    return list(registry.benchmarks())


def judge_names() -> list[str]:
    """Judges that are known by name."""
    from judgelm.judges.cards import card_names

    return card_names()


def card_names() -> list[str]:
    """Cards of released judges."""
    from judgelm.judges.released import released_names

    return released_names()


def datasets() -> list[str]:
    """Public data sets that are known by name."""
    from judgelm.data.sources.public_datasets import dataset_names

    return dataset_names()
