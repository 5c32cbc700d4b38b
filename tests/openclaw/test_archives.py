"""Archives of both forms: names, writing, reading, publishing, verifying, removing."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from history_retention.contrib.openclaw.archives import blobs, compression, files, retention
from history_retention.contrib.openclaw.archives.files import ArchiveUnreadable, ArchiveUnwritable
from history_retention.contrib.openclaw.archives.inventory import Holding
from history_retention.contrib.openclaw.archives.names import name_of, read_name, stem_of
from history_retention.contrib.openclaw.quantities import duration, limit_of_space, size
from history_retention.exceptions import StoreUnreadable, UsageError
from history_retention.stores.sqlite import SQLiteFile
from history_retention.stores.sqlite import opened as sqlite_opened

from .agents import OPENCLAW, empty_agent

AT = datetime(2026, 11, 30, 20, 51, 58, 453_000, tzinfo=UTC)
GENERATION = "1dd82ee16ea14520aa8d755f6a1b7013"
LINES = [b'{"type":"session","id":"one"}', b'{"type":"message","id":"x"}']


def lines() -> Iterator[bytes]:
    yield from LINES


@pytest.mark.parametrize(
    ("name", "stem", "reason", "generation", "topic"),
    [
        ("a.jsonl.deleted.2026-11-30T20-51-58.453Z", "a", "deleted", "", ""),
        (f"a.jsonl.reset.2026-11-30T20-51-58.453Z.{GENERATION}.zst", "a", "reset", GENERATION, ""),
        ("a-topic-42%2F7.jsonl.deleted.2026-11-30T20-51-58Z", "a", "deleted", "", "42/7"),
        ("a.jsonl.bak.2026-11-30T20-51-58.453Z.zst", "a", "bak", "", ""),
        (
            "a.deleted.b.jsonl.deleted.2026-11-30T20-51-58.453Z",
            "a.deleted.b", "deleted", "", "",
        ),
    ],
)  # fmt: skip
def test_the_names_of_both_forms_and_of_older_files_are_read(
    name: str, stem: str, reason: str, generation: str, topic: str
) -> None:
    told = read_name(name)

    assert told is not None
    assert (told.stem, told.reason, told.generation, told.topic) == (
        stem, reason, generation, topic,
    )  # fmt: skip
    assert told.archived_at - AT in (timedelta(0), timedelta(milliseconds=-453))


@pytest.mark.parametrize(
    "name",
    [
        "a.jsonl",
        "sessions.json",
        "sessions.json.bak.3",
        "a.jsonl.deleted.2026-13-30T20-51-58.453Z",
        "a.jsonl.deleted.2026-11-30T20:51:58.453Z",
        "a.jsonl.kept.2026-11-30T20-51-58.453Z",
        ".a.jsonl.deleted.2026-11-30T20-51-58.453Z.5f.tmp",
        "a.jsonl.deleted.2026-11-30T20-51-58.453Z.abc",
    ],
)
def test_what_is_no_archives_name_is_left_alone(name: str) -> None:
    assert read_name(name) is None


@given(
    session_id=st.text(max_size=200),
    at=st.timedeltas(timedelta(0), timedelta(days=30_000)).map(lambda age: AT - age),
    generation=st.sampled_from(["", GENERATION]),
    compressed=st.booleans(),
)
def test_every_name_that_is_written_is_a_plain_file_name_and_is_read_back(
    session_id: str, at: datetime, generation: str, compressed: bool
) -> None:
    name = name_of(session_id, "deleted", at, generation=generation, compressed=compressed)

    told = read_name(name)
    assert told is not None
    assert "/" not in name
    assert len(name.encode()) < 255
    assert (told.generation, told.is_compressed) == (generation, compressed)
    assert abs(told.archived_at - at) < timedelta(milliseconds=1)
    if "-topic-" not in session_id:
        assert told.stem == stem_of(session_id)


@pytest.mark.parametrize("archive", sorted((OPENCLAW / "archives").iterdir()))
def test_the_vendors_own_archives_are_read_whole(archive: Path) -> None:
    content = files.verify(archive)

    name = read_name(archive.name)
    assert name is not None
    assert (content.event_count, content.header_id) == (5, name.stem)


def test_a_written_archive_is_private_whole_and_taken_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "sessions"

    first = files.write(folder, "one", "deleted", AT, lines)
    again = files.write(folder, "one", "deleted", AT + timedelta(hours=1), lines)
    reset = files.write(folder, "one", "reset", AT, lines)

    assert first is not None
    assert again == first
    assert reset is not None
    assert sorted(path.name for path in folder.iterdir()) == [
        "one.jsonl.deleted.2026-11-30T20-51-58.453Z.zst",
        "one.jsonl.reset.2026-11-30T20-51-58.453Z.zst",
    ]
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert list(files.lines_of(first.path)) == LINES
    assert (first.event_count, first.byte_count) == (2, first.path.stat().st_size)
    told = zstandard.ZstdDecompressor().decompressobj().decompress(first.path.read_bytes())
    assert told == b"".join(line + b"\n" for line in LINES)


def test_a_transcript_without_a_line_has_no_archive(tmp_path: Path) -> None:
    assert files.write(tmp_path, "one", "deleted", AT, lambda: iter(())) is None
    assert list(tmp_path.iterdir()) == []


def test_another_content_under_the_same_name_is_never_overwritten(tmp_path: Path) -> None:
    files.write(tmp_path, "one", "deleted", AT, lines)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    with pytest.raises(ArchiveUnwritable, match="File exists"):
        files.write(tmp_path, "one", "deleted", AT, lambda: iter([b"{}"]))

    assert [each.read_bytes() for each in tmp_path.iterdir()] == [before]


def test_without_the_library_archives_are_plain_and_compressed_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = files.write(tmp_path, "one", "deleted", AT, lines)
    monkeypatch.setitem(sys.modules, "zstandard", None)

    plain = files.write(tmp_path, "two", "deleted", AT, lines)

    assert plain is not None
    assert compressed is not None
    assert plain.path.read_bytes() == b"".join(line + b"\n" for line in LINES)
    with pytest.raises(compression.ZstandardMissing, match=r"django-history-retention\[openclaw\]"):
        files.verify(compressed.path)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("x.jsonl", b'{"a":1}\nnot json\n', "line 2 is no JSON"),
        ("x.jsonl", b'{"a":1}\n{"b"', "its last line has no end"),
        ("x.jsonl", b"", "it holds nothing"),
        ("x.jsonl.zst", b"plain", "cannot be read as an archive"),
        (
            "two.jsonl.deleted.2026-11-30T20-51-58.453Z",
            b'{"type":"session","id":"one"}\n',
            "the header of another session",
        ),
    ],
)
def test_a_damaged_archive_is_one_sentence(
    tmp_path: Path, name: str, data: bytes, sentence: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(ArchiveUnreadable, match=sentence):
        files.verify(path)


@given(chunks=st.lists(st.binary(max_size=300), max_size=6), cut=st.integers(1, 8))
def test_frames_one_after_another_are_read_and_a_cut_one_is_told(
    chunks: list[bytes], cut: int
) -> None:
    frames = b"".join(b"".join(compression.compressed([chunk])) for chunk in chunks)

    assert compression.decompressed_bytes(frames) == b"".join(chunks)
    if chunks:
        with pytest.raises(ValueError, match=r"middle of a frame|rror"):
            compression.decompressed_bytes(frames[:-cut])


@pytest.fixture
def file(tmp_path: Path, point_at: Callable[[Path], Path]) -> Iterator[SQLiteFile]:
    """An agent's file of age B, open."""
    point_at(empty_agent("v23", tmp_path))
    with sqlite_opened("history") as opened_file:
        yield opened_file


