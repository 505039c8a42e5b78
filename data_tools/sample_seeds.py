"""Draw seed questions with reference answers from your files, in a given mix of sources.

    python data_tools/sample_seeds.py --config configs/data/seeds.yaml -o runs/seeds.jsonl

The code is in benchmarks/sample_seeds.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is not installed

from benchmarks.sample_seeds import main

if __name__ == "__main__":
    sys.exit(main())
