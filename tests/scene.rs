//! The image half against Pillow, numpy and every kind of broken file we know of. Fixtures and reference values are
//! made by the scripts in `tests/reference/scene`.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a test may fail loudly, and its numbers are small"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use image::{ExtendedColorType, ImageEncoder, RgbImage};
use proptest::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use steadfast::scene::decode::{
    Format, IMAGE_DECODED_BYTES_MAX, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX, ImageError, decode,
};
use steadfast::scene::perturb::{COPIES, GAUSSIAN_STRONG_SIGMA, GAUSSIAN_WEAK_SIGMA, Perturbation, copy, copy_into};
use steadfast::scene::resize::{Filter, ResizeError, resize};

fn reference(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reference/scene").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn fixture(name: &str) -> Vec<u8> {
    reference(&format!("images/{name}"))
}

/// What `pattern.py` draws.
fn pattern(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let smooth = |c: u32| (3 * x + 5 * y + 40 * c) % 256;
        let rough = |c: u32| (x * x + 3 * y * y + x * y * (c + 1)) % 256;
        let even = (x / 8 + y / 8) % 2 == 0;
        image::Rgb([0, 1, 2].map(|c| if even { smooth(c) } else { rough(c) } as u8))
    })
}

// ---- decoding: what Pillow sees ----

#[derive(Deserialize)]
struct Seen {
    width: u32,
    height: u32,
    samples: String,
}

#[derive(Deserialize)]
struct SeenByPillow {
    step: usize,
    images: BTreeMap<String, Seen>,
}

fn seen_by_pillow() -> SeenByPillow {
    serde_json::from_slice(&reference("images.json")).expect("images.json")
}

