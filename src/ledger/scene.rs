//! Whether two images show the same scene, in the sense a remembered refusal needs: an object put in or moved, another
//! light or a small step aside leave it the same; another place does not.
//!
//! The image is averaged down to 128 × 128 and described by 15 × 15 overlapping patches, each a histogram of gradient
//! directions over eight bins (after Dalal and Triggs, "Histograms of Oriented Gradients for Human Detection", 2005),
//! centred and scaled to length one, so that neither brightness nor contrast count. Two scenes are laid over each other
//! at every offset of up to two patches; each time the best 60 % of the patches, weighted by how much texture they
//! hold, are averaged, so that what is new in one of them has no vote. The best offset counts.

use std::f64::consts::TAU;

use image::RgbImage;

/// From this similarity on, two images show the same scene. Set on rendered rooms and photos: other places stay below
/// in over 99 % of the pairs, everyday changes above in over 99 % (`tests/ledger.rs` measures both).
pub const SAME_SCENE_MIN: f64 = 0.75;

/// Bytes of a scene as stored.
pub const SCENE_BYTES: usize = PATCHES * (BINS + 1);

/// Side of the averaged image, in pixels.
const SIDE: u32 = 128;
/// Side of a block, in pixels of the averaged image; a patch is two by two blocks.
const BLOCK: usize = 8;
const BLOCKS: usize = 16;
const PATCHES_ACROSS: usize = BLOCKS - 1;
const PATCHES: usize = PATCHES_ACROSS * PATCHES_ACROSS;
const BINS: usize = 8;
/// Length of a patch's centred histogram at which it counts half, in grey levels: the noise of an ordinary camera on a
/// blank wall stays below.
const TEXTURE_HALF: f64 = 80.0;
/// Share of the texture that has to agree.
const KEPT_SHARE: f64 = 0.6;
/// Texture, in whole patches, that an empty scene is taken to hold in disagreement with everything.
const DOUBT: f64 = 3.0;
/// Scenes with less texture than this, in whole patches, hold nothing to tell them apart by.
const TEXTURE_MIN: f64 = 6.0;
/// Largest offset tried, in patches; one is a sixteenth of the image.
const OFFSET_MAX: isize = 2;

/// What is remembered of an image: directions of its gradients, coarse enough that the image cannot be had back.
#[derive(Clone, PartialEq, Eq)]
pub struct SceneFeatures {
    patches: Vec<Patch>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Patch {
    /// Centred histogram scaled to length 127.
    direction: [i8; BINS],
    /// 0 blank, 255 all texture.
    texture: u8,
}

impl std::fmt::Debug for SceneFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SceneFeatures").field("texture", &self.texture()).finish_non_exhaustive()
    }
}

impl SceneFeatures {
    /// The features of a decoded image.
    #[must_use]
    pub fn of(image: &RgbImage) -> Self {
        let blocks = block_histograms(&averaged(image));
        let mut patches = Vec::with_capacity(PATCHES);
        for pair in blocks.windows(2) {
            let [upper, lower] = pair else { continue };
            for (above, below) in upper.windows(2).zip(lower.windows(2)) {
                let mut histogram = [0.0; BINS];
                for block in above.iter().chain(below) {
                    for (sum, value) in histogram.iter_mut().zip(block) {
                        *sum += value;
                    }
                }
                patches.push(Patch::of(histogram));
            }
        }
        Self { patches }
    }

    /// How alike two scenes are: about 0.4 for two places, close to 1 for one.
    #[must_use]
    pub fn similarity(&self, other: &Self) -> f64 {
        if self.texture() < TEXTURE_MIN && other.texture() < TEXTURE_MIN {
            return 1.0;
        }
        let offsets = || -OFFSET_MAX..=OFFSET_MAX;
        let similarities =
            offsets().flat_map(|down| offsets().map(move |right| self.similarity_at(other, down, right)));
        similarities.fold(0.0, f64::max)
    }

    /// Whether both show the same scene. Two scenes without any texture do: nothing tells them apart, and forgetting a
    /// refusal is the worse mistake.
    #[must_use]
    pub fn same_scene(&self, other: &Self) -> bool {
        self.similarity(other) >= SAME_SCENE_MIN
    }

