//! The folder a public export comes in: three model files with a precision suffix each, and the JSON beside them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{LoadError, Options};
use crate::proxy::onnx::digest_of_file;
use crate::triple::Digest;

/// How much of a model file is searched for operators, in bytes.
const GRAPH_BYTES_MAX: u64 = 16 << 20;
/// Operators that quantise activations while running.
const DYNAMIC_OPERATORS: [&[u8]; 3] = [b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"MatMulIntegerToFloat"];

/// The arithmetic of one model file, by its suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// No suffix: as exported, mostly 32-bit floats.
    Full,
    /// 16-bit floats.
    Fp16,
    /// 4-bit blocks, 16-bit floats around them.
    Q4f16,
    /// 4-bit blocks.
    Q4,
    /// 4-bit floats of bitsandbytes.
    Bnb4,
    /// Dynamic 8-bit integers, signed weights.
    Int8,
    /// Dynamic 8-bit integers, whichever sign the exporter chose.
    Quantized,
    /// Dynamic 8-bit integers, unsigned weights.
    Uint8,
}

impl Precision {
    /// Every precision, in the order in which files are looked for: exact first.
    pub const ALL: [Self; 8] =
        [Self::Full, Self::Fp16, Self::Q4f16, Self::Q4, Self::Bnb4, Self::Int8, Self::Quantized, Self::Uint8];

    /// What stands between a file's name and its ending.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::Fp16 => "_fp16",
            Self::Q4f16 => "_q4f16",
            Self::Q4 => "_q4",
            Self::Bnb4 => "_bnb4",
            Self::Int8 => "_int8",
            Self::Quantized => "_quantized",
            Self::Uint8 => "_uint8",
        }
    }

    /// Whether it is quiet enough for the perturbation spread. Dynamic integers scale activations by the whole tensor,
    /// and that noise exceeds the signal.
    #[must_use]
    pub const fn safe_for_spread(self) -> bool {
        !matches!(self, Self::Int8 | Self::Quantized | Self::Uint8)
    }
}

/// One of the three model files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its precision, by its suffix.
    pub precision: Precision,
}

impl ModelFile {
    /// `onnx/NAME{suffix}.onnx`, or the same without the folder, in the wanted precision or the most exact there is.
    fn find(folder: &Path, name: &str, wanted: Option<Precision>) -> Result<Self, LoadError> {
        let all = Precision::ALL.iter().copied().filter(|&precision| wanted.is_none_or(|wanted| wanted == precision));
        for precision in all {
            let file = format!("{name}{}.onnx", precision.suffix());
            for path in [folder.join("onnx").join(&file), folder.join(&file)] {
                if path.is_file() {
                    return Ok(Self { path, precision });
                }
            }
        }
        let suffix = wanted.map_or("{suffix}", Precision::suffix);
        Err(LoadError::Missing { path: folder.join("onnx").join(format!("{name}{suffix}.onnx")) })
    }

    /// The weights kept outside the file (`NAME.onnx_data`, `NAME.onnx_data_1`, …), in name order.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn data(&self) -> Result<Vec<PathBuf>, LoadError> {
        let failed = |source| LoadError::Read { path: self.path.clone(), source };
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(Vec::new()) };
        let start = format!("{}_data", name.to_string_lossy());
        let mut files = Vec::new();
        for entry in folder.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(&start) {
                files.push(entry.path());
            }
        }
        files.sort();
        Ok(files)
    }

    /// Whether the file scales activations by the whole tensor: by its suffix, or by an operator in it that does.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn quantizes_activations(&self) -> Result<bool, LoadError> {
        if !self.precision.safe_for_spread() {
            return Ok(true);
        }
        let failed = |source| LoadError::Read { path: self.path.clone(), source };
        let mut head = Vec::new();
        // Operators stand before the weights in these files.
        std::fs::File::open(&self.path)
            .map_err(failed)?
            .take(GRAPH_BYTES_MAX)
            .read_to_end(&mut head)
            .map_err(failed)?;
        let holds = |name: &[u8]| head.windows(name.len()).any(|window| window == name);
        Ok(DYNAMIC_OPERATORS.iter().any(|name| holds(name)))
    }

    /// Size of the file and of its outside weights, in bytes.
    ///
    /// # Errors
    /// When one cannot be looked at.
    pub fn bytes(&self) -> Result<u64, LoadError> {
        let mut bytes = 0;
        for path in self.data()?.iter().chain([&self.path]) {
            bytes += path.metadata().map_err(|source| LoadError::Read { path: path.clone(), source })?.len();
        }
        Ok(bytes)
    }
}

