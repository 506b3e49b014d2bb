//! From a decoded image to a model's pixel tensors, by the model's own `preprocessor_config.json`.
//!
//! Each family's steps are those of its reference processor in Python: sizes are computed in the same order with the
//! same roundings, and resizing happens on 8-bit samples between them.

use image::RgbImage;
use image::imageops;

use super::folder::{Preprocessor, Size};
use super::resample::resample;
use crate::scene::resize::{Filter, ResizeError};

/// No image side grows beyond this on its way through Idefics' first resizing, in pixels.
const IDEFICS_SIDE_PX_MAX: u32 = 4096;

/// What one family does to an image.
#[derive(Debug, Clone)]
pub enum Recipe {
    /// Idefics: enlarge, cut into tiles, add the whole image as one more tile.
    Tiles {
        /// Longest side after the first resizing, in pixels.
        longest_px: u32,
        /// Side of a tile, in pixels.
        tile_px: u32,
        /// Whether to cut at all; without, the whole image is the only tile.
        split: bool,
        /// Resampling filter.
        filter: Filter,
    },
    /// Qwen: both sides to multiples of a merged patch, area within bounds, patches in merge order.
    Patches {
        /// Side of a patch, in pixels.
        patch_px: u32,
        /// Patches a side that become one token.
        merge: u32,
        /// Frames a patch spans; a still image is repeated.
        frames: u32,
        /// Least area, in pixels.
        pixels_min: u64,
        /// Greatest area, in pixels.
        pixels_max: u64,
        /// Resampling filter.
        filter: Filter,
    },
    /// LLaVA: one square.
    Square {
        /// How it becomes one.
        fit: Fit,
        /// Width and height of what the encoder takes, in pixels.
        side_px: (u32, u32),
        /// Resampling filter.
        filter: Filter,
    },
}

/// How an image becomes a square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fit {
    /// Squashed.
    Squash,
    /// The shorter side to this many pixels, then the middle cut out.
    Crop(u32),
    /// Padded with the mean colour, then as [`Fit::Squash`].
    Pad([u8; 3]),
}

