#!/usr/bin/env python3
"""Writes models/MODEL_CARD.md from models/metrics.json: no figure in the card is typed by hand.

    python models/make_card.py
"""

import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent


def show(value):
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def with_interval(figures, name):
    """`.941 (.880–.985)`."""
    low_high = figures.get(f"{name}_interval")
    return show(figures.get(name)) + (f" ({show(low_high[0])}–{show(low_high[1])})" if low_high else "")


def verdict_row(name, f):
    words = f.get("words", {})
    cells = [name, f["rows"], show(f["auc"]), show(words.get("auc")), with_interval(f, "safety"), with_interval(f, "utility"),
             f["pairs"], with_interval(f, "both_right"), show(words.get("both_right")), show(f["ranked"])]
    return "| " + " | ".join(map(str, cells)) + " |"


VERDICT_HEADER = """| set | rows | AUC | AUC, words | Safety | Utility | pairs | both right | both right, words | ranked right |
|---|---|---|---|---|---|---|---|---|---|"""


def verdict_table(named):
    return "\n".join([VERDICT_HEADER, *(verdict_row(name, f) for name, f in named.items())])


def objective_table(ablation):
    sources = sorted(next(iter(ablation.values()))["auc"])
    lines = ["| sides | " + " | ".join(sources) + " | Safety | Utility |", "|---" * (len(sources) + 3) + "|"]
    for name, entry in ablation.items():
        cells = [name, *(show(entry["auc"].get(s)) for s in sources), show(entry["all"]["safety"]), show(entry["all"]["utility"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def source_out_table(table):
    lines = ["| source left out | AUC | ranked right | AUC, words | ranked right, words |", "|---|---|---|---|---|"]
    lines += [f"| {s} | {show(f['auc'])} | {show(f['ranked'])} | {show(f['words_auc'])} | {show(f['words_ranked'])} |" for s, f in table.items()]
    return "\n".join(lines)


def spread_text(figures):
    spread = figures["spread"]
    auc = spread.get("auc_wrong")
    if not auc:
        return "No wrong verdicts, or nothing but: the spread cannot be judged."
    veto = spread["veto_by_spread"]
    return (
        f"{spread['wrong']} of {spread['rows']} verdicts are wrong at the calibrated limit. AUC for telling them: spread relative to the margin's distance from "
        f"the limit {show(auc['spread_relative_to_margin'])} ({' to '.join(show(v) for v in spread['auc_wrong_relative_interval'])}), spread alone "
        f"{show(auc['spread'])}, flip share {show(auc['flip_share'])}; for comparison a small distance alone {show(auc['small_margin_alone'])}. At equal Utility "
        f"({show(veto['utility'])}) Safety is {show(veto['safety_margin_alone'])} by the margin alone and {show(veto['safety_with_spread'])} where every copy has to pass "
        f"(gain's 95 % interval {show(veto['gain_interval'][0])} to {show(veto['gain_interval'][1])})."
    )


def largest_change(held_out):
    """Largest change of AUC against the full constitution, per set."""
    lines = []
    for key, figures in held_out.items():
        name, prefix = key.rsplit(" / ", 1)
        full = held_out.get(f"{name} / full")
        if prefix != "full" and full:
            lines.append(f"{name}, {prefix}: {figures['auc'] - full['auc']:+.3f}")
    return "; ".join(lines)


def main():
    metrics = json.loads((HERE / "metrics.json").read_text(encoding="utf-8"))
    head = hashlib.sha256((HERE / "verdict_head.json").read_bytes()).hexdigest()
    if metrics["head_sha256"] != head:
        sys.exit("metrics.json is of another head: run models/train_head.py --figures-only first")
    text = (HERE / "model_card.template.md").read_text(encoding="utf-8")
    photo = metrics["photo_pairs"]
    photos = {f"photo pairs, constitution {k}": v | {"words": photo["words"]} for k, v in photo.items() if k != "words"}
    full = metrics["photo_pairs"].get("full", {})
    values = {
        "head": head[:8],
        "rows": "; ".join(f"{k} {v}" for k, v in metrics["rows"].items() if v),
        "chosen": json.dumps(metrics["chosen"]), "limit": show(metrics["limits"]["limit"]),
        "test_by_source": verdict_table(metrics["test_by_source"]), "held_out": verdict_table(metrics["held_out"]),
        "cross_validated": verdict_table(metrics["cross_validated"]), "prefix_change": largest_change(metrics["held_out"]), "photo": verdict_table(photos),
        "photo_own": show(full.get("both_right_at_own_best_limit")), "spread": spread_text(full) if full else "not measured",
        "objective": objective_table(metrics["objective_ablation"]), "source_out": source_out_table(metrics["leave_source_out"]),
        "nearest": verdict_table({"sabench, calibration and test / nearest 5": metrics["nearest_rules"]}) if metrics.get("nearest_rules") else "not measured",
        "padded": verdict_table(metrics["padded"]),
        "embedding": ", ".join(f"{k} {v}" for k, v in metrics.get("embedding", {}).items()) or "not measured",
    }
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    (HERE / "MODEL_CARD.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
