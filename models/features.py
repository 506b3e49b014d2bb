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


class Examples:
    """Features of examples: `task` [all units, 2·width] with each example's units from `start` on, `suffix` [examples, 2·width]."""

    def __init__(self, parts):
        self.parts = parts
        units = [len(part) - 1 for part in parts]
        self.task, self.suffix = np.vstack([part[:-1] for part in parts]), np.array([part[-1] for part in parts])
        self.start = np.concatenate([[0], np.cumsum(units)[:-1]]).astype(int)
        self.owner = np.repeat(np.arange(len(parts)), units)

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, chosen):
        return Examples([self.parts[i] for i in np.arange(len(self.parts))[chosen]])


class Features:
    """Cached features of (prefix, task, suffix) token lists."""

    def __init__(self, models, cache, threads=2):
        self.models, self.threads = models, threads
        self.digest = hashlib.sha256((models / "judge_trunk.onnx").read_bytes()).hexdigest()[:12]
        self.cache, self.known, self.new = cache, {}, {}
        cache.mkdir(parents=True, exist_ok=True)
        for file in sorted(cache.glob("features-*.npz")):
            shard = np.load(file)
            rows = np.split(shard["rows"], np.cumsum(shard["count"])[:-1])
            self.known.update(zip(shard["key"].tolist(), rows))

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
        """`jobs`: list of (prefix, task, suffix). Returns for each [units + 1, 2·width], the task's rows and then the suffix's; None where
        the time did not suffice."""
        started = time.time()
        keys = [self.key(prefix, task.tokens, suffix) for prefix, task, suffix in jobs]
        todo = {}
        for key, (prefix, task, suffix) in zip(keys, jobs):
            if key not in self.known:
                todo.setdefault(tuple(prefix), {}).setdefault(tuple(task.tokens), (task, {}))[1][key] = suffix
        total = sum(len(suffixes) for tasks in todo.values() for _, suffixes in tasks.values())
        done, nothing = 0, ({n: np.zeros((1, 3, 0, 64), np.float32) for n in self.past}, 0) if todo else None
        for prefix, tasks in todo.items():
            if minutes is not None and time.time() - started > 60 * minutes:
                break
            _, after_prefix = self.read(prefix, nothing)
            for task, suffixes in tasks.values():
                if minutes is not None and time.time() - started > 60 * minutes:
                    break
                length = len(task.tokens)
                states, after_task = self.read(task.tokens, after_prefix) if len(suffixes) > 2 else (None, None)
                for key, suffix in suffixes.items():
                    if after_task is None:
                        both = self.states([*task.tokens, *suffix], after_prefix)
                        states, seen = both[:length], both[length:]
                    else:
                        seen = self.states(suffix, after_task)
                    self.new[key] = np.vstack([reference.task_rows(states, task), reference.suffix_row(seen)])
                    done += 1
                    if done % 100 == 0:
                        print(f"features {done}/{total}, {(time.time() - started) / done:.2f} s each", file=sys.stderr, flush=True)
                if len(self.new) >= 400:
                    self.save()
            self.save()
        return [self.known.get(key) for key in keys]

    def save(self):
        if self.new:
            name = hashlib.sha256("".join(self.new).encode()).hexdigest()[:12]
            np.savez(self.cache / f"features-{name}.npz", key=list(self.new), count=[len(r) for r in self.new.values()],
                     rows=np.vstack(list(self.new.values())).astype(np.float32))
            self.known |= self.new
            self.new = {}
