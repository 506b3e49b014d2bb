"""The digest of constitution_small.toml, from the description of the canonical form alone.

Run: python3 tests/reference/constitution_digest.py > tests/reference/constitution_small.sha256   (Python 3.11)
"""
import hashlib
import pathlib
import struct
import tomllib

parsed = tomllib.loads((pathlib.Path(__file__).parent / "constitution_small.toml").read_text())


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def texts(values):
    return struct.pack("<Q", len(values)) + b"".join(map(text, values))


def number(value):
    return b"\0" if value is None else b"\1" + struct.pack("<d", value)


robot = parsed["robot"]
canonical = b"steadfast/constitution/1\0" + text(robot["base"]) + bytes([robot["arms"], robot["arm_dof"]])
canonical += text(robot["gripper"])
canonical += b"".join(number(robot[key]) for key in ("payload_kg", "reach_m", "lift_height_m", "speed_m_per_s"))
canonical += texts(robot["cannot"]) + struct.pack("<Q", len(parsed["rule"]))
for rule in parsed["rule"]:
    limit = rule.get("limit", {})
    canonical += struct.pack("<H", rule["number"]) + text(rule["category"]) + text(rule["text"])
    canonical += bytes([rule["severity"], rule["likelihood"]]) + text(rule["source"])
    canonical += b"".join(
        number(limit.get(key)) for key in ("payload_kg_max", "reach_m_max", "height_m_max", "speed_m_per_s_max")
    )
    canonical += b"".join(
        texts(limit.get(key, [])) for key in ("forbidden_zones", "forbidden_objects", "exempt_phrases")
    )
print(hashlib.sha256(canonical).hexdigest())
