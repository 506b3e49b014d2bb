//! The decoder: embeddings in, next-token rows out, and a state between that is passed on without being looked at.
//!
//! Every `past…` input is fed the `present…` output of the same name, whatever it holds: keys and values, in 32 or 16
//! bits, or a convolution's window. What was read is never written over while somebody may continue from it, so any
//! number of continuations may share one state. Where a model can append to its state in place ([`super::state`]), it
//! does, which spares a copy of the whole state for every run.

use super::LoadError;
use super::state::{Held, Storage};
use crate::proxy::onnx::{self, Element, Model, Outlet, Tensor, sound};
use crate::proxy::{Budget, Fault, Provider, Unbounded};

/// Tokens read at once: half the peak memory of reading a whole prompt in one run, and the same result.
pub const CHUNK_TOKENS: usize = 128;
/// Tokens that a start tries the model's state with.
const TRIED_TOKENS: usize = 5;

/// One opaque part of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The input that takes it.
    pub past: String,
    /// The output that gives it.
    pub present: String,
    /// Its element type.
    pub element: Element,
    /// Its shape before anything was read.
    pub empty: Vec<usize>,
    /// Values it grows by with each token; 0 where its size is fixed.
    pub values_per_token: usize,
}

/// A stretch of a prompt, embedded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stretch {
    /// Embeddings, row-major.
    pub embeddings: Vec<f32>,
    /// Position of each token on three axes.
    pub positions: Vec<[i64; 3]>,
    /// DeepStack rows, one entry a layer, zero where there is no image.
    pub deep: Vec<Vec<f32>>,
    /// The position after it.
    pub next: i64,
}

/// What the decoder has read so far.
#[derive(Debug)]
pub struct Reading {
    state: State,
    /// Tokens read.
    pub tokens: usize,
    /// Position of the next token.
    pub next: i64,
}

/// Where what was read lies.
#[derive(Debug)]
enum State {
    /// In the tensors the model gave.
    Given(Vec<Tensor>),
    /// Where the model appends to it.
    Held(Held),
}

/// The decoder.
#[derive(Debug)]
pub struct Decoder {
    /// The session.
    pub model: Model,
    /// Width of an embedding.
    pub width: usize,
    /// Longest prompt and answer together, in tokens.
    pub context_tokens: usize,
    embeddings: Outlet,
    mask: Option<Outlet>,
    positions: Option<Outlet>,
    keep: Option<Outlet>,
    branch: Option<Outlet>,
    deep: Vec<Outlet>,
    carried: Vec<Carried>,
    in_place: bool,
}

impl Decoder {
    /// Sorts the model's inputs and outputs into what is known.
    pub fn new(model: Model, width: usize, context_tokens: usize, axes: bool) -> Result<Self, LoadError> {
        let (mut embeddings, mut mask, mut positions, mut keep, mut branch) = (None, None, None, None, None);
        let (mut deep, mut carried) = (Vec::new(), Vec::new());
        for input in model.inputs() {
            match input.name.as_str() {
                "inputs_embeds" => embeddings = Some(input.clone()),
                "attention_mask" => mask = Some(input.clone()),
                "position_ids" => positions = Some(input.clone()),
                "num_logits_to_keep" => keep = Some(input.clone()),
                "use_cache_branch" => branch = Some(input.clone()),
                name if name.starts_with("deepstack_scattered") => deep.push(input.clone()),
                name if name.starts_with("past") => carried.push(carry(input, model.outputs())?),
                other => return Err(LoadError::unknown("decoder_model_merged", other)),
            }
        }
        let missing = |input| LoadError::MissingInput { model: "decoder_model_merged", input };
        let embeddings = embeddings.ok_or_else(|| missing("inputs_embeds"))?;
        if carried.is_empty() {
            return Err(missing("past_key_values"));
        }
        let counted = positions.as_ref().is_some_and(|positions| positions.shape.len() == 3);
        if axes && !counted {
            // Positions along one axis would be accepted and be wrong.
            return Err(missing("position_ids on three axes"));
        }
        if !model.outputs().iter().any(|output| output.name == "logits") {
            return Err(LoadError::MissingOutput { model: "decoder_model_merged", output: "logits" });
        }
        let mut decoder = Self {
            width,
            context_tokens,
            embeddings,
            mask,
            positions,
            keep,
            branch,
            deep,
            carried,
            in_place: false,
            model,
        };
        decoder.in_place = decoder.appends_rightly();
        Ok(decoder)
    }

