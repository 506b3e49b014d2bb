"""Writes the seeds that are not text, and those that are text over ours: python make_seeds.py (standard library only).

The other seeds under corpus/ are text and were written by hand.
"""

import base64
import json
import pathlib
import struct
import zlib

HERE = pathlib.Path(__file__).parent
CORPUS = HERE / "corpus"


def png(width, height, colour, depth, rows, extra=b""):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def images():
    yield "rgb.png", png(2, 2, 2, 8, [b"\x10\x20\x30\x40\x50\x60"] * 2)
    yield "grey.png", png(3, 1, 0, 8, [b"\x00\x80\xff"])
    yield "opaque.png", png(1, 2, 6, 8, [b"\x01\x02\x03\xff"] * 2)
    palette = b"\x00\x00\x00\xff\xff\xff"
    chunk = struct.pack(">I", len(palette)) + b"PLTE" + palette + struct.pack(">I", zlib.crc32(b"PLTE" + palette))
    yield "palette.png", png(4, 4, 3, 1, [b"\xa0"] * 4, chunk)


def pad(out, to):
    return out + b"\0" * (-len(out) % to)


def call(image, instruction, plan, options, order="<"):
    """The body of CheckInline, (ayssa{sv}), as D-Bus lays it out."""

    def text(out, value):
        value = value.encode()
        return pad(out, 4) + struct.pack(order + "I", len(value)) + value + b"\0"

    out = struct.pack(order + "I", len(image)) + image
    out = text(text(out, instruction), plan)
    out = pad(out, 4)
    length_at = len(out)
    out = pad(out + b"\0" * 4, 8)
    begin = len(out)
    for name, kind, value in options:
        out = text(pad(out, 8), name) + bytes([len(kind)]) + kind.encode() + b"\0"
        if kind == "s":
            out = text(out, value)
        elif kind in "ut":
            out = pad(out, {"u": 4, "t": 8}[kind]) + struct.pack(order + {"u": "I", "t": "Q"}[kind], value)
    out = out[:length_at] + struct.pack(order + "I", len(out) - begin) + out[length_at + 4 :]
    return (b"\0" if order == "<" else b"\1") + out


def options():
    every = [
        ("plan_id", "s", "p-1"),
        ("planner", "s", "vlm"),
        ("audience", "s", "arm"),
        ("image_stamp_ns", "t", 5),
        ("deadline_ms", "u", 700),
    ]
    yield "every", call(b"\xff\xd8", "Bring the cup.", "1. Grasp the cup", every)
    yield "every_big_endian", call(b"\xff\xd8", "Bring the cup.", "1. Grasp the cup", every, ">")
    yield "none", call(b"", "", "", [])
    yield "unknown", call(b"\x89", "a", "b", [("deadline", "u", 1)])
    yield "twice", call(b"\x89", "a", "b", [("planner", "s", "a"), ("planner", "s", "b")])
    yield "wrong_type", call(b"\x89", "a", "b", [("deadline_ms", "t", 1)])
    yield "long", call(b"\x89", "a", "b", [("audience", "s", "x" * 129)])


def permits():
    vectors = json.loads((HERE / "../tests/reference/permit/vectors.json").read_text())
    for name in ("permit", "release"):
        token = bytes.fromhex(vectors[name])
        yield name, b"t" + token
        # COSE_Sign1: tag, array of 4, protected header as bytes, empty map, payload as bytes, signature.
        at = 2 + 1 + token[2] - 0x40 + 1
        length, start = (token[at + 1], at + 2) if token[at] == 0x58 else (token[at + 1] << 8 | token[at + 2], at + 3)
        yield f"{name}_claims", b"s" + token[start : start + length]
    parts = [bytes.fromhex(vectors[name]) for name in ("instruction", "image", "plan")]
    yield "parts", b"p" + b"|".join(parts)
    x = base64.urlsafe_b64encode(bytes.fromhex(vectors["public"])).decode().rstrip("=")
    key = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": vectors["kid"], "x": x}
    yield "keys", b"k" + json.dumps({"keys": [key]}).encode()


def configurations():
    for target, file in [("config", "steadfast"), ("constitution", "constitution"), ("calibration", "calibration")]:
        text = (HERE / f"../config/{file}.toml").read_text()
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if target == "constitution":
            # Robot and two rules, one of them with limits: the whole file is longer than a fuzzer wants.
            blocks = "\n".join(lines).split("[[rule]]")
            limited = next(block for block in blocks[1:] if "limit" in block)
            lines = (blocks[0] + "[[rule]]" + blocks[1] + "[[rule]]" + limited).splitlines()
            numbers = iter((1, 2))
            lines = [f"number = {next(numbers)}" if line.startswith("number") else line for line in lines]
        yield target, "shipped", "\n".join(lines).encode()


def main():
    for target, seeds in [("image", images()), ("options", options()), ("permit", permits())]:
        for name, data in seeds:
            (CORPUS / target / name).write_bytes(data)
    for target, name, data in configurations():
        (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
