"""Every captured request of every client is recognised by exactly one dialect."""

import pytest

from judgelm.dialects.catalog import DIALECTS, recognise
from judgelm.dialects.contract import ChatRequest, Message
from tests.support import captures

# start of a folder's name: start of its dialects' names
STARTS = {
    "alpaca_eval__lmsys_gpt4": "alpaca-eval-lmsys",
    "alpaca_eval__": "alpaca-eval-",
    "arena_hard_": "arena-hard",
    "deepeval_": "deepeval-",
    "fastchat_": "fastchat-",
    "flowjudge_": "flowjudge",
    "geval_original_": "geval",
    "inspect_": "inspect-",
    "judgelm_": "judgelm",
    "lighteval_mtbench_flowjudge_": "flowjudge",
    "lighteval_simpleqa_": "simpleqa",
    "llmbar__": "llmbar-",
    "openevals_": "openevals",
    "pandalm_": "pandalm",
    "prometheus_": "prometheus-",
    "promptfoo_": "promptfoo-",
    "ragas_": "ragas-",
    "rewardbench_v1_prometheus": "prometheus-",
    "rewardbench_": "rewardbench-",
    "vicuna_review": "vicuna-review",
}


def family(folder):
    return next((names for start, names in STARTS.items() if folder.startswith(start)), None)


def captured(shared_data):
    return sorted(path.parent.name for path in shared_data.glob("dialects/*/requests.jsonl"))


def test_names_are_unique():
    names = [dialect.name for dialect in DIALECTS]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and "_" not in name for name in names)


def test_every_folder_has_a_family(shared_data):
    assert [folder for folder in captured(shared_data) if family(folder) is None] == []


def test_of_two_dialects_that_know_a_prompt_the_one_without_doubt_goes_first():
    schema = '{"properties": {"value": {"enum": ["pass", "fail"]}}, "title": "DiscreteResponseModel"}'
    user = (
        "[User Question]\nq\n\n[The Start of Assistant A's Answer]\nAnswer: a\n[The End of Assistant A's Answer]\n\n"
        "[The Start of Assistant B's Answer]\nb\n[The End of Assistant B's Answer]"
    )
    system = f'Follow {schema}: "[[A]]" or "[[B]]".'
    asked = ChatRequest(messages=(Message(role="system", text=system), Message(role="user", text=user)))
    known = {one.name: bool(case.doubt) for one in DIALECTS if (case := one.recognise(asked)) is not None}
    assert known == {"ragas-discrete": True, "rewardbench-pair": False}
    dialect, case = recognise(asked)
    assert dialect.name == case.dialect == "rewardbench-pair"


@pytest.mark.parametrize("start", STARTS)
def test_each_captured_request_is_of_one_dialect(shared_data, start):
    folders = [one for one in captured(shared_data) if next(key for key in STARTS if one.startswith(key)) == start]
    assert folders
    for folder in folders:
        for place, (item, asked) in enumerate(captures.requests(shared_data, folder)):
            cases = [case for dialect in DIALECTS if (case := dialect.recognise(asked)) is not None]
            names = [case.dialect for case in cases]
            assert len(names) == 1, (folder, place, names)
            assert names[0].startswith(STARTS[start]), (folder, place, names)
            assert (cases[0].kind == "prepare") == bool(item.get("aux") if isinstance(item, dict) else False), folder