#[test]
fn accepted_images_look_as_pillow_shows_them_upright() {
    let seen = seen_by_pillow();
    assert!(seen.images.len() > 20);
    for (name, expected) in seen.images {
        let decoded = decode(&fixture(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded.image.dimensions(), (expected.width, expected.height), "{name}");
        let rows = decoded.image.enumerate_rows().step_by(seen.step);
        let ours = rows.flat_map(|(_, row)| row.step_by(seen.step).flat_map(|(_, _, pixel)| pixel.0));
        let theirs = hex::decode(expected.samples).expect("hexadecimal");
        assert_eq!(ours.clone().count(), theirs.len(), "{name}");
        // PNG is exact; JPEG decoders round the inverse transform, chroma and colour conversion in their own ways.
        let allowed = if name.ends_with(".png") { 0 } else { 4 };
        let worst = ours.zip(theirs).map(|(our, their)| our.abs_diff(their)).max();
        assert!(worst <= Some(allowed), "{name} differs by {worst:?}");
    }
}

#[test]
fn facts_tell_format_orientation_and_added_tables() {
    for orientation in 1..=8 {
        let facts = decode(&fixture(&format!("orientation_{orientation}.jpg"))).expect("a picture").facts;
        assert_eq!((facts.format, facts.orientation), (Format::Jpeg, orientation));
        assert_eq!((facts.stored_width, facts.stored_height), (56, 40));
        assert!(!facts.standard_tables_added);
    }
    let png = decode(&fixture("orientation_6.png")).expect("a picture");
    assert_eq!((png.facts.format, png.facts.orientation, png.image.dimensions()), (Format::Png, 6, (40, 56)));
    assert!(decode(&fixture("motion_frame.jpg")).expect("a picture").facts.standard_tables_added);
}

#[test]
fn a_motion_jpeg_frame_equals_the_same_frame_with_its_tables() {
    let frame = decode(&fixture("motion_frame.jpg")).expect("a picture");
    assert_eq!(frame.image, decode(&fixture("baseline_422.jpg")).expect("a picture").image);
}

// ---- decoding: what is refused, and by which name ----

#[test]
fn other_pictures_are_refused_by_name() {
    let png = Format::Png;
    let cases = [
        ("cmyk.jpg", ImageError::Components { components: 4 }),
        ("ycck.jpg", ImageError::Components { components: 4 }),
        ("depth_16.png", ImageError::SampleDepth { bits: 16 }),
        ("rgb_16.png", ImageError::SampleDepth { bits: 16 }),
        ("hidden_alpha.png", ImageError::NotOpaque { pixels: 21 }),
        ("hidden_grey_alpha.png", ImageError::NotOpaque { pixels: 21 }),
        ("animated.png", ImageError::Animated),
        ("animated.gif", ImageError::UnsupportedFormat { media_type: "image/gif" }),
        ("still.webp", ImageError::UnsupportedFormat { media_type: "image/webp" }),
        ("still.bmp", ImageError::UnsupportedFormat { media_type: "image/bmp" }),
        ("still.tiff", ImageError::UnsupportedFormat { media_type: "image/tiff" }),
        ("two_pictures.jpg", ImageError::TrailingData { format: Format::Jpeg, bytes: 770 }),
    ];
    for (name, expected) in cases {
        assert_eq!(decode(&fixture(name)), Err(expected), "{name}");
    }
    for name in ["hidden_palette.png", "hidden_colour_key.png"] {
        assert!(matches!(decode(&fixture(name)), Err(ImageError::NotOpaque { .. })), "{name}");
    }
    assert_eq!(decode(&[]), Err(ImageError::Empty));
    assert_eq!(decode(b"no picture at all"), Err(ImageError::UnknownFormat));
    assert_eq!(decode(&png_file(&[(b"IHDR", header(0, 4, 8, 0)), (b"IEND", vec![])])), zero_size(0, 4));
    assert_eq!(decode(&png_file(&[(b"IHDR", header(4, 0, 8, 0)), (b"IEND", vec![])])), zero_size(4, 0));
    let mut tail = fixture("grey.png");
    tail.extend(b"\0\0hidden");
    assert_eq!(decode(&tail), Err(ImageError::TrailingData { format: png, bytes: 8 }));
}

fn zero_size(width: u32, height: u32) -> Result<steadfast::scene::decode::Decoded, ImageError> {
    Err(ImageError::ZeroSize { width, height })
}

#[test]
fn other_coding_processes_are_refused_by_name() {
    let frame =
        |bytes: &[u8], code: u8| bytes.windows(2).position(|pair| pair == [0xFF, code]).expect("a frame header");
    let jpeg = fixture("baseline_444.jpg");
    for process in [3_u8, 5, 6, 7, 9, 10, 11, 13, 14, 15] {
        let mut other = jpeg.clone();
        other[frame(&jpeg, 0xC0) + 1] = 0xC0 + process;
        assert_eq!(decode(&other), Err(ImageError::Process { process }));
    }
    let mut deep = jpeg.clone();
    deep[frame(&jpeg, 0xC0) + 4] = 12;
    assert_eq!(decode(&deep), Err(ImageError::SampleDepth { bits: 12 }));
    for (width, height) in [(0, 40), (56, 0)] {
        let mut empty = jpeg.clone();
        empty[frame(&jpeg, 0xC0) + 6] = height;
        empty[frame(&jpeg, 0xC0) + 8] = width;
        assert_eq!(decode(&empty), zero_size(u32::from(width), u32::from(height)));
    }
    let mut odd = jpeg.clone();
    odd[frame(&jpeg, 0xC0) + 11] = 0x31;
    assert_eq!(decode(&odd), Err(ImageError::Sampling));
}

// ---- decoding: cut and damaged files ----

fn accepted_fixtures(extension: &str) -> Vec<(String, Vec<u8>)> {
    let names = seen_by_pillow().images.into_keys().filter(|name| name.ends_with(extension));
    names.map(|name| (name.clone(), fixture(&name))).collect()
}

#[test]
fn a_jpeg_cut_at_any_byte_is_refused_even_with_a_forged_end() {
    for (name, whole) in accepted_fixtures(".jpg") {
        let end = whole.iter().rposition(|byte| *byte != 0).expect("data") + 1;
        for length in 0..end {
            assert!(decode(&whole[..length]).is_err(), "{name} cut to {length} of {end} bytes");
        }
        // From `end − 2` on, the forged end marker stands where the real one stood.
        for length in 2..end - 2 {
            let forged = [&whole[..length], &[0xFF, 0xD9]].concat();
            assert!(decode(&forged).is_err(), "{name} cut to {length} of {end} bytes, then an end marker");
            let padded = [&whole[..length], &[0; 64], &[0xFF, 0xD9]].concat();
            assert!(decode(&padded).is_err(), "{name} cut to {length} of {end} bytes, zeros, then an end marker");
        }
    }
}

#[test]
fn a_jpeg_with_a_hole_is_refused() {
    let whole = fixture("progressive.jpg");
    for percent in [10, 50, 90] {
        let start = whole.len() * percent / 100;
        let holed = [&whole[..start], &whole[start + 40..]].concat();
        assert!(decode(&holed).is_err(), "hole at {percent} %");
    }
}

#[test]
fn a_progressive_jpeg_without_its_last_scans_is_refused_by_name() {
    let whole = fixture("progressive.jpg");
    let scans: Vec<usize> = (0..whole.len() - 1).filter(|at| whole[*at..*at + 2] == [0xFF, 0xDA]).collect();
    assert!(scans.len() > 5);
    // Tables may stand between two scans, so cut behind the last byte of scan data: before the next marker.
    for scan in scans.iter().skip(1) {
        let start = (0..*scan).rev().find(|at| whole[*at] == 0xFF && whole[*at + 1] == 0xC4).expect("a table");
        let forged = [&whole[..start], &[0xFF, 0xD9]].concat();
        assert!(matches!(decode(&forged), Err(ImageError::MissingScans { .. })), "{:?}", decode(&forged));
    }
}

#[test]
fn a_png_cut_at_any_byte_is_refused_even_with_a_forged_end() {
    let end = png_file(&[(b"IEND", vec![])])[8..].to_vec();
    for (name, whole) in accepted_fixtures(".png") {
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{name} cut to {length}");
            if length < whole.len() - end.len() {
                assert!(decode(&[&whole[..length], &end].concat()).is_err(), "{name} cut to {length}, then an end");
            }
        }
    }
}

