//! What a folder holds and whether a machine can hold it: `steadfast model inspect`.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::folder::{Folder, ModelFile};
use super::{Family, LoadError, Observation, Options, Posed, Precision, Vlm};
use crate::proxy::onnx::{Element, Engine, Model, Outlet};
use crate::proxy::self_test::{PICTURE_PX, QUESTION, picture};
use crate::proxy::{Card, Proxy as _, Sampling, Unbounded};

/// Tokens of the trace that is tried.
const TRIED_TOKENS: usize = 4;
/// Sessions, activations and the tokenizer over the models' own size, as measured on the processor.
const MEMORY_FACTOR_PER_CENT: u64 = 120;

/// What a machine has, and what is asked of it.
#[derive(Debug, Clone)]
pub struct Demand<'a> {
    /// Memory that the proxy may take, in bytes.
    pub memory_bytes: u64,
    /// Time for one check.
    pub deadline: Duration,
    /// Perturbed copies of a check.
    pub copies: u32,
    /// Tokens of the trace that must find room behind a prompt; 0 where the tier reads none.
    pub trace_tokens: usize,
    /// The constitution's text.
    pub constitution: &'a str,
}

/// One model file.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// What it is for.
    pub role: &'static str,
    /// Its file's name.
    pub file: String,
    /// Its precision, by its suffix.
    pub precision: Precision,
    /// Its size with outside weights, in bytes.
    pub bytes: u64,
    /// What it takes: name, element type, shape.
    pub inputs: Vec<String>,
    /// What it gives: name, element type, shape.
    pub outputs: Vec<String>,
}

/// Everything there is to know before trusting a folder.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// Who the proxy is and what it can do.
    pub card: Card,
    /// Its family.
    pub family: Family,
    /// The three files.
    pub parts: Vec<Part>,
    /// Bytes of state a token takes.
    pub state_bytes_per_token: usize,
    /// Tokens an image of 640 × 480 pixels takes.
    pub image_tokens: usize,
    /// Tokens of the prompt that was tried, constitution and image included.
    pub prompt_tokens: usize,
    /// Tokens of that prompt, of the trace asked for, and of the verdict after it.
    pub tokens: usize,
    /// Estimated memory of the proxy, in bytes: 1.2 times the files and one state of those tokens.
    pub memory_bytes: u64,
    /// Estimated time of a check inside the inference engine, from one run of each part.
    #[serde(rename = "check_ms", serialize_with = "as_ms")]
    pub check: Duration,
    /// Time that each token of a trace takes, inside the inference engine.
    #[serde(rename = "token_ms", serialize_with = "as_ms")]
    pub token: Duration,
    /// Tokens of a trace that the deadline holds beside a check, at most as many as a trace may have.
    pub trace_tokens: usize,
    /// Whether the model's context holds prompt, trace and verdict.
    pub fits_context: bool,
    /// Whether the machine's memory holds it.
    pub fits_memory: bool,
    /// Whether the deadline holds it.
    pub fits_deadline: bool,
}

impl Vlm {
    /// Memory that a folder's model will take before it has read anything, in bytes; known without loading it.
    ///
    /// # Errors
    /// When a file is missing or does not parse.
    pub fn memory_bytes(path: &Path, options: &Options) -> Result<u64, LoadError> {
        let folder = Folder::read(path, options.precisions)?;
        let files = [&folder.vision, &folder.embed, &folder.decoder];
        let bytes: u64 = files.into_iter().map(ModelFile::bytes).sum::<Result<u64, LoadError>>()?;
        Ok(bytes / 100 * MEMORY_FACTOR_PER_CENT)
    }

    /// Loads a folder, runs each part once and says what the folder holds and whether it fits the demand.
    ///
    /// # Errors
    /// As [`Vlm::load_with`], or when a part fails to run.
    pub fn inspect(
        engine: &Engine,
        path: &Path,
        options: &Options,
        demand: &Demand<'_>,
    ) -> Result<Inspection, LoadError> {
        let folder = Folder::read(path, options.precisions)?;
        let mut vlm = Self::load_with(engine, path, options)?;
        let prefix = vlm.warm(demand.constitution)?;
        let start = vlm.engine_time();
        let posed = vlm.pose(Some(&prefix), &QUESTION)?;
        let posing = vlm.engine_time() - start;
        let (width, height) = PICTURE_PX;
        let picture = picture(width, height, false);
        // The first run of an encoder also warms it.
        vlm.encode(&picture)?;
        let start = vlm.engine_time();
        let seen = vlm.encode(&picture)?;
        vlm.margin(&posed, &seen, None)?;
        let copy = vlm.engine_time() - start;
        let token = vlm.time_of_a_token(&posed, &seen)?;
        let prompt_tokens = posed.reading.as_ref().map_or(0, |read| read.tokens) + seen.ids.len() + posed.tail.len();
        let after =
            if demand.trace_tokens > 0 { demand.trace_tokens + vlm.prompt.forced(Some(&[0]))?.len() } else { 0 };
        let tokens = prompt_tokens + after;
        let state = u64::try_from(tokens * vlm.state_bytes_per_token()).unwrap_or(u64::MAX);
        let parts = vec![
            part("vision_encoder", &folder.vision, &vlm.vision.model)?,
            part("embed_tokens", &folder.embed, &vlm.embedder.model)?,
            part("decoder_model_merged", &folder.decoder, &vlm.decoder.model)?,
        ];
        let files: u64 = parts.iter().map(|part| part.bytes).sum();
        let memory_bytes = files / 100 * MEMORY_FACTOR_PER_CENT + state;
        // The clean image with and without the constitution, and the copies.
        let check = 2 * posing + copy * (2 + demand.copies);
        let left = demand.deadline.saturating_sub(check);
        // A token that takes less than can be measured does not end a trace.
        let trace_tokens = left.as_nanos().checked_div(token.as_nanos()).unwrap_or(u128::MAX);
        let trace_tokens = usize::try_from(trace_tokens).unwrap_or(usize::MAX).min(vlm.card.trace_tokens_max);
        Ok(Inspection {
            card: vlm.card.clone(),
            family: vlm.family,
            parts,
            state_bytes_per_token: vlm.state_bytes_per_token(),
            image_tokens: seen.ids.len(),
            prompt_tokens,
            tokens,
            memory_bytes,
            check,
            token,
            trace_tokens,
            fits_context: tokens <= vlm.card.context_tokens,
            fits_memory: memory_bytes <= demand.memory_bytes,
            fits_deadline: check <= demand.deadline,
        })
    }
}

