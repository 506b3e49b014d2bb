//! Resizing equal to Pillow's (up to version 12) to the last bit: rows first, weights in 22-bit fixed point, results
//! clipped to 8 bits between the passes.
//!
//! A weight is summed up in two halves of 11 bits, because any processor multiplies and adds several 16-bit integers at
//! once. Put together the sums are the whole weight's, within 32 bits: whatever is carried over in between comes back.
//!
//! The scene's own resizing is faster and differs by a level here and there. A large model's logits move by more than a
//! parity check allows for that, so images are brought to a reference's sizes by the reference's arithmetic.

use image::RgbImage;
use wide::bytemuck::cast;
use wide::{i16x8, i32x4, i32x8, u8x16};

use crate::scene::decode::{IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX};
use crate::scene::resize::{Filter, ResizeError};

/// Fractional bits of a weight: 32, less 8 of the sample, less 2 for overshoot.
const WEIGHT_BITS: u32 = 32 - 8 - 2;
/// Bits of a weight's lower half.
const LOW_BITS: u32 = WEIGHT_BITS / 2;
/// What a sum begins with: a half, so that cutting off rounds.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);
/// Samples summed side by side.
const LANES: usize = 16;

/// What one output sample is made of: of each two samples from `start` on, both weights' upper and lower halves.
struct Window {
    start: usize,
    weights: Vec<[i16x8; 2]>,
}

impl Window {
    fn new((start, weights): (u32, Vec<i32>)) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a weight is below 2²⁶, whatever the filter")]
        let halves = |pair: &[i32]| {
            let of = |half: fn(i32) -> i32| {
                let [first, second] = [0, 1].map(|index| half(pair.get(index).copied().unwrap_or_default()) as i16);
                i16x8::new([first, second, first, second, first, second, first, second])
            };
            [of(|weight| weight >> LOW_BITS), of(|weight| weight & ((1 << LOW_BITS) - 1))]
        };
        Self { start: usize::try_from(start).unwrap_or(usize::MAX), weights: weights.chunks(2).map(halves).collect() }
    }
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
    let narrowed = if width == image.width() { padded(image) } else { across(image, width, filter) };
    let mut resized = RgbImage::new(width, height);
    if height == image.height() {
        resized.iter_mut().zip(narrowed).for_each(|(sample, value)| *sample = value);
    } else {
        let windows: Vec<Window> = windows(image.height(), height, filter).map(Window::new).collect();
        weigh::<4>(&narrowed, &mut resized, stride(width), &windows);
    }
    Ok(resized)
}

/// An image's samples, and then zeros that may be read with the last row.
fn padded(image: &RgbImage) -> Vec<u8> {
    let mut samples = vec![0; image.as_raw().len() + stride(image.width()) + LANES];
    samples.iter_mut().zip(image.as_raw()).for_each(|(place, &sample)| *place = sample);
    samples
}

/// Changes the width: along a row, pixels are weighted sums of pixels.
fn across(image: &RgbImage, width: u32, filter: Filter) -> Vec<u8> {
    let windows: Vec<Window> = windows(image.width(), width, filter).map(Window::new).collect();
    let rows = image.as_raw().chunks_exact(stride(image.width()));
    let mut resized = vec![0; (rows.len() + 1) * stride(width) + LANES];
    let mut padded = vec![0; stride(image.width()) + 3 + LANES];
    for (row, target) in rows.zip(resized.chunks_exact_mut(stride(width))) {
        padded.iter_mut().zip(row).for_each(|(place, &sample)| *place = sample);
        weigh::<1>(&padded, target, 3, &windows);
    }
    resized
}

/// Rows that are weighted sums of rows, `4 * GROUPS` samples of them at a time. Inlined, because a stride that is known
/// halves what a pixel costs.
#[inline(always)]
fn weigh<const GROUPS: usize>(rows: &[u8], targets: &mut [u8], stride: usize, windows: &[Window]) {
    for (window, target) in windows.iter().zip(targets.chunks_exact_mut(stride)) {
        let start = window.start * stride;
        for (target, start) in target.chunks_mut(4 * GROUPS).zip((start..).step_by(4 * GROUPS)) {
            let mut sums = [[i32x4::splat(0), i32x4::splat(HALF)]; 4];
            let rows = rows.get(start..).unwrap_or_default().windows(stride + LANES).step_by(2 * stride);
            for (rows, weights) in rows.zip(&window.weights) {
                let [upper, lower] = [0, stride].map(|from| samples(rows.get(from..).unwrap_or_default()));
                let (left, right) = (u8x16::unpack_low(upper, lower), u8x16::unpack_high(upper, lower));
                let widened = [
                    u8x16::unpack_low(left, u8x16::ZERO),
                    u8x16::unpack_high(left, u8x16::ZERO),
                    u8x16::unpack_low(right, u8x16::ZERO),
                    u8x16::unpack_high(right, u8x16::ZERO),
                ];
                for (sums, pairs) in sums.iter_mut().take(GROUPS).zip(widened) {
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum += cast::<_, i16x8>(pairs).dot(*weights);
                    }
                }
            }
            let levels = u8x16::narrow_i16x8(level(sums[0], sums[1]), level(sums[2], sums[3])).to_array();
            for (sample, level) in target.iter_mut().zip(levels) {
                *sample = level;
            }
        }
    }
}

