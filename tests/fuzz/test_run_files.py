"""A run's own files: what is written is read back; torn at any byte or damaged, nothing finished is lost or doubled."""

import json
from dataclasses import replace

from hypothesis import strategies as st

from judgelm.records import (
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairDistribution,
    PairVerdict,
    RankingVerdict,
    SelfAnswer,
    Shown,
    TextHashes,
    Truncation,
    Unparsed,
)
from judgelm.runs.run_files import RunFiles, iter_judgments, latest_judgments, read_judgments, run_paths
from judgelm.runs.serialization import judgment_from_row, judgment_row
from tests.support import fuzzing

TEXT = st.text(max_size=8) | st.sampled_from(("\u2028", "\ud800", "\x85\n", "8 6\n", '{"id":'))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0, 1)
CODES = st.sampled_from(
    ("truncated", "off_grammar", "out_of_range", "too_long", "equal_after_cut", "engine", "undecided")
)
FAILURES = st.builds(Unparsed, CODES, TEXT, TEXT)
PAIRS = st.builds(
    PairDistribution, expected=st.tuples(NUMBER, NUMBER), first_better=SHARE, tie=SHARE, unassigned=SHARE,
    likeliest=st.lists(st.tuples(NUMBER, NUMBER, SHARE), max_size=3).map(tuple), approximation=TEXT,
)  # fmt: skip
GRADES = st.builds(
    GradeDistribution, expected=NUMBER, unassigned=SHARE,
    likeliest=st.lists(st.tuples(NUMBER, SHARE), max_size=3).map(tuple), approximation=TEXT,
)  # fmt: skip
SHOWN = st.builds(
    Shown,
    order=st.sampled_from(((0, 1), (1, 0), (0,))),
    text=TEXT,
    part=TEXT,
    scores=st.none() | st.tuples(NUMBER, NUMBER),
    anchor=st.none() | NUMBER,
    label=st.none() | TEXT,
    referenced=st.none() | st.booleans(),
    failure=st.none() | FAILURES,
    repaired=st.none() | FAILURES,
    reason=st.none() | TEXT,
    reason_failure=st.none() | FAILURES,
    distribution=st.none() | PAIRS,
    grades=st.none() | GRADES,
    truncations=st.lists(
        st.builds(Truncation, answer=st.just(0), tokens_before=st.just(9), tokens_after=st.just(2)), max_size=1
    ).map(tuple),
)
VERDICTS = st.one_of(
    st.builds(PairVerdict, winner=st.sampled_from((1, 2, "tie"))),
    st.just(RankingVerdict(order=((1,), (0, 2)))),
    st.builds(GradeVerdict, score=NUMBER),
    st.builds(LabelVerdict, label=TEXT),
)
JUDGMENTS = st.builds(
    Judgment, sample_id=TEXT, mode=st.just("pair"), verdict=st.none() | VERDICTS,
    shown=st.lists(SHOWN, max_size=2).map(tuple), scores=st.none() | st.tuples(NUMBER, NUMBER),
    consistent=st.none() | st.booleans(), probability=st.none() | SHARE, failure=st.none() | FAILURES,
    decided_by=st.none() | TEXT,
    self_answers=st.lists(st.builds(SelfAnswer, text=TEXT, answer=st.none() | TEXT), max_size=2).map(tuple),
    own_reference=st.none() | TEXT, votes=st.dictionaries(TEXT, st.none() | TEXT, max_size=2),
    hashes=st.none() | st.builds(TextHashes, question=TEXT, answers=st.tuples(TEXT, TEXT), images=st.none() | TEXT),
)  # fmt: skip
RUN = {"fingerprint": {"model": "m", "input": []}, "provenance": {"model": "m"}, "inputs": []}
REJECT = {"file": "in.jsonl", "line": 3, "reason": "not JSON", "raw": "{"}


