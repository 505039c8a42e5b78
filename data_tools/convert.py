r"""Convert published data sets to JudgeLM rows, for training and as labels.

    python data_tools/convert.py rows testset-v1.json -o pandalm.jsonl
    python data_tools/convert.py reviews --questions question.jsonl --answers answer/*.jsonl \
        --reviews review/*.jsonl -o vicuna.jsonl --split-by question --holdout 20 --seed 0

The code is in benchmarks/convert.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is not installed

from benchmarks.convert import main

if __name__ == "__main__":
    sys.exit(main())
