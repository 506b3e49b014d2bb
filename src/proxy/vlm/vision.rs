//! The image encoder: pixels in, rows of image features out, one row per image token.

use std::collections::VecDeque;

use image::RgbImage;

use super::LoadError;
use super::family::Family;
use super::picture::{Picture, Recipe, Scale, patch_rows};
use crate::proxy::Fault;
use crate::proxy::onnx::{Model, Outlet, Tensor, sound};
use crate::triple::Digest;

/// Tiles whose features are kept. The clean image's are asked for again by every copy that changes a patch, and between
/// two of those come at most two copies that change everything: three images of SmolVLM's thirteen tiles.
const TILES_KEPT: usize = 48;

/// What an image became.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// Rows of features, row-major.
    pub rows: Vec<f32>,
    /// Further rows for the decoder's first layers (DeepStack), one entry a layer.
    pub deep: Vec<Vec<f32>>,
    /// Width of a row.
    pub width: usize,
    /// How the rows lie in the image.
    pub shape: Shape,
}

/// How image tokens lie in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Tiles in rows and columns (none where the image was not cut), the whole image last.
    Tiles {
        /// Rows of tiles.
        rows: u32,
        /// Columns of tiles.
        columns: u32,
        /// Tokens of a tile.
        tokens: usize,
    },
    /// A grid of merged patches.
    Grid {
        /// Rows.
        rows: u32,
        /// Columns.
        columns: u32,
    },
    /// One square.
    Square,
}

/// The image encoder.
#[derive(Debug)]
pub struct Vision {
    /// The session.
    pub model: Model,
    pixels: Outlet,
    mask: Option<Outlet>,
    grid: Option<Outlet>,
    outputs: Vec<String>,
    recipe: Recipe,
    scale: Scale,
    /// What the tiles seen last became, the latest first, by their pixels' digest.
    tiles: VecDeque<(Digest, Features)>,
    /// Tiles that were not encoded because they had been before.
    spared: u64,
    /// The mask of a whole tile: it never changes.
    whole: Option<Tensor>,
}

