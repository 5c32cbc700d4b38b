"""Zstandard, as OpenClaw writes it: streaming frames, most of them without their content's size.

The library is optional. Without it new archives are plain JSON lines, which OpenClaw reads just
as well, and a compressed one cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib.util import find_spec
from io import BytesIO
from typing import BinaryIO

from ....exceptions import HistoryRetentionError

CHUNK_BYTES = 2**17


class ZstandardMissing(HistoryRetentionError):
    """A compressed text cannot be read here."""


def can_compress() -> bool:
    """Tell whether new archives are compressed."""
    return find_spec("zstandard") is not None


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return the chunks as one zstd frame, piece by piece."""
    from zstandard import ZstdCompressor

    compressor = ZstdCompressor().compressobj()
    for chunk in chunks:
        if piece := compressor.compress(chunk):
            yield piece
    yield compressor.flush()


def decompressed(source: BinaryIO) -> Iterator[bytes]:
    """Stream what a compressed file holds; ZstandardMissing when nothing here can.

    A damaged or cut-off frame raises ValueError.
    """
    try:
        from zstandard import ZstdDecompressor, ZstdError
    except ImportError as error:
        raise ZstandardMissing(
            "This text is compressed with Zstandard, which cannot be read here: run "
            '`python -m pip install "django-history-retention[openclaw]"`.'
        ) from error
    frame = ZstdDecompressor().decompressobj()
    is_whole = True
    try:
        while chunk := source.read(CHUNK_BYTES):
            while chunk:
                if frame.eof:
                    frame = ZstdDecompressor().decompressobj()
                if piece := frame.decompress(chunk):
                    yield piece
                chunk, is_whole = frame.unused_data, frame.eof
    except ZstdError as error:
        raise ValueError(str(error)) from error
    if not is_whole:
        raise ValueError("it ends in the middle of a frame")


def decompressed_bytes(data: bytes) -> bytes:
    """Return the whole of a compressed value; raises as ``decompressed`` does."""
    with closing(BytesIO(data)) as source:
        return b"".join(decompressed(source))
