//! Vision-language models as the proxy: public ONNX exports, run unchanged from a folder.
//!
//! The layout is the one public exports share: `onnx/vision_encoder`, `onnx/embed_tokens` and
//! `onnx/decoder_model_merged` in some precision, with the model's own configuration, tokenizer and chat template beside
//! them. Everything about a model is read from its files and sessions; what is not known is refused by name, because a
//! wrong guess would not fail but judge wrongly.
//!
//! The prompt goes constitution, instruction and plan, question, image wherever the chat template lets it. The
//! constitution's state is computed once, the task's once a check, and a perturbed copy costs its encoding, its tokens
//! and the few that lead to the answer. A template that puts images first costs the task's tokens again for each copy.

mod decoder;
mod family;
mod folder;
mod inspect;
mod picture;
mod prompt;
mod resample;
mod state;
mod vision;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use image::RgbImage;

use crate::margin::Margin;
use crate::proxy::decoding::{self, TRACE_TOKENS_MAX, without_thinking_tags};
use crate::proxy::onnx::{Element, Engine, EngineError, Model, Tensor, sound};
use crate::proxy::{Budget, Card, Fault, Proxy, Question, Sampling, Trace, Unbounded, traces_digest};

use decoder::{Decoder, Reading, Stretch};
use folder::Folder;
use prompt::{Piece, Prompt};
use vision::Vision;

pub use family::Family;
pub use folder::{Precision, Precisions};
pub use inspect::{Demand, Inspection, Part};
pub use picture::PictureError;

/// Why a folder does not hold a proxy of this kind. Each stops the start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A model or the library could not be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file is not there.
    #[error("{path} is missing")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A configuration file does not parse, or lacks what is needed.
    #[error("cannot use {path}: {message}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// The model is of a family this program does not know.
    #[error(
        "model_type `{model_type}` is of no known family (idefics3, smolvlm, qwen2_vl, qwen2_5_vl, qwen3_vl, llava)"
    )]
    UnknownFamily {
        /// What `config.json` says.
        model_type: String,
    },
    /// A model takes an input this program does not know. It is not guessed.
    #[error("{model} takes the input `{input}`, which is not known here")]
    UnknownInput {
        /// The model.
        model: &'static str,
        /// The input.
        input: String,
    },
    /// A model does not take an input it must.
    #[error("{model} does not take the input `{input}`")]
    MissingInput {
        /// The model.
        model: &'static str,
        /// The input.
        input: &'static str,
    },
    /// A model does not give an output it must.
    #[error("{model} does not give the output `{output}`")]
    MissingOutput {
        /// The model.
        model: &'static str,
        /// The output.
        output: &'static str,
    },
    /// The encoder gives DeepStack rows for other layers than the decoder takes.
    #[error("the encoder gives DeepStack rows for {given} layers, the decoder takes them for {taken}")]
    DeepStack {
        /// Layers the encoder gives rows for.
        given: usize,
        /// Layers the decoder takes rows for.
        taken: usize,
    },
    /// The preprocessor's settings cannot be followed.
    #[error("preprocessor_config.json: {0}")]
    Preprocessor(#[from] PictureError),
    /// The tokenizer cannot be used.
    #[error("cannot use the tokenizer {path}: {message}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// No spelling of yes and no is one token each, so that no single row holds the verdict.
    #[error("the tokenizer {path} splits every spelling of yes or no")]
    SplitsAnswers {
        /// The file.
        path: PathBuf,
    },
    /// The chat template cannot be used.
    #[error("cannot use the chat template: {message}")]
    Template {
        /// Why not.
        message: String,
    },
    /// The proxy failed while warming up.
    #[error("the proxy failed while warming up: {0}")]
    Warm(#[from] Fault),
}

impl LoadError {
    fn unknown(model: &'static str, input: &str) -> Self {
        Self::UnknownInput { model, input: input.to_owned() }
    }
}

/// What a folder leaves open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Options {
    /// Which precision of each file to load.
    pub precisions: Precisions,
    /// Whether Idefics models cut images into tiles; `None` follows the model. Without tiles a check costs a fraction
    /// and sees less.
    pub image_splitting: Option<bool>,
    /// Longest trace, in tokens; `None` is the longest that any proxy writes.
    pub trace_tokens_max: Option<usize>,
}

