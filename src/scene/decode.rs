//! Encoded bytes to one upright 8-bit sRGB picture, or a named error. Pure, bounded and strict.
//!
//! Two formats are read, JPEG and PNG, told apart by content. What would make two programs see two different pictures
//! in the same bytes is refused, not interpreted: a picture that is cut short, animated, partly transparent, sixteen
//! bits deep, in ink colours, or followed by more data. The containers are walked by our own code first (`jpeg` and
//! `png` beside this file), because the codec beneath fills the missing part of a cut JPEG with grey and calls
//! it decoded; what the codec then says must agree with what the walk found.
//!
//! Colour profiles (ICC, gamma, chromaticities) are not applied: samples are taken as sRGB, as the common vision
//! preprocessors take them.

use std::borrow::Cow;
use std::io::Cursor;
use std::panic::{UnwindSafe, catch_unwind};

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, Limits, RgbImage};
use serde::Serialize;

use super::{jpeg, png};

/// Longest side accepted, in pixels.
pub const IMAGE_SIDE_PX_MAX: u32 = 8192;
/// Most pixels accepted. A 24-megapixel picture needs about 220 MB while it is decoded.
pub const IMAGE_PIXELS_MAX: u64 = 24_000_000;
/// Largest decoded buffer accepted from a codec, in bytes: [`IMAGE_PIXELS_MAX`] with four channels.
pub const IMAGE_DECODED_BYTES_MAX: u64 = 4 * IMAGE_PIXELS_MAX;
/// Most scans accepted in one JPEG. Each costs a pass over the picture; encoders write about ten.
pub const JPEG_SCANS_MAX: u32 = 64;

/// A format this module reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JPEG, baseline or progressive, Huffman-coded.
    Jpeg,
    /// PNG.
    Png,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
        })
    }
}

/// How the bytes became the picture; goes into the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The format found in the content.
    pub format: Format,
    /// Width as stored, before turning, in pixels.
    pub stored_width: u32,
    /// Height as stored, before turning, in pixels.
    pub stored_height: u32,
    /// The EXIF orientation that was applied, 1 to 8; 1 is upright, also where none or an unknown one is given.
    pub orientation: u8,
    /// Whether the standard Huffman tables had to be put in: a frame of a motion-JPEG stream leaves them out.
    pub standard_tables_added: bool,
}

/// A decoded picture and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Upright, 8 bits a channel, sRGB.
    pub image: RgbImage,
    /// How the bytes became the picture.
    pub facts: Facts,
}