#[test]
fn a_png_whose_pixel_data_stop_early_is_refused_though_every_checksum_holds() {
    let whole = fixture("rgb.png");
    let at = whole.windows(4).position(|kind| kind == b"IDAT").expect("pixel data");
    let length = u32::from_be_bytes(whole[at - 4..at].try_into().expect("four bytes")) as usize;
    let data = &whole[at + 4..at + 4 + length];
    let rebuilt =
        |data: &[u8]| png_file(&[(b"IHDR", whole[16..29].to_vec()), (b"IDAT", data.to_vec()), (b"IEND", vec![])]);
    assert!(decode(&rebuilt(data)).is_ok(), "the rebuilt file is sound");
    for percent in [0, 1, 10, 50, 90, 98] {
        assert!(decode(&rebuilt(&data[..length * percent / 100])).is_err(), "{percent} %");
    }
}

#[test]
fn any_flipped_byte_of_a_png_is_refused() {
    for name in ["grey.png", "orientation_6.png", "palette.png"] {
        let whole = fixture(name);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged).is_err(), "{name} byte {at}");
        }
    }
}

// ---- decoding: limits ----

fn png_file(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in chunks {
        file.extend(u32::try_from(data.len()).expect("small").to_be_bytes());
        file.extend(*kind);
        file.extend(data);
        let crc = kind.iter().chain(data).fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 })
        });
        file.extend((!crc).to_be_bytes());
    }
    file
}

fn header(width: u32, height: u32, bits: u8, colour: u8) -> Vec<u8> {
    [&width.to_be_bytes()[..], &height.to_be_bytes(), &[bits, colour, 0, 0, 0]].concat()
}

fn black_png(width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
    let mut file = Vec::new();
    let pixels = vec![255; (width * height) as usize * usize::from(colour.channel_count())];
    image::codecs::png::PngEncoder::new(&mut file).write_image(&pixels, width, height, colour).expect("encoded");
    file
}

#[test]
fn a_side_is_accepted_at_its_limit_and_refused_one_past() {
    for (width, height) in [(IMAGE_SIDE_PX_MAX, 1), (1, IMAGE_SIDE_PX_MAX)] {
        assert!(decode(&black_png(width, height, ExtendedColorType::L8)).is_ok());
        let (width, height) = (if width > 1 { width + 1 } else { 1 }, if height > 1 { height + 1 } else { 1 });
        let refused = decode(&black_png(width, height, ExtendedColorType::L8));
        assert_eq!(refused, Err(ImageError::SideTooLong { width, height }));
    }
}

#[test]
fn pixels_and_bytes_are_accepted_at_their_limit_and_refused_one_past() {
    let (width, height) = (6000, 4000);
    assert_eq!(u64::from(width) * u64::from(height), IMAGE_PIXELS_MAX);
    assert_eq!(4 * IMAGE_PIXELS_MAX, IMAGE_DECODED_BYTES_MAX, "four channels at the pixel limit are the byte limit");
    assert!(decode(&black_png(width, height, ExtendedColorType::Rgba8)).is_ok());
    let wide = png_file(&[(b"IHDR", header(width + 1, height, 8, 0)), (b"IEND", vec![])]);
    assert_eq!(decode(&wide), Err(ImageError::TooManyPixels { width: width + 1, height }));
}

