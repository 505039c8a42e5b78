"""How judging clients read replies, written anew from their sources, and what they read in the captured ones.

A parser takes a choice of a chat completion and returns the client's conclusion: of a pair 1, 2 or "tie", of a choice
the best one's index, of a grade the number, of a label True or False, and None where it reads nothing.
"""

import ast
import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import yaml

DECISIONS = {"A>B": 1, "B>A": 2, "A=B": "tie", None: None}


def choice_of(reply):
    """A captured reply, which may be a text, a message or a whole body, as a choice."""
    if isinstance(reply, str):
        return {"message": {"content": reply}}
    choice = reply["choices"][0] if "choices" in reply else reply
    return choice if "message" in choice else {"message": {"content": choice.get("text"), **choice}}


def as_choice(reply):
    """A dialect's reply as the server sends it."""
    calls = [{"function": {"name": reply.tool, "arguments": reply.arguments}}] if reply.tool else None
    content = [
        {"token": token.token, "logprob": token.logprob,
         "top_logprobs": [{"token": text, "logprob": logprob} for text, logprob in token.candidates]}
        for token in reply.logprobs
    ]  # fmt: skip
    message = {"content": reply.texts[0] if reply.texts else None, "tool_calls": calls}
    return {"message": message, "logprobs": {"content": content} if content else None}


def of_text(read):
    def read_choice(choice):
        text = choice["message"]["content"]
        return None if text is None else read(text)

    return read_choice


def first_of(marks):
    """The conclusion of the first mark, in the marks' order, that stands in the text."""
    return of_text(lambda text: next((conclusion for mark, conclusion in marks.items() if mark in text), None))


def searched(pattern, conclusions):
    """The conclusion of what a pattern's first group finds first."""
    return of_text(lambda text: conclusions.get(found[1].upper()) if (found := re.search(pattern, text)) else None)


# AlpacaEval


def alpaca_ranking(text):
    """Rank of model_1 in a Python literal, where it is 1 or 2."""
    try:
        ranks = [row["rank"] for row in ast.literal_eval(text) if row["model"] == "model_1"]
    except (SyntaxError, ValueError):
        return None
    return ranks[0] if ranks[0] in (1, 2) else None


def alpaca_function(choice):
    """Rank of m in the arguments of the first call, or in the text, which may be fenced."""
    calls = choice["message"].get("tool_calls")
    text = calls[0]["function"]["arguments"] if calls else choice["message"]["content"]
    try:
        rows = json.loads(re.sub(r"^```json\n|\n```$", "", text))["ordered_models"]
        ranks = {row["model"]: row["rank"] for row in rows}
    except (ValueError, KeyError, TypeError):
        return None
    return ranks["m"] if ranks["m"] in (1, 2) else None


def alpaca_identifier(choice, *, weighted, last, names="mM"):
    """2 - P(m) / (P(m) + P(M)) at the only token, or at the last one; 1 or 2 where it is not weighted."""
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content or (len(content) > 1 and not last):
        return None
    tokens = {candidate["token"]: candidate["logprob"] for candidate in content[-1]["top_logprobs"]}
    small, large = (tokens.get(name, -math.inf) for name in names)
    if (highest := max(small, large)) == -math.inf:
        return None
    if not weighted:
        return 1 if small > large else 2
    first, second = math.exp(small - highest), math.exp(large - highest)
    return 2 - first / (first + second)


def alpaca_batch(text, size):
    found = re.findall(r"(?m)^ *Output \(([ab])\)", text)
    return ["ab".index(name) + 1 for name in found] if len(found) == size else [None] * size


# Lines of scores


def score_line(text):
    """As Vicuna's, JudgeLM's and JudgeBench's parsers do; alpaca_eval's looks at the same line."""
    try:
        first, second = (float(number) for number in text.split("\n")[0].replace(",", " ").split(" "))
    except ValueError:
        return [-1, -1]
    return [first, second]


def higher(scores):
    return "tie" if scores[0] == scores[1] else 1 if scores[0] > scores[1] else 2


def faireval(text):
    """Scores in the last two lines."""
    try:
        first, second = (float(line.split(":")[-1].strip()) for line in text.split("\n")[-2:])
    except ValueError:
        return None
    return first, second


# Labels and ratings