/// Why bytes are not a picture we judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// There are no bytes.
    #[error("the image is empty")]
    Empty,
    /// The content begins like no format we know.
    #[error("the image is in no known format")]
    UnknownFormat,
    /// The content begins like a format that is not read here.
    #[error("the image is {media_type}; JPEG and PNG are read")]
    UnsupportedFormat {
        /// Its media type, such as `image/gif`.
        media_type: &'static str,
    },
    /// A side is zero.
    #[error("the image declares {width} × {height} pixels")]
    ZeroSize {
        /// Declared width in pixels.
        width: u32,
        /// Declared height in pixels.
        height: u32,
    },
    /// A side is longer than [`IMAGE_SIDE_PX_MAX`].
    #[error("the image declares {width} × {height} pixels; a side has at most {IMAGE_SIDE_PX_MAX}")]
    SideTooLong {
        /// Declared width in pixels.
        width: u32,
        /// Declared height in pixels.
        height: u32,
    },
    /// There are more pixels than [`IMAGE_PIXELS_MAX`].
    #[error("the image declares {width} × {height} pixels; at most {IMAGE_PIXELS_MAX} are accepted")]
    TooManyPixels {
        /// Declared width in pixels.
        width: u32,
        /// Declared height in pixels.
        height: u32,
    },
    /// The codec asks for more memory than [`IMAGE_DECODED_BYTES_MAX`].
    #[error("the image needs {bytes} bytes decoded; at most {IMAGE_DECODED_BYTES_MAX} are accepted")]
    TooManyBytes {
        /// Bytes needed.
        bytes: u64,
    },
    /// The data end before the picture does.
    #[error("the {format} data end at byte {at}, before the picture is complete")]
    Truncated {
        /// The format found.
        format: Format,
        /// Where more was expected.
        at: usize,
    },
    /// All scans present are whole, but the picture is not there in full detail: later scans are missing.
    #[error("the JPEG lacks scans: component {component} never reaches full precision")]
    MissingScans {
        /// Index of the component, from 0.
        component: usize,
    },
    /// The data contradict the format.
    #[error("the {format} data are broken at byte {at}: {what}")]
    Corrupt {
        /// The format found.
        format: Format,
        /// Where.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// More than zero padding follows the end of the picture.
    #[error("{bytes} bytes follow the end of the {format} picture")]
    TrailingData {
        /// The format found.
        format: Format,
        /// Number of bytes after the end.
        bytes: usize,
    },
    /// The file holds an animation; which frame is meant is not ours to guess.
    #[error("the image is animated")]
    Animated,
    /// Samples are not 8 bits: a depth map or raw frame, whose scaling to 8 bits is a matter of opinion.
    #[error("the image has {bits} bits a sample; at most 8 are accepted")]
    SampleDepth {
        /// Bits a sample.
        bits: u8,
    },
    /// Some pixels are not opaque; what they show depends on a background nobody named.
    #[error("{pixels} pixels of the image are not opaque")]
    NotOpaque {
        /// How many.
        pixels: usize,
    },
    /// Neither grey nor three colour components: four are ink colours (CMYK, YCCK), which need a press profile.
    #[error("the JPEG has {components} components (four are CMYK or YCCK); 1 or 3 are read")]
    Components {
        /// How many.
        components: u8,
    },
    /// The components' sampling factors are outside what cameras and libraries write.
    #[error("the JPEG samples its components in an unusual ratio")]
    Sampling,
    /// A coding process we do not read: lossless, hierarchical or arithmetic.
    #[error("the JPEG uses coding process SOF{process}; baseline and progressive Huffman are read")]
    Process {
        /// Number of its frame marker: 3 lossless, 5 to 7 hierarchical, 9 and up arithmetic.
        process: u8,
    },
    /// There are more scans than [`JPEG_SCANS_MAX`].
    #[error("the JPEG has more than {JPEG_SCANS_MAX} scans")]
    TooManyScans,
    /// The codec refused what the walk accepted.
    #[error("the {format} codec refused the image: {message}")]
    Codec {
        /// The format found.
        format: Format,
        /// The codec's own words.
        message: String,
    },
    /// The codec sees another picture than the walk does.
    #[error("the {format} codec reads another size or depth than the header gives")]
    Disagreement {
        /// The format found.
        format: Format,
    },
    /// The codec panicked.
    #[error("the image made the decoder panic")]
    Panicked,
}

/// Decodes an image strictly; see the module's head for what is refused.
///
/// One kind of damage stays invisible: JPEG carries no checksum, so bits flipped within scan data that still code the
/// right number of blocks show as a wrong picture, not as an error.
///
/// # Errors
/// A [`ImageError`] that names what is wrong. A panic within the codec is caught and is an error too; it still
/// reaches the process's panic hook.
pub fn decode(bytes: &[u8]) -> Result<Decoded, ImageError> {
    guarded(|| decode_unguarded(bytes))
}

/// The boundary at which a panic of the codec ends.
fn guarded(step: impl FnOnce() -> Result<Decoded, ImageError> + UnwindSafe) -> Result<Decoded, ImageError> {
    catch_unwind(step).unwrap_or(Err(ImageError::Panicked))
}

fn decode_unguarded(bytes: &[u8]) -> Result<Decoded, ImageError> {
    let outline = match sniff(bytes)? {
        Format::Jpeg => jpeg::walk(bytes)?,
        Format::Png => png::walk(bytes)?,
    };
    let mut image = run_codec(&outline)?;
    image.apply_orientation(outline.orientation);
    let facts = Facts {
        format: outline.format,
        stored_width: outline.width,
        stored_height: outline.height,
        orientation: outline.orientation.to_exif(),
        standard_tables_added: matches!(outline.bytes, Cow::Owned(_)),
    };
    Ok(Decoded { image: opaque_rgb(image)?, facts })
}

/// What a walk over a container found.
pub(super) struct Outline<'a> {
    pub(super) format: Format,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) orientation: Orientation,
    /// What the codec is to read: the original, or a copy with the standard Huffman tables put in.
    pub(super) bytes: Cow<'a, [u8]>,
}

fn sniff(bytes: &[u8]) -> Result<Format, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    if bytes.starts_with(&[0xFF, 0xD8]) {
        return Ok(Format::Jpeg);
    }
    let format = image::guess_format(bytes).map_err(|_| ImageError::UnknownFormat)?;
    if format == ImageFormat::Png {
        return Ok(Format::Png);
    }
    Err(ImageError::UnsupportedFormat { media_type: format.to_mime_type() })
}

