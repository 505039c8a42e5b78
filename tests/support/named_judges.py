"""A tiny adapter under the name of a card and a tiny base, as installed in a cache."""

import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from judgelm.engines.gguf.checkpoint import GgufRecord
from judgelm.judges.cards import NamedJudge, judge_card
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, GgufBase, write_card
from tests.support.tiny_judges import TEMPLATE, make_adapter

SMALL = judge_card("small-judge")
MODULE = "judgelm_small_judge"
INFO = f"{MODULE}-9.9.dist-info"


def cached_adapter(cache: Path, base: Path, card: NamedJudge = SMALL) -> Path:
    """Put an adapter where the card's own would lie."""
    folder = make_adapter(base, cache / "judges" / card.name / "9.9", seed=1)
    own = Card(template=TEMPLATE, template_sha=get_template(TEMPLATE).sha, name=card.name, scale=card.scale)
    write_card(folder, replace(own, base=GgufBase(gguf_sha256=card.base.gguf_sha256, file=Path(card.base.file).name)))
    return folder


def cached_base(cache: Path, base: Path, card: NamedJudge = SMALL) -> Path:
    folder = Path(shutil.copytree(base, cache / "gguf" / card.base.gguf_sha256))
    record = GgufRecord(
        file="tiny.gguf", sha256=card.base.gguf_sha256, architecture="llama", quantised=False, dtype="float32",
        weight_bytes=0,
    )  # fmt: skip
    (folder / "gguf.json").write_text(record.model_dump_json())
    return folder


def wheel_entries(adapter: Path) -> dict[str, bytes]:
    files = {f"{MODULE}/{path.name}": path.read_bytes() for path in sorted(adapter.iterdir())}
    return files | {
        f"{MODULE}/__init__.py": b"raise SystemExit('imported')\n",
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: judgelm-small-judge\nVersion: 9.9\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }


def write_wheel(folder: Path, entries: Mapping[str, bytes]) -> Path:
    """Write a wheel; its RECORD is empty."""
    wheel = folder / f"{MODULE}-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.writestr(f"{INFO}/RECORD", "")
    return wheel
