"""Run `judgelm` with `python -m judgelm`."""

from judgelm.cli.main import main

main()