def written(folder, judgments):
    """A finished session of a run."""
    folder.mkdir(exist_ok=True)
    files = RunFiles(folder / "out.jsonl", **RUN, overwrite=True)
    files.start_session({})
    for one in judgments:
        files.write(one)
    files.reject(REJECT)
    files.close()
    return files


def test_torn_runs(fuzz, tmp_path):
    """A kill at any byte: the finished ones stand, the torn one is judged again, and nothing comes twice."""

    def check(given):
        judgments, share = given
        named = {str(place): replace(one, sample_id=str(place)) for place, one in enumerate(judgments)}
        files = written(tmp_path, named.values())
        out, _, rejects = run_paths(files.out)
        content, rejected = out.read_bytes(), rejects.read_bytes()
        cut = int(share * len(content))
        out.write_bytes(content[:cut])
        rejects.write_bytes(rejected[: int(share * len(rejected))])
        again = RunFiles(files.out, **RUN)
        left = [one for name, one in named.items() if hash(name) not in again.finished]
        ended = content[:cut].count(b"\n")
        engine = sum(one.failure is not None and one.failure.code == "engine" for one in list(named.values())[:ended])
        assert len(again.finished) >= ended - engine
        for one in left:
            again.write(one)
        again.reject(REJECT)
        again.close()
        found = read_judgments(out)
        assert found.keys() == named.keys()
        assert {one.sample_id: judgment_row(one) for one in latest_judgments(out)} == {
            name: judgment_row(one) for name, one in found.items()
        }
        assert [json.loads(line) for line in rejects.read_bytes().splitlines()] == [REJECT]
        for name, one in named.items():
            stored = json.loads(json.dumps(judgment_row(one) | {"provenance": files.provenance_sha}))
            assert json.loads(json.dumps(judgment_row(found[name]))) == stored

    fuzz(st.tuples(st.lists(JUDGMENTS, max_size=4), SHARE), check)


def test_damaged_runs(fuzz, tmp_path):
    """Bytes changed anywhere in any of the three files: an error that names the file, or a run that goes on."""

    def check(given):
        judgments, which, data = given
        files = written(tmp_path, judgments)
        path = run_paths(files.out)[which]
        path.write_bytes(data.draw(damaged(path.read_bytes())))

        def resume():
            again = RunFiles(files.out, **RUN)
            try:
                again.start_session({})
                again.reject(REJECT)
            finally:
                again.close()

        fuzzing.refusal(resume, files.out.with_suffix(""))
        for read in (read_judgments, lambda out: list(latest_judgments(out))):
            fuzzing.refusal(lambda read=read: read(files.out), files.out)

    fuzz(st.tuples(st.lists(JUDGMENTS, max_size=3), st.integers(0, 2), st.data()), check)


def damaged(content):
    """Bytes mangled, or one JSON value in them altered."""
    if content.startswith(b"{\n"):  # the manifest is one value over many lines
        return fuzzing.mangled(st.just(content)) | altered_json(content)
    lines = content.splitlines(keepends=True)
    if not lines:
        return fuzzing.mangled(st.just(content))
    one = st.integers(0, len(lines) - 1).flatmap(
        lambda place: altered_json(lines[place]).map(lambda line: b"".join([*lines[:place], line, *lines[place + 1 :]]))
    )
    return fuzzing.mangled(st.just(content)) | one


def altered_json(text):
    return fuzzing.altered(st.just(json.loads(text))).map(lambda value: json.dumps(value).encode() + b"\n")


def test_rows_of_judgments(fuzz, tmp_path):
    """Lines of another origin under our own names: a judgment, or an error that names the line."""
    path = tmp_path / "out.jsonl"

    def check(given):
        row, alien = given
        path.write_bytes(fuzzing.json_lines([row, alien]))
        found = []
        fuzzing.refusal(lambda: found.extend(iter_judgments(path)), f"{path}:")
        for one in found:
            judgment_from_row(json.loads(json.dumps(judgment_row(one))))

    good = JUDGMENTS.map(judgment_row)
    fuzz(st.tuples(good, fuzzing.altered(good)), check)
