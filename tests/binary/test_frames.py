"""Frames in a stream that comes in any pieces: found where they are, and untouched."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from words import LOOKUP, MALFORMED, PING, SEND, SUBSCRIBE, command, framed, lookup, message, number, ping, read, send

from pulsar_ingress_proxy.binary.frames import MESSAGE_LIMIT, PADDING, BadFrame, Frame, FrameDecoder, Table, handling

KNOWN = frozenset(range(100))
TABLE = handling(KNOWN, take=(LOOKUP,), note=(SUBSCRIBE,))
MOST = 1 << 16

UNKNOWN = 4711
"""A type of a version to come."""

frames = st.one_of(
    st.builds(send, st.binary(max_size=300), st.integers(0, 2**64 - 1)),
    st.builds(lookup, st.integers(0, 2**64 - 1), st.none() | st.text(max_size=10)),
    st.builds(lambda kind, body: command(kind, body), st.integers(2, 127), st.binary(max_size=300)),
    st.builds(lambda body: command(UNKNOWN, body), st.binary(max_size=300)),
    st.builds(lambda kind: framed(message(f1=kind)), st.integers(1, 127)),
    # The type at the end, or with other fields beside it.
    st.builds(lambda kind: framed(message(f77="later", f1=kind)), st.integers(1, 127)),
    st.builds(lambda kind, body: framed(message(f1=kind, f99=body)), st.integers(1, 127), st.binary(max_size=40)),
    st.just(ping()),
)


def decoder(*, is_strict: bool = True, most: int = MOST, table: Table = TABLE) -> FrameDecoder:
    return FrameDecoder(table, most, is_strict)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(places) if end > start]


def kind_of(frame: bytes) -> int:
    size = int.from_bytes(frame[4:8], "big")
    kind = read(frame[8 : 8 + size])[1][-1]
    assert isinstance(kind, int)
    return kind


def fed(decoder: FrameDecoder, pieces: list[bytes]) -> tuple[bytes, list[Frame]]:
    """All that was given back, put together, and the frames that were taken out of it."""
    stream, taken = b"", []
    for piece in pieces:
        given_back = decoder.feed(piece)
        for part in [piece] if given_back is None else given_back:
            if isinstance(part, Frame):
                taken.append(part)
            stream += part.raw if isinstance(part, Frame) else bytes(part)
    return stream, taken


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 1 << 16), max_size=12), st.booleans())
def test_frames_are_found_at_any_split(sent: list[bytes], cuts: list[int], is_strict: bool) -> None:
    stream = b"".join(sent)
    found = decoder(is_strict=is_strict)
    back, taken = fed(found, pieces_of(stream, cuts))
    assert back == stream
    assert [frame.raw for frame in taken] == [frame for frame in sent if kind_of(frame) == LOOKUP]
    assert found.noted == any(kind == SUBSCRIBE or kind not in KNOWN for kind in map(kind_of, sent))
    assert found.left == 0


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 1 << 16), max_size=12), st.booleans())
def test_each_command_of_an_unknown_type_is_reported_once(sent: list[bytes], cuts: list[int], is_strict: bool) -> None:
    found, reported = decoder(is_strict=is_strict), list[int]()
    found.on_unknown = reported.append
    fed(found, pieces_of(b"".join(sent), cuts))
    unknown = [kind for kind in map(kind_of, sent) if kind not in KNOWN]
    assert [min(kind, 128) for kind in reported] == [min(kind, 128) for kind in unknown]


@given(st.lists(frames, max_size=4), st.lists(st.integers(0, 1 << 16), max_size=6))
def test_splitter_knows_how_many_bytes_of_the_current_frame_remain(sent: list[bytes], cuts: list[int]) -> None:
    """So that nothing is ever put into the midst of one."""
    found, stream, given_back = decoder(is_strict=False), b"".join(sent), 0
    ends = [0]
    for frame in sent:
        ends.append(ends[-1] + len(frame))
    for piece in pieces_of(stream, cuts):
        parts = found.feed(piece)
        given_back += sum(
            len(part.raw) if isinstance(part, Frame) else len(part) for part in ([piece] if parts is None else parts)
        )
        assert given_back + found.left in ends


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=5), st.booleans())
def test_arbitrary_bytes_pass_unchanged_or_raise_bad_frame(stream: bytes, cuts: list[int], is_strict: bool) -> None:
    try:
        back, _ = fed(decoder(is_strict=is_strict), pieces_of(stream, cuts))
    except BadFrame:
        return
    assert stream.startswith(back)


def test_frames_are_found_in_a_stream_fed_byte_by_byte() -> None:
    stream = send(b"x" * 100) + lookup(1) + ping() + lookup(2, "external")
    back, taken = fed(decoder(), [bytes([byte]) for byte in stream])
    assert back == stream
    assert [frame.raw for frame in taken] == [lookup(1), lookup(2, "external")]


def test_pieces_of_large_messages_are_passed_on_without_copying() -> None:
    """The very objects that were read, not copies."""
    data = send(random.randbytes(200_000))
    pieces = [data[:65536], data[65536:131072], data[131072:]]
    found = decoder()
    assert [found.feed(piece) for piece in pieces] == [None, None, None]


def test_lookup_hidden_in_a_frame_that_begins_as_send_is_found() -> None:
    """Of two types the last counts, so that a lookup could be hidden in what looks like a message."""
    hidden = framed(message(f1=SEND, f6=message(f1=1, f2=2)) + lookup(1)[8:])
    _, taken = fed(decoder(), [hidden])
    assert [(frame.type, frame.is_plain) for frame in taken] == [(LOOKUP, False)]


def test_command_type_in_an_overlong_varint_is_recognized() -> None:
    hidden = framed(b"\x08\x97\x00" + message(f23=message(f1="t", f2=1)))
    _, taken = fed(decoder(), [hidden])
    assert [frame.type for frame in taken] == [LOOKUP]


BAD_STREAMS = {
    **MALFORMED,
    "a command larger than its frame, which is like the one before": send(bytes(40))
    + bytes(3)
    + b"\x04"
    + send(bytes(40))[4:],
    "a frame without room for a command": b"\x00\x00\x00\x02\x00\x00\x00\x00\x08\x12",
    "TLS on a plain socket": bytes.fromhex("16030100c4010000c00303") + bytes(200),
    "no type": framed(message(f5="x" * 20)),
    "no command": framed(b"") + bytes(20),
    "no protobuf": framed(b"\x07" * 20),
}


@pytest.mark.parametrize("stream", BAD_STREAMS.values(), ids=BAD_STREAMS)
def test_malformed_frames_raise_bad_frame(stream: bytes) -> None:
    with pytest.raises(BadFrame):
        fed(decoder(), [stream])


def test_command_bytes_limit_applies_only_to_commands_that_are_parsed() -> None:
    with pytest.raises(BadFrame, match=r"a command of type 23 has \d+ bytes; limits.commandBytes allows 100"):
        fed(decoder(most=100), [lookup(1, topic="x" * 200)[:40]])
    large = command(PING, b"x" * 500) + send(b"x" * 500)
    assert fed(decoder(most=100), [large])[0] == large


def test_command_bytes_limit_applies_to_commands_not_beginning_with_their_type() -> None:
    odd = framed(message(f99="x" * 200, f1=PING))
    assert fed(decoder(), [odd])[0] == odd
    with pytest.raises(BadFrame, match="that does not begin with its type"):
        fed(decoder(most=100), [odd])


def test_message_size_limit_is_the_default_until_the_broker_names_another() -> None:
    found = decoder()
    fed(found, [send(bytes(MESSAGE_LIMIT))])
    over = send(bytes(MESSAGE_LIMIT + PADDING))
    with pytest.raises(BadFrame, match=r"says that it has \d+ bytes; 5253120 are allowed"):
        found.feed(over[:30])
    found = decoder()
    found.allow_messages(2 * MESSAGE_LIMIT)
    assert fed(found, [over])[0] == over


def test_varint_helper_of_the_tests_encodes_two_byte_numbers() -> None:
    assert number(300) == b"\xac\x02"
