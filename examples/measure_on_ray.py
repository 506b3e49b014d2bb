#!/usr/bin/env python3
"""Runs `steadfast measure` or `steadfast assess` over a list that outgrows a machine, as a stage of Ray Data.

    measure_on_ray.py --tasks tasks.csv --images PHOTOS --out runs/planner --rows 500 --address auto \
        --last '--condition targeted --discriminator reader.toml' -- \
        steadfast --config steadfast.toml measure --target planner.toml --proposer proposer.toml --condition random

The list (CSV or JSON lines, without pairs) is cut into parts. On whatever node has room, each part runs with the
command after `--` in a folder of its own, OUT/parts/NUMBER, so that no lock need hold between machines; all must see
the same folders under the same paths. What a part came to is then linked into OUT, and the command runs once more
here, over the whole list: it finds everything answered, and writes one report. What looks at all tasks together
(further conditions, discriminators, known malleabilities) is given to that last run alone, with --last.

A job that was killed is started again as it was: what was answered is not asked again.
"""

import argparse
import contextlib
import csv
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import ray
import ray.data

# What lies under names that never clash between parts: digests of questions and of uids.
KEPT = ("calls", "units/refusals", "examples")


def cut(tasks, folder, rows):
    """Writes the list as lists of so many rows, and gives where they are."""
    csv.field_size_limit(sys.maxsize)
    folder.mkdir(parents=True, exist_ok=True)
    with tasks.open(newline="", encoding="utf-8") as file:
        is_csv = tasks.suffix == ".csv"
        records = csv.reader(file) if is_csv else (line for line in file if line.strip())
        head = list(itertools.islice(records, 1 if is_csv else 0))
        for number in itertools.count():
            if not (batch := list(itertools.islice(records, rows))):
                return
            part = folder / f"{number:05}{tasks.suffix}"
            with part.open("w", newline="", encoding="utf-8") as out:
                csv.writer(out).writerows(head + batch) if is_csv else out.writelines(batch)
            yield part


def stage(row, command, out, here):
    """One part on some node: its own run, then its answers among those of the others."""
    part = Path(row["part"])
    own = part.with_suffix("")
    done = subprocess.run([*command, "--tasks", part, "--out", own], cwd=here, capture_output=True, text=True)
    if done.returncode == 0:
        for path in itertools.chain.from_iterable((own / kept).rglob("*.*") for kept in KEPT):
            if path.suffix in (".json", ".png"):
                to = out / path.relative_to(own)
                to.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.link(path, to)
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    node = ray.get_runtime_context().get_node_id()
    return {"part": part.stem, "node": node, "failed": done.returncode != 0, "said": said[-1] if said else ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--images", type=Path, help="where the list's image paths start; needed where it has any")
    parser.add_argument("--rows", type=int, default=500, help="tasks a part")
    parser.add_argument("--cpus", type=float, default=1, help="processors a part takes; less than one is allowed")
    parser.add_argument("--address", help="the cluster, or auto; without it Ray runs on this machine alone")
    parser.add_argument("--last", default="", help="options of the last run, over the whole list")
    parser.add_argument("command", nargs="+", help="steadfast … measure or assess, without --tasks, --images and --out")
    given = parser.parse_args()
    tasks, out, here = given.tasks.resolve(), given.out.resolve(), os.getcwd()
    # A part's list has a name of its own, which must not become that of the tasks' source.
    command = [*given.command, "--source", tasks.stem]
    command += ["--images", str(given.images.resolve())] if given.images else []
    parts = list(cut(tasks, out / "parts", given.rows))
    if not parts:
        sys.exit(f"{tasks} lists no tasks")

    ray.init(address=given.address, log_to_driver=False)
    rows = ray.data.from_items([{"part": str(part)} for part in parts], override_num_blocks=len(parts))
    failed = 0
    for done in rows.map(stage, fn_args=(command, out, here), num_cpus=given.cpus).iter_rows():
        failed += done["failed"]
        print(f"part {done['part']} on {done['node'][:12]}: {done['said']}", flush=True)
    ray.shutdown()
    if failed:
        sys.exit(f"{failed} of {len(parts)} parts are not done; the same command goes on from there")

    # The readings of `assess` are one file a run, in the order of the list.
    readings = out / "predictions.jsonl"
    if not readings.exists() and parts[0].with_suffix("").joinpath(readings.name).exists():
        with (whole := out / "predictions.partial").open("wb") as file:
            for part in parts:
                with part.with_suffix("").joinpath(readings.name).open("rb") as own:
                    shutil.copyfileobj(own, file)
        whole.rename(readings)
    last = [*command, *shlex.split(given.last), "--tasks", tasks, "--out", out]
    sys.exit(subprocess.run(last).returncode)


if __name__ == "__main__":
    main()
