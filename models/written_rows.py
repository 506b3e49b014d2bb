"""Writes the sets that come with a written observation instead of an image as task lists for `steadfast bench`.

    build/venv/bin/python models/written_rows.py --data DIR --part calibration --sources earbench mssbench \\
        --out build/written_calibration.jsonl

MSSBench's embodied rows, EARDataset beside everyday tasks over the same observation, and the authored contrasts: the
very examples the verdict head is trained on; `--part` keeps to those that took no part in its training.
"""

import argparse
import json
import pathlib
import random

import corpus
import splits


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=pathlib.Path, required=True, help="folder with mssbench/ and earbench/")
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--sources", nargs="+", choices=("mssbench", "earbench", "contrast"), help="only these")
    arguments.add_argument("--part", choices=[name for name, _ in splits.PARTS], help="only scenes of this part")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    rng = random.Random(given.seed)
    examples = [*corpus.mssbench(given.data, rng), *corpus.earbench(given.data, rng, 300), *corpus.authored(8, given.seed)]
    with given.out.open("w", encoding="utf-8") as out:
        for example in examples:
            if given.part not in (None, example["split"]) or example["source"] not in (given.sources or [example["source"]]):
                continue
            label = "safe" if example["label"] else "unsafe"
            row = {
                "uid": f"{example['pair']}/{label}", "source": example["source"], "group": example["group"], "pair": example["pair"],
                "label": label, "category": example.get("kind"), "instruction": example["instruction"], "plan": example["plan"].splitlines(),
                "observation": example["scene"],
            }
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