def arena_labels(text):
    """Arena-Hard 0.1: all labels must be the same; where there is none, the client asks once more."""
    return set(re.findall(r"\[\[([AB<>=]+)\]\]", text))


def arena_first(text):
    return labels.pop() if len(labels := arena_labels(text)) == 1 else None


def arena_second(text):
    for pattern in (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]"):
        if labels := re.findall(pattern, text.upper()):
            return labels[-1]
    return None


def judgebench_arena(text):
    return DECISIONS[(label := arena_first(text)) and label.replace(">>", ">")]


def fastchat_rating(text):
    found = re.search(r"\[\[(\d+\.?\d*)\]\]", text) or re.search(r"\[(\d+\.?\d*)\]", text)
    if found is None:
        return -1
    return None if re.match(r"0\d", found[1]) else float(found[1])  # Python's literal has no leading zeros: it stops


def rewardbench_rating(text):
    return int(found[1]) if (found := re.search(r"\b([1-9]|10)\b\s*$", text)) else -1


def autoj_decision(text):
    """What stands behind the last announcement."""
    _, announced, rest = text.rpartition("final decision is ")
    names = {"response 1": 1, "response 2": 2, "tie": "tie"}
    return next((names[name] for name in names if announced and rest.lower().startswith(name)), None)


def autoj_rating(text):
    _, marked, rest = text.rpartition("Rating: [[")
    return float(rest.split("]]")[0]) if marked else 0.0


def pandalm(text):
    """1 or 2 on the first line; all else is a tie."""
    return {"1": 1, "2": 2}.get(text.strip().split("\n")[0].strip(), "tie")


def prometheus_grade(text):
    """A whole number of 1 to 5 at the end, behind a mark."""
    mark = r"(?:\[RESULT\]|\[SCORE\]|score of|score|result)"
    found = re.search(rf"(?i){mark}:?\s*[(\[\s]*(\d+)(?:[)\]]|\s*/\s*5|\s*out\s*of\s*5)?\s*$", text)
    return int(found[1]) if found and 1 <= int(found[1]) <= 5 else None


def rewardbench_prometheus(text):
    return {"A": 1, "B": 2}.get(text[-1]) if "[RESULT]" in text else None


def flowjudge(text):
    feedback = re.search(r"(?s)<feedback>\s*(.*?)\s*</feedback>", text)
    score = re.search(r"<score>\s*(\d+)\s*</score>", text)
    return int(score[1]) if feedback and score else -1


def lighteval_flowjudge(text):
    """One digit with one blank before and behind it; 0 where there is none."""
    return int(found[1]) if (found := re.search(r"<score>\s(\d)\s</score>", text)) else 0


def geval(text):
    try:
        return float(found[1]) if (found := re.search(r"^ ?([\d\.]+)", text)) else 0
    except ValueError:
        return 0


def llmbar_choice(text):
    """An output's name at the start of a line; (a) is looked for first."""
    return next(
        (winner for winner, name in ((1, "a"), (2, "b")) if re.search(rf"(?m)^ *Output \({name}\)", text)), None
    )


def llmbar_claim(text):
    """The claim with one more character behind it."""
    claims = ((1, r"Output \(a\) is better."), (2, r"Output \(b\) is better."))
    return next((winner for winner, claim in claims if re.search(claim, text)), None)


# Evaluation frameworks


def inspect_grade(text, offered):
    """The last grade; None where it is not on offer."""
    grades = re.findall(r"(?<!\w)GRADE(?!\w)\s*:\s*(\w*)", text, re.IGNORECASE)
    words = {"c": True, "correct": True, "i": False, "incorrect": False, "p": "partial", "partial": "partial"}
    grade = words.get(grades[-1].lower()) if grades else None
    return grade if grade in offered else None


def deepeval(choice):
    """Grade from 0 to 10, out of the tokens where the client asked for them; None where it stops."""
    text = choice["message"]["content"]
    try:
        row = json.loads(re.sub(r",\s*([\]}])", r"\1", text[text.find("{") : text.rfind("}") + 1]))
        _, score = row["reason"], row["score"]
    except (KeyError, ValueError):
        return None
    tokens = (choice.get("logprobs") or {}).get("content", [])
    place = next((token for token in reversed(tokens) if token["token"] == str(score)), None)
    if place is not None:
        shares = {int(candidate["token"]): math.exp(candidate["logprob"]) for candidate in place["top_logprobs"]
                  if candidate["logprob"] >= math.log(0.01) and candidate["token"].isdecimal()}  # fmt: skip
        score = sum(grade * share for grade, share in shares.items()) / sum(shares.values()) if shares else score
    return float(score)


