"""Clean, split, and augment labelled pairs into training and validation sets; same as `judgelm data build`.

    python data_tools/build.py --config configs/data/build.yaml
    python data_tools/build.py --config configs/data/build.yaml seed=1 out=data/seed1 epochs=3

Reads JudgeLM rows, PandaLM rows, preference sets, and plain rows. Writes OUT/train.*, OUT/validation.*, nested subsets
OUT/train-3500.*, OUT/README.md (a data set card), OUT/build.json (options and counts), and OUT/left_out.jsonl (all
omitted rows with the reason). For the options, see `judgelm.data.builder.options`.
"""

import sys

from judgelm.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "build"]
    main()
