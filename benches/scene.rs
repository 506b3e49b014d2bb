//! What the image half costs at a working size of 384 × 384, so that it can be held against a model's time.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use image::RgbImage;
use steadfast::scene::decode::decode;
use steadfast::scene::perturb::{COPIES, Perturbation, copy_into};
use steadfast::scene::resize::{Filter, resize};

/// A 640 × 480 camera frame with some texture, and the same as JPEG.
fn frame() -> (RgbImage, Vec<u8>) {
    let texture =
        |x: u32, y: u32, c: u32| u8::try_from((x * x / 40 + y * (c + 2) / 3 + x * y / 200) % 256).unwrap_or(0);
    let frame = RgbImage::from_fn(640, 480, |x, y| image::Rgb([texture(x, y, 0), texture(x, y, 1), texture(x, y, 2)]));
    let mut jpeg = Vec::new();
    let encoded = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 90).encode_image(&frame);
    assert!(encoded.is_ok(), "a frame encodes");
    (frame, jpeg)
}

fn cost(criterion: &mut Criterion) {
    let (frame, jpeg) = frame();
    criterion.bench_function("decode 640x480 JPEG", |bencher| bencher.iter(|| decode(black_box(&jpeg))));
    criterion.bench_function("resize to 384x384", |bencher| {
        bencher.iter(|| resize(black_box(&frame), 384, 384, Filter::Bilinear));
    });
    let Ok(working) = resize(&frame, 384, 384, Filter::Bilinear) else { return };
    let mut target = RgbImage::new(0, 0);
    for (index, kind) in Perturbation::ALL.iter().enumerate() {
        criterion.bench_function(&format!("copy {kind:?}"), |bencher| {
            bencher.iter(|| copy_into(black_box(&working), 7, index, &mut target));
        });
    }
    criterion.bench_function("all copies", |bencher| {
        bencher.iter(|| (0..COPIES).for_each(|index| copy_into(black_box(&working), 7, index, &mut target)));
    });
}

criterion_group!(benches, cost);
criterion_main!(benches);
