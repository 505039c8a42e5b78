"""Released judges: prompts made by their authors' own code, and replies that were published.

The authors' files come from the cache, or by a download; files without a licence are read only where somebody brought
them (`judgelm judges words NAME --from FILE`). Only the statements that make a prompt are run.
"""

import ast
import hashlib
import json
import string
import textwrap
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml

from judgelm.errors import ModelError
from judgelm.judges.released import GOLDEN, cut, prompt_bytes, read_words, released_judge, released_judges
from judgelm.parsing.thinking import separate
from judgelm.records import Scores

pytestmark = pytest.mark.conformance

QUESTION, ONE, TWO = (GOLDEN[name] for name in ("question", "answer_1", "answer_2"))
CRITERION, LEVELS = GOLDEN["criterion"], "abcde"
JUDGES = {judge.name: judge for judge in released_judges()}
TASKS = [
    (judge.name, name) for judge in JUDGES.values() for name, task in judge.tasks.items() if task.words is not None
]


def statements(code: str, *names: str, **given: Any) -> SimpleNamespace:
    """Run the assignments and functions of these names."""
    kept = [
        node
        for node in ast.walk(ast.parse(code))
        if (isinstance(node, ast.FunctionDef) and node.name in names)
        or (isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id in names for to in node.targets))
    ]
    namespace: dict[str, Any] = {"textwrap": textwrap, "Any": Any, **given}
    exec(compile(ast.Module(kept, []), "authors' code", "exec"), namespace)
    return SimpleNamespace(**namespace)


def auto_j(code, task):
    names = ("PROMPT_INPUT_SYSTEM", "PROMPT_INPUT_WO_SYSTEM", "single", "pairwise_tie", "protocol_mapping")
    code = code.replace(": str =", " =")
    run = statements(code, *names, "llama2_wrapper", "build_autoj_input").build_autoj_input
    return [run(QUESTION, ONE, TWO, "pairwise_tie") if task == "pair" else run(QUESTION, ONE)]


def compassjudger_1(text, task):
    shown = text.split("### Pair-wise Judge")[1].split("**Input**: ```")[1].split("```")[0]
    shown = json.loads(f'"{shown}"')
    rest = shown.split("<|User Prompt|>\n")[1]
    question, rest = rest.split("\n\n<|The Start of Assistant A's Answer|>\n")
    first, rest = rest.split("\n<|The End of Assistant A's Answer|>\n\n<|The Start of Assistant B's Answer|>\n")
    second = rest.split("\n<|The End of Assistant B's Answer|>")[0]
    for example, ours in ((question, QUESTION), (first, ONE), (second, TWO)):
        shown = shown.replace(example, ours)
    return [shown]


def compassjudger_2(text, task):
    code = text.split("```python")[1].split("```")[0]
    prompt = statements(code, "prompt").prompt
    return [prompt.replace("{question}", QUESTION).replace("{answerA}", ONE).replace("{answerB}", TWO)]


def con_j(text, task):
    code = textwrap.dedent(text.split("```python")[1].split("```")[0])
    prompt = statements(code, "CON_J_PROMPT").CON_J_PROMPT
    return ["", prompt.format(instruction=QUESTION, output_1=ONE, output_2=TWO)]


def flow_judge(code, task):
    names = ("USER_PROMPT_TEMPLATE", "format_vars", "format_rubric", "format_user_prompt")
    run = statements(code, *names, RubricItem=SimpleNamespace)
    rubric = [SimpleNamespace(score=score, description=text) for score, text in enumerate(LEVELS, 1)]
    values = {"INPUTS": run.format_vars([{"query": QUESTION}]), "OUTPUT": run.format_vars([{"response": ONE}])}
    values |= {"EVALUATION_CRITERIA": CRITERION, "RUBRIC": run.format_rubric(rubric)}
    return [run.format_user_prompt(values).strip()]


def j1_micro(code, task):
    run = statements(code, "judge_system_prompt", "judge_prompt_template")
    user = run.judge_prompt_template.format(conversation_context_query=QUESTION, response_a=ONE, response_b=TWO)
    return [run.judge_system_prompt(), user]


def judgelrm(code, task):
    row = {"question_body": QUESTION, "answer1_body": ONE, "answer2_body": TWO}
    return [statements(code, "make_prefix").make_prefix(row, "qwen-instruct")]