/// Cuts the fractions off and holds the rest within sixteen bits.
fn level(first: [i32x4; 2], second: [i32x4; 2]) -> i16x8 {
    let whole = |[high, low]: [i32x4; 2]| (((high << LOW_BITS) + low) >> WEIGHT_BITS).to_array();
    let ([a, b, c, d], [e, f, g, h]) = (whole(first), whole(second));
    i16x8::from_i32x8_saturate(i32x8::new([a, b, c, d, e, f, g, h]))
}

/// The first sixteen samples.
fn samples(rows: &[u8]) -> u8x16 {
    u8x16::new(rows.first_chunk().copied().unwrap_or_default())
}

/// Samples in a row of so many pixels.
fn stride(width: u32) -> usize {
    3 * usize::try_from(width).unwrap_or(1)
}

/// Where each output sample along a side begins, and its weights.
fn windows(from: u32, to: u32, filter: Filter) -> impl Iterator<Item = (u32, Vec<i32>)> {
    let scale = f64::from(from) / f64::from(to);
    let stretch = scale.max(1.0);
    let reach = support(filter) * stretch;
    let window = move |index: u32| {
        let centre = (f64::from(index) + 0.5) * scale;
        let start = whole(centre - reach + 0.5);
        let end = whole(centre + reach + 0.5).min(from);
        let weigh = |sample: u32| weight(filter, (f64::from(sample) - centre + 0.5) * (1.0 / stretch));
        let weights: Vec<f64> = (start..end).map(weigh).collect();
        let whole: f64 = weights.iter().sum();
        let share = |weight: &f64| if whole.to_bits() << 1 == 0 { *weight } else { weight / whole };
        (start, weights.iter().map(|weight| fixed(share(weight))).collect())
    };
    (0..to).map(window)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; Pillow truncates here")]
fn whole(side: f64) -> u32 {
    side.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// To fixed point, halves away from zero.
#[expect(clippy::cast_possible_truncation, reason = "far below 32 bits")]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, a sample at a time.
    fn plainly(image: &RgbImage, size: [u32; 2], filter: Filter) -> RgbImage {
        let level = |sum: i64| u8::try_from(sum.max(0) >> WEIGHT_BITS).unwrap_or(u8::MAX);
        let weigh = |(start, weights): &(u32, Vec<i32>), sample: &dyn Fn(u32) -> u8| {
            let terms = (*start..).zip(weights).map(|(place, &weight)| i64::from(sample(place)) * i64::from(weight));
            level(i64::from(HALF) + terms.sum::<i64>())
        };
        let across: Vec<_> = windows(image.width(), size[0], filter).collect();
        let narrowed = RgbImage::from_fn(size[0], image.height(), |x, y| {
            image::Rgb([0, 1, 2].map(|channel| weigh(&across[x as usize], &|x| image.get_pixel(x, y)[channel])))
        });
        let down: Vec<_> = windows(image.height(), size[1], filter).collect();
        RgbImage::from_fn(size[0], size[1], |x, y| {
            image::Rgb([0, 1, 2].map(|channel| weigh(&down[y as usize], &|y| narrowed.get_pixel(x, y)[channel])))
        })
    }

    #[test]
    fn many_samples_at_once_are_one_after_another() {
        let mut seed = 1_u32;
        for [from_x, from_y, to_x, to_y] in [
            [1, 1, 7, 9],
            [9, 31, 3, 5],
            [31, 33, 32, 32],
            [100, 7, 13, 8],
            [64, 48, 40, 157],
            [3, 2000, 4, 2],
            [900, 2, 1, 3],
        ] {
            let image = RgbImage::from_fn(from_x, from_y, |_, _| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Mostly the extremes, where a filter overshoots.
                image::Rgb(
                    seed.to_le_bytes()[1..]
                        .try_into()
                        .map(|samples: [u8; 3]| samples.map(|s| s.saturating_mul(2)))
                        .expect("three"),
                )
            });
            for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
                let resized = resample(&image, to_x, to_y, filter).expect("within limits");
                assert!(
                    resized == plainly(&image, [to_x, to_y], filter),
                    "{filter:?} {from_x}×{from_y} to {to_x}×{to_y}"
                );
            }
        }
    }
}