    /// Whether the model gives the same bits when it appends to its state in place: tried once, on a few tokens. What
    /// fails here fails again, and is named, where the proxy is tried as a whole.
    fn appends_rightly(&mut self) -> bool {
        let able = self.model.appends_in_place() && self.model.provider() == Provider::Cpu;
        if !able || !self.carried.iter().all(Carried::grows_by_rows) || self.context_tokens < TRIED_TOKENS {
            return false;
        }
        let stretch = |start: usize, end: usize| {
            let value = |index: usize| f32::from(u8::try_from(index * 37 % 251).unwrap_or_default()) / 250.0 - 0.5;
            let positions = (start..end).map(|place| [i64::try_from(place).unwrap_or_default(); 3]).collect();
            let embeddings = (start * self.width..end * self.width).map(value).collect();
            Stretch { embeddings, positions, deep: Vec::new(), next: 0 }
        };
        let parts = [stretch(0, 3), stretch(3, 4), stretch(4, TRIED_TOKENS)];
        let mut rows = Vec::new();
        for in_place in [false, true] {
            self.in_place = in_place;
            let mut reading = None;
            for part in &parts {
                let Ok((after, row)) = self.read(reading.as_ref(), part, &Unbounded) else { return false };
                rows.push(row.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
                reading = Some(after);
            }
        }
        let (given, held) = rows.split_at(parts.len());
        given == held
    }

    /// Whether the model appends to its state in place.
    pub const fn in_place(&self) -> bool {
        self.in_place
    }

    /// How many layers take DeepStack rows.
    pub const fn deep_layers(&self) -> usize {
        self.deep.len()
    }

    /// The parts of the state.
    pub fn carried(&self) -> &[Carried] {
        &self.carried
    }

    /// Reads a stretch after what was read before, chunk by chunk; the row is the next token's after the last.
    ///
    /// # Errors
    /// When the context or the time does not hold it, the engine fails, or the row is not finite or all zero.
    pub fn read(
        &mut self,
        before: Option<&Reading>,
        stretch: &Stretch,
        budget: &dyn Budget,
    ) -> Result<(Reading, Vec<f32>), Fault> {
        let tokens = before.map_or(0, |before| before.tokens) + stretch.positions.len();
        if tokens > self.context_tokens {
            return Err(Fault::ContextExceeded { tokens, tokens_max: self.context_tokens });
        }
        let start = before.map_or(0, |before| before.tokens);
        let storage = match before.map(|before| &before.state) {
            None if self.in_place => Some(Storage::new(&self.carried, tokens, self.context_tokens)?),
            Some(State::Held(held)) => Some(held.continued(tokens, self.context_tokens)?),
            None | Some(State::Given(_)) => None,
        };
        let count = stretch.positions.len();
        let (mut given, mut row): (Option<Vec<Tensor>>, _) = (None, None);
        for from in (0..count).step_by(CHUNK_TOKENS) {
            let to = (from + CHUNK_TOKENS).min(count);
            budget.check()?;
            let chunk = Chunk { stretch, start: from, end: to };
            let fed = self.feed(&chunk, start + to, start + from > 0)?;
            // A single token's values are small, and the next one wants them again at once.
            self.model.give_back(chunk.len() > 1);
            row = match &storage {
                Some(storage) => self.run_in_place(storage, &fed, chunk.is_last())?,
                None => {
                    let past = match (&given, before.map(|before| &before.state)) {
                        (Some(given), _) | (None, Some(State::Given(given))) => given,
                        (None, _) => &self.carried.iter().map(Carried::nothing).collect::<Result<Vec<_>, _>>()?,
                    };
                    let (present, row) = self.run(past, &fed, chunk.is_last())?;
                    given = Some(present);
                    row
                }
            };
        }
        let row = row.ok_or_else(|| Fault::Engine("nothing to read".to_owned()))?;
        sound("logits", &row)?;
        let state = match storage {
            Some(storage) => State::Held(storage.hold(tokens)),
            None => State::Given(given.unwrap_or_default()),
        };
        Ok((Reading { state, tokens, next: stretch.next }, row))
    }

    /// Runs the model over a state that is handed back longer.
    fn run(
        &mut self,
        past: &[Tensor],
        fed: &[(String, Tensor)],
        wants_row: bool,
    ) -> Result<(Vec<Tensor>, Option<Vec<f32>>), Fault> {
        let past = self.carried.iter().map(|part| part.past.as_str()).zip(past);
        let inputs = fed.iter().map(|(name, tensor)| (name.as_str(), tensor)).chain(past);
        let present: Vec<&str> = self.carried.iter().map(|part| part.present.as_str()).collect();
        let outputs: &[&str] = if wants_row { &["logits"] } else { &[] };
        let mut answered = match self.model.provider() {
            Provider::Cpu => self.model.run(inputs, &[outputs, &present].concat())?,
            Provider::Cuda | Provider::Tensorrt => self.model.run_keeping(inputs, outputs, &present)?,
        }
        .into_iter();
        let row = if wants_row { answered.next().map(|logits| logits.last_row()).transpose()? } else { None };
        Ok((answered.collect(), row))
    }

    /// Runs the model over a state that it appends to where it lies.
    fn run_in_place(
        &mut self,
        storage: &Storage,
        fed: &[(String, Tensor)],
        wants_row: bool,
    ) -> Result<Option<Vec<f32>>, Fault> {
        let inputs = fed.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let outputs: &[&str] = if wants_row { &["logits"] } else { &[] };
        let mut parts = storage.parts();
        let state = self.carried.iter().zip(parts.iter_mut()).map(|(names, part)| onnx::Held {
            past: &names.past,
            present: &names.present,
            part,
        });
        let answered = self.model.run_in_place(inputs, state, outputs)?;
        answered.first().map(Tensor::last_row).transpose()
    }

    /// Every input but the state.
    fn feed(&self, chunk: &Chunk<'_>, tokens: usize, continues: bool) -> Result<Vec<(String, Tensor)>, Fault> {
        let length = chunk.len();
        let shape = [1, length, self.width];
        let embeddings = chunk.rows(&chunk.stretch.embeddings, self.width);
        let mut fed =
            vec![(self.embeddings.name.clone(), Tensor::floats(self.embeddings.element, &shape, embeddings.to_vec())?)];
        if let Some(mask) = &self.mask {
            fed.push((mask.name.clone(), Tensor::integers(mask.element, &[1, tokens], vec![1; tokens])?));
        }
        if let Some(positions) = &self.positions {
            let places = chunk.stretch.positions.get(chunk.start..chunk.end).unwrap_or_default();
            let axis = |axis: usize| places.iter().map(move |place| place.get(axis).copied().unwrap_or_default());
            let tensor = if positions.shape.len() == 3 {
                Tensor::integers(positions.element, &[3, 1, length], (0..3).flat_map(axis).collect())?
            } else {
                Tensor::integers(positions.element, &[1, length], axis(0).collect())?
            };
            fed.push((positions.name.clone(), tensor));
        }
        if let Some(keep) = &self.keep {
            let shape = vec![1; keep.shape.len()];
            fed.push((keep.name.clone(), Tensor::integers(keep.element, &shape, vec![1])?));
        }
        if let Some(branch) = &self.branch {
            let shape = vec![1; branch.shape.len()];
            fed.push((branch.name.clone(), Tensor::integers(branch.element, &shape, vec![i64::from(continues)])?));
        }
        for (index, layer) in self.deep.iter().enumerate() {
            let rows = match chunk.stretch.deep.get(index) {
                Some(rows) => chunk.rows(rows, self.width).to_vec(),
                None => vec![0.0; length * self.width],
            };
            fed.push((layer.name.clone(), Tensor::floats(layer.element, &shape, rows)?));
        }
        Ok(fed)
    }
}

impl Carried {
    /// Whether it is laid out as `[1, heads, tokens, size]`, the only open size its length.
    fn grows_by_rows(&self) -> bool {
        matches!(self.empty.as_slice(), &[1, heads, 0, size] if heads > 0 && size > 0)
    }

