//! How well a score ranks: ROC-AUC, average precision, Spearman's ρ, precision among the first k, lift.
//!
//! Throughout, a larger score should mean a likelier positive. Ties are treated as undecided, never by row order, so
//! that every value is the same for every order of the rows.

use std::cmp::Ordering;

use super::{Undefined, all_finite, count};

/// The area under the ROC curve: the probability that a random positive scores above a random negative, a tie
/// counting ½ (Mann and Whitney). Equals scikit-learn's `roc_auc_score`.
///
/// # Errors
/// When a score is not finite, the columns differ in length, or one class has no rows.
pub fn roc_auc(scores: &[f64], positive: &[bool]) -> Result<f64, Undefined> {
    let (positives, negatives) = classes(scores, positive)?;
    let rank_sum: f64 =
        ranks(scores).iter().zip(positive).filter(|(_, positive)| **positive).map(|(rank, _)| rank).sum();
    Ok((rank_sum - positives * (positives + 1.0) / 2.0) / (positives * negatives))
}

/// The area under the precision–recall curve as average precision: `Σ (Rₙ − Rₙ₋₁) Pₙ` over distinct scores from the
/// top, without interpolation. Equals scikit-learn's `average_precision_score`.
///
/// # Errors
/// As [`roc_auc`].
pub fn average_precision(scores: &[f64], positive: &[bool]) -> Result<f64, Undefined> {
    let (positives, _) = classes(scores, positive)?;
    let (mut seen, mut found, mut area) = (0, 0, 0.0);
    for ties in descending(scores, positive).chunk_by(|a, b| same(a.0, b.0)) {
        let hits = ties.iter().filter(|row| row.1).count();
        seen += ties.len();
        found += hits;
        area += count(hits) / positives * (count(found) / count(seen));
    }
    Ok(area)
}

/// The share of positives among the `k` rows with the highest scores. Where a tie straddles the cut, its expected
/// value over the orders of the tied rows.
///
/// # Errors
/// As [`roc_auc`], and when `k` is 0 or larger than the number of rows.
pub fn precision_at(k: usize, scores: &[f64], positive: &[bool]) -> Result<f64, Undefined> {
    classes(scores, positive)?;
    if k == 0 || k > scores.len() {
        return Err(Undefined::OutOfRange("k"));
    }
    let (mut left, mut found) = (k, 0.0);
    for ties in descending(scores, positive).chunk_by(|a, b| same(a.0, b.0)) {
        let hits = count(ties.iter().filter(|row| row.1).count());
        let taken = left.min(ties.len());
        found += hits * count(taken) / count(ties.len());
        left -= taken;
    }
    Ok(found / count(k))
}

/// [`precision_at`] over the prevalence of positives: how many times better than picking at random.
///
/// # Errors
/// As [`precision_at`].
pub fn lift_at(k: usize, scores: &[f64], positive: &[bool]) -> Result<f64, Undefined> {
    let (positives, _) = classes(scores, positive)?;
    Ok(precision_at(k, scores, positive)? / (positives / count(positive.len())))
}

/// Spearman's ρ: Pearson's correlation of the ranks, ties sharing their mean rank. Equals `scipy.stats.spearmanr`.
///
/// # Errors
/// When there are fewer than two rows, a value is not finite, the columns differ in length, or one does not vary.
pub fn spearman(x: &[f64], y: &[f64]) -> Result<f64, Undefined> {
    parallel(x, y)?;
    correlation(&ranks(x), &ranks(y))
}

/// Spearman's ρ of `x` and `y` with `control` held: `(ρxy − ρxz ρyz) / √((1 − ρxz²)(1 − ρyz²))`, which is the
/// correlation of what is left of the ranks of `x` and `y` after a linear fit on the ranks of `control`.
///
/// # Errors
/// As [`spearman`], with at least three rows; [`Undefined::Constant`] too when the control explains a column wholly.
pub fn partial_spearman(x: &[f64], y: &[f64], control: &[f64]) -> Result<f64, Undefined> {
    if x.len() < 3 {
        return Err(Undefined::TooFew { needed: 3, got: x.len() });
    }
    let (xy, xz, yz) = (spearman(x, y)?, spearman(x, control)?, spearman(y, control)?);
    let left = (1.0 - xz * xz) * (1.0 - yz * yz);
    if left < 1e-12 {
        return Err(Undefined::Constant);
    }
    Ok(((xy - xz * yz) / left.sqrt()).clamp(-1.0, 1.0))
}

/// Pearson's correlation of two columns that are finite and equally long.
fn correlation(x: &[f64], y: &[f64]) -> Result<f64, Undefined> {
    if x.len() < 2 {
        return Err(Undefined::TooFew { needed: 2, got: x.len() });
    }
    let centre = |values: &[f64]| values.iter().sum::<f64>() / count(values.len());
    let (mean_x, mean_y) = (centre(x), centre(y));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    if xx <= 0.0 || yy <= 0.0 {
        return Err(Undefined::Constant);
    }
    Ok((xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// Ranks from 1, ties sharing their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut ranked = Vec::with_capacity(values.len());
    for ties in order.chunk_by(|a, b| same(a.1, b.1)) {
        let rank = count(ranked.len()) + (count(ties.len()) + 1.0) / 2.0;
        ranked.extend(ties.iter().map(|&(row, _)| (row, rank)));
    }
    ranked.sort_unstable_by_key(|&(row, _)| row);
    ranked.into_iter().map(|(_, rank)| rank).collect()
}

fn descending(scores: &[f64], positive: &[bool]) -> Vec<(f64, bool)> {
    let mut rows: Vec<(f64, bool)> = scores.iter().copied().zip(positive.iter().copied()).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows
}

/// Whether two finite scores tie; −0 and 0 do.
fn same(a: f64, b: f64) -> bool {
    a.partial_cmp(&b) == Some(Ordering::Equal)
}

fn parallel(x: &[f64], y: &[f64]) -> Result<(), Undefined> {
    if x.len() != y.len() {
        return Err(Undefined::LengthMismatch { left: x.len(), right: y.len() });
    }
    all_finite(x)?;
    all_finite(y)
}

/// The numbers of positives and negatives, both above zero.
fn classes(scores: &[f64], positive: &[bool]) -> Result<(f64, f64), Undefined> {
    if scores.len() != positive.len() {
        return Err(Undefined::LengthMismatch { left: scores.len(), right: positive.len() });
    }
    all_finite(scores)?;
    if scores.is_empty() {
        return Err(Undefined::TooFew { needed: 2, got: 0 });
    }
    let positives = positive.iter().filter(|positive| **positive).count();
    match (positives, positive.len() - positives) {
        (0, _) | (_, 0) => Err(Undefined::OneClass),
        (positives, negatives) => Ok((count(positives), count(negatives))),
    }
}
