"""Reference values of the resize filters, from Pillow 12.0, which always takes rows first; 13.0 takes columns first for
some shapes, which moves values where a filter overshoots. Usage: python resize.py > resize.json"""

import json
import sys

import PIL
from PIL import Image

from pattern import pattern

SIZES = [(72, 48, 28, 31), (61, 40, 20, 20), (16, 12, 32, 30), (32, 40, 40, 14)]

if __name__ == "__main__":
    cases = []
    for width, height, to_width, to_height in SIZES:
        source = Image.fromarray(pattern(width, height), "RGB")
        for name in ("bilinear", "bicubic", "lanczos"):
            values = source.resize((to_width, to_height), Image.Resampling[name.upper()]).tobytes().hex()
            sizes = {"width": width, "height": height, "to_width": to_width, "to_height": to_height}
            cases.append(sizes | {"filter": name, "values": values})
    json.dump({"made_by": f"Pillow {PIL.__version__}", "cases": cases}, sys.stdout, indent=1)
    print()