impl Vlm {
    /// Hot, so that no stop token ends the trace early.
    fn time_of_a_token(&mut self, posed: &Posed, seen: &Observation) -> Result<Duration, LoadError> {
        let hot = |tokens_max| Sampling { temperature: 50.0, top_p: 1.0, top_k: 0, seed: 1, tokens_max };
        let mut time = |tokens_max| {
            let start = self.engine_time();
            self.trace(posed, seen, hot(tokens_max), &Unbounded).map(|_| self.engine_time() - start)
        };
        let (one, more) = (time(1)?, time(1 + TRIED_TOKENS)?);
        Ok(more.saturating_sub(one) / u32::try_from(TRIED_TOKENS).unwrap_or(1))
    }
}

fn as_ms<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

fn part(role: &'static str, file: &ModelFile, model: &Model) -> Result<Part, LoadError> {
    let name = file.path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Part {
        role,
        file: name.unwrap_or_default(),
        precision: file.precision,
        bytes: file.bytes()?,
        inputs: model.inputs().iter().map(outlet).collect(),
        outputs: model.outputs().iter().map(outlet).collect(),
    })
}

/// `name f32[1, ?, 64]`.
fn outlet(outlet: &Outlet) -> String {
    let element = match outlet.element {
        Element::F32 => "f32",
        Element::F16 => "f16",
        Element::I64 => "i64",
        Element::I32 => "i32",
        Element::U8 => "u8",
        Element::Bool => "bool",
        Element::Other => "other",
    };
    let side = |side: &i64| if *side < 0 { "?".to_owned() } else { side.to_string() };
    format!("{} {element}[{}]", outlet.name, outlet.shape.iter().map(side).collect::<Vec<_>>().join(", "))
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        writeln!(f, "{} ({}), digest {}", self.card.name, self.family.name(), self.card.digest)?;
        for part in &self.parts {
            writeln!(f, "{}: {}, {} bytes", part.role, part.file, part.bytes)?;
            self.outlets(f, "takes", &part.inputs)?;
            self.outlets(f, "gives", &part.outputs)?;
        }
        writeln!(
            f,
            "context: {} tokens, state: {} bytes a token",
            self.card.context_tokens, self.state_bytes_per_token
        )?;
        writeln!(f, "an image of 640 × 480: {} tokens", self.image_tokens)?;
        writeln!(f, "prompt, image and trace: {} tokens; fit the context: {}", self.tokens, yes(self.fits_context))?;
        writeln!(f, "runs on: {}", self.card.execution_provider)?;
        writeln!(f, "margin: yes; trace: {}; state shared between copies: yes", yes(self.card.traces.is_some()))?;
        writeln!(f, "quiet enough for the perturbation spread: {}", yes(self.card.safe_for_spread))?;
        writeln!(f, "memory: about {} bytes; fits: {}", self.memory_bytes, yes(self.fits_memory))?;
        writeln!(f, "a check: about {} ms; fits the deadline: {}", self.check.as_millis(), yes(self.fits_deadline))?;
        let ms = self.token.as_secs_f64() * 1e3;
        write!(f, "a trace: about {ms:.1} ms a token; {} tokens fit the deadline beside a check", self.trace_tokens)
    }
}

impl Inspection {
    /// The state's many parts are told by their number.
    fn outlets(&self, f: &mut fmt::Formatter<'_>, verb: &str, outlets: &[String]) -> fmt::Result {
        let is_state = |outlet: &&String| outlet.starts_with("past") || outlet.starts_with("present");
        for outlet in outlets.iter().filter(|outlet| !is_state(outlet)) {
            writeln!(f, "  {verb} {outlet}")?;
        }
        match outlets.iter().filter(is_state).count() {
            0 => Ok(()),
            count => writeln!(f, "  {verb} {count} parts of state"),
        }
    }
}