def insert(file: SQLiteFile, folder: Path, session_id: str, at: datetime = AT) -> str:
    with file.removing():
        archive = blobs.insert(file, folder, session_id, "k", GENERATION, "deleted", at, lines)
    assert archive is not None
    return archive.path.name


def test_an_archive_is_a_row_first_and_a_file_of_the_same_bytes_after(
    file: SQLiteFile, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    name = insert(file, folder, "one")
    assert blobs.pending_count(file) == 1
    assert not folder.exists()

    published = blobs.publish(file, folder, AT, [name])

    assert (published.names, published.pending) == ((name,), ())
    (data, published_at, attempts) = file.rows(
        "SELECT archive_blob, published_at, publish_attempts FROM session_transcript_archives"
    )[0]
    assert (folder / name).read_bytes() == data
    assert (published_at, attempts) == (blobs.milliseconds(AT), 1)


def test_a_file_that_is_there_already_must_be_the_same(file: SQLiteFile, tmp_path: Path) -> None:
    mine, other = insert(file, tmp_path, "mine"), insert(file, tmp_path, "other")
    (data,) = file.rows(
        "SELECT archive_blob FROM session_transcript_archives WHERE session_id = 'mine'"
    )[0]
    (tmp_path / mine).write_bytes(data)
    (tmp_path / other).write_bytes(b"somebody else's")

    published = blobs.publish(file, tmp_path, AT)

    assert (published.names, published.pending) == ((mine,), (other,))
    assert (tmp_path / other).read_bytes() == b"somebody else's"
    errors = dict(
        file.rows("SELECT session_id, last_publish_error FROM session_transcript_archives")
    )
    assert errors["mine"] is None
    assert "does not hold what its row says" in errors["other"]


def test_at_most_four_that_an_earlier_run_left_are_made_up_for(
    file: SQLiteFile, tmp_path: Path
) -> None:
    earlier = [insert(file, tmp_path, f"s{n}", AT + timedelta(seconds=n)) for n in range(6)]
    fresh = insert(file, tmp_path, "fresh", AT + timedelta(hours=1))

    published = blobs.publish(file, tmp_path, AT, [fresh])

    assert published.names == (*earlier[:4], fresh)
    assert published.pending == tuple(earlier[4:])


def test_the_same_generation_with_other_lines_is_refused(file: SQLiteFile, tmp_path: Path) -> None:
    name = insert(file, tmp_path, "one")

    assert insert(file, tmp_path, "one", AT + timedelta(days=1)) == name
    with pytest.raises(StoreUnreadable, match="was archived before"), file.removing():
        blobs.insert(file, tmp_path, "one", "k", GENERATION, "deleted", AT, lambda: iter([b"{}"]))


def holding(name: str, *, has_row: bool = True, path: Path | None = Path("x")) -> Holding:
    told = read_name(name)
    assert told is not None
    return Holding(name=told, path=path, byte_count=1, has_row=has_row)


def test_only_what_is_strictly_older_goes_oldest_first_and_nothing_pending() -> None:
    day = timedelta(days=1)
    at = [name_of(f"s{n}", "deleted", AT - n * day, compressed=False) for n in range(5)]
    pending = holding(name_of("p", "deleted", AT - 9 * day, compressed=False), path=None)
    backup = holding("old.jsonl.bak.2020-01-01T00-00-00Z", has_row=False)

    chosen = retention.expired([*map(holding, at), pending, backup], 2 * day, AT)

    assert [each.name.stem for each in chosen] == ["s4", "s3"]


def test_one_pass_takes_256_rows_and_any_number_of_plain_files() -> None:
    day = timedelta(days=1)
    names = [name_of(f"s{n}", "deleted", AT - n * day, compressed=False) for n in range(300)]
    with_rows = [holding(name) for name in names]
    plain = [holding(name, has_row=False) for name in names]

    assert len(retention.expired(with_rows, timedelta(0), AT + day)) == 256
    assert len(retention.expired(plain, timedelta(0), AT + day)) == 300


def test_the_row_of_an_archive_goes_after_its_file_and_stays_if_the_file_does(
    file: SQLiteFile, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    name = insert(file, folder, "one")
    unpublished = holding(name, path=folder / name)

    assert retention.remove(file, unpublished) is False
    blobs.publish(file, folder, AT, [name])
    with pytest.raises(ArchiveUnwritable, match="cannot be removed"):
        retention.remove(file, holding(name, path=folder))
    assert len(file.rows("SELECT 1 FROM session_transcript_archives")) == 1

    assert retention.remove(file, holding(name, path=folder / name)) is True
    assert list(folder.iterdir()) == []
    assert file.rows("SELECT 1 FROM session_transcript_archives") == []


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(minutes=90)),
        ("7", timedelta(days=7)),
        (" 2D ", timedelta(days=2)),
        ("0.5h", timedelta(minutes=30)),
    ],
)
def test_durations_are_read_as_the_vendor_spells_them(text: str, length: timedelta) -> None:
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "soon", "1w", "-1d", "1h 30m", "9" * 30, "\u0661d"])
def test_a_wrong_duration_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("1kb", 1024), ("1.5 K", 1536), ("2GB", 2 * 1024**3), ("1t", 1024**4), ("9b", 9)],
)
def test_sizes_are_of_1024(text: str, count: int) -> None:
    assert size(text) == count


def test_a_limit_is_switched_off_with_zero_or_false() -> None:
    assert [limit_of_space(text) for text in ("0", "false", "1")] == [None, None, 1]
    with pytest.raises(UsageError, match="is no size"):
        limit_of_space("many")
