"""Write AlpacaEval's judgments, kept as three tables without repeated texts, as annotations in AlpacaEval's own format.

    python -m benchmarks.alpaca_annotations FOLDER -o annotations.jsonl

FOLDER holds `instructions.parquet` (`instruction`), `outputs.parquet` (`instruction`, `generator`, `text`), and
`judgments.parquet` (`instruction`, `output_1`, `output_2`: row numbers; `preference`, `annotator`, `dataset`).
"""

import argparse
import json
from pathlib import Path

import pandas as pd


def write_annotations(folder: Path, out: Path) -> None:
    """Write the annotations of the folder as JSON lines."""
    names = ("instructions", "outputs", "judgments")
    instructions, outputs, judgments = (pd.read_parquet(folder / f"{name}.parquet") for name in names)
    with out.open("w", encoding="utf-8") as file:
        for row in judgments.to_dict("records"):
            row["instruction"] = instructions["instruction"][row["instruction"]]
            for side in (1, 2):
                index = row[f"output_{side}"]
                row[f"output_{side}"], row[f"generator_{side}"] = outputs["text"][index], outputs["generator"][index]
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def main() -> None:
    """Write the annotations of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    write_annotations(options.folder, options.out)


if __name__ == "__main__":
    main()
