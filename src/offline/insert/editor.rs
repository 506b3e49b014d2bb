//! An object put in by an image editor: what it is shown, and how much of its answer is taken over.
//!
//! An editor gives a whole picture back, and no two of its pixels need be as they were. Only a box of that picture is taken
//! over, so that everything outside stays bit-equal; where the rest came back as another picture, or the object reaches over
//! the box's rim, the box would not belong to the scene and the edit is rejected.

use image::{RgbImage, Rgba, RgbaImage};

use super::support::{self, Steps};
use super::{Edit, Region, Seen};
use crate::scene::resize::{self, Filter};

/// How tall an everyday object is taken to be whose name alone is known, in centimetres.
const HEIGHT_CM: f64 = 25.0;
/// Room around such an object, for its shadow and for one that is wider than tall, as a share of its box.
const ROOM: f64 = 0.3;
/// Largest mean change of a level outside the box, and along the box's rim. Encoding a picture anew changes a level or two.
const REST_CHANGE_MAX: f64 = 10.0;
/// Smallest change of a level that shows where an editor without a mask has worked.
const WORKED_MIN: u8 = 40;
/// Largest share of the picture that an object may be found to take.
const AREA_MAX: f64 = 0.25;
/// Largest relative difference of the two pictures' aspects.
const ASPECT_DIFFERENCE_MAX: f64 = 0.02;

/// Why an editor's picture is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// It has another shape.
    Shape,
    /// More than the object came back different.
    RestChanged,
    /// The object reaches over the box's rim.
    CutOff,
    /// Nothing was put in.
    Unchanged,
}

impl Rejected {
    /// The name that counts go by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shape => "editor-shape",
            Self::RestChanged => "editor-rest-changed",
            Self::CutOff => "editor-cut-off",
            Self::Unchanged => "editor-unchanged",
        }
    }
}

/// The box in which an editor may put something: an even place for an everyday object, with room around it.
#[must_use]
pub fn place(scene: &RgbImage, seen: &[Seen], seed: u64) -> Option<Region> {
    let place = support::find(scene, &Steps::of(scene), (HEIGHT_CM, 1.0), seen, seed)?;
    Some(roomy(&place.object, ROOM, scene.dimensions()))
}

/// The mask that goes with a picture: clear where the editor may work, opaque elsewhere.
#[must_use]
pub fn mask(size: (u32, u32), free: &Region) -> RgbaImage {
    RgbaImage::from_fn(size.0, size.1, |x, y| Rgba([0, 0, 0, if free.holds(x, y) { 0 } else { u8::MAX }]))
}

/// Takes over the box of an editor's picture; where no box was asked for, the one it has worked in.
///
/// # Errors
/// When the picture does not belong to the scene but for the box.
pub fn take_over(clean: &RgbImage, answer: RgbImage, free: Option<Region>) -> Result<Edit, Rejected> {
    let answer = at_size_of(clean, answer)?;
    let region = match free {
        Some(free) => free,
        None => worked_in(clean, &answer)?,
    };
    if mean_change(clean, &answer, |x, y| !region.holds(x, y)) > REST_CHANGE_MAX {
        return Err(Rejected::RestChanged);
    }
    let inner = Region {
        x: region.x + 1,
        y: region.y + 1,
        width: region.width.saturating_sub(2),
        height: region.height.saturating_sub(2),
    };
    if mean_change(clean, &answer, |x, y| region.holds(x, y) && !inner.holds(x, y)) > REST_CHANGE_MAX {
        return Err(Rejected::CutOff);
    }
    let mut image = clean.clone();
    for (x, y, pixel) in image.enumerate_pixels_mut() {
        if region.holds(x, y) {
            *pixel = answer.get_pixel_checked(x, y).copied().unwrap_or(*pixel);
        }
    }
    // The object itself, as far as the change tells.
    let object = worked_in(clean, &image)?;
    let roughness = support::roughness(clean, &support::strip(&object, clean.height()));
    Ok(Edit { image, region, object, roughness })
}

/// Editors answer in sizes of their own; the shape must be the scene's.
fn at_size_of(clean: &RgbImage, answer: RgbImage) -> Result<RgbImage, Rejected> {
    if clean.dimensions() == answer.dimensions() {
        return Ok(answer);
    }
    let aspect = |picture: &RgbImage| f64::from(picture.width()) / f64::from(picture.height().max(1));
    if (aspect(&answer) / aspect(clean) - 1.0).abs() > ASPECT_DIFFERENCE_MAX {
        return Err(Rejected::Shape);
    }
    resize::resize(&answer, clean.width(), clean.height(), Filter::Bilinear).map_err(|_| Rejected::Shape)
}

/// The box around what changed markedly, with room.
fn worked_in(clean: &RgbImage, answer: &RgbImage) -> Result<Region, Rejected> {
    let (width, height) = clean.dimensions();
    let changed = changed_markedly(clean, answer).ok_or(Rejected::Unchanged)?;
    let region = roomy(&changed, ROOM / 2.0, (width, height));
    let whole = Region { x: 0, y: 0, width, height };
    if support::covered(&whole, &region) > AREA_MAX { Err(Rejected::RestChanged) } else { Ok(region) }
}

