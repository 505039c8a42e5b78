"""Write a synthetic data set: the former name of `make_synthetic.py`."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("make_synthetic.py")), run_name="__main__")
