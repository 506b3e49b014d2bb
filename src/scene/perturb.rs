//! The twenty perturbed copies of an image behind the perturbation spread (signal A2): five noise kinds dealt in
//! rotation, so that any prefix of the copies holds the kinds as evenly as it can.
//!
//! Everything is integer arithmetic on 8-bit samples, drawn from a ChaCha8 keystream whose key is the triple's seed and
//! whose stream is the copy's index. Copy *k* is therefore the same on every platform, and the same whether or not the
//! others were made. Perturbing before normalisation, not after, also keeps a tile from becoming exactly zero in a
//! model's input, which some preprocessors take as "no tile".

use image::RgbImage;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Number of perturbed copies behind one spread.
pub const COPIES: usize = 20;
/// Standard deviation of the weak Gaussian noise, in 8-bit levels: sensor noise of a dim room.
pub const GAUSSIAN_WEAK_SIGMA: u8 = 8;
/// Standard deviation of the strong Gaussian noise, in 8-bit levels: visible grain over the whole picture.
pub const GAUSSIAN_STRONG_SIGMA: u8 = 24;
/// Side of a patch, in per cent of the image's side in that direction: 1/16 of the area.
pub const PATCH_SIDE_PER_CENT: u32 = 25;
/// Level of all three channels inside the opaque patch: mid-grey, which no usual normalisation maps to zero.
pub const OPAQUE_LEVEL: u8 = 128;
/// Level the translucent patch is blended towards: white, as glare does.
pub const TRANSLUCENT_LEVEL: u8 = 255;
/// Weight of [`TRANSLUCENT_LEVEL`] in the translucent patch, in 1/256.
pub const TRANSLUCENT_WEIGHT: u16 = 128;
/// Number of box passes behind the blurred patch. Two boxes of radius r blur like a Gaussian of σ ≈ 0.82 r.
pub const BLUR_PASSES: usize = 2;
/// The blur's radius is the patch's shorter side divided by this, in pixels, at least 1.
pub const BLUR_RADIUS_DIVISOR: u32 = 16;

/// A noise kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Perturbation {
    /// Gaussian noise of [`GAUSSIAN_WEAK_SIGMA`] on every sample.
    GaussianWeak,
    /// Gaussian noise of [`GAUSSIAN_STRONG_SIGMA`] on every sample.
    GaussianStrong,
    /// A patch at a random place replaced by [`OPAQUE_LEVEL`].
    OpaquePatch,
    /// A patch at a random place blended with [`TRANSLUCENT_LEVEL`].
    TranslucentPatch,
    /// A patch at a random place blurred from its own pixels.
    BlurredPatch,
}

impl Perturbation {
    /// The kinds in the order they are dealt.
    pub const ALL: [Self; 5] =
        [Self::GaussianWeak, Self::GaussianStrong, Self::OpaquePatch, Self::TranslucentPatch, Self::BlurredPatch];

    /// The kind of copy `index`: `index mod 5` into [`Perturbation::ALL`].
    #[must_use]
    pub const fn of(index: usize) -> Self {
        match index % 5 {
            0 => Self::GaussianWeak,
            1 => Self::GaussianStrong,
            2 => Self::OpaquePatch,
            3 => Self::TranslucentPatch,
            _ => Self::BlurredPatch,
        }
    }
}

/// Copy `index` of the image under this seed, which is the triple digest's.
#[must_use]
pub fn copy(image: &RgbImage, seed: u64, index: usize) -> RgbImage {
    let mut target = RgbImage::new(0, 0);
    copy_into(image, seed, index, &mut target);
    target
}

