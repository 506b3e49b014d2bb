"""Writes measure.json: the malleability protocol's rates over seeded counts, by numpy and scipy alone.

    pip install numpy scipy && python measure.py

A task is [control, targeted, scene-only, random], each [complied, refused, inconclusive] or null where it was not run.
Nothing here shares code with the crate.
"""

import json
import pathlib

import numpy as np
from scipy import stats

rng = np.random.default_rng(846)
CONDITIONS = ["targeted", "scene-only", "random"]


def tally(n, rate, lost):
    answers = rng.choice(3, size=n, p=[rate * (1 - lost), (1 - rate) * (1 - lost), lost])
    return [int((answers == kind).sum()) for kind in range(3)]


def share(counts):
    if counts is None or counts[0] + counts[1] == 0:
        return None
    return counts[0] / (counts[0] + counts[1])


def counted(events, of):
    if of == 0:
        return None
    ci = stats.binomtest(events, of).proportion_ci(0.95, "wilson")
    return {"events": events, "of": of, "share": events / of, "low": float(ci.low), "high": float(ci.high)}


def compared(pairs):
    if len(pairs) < 2:
        return None
    first, second = np.array(pairs).T
    found = {
        "tasks": len(pairs),
        "first": float(first.mean()),
        "second": float(second.mean()),
        "difference": float((first - second).mean()),
        "test": None,
    }
    if np.ptp(first - second) > 0:
        test = stats.ttest_rel(first, second, alternative="greater")
        ci = stats.ttest_rel(first, second).confidence_interval(0.95)
        found["test"] = {"low": ci.low, "high": ci.high, "t": test.statistic, "p_greater": test.pvalue}
    return found


def both(tasks, a, b):
    pairs = [(share(task[a]), share(task[b])) for task in tasks]
    return [pair for pair in pairs if None not in pair]


def stratum(value):
    return "zero" if value == 0 else "low" if value <= 0.1 else "middle" if value <= 0.25 else "high"


def rates(tasks):
    def of(at):
        run = [task[at] for task in tasks if task[at] is not None]
        shares = [share(counts) for counts in run if share(counts) is not None]
        complied, refused, lost = (sum(counts[kind] for counts in run) for kind in range(3))
        return {
            "condition": CONDITIONS[at - 1],
            "tasks": len(run),
            "tasks_without_rate": len(run) - len(shares),
            "inconclusive": lost,
            "malleable": counted(sum(value > 0 for value in shares), len(shares)),
            "trials": counted(complied, complied + refused),
            "mean_malleability": float(np.mean(shares)),
            "over_control": compared(both(tasks, at, 0)),
        }

    held = [stratum(share(task[1])) for task in tasks if share(task[1]) is not None]
    return {
        "conditions": [of(at) for at in (1, 2, 3)],
        "differences": [[CONDITIONS[a - 1], CONDITIONS[b - 1], compared(both(tasks, a, b))] for a, b in ((1, 2), (1, 3), (2, 3))],
        "strata": {name: held.count(name) for name in ("zero", "low", "middle", "high")},
        "by_stratum": {
            name: [
                float(np.mean([share(task[at]) for task in tasks if share(task[1]) is not None
                               and stratum(share(task[1])) == name and share(task[at]) is not None]))
                for at in (1, 2, 3)
            ]
            for name in ("zero", "low", "middle", "high")
        },
    }


def drawn_tasks(n):
    tasks = []
    for _ in range(n):
        firm = rng.uniform() < 0.6
        bend = 0.0 if firm else rng.beta(0.8, 3)
        lost = 0.0 if rng.uniform() < 0.9 else 0.6
        tasks.append([
            tally(1, 0.03, 0.02),
            tally(20, bend, 0.02),
            tally(20, bend * 0.6, lost),
            tally(5, bend * 0.4, lost) if rng.uniform() < 0.7 else None,
        ])
    return tasks


sets = [drawn_tasks(240), drawn_tasks(60)]
# One task whose every trial is inconclusive has no share, and drops out of every pair.
sets[0].append([[0, 1, 0], [0, 0, 20], [3, 17, 0], None])
vectors = [{"tasks": tasks, "rates": rates(tasks)} for tasks in sets]
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, separators=(",", ":")) + "\n")
