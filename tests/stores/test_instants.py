from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta, timezone

import ormsgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import uuid6

from history_retention.stores.instants import (
    PREFIX_BYTES,
    instant_of_id,
    instant_of_payload,
    instant_of_text,
)
from project.checkpoint_ids import checkpoint_id_at

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
MAY = datetime(2026, 5, 14, 12, tzinfo=UTC)
TIMED = st.integers(0, 365_000 * 86_400 * 10**6).map(
    lambda microseconds: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)


def test_an_id_of_langgraph_tells_when_it_was_made() -> None:
    before = datetime.now(UTC)

    told = instant_of_id(str(uuid6(clock_seq=-2)))

    after = datetime.now(UTC)
    assert told is not None
    assert before - timedelta(milliseconds=1) <= told <= after + timedelta(milliseconds=1)


@given(TIMED)
def test_an_id_tells_its_instant_to_the_microsecond(at: datetime) -> None:
    assert instant_of_id(checkpoint_id_at(at)) == at


@pytest.mark.parametrize("variant", ["8000", "ffff", "0000", "c123"])
def test_the_variant_bits_do_not_matter(variant: str) -> None:
    assert instant_of_id(f"1f14f8c6-ee96-6000-{variant}-000000000007") == MAY


def test_upper_case_tells_the_same_instant() -> None:
    assert instant_of_id("1F14F8C6-EE96-6000-8000-00000000000A") == MAY


@pytest.mark.parametrize(
    "checkpoint_id",
    [
        "",
        "1",
        "undefined",
        "None",
        "step-3",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01a2b3c4-d5e6-7f80-8123-456789abcdef",
        "1f14f8c6-ee96-1000-8000-000000000007",
        str(uuid.UUID(int=0)),
        str(uuid.UUID(int=2**128 - 1)),
        "1f14f8c6ee9660008000000000000007",
        "{1f14f8c6-ee96-6000-8000-000000000007}",
        " 1f14f8c6-ee96-6000-8000-000000000007",
        "1f14f8c6-ee96-6000-8000-000000000007\n",
        "1f14f8c6-ee96-6000-8000-000000000007\x00",
        "1f14f8c6-ee96-6000-8000-00000000000g",
        "1f14f8c6-ee96-6000-8000-0000000000\u09667",
        "\uff11f14f8c6-ee96-6000-8000-000000000007",
        "00000000-0000-6000-8000-000000000000",
        "1d3b2f00-0000-6000-8000-000000000000",
    ],
)
def test_an_id_of_another_kind_tells_no_time(checkpoint_id: str) -> None:
    assert instant_of_id(checkpoint_id) is None


@pytest.mark.parametrize("version", [1, 3, 4, 5, 7, 8])
@given(value=st.integers(0, 2**128 - 1))
def test_a_uuid_of_another_version_tells_no_time(version: int, value: int) -> None:
    if version == 8:
        value = value & ~(0xF << 76) | 8 << 76
        checkpoint_id = str(uuid.UUID(int=value))
    elif version == 7:
        checkpoint_id = str(uuid.UUID(int=value & ~(0xF << 76) | 7 << 76))
    else:
        checkpoint_id = str(uuid.UUID(int=value, version=version))

    assert instant_of_id(checkpoint_id) is None


@given(st.text(max_size=40))
def test_no_text_as_an_id_raises(checkpoint_id: str) -> None:
    told = instant_of_id(checkpoint_id)

    assert told is None or told.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-10-01T00:00:00.000Z",
        "2026-10-01T00:00:00Z",
        "2026-10-01t00:00:00z",
        "2026-10-01T00:00Z",
        "2026-10-01T00:00:00+00:00",
        "2026-10-01T00:00:00-00:00",
        "2026-10-01T00:00:00",
        "2026-10-01 00:00:00",
        " 2026-10-01T00:00:00Z\n",
        "2026-10-01T00:00:00,000Z",
        "2026-10-01T00:00:00.0Z",
        "2026-10-01T00:00:00.0000009Z",
        "2026-10-01T14:00:00+14:00",
        "2026-10-01T14:00:00+1400",
        "2026-10-01 02:00:00+02",
        "2026-09-30T13:00:00-11:00",
        "2026-10-01T05:45:00+05:45",
    ],
)
def test_an_iso_text_tells_its_instant_in_utc(text: str) -> None:
    told = instant_of_text(text)

    assert told == OCTOBER
    assert told.tzinfo is UTC