/// A vision-language model.
#[derive(Debug)]
pub struct Vlm {
    card: Card,
    family: Family,
    vision: Vision,
    embedder: Embedder,
    decoder: Decoder,
    prompt: Prompt,
    stops: Vec<u32>,
    bare: Option<Rc<Reading>>,
    /// The tokens that stand for the image encoded last, and their embeddings: the same for every copy of an image.
    placeholders: (Vec<i64>, Vec<f32>),
}

/// The constitution, read.
#[derive(Debug)]
pub struct Prefix {
    constitution: String,
    reading: Option<Rc<Reading>>,
}

/// An instruction and plan, read after a constitution or after none, and what is left to read after the image.
#[derive(Debug)]
pub struct Posed {
    reading: Option<Rc<Reading>>,
    tail: Vec<i64>,
    /// The tail and the verdict's head, embedded: the same for every copy of an image.
    verdict_rows: Vec<f32>,
}

/// An image, encoded and ready to be read anywhere in a prompt.
#[derive(Debug)]
pub struct Observation {
    stretch: Stretch,
    ids: Vec<i64>,
    fingerprint: u64,
}

/// A conversation as the proxy read it, for parity with a reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The prompt's tokens.
    pub ids: Vec<i64>,
    /// Their positions on three axes; only the Qwen family uses more than the first.
    pub positions: Vec<[i64; 3]>,
    /// The next token's logits after the prompt.
    pub row: Vec<f32>,
    /// What greedy decoding wrote, without the stop token.
    pub greedy: Vec<u32>,
    /// Whether a stop token ended it.
    pub finished: bool,
}

impl Vlm {
    /// Loads a folder with the defaults of [`Options`].
    ///
    /// # Errors
    /// When a file is missing, does not load, or holds something this program does not know.
    pub fn load(engine: &Engine, folder: &Path) -> Result<Self, LoadError> {
        Self::load_with(engine, folder, &Options::default())
    }

    /// Loads a folder and runs its text half once.
    ///
    /// # Errors
    /// When a file is missing, does not load, or holds something this program does not know.
    pub fn load_with(engine: &Engine, path: &Path, options: &Options) -> Result<Self, LoadError> {
        let folder = Folder::read(path, options.precisions)?;
        let family = Family::of(&folder.config.model_type)?;
        let recipe = family.recipe(&folder, options.image_splitting)?;
        let scale = picture::Scale::new(&folder.preprocessor)?;
        let prompt = Prompt::load(&folder)?;
        let context_tokens = folder.config.context_tokens().ok_or_else(|| LoadError::Config {
            path: path.join("config.json"),
            message: "max_position_embeddings is not set".to_owned(),
        })?;
        let [vision, embed, decoder] = load_models(engine, &folder)?;
        let vision = Vision::new(vision, family, recipe, scale)?;
        let mut embedder = Embedder::new(embed)?;
        let width = embedder.width()?;
        let decoder = Decoder::new(decoder, width, context_tokens, family == Family::Qwen)?;
        if vision.deep_layers() != decoder.deep_layers() {
            return Err(LoadError::DeepStack { given: vision.deep_layers(), taken: decoder.deep_layers() });
        }
        let models = [&vision.model, &embedder.model, &decoder.model].map(|model| *model.digest());
        let digest = folder.digest(&models, options, prompt.layout())?;
        let loud = folder.vision.quantizes_activations()? || folder.decoder.quantizes_activations()?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let trace_tokens_max = options.trace_tokens_max.unwrap_or(TRACE_TOKENS_MAX);
        let card = Card {
            name: name.unwrap_or_else(|| family.name().to_owned()),
            digest,
            prompt_layout: prompt.layout(),
            execution_provider: decoder.model.provider(),
            traces: Some(traces_digest(digest, trace_tokens_max)),
            trace_tokens_max,
            safe_for_spread: !loud,
            context_tokens,
            working_size: None,
        };
        let stops = folder.stops();
        let mut proxy = Self {
            card,
            family,
            vision,
            embedder,
            decoder,
            prompt,
            stops,
            bare: None,
            placeholders: (Vec::new(), Vec::new()),
        };
        proxy.bare = proxy.read_prefix("")?;
        Ok(proxy)
    }

