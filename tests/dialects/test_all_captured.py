"""Every captured request of every client is recognised by exactly one dialect."""

import importlib
import importlib.util
import pkgutil

import pytest

import judgelm.dialects
from judgelm.dialects import catalog
from judgelm.dialects.contract import ChatRequest, Dialect, Message
from tests.support import captures

# start of a folder's name: the module of its family
FAMILIES = {
    "alpaca_eval__lmsys_gpt4": "score_line",
    "alpaca_eval__": "alpaca_eval",
    "arena_hard_": "arena_hard",
    "deepeval_": "deepeval",
    "fastchat_": "fastchat",
    "flowjudge_": "flowjudge",
    "geval_original_": "geval",
    "inspect_": "inspect_ai",
    "judgelm_": "score_line",
    "lighteval_mtbench_flowjudge_": "flowjudge",
    "lighteval_simpleqa_": "simpleqa",
    "llmbar__": "llmbar",
    "openevals_": "openevals",
    "pandalm_": "pandalm",
    "prometheus_": "prometheus",
    "promptfoo_": "promptfoo",
    "ragas_": "ragas",
    "rewardbench_v1_prometheus": "prometheus",  # its very prompt
    "rewardbench_": "rewardbench",
    "vicuna_review": "score_line",
}


def all_dialects() -> list[Dialect]:
    names = [module.name for module in pkgutil.iter_modules(judgelm.dialects.__path__) if module.name != "catalog"]
    modules = [importlib.import_module(f"judgelm.dialects.{name}") for name in names]
    return [dialect for module in modules for dialect in getattr(module, "DIALECTS", ())]


def family(folder):
    return next((module for start, module in FAMILIES.items() if folder.startswith(start)), None)


def captured(shared_data):
    return sorted(path.parent.name for path in shared_data.glob("dialects/*/requests.jsonl"))


def test_names_are_unique():
    names = [dialect.name for dialect in all_dialects()]
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
    known = {one.name: bool(case.doubt) for one in catalog.DIALECTS if (case := one.recognise(asked)) is not None}
    assert known == {"ragas-discrete": True, "rewardbench-pair": False}
    dialect, case = catalog.recognise(asked)
    assert dialect.name == case.dialect == "rewardbench-pair"


@pytest.mark.parametrize("start", FAMILIES)
def test_each_captured_request_is_of_one_dialect(shared_data, start):
    module = FAMILIES[start]
    if importlib.util.find_spec(f"judgelm.dialects.{module}") is None:
        pytest.skip(f"{module} is not there yet")
    dialects = all_dialects()
    own = {dialect.name for dialect in importlib.import_module(f"judgelm.dialects.{module}").DIALECTS}
    folders = [one for one in captured(shared_data) if next(key for key in FAMILIES if one.startswith(key)) == start]
    assert folders
    for folder in folders:
        for place, (item, asked) in enumerate(captures.requests(shared_data, folder)):
            cases = [case for dialect in dialects if (case := dialect.recognise(asked)) is not None]
            names = [case.dialect for case in cases]
            assert len(names) == 1, (folder, place, names)
            assert names[0] in own, (folder, place, names)
            assert (cases[0].kind == "prepare") == bool(item.get("aux") if isinstance(item, dict) else False), folder