/// A folder, read: everything but the models' weights.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The image encoder's file.
    pub vision: ModelFile,
    /// The token embeddings' file.
    pub embed: ModelFile,
    /// The decoder's file.
    pub decoder: ModelFile,
    /// `config.json`.
    pub config: Config,
    /// `preprocessor_config.json`.
    pub preprocessor: Preprocessor,
    /// `generation_config.json`, or nothing.
    pub generation: Generation,
    /// `tokenizer_config.json`, or nothing.
    pub tokenizer: TokenizerConfig,
    /// `tokenizer.json`.
    pub tokenizer_path: PathBuf,
    /// The chat template's source.
    pub template: String,
    /// SHA-256 of every text file that was read, in a fixed order.
    digests: Vec<Digest>,
}

/// The precision wanted of each file; `None` takes the most exact there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Precisions {
    /// Of the image encoder.
    pub vision: Option<Precision>,
    /// Of the token embeddings.
    pub embed: Option<Precision>,
    /// Of the decoder.
    pub decoder: Option<Precision>,
}

impl Folder {
    /// Finds the three files and reads the rest.
    ///
    /// # Errors
    /// When a file is missing or does not parse.
    pub fn read(folder: &Path, precisions: Precisions) -> Result<Self, LoadError> {
        let mut digests = Vec::new();
        let config = required(folder, "config.json", &mut digests)?;
        let preprocessor = required(folder, "preprocessor_config.json", &mut digests)?;
        let generation = optional(folder, "generation_config.json", &mut digests)?.unwrap_or_default();
        let tokenizer: TokenizerConfig = optional(folder, "tokenizer_config.json", &mut digests)?.unwrap_or_default();
        let template = template(folder, &tokenizer, &mut digests)?;
        let tokenizer_path = folder.join("tokenizer.json");
        digests.push(digest_of_file(&tokenizer_path)?);
        Ok(Self {
            vision: ModelFile::find(folder, "vision_encoder", precisions.vision)?,
            embed: ModelFile::find(folder, "embed_tokens", precisions.embed)?,
            decoder: ModelFile::find(folder, "decoder_model_merged", precisions.decoder)?,
            config,
            preprocessor,
            generation,
            tokenizer,
            tokenizer_path,
            template,
            digests,
        })
    }

    /// SHA-256 over the text files, the models and the weights they keep outside.
    ///
    /// # Errors
    /// When outside weights cannot be read.
    pub fn digest(&self, models: &[Digest], options: &Options, layout: Digest) -> Result<Digest, LoadError> {
        let mut parts = self.digests.clone();
        parts.extend(models);
        parts.push(Digest::of(format!("image_splitting {:?}", options.image_splitting).as_bytes()));
        for file in [&self.vision, &self.embed, &self.decoder] {
            for path in file.data()? {
                parts.push(digest_of_file(&path)?);
            }
        }
        parts.push(layout);
        Ok(Digest::of(&parts.iter().flat_map(|part| *part.as_bytes()).collect::<Vec<_>>()))
    }
}

fn optional<T: DeserializeOwned>(folder: &Path, name: &str, digests: &mut Vec<Digest>) -> Result<Option<T>, LoadError> {
    let path = folder.join(name);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LoadError::Read { path, source }),
    };
    digests.push(Digest::of(&bytes));
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|error| LoadError::Config { path, message: error.to_string() })
}

fn required<T: DeserializeOwned>(folder: &Path, name: &str, digests: &mut Vec<Digest>) -> Result<T, LoadError> {
    optional(folder, name, digests)?.ok_or_else(|| LoadError::Missing { path: folder.join(name) })
}

/// The chat template: a file of its own, or inside one of two JSON files.
fn template(folder: &Path, tokenizer: &TokenizerConfig, digests: &mut Vec<Digest>) -> Result<String, LoadError> {
    let path = folder.join("chat_template.jinja");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            digests.push(Digest::of(text.as_bytes()));
            return Ok(text);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => return Err(LoadError::Read { path, source }),
    }
    let own: Option<TemplateFile> = optional(folder, "chat_template.json", digests)?;
    let listed = own.map(|file| file.chat_template).or_else(|| tokenizer.chat_template.clone());
    let text = listed.and_then(|templates| match templates {
        Templates::One(text) => Some(text),
        Templates::Named(list) => list.into_iter().find(|named| named.name == "default").map(|named| named.template),
    });
    text.ok_or(LoadError::Missing { path })
}

/// What is read of `config.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// The family's name.
    pub model_type: String,
    #[serde(alias = "image_token_index")]
    image_token_id: Option<u32>,
    max_position_embeddings: Option<usize>,
    eos_token_id: Option<OneOrMany>,
    text_config: Option<TextConfig>,
    vision_config: Option<VisionConfig>,
}

#[derive(Debug, Clone, Deserialize)]
struct TextConfig {
    max_position_embeddings: Option<usize>,
    eos_token_id: Option<OneOrMany>,
}

#[derive(Debug, Clone, Deserialize)]
struct VisionConfig {
    spatial_merge_size: Option<u32>,
}

impl Config {
    /// Longest prompt and answer together, in tokens.
    pub fn context_tokens(&self) -> Option<usize> {
        let text = self.text_config.as_ref().and_then(|text| text.max_position_embeddings);
        text.or(self.max_position_embeddings).filter(|&tokens| tokens > 0)
    }

