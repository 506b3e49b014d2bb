"""Writes signals.json: spreads of seeded margins by numpy.

    pip install numpy && python signals.py
"""

import json
import pathlib

import numpy as np

rng = np.random.default_rng(3)


def spread(clean, deviation, limit):
    copies = np.round(rng.normal(clean, deviation, size=20), 6)
    nats = float(np.std(copies, ddof=1))
    return {
        "clean": clean,
        "copies": copies.tolist(),
        "limit": limit,
        "nats": nats,
        "relative": nats / (nats + abs(clean)),
        # A margin under the limit counts as a refusal.
        "flip_share": float(np.mean((copies < limit) != (clean < limit))),
    }


vectors = {"spread": [spread(0.4, 0.5, 0.0), spread(-3.0, 0.05, 0.0), spread(12.5, 9.0, 2.5), spread(-0.1, 2.0, -0.5)]}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, separators=(",", ":")) + "\n")
