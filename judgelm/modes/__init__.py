"""Ways of judging, one pure generator each, by the name the command line gives them.

A mode is a frozen dataclass with its own options as fields. Called with a sample it yields lists of requests, is sent
the completions in the same order, and returns the judgment. It does no I/O and knows no engine.

A released judge judges in the mode `released`, which its card makes (`judgelm.judges.released`).
`teaching` (a teacher's judgments of training pairs) and `answering` (answers to questions) are driven by the recipes in
`data_tools/` and are no ways to run a judge, so they have no name here.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from judgelm.errors import ConfigError, not_found
from judgelm.modes.checklist import Checklist
from judgelm.modes.conversation import Chat, Conversation
from judgelm.modes.flow import BatchMode, Flow, Mode, check_finite
from judgelm.modes.multi import Multi, Reward
from judgelm.modes.pairwise import Pairwise, Reasoned
from judgelm.modes.qa import QaCorrectness
from judgelm.modes.released import ReleasedMode
from judgelm.modes.rubric import Rubric
from judgelm.modes.self_reference import Correctness, SelectiveSelfReference
from judgelm.modes.single import Multimodal, Single
from judgelm.modes.trajectory import Trajectory
from judgelm.modes.votes import TEMPERATURE, Voted

MODES: dict[str, type[BatchMode]] = {
    "pair": Pairwise,
    "reasoned": Reasoned,
    "single": Single,
    "multi": Multi,
    "multimodal": Multimodal,
    "rubric": Rubric,
    "checklist": Checklist,
    "correctness": Correctness,
    "qa": QaCorrectness,
    "ssr": SelectiveSelfReference,
    "conversation": Conversation,
    "chat": Chat,
    "trajectory": Trajectory,
    "reward": Reward,
}

__all__ = ["MODES", "BatchMode", "Flow", "Mode", "Pairwise", "Reasoned"]


SAMPLED: tuple[type[BatchMode], ...] = (Reasoned, Rubric, Correctness, QaCorrectness, ReleasedMode)
"""Modes whose judge reasons first, so that it can vote (`judgelm.modes.votes`)."""

CARD_FIELDS = ("template", "scale", "step", "prompt", "calibration_temperature")
"""Fields that a mode takes from the judge's card, and that are no options."""


def mode_type(name: str) -> type[BatchMode]:
    """The mode of that name.

    Raises:
        ConfigError: not found; the message lists the available ones.
    """
    if name not in MODES:
        raise not_found("mode", name, MODES)
    return MODES[name]


def make_mode(name: str, options: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> BatchMode:
    """A mode with its options checked for name, type and range.

    Args:
        name: key of `MODES`.
        options: fields of the mode.
        own: those of `CARD_FIELDS`, as far as the mode has them; its defaults without.

    Raises:
        ConfigError: no such mode or option, or a value that it cannot have.
    """
    return build_mode(mode_type(name), name, options, own or {})


def build_mode(kind: type[BatchMode], name: str, options: Mapping[str, Any], own: Mapping[str, Any]) -> BatchMode:
    """A mode of this type, as `make_mode` makes those of `MODES`; with `votes` above 1 it is asked so many times.

    Raises:
        ConfigError: no such option, or a value that it cannot have.
    """
    voting = {key: value for key, value in options.items() if key in ("votes", "vote_rule")}
    options = {key: value for key, value in options.items() if key not in voting}
    if voting.setdefault("votes", 1) != 1:
        _check_sampled(kind, name, own)
        return Voted(mode=build_mode(kind, name, {"temperature": TEMPERATURE, **options}, own), **voting)
    if "vote_rule" in voting:
        raise ConfigError("vote_rule without votes: say how many, such as --votes 5")
    has = {field.name for field in fields(cast(Any, kind))}
    known = sorted(has - set(CARD_FIELDS))
    if unknown := sorted(options.keys() - set(known)):
        there_are = f"it has: {', '.join(known)}" if known else "it has none"
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


def _check_sampled(kind: type[BatchMode], name: str, own: Mapping[str, Any]) -> None:
    """See that samples of a mode's judge tell more than one reply.

    Raises:
        ConfigError: it writes its verdict first.
    """
    verdict_first = kind is ReleasedMode and bool(own["prompt"].stop)
    if kind not in SAMPLED or verdict_first:
        names = ", ".join(known for known, mode in MODES.items() if mode in SAMPLED)
        raise ConfigError(
            f"votes: in mode {name} the judge begins with its verdict, whose probabilities one pass gives; ask for "
            f"distribution instead. Judges that reason first vote: released ones, and modes {names}"
        )
