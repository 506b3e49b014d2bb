//! Whether stated probabilities come true: the reliability curve and its expected calibration error.

use super::{Share, Undefined, count};

/// One bin of a reliability curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Rows in it.
    pub rows: usize,
    /// Mean probability stated.
    pub stated: f64,
    /// Share of positives observed.
    pub observed: f64,
}

/// The non-empty bins of equal width, in ascending order; a value on an inner edge belongs to the lower bin, as in
/// scikit-learn's `calibration_curve`.
///
/// # Errors
/// When there are no rows, no bins are asked for, or the columns differ in length.
pub fn reliability_curve(stated: &[Share], positive: &[bool], bins: u32) -> Result<Vec<Bin>, Undefined> {
    if stated.len() != positive.len() {
        return Err(Undefined::LengthMismatch { left: stated.len(), right: positive.len() });
    }
    if stated.is_empty() {
        return Err(Undefined::TooFew { needed: 1, got: 0 });
    }
    if bins == 0 {
        return Err(Undefined::OutOfRange("the number of bins"));
    }
    let width = 1.0 / f64::from(bins);
    let inside = |bin: u32, p: f64| {
        (bin == 0 || p > f64::from(bin) * width) && (bin + 1 == bins || p <= f64::from(bin + 1) * width)
    };
    let curve = (0..bins).filter_map(|bin| {
        let rows: Vec<_> = stated.iter().zip(positive).filter(|(p, _)| inside(bin, p.get())).collect();
        let n = count(rows.len());
        (!rows.is_empty()).then(|| Bin {
            rows: rows.len(),
            stated: rows.iter().map(|(p, _)| p.get()).sum::<f64>() / n,
            observed: count(rows.iter().filter(|(_, positive)| **positive).count()) / n,
        })
    });
    Ok(curve.collect())
}

/// Expected calibration error: `Σ (rows in bin / rows) · |stated − observed|`, 0 to 1.
///
/// # Errors
/// As [`reliability_curve`].
pub fn calibration_error(stated: &[Share], positive: &[bool], bins: u32) -> Result<f64, Undefined> {
    let curve = reliability_curve(stated, positive, bins)?;
    let n = count(stated.len());
    Ok(curve.iter().map(|bin| count(bin.rows) / n * (bin.stated - bin.observed).abs()).sum())
}
