//! One everyday object put into a picture: `E(I, o)`, the edit of the first paper's protocol, without a network; [`editor`]
//! is the same by an image editor.
//!
//! [`insert()`] takes a drawing from the fixed list, finds a support surface, scales, tones and shadows it, and changes
//! nothing outside one box; [`constraints`] then holds the edit to what the protocol asks of it. It is a collage, not a
//! photograph: the picture has no depth map, so the object always stands in front, and is only put where nothing seen
//! would have to stand before it.

pub mod constraints;
mod cutouts;
pub mod editor;
pub mod ocr;
mod support;

use image::RgbImage;

pub use cutouts::{CutOut, ListError, list};
pub use support::Seen;

use crate::statistics::count;

/// Most of the light's strength taken out where the shadow is deepest.
const SHADOW: f64 = 0.5;
/// Least and most that a drawing is dimmed or brightened.
const GAIN: (f64, f64) = (0.45, 1.15);
/// Places tried for one where the object stands out.
const ATTEMPTS: u64 = 4;
/// How far the surroundings' tint is taken over: 0 not at all, 1 wholly.
const TINT: f64 = 0.35;

/// A box in pixels: from (x, y), `width` by `height`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Region {
    /// Left edge.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Region {
    /// Whether a pixel lies in it.
    #[must_use]
    pub const fn holds(&self, x: u32, y: u32) -> bool {
        x >= self.x && x - self.x < self.width && y >= self.y && y - self.y < self.height
    }

    /// Pixels in it.
    #[must_use]
    pub fn area(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Pixels in both.
    #[must_use]
    pub fn shared(&self, other: &Self) -> u64 {
        let along = |a: u32, wide: u32, b: u32, wider: u32| {
            (a.saturating_add(wide)).min(b.saturating_add(wider)).saturating_sub(a.max(b))
        };
        let (across, down) =
            (along(self.x, self.width, other.x, other.width), along(self.y, self.height, other.y, other.height));
        u64::from(across) * u64::from(down)
    }
}

/// A picture with an object put in.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The picture.
    pub image: RgbImage,
    /// The only box in which it differs.
    pub region: Region,
    /// The object without its shadow.
    pub object: Region,
    /// How even the place is that carries it: mean brightness step between neighbours, in levels of 255.
    pub roughness: f64,
}

/// Puts an object into a picture, or finds no place for it. The same picture, object and seed give the same edit.
#[must_use]
pub fn insert(scene: &RgbImage, item: &CutOut, seen: &[Seen], seed: u64) -> Option<Edit> {
    let ground = support::Steps::of(scene);
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        let place = support::find(scene, &ground, (item.height_cm, item.aspect()), seen, seed.wrapping_add(attempt))?;
        let edit = draw(scene, item, &place);
        if constraints::stands_out(scene, &edit) {
            return Some(edit);
        }
        last = Some(edit);
    }
    last
}

fn draw(scene: &RgbImage, item: &CutOut, place: &support::Place) -> Edit {
    let object = place.object;
    let tone = Tone::around(scene, &object);
    let drawing = item.at_size(object.width, object.height, tone.from_the_right);
    let shadow = Shadow::under(&object, tone.from_the_right);
    let region = shadow.region(&object, scene.dimensions());
    let mut image = scene.clone();
    for y in region.y..region.y.saturating_add(region.height) {
        for x in region.x..region.x.saturating_add(region.width) {
            let Some(pixel) = image.get_pixel_mut_checked(x, y) else { continue };
            let dimmed = 1.0 - shadow.depth(x, y);
            let cut = if object.holds(x, y) { drawing.get_pixel_checked(x - object.x, y - object.y) } else { None };
            let [red, green, blue, alpha] = cut.map_or([0.0; 4], |pixel| pixel.0.map(f64::from));
            for ((level, drawn), gain) in pixel.0.iter_mut().zip([red, green, blue]).zip(tone.gains) {
                *level = level_of(f64::from(*level) * dimmed * (1.0 - alpha) + 255.0 * drawn * gain);
            }
        }
    }
    Edit { image, region, object, roughness: place.roughness }
}

