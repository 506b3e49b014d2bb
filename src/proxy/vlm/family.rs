//! The families of public exports this program knows, and what differs between them.

use super::LoadError;
use super::folder::Folder;
use super::picture::{PictureError, Recipe};
use super::prompt::Prompt;
use super::vision::Shape;
use crate::proxy::Fault;

/// A family of public exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Idefics3, SmolVLM, SmolVLM2.
    Idefics,
    /// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, and what is fine-tuned from them.
    Qwen,
    /// The plain LLaVA layout.
    Llava,
}

impl Family {
    /// The family of this `model_type`.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn of(model_type: &str) -> Result<Self, LoadError> {
        match model_type {
            "idefics3" | "smolvlm" => Ok(Self::Idefics),
            "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" => Ok(Self::Qwen),
            "llava" | "llava_qwen2" => Ok(Self::Llava),
            other => Err(LoadError::UnknownFamily { model_type: other.to_owned() }),
        }
    }

    /// Its name in cards and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idefics => "idefics",
            Self::Qwen => "qwen-vl",
            Self::Llava => "llava",
        }
    }

    /// How it brings images to size; `split` overrides Idefics' cutting into tiles.
    pub fn recipe(self, folder: &Folder, split: Option<bool>) -> Result<Recipe, PictureError> {
        let recipe = match self {
            Self::Idefics => Recipe::tiles(&folder.preprocessor, split),
            Self::Qwen => Recipe::patches(&folder.preprocessor),
            Self::Llava => Recipe::square(&folder.preprocessor),
        }?;
        match (&recipe, folder.config.spatial_merge()) {
            (Recipe::Patches { merge, .. }, Some(declared)) if *merge != declared => Err(PictureError::Unknown {
                setting: "merge_size",
                value: format!("{merge}, in config.json {declared}"),
            }),
            _ => Ok(recipe),
        }
    }
}

/// The tokens that stand for an image of this shape; `rows` of them are image tokens.
pub fn image_tokens(prompt: &Prompt, shape: Shape, rows: usize) -> Result<Vec<i64>, Fault> {
    let image = i64::from(prompt.image_token());
    match shape {
        Shape::Grid { .. } | Shape::Square => Ok(vec![image; rows]),
        Shape::Tiles { rows, columns, tokens } => {
            let special = |name: &str| {
                let number = prompt.special(name).map(i64::from);
                number.ok_or_else(|| Fault::Engine(format!("the tokenizer has no {name}")))
            };
            let border = special("<fake_token_around_image>")?;
            let mut sequence = Vec::new();
            for row in 1..=rows {
                for column in 1..=columns {
                    sequence.extend([border, special(&format!("<row_{row}_col_{column}>"))?]);
                    sequence.extend(std::iter::repeat_n(image, tokens));
                }
                // The last row's line break and the one before the whole image are one run of text.
                sequence.extend(prompt.words().encode(if row == rows { "\n\n" } else { "\n" })?);
            }
            sequence.extend([border, special("<global-img>")?]);
            sequence.extend(std::iter::repeat_n(image, tokens));
            sequence.push(border);
            Ok(sequence)
        }
    }
}

/// The positions of an image's tokens relative to the first, on three axes (time, row, column), and how far the text
/// after it moves on. Only the Qwen family counts in three axes; elsewhere the three are alike.
pub fn positions(shape: Shape, tokens: usize) -> (Vec<[i64; 3]>, i64) {
    match shape {
        Shape::Grid { rows, columns } => {
            let cells =
                (0..i64::from(rows)).flat_map(|row| (0..i64::from(columns)).map(move |column| [0, row, column]));
            (cells.collect(), i64::from(rows.max(columns)))
        }
        Shape::Tiles { .. } | Shape::Square => {
            let count = i64::try_from(tokens).unwrap_or(i64::MAX);
            ((0..count).map(|index| [index; 3]).collect(), count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_counts_rows_and_columns_and_moves_on_by_the_longer() {
        let (cells, advance) = positions(Shape::Grid { rows: 2, columns: 3 }, 6);
        assert_eq!(cells, [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2]]);
        assert_eq!(advance, 3);
        assert_eq!(positions(Shape::Square, 2), (vec![[0; 3], [1; 3]], 2));
    }
}
