#!/usr/bin/env python3
"""Trains the verdict head and writes every figure of the model card.

    python models/train_head.py --data DIR --models DIR --out models/verdict_head.json

The judge stays frozen. Objective (VLOS): binary cross-entropy on the verdict log-odds, pushing safe triples up and unsafe ones down;
`--sides` leaves one side out for the ablation. The penalty is chosen by grouped cross-validation inside the training part alone. Figures
go to models/metrics.json; nothing in the model card is typed by hand.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import sys
import warnings

import corpus
import features
import figures
import numpy as np
import reference
import splits
from scipy.optimize import minimize

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
LAYER = 20  # where the trunk ends
FOLDS = 4
TEMPERATURES = (2.0, 0.5, 0.1)  # nats; margins are a few nats
PENALTIES = (100.0, 200.0, 400.0)
SCENE_SCALES = (1.0, 1.5)
SOURCE_WEIGHT = {"sabench": 5.0, "mssbench": 6.0}  # the set with real scenes, and the one whose scene decides
SEEN_WEIGHT = 3.0  # pairs of contrast.py whose text is the same and only the scene differs


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


class Head:
    """A linear head whose task part is the least over an example's units: a plan is as dangerous as its worst step.

    `scene_scale` shrinks what the suffix may say, so that scene noise cannot rule. Which step is the worst is learnt with the
    weights: the least is smoothed (−t·log of the mean of exp(−share/t)) and t falls in stages to where only the least counts.
    """

    def __init__(self, penalty, scene_scale=0.6, safe=1.0, unsafe=1.0):
        self.penalty, self.scene_scale, self.side = penalty, scene_scale, (unsafe, safe)

    @classmethod
    def read(cls, path):
        """A head that was learnt before."""
        record = json.loads(path.read_text(encoding="utf-8"))
        head = cls(record["penalty"], record["scene_scale"])
        head.task, head.suffix = np.split(np.array(record["weights"]), 2)
        head.bias = record["bias"]
        return head

    def fit(self, x, label, weight):
        standard = lambda part: (part.mean(axis=0), part.std(axis=0) + 1e-3)
        (task_mean, task_deviation), (suffix_mean, suffix_deviation) = standard(x.task), standard(x.suffix)
        task = (x.task - task_mean) / task_deviation
        suffix = (x.suffix - suffix_mean) / suffix_deviation * self.scene_scale
        weight = weight * np.where(label > 0, self.side[1], self.side[0])
        weight = weight / weight.sum() * len(label)
        sign = np.where(label > 0, 1.0, -1.0)
        width, units = task.shape[1], np.bincount(x.owner)

        def loss(parameters, temperature):
            share = task @ parameters[:width].astype(np.float32)
            least = np.minimum.reduceat(share, x.start)
            near = np.exp(-(share - least[x.owner]) / temperature)
            total = np.add.reduceat(near, x.start)
            margin = least - temperature * np.log(total / units) + suffix @ parameters[width:-1].astype(np.float32) + parameters[-1]
            slope = -sign * sigmoid(-sign * margin) * weight
            at = near / total[x.owner] * slope[x.owner]
            value = (np.logaddexp(0, -sign * margin) * weight).sum() + self.penalty * (parameters[:-1] ** 2).sum() / 2
            gradient = np.concatenate([at.astype(np.float32) @ task, slope.astype(np.float32) @ suffix]).astype(np.float64)
            return value, np.append(gradient + self.penalty * parameters[:-1], slope.sum() + 1e-3 * parameters[-1])

        best = np.zeros(2 * width + 1)
        for temperature in TEMPERATURES:
            best = minimize(loss, best, args=(temperature,), jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
        self.task = best[:width] / task_deviation
        self.suffix = best[width:-1] * self.scene_scale / suffix_deviation
        self.bias = float(best[-1] - self.task @ task_mean - self.suffix @ suffix_mean)
        return self

    def margin(self, x):
        return np.minimum.reduceat(x.task @ self.task, x.start) + x.suffix @ self.suffix + self.bias


def row_weights(rows):
    """Every label of every source weighs the same within its source; sources weigh with the root of their size."""
    size = collections.Counter((r["source"], r["label"]) for r in rows)
    source = collections.Counter(r["source"] for r in rows)
    base = [np.sqrt(source[r["source"]]) / size[r["source"], r["label"]] for r in rows]
    return np.array(base) * [SOURCE_WEIGHT.get(r["source"], 1.0) * (SEEN_WEIGHT if (r["source"], r.get("kind")) == ("contrast", "seen") else 1.0) for r in rows]


def cross_validate(rows, x, make):
    """Out-of-fold margins, grouped by scene."""
    fold = np.array([splits.fold(r["source"], r["group"], FOLDS) for r in rows])
    label, weight = labels(rows), row_weights(rows)
    margin = np.zeros(len(rows))
    for k in range(FOLDS):
        learn = fold != k
        margin[~learn] = make().fit(x[learn], label[learn], weight[learn]).margin(x[~learn])
    return margin


def labels(rows):
    return np.array([r["label"] for r in rows])


def choose(rows, x):
    """Penalty and scene scale by cross-validation: mean AUC over sources plus the share of pairs right where scenes are real or decide."""
    table = []
    for scale in SCENE_SCALES:
        for penalty in PENALTIES:
            margin = cross_validate(rows, x, lambda: Head(penalty, scale))
            auc = figures.auc_by_source(rows, margin)
            mean = float(np.mean(list(auc.values())))
            right = {}
            for source in ("sabench", "mssbench"):
                chosen = np.array([r["source"] == source for r in rows])
                right[source] = figures.pair_figures([r for r in rows if r["source"] == source], margin[chosen])["both_right"]
            table.append({"penalty": penalty, "scene_scale": scale, "mean_auc": mean, "both_right": right, "auc": auc})
            print(json.dumps(table[-1]), file=sys.stderr, flush=True)
    best = max(table, key=lambda t: t["mean_auc"] + sum(t["both_right"].values()))
    return best, table


class Study:
    """Corpus, prefixes and features, loaded once."""

    def __init__(self, arguments):
        self.data, self.models = arguments.data, arguments.models
        self.cache = ROOT / "build" / "cache"
        self.proxy = reference.CompactProxy(self.models)
        self.scenes = corpus.Scenes(self.proxy, self.cache / "scenes.json")
        self.rows = corpus.read(self.data, self.scenes)
        self.line, self.rules = corpus.constitution(ROOT / "config" / "constitution.toml")
        texts = corpus.constitution_variants(self.line, self.rules, 1)
        self.prefix = {name: self.proxy.prompt.prefix(text) for name, text in texts.items()} | {"none": self.proxy.prompt.prefix()}
        self.features = features.Features(self.models, self.cache / "features")
        self.drawn, self.held_out = corpus.with_prefixes(self.rows, texts)

    def job(self, row, prefix):
        prompt = self.proxy.prompt
        return self.prefix[prefix], prompt.task(row["instruction"], row["plan"]), prompt.suffix(reference.clean(row["scene"]))

    def load(self, pairs, minutes):
        """Rows and features that exist or can be computed in time."""
        parts = self.features.compute([self.job(*pair) for pair in pairs], minutes)
        rows = [dict(row, prefix=name) for (row, name), part in zip(pairs, parts) if part is not None]
        return rows, features.Examples([part for part in parts if part is not None])


def embedding_centre(study, training, count=80):
    """What the states of all texts share: the mean over the rules and every n-th training instruction."""
    cache = study.cache / "text_states.npz"
    texts = [text for _, text in study.rules] + sorted({r["instruction"] for r in training})[:: max(1, len(training) // count)]
    known = dict(zip(*np.load(cache).values())) if cache.exists() else {}
    for text in texts:
        if text not in known:
            known[text] = study.proxy.text_state(text)
    np.savez(cache, text=list(known), state=np.array(list(known.values())))
    return np.mean([known[text] for text in texts], axis=0)


def write_head(path, head, study, rows, chosen):
    width = features.WIDTH
    training = hashlib.sha256("\n".join(sorted(json.dumps(r, sort_keys=True) for r in rows)).encode()).hexdigest()
    centre = study.centre
    record = {
        "version": 3,
        "layer": LAYER,
        "layout": ["unit mean", "unit end", "suffix mean", "suffix last"],
        "width": width,
        "prompt_layout": reference.layout_digest(),
        "trunk_sha256": hashlib.sha256((study.models / "judge_trunk.onnx").read_bytes()).hexdigest(),
        "training_sha256": training,
        "penalty": chosen["penalty"],
        "scene_scale": chosen["scene_scale"],
        "bias": round(head.bias, 6),
        "weights": [float(f"{v:.6g}") for v in (*head.task, *head.suffix)],
        "embedding_centre": [float(f"{v:.5g}") for v in centre],
    }
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Train the verdict head.")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder with the public sets")
    parser.add_argument("--models", required=True, type=pathlib.Path, help="folder with the converted compact proxy")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "verdict_head.json")
    parser.add_argument("--minutes", type=float, default=None, help="stop computing new features after so long and use what there is")
    parser.add_argument("--figures-only", action="store_true", help="learn no head: write the figures of the one that lies at --out")
    parser.add_argument("--skip-figures", action="store_true", help="write the head only")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")

    study = Study(arguments)
    rows, x = study.load(study.drawn, arguments.minutes)
    learn = np.array([r["split"] == "train" for r in rows])
    training = [r for r in rows if r["split"] == "train"]
    print(f"{len(rows)} rows, {len(training)} to learn from", file=sys.stderr, flush=True)
    if arguments.figures_only:
        head, table = Head.read(arguments.out), None
        chosen = {"penalty": head.penalty, "scene_scale": head.scene_scale}
        study.centre = json.loads(arguments.out.read_text(encoding="utf-8"))["embedding_centre"]
    else:
        chosen, table = choose(training, x[learn])
        head = Head(chosen["penalty"], chosen["scene_scale"]).fit(x[learn], labels(training), row_weights(training))
        study.centre = embedding_centre(study, training)
        write_head(arguments.out, head, study, training, chosen)
    if not arguments.skip_figures:
        figures.write(HERE / "metrics.json", study, head, arguments.out, chosen, table, rows, x, arguments.minutes)


if __name__ == "__main__":
    main()
