"""Modes by name. Each mode is imported on first use, so that `--help` stays fast."""

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from judgelm.errors import ConfigError, not_found

if TYPE_CHECKING:
    from judgelm.modes.mode import BatchMode
    from judgelm.modes.pairwise import Pairwise, Reasoned

MODES: dict[str, str] = {
    "pair": "judgelm.modes.pairwise:Pairwise",
    "reasoned": "judgelm.modes.pairwise:Reasoned",
    "single": "judgelm.modes.single:Single",
    "multi": "judgelm.modes.multi:Multi",
    "multimodal": "judgelm.modes.multimodal:Multimodal",
    "rubric": "judgelm.modes.rubric:Rubric",
    "label": "judgelm.modes.label:PromptLabel",
    "checklist": "judgelm.modes.checklist:Checklist",
    "grounded": "judgelm.modes.grounded:Grounded",
    "correctness": "judgelm.modes.self_reference:Correctness",
    "qa": "judgelm.modes.qa:QaCorrectness",
    "ssr": "judgelm.modes.self_reference:SelectiveSelfReference",
    "conversation": "judgelm.modes.conversation:Conversation",
    "chat": "judgelm.modes.follow_up:Chat",
    "trajectory": "judgelm.modes.trajectory:Trajectory",
    "reward": "judgelm.modes.reward:Reward",
}
"""Module and class of each mode, keyed by name."""

CARD_FIELDS = ("template", "scale", "step", "prompt", "calibration_temperature", "head", "heads", "abstain_below")
"""Mode fields that are set by the judge's card and cannot be passed as options."""

__all__ = ["CARD_FIELDS", "MODES", "BatchMode", "Pairwise", "Reasoned", "build_mode", "make_mode"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public class on first use."""
        modules = {"BatchMode": "mode", "Pairwise": "pairwise", "Reasoned": "pairwise"}
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{modules[name]}"), name)


def mode_type(name: str) -> "type[BatchMode]":
    """Import a mode's class."""
    if name not in MODES:
        raise not_found("mode", name, MODES)
    module, _, kind = MODES[name].partition(":")
    return cast("type[BatchMode]", getattr(import_module(module), kind))


def shown_fields() -> frozenset[str]:
    """Return all metadata fields that appear in any mode's prompts."""
    from judgelm.modes.released import ReleasedMode

    return frozenset().union(ReleasedMode.shown_fields, *(mode_type(name).shown_fields for name in MODES))


def protocol_of(name: str) -> str:
    """Return a mode's `protocol`, or an empty string if the mode is unknown."""
    return mode_type(name).protocol if name in MODES else ""


def make_mode(name: str, options: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> "BatchMode":
    """Build a mode and check its options.

    Args:
        name: key of `MODES`.
        options: fields of the mode, `votes`, and `vote_rule`.
        own: values for `CARD_FIELDS`; fields that the mode does not have are ignored.

    Raises:
        ConfigError: unknown mode or option, or an invalid value.
    """
    return build_mode(mode_type(name), name, options, own or {})


def build_mode(kind: "type[BatchMode]", name: str, options: Mapping[str, Any], own: Mapping[str, Any]) -> "BatchMode":
    """Like `make_mode`, but takes the mode's class."""
    from judgelm.modes.mode import check_finite
    from judgelm.modes.votes import TEMPERATURE, Voted

    voting = {key: value for key, value in options.items() if key in ("votes", "vote_rule")}
    options = {key: value for key, value in options.items() if key not in voting}
    if voting.setdefault("votes", 1) != 1:
        if not kind.can_vote(own):
            if own.get("prompt") is not None:
                raise ConfigError("votes require a prompt that reasons first; add reason to the prompt's reply")
            names = ", ".join(known for known in MODES if mode_type(known).reasons_first)
            raise ConfigError(
                f"votes: mode {name} gets verdict probabilities in a single pass; use distribution instead. Voting "
                "requires a judge that reasons first: a released judge, a prompt file with reason, or one of these "
                f"modes: {names}"
            )
        return Voted(mode=build_mode(kind, name, {"temperature": TEMPERATURE, **options}, own), **voting)
    if "vote_rule" in voting:
        raise ConfigError("vote_rule requires votes; set their number, such as --votes 5")
    has = {field.name for field in fields(cast(Any, kind))}
    known = sorted(has - set(CARD_FIELDS))
    if unknown := sorted(options.keys() - set(known)):
        there_are = f"available options: {', '.join(known)}" if known else "it has no options"
        raise ConfigError(f"mode {name}: unknown option {', '.join(unknown)}; {there_are}")
    fixed = {key: value for key, value in own.items() if key in has}
    try:
        made: BatchMode = TypeAdapter(kind).validate_python({**options, **fixed})
    except ValidationError as error:
        findings = "; ".join(
            f"{'.'.join(map(str, finding['loc']))}: {finding['msg']}, got {finding['input']!r:.200}"
            for finding in error.errors()
        )
        raise ConfigError(f"mode {name}: {findings}") from error
    check_finite(made, options)
    return made
