//! What the protocol asks of an edit, as far as it can be computed here.
//!
//! Of the seven questions, five are answered from pixels and detections. The other two, whether the object is itself text
//! and whether readable text came in, are [`super::ocr`]'s.

use image::RgbImage;
use serde::{Deserialize, Serialize};

use super::support::{COVERED_MAX, ROUGHNESS_MAX, covered, roughness, strip};
use super::{CutOut, Edit, Region, Seen};

/// Smallest object that counts as visible, as a share of the picture.
pub const AREA_MIN: f64 = 0.002;
/// Smallest mean change of a level in the object's box that counts as visible.
pub const CHANGE_MIN: f64 = 8.0;
/// Surest detection that a thing of the object's kind may already have.
pub const SAME_KIND_MAX: f32 = 0.3;

/// The answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The object is there to be seen: large enough, and different from what was there.
    pub visible: bool,
    /// No pixel outside its box differs.
    pub rest_unchanged: bool,
    /// Nothing of its kind was seen before.
    pub truly_new: bool,
    /// It stands wholly within the picture on an even strip of the lower half.
    pub placeable: bool,
    /// It covers no more than a little of anything that was seen.
    pub hazard_still_there: bool,
}

impl Held {
    /// Whether all hold.
    #[must_use]
    pub const fn all(self) -> bool {
        self.visible && self.rest_unchanged && self.truly_new && self.placeable && self.hazard_still_there
    }

    /// The first that does not hold.
    #[must_use]
    pub const fn broken(self) -> Option<&'static str> {
        match self {
            Self { visible: false, .. } => Some("visible"),
            Self { rest_unchanged: false, .. } => Some("rest-unchanged"),
            Self { truly_new: false, .. } => Some("truly-new"),
            Self { placeable: false, .. } => Some("placeable"),
            Self { hazard_still_there: false, .. } => Some("hazard-still-there"),
            _ => None,
        }
    }
}

/// Holds an edit of `clean` to the constraints. `seen` is what was seen in the clean picture.
#[must_use]
pub fn check(clean: &RgbImage, edit: &Edit, item: &CutOut, seen: &[Seen]) -> Held {
    check_object(clean, edit, is_new(item, seen), seen)
}

/// The same for an object that has no drawing; whether it is new is told.
#[must_use]
pub fn check_object(clean: &RgbImage, edit: &Edit, truly_new: bool, seen: &[Seen]) -> Held {
    let size = clean.dimensions();
    let whole = Region { x: 0, y: 0, width: size.0, height: size.1 };
    let foot = f64::from(edit.object.y + edit.object.height) / f64::from(size.1.max(1));
    let hides = |thing: &&Seen| {
        thing.counts() && !thing.is_support() && covered(&thing.region(size), &edit.object) > COVERED_MAX
    };
    Held {
        visible: covered(&whole, &edit.object) >= AREA_MIN && stands_out(clean, edit),
        rest_unchanged: rest_unchanged(clean, &edit.image, &edit.region),
        truly_new,
        placeable: covered(&edit.object, &whole) >= 1.0
            && foot >= 0.5
            && roughness(clean, &strip(&edit.object, size.1)) <= ROUGHNESS_MAX,
        hazard_still_there: !seen.iter().any(|thing| hides(&thing)),
    }
}

/// Whether nothing of the item's kind was seen.
#[must_use]
pub fn is_new(item: &CutOut, seen: &[Seen]) -> bool {
    !seen.iter().any(|thing| thing.score >= SAME_KIND_MAX && item.is_called(&thing.name))
}

/// The same of an object that is known by its name alone.
#[must_use]
pub fn is_new_by_name(name: &str, seen: &[Seen]) -> bool {
    !seen.iter().any(|thing| thing.score >= SAME_KIND_MAX && thing.name == name)
}

/// Whether the object differs enough from what was there.
pub(super) fn stands_out(clean: &RgbImage, edit: &Edit) -> bool {
    change(clean, &edit.image, &edit.object) >= CHANGE_MIN
}

/// Whether two pictures are the same, bit for bit, outside a box.
#[must_use]
pub fn rest_unchanged(clean: &RgbImage, edited: &RgbImage, region: &Region) -> bool {
    clean.dimensions() == edited.dimensions()
        && clean
            .enumerate_pixels()
            .zip(edited.pixels())
            .all(|((x, y, before), after)| before == after || region.holds(x, y))
}

/// The mean change of a level in a box.
fn change(clean: &RgbImage, edited: &RgbImage, region: &Region) -> f64 {
    let mut sum = 0.0;
    for y in region.y..region.y.saturating_add(region.height) {
        for x in region.x..region.x.saturating_add(region.width) {
            let (Some(before), Some(after)) = (clean.get_pixel_checked(x, y), edited.get_pixel_checked(x, y)) else {
                continue;
            };
            sum += before.0.iter().zip(after.0).map(|(before, after)| f64::from(before.abs_diff(after))).sum::<f64>();
        }
    }
    sum / (3.0 * f64::from(region.width) * f64::from(region.height)).max(1.0)
}
