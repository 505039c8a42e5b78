"""Mode tasks: a sample, the mode that judges it and the mode's options; read from JSON.

    {"mode": "pair", "options": {"both_orders": true}, "question": "...", "answer_1": "...", "answer_2": "..."}

The other fields are those of any row that judgelm-batch reads.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from judgelm.data.formats.catalog import detect_format
from judgelm.data.readers.rows import Row
from judgelm.data.samples import allows_count, count_range_text
from judgelm.errors import InputError
from judgelm.modes.flow import BatchMode, ChecksSamples
from judgelm.records import Sample

_SOURCE = "question"
_OWN = ("mode", "options")
_MOST_REPEATS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTask:
    """A sample and the mode that judges it.

    Attributes:
        sample: to be judged.
        mode: key of `judgelm.modes.MODES`.
        options: fields of the mode, as JSON has them: `both_orders`, `distribution`, `reasons`, `order_rule`, ...
    """

    sample: Sample
    mode: str = "pair"
    options: Mapping[str, Any] = field(default_factory=dict)


def read_task(body: Mapping[str, Any]) -> ModeTask:
    """A mode task from a JSON object.

    Args:
        body: `mode` (without it `pair`), `options` (without them the mode's defaults), and a row's fields. Images are
            taken as `data:` URLs alone: files on the server, or in its reach, are not the client's.

    Raises:
        InputError: a field is missing or wrong; the message names it.
    """
    mode, options = body.get("mode", "pair"), body.get("options")
    if not isinstance(mode, str):
        raise InputError(f'field "mode": expected the name of a mode, got {json.dumps(mode)}')
    if options is not None and not isinstance(options, Mapping):
        raise InputError('field "options": expected an object of the mode\'s options, such as {"both_orders": true}')
    options = options or {}
    for name, noun in (("permutations", "orders"), ("solves", "self-answers")):
        repeats = options.get(name)
        if isinstance(repeats, int | float) and repeats > _MOST_REPEATS:
            most = f"a server asks for at most {_MOST_REPEATS} {noun}"
            raise InputError(f'field "options": {name} is {str(repeats)[:40]}; {most}')
    row = Row(_SOURCE, 1, {name: value for name, value in body.items() if name not in _OWN})
    try:
        known = detect_format(row)
        if known.note:
            raise InputError(known.note)
        sample = known.sample(row)
    except InputError as error:
        raise InputError(str(error).removeprefix(f"{_SOURCE}:1: ")) from error
    if not all(image.startswith("data:") for image in sample.images):
        raise InputError('field "images": a server takes images as data: URLs alone, data:image/png;base64,...')
    return ModeTask(sample=sample, mode=mode, options=dict(options))


def checked_sample(sample: Sample, mode: BatchMode) -> Sample:
    """The sample as the mode takes it: number of answers checked, reference kept or dropped by the mode's policy.

    Raises:
        InputError: the mode cannot judge it.
    """
    if not allows_count(len(sample.answers), mode.answers):
        raise InputError(f"mode {mode.name}: expected {count_range_text(mode.answers)}, got {len(sample.answers)}")
    if mode.reference == "use" and sample.reference is None:
        raise InputError(f'mode {mode.name}: field "reference" is missing, which it judges by')
    if mode.reference == "ignore":
        sample = replace(sample, reference=None)
    if _checks_samples(type(mode)):
        cast(ChecksSamples, mode).check(sample)
    return sample


@cache
def _checks_samples(kind: type[BatchMode]) -> bool:
    """Cached: a check against a protocol is slow, and every request needs it."""
    return issubclass(kind, ChecksSamples)
