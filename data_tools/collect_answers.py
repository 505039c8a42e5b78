"""Collect answers of models, and draw pairs of them: the command `judgelm data answers` (`collect`, `pairs`)."""

import sys

from judgelm.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "answers"]
    main()