def test_a_fraction_counts_to_the_microsecond() -> None:
    assert instant_of_text("2026-10-01T00:00:00.123456789Z") == OCTOBER.replace(microsecond=123456)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1_759_276_800,
        1_759_276_800.5,
        b"2026-10-01T00:00:00Z",
        True,
        OCTOBER,
        "",
        " ",
        "1759276800",
        "not a date",
        "20261001",
        "20261001T000000Z",
        "2026-10-01",
        "2026-W40-4T00:00:00Z",
        "2026-274T00:00:00Z",
        "10/01/2026 00:00:00",
        "2026-10-01T00Z",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-10-01T25:00:00Z",
        "2026-12-31T23:59:60Z",
        "2026-10-01T00:00:00+24:00",
        "2026-10-01T00:00:00+99:99",
        "2026-10-01T00:00:00 UTC",
        "2026-10-01T00:00:00Z Z",
        "2026-10-01X00:00:00Z",
        "\uff12026-10-01T00:00:00Z",
        "\u0968026-10-01T00:00:00Z",
        "2026-10-01T00:00:00\u221202:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "10000-01-01T00:00:00Z",
        "\ud800",
        "2026-10-01T00:00:00.Z",
        "2026-10-01T00:00:00" + "9" * 10_000,
    ],
)
def test_a_value_of_another_kind_tells_no_time(value: object) -> None:
    assert instant_of_text(value) is None


def test_the_end_of_time_is_an_instant() -> None:
    assert instant_of_text("9999-12-31T23:59:59Z") == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@given(TIMED, st.integers(-14 * 60, 14 * 60), st.sampled_from(["T", " "]))
def test_any_zone_tells_the_same_instant(at: datetime, offset: int, separator: str) -> None:
    zone = timezone(timedelta(minutes=offset))

    assert instant_of_text(at.astimezone(zone).isoformat(separator)) == at


@given(st.text(alphabet="0123456789-:T .,Zz+٣", max_size=30))
def test_no_text_raises_and_none_tells_a_time_before_any_agent(text: str) -> None:
    told = instant_of_text(text)

    assert told is None or told >= datetime(2000, 1, 1, tzinfo=UTC)


def both(document: dict[str, object]) -> list[bytes]:
    """The payload as JSON, as JavaScript writes it, and as msgpack."""
    return [
        json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(),
        json.dumps(document, indent=1).encode(),
        ormsgpack.packb(document),
    ]


CHECKPOINT = {
    "v": 4,
    "ts": "2026-10-01T00:00:00.000Z",
    "id": "1f14f8c6-ee96-6000-8000-000000000007",
    "channel_values": {"messages": "x" * 1_000},
}


@pytest.mark.parametrize("payload", both(CHECKPOINT))
def test_the_first_bytes_of_a_checkpoint_tell_its_time(payload: bytes) -> None:
    assert instant_of_payload(payload[:PREFIX_BYTES]) == OCTOBER


@pytest.mark.parametrize(
    "first",
    [
        {"v": 1},
        {"v": 4, "id": "1f14f8c6-ee96-6000-8000-000000000007"},
        {"id": "größe ☃", "n": None, "yes": True, "no": False},
        {"n": -1, "m": 2**40, "k": -(2**40), "f": 0.5, "u": 2**63, "w": 200, "x": -100},
        {"text": "a" * 40, "ts ": "2020-01-01T00:00:00Z", "Ts": "2020-01-01T00:00:00Z"},
    ],
)
def test_the_time_is_found_behind_other_scalars(first: dict[str, object]) -> None:
    for payload in both({**first, "ts": "2026-10-01T00:00:00+00:00"}):
        assert instant_of_payload(payload[:PREFIX_BYTES]) == OCTOBER


@pytest.mark.parametrize(
    "document",
    [
        {"values": {"ts": "2020-01-01T00:00:00Z"}, "v": 1},
        {"values": [{"ts": "2020-01-01T00:00:00Z"}]},
        {"values": ["ts", "2020-01-01T00:00:00Z"]},
        {"note": '"ts":"2020-01-01T00:00:00Z"'},
        {"note": "ts", "other": "2020-01-01T00:00:00Z"},
        {"ts": {"ts": "2020-01-01T00:00:00Z"}},
        {"ts": ["2020-01-01T00:00:00Z"]},
        {"ts": None},
        {"ts": 1_759_276_800},
        {"ts": ""},
    ],
)
def test_a_time_that_is_not_the_checkpoints_own_is_not_told(document: dict[str, object]) -> None:
    for payload in both(document):
        assert instant_of_payload(payload[:PREFIX_BYTES]) is None


@pytest.mark.parametrize("head", [b"\xb4", b"\xd9\x14", b"\xda\x00\x14", b"\xdb\x00\x00\x00\x14"])
def test_a_msgpack_text_of_any_width_tells_its_time(head: bytes) -> None:
    payload = b"\xde\x00\x01\xda\x00\x02ts" + head + b"2026-10-01T00:00:00Z"

    assert (
        instant_of_payload(payload) == OCTOBER == instant_of_text(ormsgpack.unpackb(payload)["ts"])
    )


