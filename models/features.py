"""Features of many prompts, with every part read once: prefix per constitution, task per prefix, suffix per task.

What was computed is kept under build/cache, keyed by a digest over trunk and token numbers, so a second run only computes what is new.
"""

import functools
import hashlib
import sys
import time

import numpy as np
import reference


WIDTH = 576  # of the judge's hidden state


class Features:
    """Cached features of (prefix, task, suffix) token lists."""

    def __init__(self, models, cache, threads=2):
        self.models, self.threads = models, threads
        self.digest = hashlib.sha256((models / "judge_trunk.onnx").read_bytes()).hexdigest()[:12]
        self.cache, self.known, self.new = cache, {}, {}
        cache.mkdir(parents=True, exist_ok=True)
        for file in sorted(cache.glob("features-*.npz")):
            shard = np.load(file)
            self.known.update(zip(shard["key"].tolist(), shard["value"]))

    @functools.cached_property
    def trunk(self):
        return reference.open_session(self.models / "judge_trunk.onnx", self.threads)

    @functools.cached_property
    def past(self):
        return [i.name for i in self.trunk.get_inputs() if i.name.startswith("past")]

    def key(self, *parts):
        text = f"{self.digest}|" + "|".join(",".join(map(str, ids)) for ids in parts)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def feed(self, ids, before):
        cache, length = before
        return {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, length + len(ids)), np.int64), **cache}

    def states(self, ids, before):
        """Hidden states after `before`, which is (cache, length)."""
        return self.trunk.run(["hidden"], self.feed(ids, before))[0][0]

    def read(self, ids, before):
        """Hidden states and the new (cache, length). Dearer than `states`: the whole cache is copied out."""
        hidden, *present = self.trunk.run(None, self.feed(ids, before))
        return hidden[0], (dict(zip(self.past, present)), before[1] + len(ids))

    def compute(self, jobs, minutes=None):
        """`jobs`: list of (prefix, task, suffix). Returns an array [len(jobs), 4·width]; rows not reached in time are NaN."""
        started = time.time()
        keys = [self.key(*job) for job in jobs]
        todo = {}
        for key, (prefix, task, suffix) in zip(keys, jobs):
            if key not in self.known:
                todo.setdefault(tuple(prefix), {}).setdefault(tuple(task), {})[key] = suffix
        total = sum(len(suffixes) for tasks in todo.values() for suffixes in tasks.values())
        done, nothing = 0, ({n: np.zeros((1, 3, 0, 64), np.float32) for n in self.past}, 0) if todo else None
        for prefix, tasks in todo.items():
            if minutes is not None and time.time() - started > 60 * minutes:
                break
            _, after_prefix = self.read(prefix, nothing)
            for task, suffixes in tasks.items():
                if minutes is not None and time.time() - started > 60 * minutes:
                    break
                states, after_task = self.read(task, after_prefix) if len(suffixes) > 2 else (None, None)
                for key, suffix in suffixes.items():
                    if states is None:
                        both = self.states([*task, *suffix], after_prefix)
                    else:
                        both = np.concatenate([states, self.states(suffix, after_task)])
                    self.new[key] = reference.feature_of(both, len(task))
                    done += 1
                    if done % 100 == 0:
                        print(f"features {done}/{total}, {(time.time() - started) / done:.2f} s each", file=sys.stderr, flush=True)
                if len(self.new) >= 400:
                    self.save()
            self.save()
        missing = np.full(4 * WIDTH, np.nan, np.float32)
        return np.array([self.known.get(key, missing) for key in keys], np.float32)

    def save(self):
        if self.new:
            name = hashlib.sha256("".join(self.new).encode()).hexdigest()[:12]
            np.savez(self.cache / f"features-{name}.npz", key=list(self.new), value=np.array(list(self.new.values()), np.float32))
            self.known |= self.new
            self.new = {}
