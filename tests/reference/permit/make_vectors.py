"""Writes vectors.json: two permits made without any of our Rust code, by cbor2 and cryptography's Ed25519.

Run: python make_vectors.py > vectors.json   (pip install cbor2 cryptography)
Ed25519 is deterministic and a permit has one encoding, so the Rust code must arrive at the same bytes.
"""

import hashlib
import json

import cbor2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED = hashlib.sha256(b"steadfast permit vector").digest()
PARTS = [b"bring the mug to the table", bytes(range(256)), "1. pick up the mug\n2. put it on the table".encode()]


def sha256(data):
    return hashlib.sha256(data).digest()


def main():
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    public = key.public_key().public_bytes_raw()
    kid = sha256(public)[:8]
    instruction, image, plan = map(sha256, PARTS)
    claims = {
        1: "steadfast-test",
        3: "arm-1",
        4: 1_800_000_030,
        6: 1_800_000_000,
        7: bytes(range(16)),
        -70000: 1,
        -70001: plan,
        -70002: instruction,
        -70003: image,
        -70004: sha256(b"steadfast/triple/1\0" + instruction + image + plan),
        -70005: sha256(b"constitution"),
        -70006: sha256(b"proxy"),
        -70007: sha256(b"calibration"),
        -70008: bytes(range(0x10, 0x20)),
        -70009: 5_000_000_000 + 30_500_000_000,
        -70010: "check-1",
    }
    release = {-70011: "malleable", -70012: "uid 1000", -70013: "the blade is a toy, seen on site"}
    header = cbor2.dumps({1: -8, 4: kid}, canonical=True)

    def token(claims):
        payload = cbor2.dumps(claims, canonical=True)
        signature = key.sign(cbor2.dumps(["Signature1", header, b"", payload], canonical=True))
        return cbor2.dumps(cbor2.CBORTag(18, [header, {}, payload, signature]), canonical=True)

    vectors = {
        "seed": SEED.hex(),
        "public": public.hex(),
        "kid": kid.hex(),
        "instruction": PARTS[0].hex(),
        "image": PARTS[1].hex(),
        "plan": PARTS[2].hex(),
        "permit": token(claims).hex(),
        "release": token({**claims, **release}).hex(),
    }
    print(json.dumps(vectors, indent=1))


if __name__ == "__main__":
    main()
