//! Objects put into pictures: nothing changes but one box, every place is sound, and the checks can fail.

#![cfg(all(feature = "bus", feature = "onnx", feature = "tools"))]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "what is skipped is said")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use image::{Rgb, RgbImage};
use proptest::prelude::*;
use steadfast::offline::eyes::{Closed, Eyes};
use steadfast::offline::insert::constraints::{check, is_new, rest_unchanged};
use steadfast::offline::insert::ocr::{self, Reader};
use steadfast::offline::insert::{CutOut, Edit, Region, Seen, insert, list};
use steadfast::proxy::Provider;

/// A wall with a window, and an even table under it.
fn scene() -> RgbImage {
    RgbImage::from_fn(320, 240, |x, y| match (x, y) {
        (60..130, 20..90) => Rgb([if (x / 3 + y / 3) % 2 == 0 { 240 } else { 90 }, 200, 255]),
        (_, 0..120) => Rgb([190, 180, 170]),
        _ => Rgb([120, 90, 60]),
    })
}

fn edit(scene: &RgbImage, item: &CutOut, seen: &[Seen], seed: u64) -> Edit {
    insert(scene, item, seen, seed).unwrap_or_else(|| panic!("no place for {}", item.name))
}

#[test]
fn the_list_has_26_items_and_each_is_drawn() {
    let items = list().expect("the shipped list");
    assert_eq!(items.len(), 26);
    for item in &items {
        assert!((0.3..4.0).contains(&item.aspect()), "{}", item.name);
        for word in ["knife", "scissors", "gun", "lighter", "sign", "label"] {
            assert!(!item.is_called(word) && !item.name.contains(word), "{}", item.name);
        }
    }
    assert!(items.iter().any(|item| item.name == "mug" && item.is_called("cup")));
}

#[test]
fn every_item_is_seen_and_everything_outside_its_box_is_bit_equal() {
    let scene = scene();
    for item in list().expect("the list") {
        let edit = edit(&scene, &item, &[], 7);
        assert!(rest_unchanged(&scene, &edit.image, &edit.region), "{}", item.name);
        assert!(edit.region.area() < 320 * 240 / 4, "{} fills the picture", item.name);
        let held = check(&scene, &edit, &item, &[]);
        assert!(held.all(), "{}: {held:?}", item.name);
        // Not vacuous: one level outside the box is noticed.
        let mut other = edit.image.clone();
        let (x, y) = if edit.region.holds(0, 0) { (319, 239) } else { (0, 0) };
        other.get_pixel_mut(x, y).0[0] ^= 1;
        assert!(!rest_unchanged(&scene, &other, &edit.region));
        assert_eq!(edit, self::edit(&scene, &item, &[], 7), "the same seed gives the same edit");
    }
}

#[test]
fn drawings_keep_their_colours_and_cast_a_shadow() {
    let scene = scene();
    let items = list().expect("the list");
    let centre = |name: &str| -> ([u8; 3], Edit) {
        let item = items.iter().find(|item| item.name == name).expect("an item");
        let edit = edit(&scene, item, &[], 5);
        let Region { x, y, width, height } = edit.object;
        (edit.image.get_pixel(x + width * 2 / 5, y + height * 2 / 3).0, edit)
    };
    let ([red, green, blue], edit) = centre("mug");
    assert!(blue > red + 40 && blue > green, "a mug is blue: {red} {green} {blue}");
    let ([red, _, blue], _) = centre("apple");
    assert!(red > blue + 40, "an apple is red");
    let ([red, green, blue], _) = centre("paper roll");
    assert!(red.min(green).min(blue) > 120, "paper is pale");
    // Under the foot the table is darker than it was.
    let Region { x, y, width, height } = edit.object;
    let (under, before) = (edit.image.get_pixel(x + width / 2, y + height).0, [120, 90, 60]);
    assert!(under.iter().zip(before).all(|(after, before)| *after < before), "{under:?}");
}

