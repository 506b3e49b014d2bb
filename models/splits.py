"""Who may learn from which row: 70 % training, 15 % calibration, 15 % test, by a hash of the row's source and scene.

The hash is over text alone, so a row keeps its part when rows are added, and every row of one scene falls into one part.
"""

import hashlib

PARTS = (("train", 70), ("calibration", 85), ("test", 100))


def part(source, group):
    """`train`, `calibration` or `test` for a scene of a source."""
    digest = hashlib.sha256(f"{source}\n{group}".encode()).digest()
    percentile = int.from_bytes(digest[:4], "big") * 100 >> 32
    return next(name for name, end in PARTS if percentile < end)


def fold(source, group, folds):
    """Cross-validation fold of a scene, independent of its part."""
    digest = hashlib.sha256(f"fold\n{source}\n{group}".encode()).digest()
    return int.from_bytes(digest[:4], "big") * folds >> 32
