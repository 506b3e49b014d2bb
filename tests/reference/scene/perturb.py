"""Reference digests of the perturbed copies, from an implementation that shares nothing with the Rust one: ChaCha8 and
the five kinds written out in numpy. Also prints the noise table. Usage: python perturb.py > perturb.json"""

import hashlib
import json
import math
import struct
import sys
from statistics import NormalDist

import numpy as np

from pattern import pattern


def chacha8(seed, stream, count):
    """The first `count` keystream bytes; 64-bit block counter, 64-bit stream number, key = seed and zeros."""
    blocks = -(-count // 64)
    counter = np.arange(blocks, dtype=np.uint64)
    low, high = (counter & 0xFFFFFFFF).astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)
    words = list(struct.unpack("<4I", b"expand 32-byte k")) + [seed & 0xFFFFFFFF, seed >> 32] + [0] * 6
    start = [np.full(blocks, w, np.uint32) for w in words] + [low, high]
    start += [np.full(blocks, w, np.uint32) for w in (stream & 0xFFFFFFFF, stream >> 32)]
    s = [w.copy() for w in start]

    def rotate(v, n):
        return (v << np.uint32(n)) | (v >> np.uint32(32 - n))

    def quarter(a, b, c, d):
        s[a] += s[b]; s[d] = rotate(s[d] ^ s[a], 16)
        s[c] += s[d]; s[b] = rotate(s[b] ^ s[c], 12)
        s[a] += s[b]; s[d] = rotate(s[d] ^ s[a], 8)
        s[c] += s[d]; s[b] = rotate(s[b] ^ s[c], 7)

    for _ in range(4):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter(diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4)
    stream_words = np.stack([a + b for a, b in zip(s, start)], axis=1)
    return stream_words.astype("<u4").tobytes()[:count]


def quantiles():
    z = [NormalDist().inv_cdf((128 + i + 0.5) / 256) for i in range(128)]
    scale = math.sqrt(sum(v * v for v in z) / 128)
    return [round(256 * v / scale) for v in z]


def gaussian(image, sigma, seed, index):
    positive = [(sigma * q + 128) >> 8 for q in quantiles()]
    levels = np.array(positive + [-v for v in positive])
    noise = levels[np.frombuffer(chacha8(seed, index, image.size), np.uint8)].reshape(image.shape)
    return np.clip(image.astype(int) + noise, 0, 255).astype(np.uint8)


def place(image, seed, index):
    height, width, _ = image.shape
    w, h = (max(1, (side * 25 + 50) // 100) for side in (width, height))
    u, v = struct.unpack("<2I", chacha8(seed, index, 8))
    x, y = (u * (width - w + 1)) >> 32, (v * (height - h + 1)) >> 32
    return slice(y, y + h), slice(x, x + w)


def box(plane, radius, axis):
    size = 2 * radius + 1
    pad = [(radius, radius) if a == axis else (0, 0) for a in range(2)]
    padded = np.pad(plane, pad, mode="edge")
    length = plane.shape[axis]
    total = sum(np.take(padded, range(k, k + length), axis=axis) for k in range(size))
    return (total + size // 2) // size


def copy(image, seed, index):
    kind, out = index % 5, image.copy()
    if kind < 2:
        return gaussian(image, (8, 24)[kind], seed, index)
    where = place(image, seed, index)
    inside = image[where].astype(int)
    if kind == 2:
        inside[:] = 128
    elif kind == 3:
        inside = (inside * 128 + 255 * 128 + 128) >> 8
    else:
        radius = max(1, min(inside.shape[:2]) // 16)
        for channel in range(3):
            for axis in (1, 0, 1, 0):
                inside[:, :, channel] = box(inside[:, :, channel], radius, axis)
    out[where] = inside
    return out


if __name__ == "__main__":
    print(quantiles(), file=sys.stderr)
    cases = []
    for width, height, seed in [(384, 384, 0x0123456789ABCDEF), (64, 48, 1), (5, 300, 2**64 - 1), (3, 2, 7), (1, 1, 0)]:
        image = pattern(width, height)
        digests = [hashlib.sha256(copy(image, seed, k).tobytes()).hexdigest() for k in range(20)]
        cases.append({"width": width, "height": height, "seed": str(seed), "sha256": digests})
    json.dump(cases, sys.stdout, indent=1)
    print()