/// [`copy`] into an image whose buffer is reused from one copy to the next; its former content does not matter.
pub fn copy_into(image: &RgbImage, seed: u64, index: usize, target: &mut RgbImage) {
    target.clone_from(image);
    let mut stream = keystream(seed, index);
    match Perturbation::of(index) {
        Perturbation::GaussianWeak => add_gaussian(target, GAUSSIAN_WEAK_SIGMA, &mut stream),
        Perturbation::GaussianStrong => add_gaussian(target, GAUSSIAN_STRONG_SIGMA, &mut stream),
        Perturbation::OpaquePatch => {
            let patch = Patch::draw(image.width(), image.height(), &mut stream);
            patch.rows(target).for_each(|row| row.fill(OPAQUE_LEVEL));
        }
        Perturbation::TranslucentPatch => {
            let patch = Patch::draw(image.width(), image.height(), &mut stream);
            patch.rows(target).for_each(|row| row.iter_mut().for_each(|sample| *sample = veil(*sample)));
        }
        Perturbation::BlurredPatch => {
            Patch::draw(image.width(), image.height(), &mut stream).blur(target);
        }
    }
}

/// The keystream of one copy: ChaCha with 8 rounds, the seed (little-endian) as the first eight bytes of an otherwise
/// zero key, the copy's index as stream number.
fn keystream(seed: u64, index: usize) -> ChaCha8Rng {
    let mut key = [0; 32];
    key.iter_mut().zip(seed.to_le_bytes()).for_each(|(byte, seed_byte)| *byte = seed_byte);
    let mut stream = ChaCha8Rng::from_seed(key);
    stream.set_stream(u64::try_from(index).unwrap_or(u64::MAX));
    stream
}

/// Adds one table entry to every sample, chosen by one keystream byte: sample *i* by byte *i*. Saturates at 0 and 255.
fn add_gaussian(image: &mut RgbImage, sigma: u8, stream: &mut ChaCha8Rng) {
    let levels = gaussian_levels(sigma);
    let mut bytes = [0_u8; 4096];
    for samples in image.chunks_mut(bytes.len()) {
        stream.fill_bytes(&mut bytes);
        for (sample, byte) in samples.iter_mut().zip(bytes) {
            let level = levels.get(usize::from(byte)).copied().unwrap_or_default();
            *sample = sample.saturating_add_signed(level);
        }
    }
}

/// The 256 equally likely noise levels of this standard deviation, rounded to whole 8-bit levels: the lower half of
/// the bytes gives the positive ones, the upper half their mirror image, so the mean is exactly zero.
fn gaussian_levels(sigma: u8) -> [i8; 256] {
    let mut levels = [0; 256];
    let (positive, negative) = levels.split_at_mut(128);
    for ((up, down), quantile) in positive.iter_mut().zip(negative).zip(HALF_NORMAL_QUANTILES) {
        let level = (i32::from(sigma) * i32::from(quantile) + 128) >> 8;
        *up = i8::try_from(level).unwrap_or(i8::MAX);
        *down = -*up;
    }
    levels
}

/// The sample under the translucent patch, rounded to nearest.
const fn veil(sample: u8) -> u8 {
    let blend = (sample as u16) * (256 - TRANSLUCENT_WEIGHT) + (TRANSLUCENT_LEVEL as u16) * TRANSLUCENT_WEIGHT + 128;
    let [_, high] = blend.to_le_bytes();
    high
}

/// A rectangle inside an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Patch {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl Patch {
    /// A patch of [`PATCH_SIDE_PER_CENT`] of each side, at least one pixel, at a place drawn evenly from those where it
    /// lies wholly inside.
    fn draw(image_width: u32, image_height: u32, stream: &mut ChaCha8Rng) -> Self {
        let width = patch_side(image_width);
        let height = patch_side(image_height);
        let x = below(image_width - width + 1, stream);
        let y = below(image_height - height + 1, stream);
        Self { x, y, width, height }
    }

    /// The patch's part of each image row it covers, as samples.
    fn rows(self, image: &mut RgbImage) -> impl Iterator<Item = &mut [u8]> {
        let (row_samples, first, count) = (3 * image.width() as usize, 3 * self.x as usize, 3 * self.width as usize);
        image
            .chunks_exact_mut(row_samples.max(1))
            .skip(self.y as usize)
            .take(self.height as usize)
            .filter_map(move |row| row.get_mut(first..first + count))
    }

    /// Blurs the patch with [`BLUR_PASSES`] separable box passes, edge pixels repeated outwards. Nothing outside is
    /// read, so what the patch covers cannot leak in or out.
    fn blur(self, image: &mut RgbImage) {
        let (width, height) = (self.width as usize, self.height as usize);
        let radius = (self.width.min(self.height) / BLUR_RADIUS_DIVISOR).max(1) as usize;
        let samples: Vec<u8> = self.rows(image).flat_map(|row| row.iter().copied()).collect();
        for channel in 0..3 {
            let mut plane: Vec<u8> = samples.iter().skip(channel).step_by(3).copied().collect();
            for _ in 0..BLUR_PASSES {
                let turned = box_blur_transposed(&plane, width, radius);
                plane = box_blur_transposed(&turned, height, radius);
            }
            let pixels = self.rows(image).flat_map(|row| row.iter_mut().skip(channel).step_by(3));
            pixels.zip(plane).for_each(|(sample, blurred)| *sample = blurred);
        }
    }
}