#[test]
fn what_was_seen_is_kept_clear_of_and_its_kind_is_not_new() {
    let items = list().expect("the list");
    let (scene, mug) = (scene(), &items[0]);
    let place = edit(&scene, mug, &[], 3).object;
    let (width, height) = (320.0, 240.0);
    let edges = [f64::from(place.x), f64::from(place.y)];
    let corners = [
        edges[0] / width,
        edges[1] / height,
        (edges[0] + f64::from(place.width)) / width,
        (edges[1] + f64::from(place.height)) / height,
    ];
    let thing = |name: &str, corners| vec![Seen { name: name.to_owned(), score: 0.9, corners }];
    let seen = thing("cat", corners);
    let moved = edit(&scene, mug, &seen, 3);
    assert!(moved.object.shared(&place) * 100 <= 15 * place.area().max(moved.object.area()), "{:?}", moved.object);
    assert!(check(&scene, &moved, mug, &seen).all());

    let everywhere = thing("cat", [0.0, 0.3, 1.0, 1.0]);
    assert!(insert(&scene, mug, &everywhere, 3).is_none(), "no place is left");
    let clean = edit(&scene, mug, &[], 3);
    assert_eq!(check(&scene, &clean, mug, &seen).broken(), Some("hazard-still-there"));
    let another = thing("cup", [0.0, 0.0, 0.1, 0.1]);
    assert_eq!(check(&scene, &clean, mug, &another).broken(), Some("truly-new"));
    assert!(check(&scene, &clean, &items[7], &another).truly_new);
    let table = thing("dining table", [0.0, 0.5, 1.0, 1.0]);
    assert!(check(&scene, &edit(&scene, mug, &table, 3), mug, &table).all(), "things stand on a table");
}

#[test]
fn an_edit_that_breaks_a_constraint_is_told() {
    let items = list().expect("the list");
    let (scene, mug) = (scene(), &items[0]);
    let good = edit(&scene, mug, &[], 1);
    let held = |change: &dyn Fn(&mut Edit)| {
        let mut edit = good.clone();
        change(&mut edit);
        check(&scene, &edit, mug, &[])
    };
    assert!(held(&|_| {}).all());
    assert!(!held(&|edit| edit.image = scene.clone()).visible, "nothing changed");
    assert!(!held(&|edit| edit.object = Region { width: 3, height: 3, ..edit.object }).visible, "too small");
    assert!(!held(&|edit| edit.image.get_pixel_mut(0, 0).0[1] ^= 1).rest_unchanged);
    assert!(!held(&|edit| edit.object.x = 310).placeable, "over the edge");
    assert!(!held(&|edit| edit.object.y = 10).placeable, "in the air");
}

#[test]
fn a_picture_without_an_even_place_takes_nothing() {
    let noise = RgbImage::from_fn(200, 200, |x, y| Rgb([((x * 7919 + y * 104_729) % 251) as u8; 3]));
    let items = list().expect("the list");
    assert!(insert(&noise, &items[0], &[], 1).is_none());
    assert!(insert(&RgbImage::new(20, 20), &items[0], &[], 1).is_none(), "too small for any place");
}

/// Letters of our own, five dots by seven.
const LETTERS: [(char, [u8; 7]); 9] = [
    ('A', [0b01110, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001]),
    ('E', [0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b11111]),
    ('F', [0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b10000]),
    ('H', [0b10001, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001]),
    ('L', [0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b11111]),
    ('O', [0b01110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110]),
    ('P', [0b11110, 0b10001, 0b10001, 0b11110, 0b10000, 0b10000, 0b10000]),
    ('S', [0b01111, 0b10000, 0b10000, 0b01110, 0b00001, 0b00001, 0b11110]),
    ('T', [0b11111, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100]),
];

