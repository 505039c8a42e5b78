"""`python -m judgelm` is `judgelm`."""

from judgelm.cli.main import main

main()
