"""A distribution that holds a tiny adapter under the name of a card, and a tiny base in a cache of its own."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

from judgelm.engines.gguf import GgufRecord
from judgelm.judges.cards import JudgeCard, judge_card
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, GgufBase, write_card
from tests.support.tiny_judges import TEMPLATE, make_adapter

SMALL = judge_card("small-judge")
MODULE = "judgelm_small_judge"


def package(site: Path, base: Path, card: JudgeCard = SMALL) -> Path:
    """Write a distribution into a folder for `sys.path`, as pip leaves it; the adapter's folder."""
    folder = make_adapter(base, site / MODULE, seed=1)
    (folder / "__init__.py").write_text("raise ImportError('judgelm imports nothing of an adapter')\n")
    own = Card(template=TEMPLATE, template_sha=get_template(TEMPLATE).sha, name=card.name, scale=card.scale)
    write_card(folder, replace(own, base=GgufBase(gguf_sha256=card.base.gguf_sha256, file=Path(card.base.file).name)))
    info = site / "judgelm_small_judge-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {card.adapter.distribution}\nVersion: 9.9\n")
    (info / "entry_points.txt").write_text(f"[judgelm.judges]\n{card.name} = {MODULE}\n")
    return folder


def cached_base(cache: Path, base: Path, card: JudgeCard = SMALL) -> Path:
    """Put a checkpoint where the card's base would lie."""
    folder = Path(shutil.copytree(base, cache / "gguf" / card.base.gguf_sha256))
    record = GgufRecord(
        file="tiny.gguf", sha256=card.base.gguf_sha256, architecture="llama", quantised=False, dtype="float32",
        weight_bytes=0,
    )  # fmt: skip
    (folder / "gguf.json").write_text(json.dumps(asdict(record)))
    return folder
