"""Determine the type of a question's answer. The paper defines the eight types; the rules are judgelm's own.

Except for yes and no, the type depends only on the question. The first matching rule is used. Source: QA-Judge, Table
13.
"""

import re
from collections.abc import Sequence
from typing import Literal

AnswerType = Literal["place", "name", "job", "date", "number", "year", "bool", "string"]


ANSWER_TYPES: tuple[AnswerType, ...] = ("string", "place", "name", "job", "date", "number", "year", "bool")
"""Sorted as in the paper's Table 1, with Bool last."""


_BOOL = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|may|might)\b", re.IGNORECASE
)


_ASKING = r"\b(?:what|which|whose|in what|in which)\b"


_OF_TYPE = r"(?:\s+[\w'’-]+){0,2}?\s+"


_IS_THE = r"(?:is|was|are|were|'s)\s+(?:the\s+|\w+(?:\s+\w+){0,4}?(?:'s|s')\s+)?(?:[\w-]+\s+){0,2}?"


_PLACES = (
    "cit(?:y|ies)|countr(?:y|ies)|states?|towns?|villages?|count(?:y|ies)|regions?|provinces?|continents?|islands?"
    "|places?|locations?|districts?|boroughs?|neighbou?rhoods?|capitals?|suburbs?|municipalit(?:y|ies)|birthplace"
    "|hometown|nationality|territor(?:y|ies)|stadiums?|venues?|area"
)


_NAMES = (
    "names?|full names?|nicknames?|first names?|last names?|surnames?|persons?|people|actors?|actress(?:es)?|players?"
    "|singers?|directors?|authors?|writers?|presidents?|kings?|queens?|teams?|bands?|characters?|films?|movies?|albums?"
    "|songs?|books?|novels?|compan(?:y|ies)|organi[sz]ations?|father|mother|wife|husband|spouse|sons?|daughters?"
    "|brothers?|sisters?|grandfather|grandmother|uncle|aunt|child|composers?|artists?|performers?|coach|quarterback"
    "|kicker|receiver|musicians?|magazines?"
)


_JOBS = r"jobs?|occupations?|professions?|careers?|livelihood|line of work"


_NUMBERS = (
    "percent(?:age)?s?|populations?|numbers?|amounts?|ages?|length|distance|height|weight|ratio|score|average"
    "|difference|total"
)


def _asks_for(nouns: str) -> re.Pattern[str]:
    return re.compile(rf"{_ASKING}(?:{_OF_TYPE}|\s+{_IS_THE})(?:{nouns})\b", re.IGNORECASE)


_RULES: tuple[tuple[AnswerType, tuple[re.Pattern[str], ...]], ...] = (
    ("number", (re.compile(r"\bhow (?:many|much|old|tall|long|far|large|big|high|often)\b", re.IGNORECASE),)),
    ("year", (re.compile(rf"{_ASKING}(?:{_OF_TYPE}|\s+{_IS_THE}|\s+)years?\b", re.IGNORECASE),)),
    (
        "date",
        (
            re.compile(r"^\s*(?:\w+\s+)?when\b|\bborn when\b|\bwhen (?:is|was|were|did|does|do)\b", re.IGNORECASE),
            _asks_for("dates?|days?|months?|birthday|birthdate|date of (?:birth|death)"),
        ),
    ),
    ("job", (_asks_for(_JOBS), re.compile(r"(?im)^(?>.*?\bdo(?:es)? ).* for a living\b"))),
    ("number", (_asks_for(_NUMBERS),)),
    ("place", (re.compile(r"^\s*(?:(?:from|to|in|at)\s+)?where\b", re.IGNORECASE), _asks_for(_PLACES))),
    ("name", (re.compile(r"\b(?:who|whom|whose)\b", re.IGNORECASE), _asks_for(_NAMES))),
    ("place", (re.compile(r"\bwhere\b", re.IGNORECASE),)),
)


def answer_type(question: str, golds: Sequence[str] = ()) -> AnswerType:
    """Return the type of a question's answer; `golds` are the gold answers, if known."""
    plain = [gold.strip().rstrip(".!").lower() for gold in golds]
    if plain and all(gold in ("yes", "no") for gold in plain):
        return "bool"
    for kind, patterns in _RULES:
        if any(pattern.search(question) for pattern in patterns):
            return kind
    return "bool" if not plain and _BOOL.match(question.strip()) else "string"
