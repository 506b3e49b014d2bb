//! Where an object could stand: an even strip in the lower part of the picture, behind nothing that was seen.
//!
//! Without a depth map a support surface is taken to be what carries things in most pictures: even, wide, and low. The
//! size follows from a camera that looks out level over the surface: the nearer to the horizon, the smaller.

use image::RgbImage;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Region;

/// Where the horizon is taken to be, as a share of the height from above.
const HORIZON: f64 = 0.35;
/// How far above the surface the camera is taken to be, in centimetres.
const CAMERA_CM: f64 = 80.0;
/// Smallest and largest an object is drawn, as a share of the picture's height.
const SIZE: (f64, f64) = (0.08, 0.26);
/// Smallest an object is drawn, as a share of the picture: what is slim is drawn taller.
const AREA: f64 = 0.004;
/// Highest and lowest that an object may stand, as shares of the picture's height from above.
const FOOT: (f64, f64) = (0.55, 0.97);
/// Nearest that an object comes to the picture's sides, as a share of the width.
const ASIDE: f64 = 0.06;
/// Places tried across and down.
const STEPS: u32 = 24;
/// Roughest strip that can carry something: mean brightness step between neighbours, in levels.
pub(super) const ROUGHNESS_MAX: f64 = 14.0;
/// Largest share of a seen thing, and of the object, that may coincide.
pub(super) const COVERED_MAX: f64 = 0.15;
/// What a detector sees and things stand on.
const SUPPORTS: [&str; 4] = ["dining table", "bench", "bed", "couch"];
/// Weakest detection that is kept clear of.
const SCORE_MIN: f32 = 0.2;

/// A thing that was seen in the picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// How surely, 0 to 1.
    pub score: f32,
    /// Left, upper, right and lower edge, as shares of width and height.
    pub corners: [f64; 4],
}

impl Seen {
    /// Its box in a picture of this size.
    #[must_use]
    pub fn region(&self, (width, height): (u32, u32)) -> Region {
        let [left, upper, right, lower] = self.corners.map(|edge| edge.clamp(0.0, 1.0));
        let (width, height) = (f64::from(width), f64::from(height));
        let (x, y) = (whole(left * width), whole(upper * height));
        let (right, lower) = (whole((right * width).ceil()), whole((lower * height).ceil()));
        Region { x, y, width: right.saturating_sub(x), height: lower.saturating_sub(y) }
    }

    /// Whether things stand on it.
    #[must_use]
    pub fn is_support(&self) -> bool {
        SUPPORTS.contains(&self.name.as_str())
    }

    /// Whether it was seen surely enough to be kept clear of.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.score >= SCORE_MIN
    }
}

/// A place for an object.
pub(super) struct Place {
    pub(super) object: Region,
    pub(super) roughness: f64,
}

/// The best place by evenness and nearness for a thing of this height and aspect; `None` where the picture has none.
pub(super) fn find(
    scene: &RgbImage,
    ground: &Steps,
    (height_cm, aspect): (f64, f64),
    seen: &[Seen],
    seed: u64,
) -> Option<Place> {
    let (width, height) = scene.dimensions();
    if width < 2 * STEPS || height < 2 * STEPS {
        return None;
    }
    let aside = whole((ASIDE * f64::from(width)).ceil());
    let slim = (AREA * f64::from(width) * f64::from(height) / aspect).sqrt();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let clear: Vec<(Region, bool)> = seen
        .iter()
        .filter(|thing| thing.counts())
        .map(|thing| (thing.region(scene.dimensions()), thing.is_support()))
        .collect();
    let mut best: Option<(f64, Place)> = None;
    for row in 0..STEPS {
        let foot = FOOT.0 + (FOOT.1 - FOOT.0) * f64::from(row) / f64::from(STEPS - 1);
        let tall = (foot - HORIZON) * height_cm / CAMERA_CM;
        let tall = (tall.clamp(SIZE.0, SIZE.1) * f64::from(height)).max(slim);
        let (tall, wide) = (whole(tall.round()).max(2), whole((tall * aspect).round()).max(2));
        let foot = whole(foot * f64::from(height)).min(height - 1);
        let (Some(top), Some(room)) = (foot.checked_sub(tall), width.checked_sub(wide + 2 * aside)) else { continue };
        for column in 0..STEPS {
            let x = aside + room * column / (STEPS - 1);
            let object = Region { x, y: top, width: wide, height: tall };
            // Drawn for every place, so that what is seen does not change the draw.
            let whim = 1.0 + 0.2 * random.random::<f64>();
            let Some(carried) = standing(&object, &clear) else { continue };
            let roughness = ground.mean(&strip(&object, height));
            let hidden = ground.mean(&object);
            let nearness = f64::from(foot) / f64::from(height);
            let cost = (roughness + 0.6 * hidden + 1.0) * (1.6 - nearness) * whim * if carried { 0.6 } else { 1.0 };
            if roughness <= ROUGHNESS_MAX && best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, Place { object, roughness }));
            }
        }
    }
    best.map(|(_, place)| place)
}

