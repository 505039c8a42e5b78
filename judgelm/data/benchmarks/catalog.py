"""All benchmarks by name."""

import difflib
from collections.abc import Mapping

from judgelm.data.benchmarks.alpaca_eval import ALPACA_EVAL
from judgelm.data.benchmarks.base import Benchmark
from judgelm.data.benchmarks.correctness import GSM8K, GSM8K_PAIRS, MMLU_PRO
from judgelm.data.benchmarks.faireval import FAIREVAL
from judgelm.data.benchmarks.gsm_symbolic import GSM_SYMBOLIC
from judgelm.data.benchmarks.human_ratings import JUDGE_BENCH
from judgelm.data.benchmarks.mm_vet import MM_VET
from judgelm.data.benchmarks.mt_bench import MT_BENCH
from judgelm.data.benchmarks.open_qa import EVOUNA
from judgelm.data.benchmarks.pairs import AUTO_J, JUDGEBENCH, LLMBAR, PANDALM
from judgelm.data.benchmarks.preferences import PREFERENCES, REWARDBENCH, REWARDBENCH_2
from judgelm.data.benchmarks.prometheus import PROMETHEUS
from judgelm.data.benchmarks.qa import QA_BENCHMARKS
from judgelm.data.benchmarks.reward_models import RM_BENCH, RMB
from judgelm.data.benchmarks.translation import WMT_SIDE_BY_SIDE
from judgelm.errors import ConfigError

BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *(PANDALM, LLMBAR, JUDGEBENCH, AUTO_J, MT_BENCH, FAIREVAL, REWARDBENCH, REWARDBENCH_2, RMB, RM_BENCH),
        *(PREFERENCES, JUDGE_BENCH, EVOUNA, WMT_SIDE_BY_SIDE),
        *(GSM8K, GSM8K_PAIRS, GSM_SYMBOLIC, MMLU_PRO, *QA_BENCHMARKS, MM_VET, PROMETHEUS, ALPACA_EVAL),
    )
}


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        ConfigError: unknown name; the message lists the available ones.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    close = difflib.get_close_matches(name, BENCHMARKS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    raise ConfigError(f"benchmark {name!r} not found{hint} Available: {', '.join(BENCHMARKS)}")
