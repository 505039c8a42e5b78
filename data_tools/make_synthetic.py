"""Write a synthetic data set: pre-training and fine-tuning data, held-out pairs, and an untrained base model.

    python data_tools/make_synthetic.py --out runs/demo-train --seed 0

The code is in benchmarks/synthetic/.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is not installed

from benchmarks.synthetic.data_set import main

if __name__ == "__main__":
    main()