/// Where the object's foot and its shadow touch the ground.
pub(super) fn strip(object: &Region, height: u32) -> Region {
    let depth = (object.height / 4).max(3);
    let y = (object.y + object.height).saturating_sub(depth);
    Region { x: object.x, y, width: object.width, height: (2 * depth).min(height - y) }
}

/// Whether the object keeps clear of what was seen, and if so, whether its foot is on a thing that carries things.
fn standing(object: &Region, clear: &[(Region, bool)]) -> Option<bool> {
    let foot = (object.x + object.width / 2, object.y + object.height - 1);
    let mut carried = false;
    for (thing, support) in clear {
        if *support {
            // Well inside its box: a box's rim is air as often as wood.
            let inner = Region { y: thing.y + thing.height / 5, height: thing.height * 3 / 5, ..*thing };
            carried |= inner.holds(foot.0, foot.1);
        } else if covered(object, thing) > COVERED_MAX || covered(thing, object) > COVERED_MAX {
            return None;
        }
    }
    Some(carried)
}

/// The share of `of` that `by` covers.
pub(super) fn covered(of: &Region, by: &Region) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a picture has at most 24 million pixels")]
    let share = of.shared(by) as f64 / of.area().max(1) as f64;
    share
}

/// Brightness, Rec. 601.
pub(super) fn brightness([red, green, blue]: [u8; 3]) -> f64 {
    0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue)
}

/// Sums of brightness steps over every box, by a summed-area table.
pub(super) struct Steps {
    columns: usize,
    sums: Vec<f64>,
}

impl Steps {
    pub(super) fn of(scene: &RgbImage) -> Self {
        let columns = usize::try_from(scene.width()).unwrap_or_default() + 1;
        let mut sums = vec![0.0; columns];
        let mut above: Vec<f64> = Vec::new();
        for row in scene.rows() {
            let grey: Vec<f64> = row.map(|pixel| brightness(pixel.0)).collect();
            let mut line = 0.0;
            sums.push(0.0);
            for (x, level) in grey.iter().enumerate() {
                let left = x.checked_sub(1).and_then(|x| grey.get(x)).unwrap_or(level);
                let up = above.get(x).unwrap_or(level);
                line += (level - left).abs().max((level - up).abs());
                let before = sums.len().checked_sub(columns).and_then(|at| sums.get(at)).copied().unwrap_or_default();
                sums.push(before + line);
            }
            above = grey;
        }
        Self { columns, sums }
    }

    fn at(&self, x: u32, y: u32) -> f64 {
        let place = |v: u32| usize::try_from(v).unwrap_or_default();
        self.sums.get(place(y) * self.columns + place(x)).copied().unwrap_or_default()
    }

    /// The mean step in a box.
    fn mean(&self, region: &Region) -> f64 {
        let (right, lower) = (region.x + region.width, region.y + region.height);
        let sum =
            self.at(right, lower) + self.at(region.x, region.y) - self.at(region.x, lower) - self.at(right, region.y);
        let pixels = f64::from(region.width) * f64::from(region.height);
        sum.max(0.0) / pixels.max(1.0)
    }
}

/// The mean brightness step in a box of a picture.
pub(super) fn roughness(scene: &RgbImage, region: &Region) -> f64 {
    Steps::of(scene).mean(region)
}

/// A length in pixels from a float; negative and absurd ones become the nearest there is.
pub(super) fn whole(value: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of pixels")]
    let whole = value.clamp(0.0, 1e6) as u32;
    whole
}
