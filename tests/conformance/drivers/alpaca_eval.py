"""alpaca_eval: its annotators compare a model's outputs with a reference model's; it shuffles the order itself."""

import json
import sys
from pathlib import Path

from alpaca_eval.annotators import PairwiseAnnotator

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))

found = {}
for name in asked["annotators"]:
    annotator = PairwiseAnnotator(annotators_config=name, caching_path=None, seed=0)
    rows = [
        {"instruction": one["question"], "output_1": one["first"], "output_2": one["second"]} for one in asked["pairs"]
    ]
    found[name] = [row["preference"] for row in annotator.annotate_pairs(rows)]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