/// Checks a declared size against the limits. Every walk calls it before anything is allocated by that size.
pub(super) fn check_size(width: u32, height: u32) -> Result<(), ImageError> {
    if width == 0 || height == 0 {
        return Err(ImageError::ZeroSize { width, height });
    }
    if width > IMAGE_SIDE_PX_MAX || height > IMAGE_SIDE_PX_MAX {
        return Err(ImageError::SideTooLong { width, height });
    }
    if u64::from(width) * u64::from(height) > IMAGE_PIXELS_MAX {
        return Err(ImageError::TooManyPixels { width, height });
    }
    Ok(())
}

fn run_codec(outline: &Outline<'_>) -> Result<DynamicImage, ImageError> {
    let reader = Cursor::new(outline.bytes.as_ref());
    let refused = |error: image::ImageError| ImageError::Codec { format: outline.format, message: error.to_string() };
    match outline.format {
        Format::Jpeg => read(outline, JpegDecoder::new(reader).map_err(refused)?),
        Format::Png => read(outline, PngDecoder::with_limits(reader, limits()).map_err(refused)?),
    }
}

fn read(outline: &Outline<'_>, mut decoder: impl ImageDecoder) -> Result<DynamicImage, ImageError> {
    let format = outline.format;
    let refused = |error: image::ImageError| ImageError::Codec { format, message: error.to_string() };
    decoder.set_limits(limits()).map_err(refused)?;
    if decoder.dimensions() != (outline.width, outline.height) {
        return Err(ImageError::Disagreement { format });
    }
    // `from_decoder` allocates whatever the header asks for, and a failed allocation ends the process.
    if decoder.total_bytes() > IMAGE_DECODED_BYTES_MAX {
        return Err(ImageError::TooManyBytes { bytes: decoder.total_bytes() });
    }
    DynamicImage::from_decoder(decoder).map_err(refused)
}

/// The same limits once more, for the codec's own bookkeeping.
fn limits() -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(IMAGE_SIDE_PX_MAX);
    limits.max_image_height = Some(IMAGE_SIDE_PX_MAX);
    limits.max_alloc = Some(2 * IMAGE_DECODED_BYTES_MAX);
    limits
}

/// Drops an alpha channel that says nothing, and refuses one that says something: dropping it would show colours that
/// were hidden, and compositing would invent a background.
fn opaque_rgb(image: DynamicImage) -> Result<RgbImage, ImageError> {
    let grey = image.as_luma_alpha8().into_iter().flat_map(|pixels| pixels.pixels().map(|pixel| pixel.0[1]));
    let colour = image.as_rgba8().into_iter().flat_map(|pixels| pixels.pixels().map(|pixel| pixel.0[3]));
    let clear = grey.chain(colour).filter(|alpha| *alpha < u8::MAX).count();
    if clear > 0 {
        return Err(ImageError::NotOpaque { pixels: clear });
    }
    Ok(image.into_rgb8())
}

#[cfg(test)]
mod tests {
    use image::{ColorType, ImageResult};

    use super::*;

    /// A codec that claims what no walk would let through.
    struct Claims {
        size: (u32, u32),
        colour: ColorType,
    }

    impl ImageDecoder for Claims {
        fn dimensions(&self) -> (u32, u32) {
            self.size
        }

        fn color_type(&self) -> ColorType {
            self.colour
        }

        fn read_image(self, _: &mut [u8]) -> ImageResult<()> {
            Ok(())
        }

        fn read_image_boxed(self: Box<Self>, _: &mut [u8]) -> ImageResult<()> {
            Ok(())
        }
    }

    fn read_claims(size: (u32, u32), colour: ColorType) -> Result<DynamicImage, ImageError> {
        let orientation = Orientation::NoTransforms;
        let outline =
            Outline { format: Format::Png, width: 6000, height: 4000, orientation, bytes: Cow::Borrowed(&[]) };
        read(&outline, Claims { size, colour })
    }

    #[test]
    fn a_codec_that_asks_for_too_much_memory_is_refused_before_it_gets_it() {
        let bytes = 2 * 3 * IMAGE_PIXELS_MAX;
        assert_eq!(read_claims((6000, 4000), ColorType::Rgb16).err(), Some(ImageError::TooManyBytes { bytes }));
        let disagreement = ImageError::Disagreement { format: Format::Png };
        assert_eq!(read_claims((6000, 3999), ColorType::L8).err(), Some(disagreement));
        assert!(read_claims((6000, 4000), ColorType::L8).is_ok());
    }

    #[test]
    fn a_panic_of_the_codec_is_an_error() {
        assert_eq!(guarded(|| panic!("as some codecs do on broken data")), Err(ImageError::Panicked));
    }
}
