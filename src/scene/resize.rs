//! Resizing to the size a model works at, by the same separable convolutions as Pillow's `Image.resize`: on the way down
//! the filter's support grows with the scale, so every source pixel counts. A proxy trained or exported in Python then
//! sees the same picture here; another filter alone shifts a small model's margin by about one perturbation spread.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::RgbImage;
use serde::{Deserialize, Serialize};

use super::decode::{IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX};

/// A resampling filter. Names and definitions are Pillow's (version 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Triangle, support 1: `max(0, 1 − |x|)`. What brings an image to a proxy's working size.
    Bilinear,
    /// Cubic convolution with a = −½ (Catmull-Rom), support 2.
    Bicubic,
    /// Windowed sinc, support 3.
    Lanczos,
}

/// Why an image was not resized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// A side is zero, or the size is beyond what [`super::decode`] accepts of an image.
    #[error("{width} × {height} pixels is no size to resize from or to")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The resizing engine failed, in its own words.
    #[error("resizing failed: {0}")]
    Engine(String),
}

/// The image at exactly this size in pixels, squashed where the aspect ratio differs. Values differ from Pillow's by at
/// most 2 of 255 (held by reference vectors).
///
/// # Errors
/// When either size is zero or beyond the limits of [`super::decode`].
pub fn resize(image: &RgbImage, width: u32, height: u32, filter: Filter) -> Result<RgbImage, ResizeError> {
    check_size(image.width(), image.height())?;
    check_size(width, height)?;
    // Rows first, as Pillow always did up to 12: values between the passes are clipped to 8 bits, so the order shows
    // where a filter overshoots. Left to itself the engine takes columns first; Pillow 13 chooses by shape.
    let narrowed = if width == image.width() { None } else { Some(convolve(image, width, image.height(), filter)?) };
    let narrowed = narrowed.as_ref().unwrap_or(image);
    convolve(narrowed, width, height, filter)
}

fn convolve(image: &RgbImage, width: u32, height: u32, filter: Filter) -> Result<RgbImage, ResizeError> {
    let engine = |error: &dyn std::error::Error| ResizeError::Engine(error.to_string());
    let source = ImageRef::new(image.width(), image.height(), image.as_raw(), PixelType::U8x3);
    let source = source.map_err(|error| engine(&error))?;
    let mut resized = RgbImage::new(width, height);
    let target = Image::from_slice_u8(width, height, &mut resized, PixelType::U8x3);
    let mut target = target.map_err(|error| engine(&error))?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(kernel(filter)));
    Resizer::new().resize(&source, &mut target, &options).map_err(|error| engine(&error))?;
    Ok(resized)
}

const fn kernel(filter: Filter) -> FilterType {
    match filter {
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
        Filter::Lanczos => FilterType::Lanczos3,
    }
}

fn check_size(width: u32, height: u32) -> Result<(), ResizeError> {
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > IMAGE_PIXELS_MAX || width.max(height) > IMAGE_SIDE_PX_MAX {
        return Err(ResizeError::Size { width, height });
    }
    Ok(())
}