    /// The model's family.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The answers' token numbers: those that comply, those that refuse.
    #[must_use]
    pub fn answers(&self) -> (&[u32], &[u32]) {
        (&self.prompt.answers().comply, &self.prompt.answers().refuse)
    }

    /// Time spent inside ONNX Runtime since loading.
    #[must_use]
    pub fn engine_time(&self) -> Duration {
        self.vision.model.spent() + self.embedder.model.spent() + self.decoder.model.spent()
    }

    /// Whether the decoder appends to its state where it lies, which spares a copy of the whole state for every run.
    #[must_use]
    pub const fn appends_in_place(&self) -> bool {
        self.decoder.in_place()
    }

    /// Tiles that were not encoded because the same pixels had been.
    #[must_use]
    pub const fn tiles_spared(&self) -> u64 {
        self.vision.spared()
    }

    /// Bytes of decoder state that each token of a prompt takes.
    #[must_use]
    pub fn state_bytes_per_token(&self) -> usize {
        let bytes = |part: &decoder::Carried| part.values_per_token * if part.element == Element::F16 { 2 } else { 4 };
        self.decoder.carried().iter().map(bytes).sum()
    }

    /// Reads a conversation as the reference implementation would and decodes it greedily: what a parity check or a
    /// self-test against a golden vector compares. With `in_parts` the prompt is read up to its first image, then the
    /// rest from that state. Special tokens in the text are taken as such: this is no way to ask about data.
    ///
    /// # Errors
    /// When the template, tokenizer or engine fails, or the images are not as many as the conversation's.
    pub fn replay(
        &mut self,
        messages: &serde_json::Value,
        images: &[RgbImage],
        tokens_max: usize,
        in_parts: bool,
    ) -> Result<Replay, LoadError> {
        let pieces = self.prompt.conversation(messages)?;
        let seen = images.iter().map(|image| self.encode(image)).collect::<Result<Vec<_>, _>>()?;
        let mut seen = seen.iter();
        let (mut stretch, mut ids, mut positions) = (Stretch::default(), Vec::new(), Vec::new());
        let mut before: Option<Reading> = None;
        for piece in &pieces {
            match piece {
                Piece::Tokens(tokens) => {
                    self.append_text(&mut stretch, tokens)?;
                    ids.extend(tokens);
                }
                Piece::Image => {
                    if in_parts && before.is_none() && !stretch.positions.is_empty() {
                        before = Some(self.decoder.read(None, &stretch, &Unbounded)?.0);
                        positions.append(&mut stretch.positions);
                        stretch = Stretch { next: stretch.next, ..Stretch::default() };
                    }
                    let image = seen.next().ok_or_else(|| Fault::Engine("an image is missing".to_owned()))?;
                    self.append_image(&mut stretch, image);
                    ids.extend(&image.ids);
                }
            }
        }
        if seen.next().is_some() {
            return Err(Fault::Engine("an image is left over".to_owned()).into());
        }
        let (reading, row) = self.decoder.read(before.as_ref(), &stretch, &Unbounded)?;
        positions.append(&mut stretch.positions);
        let sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0, tokens_max };
        let decoded = self.continue_from(reading, row.clone(), sampling, &Unbounded)?;
        Ok(Replay { ids, positions, row, greedy: decoded.tokens, finished: decoded.finished })
    }

    /// Reads what every request shares; nothing where a template puts the task first.
    fn read_prefix(&mut self, constitution: &str) -> Result<Option<Rc<Reading>>, Fault> {
        let tokens = self.prompt.prefix(constitution)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        let stretch = self.text(None, &tokens)?;
        Ok(Some(Rc::new(self.decoder.read(None, &stretch, &Unbounded)?.0)))
    }

    fn text(&mut self, before: Option<&Reading>, tokens: &[i64]) -> Result<Stretch, Fault> {
        let mut stretch = Stretch { next: before.map_or(0, |before| before.next), ..Stretch::default() };
        self.append_text(&mut stretch, tokens)?;
        Ok(stretch)
    }

    fn append_text(&mut self, stretch: &mut Stretch, tokens: &[i64]) -> Result<(), Fault> {
        if tokens.is_empty() {
            return Ok(());
        }
        let rows = self.embedder.embed(tokens)?;
        self.append_rows(stretch, &rows);
        Ok(())
    }

    fn append_rows(&self, stretch: &mut Stretch, rows: &[f32]) {
        stretch.embeddings.extend(rows);
        for _ in rows.chunks_exact(self.decoder.width) {
            stretch.positions.push([stretch.next; 3]);
            stretch.next += 1;
        }
        self.fill_deep(stretch);
    }

    fn append_image(&self, stretch: &mut Stretch, image: &Observation) {
        let start = stretch.next;
        self.fill_deep(stretch);
        stretch.embeddings.extend(&image.stretch.embeddings);
        for (rows, more) in stretch.deep.iter_mut().zip(&image.stretch.deep) {
            rows.extend(more);
        }
        stretch.positions.extend(image.stretch.positions.iter().map(|place| place.map(|axis| axis + start)));
        stretch.next += image.stretch.next;
    }

    /// DeepStack rows are zero wherever there is no image.
    fn fill_deep(&self, stretch: &mut Stretch) {
        stretch.deep.resize_with(self.decoder.deep_layers(), Vec::new);
        for rows in &mut stretch.deep {
            rows.resize(stretch.embeddings.len(), 0.0);
        }
    }

    /// The image after the task.
    fn beheld(&self, posed: &Posed, seen: &Observation) -> Stretch {
        let next = posed.reading.as_ref().map_or(0, |reading| reading.next);
        let mut stretch = Stretch { next, ..Stretch::default() };
        self.append_image(&mut stretch, seen);
        stretch
    }

    /// The next token's logits where the verdict stands.
    fn verdict_row(&mut self, posed: &Posed, seen: &Observation, forced: Option<&Trace>) -> Result<Vec<f32>, Fault> {
        let mut stretch = self.beheld(posed, seen);
        match forced {
            None => self.append_rows(&mut stretch, &posed.verdict_rows),
            Some(trace) => {
                let head = self.prompt.forced(Some(&trace.tokens))?;
                let trace: Vec<i64> = trace.tokens.iter().copied().map(i64::from).collect();
                self.append_text(&mut stretch, &[posed.tail.as_slice(), &trace, &head].concat())?;
            }
        }
        Ok(self.decoder.read(posed.reading.as_deref(), &stretch, &Unbounded)?.1)
    }

    fn continue_from(
        &mut self,
        mut reading: Reading,
        row: Vec<f32>,
        sampling: Sampling,
        budget: &dyn Budget,
    ) -> Result<decoding::Decoded, Fault> {
        let room = self.decoder.context_tokens.saturating_sub(reading.tokens);
        let sampling = Sampling { tokens_max: sampling.tokens_max.min(room), ..sampling };
        let stops = self.stops.clone();
        decoding::decode(row, sampling, &stops, budget, |token| {
            let stretch = self.text(Some(&reading), &[i64::from(token)])?;
            let (after, row) = self.decoder.read(Some(&reading), &stretch, budget)?;
            reading = after;
            Ok(row)
        })
    }
}

