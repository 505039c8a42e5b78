"""A measurement as a file: the machine, the judge, all timings and ceilings."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.throughput.results import Ceiling
from benchmarks.throughput.systems import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All timings of a judge on a machine.

    Attributes:
        machine: the processor or GPU.
        instruction_sets: of the processor, those that matter for products.
        threads: of torch.
        judge: its name, or the shape of random weights.
        parameters: of the judge, in millions.
        layer_parameters: of them, in the layers.
        pairs: where the pairs come from.
        count: number of pairs.
        rounds: number of rounds.
        versions: of the packages that took part.
        date: of the measurement, ISO 8601.
        left_out: systems that did not take part, and why.
    """

    machine: str
    instruction_sets: Sequence[str]
    threads: int
    judge: str
    parameters: float
    layer_parameters: float
    pairs: str
    count: int
    rounds: int
    versions: Sequence[str]
    date: str
    left_out: Sequence[str]
    timings: Sequence[Timing]
    ceilings: Sequence[Ceiling]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Measurement":
        """Read what `write` wrote."""
        record = json.loads(path.read_text(encoding="utf-8"))
        record["timings"] = [Timing(**timing) for timing in record["timings"]]
        record["ceilings"] = [Ceiling(**ceiling) for ceiling in record["ceilings"]]
        return cls(**record)
