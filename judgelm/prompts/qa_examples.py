"""The examples that the few-shot prompts of the QA judge show, none with its context.

Source: QA-Judge, Table 9, which prints four of its six; the last two are ours.
"""

from typing import Literal, NamedTuple


class QaExample(NamedTuple):
    """One judged answer."""

    question: str
    gold: str
    predicted: str
    label: Literal["CORRECT", "INCORRECT"]


PRINTED = (
    QaExample("What nationality is the performer of song Daddy, Come Home?", "United States", "American", "CORRECT"),
    QaExample(
        "Who is Bohemond Iv Of Antioch's paternal grandmother?",
        "Constance of Antioch",
        "princess Constance of Antioch",
        "CORRECT",
    ),
    QaExample(
        "Rejuvelac is kind of grain water invented and promoted by a 'holistic health' practitioner born in which "
        "year?",
        "1909",
        "Rejuvelac is a kind of grain water invented and promoted by Ann Wigmore, who was born in 1909.",
        "CORRECT",
    ),
    QaExample(
        "What is the birthday of the actress who was the Duchess in 'The Revengers Tragedy'?",
        "23 November 1946",
        "Diana Quick, who played the Duchess in 'The Revengers Tragedy', was born on 23rd September 1934.",
        "INCORRECT",
    ),
)
"""Those of Table 9."""

OURS = (
    QaExample("How many more yards was the second field goal than the first?", "7", "7 yards longer", "CORRECT"),
    QaExample(
        "What is the last name of the person who finds the letter in the attic?",
        "Hollis",
        "The letter is found by Margaret Penrose.",
        "INCORRECT",
    ),
)
"""In the place of the two that the paper leaves out: a number with its unit, and another person than the one asked."""

EXAMPLES = {0: (), 2: (PRINTED[0], PRINTED[3]), 6: (*PRINTED, *OURS)}
"""By the number of shots. Which two the paper's 2-shot prompt has it does not say; ours has one of each label."""