    /// The bytes to store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let patch = |patch: &Patch| patch.direction.map(i8::cast_unsigned).into_iter().chain([patch.texture]);
        self.patches.iter().flat_map(patch).collect()
    }

    /// Reads them back; `None` when there are not [`SCENE_BYTES`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SCENE_BYTES {
            return None;
        }
        let patch = |chunk: &[u8]| {
            let (&texture, direction) = chunk.split_last()?;
            let direction: [u8; BINS] = direction.try_into().ok()?;
            Some(Patch { direction: direction.map(u8::cast_signed), texture })
        };
        Some(Self { patches: bytes.chunks_exact(BINS + 1).map(patch).collect::<Option<_>>()? })
    }

    /// How many patches' worth of texture there is.
    fn texture(&self) -> f64 {
        self.patches.iter().map(|patch| f64::from(patch.texture) / 255.0).sum()
    }

    /// Similarity with the other scene moved by this many patches.
    fn similarity_at(&self, other: &Self, down: isize, right: isize) -> f64 {
        let moved = other.rows().skip(down.max(0).unsigned_abs());
        let rows = self.rows().skip(down.min(0).unsigned_abs()).zip(moved);
        let mut agreements: Vec<(f64, f64)> = rows
            .flat_map(|(row, moved)| {
                let moved = moved.iter().skip(right.max(0).unsigned_abs());
                row.iter().skip(right.min(0).unsigned_abs()).zip(moved)
            })
            .map(|(patch, moved)| patch.agreement(moved))
            .collect();
        agreements.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        let enough = KEPT_SHARE * agreements.iter().map(|(_, weight)| weight).sum::<f64>();
        let (mut agreed, mut kept) = (0.0, 0.0);
        for (cosine, weight) in agreements {
            agreed += cosine * weight;
            kept += weight;
            if kept >= enough {
                break;
            }
        }
        agreed / (kept + DOUBT)
    }

    fn rows(&self) -> impl Iterator<Item = &[Patch]> {
        self.patches.chunks(PATCHES_ACROSS)
    }
}

impl Patch {
    fn of(histogram: [f64; BINS]) -> Self {
        let mean = histogram.iter().sum::<f64>() / 8.0;
        let length = histogram.iter().map(|value| (value - mean).powi(2)).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 127.0 / length } else { 0.0 };
        Self {
            direction: histogram.map(|value| round_i8((value - mean) * scale)),
            texture: round_u8(255.0 * length / (length + TEXTURE_HALF)),
        }
    }

    /// Cosine of the angle between two patches, and how much it counts.
    fn agreement(&self, other: &Self) -> (f64, f64) {
        let products = self.direction.iter().zip(&other.direction);
        let dot: i32 = products.map(|(&one, &other)| i32::from(one) * i32::from(other)).sum();
        let weight = (f64::from(self.texture) * f64::from(other.texture)).sqrt() / 255.0;
        (f64::from(dot) / (127.0 * 127.0), weight)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float cast to an integer saturates, and these are in range")]
fn round_i8(value: f64) -> i8 {
    value.round() as i8
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast to an integer saturates, and these are in range"
)]
fn round_u8(value: f64) -> u8 {
    value.round() as u8
}

/// The part of a line of pixels that falls into one pixel of the averaged image: where it begins, and each one's share.
struct Span {
    first: usize,
    shares: Vec<f64>,
}

/// Cuts `length` pixels into [`SIDE`] equal spans. Counted in parts of 1/[`SIDE`] pixel, so every border is whole.
fn spans(length: u32) -> Vec<Span> {
    let span = |index: u32| {
        let (from, to) = (u64::from(index) * u64::from(length), u64::from(index + 1) * u64::from(length));
        let side = u64::from(SIDE);
        let first = from / side;
        let share = |pixel: u64| {
            let overlap = to.min((pixel + 1) * side).saturating_sub(from.max(pixel * side));
            f64::from(u32::try_from(overlap).unwrap_or(SIDE)) / f64::from(length.max(1))
        };
        Span {
            first: usize::try_from(first).unwrap_or(usize::MAX),
            shares: (first..to.div_ceil(side)).map(share).collect(),
        }
    };
    (0..SIDE).map(span).collect()
}

/// The luma (BT.601) of the image, averaged by area to [`SIDE`] × [`SIDE`], row by row.
fn averaged(image: &RgbImage) -> Vec<Vec<f64>> {
    let across = spans(image.width());
    let width = usize::try_from(image.width()).unwrap_or(usize::MAX).max(1);
    let narrowed: Vec<Vec<f64>> = image
        .as_raw()
        .chunks_exact(width.saturating_mul(3))
        .map(|row| {
            let luma: Vec<f64> = row
                .as_chunks::<3>()
                .0
                .iter()
                .map(|&[red, green, blue]| 0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue))
                .collect();
            let average = |span: &Span| {
                luma.iter().skip(span.first).zip(&span.shares).map(|(luma, share)| luma * share).sum::<f64>()
            };
            across.iter().map(average).collect()
        })
        .collect();
    let average = |span: Span| {
        let mut row = vec![0.0; across.len()];
        for (source, share) in narrowed.iter().skip(span.first).zip(&span.shares) {
            for (sum, value) in row.iter_mut().zip(source) {
                *sum += share * value;
            }
        }
        row
    };
    spans(image.height()).into_iter().map(average).collect()
}