    /// The token that stands for one row of image features.
    pub const fn image_token(&self) -> Option<u32> {
        self.image_token_id
    }

    /// Patches a side that the encoder merges into one token.
    pub fn spatial_merge(&self) -> Option<u32> {
        self.vision_config.as_ref().and_then(|vision| vision.spatial_merge_size)
    }
}

/// What is read of `generation_config.json`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Generation {
    eos_token_id: Option<OneOrMany>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl Folder {
    /// The tokens that end an answer, from wherever they are written down.
    pub fn stops(&self) -> Vec<u32> {
        let text = self.config.text_config.as_ref().and_then(|text| text.eos_token_id.as_ref());
        let all = [self.generation.eos_token_id.as_ref(), self.config.eos_token_id.as_ref(), text];
        let mut stops = Vec::new();
        for list in all.into_iter().flatten() {
            match list {
                OneOrMany::One(token) => stops.push(*token),
                OneOrMany::Many(tokens) => stops.extend(tokens),
            }
        }
        stops.sort_unstable();
        stops.dedup();
        stops
    }
}

/// What is read of `tokenizer_config.json`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TokenizerConfig {
    bos_token: Option<SpecialToken>,
    eos_token: Option<SpecialToken>,
    chat_template: Option<Templates>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum SpecialToken {
    Text(String),
    Described { content: String },
}

impl SpecialToken {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Described { content: text } => text,
        }
    }
}

impl TokenizerConfig {
    /// The token a text begins with, where the tokenizer has one.
    pub fn bos(&self) -> Option<&str> {
        self.bos_token.as_ref().map(SpecialToken::text)
    }

    /// The token a text ends with, where the tokenizer has one.
    pub fn eos(&self) -> Option<&str> {
        self.eos_token.as_ref().map(SpecialToken::text)
    }
}

#[derive(Debug, Clone, Deserialize)]
struct TemplateFile {
    chat_template: Templates,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Clone, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// What is read of `preprocessor_config.json`; each family takes what is its own.
#[derive(Debug, Clone, Deserialize)]
pub struct Preprocessor {
    /// Resampling filter, by Pillow's number.
    pub resample: Option<u8>,
    /// Size to resize to.
    pub size: Option<Size>,
    /// Centre crop.
    pub crop_size: Option<Size>,
    /// Whether to crop.
    pub do_center_crop: Option<bool>,
    /// Whether to pad to a square with the mean colour.
    pub do_pad: Option<bool>,
    /// The processor's class name.
    pub image_processor_type: Option<String>,
    /// Whether to resize; nothing else is known here.
    pub do_resize: Option<bool>,
    /// Whether to bring samples to [0, 1]; nothing else is known here.
    pub do_rescale: Option<bool>,
    /// Factor that brings samples to [0, 1].
    pub rescale_factor: Option<f64>,
    /// Whether to subtract the mean and divide by the deviation.
    pub do_normalize: Option<bool>,
    /// Mean of each channel.
    pub image_mean: Option<[f32; 3]>,
    /// Deviation of each channel.
    pub image_std: Option<[f32; 3]>,
    /// Idefics: whether to cut the image into tiles.
    pub do_image_splitting: Option<bool>,
    /// Idefics: side of a tile.
    pub max_image_size: Option<Size>,
    /// Qwen: side of a patch.
    pub patch_size: Option<u32>,
    /// Qwen: frames a patch spans.
    pub temporal_patch_size: Option<u32>,
    /// Qwen: patches a side merged into one token.
    pub merge_size: Option<u32>,
    /// Qwen: fewest pixels.
    pub min_pixels: Option<u64>,
    /// Qwen: most pixels.
    pub max_pixels: Option<u64>,
}

/// A size in any of the ways these files write one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// A bare number: both sides.
    Side(u64),
    /// Exactly this.
    Exact {
        /// In pixels.
        height: u64,
        /// In pixels.
        width: u64,
    },
    /// Bounds: for Qwen of the area, else of a side.
    Edges {
        /// The shorter side, or the least area.
        shortest_edge: Option<u64>,
        /// The longer side, or the greatest area.
        longest_edge: Option<u64>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dynamic_integers_are_too_loud() {
        let loud: Vec<_> =
            Precision::ALL.iter().filter(|precision| !precision.safe_for_spread()).map(|p| p.suffix()).collect();
        assert_eq!(loud, ["_int8", "_quantized", "_uint8"]);
    }

    #[test]
    fn sizes_are_read_in_every_spelling() {
        for (text, expected) in [
            ("336", "Side(336)"),
            (r#"{"height": 2, "width": 3}"#, "Exact { height: 2, width: 3 }"),
            (r#"{"longest_edge": 9}"#, "Edges { shortest_edge: None, longest_edge: Some(9) }"),
        ] {
            let size: Size = serde_json::from_str(text).expect("parses");
            assert_eq!(format!("{size:?}"), expected);
        }
    }
}
