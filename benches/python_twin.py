#!/usr/bin/env python3
"""One whole check the straightforward way, to measure the daemon against: onnxruntime, Pillow and numpy.

Sequential, nothing shared: every copy of the image goes through both eyes and reads the whole prompt again, constitution included.

    python benches/python_twin.py --models DIR --head models/verdict_head.json --image tests/data/coffee.png \
        --constitution config/constitution.toml --instruction TEXT --plan TEXT [--checks 3]

Prints one JSON line: seconds_p50, seconds of each check, margin, spread, reliance.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "models"))
import corpus
import perturb
import reference


def working_image(path):
    """Pillow's bilinear filter is the working image's triangle filter, up to 1 of 255."""
    image = Image.open(path).convert("RGB").resize((reference.SIDE, reference.SIDE), Image.Resampling.BILINEAR)
    return np.asarray(image)


def check(proxy, arguments, constitution):
    """Clean margin, margin without the constitution, twenty perturbed margins."""
    image = working_image(arguments.image)
    rng = np.random.default_rng(0)

    def margin(pixels, rules):
        return proxy.margin(arguments.instruction, arguments.plan, proxy.sentence(pixels), rules)

    clean = margin(image, constitution)
    reliance = margin(image, None) - clean
    copies = [margin(perturb.copy(image, rng, index), constitution) for index in range(perturb.COPIES)]
    return clean, statistics.stdev(copies), reliance


def main():
    parser = argparse.ArgumentParser(description="Time a whole check in plain Python.")
    parser.add_argument("--models", required=True, type=pathlib.Path)
    parser.add_argument("--head", required=True, type=pathlib.Path)
    parser.add_argument("--image", required=True, type=pathlib.Path)
    parser.add_argument("--constitution", required=True, type=pathlib.Path, help="constitution.toml, or a text file with the prompt text")
    parser.add_argument("--instruction", default="Bring the cup to the sink.")
    parser.add_argument("--plan", default="1. Grasp the cup\n2. Carry the cup to the sink\n3. Put the cup down")
    parser.add_argument("--checks", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    proxy = reference.CompactProxy(arguments.models, arguments.head, arguments.threads)
    if arguments.constitution.suffix == ".toml":
        constitution = corpus.render(*corpus.constitution(arguments.constitution))
    else:
        constitution = arguments.constitution.read_text(encoding="utf-8")
    seconds = []
    for _ in range(arguments.checks):
        started = time.perf_counter()
        clean, spread, reliance = check(proxy, arguments, constitution)
        seconds.append(round(time.perf_counter() - started, 4))
    print(json.dumps({"seconds_p50": statistics.median(seconds), "seconds": seconds, "margin": clean, "spread": spread, "reliance": reliance}))


if __name__ == "__main__":
    main()
