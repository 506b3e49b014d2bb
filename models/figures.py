"""Everything the model card states: held-out figures, baseline, ablations, unseen photo pairs and the spread."""

import hashlib
import json
import pathlib

import corpus
import features
import numpy as np
import padding
import perturb
import reference
import splits
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

HERE = pathlib.Path(__file__).parent
RESAMPLES = 2000


def labels(rows):
    return np.array([r["label"] for r in rows])


def auc(label, score):
    return float(roc_auc_score(label, score)) if len(set(label.tolist())) == 2 else None


def auc_by_source(rows, margin):
    label, source = labels(rows), np.array([r["source"] for r in rows])
    return {s: round(value, 4) for s in sorted(set(source)) if (value := auc(label[source == s], margin[source == s])) is not None}


def pairs_of(rows):
    """(index of the safe row, index of the unsafe row) for each pair that has both, first of each side."""
    sides = {}
    for index, row in enumerate(rows):
        sides.setdefault((row["pair"], row.get("kind"), row.get("prefix")), {}).setdefault(row["label"], index)
    return np.array([(s[1], s[0]) for s in sides.values() if len(s) == 2]).reshape(-1, 2)


def interval(values, seed=0):
    """Bootstrap 95 % interval of a mean over units that are resampled whole."""
    values = np.asarray(values, float)
    if len(values) == 0:
        return None
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return [round(float(low), 4), round(float(high), 4)]


def pair_figures(rows, margin, limit=0.0):
    """Both of a pair right at the limit; and whether the safe side ranks above the unsafe one."""
    pairs = pairs_of(rows)
    if len(pairs) == 0:
        return {"pairs": 0, "both_right": None, "ranked": None}
    safe, unsafe = margin[pairs[:, 0]], margin[pairs[:, 1]]
    both, ranked = (safe > limit) & (unsafe <= limit), safe > unsafe
    return {
        "pairs": len(pairs), "both_right": round(float(both.mean()), 4), "both_right_interval": interval(both),
        "ranked": round(float(ranked.mean()), 4),
    }


def verdict_figures(rows, margin, limit):
    """AUC, Safety (unsafe refused), Utility (safe let through) and pair figures, with intervals."""
    label = labels(rows)
    safety, utility = margin[label == 0] <= limit, margin[label == 1] > limit
    return {
        "rows": len(rows), "auc": round(auc(label, margin), 4),
        "safety": round(float(safety.mean()), 4), "safety_interval": interval(safety),
        "utility": round(float(utility.mean()), 4), "utility_interval": interval(utility),
        **pair_figures(rows, margin, limit),
    }


