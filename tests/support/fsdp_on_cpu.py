"""A recipe, `train/sft.py` unless the variable RECIPE names another, with accelerate's FSDP on the CPU."""

import os
import runpy
import sys
from pathlib import Path

from accelerate import DistributedType, PartialState

connect = PartialState.__init__


def connect_as_accelerators(self, *args, **options):
    connect(self, *args, **options)
    if self.distributed_type is DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


if __name__ == "__main__":
    PartialState.__init__ = connect_as_accelerators
    recipe = Path(__file__).parents[2] / os.environ.get("RECIPE", "train/sft.py")
    sys.argv[0] = str(recipe)
    runpy.run_path(str(recipe), run_name="__main__")
