"""Replies of a judge from the files of batch runs: one for each order that it was shown.

A run must have judged pairs with the training's template and scale.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgelm.errors import InputError
from judgelm.jsonl import parse_json
from judgelm.prompts.catalog import get_template
from judgelm.records import Shown, TextHashes
from judgelm.runs.run_files import iter_judgments


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A judge's reply to one prompt.

    Attributes:
        shown: order of the answers, and the reply.
        reference: whether the run showed references.
        hashes: of the texts judged; None where an earlier version judged them.
    """

    shown: Shown
    reference: bool
    hashes: TextHashes | None = None

    @property
    def scores(self) -> tuple[float, ...] | None:
        """In the order shown; None where the judge's own reply is unparseable."""
        return self.shown.scores if self.shown.repaired is None else None

    @property
    def text(self) -> str | None:
        """Score line, and the reason where one was requested and is complete; None where no reply is complete.

        With a constrained retry it is the first, unparseable reply.
        """
        failure = self.shown.repaired or self.shown.failure
        if failure is not None:
            return failure.text if failure.code in ("off_grammar", "out_of_range") else None
        reason = self.shown.reason if self.shown.reason_failure is None else None
        return f"{self.shown.text}\n{reason}" if reason else self.shown.text


def read_replies(path: str, *, template: str, scale: tuple[float, float]) -> dict[str, tuple[Reply, ...]]:
    """Read the replies of a run of `judgelm-batch` by sample id; those of the last judgment of each sample.

    Args:
        path: the judgments, beside the run's manifest.
        template: id of the template that the run must have.
        scale: lowest and highest score that the run must have.

    Raises:
        InputError: no manifest, another template or scale, another mode, or a line that is no judgment.
    """
    reference = _shows_references(path, template, scale)
    return {
        judgment.sample_id: tuple(
            Reply(shown=shown, reference=reference, hashes=judgment.hashes) for shown in judgment.shown
        )
        for judgment in iter_judgments(path)
    }


def _shows_references(path: str, template: str, scale: tuple[float, float]) -> bool:
    """Check the run's mode, template and scale; whether it showed references."""
    fingerprint = _fingerprint(path)
    mode, used = fingerprint["mode"], fingerprint["template"]
    if mode.get("name") != "pair":
        raise InputError(f"{path}: holds judgments of mode {mode.get('name')!r}; only pairs can be tuned on")
    if (used["id"], used["sha"]) != (template, get_template(template).sha):
        other = "other bytes of it" if used["id"] == template else repr(used["id"])
        raise InputError(
            f"{path}: the run has template {other}, the training has {template!r}; judge the pairs again "
            "with the training's template"
        )
    if tuple(mode["scale"]) != scale:
        raise InputError(f"{path}: the run has scale {mode['scale']}, the training has {scale}")
    if len(fingerprint["input"]) != 1:
        raise InputError(
            f"{path}: was made of {len(fingerprint['input'])} files, so its prompts cannot be rebuilt from the "
            "labelled one; judge the labelled file itself, with its references in its rows"
        )
    return bool(mode["reference"] != "ignore")


def _fingerprint(path: str) -> dict[str, Any]:
    """The run's fingerprint, from the manifest beside it."""
    manifest = Path(path).with_name(Path(path).name.removesuffix(".jsonl") + ".run.json")
    try:
        fingerprint = parse_json(manifest.read_text(encoding="utf-8"))["fingerprint"]
        mode, template = fingerprint["mode"], fingerprint["template"]
        mode["scale"], mode["reference"], template["id"], template["sha"], fingerprint["input"]
    except OSError as error:
        raise InputError(
            f"{path}: cannot read {manifest.name} beside it ({error.strerror}), which names template and scale; "
            "keep the files of a run together"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{manifest}: not the manifest of a run of judgelm-batch ({error!r})") from error
    return dict(fingerprint)
