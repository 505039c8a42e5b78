"""Ways of judging, one pure generator each, by the name the command line gives them.

A mode is a frozen dataclass with its own options as fields. Called with a sample it yields lists of requests, is sent
the completions in the same order, and returns the judgment. It does no I/O and knows no engine.

A released judge judges in the mode `released`, which its card makes (`judgelm.judges.released`).
`teaching` (a teacher's judgments of training pairs) and `answering` (answers to questions) are driven by the recipes in
`data_tools/` and are no ways to run a judge, so they have no name here.
"""

from judgelm.modes.chat import Chat
from judgelm.modes.conversation import Conversation
from judgelm.modes.correctness import Correctness
from judgelm.modes.flow import BatchMode, Flow, Mode
from judgelm.modes.multi import Multi
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.qa import QaCorrectness
from judgelm.modes.reasoned import Reasoned
from judgelm.modes.rubric import Rubric
from judgelm.modes.single import Multimodal, Single
from judgelm.modes.ssr import SelectiveSelfReference

MODES: dict[str, type[BatchMode]] = {
    "pair": Pairwise,
    "reasoned": Reasoned,
    "single": Single,
    "multi": Multi,
    "multimodal": Multimodal,
    "rubric": Rubric,
    "correctness": Correctness,
    "qa": QaCorrectness,
    "ssr": SelectiveSelfReference,
    "conversation": Conversation,
    "chat": Chat,
}

__all__ = ["MODES", "BatchMode", "Flow", "Mode", "Pairwise", "Reasoned"]
