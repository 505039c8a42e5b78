"""Write a teacher's judgments of pairs as training rows; same as `judgelm data annotate`."""

import sys

from judgelm.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "annotate"]
    main()
