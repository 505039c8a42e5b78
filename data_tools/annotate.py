"""Let a teacher judge pairs, and write its judgments as training rows: the command `judgelm data annotate`."""

import sys

from judgelm.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "annotate"]
    main()
