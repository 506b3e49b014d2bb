//! The fixed list of everyday items, and a drawing of each. Both lie in config/; `config/objects/draw.py` makes the
//! drawings.

use std::collections::BTreeSet;

use image::{ImageBuffer, Rgba};
use serde::Deserialize;

/// The list as shipped.
const LIST: &str = include_str!("../../../config/objects.toml");
/// Tallest and shortest an item may be said to be, in centimetres: what a robot can carry.
const HEIGHT_CM: (f64, f64) = (1.0, 60.0);

/// Each drawing under its item's name.
const DRAWINGS: [(&str, &[u8]); 26] = [
    ("mug", include_bytes!("../../../config/objects/mug.png")),
    ("paper cup", include_bytes!("../../../config/objects/paper_cup.png")),
    ("bowl", include_bytes!("../../../config/objects/bowl.png")),
    ("plate", include_bytes!("../../../config/objects/plate.png")),
    ("bottle", include_bytes!("../../../config/objects/bottle.png")),
    ("jar", include_bytes!("../../../config/objects/jar.png")),
    ("vase", include_bytes!("../../../config/objects/vase.png")),
    ("apple", include_bytes!("../../../config/objects/apple.png")),
    ("orange", include_bytes!("../../../config/objects/orange.png")),
    ("lemon", include_bytes!("../../../config/objects/lemon.png")),
    ("banana", include_bytes!("../../../config/objects/banana.png")),
    ("pear", include_bytes!("../../../config/objects/pear.png")),
    ("loaf of bread", include_bytes!("../../../config/objects/loaf_of_bread.png")),
    ("wooden spoon", include_bytes!("../../../config/objects/wooden_spoon.png")),
    ("sponge", include_bytes!("../../../config/objects/sponge.png")),
    ("folded towel", include_bytes!("../../../config/objects/folded_towel.png")),
    ("pillow", include_bytes!("../../../config/objects/pillow.png")),
    ("closed book", include_bytes!("../../../config/objects/closed_book.png")),
    ("cardboard box", include_bytes!("../../../config/objects/cardboard_box.png")),
    ("toy block", include_bytes!("../../../config/objects/toy_block.png")),
    ("ball", include_bytes!("../../../config/objects/ball.png")),
    ("teddy bear", include_bytes!("../../../config/objects/teddy_bear.png")),
    ("potted plant", include_bytes!("../../../config/objects/potted_plant.png")),
    ("tissue box", include_bytes!("../../../config/objects/tissue_box.png")),
    ("paper roll", include_bytes!("../../../config/objects/paper_roll.png")),
    ("remote control", include_bytes!("../../../config/objects/remote_control.png")),
];

/// A drawing with weighted colours: red, green and blue times alpha, all 0 to 1, which is where resizing clamps.
pub(super) type Drawing = ImageBuffer<Rgba<f32>, Vec<f32>>;

/// An everyday item and its drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct CutOut {
    /// What it is called.
    pub name: String,
    /// What a detector may call it.
    pub also: Vec<String>,
    /// Its usual height as drawn, in centimetres.
    pub height_cm: f64,
    drawing: Drawing,
}

/// Why there is no list of items.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The list does not parse.
    #[error("objects.toml: {0}")]
    Format(#[from] toml::de::Error),
    /// A drawing does not decode.
    #[error("the drawing of {name}: {source}")]
    Drawing {
        /// The item.
        name: String,
        /// Why not.
        source: image::ImageError,
    },
    /// List and drawings do not belong together.
    #[error("{0}")]
    Mismatch(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    object: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    #[serde(default)]
    also: Vec<String>,
    height_cm: f64,
}

/// The items, in the order of the list.
///
/// # Errors
/// When list and drawings do not belong together; a test holds the shipped ones to that.
pub fn list() -> Result<Vec<CutOut>, ListError> {
    let Written { object } = toml::from_str(LIST)?;
    let mut names = BTreeSet::new();
    let items = object.into_iter().map(|Item { name, also, height_cm }| {
        if !names.insert(name.clone()) || !(HEIGHT_CM.0..=HEIGHT_CM.1).contains(&height_cm) {
            return Err(ListError::Mismatch(format!("{name} is named twice, or no robot could carry it")));
        }
        let bytes = DRAWINGS.iter().find(|(drawn, _)| *drawn == name).map(|(_, bytes)| *bytes);
        let bytes = bytes.ok_or_else(|| ListError::Mismatch(format!("there is no drawing of {name}")))?;
        let decoded = image::load_from_memory_with_format(bytes, image::ImageFormat::Png);
        let decoded = decoded.map_err(|source| ListError::Drawing { name: name.clone(), source })?.to_rgba8();
        Ok(CutOut { name, also, height_cm, drawing: weighted(&decoded) })
    });
    let items = items.collect::<Result<Vec<_>, _>>()?;
    if items.len() == DRAWINGS.len() {
        Ok(items)
    } else {
        Err(ListError::Mismatch(format!("{} items are listed and {} are drawn", items.len(), DRAWINGS.len())))
    }
}

/// Colours times alpha: only so can a drawing be resized without a rim.
fn weighted(image: &image::RgbaImage) -> Drawing {
    Drawing::from_fn(image.width(), image.height(), |x, y| {
        let Rgba([red, green, blue, alpha]) = image.get_pixel_checked(x, y).copied().unwrap_or(Rgba([0; 4]));
        let alpha = f32::from(alpha) / 255.0;
        let [red, green, blue] = [red, green, blue].map(|level| f32::from(level) / 255.0 * alpha);
        Rgba([red, green, blue, alpha])
    })
}

impl CutOut {
    /// Width over height.
    #[must_use]
    pub fn aspect(&self) -> f64 {
        f64::from(self.drawing.width()) / f64::from(self.drawing.height().max(1))
    }

    /// Whether a detector's name means this item.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.also.iter().any(|also| also == name)
    }

    /// The drawing at this size; turned about where the light falls from the right.
    pub(super) fn at_size(&self, width: u32, height: u32, turned: bool) -> Drawing {
        let sized =
            image::imageops::resize(&self.drawing, width.max(1), height.max(1), image::imageops::FilterType::Triangle);
        if turned { image::imageops::flip_horizontal(&sized) } else { sized }
    }
}