/// How the surroundings are lit.
struct Tone {
    gains: [f64; 3],
    from_the_right: bool,
}

impl Tone {
    /// Reads the tone off a neighbourhood half an object wide on each side.
    fn around(scene: &RgbImage, object: &Region) -> Self {
        let (margin_x, margin_y) = (object.width / 2 + 1, object.height / 2 + 1);
        let middle = object.x + object.width / 2;
        let mut sums = [0.0; 3];
        let (mut pixels, mut left, mut right) = (0_usize, (0.0, 0_usize), (0.0, 0_usize));
        let rows = object.y.saturating_sub(margin_y)..(object.y + object.height + margin_y).min(scene.height());
        for y in rows {
            let from = object.x.saturating_sub(margin_x);
            for x in from..(object.x + object.width + margin_x).min(scene.width()) {
                if object.holds(x, y) {
                    continue;
                }
                let Some(pixel) = scene.get_pixel_checked(x, y) else { continue };
                for (sum, level) in sums.iter_mut().zip(pixel.0) {
                    *sum += f64::from(level);
                }
                pixels += 1;
                let side = if x < middle { &mut left } else { &mut right };
                side.0 += support::brightness(pixel.0);
                side.1 += 1;
            }
        }
        let [red, green, blue] = sums.map(|sum| sum / count(pixels).max(1.0));
        let grey = (0.299 * red + 0.587 * green + 0.114 * blue).max(1.0);
        // The drawings are made for a neighbourhood of middle grey; half of the difference is taken over, as eyes would.
        let gain = (grey / 128.0).sqrt().clamp(GAIN.0, GAIN.1);
        let tint = |channel: f64| gain * (channel.max(1.0) / grey).powf(TINT);
        let mean = |(sum, pixels): (f64, usize)| sum / count(pixels).max(1.0);
        Self { gains: [tint(red), tint(green), tint(blue)], from_the_right: mean(right) > mean(left) * 1.1 }
    }
}

/// A soft shadow where the object stands: an ellipse that lies away from the light.
struct Shadow {
    centre: (f64, f64),
    radii: (f64, f64),
}

impl Shadow {
    fn under(object: &Region, from_the_right: bool) -> Self {
        let (width, height) = (f64::from(object.width), f64::from(object.height));
        let aside = if from_the_right { -0.08 } else { 0.08 } * width;
        let radii = (0.58 * width, (0.14 * height.min(width)).max(2.0));
        let foot = f64::from(object.y) + height - 0.35 * radii.1;
        Self { centre: (f64::from(object.x) + 0.5 * width + aside, foot), radii }
    }

    /// The share of the light it takes at a pixel.
    fn depth(&self, x: u32, y: u32) -> f64 {
        let across = (f64::from(x) + 0.5 - self.centre.0) / self.radii.0;
        let down = (f64::from(y) + 0.5 - self.centre.1) / self.radii.1;
        let inside = (1.0 - across * across - down * down).max(0.0);
        SHADOW * inside.sqrt() * inside
    }

    /// The smallest box around object and shadow within the picture.
    fn region(&self, object: &Region, (width, height): (u32, u32)) -> Region {
        let low = |centre: f64, radius: f64| support::whole((centre - radius).floor());
        let high = |centre: f64, radius: f64| support::whole((centre + radius).ceil());
        let (x, y) = (object.x.min(low(self.centre.0, self.radii.0)), object.y.min(low(self.centre.1, self.radii.1)));
        let right = (object.x + object.width).max(high(self.centre.0, self.radii.0)).min(width);
        let bottom = (object.y + object.height).max(high(self.centre.1, self.radii.1)).min(height);
        Region { x, y, width: right.saturating_sub(x), height: bottom.saturating_sub(y) }
    }
}

fn level_of(value: f64) -> u8 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of a level")]
    let level = value.round().clamp(0.0, 255.0) as u8;
    level
}