/// The side of a patch in an image of this side, in pixels, rounded to nearest, at least 1 where there is room.
fn patch_side(image_side: u32) -> u32 {
    let rounded = (u64::from(image_side) * u64::from(PATCH_SIDE_PER_CENT) + 50) / 100;
    u32::try_from(rounded).unwrap_or(u32::MAX).max(1).min(image_side)
}

/// A draw from `0..bound` by one 32-bit word: the high half of `word × bound`. Uneven by less than `bound / 2³²`.
fn below(bound: u32, stream: &mut ChaCha8Rng) -> u32 {
    let product = u64::from(stream.next_u32()) * u64::from(bound);
    u32::try_from(product >> 32).unwrap_or_default()
}

/// Box-blurs each line of `length` samples and returns the plane transposed, so that two calls blur both directions.
/// Means are rounded to nearest.
fn box_blur_transposed(plane: &[u8], length: usize, radius: usize) -> Vec<u8> {
    let lines = plane.len() / length.max(1);
    let window = 2 * radius + 1;
    let window_samples = u32::try_from(window).unwrap_or(u32::MAX);
    let mut turned = vec![0; plane.len()];
    let mut padded = Vec::with_capacity(length + 2 * radius + 1);
    for (index, line) in plane.chunks_exact(length.max(1)).enumerate() {
        let (Some(first), Some(last)) = (line.first(), line.last()) else { continue };
        padded.clear();
        padded.extend(std::iter::repeat_n(*first, radius));
        padded.extend_from_slice(line);
        padded.extend(std::iter::repeat_n(*last, radius + 1));
        let mut sum: u32 = padded.iter().take(window).copied().map(u32::from).sum();
        let steps = padded.iter().zip(padded.iter().skip(window));
        for (blurred, (leaving, entering)) in turned.iter_mut().skip(index).step_by(lines).zip(steps) {
            *blurred = u8::try_from((sum + window_samples / 2) / window_samples).unwrap_or(u8::MAX);
            sum = sum + u32::from(*entering) - u32::from(*leaving);
        }
    }
    turned
}

/// The upper half of the standard normal at 256 evenly spaced probabilities, `Φ⁻¹((128 + i + ½) / 256)`, scaled so that
/// the mirrored table has variance 1, in units of 1/256. Made by `tests/reference/scene/perturb.py`.
#[rustfmt::skip]
const HALF_NORMAL_QUANTILES: [i16; 128] = [
    1, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 29, 31, 34, 37, 39, 42, 44, 47, 49, 52, 54, 57, 60, 62, 65, 67, 70,
    73, 75, 78, 80, 83, 86, 88, 91, 94, 96, 99, 102, 105, 107, 110, 113, 116, 118, 121, 124, 127, 130, 133, 135,
    138, 141, 144, 147, 150, 153, 156, 159, 162, 165, 168, 172, 175, 178, 181, 184, 188, 191, 194, 198, 201,
    204, 208, 211, 215, 219, 222, 226, 230, 233, 237, 241, 245, 249, 253, 257, 261, 266, 270, 274, 279, 283,
    288, 293, 298, 303, 308, 313, 318, 324, 329, 335, 341, 347, 354, 360, 367, 374, 382, 390, 398, 406, 415,
    425, 435, 446, 458, 471, 485, 501, 519, 541, 566, 599, 647, 741,
];