#[test]
fn a_bomb_of_a_hundred_bytes_is_refused_by_its_header() {
    let pixels = b"\x78\x9c\x63\x00\x00\x00\x01\x00\x01".to_vec();
    let bomb = png_file(&[(b"IHDR", header(100_000, 100_000, 8, 2)), (b"IDAT", pixels), (b"IEND", vec![])]);
    assert!(bomb.len() < 100);
    assert_eq!(decode(&bomb), Err(ImageError::SideTooLong { width: 100_000, height: 100_000 }));
    let mut jpeg = fixture("baseline_444.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].fill(0xFF);
    assert_eq!(decode(&jpeg), Err(ImageError::SideTooLong { width: 65_535, height: 65_535 }));
}

#[test]
fn a_jpeg_of_endless_scans_is_refused() {
    let whole = fixture("progressive.jpg");
    let scan = whole.windows(2).position(|pair| pair == [0xFF, 0xDA]).expect("a scan");
    let next = (scan + 2..whole.len()).find(|at| whole[*at] == 0xFF && whole[*at + 1] == 0xC4).expect("the next table");
    let repeated = whole[scan..next].repeat(1000);
    let file = [&whole[..next], &repeated, &whole[next..]].concat();
    assert!(decode(&file).is_err());
}

// ---- decoding: arbitrary and mutated bytes ----

fn within_limits(bytes: &[u8]) {
    if let Ok(decoded) = decode(bytes) {
        let (width, height) = decoded.image.dimensions();
        assert!(width > 0 && height > 0 && width <= IMAGE_SIDE_PX_MAX && height <= IMAGE_SIDE_PX_MAX);
        assert!(u64::from(width) * u64::from(height) <= IMAGE_PIXELS_MAX);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let names = [
        "progressive.jpg",
        "restart.jpg",
        "restart_progressive.jpg",
        "optimised_420.jpg",
        "motion_frame.jpg",
        "grey_progressive.jpg",
        "orientation_6.jpg",
        "rgb.png",
        "palette.png",
        "interlaced.png",
        "hidden_alpha.png",
    ];
    names.map(fixture).to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_leave_the_limits(
        start in prop::sample::select(vec![b"".as_slice(), b"\xFF\xD8", b"\xFF\xD8\xFF\xC0", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"]),
        rest in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        within_limits(&[start, &rest].concat());
    }

    #[test]
    fn mutated_pictures_never_leave_the_limits(
        seed in prop::sample::select(seeds()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of((any::<prop::sample::Index>(), 0_usize..40)),
    ) {
        let mut bytes = seed;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((at, count)) = cut {
            let at = at.index(bytes.len());
            bytes.drain(at..(at + count).min(bytes.len()));
        }
        within_limits(&bytes);
    }
}

// ---- perturbed copies ----

#[derive(Deserialize)]
struct Copies {
    width: u32,
    height: u32,
    seed: String,
    sha256: Vec<String>,
}

#[test]
fn copies_equal_the_independent_numpy_implementation() {
    let cases: Vec<Copies> = serde_json::from_slice(&reference("perturb.json")).expect("perturb.json");
    assert!(cases.iter().any(|case| (case.width, case.height) == (1, 1)));
    for case in cases {
        let image = pattern(case.width, case.height);
        let seed = case.seed.parse().expect("a number");
        assert_eq!(case.sha256.len(), COPIES);
        for (index, expected) in case.sha256.iter().enumerate() {
            let digest = hex::encode(Sha256::digest(copy(&image, seed, index).as_raw()));
            let kind = Perturbation::of(index);
            assert_eq!(&digest, expected, "{}×{} copy {index}, {kind:?}", case.width, case.height);
        }
    }
}

#[test]
fn a_copy_depends_on_nothing_but_image_seed_and_index() {
    let image = pattern(40, 30);
    let mut reused = pattern(7, 9);
    for index in (0..COPIES).rev() {
        copy_into(&image, 11, index, &mut reused);
        assert_eq!(reused, copy(&image, 11, index), "copy {index} into a used buffer, in reverse order");
        assert_ne!(reused, copy(&image, 12, index), "copy {index} under another seed");
    }
}

#[test]
fn five_kinds_are_dealt_in_rotation() {
    for index in 0..COPIES {
        assert_eq!(Perturbation::of(index), Perturbation::ALL[index % 5]);
    }
    for kind in Perturbation::ALL {
        assert_eq!((0..COPIES).filter(|index| Perturbation::of(*index) == kind).count(), 4);
    }
}

#[test]
fn gaussian_noise_has_the_stated_spread_and_no_bias() {
    let grey = RgbImage::from_pixel(384, 384, image::Rgb([128; 3]));
    for (index, sigma) in [(0, GAUSSIAN_WEAK_SIGMA), (1, GAUSSIAN_STRONG_SIGMA), (15, GAUSSIAN_WEAK_SIGMA)] {
        let noise: Vec<f64> = copy(&grey, 5, index).iter().map(|sample| f64::from(*sample) - 128.0).collect();
        let count = noise.len() as f64;
        let mean = noise.iter().sum::<f64>() / count;
        let deviation = (noise.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        // Four standard errors of a mean and of a deviation over this many independent samples.
        let sigma = f64::from(sigma);
        assert!(mean.abs() < 4.0 * sigma / count.sqrt(), "copy {index}: mean {mean}");
        assert!(
            (deviation - sigma).abs() < 4.0 * sigma / (2.0 * count).sqrt() + 0.01 * sigma,
            "copy {index}: {deviation}"
        );
        let neighbours: f64 = noise.iter().zip(noise.iter().skip(1)).map(|(a, b)| a * b).sum::<f64>() / count;
        assert!(
            neighbours.abs() < 4.0 * sigma * sigma / count.sqrt(),
            "copy {index}: neighbours covary by {neighbours}"
        );
    }
}

#[test]
fn patches_change_a_sixteenth_of_the_image_and_nothing_else() {
    let image = pattern(200, 120);
    let mut places = std::collections::BTreeSet::new();
    for seed in 0..50 {
        for index in [2, 3, 4] {
            let copied = copy(&image, seed, index);
            let changed: Vec<(u32, u32)> = image
                .enumerate_pixels()
                .filter(|(x, y, pixel)| copied.get_pixel(*x, *y) != *pixel)
                .map(|(x, y, _)| (x, y))
                .collect();
            let span = |values: Vec<u32>| {
                (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0))
            };
            let (left, right) = span(changed.iter().map(|(x, _)| *x).collect());
            let (top, bottom) = span(changed.iter().map(|(_, y)| *y).collect());
            assert!(right - left < 50 && bottom - top < 30, "copy {index} changed {left}..={right} × {top}..={bottom}");
            assert!(changed.len() > 1000, "copy {index} changed {} pixels only", changed.len());
            places.insert((left, top));
        }
    }
    assert!(places.len() > 100, "only {} places", places.len());
}

#[test]
fn copies_of_the_smallest_images_exist() {
    for (width, height) in [(1, 1), (1, 50), (50, 1), (2, 3)] {
        for index in 0..COPIES {
            assert_eq!(copy(&pattern(width, height), 3, index).dimensions(), (width, height));
        }
    }
}

// ---- resizing ----

#[derive(Deserialize)]
struct Resized {
    width: u32,
    height: u32,
    to_width: u32,
    to_height: u32,
    filter: Filter,
    values: String,
}

#[derive(Deserialize)]
struct ResizedByPillow {
    cases: Vec<Resized>,
}

#[test]
fn resizing_agrees_with_pillow_within_two_levels() {
    let reference: ResizedByPillow = serde_json::from_slice(&reference("resize.json")).expect("resize.json");
    assert_eq!(reference.cases.len(), 12);
    for case in reference.cases {
        let source = pattern(case.width, case.height);
        let ours = resize(&source, case.to_width, case.to_height, case.filter).expect("resized");
        let theirs = hex::decode(&case.values).expect("hexadecimal");
        assert_eq!(ours.as_raw().len(), theirs.len());
        let worst = ours.iter().zip(&theirs).map(|(our, their)| our.abs_diff(*their)).max();
        let label = format!("{:?} {}×{} → {}×{}", case.filter, case.width, case.height, case.to_width, case.to_height);
        println!("{label}: {worst:?}");
        assert!(worst <= Some(2), "{label} differs by {worst:?}");
    }
}

#[test]
fn resizing_from_or_to_nothing_is_refused() {
    for (from, to) in [((0, 4), (4, 4)), ((4, 4), (0, 4)), ((4, 4), (4, 0)), ((4, 4), (IMAGE_SIDE_PX_MAX + 1, 4))] {
        let refused = resize(&RgbImage::new(from.0, from.1), to.0, to.1, Filter::Bilinear);
        assert!(matches!(refused, Err(ResizeError::Size { .. })), "{from:?} → {to:?}");
    }
    let same = resize(&pattern(9, 7), 9, 7, Filter::Bilinear).expect("resized");
    assert_eq!(same, pattern(9, 7));
}
