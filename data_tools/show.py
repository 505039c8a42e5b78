"""Show rows of a labelled file as the model sees them in training: the prompt, the tokens with loss, and the cuts.

    python data_tools/show.py rows.jsonl --model BASE --row 3

The code is in benchmarks/show_rows.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is not installed

from benchmarks.show_rows import main

if __name__ == "__main__":
    sys.exit(main())
