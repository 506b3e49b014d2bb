//! Resizing equal to Pillow's (up to version 12) to the last bit: rows first, weights in 22-bit fixed point, results
//! clipped to 8 bits between the passes.
//!
//! The fixed-point sums stay below 2⁵³, so that they are computed as 64-bit floats, exactly: any processor multiplies
//! several of those at once, which older ones cannot do with integers.
//!
//! The scene's own resizing is faster and differs by a level here and there. A large model's logits move by more than a
//! parity check allows for that, so images are brought to a reference's sizes by the reference's arithmetic.

use image::RgbImage;

use crate::scene::decode::{IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX};
use crate::scene::resize::{Filter, ResizeError};

/// Fractional bits of a weight: 32, less 8 of the sample, less 2 for overshoot.
const WEIGHT_BITS: u32 = 32 - 8 - 2;

/// Rows whose sums are computed side by side.
const LANES: usize = 4;
/// Threads that share a resizing. The engine rests meanwhile, and more than two cores are not everywhere.
const THREADS: usize = 2;
/// What a sum begins with: a half, so that cutting off rounds.
const HALF: f64 = 2_097_152.0;

/// What one output sample is made of. The weights are whole numbers.
struct Window {
    start: usize,
    weights: Vec<f64>,
}

/// The image at exactly this size in pixels.
///
/// # Errors
/// When either size is zero or beyond the limits of decoding.
pub fn resample(image: &RgbImage, width: u32, height: u32, filter: Filter) -> Result<RgbImage, ResizeError> {
    for (width, height) in [(image.width(), image.height()), (width, height)] {
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > IMAGE_PIXELS_MAX || width.max(height) > IMAGE_SIDE_PX_MAX {
            return Err(ResizeError::Size { width, height });
        }
    }
    let narrowed;
    let mut source = image;
    if width != image.width() {
        narrowed = across(image, width, filter);
        source = &narrowed;
    }
    Ok(if height == image.height() { source.clone() } else { down(source, height, filter) })
}

/// Changes the width.
fn across(image: &RgbImage, width: u32, filter: Filter) -> RgbImage {
    let windows = windows(image.width(), width, filter);
    let mut resized = RgbImage::new(width, image.height());
    let (from, to) = (stride(image.width()), stride(width));
    let rows = part(image.height()).next_multiple_of(LANES);
    let parts = image.as_raw().chunks(rows * from).zip(resized.chunks_mut(rows * to));
    shared_out(parts, |(sources, targets)| narrow(sources, targets, (from, to), &windows));
    resized
}

/// Changes the width of some rows, a few side by side.
fn narrow(sources: &[u8], targets: &mut [u8], (from, to): (usize, usize), windows: &[Window]) {
    let mut block = vec![[[0.0_f64; LANES]; 3]; from / 3];
    for (sources, targets) in sources.chunks(LANES * from).zip(targets.chunks_mut(LANES * to)) {
        for (lane, source) in sources.chunks_exact(from).enumerate() {
            for (pixel, samples) in block.iter_mut().zip(source.chunks_exact(3)) {
                for (lanes, &sample) in pixel.iter_mut().zip(samples) {
                    if let Some(value) = lanes.get_mut(lane) {
                        *value = f64::from(sample);
                    }
                }
            }
        }
        for (window, column) in windows.iter().zip((0..to).step_by(3)) {
            let mut sums = [[HALF; LANES]; 3];
            let pixels = block.get(window.start..).unwrap_or_default();
            for (pixel, &weight) in pixels.iter().zip(&window.weights) {
                for (sums, lanes) in sums.iter_mut().zip(pixel) {
                    for (sum, value) in sums.iter_mut().zip(lanes) {
                        *sum += value * weight;
                    }
                }
            }
            for (lane, target) in targets.chunks_exact_mut(to).enumerate() {
                for (sample, sums) in target.iter_mut().skip(column).zip(&sums) {
                    *sample = clip(sums.get(lane).copied().unwrap_or_default());
                }
            }
        }
    }
}

