"""Checks a Steadfast permit with PyPI `cwt`: signature, names, both clocks, and that it was made out for these bytes.

    pip install cwt
    verify_permit.py --keys public.json --token permit.cwt --issuer GUARD --audience ME \
        --instruction FILE --image FILE --plan FILE

Exit status: 0 the plan may run once, 1 it must not. What it leaves to you: remember each nonce, printed on success,
and refuse it the second time. The layout is in the documentation of `permit::claims`.
"""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

import cwt

BYTES_MAX = 1536
LIFETIME_S_MAX = 600
PLAN, INSTRUCTION, IMAGE, TRIPLE, BOOT_ID, DEADLINE = -70001, -70002, -70003, -70004, -70008, -70009


class Refused(Exception):
    """The plan must not run."""


def need(met, why):
    if not met:
        raise Refused(why)


def read_keys(path):
    """The keys of a JWK set, with the key ids as the bytes they stand for, and the two dates of those retired."""
    keys, retired = [], {}
    for jwk in json.loads(Path(path).read_text())["keys"]:
        kid = bytes.fromhex(jwk["kid"])
        dates = jwk.pop("retired_unix_s", None), jwk.pop("permits_until_unix_s", None)
        retired[kid] = dates if None not in dates else None
        key = cwt.COSEKey.from_jwk({name: value for name, value in jwk.items() if name != "kid"})
        keys.append(cwt.COSEKey.new({**key.to_dict(), 2: kid}))
    return keys, retired


def verify(token, keys, retired, issuer, audience, parts, same_machine=True):
    """The claims, if the plan may run here and now; raises otherwise."""
    need(len(token) <= BYTES_MAX, "too large")
    message = cwt.COSEMessage.loads(token)
    need(message.protected.get(1) == -8 and not message.unprotected, "not EdDSA, or unprotected headers")
    # By default this library takes a permit for a minute after it has expired, and a leeway of 0 it refuses to be
    # given. So it gets the smallest, and the expiry is compared again below.
    claims = cwt.CWT.new(leeway=1).decode(token, keys)
    need(claims[1] == issuer, "another issuer")
    need(claims[3] == audience, "another audience")
    need(claims[4] - claims[6] <= LIFETIME_S_MAX, "lives too long")
    need(claims[6] <= time.time() < claims[4], "expired, or not yet valid")
    if retired[message.protected[4]]:
        retired_unix_s, until_unix_s = retired[message.protected[4]]
        need(claims[6] <= retired_unix_s, "signed after its key was retired")
        need(time.time() < until_unix_s + 1, "the overlap of its retired key has ended")
    digests = [hashlib.sha256(part).digest() for part in parts]
    whole = hashlib.sha256(b"steadfast/triple/1\0" + b"".join(digests)).digest()
    need([claims[label] for label in (INSTRUCTION, IMAGE, PLAN, TRIPLE)] == [*digests, whole], "another triple")
    if same_machine:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        need(claims[BOOT_ID].hex() == boot_id, "another boot")
        need(time.clock_gettime_ns(time.CLOCK_BOOTTIME) < claims[DEADLINE], "past its deadline")
    return claims


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("keys", "token", "issuer", "audience", "instruction", "image", "plan"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--elsewhere", action="store_true", help="this is not the guard's machine: wall clock only")
    args = parser.parse_args()
    parts = [Path(path).read_bytes() for path in (args.instruction, args.image, args.plan)]
    try:
        token = Path(args.token).read_bytes()
        claims = verify(token, *read_keys(args.keys), args.issuer, args.audience, parts, not args.elsewhere)
    except Exception as error:  # Whatever goes wrong, the plan does not run.
        print(f"refused: {error or type(error).__name__}")
        return 1
    print("permit, nonce", claims[7].hex())
    return 0


if __name__ == "__main__":
    sys.exit(main())
