"""slime: the rewards of a group of samples, with `--rm-type remote_rm` and `--rm-url` of a judge."""

import asyncio
import json
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[3]) / "source"))

from slime.rollout.rm_hub import batched_async_rm
from slime.utils.types import Sample

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
address = asked["base_url"].removesuffix("/v1") + "/get_reward"
options = Namespace(custom_rm_path=None, rm_type="remote_rm", rm_url=address)
samples = [Sample(prompt=item["prompt"], response=item["response"], label=item["reference"]) for item in asked["items"]]
Path(sys.argv[2]).write_text(json.dumps({"rewards": asyncio.run(batched_async_rm(options, samples))}), encoding="utf-8")
