"""Recognises a released judge by its hub id, or a local folder of it by what the folder says of itself."""

import re
from dataclasses import dataclass
from pathlib import Path

from judgelm.jsonl import parse_json
from judgelm.judges.released import ReleasedJudge, released_judge, released_judges
from judgelm.prompts.judge_card import CARD_NAME

_CACHED = re.compile(r"models--([^/]+)--([^/]+)/snapshots/")
_REMOTE = re.compile(r"url\s*=\s*\S*huggingface\.co[/:]([\w.-]+/[\w.-]+?)(?:\.git)?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognition:
    """The outcome for a model.

    Attributes:
        judge: the released judge that it is; None where it is none, or that is not certain.
        candidates: cards of judges that a folder may be, by its name alone.
    """

    judge: ReleasedJudge | None = None
    candidates: tuple[str, ...] = ()


def recognise(model: str, card: str | None = None, *, adapter: str | None = None) -> Recognition:
    """The released judge that an adapter, else its model, is; one with a `judge.json` is none.

    Args:
        model: hub id, or a folder. A folder is recognised by the hub id in its path in the hub's cache, in its git
            remote, or in `_name_or_path` of its `config.json`.
        card: of the judge, where the user names it; nothing is recognised then.
        adapter: hub id or folder of an adapter on the model.

    Raises:
        ConfigError: there is no such card.
    """
    if any((Path(path) / CARD_NAME).is_file() for path in (adapter, model) if path is not None):
        return Recognition()
    if adapter is not None and card is None and (recognition := recognise(adapter)).judge is not None:
        return recognition
    if card is not None:
        return Recognition(judge=released_judge(card))
    folder = Path(model)
    ids = _ids_of(folder) if folder.is_dir() else [model]
    known = {checkpoint.id.casefold(): judge for judge in released_judges() for checkpoint in judge.checkpoints}
    for hub_id in ids:
        if (judge := known.get(hub_id.casefold())) is not None:
            return Recognition(judge=judge)
    if not folder.is_dir():
        return Recognition()
    name = folder.resolve().name.casefold()
    return Recognition(
        candidates=tuple(dict.fromkeys(judge.name for hub_id, judge in known.items() if hub_id.split("/")[1] == name))
    )


def _ids_of(folder: Path) -> list[str]:
    """Hub ids that a folder states of itself."""
    ids = []
    if match := _CACHED.search(f"{folder.resolve().as_posix()}/"):
        ids.append(f"{match[1]}/{match[2]}")
    if match := _REMOTE.search(_text(folder / ".git" / "config")):
        ids.append(match[1])
    try:
        config = parse_json(_text(folder / "config.json") or "{}")
    except ValueError:  # loading the model says so
        config = {}
    if isinstance(config, dict) and isinstance(config.get("_name_or_path"), str):
        ids.append(config["_name_or_path"])
    return ids


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
