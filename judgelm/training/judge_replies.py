"""What a judge wrote of pairs, out of the files of batch runs: one reply for each order it was shown.

Only runs that asked as a training would ask are taken: pairs, by the same template and on the same scale.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgelm.errors import InputError
from judgelm.jsonl import parse_json
from judgelm.prompts.catalog import get_template
from judgelm.records import Shown
from judgelm.runs.run_files import iter_judgments


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A judge's reply to one prompt.

    Attributes:
        shown: the order of the answers, and what was written.
        reference: whether the run showed a reference where the pair had one.
    """

    shown: Shown
    reference: bool

    @property
    def scores(self) -> tuple[float, ...] | None:
        """In the order shown; None where the judge's own reply cannot be read."""
        return self.shown.scores if self.shown.repaired is None else None

    @property
    def text(self) -> str | None:
        """Score line, and the reason where it was asked for and has its end; None where no reply has its end.

        Of a reply that only a constrained retry made readable it is the first.
        """
        failure = self.shown.repaired or self.shown.failure
        if failure is not None:
            return failure.text if failure.code in ("off_grammar", "out_of_range") else None
        reason = self.shown.reason if self.shown.reason_failure is None else None
        return f"{self.shown.text}\n{reason}" if reason else self.shown.text


def read_replies(path: str, *, template: str, scale: tuple[float, float]) -> dict[str, tuple[Reply, ...]]:
    """The replies of a run of `judgelm-batch` by sample id; of a sample that was judged again, the later ones.

    Args:
        path: the judgments; the run's manifest lies beside them.
        template: id of the template that the judge must have been asked with.
        scale: lowest and highest score that it must have been asked for.

    Raises:
        InputError: no manifest, another template or scale, another mode, or a line that is no judgment.
    """
    reference = _shows_references(path, template, scale)
    return {
        name: tuple(Reply(shown=one, reference=reference) for one in shown) for name, shown in _shown_in(path)
    }  # a later line of the same id goes before


def _shown_in(path: str) -> Iterator[tuple[str, tuple[Shown, ...]]]:
    return ((judgment.sample_id, judgment.shown) for judgment in iter_judgments(path))


def _shows_references(path: str, template: str, scale: tuple[float, float]) -> bool:
    """Whether the run showed references, once it is found to have asked as it should."""
    asked = _fingerprint(path)
    mode, used = asked["mode"], asked["template"]
    if mode.get("name") != "pair":
        raise InputError(f"{path}: holds judgments of mode {mode.get('name')!r}; only those of pairs can be tuned on")
    if (used["id"], used["sha"]) != (template, get_template(template).sha):
        other = "other bytes of it" if used["id"] == template else repr(used["id"])
        raise InputError(
            f"{path}: the judge was asked with template {other}, the training's is {template!r}; judge the pairs again "
            "with the training's template"
        )
    if tuple(mode["scale"]) != scale:
        raise InputError(f"{path}: the judge was asked for scores on {mode['scale']}, the training's scale is {scale}")
    if len(asked["input"]) != 1:
        raise InputError(
            f"{path}: was made of {len(asked['input'])} files, so its prompts cannot be made again from the labelled "
            "one; judge the labelled file itself, with its references in its rows"
        )
    return bool(mode["reference"] != "ignore")


def _fingerprint(path: str) -> dict[str, Any]:
    """What the run was made with, by the manifest beside it."""
    manifest = Path(path).with_name(Path(path).name.removesuffix(".jsonl") + ".run.json")
    try:
        found = parse_json(manifest.read_text(encoding="utf-8"))["fingerprint"]
        found["mode"]["scale"], found["mode"]["reference"], found["template"]["id"], found["template"]["sha"]
        found["input"]
    except OSError as error:
        raise InputError(
            f"{path}: cannot read {manifest.name} beside it ({error.strerror}), so it is not known how the judge was "
            "asked; keep the files of a run together"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{manifest}: not the manifest of a run of judgelm-batch ({error!r})") from error
    return dict(found)
