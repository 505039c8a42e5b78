"""What fuzzing shares: a property driven for some time, input that is built to break, and what may come of it."""

import json
import os
import signal
import time
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from judgelm.errors import JudgelmError

SECONDS = float(os.environ.get("FUZZ_SECONDS", "3"))
CPU_LIMIT_S = 4.0
LONGEST = 30_000
_ROUND = 100


class HungError(Exception):
    """The code under test used more CPU time than any input may cost."""


def drive(strategy, body):
    """Give `body` values of `strategy` for `FUZZ_SECONDS` of CPU time."""
    first = time.time_ns() if "FUZZ_SECONDS" in os.environ else 0
    executions, rounds, began = 0, 0, time.process_time()

    def counted(value):
        nonlocal executions
        executions += 1
        with limited_cpu():
            body(value)

    how = settings(
        max_examples=_ROUND, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    while time.process_time() - began < SECONDS:
        seed(first + rounds)(how(given(strategy)(counted)))()
        rounds += 1
    return executions, time.process_time() - began


@contextmanager
def limited_cpu():
    """Raise where what is inside uses too much CPU time, regular expressions included."""

    def hung(number, frame):
        raise HungError(f"more than {CPU_LIMIT_S:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def refusal(call, *places, expected=JudgelmError):
    """What `call` says when it refuses."""
    try:
        call()
    except expected as error:
        message = str(error)
        assert message
        assert not places or any(str(place) in message for place in places), message
        return message
    return None


def texts(*fragments):
    """Fragments of the grammar in question and any other text, in any order, some repeated thousands of times."""
    piece = st.sampled_from(fragments) | st.text(max_size=8)
    count = st.sampled_from((1,) * 60 + (2, 5, LONGEST))
    pieces = st.tuples(piece, count).map(lambda one: one[0] * min(one[1], LONGEST // max(1, len(one[0])) + 1))
    return st.lists(pieces, max_size=12).map("".join)


JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12))
    | st.sampled_from((10**400, -1, 0, 1, 2, "", " ", "1", "tie", "\ud800", "1e400", "nan", "[8, 6]", "8 6")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=6,
)
"""Any JSON value, NaN and lone surrogates included."""


def rows(fields):
    """Rows that mostly are what they should be: `fields` names a strategy each."""
    entry = {name: st.one_of(*[value] * 8, JUNK) for name, value in fields.items()}
    unknown = st.dictionaries(st.text(max_size=5), JUNK, max_size=1)
    return st.tuples(st.fixed_dictionaries({}, optional=entry), unknown).map(lambda two: two[1] | two[0])


@st.composite
def altered(draw, rows_of, junk=JUNK):
    row = dict(draw(rows_of))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
        if not row:
            break
        name, other = draw(st.sampled_from(sorted(row))), draw(st.sampled_from(sorted(row)))
        match draw(st.sampled_from(("junk", "drop", "swap", "inside"))):
            case "junk":
                row[name] = draw(junk)
            case "drop":
                del row[name]
            case "swap":
                row[name] = row[other]
            case _:
                row[name] = draw(altered_inside(row[name], junk))
    return row


@st.composite
def altered_inside(draw, value, junk=JUNK):
    """A JSON value with something junk somewhere within it."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: draw(altered_inside(value[name], junk))}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(altered_inside(value[place], junk)), *value[place + 1 :]]
    return draw(junk)


def json_lines(some):
    return b"".join(json.dumps(row).encode() + b"\n" for row in some)


@st.composite
def mangled(draw, contents):
    """Bytes with a few edits: cut short, a piece gone, doubled, moved, or other bytes put in."""
    data = draw(contents)
    for _ in range(draw(st.sampled_from((0, 1, 1, 2, 4)))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        match draw(st.sampled_from(("cut", "drop", "double", "put", "flip"))):
            case "cut":
                data = data[:start]
            case "drop":
                data = data[:start] + data[end:]
            case "double":
                data = data[:end] + data[start:end][:LONGEST] + data[end:]
            case "put":
                data = data[:start] + draw(st.binary(max_size=6) | st.sampled_from(_ODD)) + data[start:]
            case _ if start < len(data):
                data = data[:start] + bytes([data[start] ^ draw(st.integers(1, 255))]) + data[start + 1 :]
    return data


_ODD = (
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\r\n", b"\n", b'"', b"\\", b"[", b"]", b"{", b"}", b","),
    *(b"\xe2\x80\xa8", b"\\ud800", b"NaN", b"Infinity", b"1e999", b"9" * 5_000, b"[" * 5_000, b"{}\n" * 20, b"null\n"),
)