def test_a_stray_byte_in_another_text_does_not_hide_the_time() -> None:
    assert instant_of_payload(b'{"v":"\xff","ts":"2026-10-01T00:00:00Z","t') == OCTOBER


def test_a_time_behind_the_first_bytes_is_not_told() -> None:
    for payload in both({"text": "x" * PREFIX_BYTES, "ts": "2026-10-01T00:00:00Z"}):
        assert instant_of_payload(payload[:PREFIX_BYTES]) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"null",
        b"\x80",
        b"\x80\x04\x95\x10\x00",
        b'{"ts"',
        b'{"ts":',
        b'{"ts":"2026-10-01T00:00:00Z"',
        b'{"ts":"2026-10-01T00:00:00Z";',
        b'{"ts","2026-10-01T00:00:00Z"}',
        b"{'ts':'2026-10-01T00:00:00Z'}",
        b'{1:"ts","ts":"2026-10-01T00:00:00Z"}',
        b'{"t\xffs":"2026-10-01T00:00:00Z"}',
        b'{"ts":"2026-10-01\xffT00:00:00Z"}',
        b'\xef\xbb\xbf{"ts":"2026-10-01T00:00:00Z"}',
        '{"ts":"2026-10-01T00:00:00Z"}'.encode("utf-16"),
        b"{" + b'"a":[' * 60,
        b'{"a":' * 60,
        b"[" * 10_000,
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"9" * 5_000,
        b"\xdf\xff\xff\xff\xff\xa2ts",
        b"\xde\xff\xff\xa2ts\xdb\xff\xff\xff\xff2026-10-01T00:00:00Z",
        b"\xde\xff",
        b"\x81\xdb\xff\xff\xff\xff",
        b"\x81\xd9\x02ts\xc4\x142026-10-01T00:00:00Z",
        b"\x81\xc4\x02ts\xb42026-10-01T00:00:00Z",
        b"\x81\xa2ts\xb42026-10-01T00:00:0\xff",
        b"\x81\xc1",
        b"\x81\xa2ts",
        b"\x82\xa2ts\xc0\xa2ts\xb42026-10-01T00:00:00Z",
        b"\x81\xa2ts\xb42026-10-01T00:00:0",
        b"\x91\xa2ts\xb42026-10-01T00:00:00Z",
    ],
)
def test_a_payload_of_another_kind_tells_no_time(payload: bytes) -> None:
    assert instant_of_payload(payload) is None


KEYS = st.sampled_from(["v", "ts", "id", "channel_values", "", "größe", "x" * 40])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=60).filter(lambda text: text.isprintable()),
    st.sampled_from(["2026-10-01T00:00:00Z", "2020-01-01T00:00:00+02:00", "2026-10-01"]),
)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=7,
)


@given(DOCUMENTS, st.integers(0, 2), st.integers(0, 260))
def test_what_is_told_of_a_whole_document_or_its_beginning_is_true(
    document: dict[str, object], kind: int, size: int
) -> None:
    own = instant_of_text(document.get("ts"))

    told = instant_of_payload(both(document)[kind][:size])

    assert told in (None, own)


@given(TIMED, DOCUMENTS)
def test_a_time_before_all_that_is_nested_is_always_told(
    at: datetime, rest: dict[str, object]
) -> None:
    rest.pop("ts", None)
    document = {"v": 4, "ts": at.isoformat(), **{f"_{key}": value for key, value in rest.items()}}

    for payload in both(document):
        assert instant_of_payload(payload[:PREFIX_BYTES]) == at


@given(st.binary(max_size=240))
@example(b'{"ts":"2026-10-01T00:00:00Z\\ud800"}')
@example(b"\x8f" + b"\xa0" * 200)
def test_no_bytes_raise(payload: bytes) -> None:
    told = instant_of_payload(payload)

    assert told is None or told.tzinfo is UTC


@given(st.binary(max_size=120), st.sampled_from([b"\x81", b"\x82\xa1v\x04", b"\xde\x00\x02"]))
def test_what_hostile_msgpack_tells_is_what_a_decoder_reads(tail: bytes, head: bytes) -> None:
    payload = head + b"\xa2ts" + tail
    try:
        decoded = ormsgpack.unpackb(payload)
    except (ormsgpack.MsgpackDecodeError, ValueError):
        decoded = {}
    own = instant_of_text(decoded.get("ts")) if isinstance(decoded, dict) else None

    told = instant_of_payload(payload)

    assert told == own or decoded == {}