impl Vision {
    /// Checks what the model takes and gives against what its family is known for.
    pub fn new(mut model: Model, family: Family, recipe: Recipe, scale: Scale) -> Result<Self, LoadError> {
        let (mut pixels, mut mask, mut grid) = (None, None, None);
        for input in model.inputs() {
            match (input.name.as_str(), family) {
                ("pixel_values", _) => pixels = Some(input.clone()),
                ("pixel_attention_mask", Family::Idefics) => mask = Some(input.clone()),
                ("grid_thw" | "image_grid_thw", Family::Qwen) => grid = Some(input.clone()),
                (other, _) => return Err(LoadError::unknown("vision_encoder", other)),
            }
        }
        let pixels = pixels.ok_or(LoadError::MissingInput { model: "vision_encoder", input: "pixel_values" })?;
        if family == Family::Qwen && grid.is_none() {
            return Err(LoadError::MissingInput { model: "vision_encoder", input: "image_grid_thw" });
        }
        let names: Vec<&str> = model.outputs().iter().map(|output| output.name.as_str()).collect();
        let features = names.iter().find(|name| **name == "image_features").or(match names.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        let features =
            *features.ok_or(LoadError::MissingOutput { model: "vision_encoder", output: "image_features" })?;
        let deep = names.iter().filter(|name| name.starts_with("deepstack_features"));
        let outputs = [features].iter().chain(deep).map(|name| (*name).to_owned()).collect();
        let (tiles, spared, whole) = (VecDeque::new(), 0, None);
        model.give_back(true);
        Ok(Self { pixels, mask, grid, outputs, recipe, scale, tiles, spared, whole, model })
    }

    /// How many layers of DeepStack rows it gives.
    pub const fn deep_layers(&self) -> usize {
        self.outputs.len().saturating_sub(1)
    }

    /// Encodes an image. Tiles go through one by one, which takes the memory of one.
    ///
    /// # Errors
    /// When the image cannot be brought to size, the engine fails, or its answer is not finite or all zero.
    pub fn encode(&mut self, image: &RgbImage) -> Result<Features, Fault> {
        let picture = self.recipe.picture(image).map_err(|error| Fault::Engine(error.to_string()))?;
        match picture {
            Picture::Tiles { rows, columns, tiles } => self.encode_tiles(rows, columns, &tiles),
            Picture::Patches { rows, columns, image } => self.encode_patches(rows, columns, &image),
            Picture::Square(image) => {
                let shape = [1, 3, side(image.height()), side(image.width())];
                let pixels = Tensor::floats(self.pixels.element, &shape, self.scale.planes(&image))?;
                self.run(&[("pixel_values", &pixels)], Shape::Square)
            }
        }
    }

    fn encode_tiles(&mut self, rows: u32, columns: u32, tiles: &[RgbImage]) -> Result<Features, Fault> {
        let mut all: Option<Features> = None;
        for tile in tiles {
            let shape = Shape::Tiles { rows, columns, tokens: 0 };
            // A picture of one tile is never the same twice.
            let one = if tiles.len() == 1 { self.encode_tile(tile, shape) } else { self.encode_once(tile, shape) }?;
            match &mut all {
                None => all = Some(one),
                Some(all) => all.rows.extend(one.rows),
            }
        }
        let mut all = all.ok_or_else(|| Fault::Engine("the image has no tiles".to_owned()))?;
        let tokens = all.rows.len() / all.width.max(1) / tiles.len().max(1);
        if tokens == 0 || tokens * all.width * tiles.len() != all.rows.len() {
            return Err(Fault::Engine("the encoder gave tiles of unequal length".to_owned()));
        }
        all.shape = Shape::Tiles { rows, columns, tokens };
        Ok(all)
    }

    /// Encodes a tile, or takes what it became before: a tile goes through the encoder by itself, so that the same pixels
    /// give the same bits.
    fn encode_once(&mut self, tile: &RgbImage, shape: Shape) -> Result<Features, Fault> {
        let digest = Digest::of(tile.as_raw());
        let kept = self.tiles.iter().position(|(seen, _)| *seen == digest).and_then(|index| self.tiles.remove(index));
        let features = match kept {
            Some((_, features)) => {
                self.spared += 1;
                Features { shape, ..features }
            }
            None => self.encode_tile(tile, shape)?,
        };
        self.tiles.truncate(TILES_KEPT - 1);
        self.tiles.push_front((digest, features.clone()));
        Ok(features)
    }

    fn encode_tile(&mut self, tile: &RgbImage, shape: Shape) -> Result<Features, Fault> {
        let (height, width) = (side(tile.height()), side(tile.width()));
        let pixels = Tensor::floats(self.pixels.element, &[1, 1, 3, height, width], self.scale.planes(tile))?;
        let mask = match (&self.mask, self.whole.take()) {
            (None, _) => None,
            (Some(_), Some(whole)) if whole.shape() == [1, 1, height, width] => Some(whole),
            (Some(mask), _) => Some(Tensor::integers(mask.element, &[1, 1, height, width], vec![1; height * width])?),
        };
        let mut inputs = vec![("pixel_values", &pixels)];
        inputs.extend(mask.as_ref().map(|mask| ("pixel_attention_mask", mask)));
        let features = self.run(&inputs, shape)?;
        self.whole = mask;
        Ok(features)
    }

    /// Tiles that were not encoded because they had been before.
    pub const fn spared(&self) -> u64 {
        self.spared
    }

    fn encode_patches(&mut self, rows: u32, columns: u32, image: &RgbImage) -> Result<Features, Fault> {
        let Recipe::Patches { patch_px, merge, frames, .. } = self.recipe else {
            return Err(Fault::Engine("patches without a recipe for them".to_owned()));
        };
        let values = patch_rows(image, &self.scale, patch_px, merge, frames);
        let patches = side(rows) * side(columns);
        let pixels = Tensor::floats(self.pixels.element, &[patches, values.len() / patches.max(1)], values)?;
        let grid = self.grid.clone().ok_or_else(|| Fault::Engine("the encoder takes no grid".to_owned()))?;
        let sides = vec![1, i64::from(rows), i64::from(columns)];
        let tensor = Tensor::integers(grid.element, &[1, 3], sides)?;
        let shape = Shape::Grid { rows: rows / merge, columns: columns / merge };
        let features = self.run(&[("pixel_values", &pixels), (grid.name.as_str(), &tensor)], shape)?;
        if features.rows.len() != features.width * side(rows / merge) * side(columns / merge) {
            return Err(Fault::Engine("the encoder's rows do not fit the grid".to_owned()));
        }
        Ok(features)
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], shape: Shape) -> Result<Features, Fault> {
        let wanted: Vec<&str> = self.outputs.iter().map(String::as_str).collect();
        let answered = self.model.run(inputs.iter().copied(), &wanted)?;
        let mut outputs = Vec::with_capacity(answered.len());
        let mut width = 0;
        for (name, tensor) in wanted.iter().zip(&answered) {
            let values = tensor.to_f32()?;
            sound(name, &values)?;
            width = tensor.shape().last().copied().unwrap_or(0);
            outputs.push(values);
        }
        let mut outputs = outputs.into_iter();
        let rows = outputs.next().unwrap_or_default();
        let deep: Vec<Vec<f32>> = outputs.collect();
        if width == 0 || rows.is_empty() || deep.iter().any(|layer| layer.len() != rows.len()) {
            return Err(Fault::Engine("the encoder's outputs do not fit each other".to_owned()));
        }
        Ok(Features { rows, deep, width, shape })
    }
}

fn side(px: u32) -> usize {
    usize::try_from(px).unwrap_or(usize::MAX)
}