/// Gradient directions summed by block, each gradient shared by its two nearest bins according to its angle.
fn block_histograms(luma: &[Vec<f64>]) -> Vec<Vec<[f64; BINS]>> {
    let mut blocks = vec![vec![[0.0; BINS]; BLOCKS]; BLOCKS];
    for (y, rows) in luma.windows(3).enumerate() {
        let [above, row, below] = rows else { continue };
        let Some(blocks) = blocks.get_mut((y + 1) / BLOCK) else { continue };
        let vertical = above.iter().zip(below).map(|(above, below)| below - above).skip(1);
        for ((x, columns), vertical) in row.windows(3).enumerate().zip(vertical) {
            let [left, _, right] = columns else { continue };
            if let Some(block) = blocks.get_mut((x + 1) / BLOCK) {
                add_gradient(block, right - left, vertical);
            }
        }
    }
    blocks
}

fn add_gradient(block: &mut [f64; BINS], horizontal: f64, vertical: f64) {
    let magnitude = horizontal.hypot(vertical);
    let turn = vertical.atan2(horizontal).rem_euclid(TAU) / TAU * 8.0;
    let bin = usize::from(round_u8(turn.floor()));
    let beyond = turn - turn.floor();
    if let Some(sum) = block.get_mut(bin % BINS) {
        *sum += magnitude * (1.0 - beyond);
    }
    if let Some(sum) = block.get_mut((bin + 1) % BINS) {
        *sum += magnitude * beyond;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averaging_keeps_the_mean_at_any_size() {
        for (width, height) in [(1, 1), (64, 40), (128, 128), (300, 300), (1000, 129)] {
            let image = RgbImage::from_fn(width, height, |x, y| {
                image::Rgb([u8::try_from((x * 7 + y * 3) % 251).expect("small"); 3])
            });
            let expected = image.pixels().map(|pixel| f64::from(pixel.0[0])).sum::<f64>() / f64::from(width * height);
            let rows = averaged(&image);
            let mean = rows.iter().flatten().sum::<f64>() / f64::from(SIDE * SIDE);
            assert_eq!((rows.len(), rows[0].len()), (128, 128));
            assert!((mean - expected).abs() < 1e-9, "{width} × {height}: {mean} {expected}");
        }
    }

    #[test]
    fn a_slope_points_one_way() {
        let image = RgbImage::from_fn(128, 128, |x, _| image::Rgb([u8::try_from(x).expect("small"); 3]));
        let features = SceneFeatures::of(&image);
        assert_eq!(features.patches.len(), PATCHES);
        for patch in &features.patches {
            let strongest = (0..BINS).max_by_key(|&bin| patch.direction[bin]).expect("eight bins");
            assert_eq!(strongest, 0, "brighter to the right is bin 0");
            assert!(patch.texture > 200, "{}", patch.texture);
        }
    }

    #[test]
    fn features_read_back_and_nothing_else_does() {
        let image = RgbImage::from_fn(90, 70, |x, y| image::Rgb([u8::try_from((x * y) % 256).expect("small"); 3]));
        let features = SceneFeatures::of(&image);
        let bytes = features.to_bytes();
        assert_eq!(bytes.len(), SCENE_BYTES);
        assert_eq!(SceneFeatures::from_bytes(&bytes), Some(features));
        assert_eq!(SceneFeatures::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn a_blank_scene_is_like_itself_and_unlike_a_full_one() {
        let blank = SceneFeatures::of(&RgbImage::from_pixel(50, 50, image::Rgb([200; 3])));
        let dark = SceneFeatures::of(&RgbImage::from_pixel(50, 50, image::Rgb([20; 3])));
        let full = SceneFeatures::of(&RgbImage::from_fn(128, 128, |x, y| {
            image::Rgb([u8::try_from((x * x + y * 5) % 256).expect("small"); 3])
        }));
        assert!(blank.same_scene(&dark));
        assert!(!blank.same_scene(&full) && !full.same_scene(&blank));
        assert!(full.same_scene(&full));
    }
}