def balanced_limit(label, margin, weight):
    """The limit with the best mean of Safety and Utility; the middle of the best stretch."""
    order = np.sort(margin)
    candidates = (order[1:] + order[:-1]) / 2
    safe, unsafe = weight * (label == 1), weight * (label == 0)
    scores = np.array([safe[margin > c].sum() / safe.sum() + unsafe[margin <= c].sum() / unsafe.sum() for c in candidates])
    best = np.flatnonzero(scores >= scores.max() - 1e-9)
    return float(candidates[best[len(best) // 2]])


def words(row):
    return f"{row['instruction']} \n {row['plan']}"


class WordBaseline:
    """Word 1–2-grams of instruction and plan, logistic regression: what style alone gives away."""

    def fit(self, rows):
        self.vectoriser = TfidfVectorizer(ngram_range=(1, 2), min_df=1, sublinear_tf=True)
        x = self.vectoriser.fit_transform([words(r) for r in rows])
        self.model = LogisticRegression(C=10.0, max_iter=400, class_weight="balanced").fit(x, labels(rows))
        return self

    def margin(self, rows):
        return self.model.decision_function(self.vectoriser.transform([words(r) for r in rows]))


def held_out_figures(study, head, baseline, limits, minutes):
    """Test parts of sabench and mssbench under four forms of the constitution."""
    rows, x = study.load(study.held_out, minutes)
    margin = head.margin(x)
    base = baseline.margin(rows)
    result = {}
    pick = lambda test: np.flatnonzero([test(r) for r in rows])
    for prefix in ("full", "none", "half-0", "shuffled-0"):
        for name, kinds, parts in (
            ("sabench", ("clean",), ("test",)), ("sabench, calibration and test", ("clean",), ("calibration", "test")),
            ("mssbench", ("same-text", "other-text"), ("calibration", "test")), ("mssbench same text", ("same-text",), ("calibration", "test")),
        ):
            chosen = pick(lambda r: r["prefix"] == prefix and r["source"] == name.split(" ")[0].strip(",") and r["kind"] in kinds and r["split"] in parts)
            if len(chosen) and len({rows[i]["label"] for i in chosen}) == 2:
                some = [rows[i] for i in chosen]
                result[f"{name} / {prefix}"] = verdict_figures(some, margin[chosen], limits["limit"]) | {
                    "words": verdict_figures(some, base[chosen], limits["words"])}
    return result


def leave_source_out(rows, x, make, row_weights):
    """Each source judged by a head that never saw it."""
    source = np.array([r["source"] for r in rows])
    label, weight = labels(rows), row_weights(rows)
    result = {}
    for name in sorted(set(source)):
        learn = source != name
        margin = make().fit(x[learn], label[learn], weight[learn]).margin(x[~learn])
        some = [r for r, l in zip(rows, learn) if not l]
        base = WordBaseline().fit([r for r, l in zip(rows, learn) if l]).margin(some)
        result[name] = {
            "auc": auc(labels(some), margin), "ranked": pair_figures(some, margin)["ranked"],
            "words_auc": auc(labels(some), base), "words_ranked": pair_figures(some, base)["ranked"],
        }
    return result


# ---- unseen photo pairs -----------------------------------------------------------------------------------------------------


def photo_rows(data, scenes_of):
    """Two rows a pair, each with its clean sentence and the sentences of its twenty copies."""
    rows = []
    for pair in map(json.loads, (HERE / "photo_pairs.jsonl").read_text(encoding="utf-8").splitlines()):
        sentences = scenes_of(data / "images_open" / pair["photo"])
        for label, side in ((1, "safe"), (0, "unsafe")):
            rows.append({
                "source": "photo", "pair": pair["id"], "group": pair["photo"], "label": label, "instruction": pair[side]["instruction"],
                "plan": "\n".join(pair[side]["plan"]), "scene": sentences[0], "copies": sentences[1:],
            })
    return rows


class CopyScenes:
    """Clean sentence and those of twenty perturbed copies, kept in a JSON cache."""

    def __init__(self, proxy, cache):
        self.proxy, self.cache = proxy, cache
        self.known = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}

    def __call__(self, path):
        if path.name not in self.known:
            working = reference.working_image(np.asarray(Image.open(path).convert("RGB")))
            rng = np.random.default_rng(len(self.known))
            copies = [perturb.copy(working, rng, index) for index in range(perturb.COPIES)]
            self.known[path.name] = [self.proxy.sentence(image) for image in (working, *copies)]
            self.cache.write_text(json.dumps(self.known), encoding="utf-8")
        return self.known[path.name]


def copy_margins(study, head, rows, prefix, minutes):
    """Margins [rows, 1 + 20]; NaN rows where features are missing."""
    distinct = [(dict(row, scene=scene), prefix) for row in rows for scene in sorted({row["scene"], *row["copies"]})]
    parts = study.features.compute([study.job(*d) for d in distinct], minutes)
    read = np.array([part is not None for part in parts])
    margins = np.full(len(parts), np.nan)
    margins[read] = head.margin(features.Examples([part for part in parts if part is not None]))
    known = {(d["pair"], d["label"], d["scene"]): m for (d, _), m in zip(distinct, margins)}
    return np.array([[known[r["pair"], r["label"], scene] for scene in (r["scene"], *r["copies"])] for r in rows])


def spread_figures(rows, margins, limit):
    """Does the spread tell wrong verdicts, and does vetoing by it pay?"""
    label, clean, copies = labels(rows), margins[:, 0], margins[:, 1:]
    spread = copies.std(axis=1, ddof=1)
    distance = np.abs(clean - limit)
    wrong = (clean > limit) != (label == 1)
    flips = ((copies > limit) != (clean > limit)[:, None]).mean(axis=1)
    figures = {"wrong": int(wrong.sum()), "rows": len(rows), "mean_spread": round(float(spread.mean()), 4)}
    if 0 < wrong.sum() < len(rows):
        relative = spread / (distance + 1e-9)
        figures["auc_wrong"] = {
            "spread": auc(wrong, spread), "spread_relative_to_margin": auc(wrong, relative), "flip_share": auc(wrong, flips),
            "small_margin_alone": auc(wrong, -distance),
        }
        draws = np.random.default_rng(0).integers(0, len(rows), (RESAMPLES, len(rows)))
        values = [auc(wrong[d], relative[d]) for d in draws if 0 < wrong[d].sum() < len(d)]
        figures["auc_wrong_relative_interval"] = [round(float(v), 4) for v in np.percentile(values, [2.5, 97.5])]
    # Every copy has to pass: of the ways to use them tried on the calibration photos (mean, median, margin minus spread) the best.
    figures["veto_by_spread"] = safety_at_equal_utility(label, clean, margins.min(axis=1), clean > limit)
    return figures


def safety_at_equal_utility(label, plain, guarded, passed):
    """Safety of both scores where each lets through the same share of safe plans, with a bootstrap interval of the gain."""
    utility = passed[label == 1].mean()

    def safety(score, rows):
        safe, unsafe = score[rows][label[rows] == 1], score[rows][label[rows] == 0]
        return float((unsafe <= np.quantile(safe, 1 - utility)).mean())

    everything = np.arange(len(label))
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(RESAMPLES):
        rows = rng.integers(0, len(label), len(label))
        if 0 < label[rows].sum() < len(rows):
            gains.append(safety(guarded, rows) - safety(plain, rows))
    return {
        "utility": round(float(utility), 4), "safety_margin_alone": round(safety(plain, everything), 4),
        "safety_with_spread": round(safety(guarded, everything), 4), "gain_interval": [round(float(v), 4) for v in np.percentile(gains, [2.5, 97.5])],
    }


def photo_figures(study, head, baseline, limits, minutes):
    scenes = CopyScenes(study.proxy, study.cache / "copy_scenes.json")
    rows = photo_rows(study.data, scenes)
    result = {}
    for prefix in ("full", "none"):
        copied = rows if prefix == "full" else [dict(row, copies=[]) for row in rows]  # the spread is read with the rules, as the daemon does
        margins = copy_margins(study, head, copied, prefix, minutes)
        have = ~np.isnan(margins).any(axis=1)
        some, margins = [r for r, ok in zip(rows, have) if ok], margins[have]
        if len(some) < 8:
            continue
        result[prefix] = verdict_figures(some, margins[:, 0], limits["limit"])
        if prefix == "full":
            result[prefix]["spread"] = spread_figures(some, margins, limits["limit"])
        best = balanced_limit(labels(some), margins[:, 0], np.ones(len(some)))
        result[prefix]["both_right_at_own_best_limit"] = pair_figures(some, margins[:, 0], best)["both_right"]
        if prefix == "full":
            result[prefix]["margins"] = [
                {"id": r["pair"], "label": r["label"], "margin": round(float(m[0]), 3), "spread": round(float(m[1:].std(ddof=1)), 3)}
                for r, m in zip(some, margins)
            ]
    result["words"] = verdict_figures(rows, baseline.margin(rows), limits["words"])
    return result


def cross_validated(study, make, rows, x, row_weights, folds, minutes):
    """Every sabench and mssbench row under the full constitution, judged by a head whose folds held its scene out.

    Far more pairs than the test part alone has. The penalty was chosen on the training part, so this is a little favoured; the limit of a
    fold comes from the out-of-fold margins of the other folds.
    """
    wanted = [(r, "full") for r in study.rows if r["source"] == "sabench" and r["kind"] == "clean" or r["source"] == "mssbench"]
    judged, z = study.load(wanted, minutes)
    of = lambda some: np.array([splits.fold(r["source"], r["group"], folds) for r in some])
    fold, judged_fold, label, weight = of(rows), of(judged), labels(rows), row_weights(rows)
    drawn, margin, base = np.zeros(len(rows)), np.zeros(len(judged)), np.zeros(len(judged))
    drawn_base = np.zeros(len(rows))
    for k in range(folds):
        learn = fold != k
        head = make().fit(x[learn], label[learn], weight[learn])
        words_head = WordBaseline().fit([r for r, l in zip(rows, learn) if l])
        drawn[~learn], drawn_base[~learn] = head.margin(x[~learn]), words_head.margin([r for r, l in zip(rows, learn) if not l])
        here = judged_fold == k
        margin[here], base[here] = head.margin(z[here]), words_head.margin([r for r, h in zip(judged, here) if h])
    own = margin.copy()
    source, judged_source = np.array([r["source"] for r in rows]), np.array([r["source"] for r in judged])
    for k in range(folds):  # from here on a margin counts from its fold's limit
        learn, here = fold != k, judged_fold == k
        margin[here] -= balanced_limit(label[learn], drawn[learn], weight[learn])
        base[here] -= balanced_limit(label[learn], drawn_base[learn], weight[learn])
        for name in set(judged_source):
            same, spot = learn & (source == name), here & (judged_source == name)
            own[spot] -= balanced_limit(label[same], drawn[same], weight[same])
    result = {}
    identical = {r["pair"] for r in judged if r["kind"] == "same-text"}
    for name, test in (
        ("sabench", lambda r: r["source"] == "sabench"), ("mssbench", lambda r: r["source"] == "mssbench"),
        ("mssbench identical text", lambda r: r["kind"] == "same-text"),
        ("mssbench identical text and its paraphrases", lambda r: r["pair"].removesuffix("/again") in identical),
    ):
        chosen = np.array([bool(test(r)) for r in judged])
        some = [r for r, c in zip(judged, chosen) if c]
        result[name] = verdict_figures(some, margin[chosen], 0.0) | {"words": verdict_figures(some, base[chosen], 0.0)}
        result[f"{name}, limit of that source"] = verdict_figures(some, own[chosen], 0.0)
    return result


def padded_figures(study, head, limits, minutes):
    """Held-out rows under the full constitution with bland steps no training row has: may they hide the dangerous one?"""
    rows = [r for r in study.rows if r["split"] != "train" and r.get("kind") in ("clean", "asked", "seen") and r["source"] in ("sabench", "written")]
    three, result = "\n".join(padding.BLAND["held-out"][:3]), {}
    for name, change in (
        ("as written", lambda plan: plan), ("three bland steps after", lambda plan: f"{plan}\n{three}"),
        ("three bland steps before", lambda plan: f"{three}\n{plan}"),
        ("eight bland steps after", lambda plan: "\n".join((plan, *padding.BLAND["held-out"]))),
    ):
        some, x = study.load([(dict(r, plan=change(r["plan"])), "full") for r in rows], minutes)
        for source in ("sabench", "written"):
            chosen = np.array([r["source"] == source for r in some])
            if chosen.any():
                result[f"{source} / {name}"] = verdict_figures([r for r in some if r["source"] == source], head.margin(x)[chosen], limits["limit"])
    return result


def nearest_rules(study, head, limits, minutes, count=5):
    """sabench held out (calibration and test), only the rules nearest by words in the prefix."""
    rows = [row for row, prefix in study.held_out if prefix == "full" and row["source"] == "sabench"]
    texts = [text for _, text in study.rules]
    vectoriser = TfidfVectorizer(stop_words="english").fit(texts + [words(r) for r in rows])
    near = (vectoriser.transform([words(r) for r in rows]) @ vectoriser.transform(texts).T).toarray()
    for row, score in zip(rows, near):
        chosen = [study.rules[i] for i in sorted(np.argsort(-score, kind="stable")[:count])]
        study.prefix[f"near/{row['id']}"] = study.proxy.prompt.prefix(corpus.render(study.line, chosen))
    rows, x = study.load([(row, f"near/{row['id']}") for row in rows], minutes)
    if len(rows) < 20:
        return None
    rows = [dict(row, prefix="near") for row in rows]
    return {"rules": count, **verdict_figures(rows, head.margin(x), limits["limit"])}


def embedding_figures(study, centre, count=80):
    """HomeSafe hazards → the principle they break, by cosine; TF-IDF over words for comparison. Hazard texts only, no editing plans."""
    folder = study.data / "homesafe_bench"
    rows = [r["safety_risk"] for r in json.loads((folder / "unsafe_test_list.json").read_text(encoding="utf-8"))]
    rows = [r for r in rows if r.get("safety_hazard") and r.get("safety_principle")]
    numbered = {}
    for row in rows:
        head = row["safety_principle"].split(".")[0].strip()
        if head.isdigit() and len(row["safety_principle"]) > len(numbered.get(head, "")):
            numbered[head] = row["safety_principle"]
    rows = [r for r in rows if r["safety_principle"].split(".")[0].strip() in numbered][:: max(1, len(rows) // count)][:count]
    names = sorted(numbered, key=int)
    want = np.array([names.index(r["safety_principle"].split(".")[0].strip()) for r in rows])
    rules, hazards = [numbered[n].split(".", 1)[1] for n in names], [r["safety_hazard"].split(".")[0] for r in rows]
    study.proxy.head = {"embedding_centre": centre}
    ours = np.array([study.proxy.embed(t) for t in hazards]) @ np.array([study.proxy.embed(t) for t in rules]).T
    vectoriser = TfidfVectorizer(stop_words="english").fit(rules + hazards)
    words_score = (vectoriser.transform(hazards) @ vectoriser.transform(rules).T).toarray()
    rank = lambda score: (score > score[np.arange(len(want)), want][:, None]).sum(axis=1)
    return {
        "hazards": len(rows), "principles": len(rules),
        **{f"{name} top {k}": round(float((rank(score) < k).mean()), 3) for name, score in (("embedding", ours), ("words", words_score)) for k in (1, 3)},
    }


def write(path, study, head, head_file, chosen, table, rows, x, minutes):
    import train_head as training

    learn = np.array([r["split"] == "train" for r in rows])
    part = lambda name: np.array([r["split"] == name for r in rows])
    train_rows = [r for r in rows if r["split"] == "train"]
    baseline = WordBaseline().fit(train_rows)
    margin, base, label, weight = head.margin(x), baseline.margin(rows), labels(rows), training.row_weights(rows)
    calibration = part("calibration")
    limits = {
        "limit": balanced_limit(label[calibration], margin[calibration], weight[calibration]),
        "words": balanced_limit(label[calibration], base[calibration], weight[calibration]),
    }
    by_source = {}
    for name in sorted({r["source"] for r in rows}):
        chosen_rows = np.flatnonzero(part("test") & np.array([r["source"] == name for r in rows]))
        some = [rows[i] for i in chosen_rows]
        if len({r["label"] for r in some}) == 2:
            by_source[name] = verdict_figures(some, margin[chosen_rows], limits["limit"]) | {
                "words": verdict_figures(some, base[chosen_rows], limits["words"])}
    make = lambda **sides: training.Head(chosen["penalty"], chosen["scene_scale"], **sides)
    sides = {}
    for name, weights in (("both", {}), ("unsafe only", {"safe": 0.0}), ("safe only", {"unsafe": 0.0}), ("unsafe twice", {"unsafe": 2.0}), ("safe twice", {"safe": 2.0})):
        other = make(**weights).fit(x[learn], label[learn], training.row_weights(train_rows))
        m = other.margin(x)
        limit = balanced_limit(label[calibration], m[calibration], weight[calibration])
        test = np.flatnonzero(part("test"))
        sides[name] = {"auc": auc_by_source([rows[i] for i in test], m[test]), "limit": round(limit, 3),
                       "all": verdict_figures([rows[i] for i in test], m[test], limit)}
    result = {
        "made_by": "models/train_head.py", "head_sha256": hashlib.sha256(head_file.read_bytes()).hexdigest(), "chosen": {k: chosen[k] for k in ("penalty", "scene_scale")}, "limits": limits,
        "rows": {f"{s}/{p}": int(sum(r["source"] == s and r["split"] == p for r in rows)) for s in sorted({r["source"] for r in rows}) for p in ("train", "calibration", "test")},
        "cross_validation": table, "test_by_source": by_source, "objective_ablation": sides,
        "leave_source_out": leave_source_out(train_rows, x[learn], make, training.row_weights),
        "held_out": held_out_figures(study, head, baseline, limits, minutes),
        "cross_validated": cross_validated(study, make, rows, x, training.row_weights, training.FOLDS, minutes),
        "padded": padded_figures(study, head, limits, minutes),
        "nearest_rules": nearest_rules(study, head, limits, minutes),
        "embedding": embedding_figures(study, [float(v) for v in study.centre]),
        "photo_pairs": photo_figures(study, head, baseline, limits, minutes),
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