    fn nothing(&self) -> Result<Tensor, Fault> {
        Tensor::floats(self.element, &self.empty, vec![0.0; self.empty.iter().product()])
    }
}

/// Pairs a `past…` input with its `present…` output. Open sizes are 0 before anything was read, but the first: one
/// prompt at a time.
fn carry(input: &Outlet, outputs: &[Outlet]) -> Result<Carried, LoadError> {
    let rest = input.name.strip_prefix("past_key_values").or_else(|| input.name.strip_prefix("past"));
    let rest = rest.unwrap_or(&input.name);
    let names = [format!("present{rest}"), format!("present_key_values{rest}")];
    let present = outputs.iter().find(|output| names.contains(&output.name));
    let present = present.ok_or_else(|| LoadError::unknown("decoder_model_merged", &input.name))?;
    if !matches!(input.element, Element::F32 | Element::F16) || present.element != input.element {
        return Err(LoadError::unknown("decoder_model_merged", &input.name));
    }
    let sizes = || input.shape.iter().enumerate();
    let size =
        |(index, &size): (usize, &i64), open: usize| usize::try_from(size).unwrap_or(if index == 0 { 1 } else { open });
    let empty = sizes().map(|pair| size(pair, 0)).collect::<Vec<_>>();
    let grows = empty.contains(&0);
    let values_per_token = if grows { sizes().map(|pair| size(pair, 1)).product() } else { 0 };
    Ok(Carried {
        past: input.name.clone(),
        present: present.name.clone(),
        element: input.element,
        empty,
        values_per_token,
    })
}

/// The tokens of a stretch that go through the decoder together.
struct Chunk<'a> {
    stretch: &'a Stretch,
    start: usize,
    end: usize,
}

impl Chunk<'_> {
    const fn len(&self) -> usize {
        self.end - self.start
    }

    const fn is_last(&self) -> bool {
        self.end == self.stretch.positions.len()
    }

    fn rows<'r>(&self, rows: &'r [f32], width: usize) -> &'r [f32] {
        rows.get(self.start * width..self.end * width).unwrap_or_default()
    }
}
