"""What a question asks for. The questions with a type in the paper are those of its Table 5."""

import pytest

from judgelm.data.sources.answer_types import answer_type

TABLE_5 = [
    ("What profession did Willi Forst and Elmer Clifton share?", "job"),
    ("What is Michael Nakasone job at the college prep school in Honolulu?", "job"),
    ("What was the profession of the one who wrote a song on a 2005 album he collaborated on with Marc Predka?", "job"),
    ("What date did the take over of Enniscorthy end?", "date"),
    ("Why did the director of film The Obsessed Of Catule die?", "string"),
    ("How many field goals between 25 and 40 yards were made?", "number"),
    ("Who was involved in observing the natural progression of untreated syphilis in Alabama?", "name"),
    ("Where was the place of burial of Amun-Her-Khepeshef's mother?", "place"),
]
OURS = [
    ("What city is the university in?", "place"),
    ("In which country was the director of the film born?", "place"),
    ("What nationality is the performer of song Daddy, Come Home?", "place"),
    ("What is the last name of the person who is friends with Cap'n Billau?", "name"),
    ("Which player scored the longest touchdown?", "name"),
    ("Michael J. Hunter replaced the lawyer who became the administrator of which agency??", "name"),
    ("What is the date of birth of the composer of the song?", "date"),
    ("What year was the stadium opened?", "year"),
    ("Rejuvelac was invented by a practitioner born in which year?", "year"),
    ("How much longer was the longest field goal?", "number"),
    ("What percentage of the households had no car?", "number"),
    ("What was the population of the county in 2010?", "number"),
    ("What occupation do both men have?", "job"),
    ("What does the narrator find beneath the floor?", "string"),
]


@pytest.mark.parametrize(("question", "expected"), [*TABLE_5, *OURS])
def test_the_question_tells_the_type(question, expected):
    assert answer_type(question, ("x",)) == expected


def test_yes_and_no_are_told_by_the_gold_answer():
    assert answer_type("Which of the two films is longer?", ("Yes.",)) == "bool"
    assert answer_type("Are both from the same country?", ("no",)) == "bool"
    assert answer_type("Are both from the same country?") == "bool"
    # a comparison that opens with a verb but is answered with a name is no yes/no question
    assert answer_type("Are the Beatles or the Kinks older?", ("the Kinks",)) == "string"
