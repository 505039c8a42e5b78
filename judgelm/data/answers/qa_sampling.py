"""About a thousand questions of each data set, with every answer type in them.

Source: QA-Judge, section 3: all of the types with fewer than 100 questions, the others drawn in proportion to their
share of the whole; no yes/no questions, and of Quoref no dates and years, which the rules mistake there.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from judgelm.errors import ConfigError
from judgelm.records import Sample

TARGET = 1000
WHOLE_BELOW = 100


def excluded_types(data_set: str) -> frozenset[str]:
    """Answer types that are left out of a data set."""
    return frozenset({"bool", "date", "year"}) if data_set == "quoref" else frozenset({"bool"})


def sample_by_type(
    samples: Sequence[Sample], *, target: int = TARGET, whole_below: int = WHOLE_BELOW, seed: int = 0
) -> list[Sample]:
    """A subset of one data set's questions, in their own order.

    A type with fewer than `whole_below` questions is kept whole. Of another `target` times its share of all questions
    used are drawn, at most all of them; so the subset can exceed `target` by what the small types have above their
    share (the paper's have 1,000 to 1,124 questions). Ids and the seed decide what is drawn, not the order of the file.

    Args:
        samples: of one data set, with `answer_type` and `data_set` in their metadata.
        target: about how many to keep, at least 1.
        whole_below: types with fewer questions are kept whole.
        seed: another seed draws others.

    Raises:
        ConfigError: `target` is below 1.
    """
    if target < 1:
        raise ConfigError(f"target is {target}; it must be at least 1")
    used = [
        sample for sample in samples if _type(sample) not in excluded_types(str(sample.metadata.get("data_set", "")))
    ]
    by_type: dict[str, list[str]] = defaultdict(list)
    for sample in used:
        by_type[_type(sample)].append(sample.id)
    chosen_ids: set[str] = set()
    for name, ids in by_type.items():
        share = len(ids) if len(ids) < whole_below else min(len(ids), round(target * len(ids) / len(used)))
        drawing = np.random.default_rng([seed, *name.encode()])
        chosen_ids.update(drawing.choice(sorted(ids), size=share, replace=False).tolist())
    return [sample for sample in used if sample.id in chosen_ids]


def type_counts(samples: Sequence[Sample]) -> Counter[str]:
    """How many questions of each answer type, as in the paper's Table 1."""
    return Counter(_type(sample) for sample in samples)


def _type(sample: Sample) -> str:
    return str(sample.metadata.get("answer_type", sample.category or "string"))