impl Proxy for Vlm {
    type Prefix = Prefix;
    type Posed = Posed;
    type Observation = Observation;

    fn card(&self) -> &Card {
        &self.card
    }

    fn warm(&mut self, constitution: &str) -> Result<Prefix, Fault> {
        Ok(Prefix { reading: self.read_prefix(constitution)?, constitution: constitution.to_owned() })
    }

    fn pose(&mut self, prefix: Option<&Prefix>, question: &Question<'_>) -> Result<Posed, Fault> {
        let (constitution, shared) = match prefix {
            Some(prefix) => (prefix.constitution.as_str(), prefix.reading.clone()),
            None => ("", self.bare.clone()),
        };
        let filled = self.prompt.fill(constitution, question)?;
        let verdict_rows = self.embedder.embed(&[filled.tail.as_slice(), &self.prompt.forced(None)?].concat())?;
        let posed = |reading| Posed { reading, tail: filled.tail, verdict_rows };
        if filled.task.is_empty() {
            return Ok(posed(shared));
        }
        let stretch = self.text(shared.as_deref(), &filled.task)?;
        let (reading, _) = self.decoder.read(shared.as_deref(), &stretch, &Unbounded)?;
        Ok(posed(Some(Rc::new(reading))))
    }

    fn encode(&mut self, image: &RgbImage) -> Result<Observation, Fault> {
        let features = self.vision.encode(image)?;
        let width = self.decoder.width;
        if features.width != width {
            return Err(Fault::Engine(format!("image rows are {} wide, the decoder takes {width}", features.width)));
        }
        let mut hasher = DefaultHasher::new();
        for value in features.rows.iter().chain(features.deep.iter().flatten()) {
            value.to_bits().hash(&mut hasher);
        }
        let ids = family::image_tokens(&self.prompt, features.shape, features.rows.len() / width)?;
        let (positions, next) = family::positions(features.shape, ids.len());
        if self.placeholders.0 != ids {
            self.placeholders = (ids.clone(), self.embedder.embed(&ids)?);
        }
        let mut stretch = Stretch { embeddings: self.placeholders.1.clone(), positions, deep: Vec::new(), next };
        let image = i64::from(self.prompt.image_token());
        scatter(&mut stretch.embeddings, &features.rows, width, &ids, image)?;
        for layer in &features.deep {
            let mut rows = vec![0.0; stretch.embeddings.len()];
            scatter(&mut rows, layer, width, &ids, image)?;
            stretch.deep.push(rows);
        }
        Ok(Observation { stretch, ids, fingerprint: hasher.finish() })
    }

