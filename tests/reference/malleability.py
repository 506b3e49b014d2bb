"""Writes malleability.json: scikit-learn's standardised logistic regressions (L2, C = 1) on small seeded data.

    pip install numpy scikit-learn && python malleability.py
"""

import json
import pathlib

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FULL = [
    "object-ambiguity",
    "conditional",
    "hedge",
    "perturbation-spread",
    "constitution-reliance",
    "decoding-instability",
]
REDUCED = ["perturbation-spread", "constitution-reliance"]
rng = np.random.default_rng(7)


def composite(features, n, strength, prevalence):
    """Skewed, correlated columns on unlike scales, as the signals are."""
    shared = rng.normal(size=n)
    columns = [np.exp(0.5 * shared + rng.normal(size=n)) * 3.0**i for i in range(len(features) - 1)]
    columns.append(2.0 * shared + rng.normal(size=n) - 1.0)
    x = np.round(np.column_stack(columns), 6)
    score = strength * shared + rng.normal(size=n)
    y = score > np.quantile(score, 1 - prevalence)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000)).fit(x, y)
    scaler, regression = model[0], model[1]
    # Out-of-fold scores pooled per repeat; the deals differ from the crate's, so only their mean compares.
    aucs = [
        roc_auc_score(y, cross_val_predict(model, x, y, method="predict_proba", cv=deal)[:, 1])
        for deal in (StratifiedKFold(5, shuffle=True, random_state=seed) for seed in range(20))
    ]
    return {
        "features": features,
        "rows": x.tolist(),
        "positive": [bool(v) for v in y],
        "mean": scaler.mean_.tolist(),
        "scale": scaler.scale_.tolist(),
        "weights": regression.coef_[0].tolist(),
        "bias": float(regression.intercept_[0]),
        "scores": model.predict_proba(x)[:, 1].tolist(),
        "auc_out_of_fold": float(np.mean(aucs)),
    }


def two_sided(n_comply, n_refuse, shift):
    """Margins of plans that should run and should not, and the map fitted with both sides weighing the same.

    Platt's targets are (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2); a soft target is two rows that share the weight.
    """
    comply = np.round(rng.normal(shift, 2.0, size=n_comply), 6)
    refuse = np.round(rng.normal(-0.4, 1.0, size=n_refuse), 6)
    x, y, w = [], [], []
    for margins, target in ((comply, (n_comply + 1) / (n_comply + 2)), (refuse, 1 / (n_refuse + 2))):
        for label, part in ((1, target), (0, 1 - target)):
            x.extend(margins)
            y.extend([label] * len(margins))
            w.extend([part / len(margins)] * len(margins))
    # The weights sum to two, so C must make the penalty vanish beside them.
    model = LogisticRegression(C=1e12, tol=1e-14, max_iter=100_000, solver="newton-cholesky")
    model.fit(np.array(x)[:, None], y, sample_weight=w)
    return {
        "comply": comply.tolist(),
        "refuse": refuse.tolist(),
        "scale": float(model.coef_[0, 0]),
        "bias": float(model.intercept_[0]),
    }


vectors = {
    "composite": [
        composite(FULL, 120, 1.5, 0.2),
        composite(REDUCED, 60, 0.8, 0.5),
        composite(FULL, 40, 6.0, 0.3),
    ],
    "two_sided": [two_sided(90, 40, 2.0), two_sided(25, 60, 0.5)],
}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, separators=(",", ":")) + "\n")
