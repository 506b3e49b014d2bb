//! Resizing equal to Pillow's (up to version 12) to the last bit: rows first, weights in 22-bit fixed point, results
//! clipped to 8 bits between the passes.
//!
//! The scene's own resizing is faster and differs by a level here and there. A large model's logits move by more than a
//! parity check allows for that, so images are brought to a reference's sizes by the reference's arithmetic.

use image::RgbImage;

use crate::scene::decode::{IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX};
use crate::scene::resize::{Filter, ResizeError};

/// Fractional bits of a weight: 32, less 8 of the sample, less 2 for overshoot.
const WEIGHT_BITS: u32 = 32 - 8 - 2;

/// What one output sample is made of.
struct Window {
    start: usize,
    weights: Vec<i32>,
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

/// Changes the width, row by row.
fn across(image: &RgbImage, width: u32, filter: Filter) -> RgbImage {
    let windows = windows(image.width(), width, filter);
    let mut resized = RgbImage::new(width, image.height());
    let stride = |width: u32| 3 * usize::try_from(width).unwrap_or(1);
    let rows = image.as_raw().chunks_exact(stride(image.width()));
    for (source, target) in rows.zip(resized.chunks_exact_mut(stride(width))) {
        for (window, pixel) in windows.iter().zip(target.chunks_exact_mut(3)) {
            let mut sums = [1_i32 << (WEIGHT_BITS - 1); 3];
            let samples = source.get(3 * window.start..).unwrap_or_default().chunks_exact(3);
            for (samples, &weight) in samples.zip(&window.weights) {
                for (sum, &sample) in sums.iter_mut().zip(samples) {
                    *sum += i32::from(sample) * weight;
                }
            }
            for (sample, sum) in pixel.iter_mut().zip(sums) {
                *sample = clip(sum);
            }
        }
    }
    resized
}

/// Changes the height: every row of the result is a weighted sum of rows.
fn down(image: &RgbImage, height: u32, filter: Filter) -> RgbImage {
    let stride = 3 * usize::try_from(image.width()).unwrap_or(1);
    let mut resized = RgbImage::new(image.width(), height);
    let mut sums = vec![0_i32; stride];
    let windows = windows(image.height(), height, filter);
    for (window, target) in windows.iter().zip(resized.chunks_exact_mut(stride)) {
        sums.fill(1 << (WEIGHT_BITS - 1));
        let rows = image.as_raw().chunks_exact(stride).skip(window.start);
        for (row, &weight) in rows.zip(&window.weights) {
            for (sum, &sample) in sums.iter_mut().zip(row) {
                *sum += i32::from(sample) * weight;
            }
        }
        for (sample, &sum) in target.iter_mut().zip(&sums) {
            *sample = clip(sum);
        }
    }
    resized
}

fn clip(sum: i32) -> u8 {
    u8::try_from((sum >> WEIGHT_BITS).clamp(0, 255)).unwrap_or(u8::MAX)
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
#[expect(clippy::cast_possible_truncation, reason = "a weight is at most about 1.3")]
fn fixed(weight: f64) -> i32 {
    let scaled = weight * f64::from(1_u32 << WEIGHT_BITS);
    (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
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