def offsetbias(code, task):
    return [statements(code, "user").user.format(input=QUESTION, output_1=ONE.strip(), output_2=TWO.strip())]


def rise_judge(code, task):
    prompt = statements(code, "RISE_Judge_PROMPT").RISE_Judge_PROMPT
    return ["", prompt.format(instruction=QUESTION, output_1=ONE, output_2=TWO)]


def rm_r1(code, task, kind="INSTRUCT"):
    system, user = "RM_R1_INSTRUCT_SYSTEM_PROMPT", f"RM_R1_SINGLE_TURN_{kind}_USER_PROMPT"
    run = vars(statements(code, system, user))
    shown = run[user].format(question=QUESTION, answer_a=ONE, answer_b=TWO)
    return [run[system], shown] if kind == "INSTRUCT" else [shown]


def rm_r1_deepseek(code, task):
    return rm_r1(code, task, "REASONING")


def selene(text, task):
    words = yaml.safe_load(text)["user_template"]
    levels = {f"rubric_score_{score}_description": level for score, level in enumerate(LEVELS, 1)}
    answers = {"assistant_response": ONE, "assistant_response_a": ONE, "assistant_response_b": TWO}
    return [words.format(user_input=QUESTION, rubric_objective=CRITERION, **answers, **levels)]


def self_taught(code, task):
    system, user = statements(code, "SELF_TAUGHT_WITH_SYSTEM_PROMPT").SELF_TAUGHT_WITH_SYSTEM_PROMPT
    return [system["content"], user["content"].format(input=QUESTION, response_a=ONE, response_b=TWO)]


def skywork(text, task):
    shown = jinja2.Template(text, keep_trailing_newline=True)
    return [shown.render(input=QUESTION, response_a=ONE, response_b=TWO)]


def tigerscore(code, task):
    words = string.Template(statements(code, "TEMPLATE").TEMPLATE)
    shown = words.substitute(generation_instruction=QUESTION, input_context="", hypothesis_output=ONE)
    return [shown.strip("\n ")]


AUTHORS = {
    "auto-j": auto_j, "compassjudger-1": compassjudger_1, "compassjudger-2": compassjudger_2, "con-j": con_j,
    "flow-judge": flow_judge, "j1-micro": j1_micro, "judgelrm": judgelrm, "offsetbias": offsetbias,
    "rise-judge": rise_judge, "rm-r1-deepseek": rm_r1_deepseek, "rm-r1-instruct": rm_r1, "selene-1-mini": selene,
    "self-taught-evaluator": self_taught, "skywork-critic": skywork, "tigerscore": tigerscore,
}  # fmt: skip
"""Card -> the texts of a task's messages for the golden sample, made by its authors' code."""


def text_of(file):
    try:
        return read_words(file)
    except ModelError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_the_prompt_has_the_bytes_of_its_authors_code(name, task):
    released = JUDGES[name].tasks[task]
    theirs = "\0".join(AUTHORS[name](text_of(released.words), task)).encode()
    assert prompt_bytes(JUDGES[name].prompt(task), chat=released.chat).decode() == theirs.decode()
    assert hashlib.sha256(theirs).hexdigest() == released.prompt_sha256


@pytest.mark.parametrize(("name", "task"), [(name, task) for name, task in TASKS if JUDGES[name].tasks[task].published])
def test_a_published_reply_is_read_as_it_was_meant(name, task):
    released = JUDGES[name].tasks[task]
    for reply in released.published:
        text = cut(text_of(reply.file), reply.at, location=reply.file.url)
        result = JUDGES[name].tasks[task].reply(separate(text).reply)
        values = result.values if isinstance(result, Scores) else result
        expected = reply.read if isinstance(reply.read, (str, tuple)) else (reply.read,)
        assert values == expected, result


def test_each_card_with_tasks_is_checked():
    assert set(AUTHORS) == {name for name, _ in TASKS}


def test_verified_means_prompt_and_reply():
    for judge in released_judges():
        if judge.files and not judge.unverified:
            assert all(task.prompt_sha256 for task in judge.tasks.values()), judge.name
            assert any(task.published for task in judge.tasks.values()), judge.name
    assert released_judge("rm-r1-instruct").unverified == ""