/// Writes a word on a pale card, and gives the card's box.
fn write(picture: &mut RgbImage, word: &str, (left, top): (u32, u32), dot: u32) -> Region {
    let (margin, letters) = (4 * dot, word.len() as u32);
    let card = Region { x: left, y: top, width: (6 * letters - 1) * dot + 2 * margin, height: 7 * dot + 2 * margin };
    for y in 0..card.height {
        for x in 0..card.width {
            let (column, row) = ((x / dot).checked_sub(4), (y / dot).checked_sub(4));
            let inked = column.zip(row).is_some_and(|(column, row)| {
                let letter = word.chars().nth(column as usize / 6).and_then(|c| LETTERS.iter().find(|(l, _)| *l == c));
                let bits = letter.and_then(|(_, rows)| rows.get(row as usize)).copied().unwrap_or_default();
                bits << (column % 6) & 0b10000 != 0
            });
            picture.put_pixel(left + x, top + y, Rgb(if inked { [30, 30, 40] } else { [235, 230, 215] }));
        }
    }
    card
}

fn reader() -> Option<Reader> {
    let reader = Reader::find(ocr::PROGRAM).expect("it answers");
    if reader.is_none() {
        println!("skipped: {} is not on the PATH; {}", ocr::PROGRAM, ocr::INSTALL);
    }
    reader
}

#[test]
fn a_word_that_comes_in_is_read_and_one_that_was_there_is_not_new() {
    let Some(reader) = reader() else { return };
    let clean = scene();
    for word in ["STOP", "SAFE", "HOT PLATE"] {
        let mut edited = clean.clone();
        let card = write(&mut edited, word, (60, 150), 3);
        let alone = Edit { image: edited.clone(), region: card, object: card, roughness: 0.0 };
        assert_eq!(reader.broken(&clean, &alone).expect("read"), Some("object-is-text"), "{word}");
        // The same word as a small part of what came in.
        let large = Region { x: 10, y: 20, width: 300, height: 210 };
        let part = Edit { region: large, object: large, ..alone.clone() };
        assert_eq!(reader.broken(&clean, &part).expect("read"), Some("text-came-in"), "{word}");
        // What was written there before did not come in: untouched, or a little darker, as in an object's shadow.
        assert_eq!(reader.broken(&edited, &part).expect("read"), None, "{word}");
        let mut shaded = edited.clone();
        shaded.pixels_mut().for_each(|pixel| pixel.0 = pixel.0.map(|level| level - level / 10));
        let shaded = Edit { image: shaded, ..part };
        assert_eq!(reader.broken(&edited, &shaded).expect("read"), None, "{word}");
        // Another word in its place did.
        let mut replaced = edited.clone();
        write(&mut replaced, "LEFT", (60, 150), 3);
        let replaced = Edit { image: replaced, ..alone };
        assert!(reader.broken(&edited, &replaced).expect("read").is_some(), "{word}");
    }
}

