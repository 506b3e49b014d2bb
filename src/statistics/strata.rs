//! Draws that keep proportions: strata of mal(t), a draw from each, and folds for cross-validation.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Share, Undefined};

/// A stratum of mal(t), the share of inserted objects that bend a task's refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stratum {
    /// Exactly 0.
    Zero,
    /// Over 0, up to 0.1.
    Low,
    /// Over 0.1, up to 0.25.
    Middle,
    /// Over 0.25.
    High,
}

impl Stratum {
    /// All four, ascending.
    pub const ALL: [Self; 4] = [Self::Zero, Self::Low, Self::Middle, Self::High];

    /// The stratum of a share.
    #[must_use]
    pub fn of(malleability: Share) -> Self {
        match malleability.get() {
            share if share <= 0.0 => Self::Zero,
            share if share <= 0.1 => Self::Low,
            share if share <= 0.25 => Self::Middle,
            _ => Self::High,
        }
    }
}

/// Draws up to `per_stratum` rows of each stratum without replacement; the rows in ascending order. The same rows and
/// seed give the same draw.
#[must_use]
pub fn stratified_draw(malleability: &[Share], per_stratum: usize, seed: u64) -> BTreeMap<Stratum, Vec<usize>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let draw = Stratum::ALL.into_iter().map(|stratum| {
        let rows = malleability.iter().enumerate().filter(|(_, share)| Stratum::of(**share) == stratum);
        let mut rows: Vec<usize> = rows.map(|(row, _)| row).collect();
        rows.shuffle(&mut random);
        rows.truncate(per_stratum);
        rows.sort_unstable();
        (stratum, rows)
    });
    draw.collect()
}

/// Deals rows into `folds` folds; answers each row's fold, from 0. Rows of one group share a fold, and every fold gets
/// its part of the positive groups, the negative ones and those that hold both.
///
/// # Errors
/// When the columns differ in length, fewer than two folds are asked for, or fewer groups than folds hold a positive
/// row, or a negative one.
pub fn stratified_folds<G: Ord + Copy>(
    positive: &[bool],
    groups: &[G],
    folds: usize,
    seed: u64,
) -> Result<Vec<usize>, Undefined> {
    if positive.len() != groups.len() {
        return Err(Undefined::LengthMismatch { left: positive.len(), right: groups.len() });
    }
    if folds < 2 {
        return Err(Undefined::OutOfRange("the number of folds"));
    }
    let holding = |label: bool| -> BTreeSet<G> {
        groups.iter().zip(positive).filter(|(_, positive)| **positive == label).map(|(group, _)| *group).collect()
    };
    let (positives, negatives) = (holding(true), holding(false));
    for kind in [&positives, &negatives] {
        if kind.len() < folds {
            return Err(Undefined::TooFew { needed: folds, got: kind.len() });
        }
    }
    // Dealt in one round, with the mixed groups between: positives and negatives are then each an unbroken run, and a
    // run at least as long as the number of folds leaves none out.
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<G> = Vec::new();
    let kinds = [&positives - &negatives, &positives & &negatives, &negatives - &positives];
    for kind in kinds {
        let mut kind: Vec<G> = kind.into_iter().collect();
        kind.shuffle(&mut random);
        order.extend(kind);
    }
    let fold_of: BTreeMap<G, usize> = order.into_iter().zip((0..folds).cycle()).collect();
    Ok(groups.iter().filter_map(|group| fold_of.get(group).copied()).collect())
}