/// The box around what changed markedly; single changed pixels in a row or column are noise.
pub(super) fn changed_markedly(clean: &RgbImage, answer: &RgbImage) -> Option<Region> {
    let (width, height) = clean.dimensions();
    let length = |side: u32| usize::try_from(side).unwrap_or_default();
    let (mut columns, mut rows) = (vec![0_u32; length(width)], vec![0_u32; length(height)]);
    for ((x, y, before), after) in clean.enumerate_pixels().zip(answer.pixels()) {
        if before.0.iter().zip(after.0).any(|(before, after)| before.abs_diff(after) >= WORKED_MIN) {
            for (counts, at) in [(&mut columns, x), (&mut rows, y)] {
                if let Some(count) = counts.get_mut(length(at)) {
                    *count += 1;
                }
            }
        }
    }
    let span = |counts: &[u32]| -> Option<(u32, u32)> {
        let first = counts.iter().position(|count| *count > 1)?;
        let last = counts.iter().rposition(|count| *count > 1)?;
        Some((u32::try_from(first).ok()?, u32::try_from(last - first + 1).ok()?))
    };
    let ((x, wide), (y, tall)) = span(&columns).zip(span(&rows))?;
    Some(Region { x, y, width: wide, height: tall })
}

/// A box with room around it, within the picture.
fn roomy(object: &Region, room: f64, (width, height): (u32, u32)) -> Region {
    let across = support::whole((room * f64::from(object.width)).ceil());
    let down = support::whole((room * f64::from(object.height)).ceil());
    let (x, y) = (object.x.saturating_sub(across), object.y.saturating_sub(down));
    let right = (object.x + object.width).saturating_add(across).min(width);
    let bottom = (object.y + object.height).saturating_add(down).min(height);
    Region { x, y, width: right - x, height: bottom - y }
}

fn mean_change(clean: &RgbImage, answer: &RgbImage, counts: impl Fn(u32, u32) -> bool) -> f64 {
    let (mut sum, mut pixels) = (0.0, 0_u32);
    for ((x, y, before), after) in clean.enumerate_pixels().zip(answer.pixels()) {
        if counts(x, y) {
            sum += before.0.iter().zip(after.0).map(|(before, after)| f64::from(before.abs_diff(after))).sum::<f64>();
            pixels += 1;
        }
    }
    sum / (3.0 * f64::from(pixels)).max(1.0)
}

#[cfg(test)]
mod tests {
    use image::Rgb;

    use super::*;

    const FREE: Region = Region { x: 40, y: 60, width: 40, height: 40 };

    fn scene() -> RgbImage {
        RgbImage::from_fn(160, 120, |x, y| {
            Rgb([(x / 40, 120), (y / 30, 110), (0, 100)].map(|(step, base)| base + u8::try_from(step).unwrap_or(0)))
        })
    }

    /// What an editor gives back: every level a little off, and something in this box.
    fn answer(object: Region) -> RgbImage {
        let mut answer = scene();
        for (x, y, pixel) in answer.enumerate_pixels_mut() {
            pixel.0 = if object.holds(x, y) { [200, 30, 40] } else { pixel.0.map(|level| level + 2) };
        }
        answer
    }

    #[test]
    fn only_the_box_is_taken_over() {
        let object = Region { x: 50, y: 70, width: 20, height: 20 };
        let clean = scene();
        for free in [Some(FREE), None] {
            let edit = take_over(&clean, answer(object), free).expect("taken over");
            assert!(super::super::constraints::rest_unchanged(&clean, &edit.image, &edit.region));
            assert_eq!(edit.image.get_pixel(60, 80).0, [200, 30, 40]);
            assert_eq!(edit.image.get_pixel(5, 5), clean.get_pixel(5, 5), "not the editor's own");
            assert!(edit.region.holds(50, 70) && edit.region.holds(69, 89));
        }
        // Twice the size is the same picture.
        let large = image::imageops::resize(&answer(object), 320, 240, image::imageops::FilterType::Triangle);
        assert!(take_over(&clean, large, Some(FREE)).is_ok());
    }

    #[test]
    fn what_does_not_belong_to_the_scene_is_rejected() {
        let clean = scene();
        let another = RgbImage::from_pixel(160, 120, Rgb([30, 200, 90]));
        let over_the_rim = Region { x: 30, y: 70, width: 30, height: 20 };
        let square = RgbImage::from_pixel(120, 120, Rgb([120, 110, 100]));
        for (answer, free, why) in [
            (another.clone(), Some(FREE), Rejected::RestChanged),
            (another, None, Rejected::RestChanged),
            (answer(over_the_rim), Some(FREE), Rejected::CutOff),
            (square, Some(FREE), Rejected::Shape),
            (clean.clone(), Some(FREE), Rejected::Unchanged),
            (clean.clone(), None, Rejected::Unchanged),
        ] {
            assert_eq!(take_over(&clean, answer, free).map(|_| ()), Err(why));
        }
    }

    #[test]
    fn the_mask_is_clear_in_the_box_alone() {
        let mask = mask((160, 120), &FREE);
        let clear = |pixel: &Rgba<u8>| pixel.0 == [0; 4];
        assert!(mask.enumerate_pixels().all(|(x, y, pixel)| clear(pixel) == FREE.holds(x, y)));
        let place = place(&scene(), &[], 7).expect("a place");
        assert!(place.x + place.width <= 160 && place.y + place.height <= 120 && place.area() > 0);
    }
}