#[test]
fn no_shipped_drawing_is_read_as_text() {
    let Some(reader) = reader() else { return };
    let photo = image::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/coffee.png")).expect("a photo");
    for scene in [scene(), photo.to_rgb8()] {
        for item in list().expect("the list") {
            let edit = edit(&scene, &item, &[], 7);
            assert_eq!(reader.broken(&scene, &edit).expect("read"), None, "{}", item.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_size_and_no_seed_reach_past_the_box(width in 8_u32..400, height in 8_u32..300, item in 0_usize..26, seed: u64) {
        let scene = RgbImage::from_fn(width, height, |x, y| Rgb([(x % 200) as u8, 100, (y % 256) as u8]));
        let items = list().expect("the list");
        if let Some(edit) = insert(&scene, &items[item], &[], seed) {
            prop_assert!(rest_unchanged(&scene, &edit.image, &edit.region));
            let Region { x, y, width: across, height: down } = edit.region;
            prop_assert!(x + across <= width && y + down <= height);
            prop_assert_eq!(edit.region.shared(&edit.object), edit.object.area(), "the object lies in its box");
        }
    }
}

fn photos(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jpg" || extension == "png"))
        .collect();
    found.sort();
    found
}

/// `STEADFAST_PHOTOS` names a folder of pictures; with the models there, their detector's boxes are kept clear of.
/// `STEADFAST_EDITS_OUT` keeps every edit, to be looked at. With Tesseract there, edits must pass it too, and a written card
/// put into each picture shows how often it would tell.
#[test]
fn nineteen_of_twenty_edits_of_real_pictures_hold() {
    let Some(folder) = std::env::var_os("STEADFAST_PHOTOS") else {
        println!("skipped: STEADFAST_PHOTOS names no folder of pictures");
        return;
    };
    let mut eyes: Box<dyn Eyes> =
        match (std::env::var_os("STEADFAST_MODELS"), std::env::var_os("STEADFAST_ONNXRUNTIME")) {
            (Some(models), Some(library)) => Box::new(compact(Path::new(&models), Path::new(&library))),
            _ => Box::new(Closed),
        };
    let out = std::env::var_os("STEADFAST_EDITS_OUT").map(PathBuf::from);
    let (items, reader) = (list().expect("the list"), reader());
    let (mut cards, mut told) = (0_u32, [0_u32; 2]);
    let (mut made, mut held, mut without_place, mut broken) = (0_u32, 0_u32, 0_u32, BTreeMap::new());
    for (turn, path) in photos(Path::new(&folder)).into_iter().enumerate() {
        let bytes = std::fs::read(&path).expect("read");
        let Ok(decoded) = steadfast::scene::decode::decode(&bytes) else { continue };
        let seen = eyes.things(&decoded.image).expect("looked");
        let new = items.iter().enumerate().filter(|(_, item)| is_new(item, &seen));
        // A third of the list on each picture, another third on the next: all together, in a third of the time.
        for (at, item) in new.filter(|(at, _)| at % 3 == turn % 3) {
            let Some(edit) = insert(&decoded.image, item, &seen, at as u64) else {
                without_place += 1;
                continue;
            };
            let answers = check(&decoded.image, &edit, item, &seen);
            let text = reader.as_ref().and_then(|reader| reader.broken(&decoded.image, &edit).expect("read"));
            let why = answers.broken().or(text);
            made += 1;
            held += u32::from(why.is_none());
            *broken.entry(why.unwrap_or("none")).or_insert(0_u32) += 1;
            if let Some(out) = &out {
                let name = format!("{}_{}.png", path.file_stem().expect("a name").to_string_lossy(), item.name);
                edit.image.save(out.join(name)).expect("kept");
            }
        }
        let Some(reader) = &reader else { continue };
        cards += 1;
        // Letters a twentieth of the picture's height tall, on a card, and on one that is a larger thing's label.
        for (margin, told) in [0, 12].into_iter().zip(&mut told) {
            let (mut edited, dot) = (decoded.image.clone(), (decoded.image.height() / 140).max(2));
            let corner = ((decoded.image.width() - 31 * dot) / 2, decoded.image.height() * 3 / 5);
            let (left, top) = (corner.0.saturating_sub(margin * dot), corner.1.saturating_sub(margin * dot));
            let thing = Region { x: left, y: top, width: (31 + 2 * margin) * dot, height: (15 + 2 * margin) * dot };
            edited
                .enumerate_pixels_mut()
                .filter(|(x, y, _)| thing.holds(*x, *y))
                .for_each(|(.., p)| p.0 = [70, 110, 80]);
            write(&mut edited, "STOP", corner, dot);
            let edit = Edit { image: edited, region: thing, object: thing, roughness: 0.0 };
            *told += u32::from(reader.broken(&decoded.image, &edit).expect("read").is_some());
        }
    }
    let [alone, label] = told;
    println!("of {cards} pictures a written card is told in {alone}, and as a label of a larger thing in {label}");
    println!("{held} of {made} edits hold; {without_place} found no place; broken: {broken:?}");
    assert!(f64::from(held) >= 0.95 * f64::from(made) && made > 0);
}

fn compact(models: &Path, library: &Path) -> steadfast::proxy::compact::Compact {
    use steadfast::proxy::onnx::{Engine, EngineSettings};
    let settings = EngineSettings {
        library: library.to_owned(),
        threads: 1,
        providers: vec![Provider::Cpu],
        allow_fallback: false,
        engine_cache: None,
    };
    let engine = Engine::load(settings).expect("the library");
    steadfast::proxy::compact::Compact::load(&engine, models).expect("the models")
}
