"""Collect model answers and draw pairs from them; same as `judgelm data answers` (`collect`, `pairs`)."""

import sys

from judgelm.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "answers"]
    main()