def promptfoo_object(text):
    """The first JSON object in a text, read as leniently as the client does; None where there is none."""
    begin, depth, is_open = text.find("{"), 0, False
    for place in range(begin, len(text)) if begin >= 0 else ():
        if text[place] == '"' and text[place - 1] != "\\":
            is_open = not is_open
        depth += 0 if is_open else (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            try:
                return json.loads(text[begin : place + 1])
            except json.JSONDecodeError:
                return yaml.safe_load(text[begin : place + 1])
    return None


def promptfoo_rubric(text):
    row = promptfoo_object(text)
    return row is not None and str(row.get("pass", True)).lower() == "true"


def promptfoo_closed_qa(text):
    return text.strip().split("\n")[-1] == "Y"


def promptfoo_factuality(text):
    row = promptfoo_object(text)
    found = re.search(r"\(([A-E])\)", text)
    letter = row["category"].upper() if row is not None else found[1] if found else ""
    return letter in ("A", "B", "C", "E")


def promptfoo_g_eval(text):
    row = promptfoo_object(text)
    if row is None or not row.get("reason") or not 0 <= float(row["score"]) <= 10:
        return 0
    return float(row["score"])


def promptfoo_best(text):
    """The first number, where it is a text's index."""
    return {"0": 1, "1": 2}.get(found[0]) if (found := re.search(r"\d+", text)) else None


def ragas(words, verdict, values=None):
    """The verdict in the first JSON object; None where the client asks again."""

    def read(text):
        try:
            row, _ = json.JSONDecoder().raw_decode(text[max(0, text.find("{")) :])
        except ValueError:
            return None
        if not isinstance(row, dict) or not isinstance(row.get(words), str) or verdict not in row:
            return None
        if values:
            return values.get(row[verdict])
        try:
            return int(row[verdict]) if float(row[verdict]) % 1 == 0 else None
        except ValueError:
            return None

    return of_text(read)


def openevals(choice, *, reasoning=True, called=False):
    """The score that the client stores; None where it stops."""
    message = choice["message"]
    try:
        text = message["tool_calls"][0]["function"]["arguments"] if called else message["content"]
        row = json.loads(text)
        return row["score"] if not reasoning or isinstance(row["reasoning"], str) else None
    except (KeyError, TypeError, json.JSONDecodeError):
        return None


class Client(NamedTuple):
    """The parser for the replies captured in a folder.

    Attributes:
        dialect: whose replies it reads.
        read: the parser here.
        concluded: the conclusion in what the client's own parser made of a reply.
    """

    dialect: str
    read: Callable[[dict[str, Any]], Any]
    concluded: Callable[[Any], Any] = lambda parsed: parsed


def field(*names, conclusions=None):
    """The conclusion in a field, or in an inner one; None where the client stopped with an error."""

    def concluded(parsed):
        for name in names if not isinstance(parsed, dict) or "error" not in parsed or "pass" in parsed else ():
            parsed = parsed[name]
        if isinstance(parsed, dict) or parsed != parsed:  # an error, or not a number
            return None
        return (conclusions or {}).get(parsed, parsed)

    return concluded


def twice(parsed):
    """JudgeBench asks in both orders, and both replies were the same text."""
    return DECISIONS[parsed["decisions_AB_then_BA"][0]]


def lmsys(text):
    return None if (scores := score_line(text)) == [-1, -1] else higher(scores)


A_B, PLACES = {"A": 1, "B": 2, "None": None, "error": None}, {letter: place for place, letter in enumerate("ABCD")}
MARKS, OUTPUTS = first_of({"[[A]]": 1, "[[B]]": 2}), {"Output (a)": 1, "Output (b)": 2}
PASS, WINNERS = {"pass": True, "fail": False}, {"model_1": 1, "model_2": 2, "error": None}
ANNOTATION, SHOWN_FIRST = field("raw_annotation"), field("swap = False", conclusions={"1": 1, "2": 2})
PROMETHEUS = searched(r"(?i)(?:\[RESULT\]|\[(?=Response)|result):?\s*(?:Response\s+)?(A|B)\]?\s*$", A_B)
PROMETHEUS_JUDGEBENCH = searched(r"(?im)(?:\[RESULT\](?:\s+Response)?|\[Response\s+|^Result:?)\s*(A|B)(?:\]|\s|$)", A_B)
SCORES, RATING, FLOWJUDGE = of_text(score_line), of_text(rewardbench_rating), of_text(flowjudge)
SIMPLEQA = of_text(lambda text: text == "A")

CLIENTS = {
    "alpaca_eval__alpaca_eval_gpt4": Client("alpaca-eval-ranking", of_text(alpaca_ranking), ANNOTATION),
    "alpaca_eval__alpaca_eval_gpt4_turbo_fn": Client("alpaca-eval-function", alpaca_function, ANNOTATION),
    "alpaca_eval__alpaca_eval_cot_gpt4_turbo_fn": Client("alpaca-eval-function", alpaca_function, ANNOTATION),
    "alpaca_eval__alpaca_farm_greedy_gpt4": Client(
        "alpaca-eval-batch", of_text(lambda text: alpaca_batch(text, 5)[0]), ANNOTATION
    ),
    "alpaca_eval__lmsys_gpt4": Client(  # its assertion fails at equal scores
        "alpaca-eval-lmsys", of_text(lmsys), lambda parsed: "tie" if isinstance(parsed, str) else ANNOTATION(parsed)
    ),
    "arena_hard_v01": Client("arena-hard", of_text(arena_first), field("games", 0, "score")),
    "arena_hard_v2": Client("arena-hard", of_text(arena_second), field("games", 0, "score")),
    "autoj_pairwise_prompt_only": Client("autoj-pair", of_text(autoj_decision), {0: 1, 1: 2, 2: "tie"}.get),
    "autoj_single_prompt_only": Client("autoj-single", of_text(autoj_rating)),
    "flowjudge_response_correctness_binary_prompt_only": Client("flowjudge", FLOWJUDGE, field("score")),
    "flowjudge_response_faithfulness_5point_prompt_only": Client("flowjudge", FLOWJUDGE, field("score")),
    "judgebench__arena_hard": Client("arena-hard", of_text(judgebench_arena), twice),
    "judgebench__auto_j": Client("autoj-pair", of_text(autoj_decision), twice),
    "judgebench__judge_lm": Client("judgelm", of_text(lambda text: higher(score_line(text))), twice),
    "judgebench__panda_lm": Client("pandalm", of_text(pandalm), twice),
    "judgebench__prometheus_2": Client("prometheus-relative", PROMETHEUS_JUDGEBENCH, twice),
    "judgebench__skywork_critic": Client("judgebench-skywork-critic", first_of({"A": 1, "B": 2}), twice),
    "judgebench__vanilla": Client("judgebench-vanilla", of_text(lambda text: OUTPUTS.get(text.strip())), twice),
    "judgelm_prompt_only": Client("judgelm", SCORES),
    "judgelm_ref_prompt_only": Client("judgelm-reference", SCORES),
    "lighteval_mtbench_flowjudge_openai": Client("flowjudge", of_text(lighteval_flowjudge)),
    **dict.fromkeys(("lighteval_simpleqa_litellm", "lighteval_simpleqa_openai"), Client("simpleqa", SIMPLEQA)),
    "llmbar__CoT": Client("llmbar-choice", of_text(llmbar_claim), SHOWN_FIRST),
    "llmbar__Vanilla": Client("llmbar-choice", of_text(llmbar_choice), SHOWN_FIRST),
    "pandalm_prompt_only": Client("pandalm", of_text(pandalm), lambda parsed: parsed or "tie"),
    **dict.fromkeys(
        ("prometheus_absolute", "prometheus_absolute_ref"), Client("prometheus-absolute", of_text(prometheus_grade))
    ),
    **dict.fromkeys(
        ("prometheus_relative", "prometheus_relative_ref"), Client("prometheus-relative", PROMETHEUS, A_B.get)
    ),
    "promptfoo_closedqa": Client("promptfoo-closedqa", of_text(promptfoo_closed_qa), field("pass")),
    "promptfoo_factuality": Client("promptfoo-factuality", of_text(promptfoo_factuality), field("pass")),
    "promptfoo_g_eval": Client("promptfoo-g-eval", of_text(promptfoo_g_eval), lambda parsed: 10 * parsed["score"]),
    "promptfoo_llm_rubric": Client("promptfoo-llm-rubric", of_text(promptfoo_rubric), field("pass")),
    "promptfoo_select_best": Client(
        "promptfoo-select-best",
        of_text(promptfoo_best),
        lambda parsed: next((place for place, text in enumerate(parsed, 1) if text["pass"]), None),
    ),
    "ragas_aspect_critic_langchain": Client("ragas-aspect-critic", ragas("reason", "verdict"), field()),
    "ragas_discrete_instructor": Client(
        "ragas-discrete", ragas("reason", "value", PASS), field("value", conclusions=PASS)
    ),
    "ragas_rubrics_langchain": Client("ragas-rubrics", ragas("feedback", "score"), field()),
    "ragas_simple_criteria_langchain": Client("ragas-simple-criteria", ragas("reason", "score"), field()),
    "rewardbench_v1_atla": Client("rewardbench-atla", searched(r"\*\*Result:\*\*\s*([AB])", A_B), A_B.get),
    "rewardbench_v1_conj": Client(
        "rewardbench-con-j", searched(r'"(?:更好的回答|better_answer)":\s*"?([12])', {"1": 1, "2": 2}), A_B.get
    ),
    "rewardbench_v1_offsetbias": Client("rewardbench-offsetbias", first_of(OUTPUTS), A_B.get),
    "rewardbench_v1_pair": Client("rewardbench-pair", MARKS, A_B.get),
    "rewardbench_v1_pair_mt": Client("rewardbench-pair-multi-turn", MARKS, A_B.get),
    "rewardbench_v1_prometheus": Client("prometheus-relative", of_text(rewardbench_prometheus), A_B.get),
    "rewardbench_v1_ratings": Client("rewardbench-ratings", RATING),
    "rewardbench_v1_rise": Client("rewardbench-rise", MARKS, A_B.get),
    "rewardbench_v2_four": Client(
        "rewardbench-four", first_of({f"[[{letter}]]": place for letter, place in PLACES.items()}), PLACES.get
    ),
    **dict.fromkeys(("rewardbench_v2_ratings", "rewardbench_v2_ratings_ties"), Client("rewardbench-ratings", RATING)),
    "vicuna_review": Client("vicuna-review", SCORES),
}
for form in ("", "_math", "_mt", "_math_mt"):
    pair, name = first_of({"[[A]]": 1, "[[B]]": 2, "[[C]]": "tie"}), form.replace("_", "-")
    CLIENTS[f"fastchat_pair{form}"] = Client(f"fastchat-pair{name}", pair, field("g1_winner", conclusions=WINNERS))
    CLIENTS[f"fastchat_single{form}"] = Client(f"fastchat-single{name}", of_text(fastchat_rating), field())
for cot in ("", "cot_"):
    for start in ("alpaca_eval__weighted_alpaca_eval_", "alpaca_eval__alpaca_eval_clf_"):
        identifier = partial(alpaca_identifier, weighted="weighted" in start, last=bool(cot))
        CLIENTS[f"{start}{cot}gpt4_turbo"] = Client("alpaca-eval-identifier", identifier, ANNOTATION)
for metric in ("coh", "con", "flu", "rel"):
    CLIENTS[f"geval_original_{metric}"] = Client("geval", of_text(geval))
for name in ("openai", "localmodel"):
    CLIENTS[f"deepeval_geval_{name}"] = Client(
        "deepeval-geval", deepeval, lambda parsed: 10 * parsed["score"] if "score" in parsed else None
    )
for form in ("bool_langchain", "bool_openaiclient", "noreason_langchain", "continuous_langchain", "choices_langchain"):
    read = partial(openevals, reasoning="noreason" not in form, called=form == "bool_langchain")
    CLIENTS[f"openevals_{form}"] = Client("openevals", read, field("score"))
for form in ("qa", "qa_partial", "fact"):
    letters = {"C": True, "I": False, "P": "partial"}
    read = of_text(partial(inspect_grade, offered=(True, False, "partial") if "partial" in form else (True, False)))
    name = f"inspect-model-graded-{form.removesuffix('_partial')}"
    CLIENTS[f"inspect_model_graded_{form}"] = Client(name, read, field("value", conclusions=letters))
