"""A run's own files: torn or damaged, nothing finished is lost or doubled, and no label moves to another text."""

import json
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from judgelm import records
from judgelm.data.judged_texts import check_same_texts, text_hashes
from judgelm.data.labelled_set import LabelledSet, match_labels
from judgelm.errors import InputError, RunError
from judgelm.runs.run_files import FinishedIds, RunFiles, iter_judgments, latest_judgments, read_judgments, run_paths
from judgelm.serialization import judgment_from_row, judgment_row
from tests.support import fuzzing

TEXT = st.text(max_size=8) | st.sampled_from(("\u2028", "\ud800", "\x85\n", "8 6\n", '{"id":'))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0, 1)
CODES = st.sampled_from(
    ("truncated", "off_grammar", "out_of_range", "too_long", "equal_after_cut", "engine", "undecided")
)
FAILURES = st.builds(records.Unparsed, CODES, TEXT, TEXT)
PAIRS = st.builds(
    records.PairDistribution, expected=st.tuples(NUMBER, NUMBER), first_better=SHARE, tie=SHARE, unassigned=SHARE,
    likeliest=st.lists(st.tuples(NUMBER, NUMBER, SHARE), max_size=3).map(tuple), approximation=TEXT,
)  # fmt: skip
GRADES = st.builds(
    records.GradeDistribution, expected=NUMBER, unassigned=SHARE,
    likeliest=st.lists(st.tuples(NUMBER, SHARE), max_size=3).map(tuple), approximation=TEXT,
)  # fmt: skip
CUT = records.Truncation(answer=0, tokens_before=9, tokens_after=2)
SHOWN = st.builds(
    records.Shown, order=st.sampled_from(((0, 1), (1, 0), (0,))), text=TEXT, part=TEXT,
    scores=st.none() | st.tuples(NUMBER, NUMBER), anchor=st.none() | NUMBER, label=st.none() | TEXT,
    referenced=st.none() | st.booleans(), failure=st.none() | FAILURES, repaired=st.none() | FAILURES,
    reason=st.none() | TEXT, reason_failure=st.none() | FAILURES, distribution=st.none() | PAIRS,
    grades=st.none() | GRADES, truncations=st.sampled_from(((), (CUT,))),
)  # fmt: skip
VERDICTS = st.one_of(
    st.builds(records.PairVerdict, winner=st.sampled_from((1, 2, "tie"))),
    st.just(records.RankingVerdict(order=((1,), (0, 2)))),
    st.builds(records.GradeVerdict, score=NUMBER),
    st.builds(records.LabelVerdict, label=TEXT),
)
HASHES = st.builds(records.TextHashes, question=TEXT, answers=st.tuples(TEXT, TEXT), images=st.none() | TEXT)
JUDGMENTS = st.builds(
    records.Judgment, sample_id=TEXT, mode=st.just("pair"), verdict=st.none() | VERDICTS,
    shown=st.lists(SHOWN, max_size=2).map(tuple), scores=st.none() | st.tuples(NUMBER, NUMBER),
    consistent=st.none() | st.booleans(), probability=st.none() | SHARE, failure=st.none() | FAILURES,
    decided_by=st.none() | TEXT,
    self_answers=st.lists(st.builds(records.SelfAnswer, text=TEXT, answer=st.none() | TEXT), max_size=2).map(tuple),
    own_reference=st.none() | TEXT, votes=st.dictionaries(TEXT, st.none() | TEXT, max_size=2),
    hashes=st.none() | HASHES,
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


TWINS = ("a", "b", "a ", "A", "", "\u0430", "a\u0301", "\u00e1", "\ud800", '["a", "b"]')
TWIN = st.sampled_from(TWINS) | st.text(max_size=3)
IDS = st.sampled_from(("1", "2", "\u2028"))
SAMPLES = st.builds(
    records.Sample, id=IDS, question=TWIN, answers=st.lists(TWIN, min_size=1, max_size=3).map(tuple),
    reference=st.none() | TWIN,
    metadata=st.dictionaries(st.sampled_from(("turns", "options", "note")), st.none() | st.lists(TWIN, max_size=2)),
)  # fmt: skip
LISTS = st.lists(SAMPLES, max_size=4, unique_by=lambda sample: sample.id)


def judged(samples):
    judgment = records.Judgment(sample_id="", mode="pair", verdict=records.PairVerdict(winner=1), shown=())
    return {sample.id: replace(judgment, sample_id=sample.id, hashes=text_hashes(sample)) for sample in samples}


def label_of(sample):
    """A label whose scores say which texts they belong to."""
    winner = 1 if len(sample.answers) == 2 else None
    return records.Label(
        sample_id=sample.id, winner=winner, scores=tuple(map(float, range(len(sample.answers), 0, -1)))
    )


def scored(sample, label):
    return sorted(zip(sample.answers, label.scores, strict=True))


def test_labels_stay_with_their_texts(fuzz):
    def check(given):
        run, rows = given
        samples = {each.id: each for each in rows}
        labelled = LabelledSet(
            samples=samples, labels={key: label_of(each) for key, each in samples.items()}, groups={}
        )
        texts = {each.id: each for each in run}
        same = {key: each for key, each in texts.items() if key in samples}
        equal = all(
            (each.question, sorted(each.answers)) == (samples[key].question, sorted(samples[key].answers))
            for key, each in same.items()
        )
        try:
            found, comparison = match_labels(judged(run), labelled, name="rows")
        except InputError:
            twins = any(len(set(each.answers)) < len(each.answers) for each in same.values())
            assert not equal or twins
            return
        assert equal
        assert comparison.same + comparison.turned == len(same)
        for key, each in same.items():
            assert found.samples[key].answers == each.answers
            assert scored(found.samples[key], found.labels[key]) == scored(samples[key], labelled.labels[key])

    fuzz(st.tuples(LISTS, LISTS), check)


def test_runs_and_inputs_of_other_texts_are_never_taken_for_the_same(fuzz, tmp_path):
    def check(given):
        run, again = given
        out = tmp_path / "out.jsonl"
        out.write_text("".join(json.dumps(judgment_row(each)) + "\n" for each in judged(run).values()))
        finished = FinishedIds(out)
        assert len(finished) == len(run)
        before = {each.id: each for each in run}
        for sample in again:
            known = before.get(sample.id)
            same = known is not None and text_hashes(known) == text_hashes(sample)
            if known is None or same:
                assert finished.holds(sample) is same
            else:
                with pytest.raises(RunError, match="another input"):
                    finished.holds(sample)
        texts = [(each.question, each.answers) for each in again if each.id in before]
        if texts == [(before[each.id].question, before[each.id].answers) for each in again if each.id in before]:
            check_same_texts({"a": judged(run), "b": judged(again)})
        else:
            with pytest.raises(InputError, match="are not of the texts"):
                check_same_texts({"a": judged(run), "b": judged(again)})

    fuzz(st.tuples(LISTS, LISTS), check)
