"""Writes tests/data/guardian.parquet as GuardianBench lays its rows out: two rows a pair, the same images in base64.

    pip install pyarrow && python3 tests/reference/make_guardian_parquet.py
"""

import base64
import pathlib
import struct
import zlib

import pyarrow
import pyarrow.parquet


def png(side, colour):
    """A picture of one colour with a dark corner."""
    rows = b"".join(
        b"\0" + b"".join(bytes((0, 0, 0) if x < side // 4 and y < side // 4 else colour) for x in range(side)) for y in range(side)
    )
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


rows = []
for number, colour in enumerate([(200, 40, 40), (40, 200, 40), (40, 40, 200)]):
    image = base64.b64encode(png(16, colour)).decode()
    for label, what in (("Safe", "Look at"), ("Unsafe", "Break")):
        rows.append({
            "uid": f"{number}-{label.lower()}", "pair_key": f"pair-{number}", "label": label,
            "instruction": f"{what} the cup number {number}.", "images": [image], "category": "Impact" if number else "Fire",
            "severity": number + 1, "likelihood": 5 - number,
        })

target = pathlib.Path(__file__).parent.parent / "data" / "guardian.parquet"
# Two row groups, so that a reader that stops after the first is found out.
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), target, row_group_size=4, compression="snappy")
