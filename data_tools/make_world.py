"""Write a synthetic data set: `python data_tools/make_world.py` runs `make_synthetic.py`, its present name."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("make_synthetic.py")), run_name="__main__")
