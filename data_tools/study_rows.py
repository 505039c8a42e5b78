"""Make rows for studies: spoiled answers, sampled questions, a judge's references, and contrastive pairs.

    python data_tools/study_rows.py attention rows.jsonl -o spoiled.jsonl --check reversed_words

The code is in benchmarks/study_rows.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is not installed

from benchmarks.study_rows import main

if __name__ == "__main__":
    sys.exit(main())