/// Why a preprocessor's settings cannot be followed, or an image not brought to size.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PictureError {
    /// A setting is missing.
    #[error("{0} is not set")]
    Unset(&'static str),
    /// A setting has a value this program does not know how to follow.
    #[error("{setting} is {value}, which is not known here")]
    Unknown {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// One side is more than 200 times the other, which the reference refuses too.
    #[error("{width} × {height} pixels is too narrow")]
    Narrow {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Resizing failed.
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

/// Subtracts the mean and divides by the deviation, one table entry per sample value and channel.
#[derive(Debug, Clone)]
pub struct Scale([[f32; 256]; 3]);

impl Scale {
    /// The table for these settings.
    ///
    /// # Errors
    /// When the mean or deviation is missing, or a step is left out that no model here goes without.
    pub fn new(settings: &Preprocessor) -> Result<Self, PictureError> {
        for (setting, step) in [("do_resize", settings.do_resize), ("do_rescale", settings.do_rescale)] {
            if step == Some(false) {
                return Err(PictureError::Unknown { setting, value: "false".to_owned() });
            }
        }
        let (mean, deviation) = if settings.do_normalize == Some(false) {
            ([0.0; 3], [1.0; 3])
        } else {
            let mean = settings.image_mean.ok_or(PictureError::Unset("image_mean"))?;
            (mean, settings.image_std.ok_or(PictureError::Unset("image_std"))?)
        };
        let factor = settings.rescale_factor.unwrap_or(1.0 / 255.0);
        // As the reference rounds: the product once, from 64 bits; the rest in 32.
        #[expect(clippy::cast_possible_truncation, reason = "to the tensor's width")]
        let scaled = |sample: u8| (f64::from(sample) * factor) as f32;
        let mut table = [[0.0; 256]; 3];
        for ((row, mean), deviation) in table.iter_mut().zip(mean).zip(deviation) {
            for (entry, sample) in row.iter_mut().zip(0..=u8::MAX) {
                *entry = (scaled(sample) - mean) / deviation;
            }
        }
        Ok(Self(table))
    }

    fn of(&self, channel: usize, sample: u8) -> f32 {
        self.0.get(channel).and_then(|row| row.get(usize::from(sample))).copied().unwrap_or_default()
    }

    /// The image as `[3, height, width]`.
    #[must_use]
    pub fn planes(&self, image: &RgbImage) -> Vec<f32> {
        let mut planes = Vec::with_capacity(image.as_raw().len());
        for (channel, row) in self.0.iter().enumerate() {
            let samples = image.as_raw().iter().skip(channel).step_by(3);
            planes.extend(samples.map(|&sample| row.get(usize::from(sample)).copied().unwrap_or_default()));
        }
        planes
    }
}

/// An image, ready for the encoder's arithmetic.
#[derive(Debug, Clone)]
pub enum Picture {
    /// Tiles in reading order, the whole image last; no rows and columns where it was not cut.
    Tiles {
        /// Rows of tiles.
        rows: u32,
        /// Columns of tiles.
        columns: u32,
        /// The tiles.
        tiles: Vec<RgbImage>,
    },
    /// One image whose patches the encoder takes.
    Patches {
        /// Rows of patches.
        rows: u32,
        /// Columns of patches.
        columns: u32,
        /// The resized image.
        image: RgbImage,
    },
    /// One square.
    Square(RgbImage),
}

impl Recipe {
    /// Idefics' and SmolVLM's recipe; `split` overrides the file.
    pub fn tiles(settings: &Preprocessor, split: Option<bool>) -> Result<Self, PictureError> {
        let longest = |size: Option<Size>, setting| match size {
            Some(Size::Edges { longest_edge: Some(side), .. }) => pixels(setting, side),
            other => Err(unknown_size(setting, other)),
        };
        Ok(Self::Tiles {
            longest_px: longest(settings.size, "size")?,
            tile_px: longest(settings.max_image_size, "max_image_size")?,
            split: split.or(settings.do_image_splitting).unwrap_or(true),
            filter: filter(settings.resample, Filter::Lanczos)?,
        })
    }

    /// The Qwen-VL family's recipe.
    pub fn patches(settings: &Preprocessor) -> Result<Self, PictureError> {
        let (least, most) = match settings.size {
            Some(Size::Edges { shortest_edge, longest_edge }) => (shortest_edge, longest_edge),
            Some(Size::Side(_) | Size::Exact { .. }) | None => (None, None),
        };
        let recipe = Self::Patches {
            patch_px: settings.patch_size.ok_or(PictureError::Unset("patch_size"))?,
            merge: settings.merge_size.ok_or(PictureError::Unset("merge_size"))?,
            frames: settings.temporal_patch_size.ok_or(PictureError::Unset("temporal_patch_size"))?,
            pixels_min: settings.min_pixels.or(least).ok_or(PictureError::Unset("min_pixels"))?,
            pixels_max: settings.max_pixels.or(most).ok_or(PictureError::Unset("max_pixels"))?,
            filter: filter(settings.resample, Filter::Bicubic)?,
        };
        match recipe {
            Self::Patches { patch_px: 1..=64, merge: 1..=8, frames: 1..=8, .. } => Ok(recipe),
            Self::Patches { patch_px, merge, frames, .. } => Err(PictureError::Unknown {
                setting: "patch_size, merge_size, temporal_patch_size",
                value: format!("{patch_px}, {merge}, {frames}"),
            }),
            Self::Tiles { .. } | Self::Square { .. } => Ok(recipe),
        }
    }

    /// LLaVA's recipe: CLIP's (shorter side, centre crop), SigLIP's (squash), or with padding to a square first.
    pub fn square(settings: &Preprocessor) -> Result<Self, PictureError> {
        let filter = filter(settings.resample, Filter::Bicubic)?;
        let exact = |size: Option<Size>, setting| match size {
            Some(Size::Exact { height, width }) => Ok((pixels(setting, width)?, pixels(setting, height)?)),
            Some(Size::Side(side)) => Ok((pixels(setting, side)?, pixels(setting, side)?)),
            other => Err(unknown_size(setting, other)),
        };
        let pads = settings.do_pad == Some(true)
            && settings.image_processor_type.as_deref().is_some_and(|name| name.starts_with("Llava"));
        let cut = settings.do_center_crop != Some(false) && settings.crop_size.is_some() && !pads;
        let shortest = match settings.size {
            Some(Size::Edges { shortest_edge: Some(side), longest_edge: None }) | Some(Size::Side(side)) => {
                Some(pixels("size", side)?)
            }
            Some(Size::Exact { .. } | Size::Edges { .. }) | None => None,
        };
        let (fit, side_px) = match (pads, cut, shortest) {
            (true, _, Some(side)) => (Fit::Pad(mean_colour(settings)), (side, side)),
            (true, _, None) => (Fit::Pad(mean_colour(settings)), exact(settings.size, "size")?),
            (false, true, Some(shortest)) => {
                let (width, height) = exact(settings.crop_size, "crop_size")?;
                if width > shortest || height > shortest {
                    let value = format!("{width} × {height}, beyond the size of {shortest}");
                    return Err(PictureError::Unknown { setting: "crop_size", value });
                }
                (Fit::Crop(shortest), (width, height))
            }
            (false, _, _) => (Fit::Squash, exact(settings.size, "size")?),
        };
        Ok(Self::Square { fit, side_px, filter })
    }

    /// Brings an image to size.
    ///
    /// # Errors
    /// When the image is too narrow or too large to be resized.
    pub fn picture(&self, image: &RgbImage) -> Result<Picture, PictureError> {
        match *self {
            Self::Tiles { longest_px, tile_px, split, filter } => tiles(image, longest_px, tile_px, split, filter),
            Self::Patches { patch_px, merge, pixels_min, pixels_max, filter, .. } => {
                let (width, height) = smart_size(image.dimensions(), patch_px * merge, pixels_min, pixels_max)?;
                let image = resample(image, width, height, filter)?;
                Ok(Picture::Patches { rows: height / patch_px, columns: width / patch_px, image })
            }
            Self::Square { fit, side_px, filter } => Ok(Picture::Square(square(image, fit, side_px, filter)?)),
        }
    }
}

fn pixels(setting: &'static str, side: u64) -> Result<u32, PictureError> {
    let valid = u32::try_from(side).ok().filter(|side| (1..=8192).contains(side));
    valid.ok_or_else(|| PictureError::Unknown { setting, value: side.to_string() })
}

fn unknown_size(setting: &'static str, size: Option<Size>) -> PictureError {
    size.map_or(PictureError::Unset(setting), |size| PictureError::Unknown { setting, value: format!("{size:?}") })
}

/// Pillow's numbers for the filters.
fn filter(resample: Option<u8>, otherwise: Filter) -> Result<Filter, PictureError> {
    match resample {
        None => Ok(otherwise),
        Some(1) => Ok(Filter::Lanczos),
        Some(2) => Ok(Filter::Bilinear),
        Some(3) => Ok(Filter::Bicubic),
        Some(other) => Err(PictureError::Unknown { setting: "resample", value: other.to_string() }),
    }
}

fn mean_colour(settings: &Preprocessor) -> [u8; 3] {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; the reference truncates")]
    settings.image_mean.unwrap_or_default().map(|mean| (f64::from(mean) * 255.0).clamp(0.0, 255.0) as u8)
}

/// A side computed in floating point, truncated as Python's `int` does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sides are small and positive")]
fn whole(side: f64) -> u32 {
    side.clamp(0.0, f64::from(u32::MAX)) as u32
}

fn tiles(
    image: &RgbImage,
    longest_px: u32,
    tile_px: u32,
    split: bool,
    filter: Filter,
) -> Result<Picture, PictureError> {
    let (width, height) = longest_side(image.dimensions(), longest_px);
    let mut large = resample(image, width, height, filter)?;
    if !split {
        let whole = resample(&large, tile_px, tile_px, filter)?;
        return Ok(Picture::Tiles { rows: 0, columns: 0, tiles: vec![whole] });
    }
    let (width, height) = tiled_size(large.dimensions(), tile_px);
    large = resample(&large, width, height, filter)?;
    let (rows, columns) = (height / tile_px, width / tile_px);
    if rows <= 1 && columns <= 1 {
        return Ok(Picture::Tiles { rows: 0, columns: 0, tiles: vec![large] });
    }
    let mut tiles = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let tile = imageops::crop_imm(&large, column * tile_px, row * tile_px, tile_px, tile_px);
            tiles.push(tile.to_image());
        }
    }
    tiles.push(resample(&large, tile_px, tile_px, filter)?);
    Ok(Picture::Tiles { rows, columns, tiles })
}

/// The longest side to `longest_px`, the other along with it and even, then no side above the bound.
fn longest_side((width, height): (u32, u32), longest_px: u32) -> (u32, u32) {
    let ratio = f64::from(width) / f64::from(height);
    let even = |side: u32| (side + side % 2).max(1);
    let (width, height) = if width >= height {
        (longest_px, even(whole(f64::from(longest_px) / ratio)))
    } else {
        (even(whole(f64::from(longest_px) * ratio)), longest_px)
    };
    let ratio = f64::from(width) / f64::from(height);
    if width >= height && width > IDEFICS_SIDE_PX_MAX {
        (IDEFICS_SIDE_PX_MAX, whole(f64::from(IDEFICS_SIDE_PX_MAX) / ratio).max(1))
    } else if height > width && height > IDEFICS_SIDE_PX_MAX {
        (whole(f64::from(IDEFICS_SIDE_PX_MAX) * ratio).max(1), IDEFICS_SIDE_PX_MAX)
    } else {
        (width, height)
    }
}

/// Both sides up to multiples of a tile.
fn tiled_size((width, height): (u32, u32), tile_px: u32) -> (u32, u32) {
    let ratio = f64::from(width) / f64::from(height);
    if width >= height {
        let width = width.next_multiple_of(tile_px);
        (width, whole(f64::from(width) / ratio).next_multiple_of(tile_px).max(tile_px))
    } else {
        let height = height.next_multiple_of(tile_px);
        (whole(f64::from(height) * ratio).next_multiple_of(tile_px).max(tile_px), height)
    }
}

/// Qwen's `smart_resize`: multiples of `factor` nearest to the image's sides (halves to even), area within bounds.
fn smart_size(
    (width, height): (u32, u32),
    factor: u32,
    pixels_min: u64,
    pixels_max: u64,
) -> Result<(u32, u32), PictureError> {
    if width.max(height) > 200 * width.min(height) || width.min(height) == 0 {
        return Err(PictureError::Narrow { width, height });
    }
    let (exact_width, exact_height, step) = (f64::from(width), f64::from(height), f64::from(factor));
    let nearest = |side: f64| whole((side / step).round_ties_even()) * factor;
    let area = u64::from(nearest(exact_width)) * u64::from(nearest(exact_height));
    #[expect(clippy::cast_precision_loss, reason = "bounds are far below 2⁵³")]
    let (least, most) = (pixels_min as f64, pixels_max as f64);
    if area > pixels_max {
        let beta = (exact_height * exact_width / most).sqrt();
        let lower = |side: f64| (whole((side / beta / step).floor()) * factor).max(factor);
        Ok((lower(exact_width), lower(exact_height)))
    } else if area < pixels_min {
        let beta = (least / (exact_height * exact_width)).sqrt();
        let upper = |side: f64| whole((side * beta / step).ceil()) * factor;
        Ok((upper(exact_width), upper(exact_height)))
    } else {
        Ok((nearest(exact_width), nearest(exact_height)))
    }
}

fn square(image: &RgbImage, fit: Fit, (width, height): (u32, u32), filter: Filter) -> Result<RgbImage, PictureError> {
    match fit {
        Fit::Squash => Ok(resample(image, width, height, filter)?),
        Fit::Crop(shortest) => {
            let (wide, tall) = image.dimensions();
            let long = |long: u32, short: u32| whole(f64::from(shortest) * f64::from(long) / f64::from(short));
            let (wide, tall) = if wide <= tall { (shortest, long(tall, wide)) } else { (long(wide, tall), shortest) };
            let resized = resample(image, wide, tall, filter)?;
            let (left, top) = ((wide.saturating_sub(width)) / 2, (tall.saturating_sub(height)) / 2);
            Ok(imageops::crop_imm(&resized, left, top, width, height).to_image())
        }
        Fit::Pad(colour) => {
            let side = image.width().max(image.height());
            let mut padded = RgbImage::from_pixel(side, side, image::Rgb(colour));
            let (left, top) = ((side - image.width()) / 2, (side - image.height()) / 2);
            imageops::replace(&mut padded, image, i64::from(left), i64::from(top));
            Ok(resample(&padded, width, height, filter)?)
        }
    }
}

/// Qwen's patch rows: `[rows · columns, 3 · frames · patch²]`, blocks of `merge²` patches together, each patch channel
/// by channel, frame by frame, line by line.
#[must_use]
pub fn patch_rows(image: &RgbImage, scale: &Scale, patch_px: u32, merge: u32, frames: u32) -> Vec<f32> {
    let (columns, rows) = (image.width() / patch_px, image.height() / patch_px);
    let mut values = Vec::with_capacity(image.as_raw().len() * usize::try_from(frames).unwrap_or(1));
    let blocks = (0..rows / merge).flat_map(|row| (0..columns / merge).map(move |column| (row, column)));
    for (block_row, block_column) in blocks {
        for inner in 0..merge * merge {
            let top = (block_row * merge + inner / merge) * patch_px;
            let left = (block_column * merge + inner % merge) * patch_px;
            for channel in 0..3 {
                for _ in 0..frames {
                    for line in top..top + patch_px {
                        push_line(&mut values, image, scale, channel, left, line, patch_px);
                    }
                }
            }
        }
    }
    values
}

fn push_line(
    values: &mut Vec<f32>,
    image: &RgbImage,
    scale: &Scale,
    channel: usize,
    left: u32,
    line: u32,
    patch_px: u32,
) {
    let start = usize::try_from(line * image.width() + left).unwrap_or(usize::MAX);
    let samples = image.as_raw().chunks_exact(3).skip(start).take(usize::try_from(patch_px).unwrap_or(0));
    values.extend(samples.map(|sample| scale.of(channel, sample.get(channel).copied().unwrap_or_default())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tile_sizes_equal_the_reference_processor() {
        // transformers' Idefics3 arithmetic for longest edge 2048 and tiles of 512.
        for (size, first, tiled) in [
            ((640, 480), (2048, 1536), (2048, 1536)),
            ((1280, 720), (2048, 1152), (2048, 1536)),
            ((480, 640), (1536, 2048), (1536, 2048)),
            ((333, 1000), (682, 2048), (1024, 2048)),
            ((100, 3), (2048, 62), (2048, 512)),
        ] {
            assert_eq!(longest_side(size, 2048), first, "{size:?}");
            assert_eq!(tiled_size(first, 512), tiled, "{size:?}");
        }
    }

    #[test]
    fn smart_sizes_round_halves_to_even_and_hold_the_area() {
        assert_eq!(smart_size((720, 720), 32, 1, 1 << 30), Ok((704, 704)), "22.5 becomes 22");
        assert_eq!(smart_size((1280, 720), 28, 56 * 56, 1_003_520), Ok((1288, 728)));
        assert_eq!(smart_size((4000, 3000), 28, 56 * 56, 1_003_520), Ok((1148, 840)));
        assert_eq!(smart_size((20, 30), 28, 56 * 56, 1_003_520), Ok((56, 84)));
        assert!(smart_size((2010, 10), 28, 1, 1 << 30).is_err());
    }

    /// The picture of `tests/replicas/vlm_reference.py`.
    fn pattern(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| {
            if (x / 9 + y / 7) % 5 == 0 {
                return image::Rgb([250, 4, 130]);
            }
            let part = |value: u32| u8::try_from(value).expect("below 256");
            let ramp = |place: u32, side: u32| part(place * 255 / (side - 1).max(1));
            image::Rgb([ramp(x, width), ramp(y, height), part((x * 7 + y * 13) % 256)])
        })
    }

    fn values(picture: &Picture, recipe: &Recipe, scale: &Scale) -> Vec<f32> {
        match (picture, recipe) {
            (Picture::Tiles { tiles, .. }, _) => tiles.iter().flat_map(|tile| scale.planes(tile)).collect(),
            (Picture::Patches { image, .. }, Recipe::Patches { patch_px, merge, frames, .. }) => {
                patch_rows(image, scale, *patch_px, *merge, *frames)
            }
            (Picture::Square(image), _) => scale.planes(image),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn pixels_equal_the_reference_processors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/replicas/vlm_pixels.json");
        let reference: serde_json::Value = serde_json::from_slice(&std::fs::read(path).expect("read")).expect("parses");
        let mut compared = 0;
        for case in reference["cases"].as_array().expect("cases") {
            let settings: Preprocessor = serde_json::from_value(case["settings"].clone()).expect("settings");
            let family = case["family"].as_str().expect("a family");
            let recipe = match family {
                "idefics" => Recipe::tiles(&settings, None),
                "qwen2" | "qwen3" => Recipe::patches(&settings),
                _ => Recipe::square(&settings),
            }
            .expect("a recipe");
            let scale = Scale::new(&settings).expect("a scale");
            let side = |name: &str| u32::try_from(case[name].as_u64().expect("a side")).expect("small");
            let picture = recipe.picture(&pattern(side("width"), side("height"))).expect("a picture");
            let name = format!("{family} {}×{}", side("width"), side("height"));
            if let (Picture::Patches { rows, columns, .. }, Some(grid)) = (&picture, case["grid"].as_array()) {
                assert_eq!([1, *rows, *columns].map(u64::from).map(Some), [0, 1, 2].map(|axis| grid[axis].as_u64()));
            }
            let values = values(&picture, &recipe, &scale);
            let count: u64 =
                case["shape"].as_array().expect("a shape").iter().filter_map(|side| side.as_u64()).product();
            assert_eq!(values.len(), usize::try_from(count).expect("small"), "{name}");
            let step = usize::try_from(case["step"].as_u64().expect("a step")).expect("small");
            // Two levels of 255 are the bound; the reference's own arithmetic leaves rounding alone.
            let deviation = settings.image_std.expect("set").into_iter().fold(f32::INFINITY, f32::min);
            for (value, expected) in values.iter().step_by(step).zip(case["values"].as_array().expect("values")) {
                let expected = expected.as_f64().expect("a number");
                let levels = (f64::from(*value) - expected).abs() * 255.0 * f64::from(deviation);
                assert!(levels < 0.01, "{name}: off by {levels} levels");
                compared += 1;
            }
            let sum: f64 = values.iter().copied().map(f64::from).sum();
            let expected = case["sum"].as_f64().expect("a sum");
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let mean_off = (sum - expected).abs() / values.len() as f64;
            assert!(mean_off < 1e-6, "{name}: mean off by {mean_off}");
        }
        assert!(compared > 4000, "{compared}");
    }
}