    fn margin(&mut self, posed: &Posed, seen: &Observation, forced: Option<&Trace>) -> Result<Margin, Fault> {
        let row = self.verdict_row(posed, seen, forced)?;
        let logit = |number: &u32| usize::try_from(*number).ok().and_then(|index| row.get(index)).copied();
        let answers = self.prompt.answers();
        let side = |numbers: &[u32]| numbers.iter().map(logit).collect::<Option<Vec<f32>>>();
        match (side(&answers.comply), side(&answers.refuse)) {
            (Some(comply), Some(refuse)) => Ok(Margin::from_logits(comply, refuse)?),
            _ => Err(Fault::Engine("the row is shorter than the vocabulary".to_owned())),
        }
    }

    fn trace(
        &mut self,
        posed: &Posed,
        seen: &Observation,
        sampling: Sampling,
        budget: &dyn Budget,
    ) -> Result<Trace, Fault> {
        let mut stretch = self.beheld(posed, seen);
        self.append_text(&mut stretch, &posed.tail)?;
        let (reading, row) = self.decoder.read(posed.reading.as_deref(), &stretch, budget)?;
        // Room for the verdict's head after the trace.
        let head = self.prompt.forced(Some(&[0]))?.len();
        let room = self.decoder.context_tokens.saturating_sub(reading.tokens + head);
        let sampling = Sampling { tokens_max: sampling.tokens_max.min(room), ..sampling };
        let decoded = self.continue_from(reading, row, sampling, budget)?;
        let text = without_thinking_tags(&self.prompt.words().decode(&decoded.tokens)?);
        Ok(Trace { text, tokens: decoded.tokens, finished: decoded.finished })
    }

