"""Checks vectors.json, and any permit the tests hand over, by two independent libraries: PyPI `cwt` and `pycose`.

Run: python check_vectors.py [vectors.json]   (pip install cwt pycose)
For `cwt` the clock is set to moments around the permits' end. That library refuses to be given a leeway of 0; with the
smallest, 1, a permit is over for it two seconds after its end, so a verifier has to compare the expiry once more.
"""

import json
import sys
import unittest.mock
from datetime import datetime, timezone
from pathlib import Path

import cbor2
import cwt
import cwt.cwt
from pycose.keys import OKPKey
from pycose.messages import Sign1Message

vectors = json.loads(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("vectors.json")).read_text())
public, kid = bytes.fromhex(vectors["public"]), bytes.fromhex(vectors["kid"])


def decode_at(token, unix_s, **kwargs):
    key = cwt.COSEKey.new({1: 1, 2: kid, 3: -8, -1: 6, -2: public})
    with unittest.mock.patch("cwt.cwt.datetime") as clock:
        clock.now.return_value = datetime.fromtimestamp(unix_s, timezone.utc)
        return cwt.CWT.new(**kwargs).decode(token, [key])


def alive_at(token, unix_s, **kwargs):
    try:
        decode_at(token, unix_s, **kwargs)
        return True
    except cwt.VerifyError:
        return False


for name in ("permit", "release"):
    token = bytes.fromhex(vectors[name])
    claims = decode_at(token, 1_800_000_029, leeway=1)
    end = claims[4]
    assert alive_at(token, end - 1, leeway=1), name
    assert not alive_at(token, end + 2, leeway=1), name
    assert alive_at(token, end + 30), "the library's own default still has the leeway this script warns of"

    message = Sign1Message.decode(token)
    message.key = OKPKey(crv="Ed25519", x=public)
    assert message.verify_signature(), name
    assert cbor2.loads(message.payload) == claims, name
    assert cbor2.dumps(claims, canonical=True) == message.payload, name
    for bit in range(8 * len(token)):
        flipped = bytearray(token)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            message = Sign1Message.decode(bytes(flipped))
            message.key = OKPKey(crv="Ed25519", x=public)
            # An unprotected header may be added by a flip without touching what is signed; our verifiers refuse it.
            fits = message.verify_signature() and not message.uhdr
        except Exception:
            continue
        assert not fits, f"{name}: bit {bit}"
print("2 passed, 0 failed")
