"""Writes statistics.json: what numpy, scipy and scikit-learn say on small seeded data.

    pip install numpy scipy scikit-learn && python statistics.py

Nothing here shares code with the crate; where no library has the statistic (partial Spearman, lift, precision with
tied scores), it is computed by another route than the crate's.
"""

import itertools
import json
import pathlib

import numpy as np
from scipy import special, stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, roc_auc_score

rng = np.random.default_rng(20261130)


def ranking(n, decimals):
    """Scores rounded to force ties, labels that follow them loosely."""
    scores = np.round(rng.normal(size=n), decimals)
    labels = (scores + rng.normal(size=n) > 0.4).astype(int)
    control = np.round(rng.normal(size=n) + 0.5 * scores, decimals)
    outcome = np.round(scores - 0.3 * control + rng.normal(size=n), decimals)
    k = n // 3
    # Expected precision over tie-breaking orders: each tied row at the cut is in with equal probability.
    cut = np.sort(scores)[::-1][k - 1]
    above, tied = scores > cut, scores == cut
    share = (k - above.sum()) / tied.sum()
    precision = (labels[above].sum() + share * labels[tied].sum()) / k
    rank = stats.rankdata
    design = np.column_stack([np.ones(n), rank(control)])
    left = [v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (rank(scores), rank(outcome))]
    return {
        "scores": scores.tolist(),
        "labels": [bool(x) for x in labels],
        "control": control.tolist(),
        "outcome": outcome.tolist(),
        "k": k,
        "roc_auc": roc_auc_score(labels, scores),
        "average_precision": average_precision_score(labels, scores),
        "spearman": stats.spearmanr(scores, outcome).statistic,
        "partial_spearman": stats.pearsonr(*left).statistic,
        "precision_at_k": precision,
        "lift_at_k": precision / labels.mean(),
        "mean": float(np.mean(scores)),
        "std": float(np.std(scores, ddof=1)),
        "percentiles": [[q, float(np.quantile(scores, q))] for q in (0, 0.025, 0.5, 0.7, 0.975, 1)],
    }


def paired(n, shift):
    first, second = rng.normal(size=n) + shift, rng.normal(size=n)
    test = stats.ttest_rel(first, second, alternative="greater")
    ci = stats.ttest_rel(first, second).confidence_interval(0.95)
    return {
        "first": first.tolist(),
        "second": second.tolist(),
        "mean": float(np.mean(first - second)),
        "low": ci.low,
        "high": ci.high,
        "t": test.statistic,
        "p_greater": test.pvalue,
    }


def unpaired(n, m, shift, scale):
    # A source of its own: the cases drawn before it stay what they are.
    own = np.random.default_rng(n * m)
    first, second = own.normal(size=n) + shift, own.normal(size=m) * scale
    test = stats.ttest_ind(first, second, equal_var=False)
    ci = test.confidence_interval(0.95)
    return {
        "first": first.tolist(),
        "second": second.tolist(),
        "mean": float(first.mean() - second.mean()),
        "low": ci.low,
        "high": ci.high,
        "t": test.statistic,
        "df": test.df,
        "p": test.pvalue,
    }


def interval(k, n, confidence):
    def pair(method):
        ci = stats.binomtest(k, n).proportion_ci(confidence, method)
        return [float(ci.low), float(ci.high)]

    return {"events": k, "of": n, "confidence": confidence, "wilson": pair("wilson"), "exact": pair("exact")}


def reliability(n, bins):
    stated = np.clip(np.round(rng.beta(0.7, 0.9, size=n), 2), 0, 1)
    positive = rng.uniform(size=n) < stated**1.3
    observed, mean = calibration_curve(positive, stated, n_bins=bins, strategy="uniform")
    ids = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], stated)
    rows = [int(c) for c in np.bincount(ids, minlength=bins) if c]
    return {
        "stated": stated.tolist(),
        "positive": [bool(x) for x in positive],
        "bins": bins,
        "rows": rows,
        "mean": mean.tolist(),
        "observed": observed.tolist(),
        "ece": float(np.sum(np.array(rows) / n * np.abs(mean - observed))),
    }


def plain(value):
    return float(value) if isinstance(value, np.floating) else int(value)


vectors = {
    "ranking": [ranking(40, 1), ranking(60, 6), ranking(25, 0)],
    "paired": [paired(12, 0.8), paired(200, 0.05), paired(2, 0.0), paired(30, -0.5)],
    "unpaired": [unpaired(9, 14, 0.6, 2.0), unpaired(300, 40, 0.0, 0.3), unpaired(2, 2, -1.0, 1.0)],
    "interval": [
        interval(k, n, c)
        for (k, n), c in itertools.product(
            [(0, 10), (1, 1), (3, 17), (171, 846), (906, 16425), (16425, 16425)], [0.9, 0.95, 0.999]
        )
    ],
    "reliability": [reliability(80, 10), reliability(50, 7)],
    "beta_cumulative": [
        [x, a, b, special.betainc(a, b, x)]
        for x, a, b in itertools.product([1e-6, 0.05, 0.5, 0.93], [0.5, 3.0, 120.0], [0.5, 2.5, 4000.0])
    ],
    "student_t_survival": [
        [t, df, stats.t.sf(t, df)]
        for t, df in itertools.product([-40.0, -1.3, 0.0, 1e-5, 0.7, 2.1, 30.0], [1.0, 4.0, 19.0, 16424.0])
    ],
    "student_t_critical": [
        [p, df, stats.t.isf(p, df)] for p, df in itertools.product([0.5, 0.1, 0.025, 0.0005], [1.0, 4.0, 19.0, 16424.0])
    ],
    "binomial_cumulative": [
        [k, n, p, stats.binom.cdf(k, n, p)]
        for k, n, p in [(0, 20, 0.05), (4, 200, 0.05), (7, 60, 0.2), (850, 16425, 0.055), (5, 5, 0.5)]
    ],
    "normal_quantile": [[p, special.ndtri(p)] for p in [1e-6, 0.025, 0.3, 0.5, 0.975, 0.9995]],
}

path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, indent=None, separators=(",", ":"), default=plain) + "\n")