    fn fingerprint(&self, seen: &Observation) -> u64 {
        seen.fingerprint
    }

    fn describe(&self, _: &Observation) -> Option<String> {
        None
    }

    /// The mean of the text's token embeddings, at unit length: public exports give no hidden states.
    fn embed(&mut self, text: &str) -> Result<Vec<f32>, Fault> {
        let tokens = self.prompt.words().encode(text)?;
        let rows = self.embedder.embed(&tokens)?;
        let mut sum = vec![0.0_f32; self.decoder.width];
        for row in rows.chunks_exact(self.decoder.width) {
            for (total, value) in sum.iter_mut().zip(row) {
                *total += value;
            }
        }
        let norm = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        if !(norm.is_finite() && norm > 0.0) {
            return Err(Fault::NonFiniteTensor { tensor: "embedding".to_owned() });
        }
        Ok(sum.into_iter().map(|value| value / norm).collect())
    }
}

/// Loads encoder, embeddings and decoder, the largest first: while a model is loaded its file and its weights are both
/// in memory, which costs least while nothing else is.
fn load_models(engine: &Engine, folder: &Folder) -> Result<[Model; 3], LoadError> {
    let files = [&folder.vision, &folder.embed, &folder.decoder];
    let mut order = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        order.push((std::cmp::Reverse(file.bytes()?), index, file));
    }
    order.sort_by_key(|&(bytes, index, _)| (bytes, index));
    let mut models = Vec::new();
    for (_, index, file) in order {
        models.push((index, engine.model(&file.path)?));
    }
    models.sort_by_key(|(index, _)| *index);
    let models: Vec<Model> = models.into_iter().map(|(_, model)| model).collect();
    models.try_into().map_err(|_| LoadError::Warm(Fault::Engine("three models were not loaded".to_owned())))
}

/// Puts one row after another where the image tokens stand.
fn scatter(target: &mut [f32], rows: &[f32], width: usize, ids: &[i64], image: i64) -> Result<(), Fault> {
    let mut rows = rows.chunks_exact(width);
    for (place, &id) in target.chunks_exact_mut(width).zip(ids) {
        if id == image {
            let row = rows.next().ok_or_else(|| Fault::Engine("fewer image rows than image tokens".to_owned()))?;
            place.copy_from_slice(row);
        }
    }
    match rows.next() {
        None => Ok(()),
        Some(_) => Err(Fault::Engine("more image rows than image tokens".to_owned())),
    }
}

/// The token embeddings.
#[derive(Debug)]
struct Embedder {
    model: Model,
    element: Element,
    output: String,
}

impl Embedder {
    fn new(model: Model) -> Result<Self, LoadError> {
        let mut element = None;
        for input in model.inputs() {
            match input.name.as_str() {
                "input_ids" => element = Some(input.element),
                other => return Err(LoadError::unknown("embed_tokens", other)),
            }
        }
        let element = element.ok_or(LoadError::MissingInput { model: "embed_tokens", input: "input_ids" })?;
        let output = model.outputs().first().map(|output| output.name.clone());
        let output = output.ok_or(LoadError::MissingOutput { model: "embed_tokens", output: "inputs_embeds" })?;
        Ok(Self { model, element, output })
    }

    fn embed(&mut self, tokens: &[i64]) -> Result<Vec<f32>, Fault> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let ids = Tensor::integers(self.element, &[1, tokens.len()], tokens.to_vec())?;
        let answered = self.model.run([("input_ids", &ids)], &[&self.output])?;
        let values = answered.first().map(Tensor::to_f32).transpose()?.unwrap_or_default();
        sound("inputs_embeds", &values)?;
        Ok(values)
    }

    /// Width of an embedding, from running it.
    fn width(&mut self) -> Result<usize, Fault> {
        Ok(self.embed(&[0])?.len())
    }
}