/// Changes the height.
fn down(image: &RgbImage, height: u32, filter: Filter) -> RgbImage {
    let stride = stride(image.width());
    let mut resized = RgbImage::new(image.width(), height);
    let windows = windows(image.height(), height, filter);
    let rows = part(height);
    let parts = windows.chunks(rows).zip(resized.chunks_mut(rows * stride));
    shared_out(parts, |(windows, targets)| lower(image.as_raw(), targets, stride, windows));
    resized
}

/// Some rows of an image of another height: each is a weighted sum of rows.
fn lower(sources: &[u8], targets: &mut [u8], stride: usize, windows: &[Window]) {
    let mut sums = vec![0.0_f64; stride];
    for (window, target) in windows.iter().zip(targets.chunks_exact_mut(stride)) {
        sums.fill(HALF);
        let rows = sources.chunks_exact(stride).skip(window.start);
        for (row, &weight) in rows.zip(&window.weights) {
            for (sum, &sample) in sums.iter_mut().zip(row) {
                *sum += f64::from(sample) * weight;
            }
        }
        for (sample, &sum) in target.iter_mut().zip(&sums) {
            *sample = clip(sum);
        }
    }
}

/// Samples in a row of so many pixels.
fn stride(width: u32) -> usize {
    3 * usize::try_from(width).unwrap_or(1)
}

/// Rows of each thread's part, of so many.
fn part(rows: u32) -> usize {
    usize::try_from(rows).unwrap_or(1).div_ceil(THREADS)
}

/// Works on the first part here, and on each other one in a thread of its own.
fn shared_out<P: Send>(mut parts: impl Iterator<Item = P>, work: impl Fn(P) + Sync) {
    let work = &work;
    std::thread::scope(|scope| {
        let own = parts.next();
        parts.for_each(|part| {
            scope.spawn(move || work(part));
        });
        own.map(work);
    });
}

/// Cuts the fraction off and holds the rest within a sample. A sum below zero becomes zero either way.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast holds it within a sample")]
fn clip(sum: f64) -> u8 {
    (sum / f64::from(1_u32 << WEIGHT_BITS)) as u8
}

/// One window per output sample along a side.
fn windows(from: u32, to: u32, filter: Filter) -> Vec<Window> {
    let scale = f64::from(from) / f64::from(to);
    let stretch = scale.max(1.0);
    let reach = support(filter) * stretch;
    let window = |index: u32| {
        let centre = (f64::from(index) + 0.5) * scale;
        let start = whole(centre - reach + 0.5);
        let end = whole(centre + reach + 0.5).min(from);
        let weigh = |sample: u32| weight(filter, (f64::from(sample) - centre + 0.5) * (1.0 / stretch));
        let weights: Vec<f64> = (start..end).map(weigh).collect();
        let whole: f64 = weights.iter().sum();
        let share = |weight: &f64| if whole.to_bits() << 1 == 0 { *weight } else { weight / whole };
        Window {
            start: usize::try_from(start).unwrap_or(usize::MAX),
            weights: weights.iter().map(|weight| fixed(share(weight))).collect(),
        }
    };
    (0..to).map(window).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; Pillow truncates here")]
fn whole(side: f64) -> u32 {
    side.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// To fixed point, halves away from zero.
fn fixed(weight: f64) -> f64 {
    let scaled = weight * f64::from(1_u32 << WEIGHT_BITS);
    (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }).trunc()
}

const fn support(filter: Filter) -> f64 {
    match filter {
        Filter::Bilinear => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

fn weight(filter: Filter, x: f64) -> f64 {
    let distance = x.abs();
    match filter {
        Filter::Bilinear => (1.0 - distance).max(0.0),
        Filter::Bicubic => {
            const A: f64 = -0.5;
            if distance < 1.0 {
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            } else if distance < 2.0 {
                (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A
            } else {
                0.0
            }
        }
        Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        Filter::Lanczos => 0.0,
    }
}

fn sinc(x: f64) -> f64 {
    if x.to_bits() << 1 == 0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}
