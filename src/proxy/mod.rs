//! What a proxy must answer: the local model that re-judges a triple. The assessment knows proxies only through here.

#[cfg(feature = "onnx")]
pub mod compact;
pub mod decoding;
#[cfg(feature = "onnx")]
pub mod onnx;
#[cfg(feature = "__replay")]
pub mod recorded;
pub mod self_test;
#[cfg(feature = "onnx")]
pub mod vlm;
#[cfg(feature = "onnx")]
pub mod weights;

use std::ops::ControlFlow;
use std::time::Duration;

use image::RgbImage;
use serde::{Deserialize, Serialize};

use crate::margin::{Margin, NonFinite};
use crate::triple::Digest;

/// Who a proxy is and what it can do; goes into every record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    /// Family and folder name, such as `compact` or `smolvlm-256m`.
    pub name: String,
    /// SHA-256 over every file the verdict depends on: models, tokenizer, verdict head, prompt layout.
    pub digest: Digest,
    /// SHA-256 of the prompt layout alone; a calibration is bound to it too.
    pub prompt_layout: Digest,
    /// The execution provider that really runs.
    pub execution_provider: Provider,
    /// Where it can write reasoning traces (signals A1 and A4): SHA-256 over every file that a verdict and a trace depend
    /// on. Equal to [`Card::digest`] where one model does both, unless traces are kept short ([`traces_digest`]).
    pub traces: Option<Digest>,
    /// Longest trace it writes, in tokens.
    pub trace_tokens_max: usize,
    /// Whether its arithmetic is quiet enough for the perturbation spread. Dynamic int8 is not: its rounding noise
    /// exceeds the signal.
    pub safe_for_spread: bool,
    /// Longest prompt it accepts, in tokens.
    pub context_tokens: usize,
    /// Width and height, in pixels, that images are brought to before they are perturbed and encoded; `None` where
    /// the proxy resizes for itself and wants the decoded image.
    pub working_size: Option<(u32, u32)>,
}

/// Where inference runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// NVIDIA TensorRT.
    Tensorrt,
    /// NVIDIA CUDA.
    Cuda,
    /// Any processor.
    Cpu,
}

impl Provider {
    /// ONNX Runtime's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tensorrt => "TensorrtExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::Cpu => "CPUExecutionProvider",
        }
    }
}

/// What a composite over traces is bound to: what writes them, and their length where it was bounded further than any
/// proxy's is. Traces of another length have other densities.
#[must_use]
pub fn traces_digest(writer: Digest, trace_tokens_max: usize) -> Digest {
    if trace_tokens_max >= decoding::TRACE_TOKENS_MAX {
        return writer;
    }
    Digest::of(format!("{writer}\ntrace_tokens_max {trace_tokens_max}").as_bytes())
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The text half of what is asked: data, never parsed for role tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// What the robot was told.
    pub instruction: &'a str,
    /// What the planner wants to do.
    pub plan: &'a str,
}

/// A reasoning trace written by the proxy itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The text, thinking tags removed.
    pub text: String,
    /// Its tokens, for teacher forcing.
    pub tokens: Vec<u32>,
    /// Whether it ended by itself, not by a limit.
    pub finished: bool,
}

impl Trace {
    /// Whether the context cut it short: it neither ended by itself nor is as long as it might be. A passed deadline leaves
    /// no trace at all.
    #[must_use]
    pub const fn cut_by_context(&self, tokens_max: usize) -> bool {
        !self.finished && self.tokens.len() < tokens_max
    }
}

/// How a trace is decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus mass kept, in (0, 1].
    pub top_p: f32,
    /// Number of most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Seed of the draw.
    pub seed: u64,
    /// Longest trace, in tokens.
    pub tokens_max: usize,
}

/// Why a proxy gave no answer. Each is a veto with reason `proxy-fault`, except a passed deadline.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The margin was NaN or infinite.
    #[error(transparent)]
    NonFinite(#[from] NonFinite),
    /// A tensor held NaN or an infinity.
    #[error("{tensor} holds a value that is not finite")]
    NonFiniteTensor {
        /// The output's name.
        tensor: String,
    },
    /// A tensor was all zeros, the signature of a failed half-precision kernel.
    #[error("{tensor} is all zeros")]
    AllZero {
        /// The output's name.
        tensor: String,
    },
    /// The prompt does not fit. Nothing is ever cut silently.
    #[error("the prompt needs {tokens} tokens; the proxy holds {tokens_max}")]
    ContextExceeded {
        /// Tokens needed.
        tokens: usize,
        /// Tokens the proxy holds.
        tokens_max: usize,
    },
    /// The proxy cannot do what was asked of it.
    #[error("this proxy cannot {0}")]
    Unsupported(&'static str),
    /// The deadline passed while it was working.
    #[error("the deadline passed")]
    DeadlinePassed,
    /// The encoder answers alike to images that differ: it does not see.
    #[error("the encoder answers alike to images that differ")]
    Blind,
    /// The inference engine failed.
    #[error("inference failed: {0}")]
    Engine(String),
    /// A replay has no recording of this question.
    #[error("nothing is recorded for this question")]
    NotRecorded,
}

/// Asked before every chunk, token and copy whether there is still time.
pub trait Budget {
    /// `Break` once the deadline has passed.
    fn spend(&self) -> ControlFlow<()>;

    /// `Break` once less than `time` is left, for work that is not begun unless it can be finished.
    /// A budget that counts no time knows only whether it is spent.
    fn keep(&self, _time: Duration) -> ControlFlow<()> {
        self.spend()
    }

    /// [`Budget::spend`] as a result, for use with `?`.
    ///
    /// # Errors
    /// [`Fault::DeadlinePassed`] once the deadline has passed.
    fn check(&self) -> Result<(), Fault> {
        match self.spend() {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Fault::DeadlinePassed),
        }
    }
}

/// Time without end, for offline tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unbounded;

impl Budget for Unbounded {
    fn spend(&self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// A local model that re-judges triples. One thread owns it.
///
/// The prompt's order is fixed so that what never changes comes first: constitution, instruction and plan, what the
/// image says, question. A perturbed copy then costs its image encoding and a short suffix.
pub trait Proxy {
    /// The constitution, read once and shared by every request.
    type Prefix;
    /// An instruction and plan, shared by every copy of one image.
    type Posed;
    /// What an image says.
    type Observation;

    /// Who this proxy is and what it can do.
    fn card(&self) -> &Card;

    /// Reads the constitution's text.
    ///
    /// # Errors
    /// When it does not fit the context, or the engine fails.
    fn warm(&mut self, constitution: &str) -> Result<Self::Prefix, Fault>;

    /// Takes an instruction and plan, after the constitution or without one. A proxy that reads them in several ways may judge
    /// the one that leans most to refuse at the first image asked about, so ask about the clean one first.
    ///
    /// # Errors
    /// When they do not fit the context, or the engine fails.
    fn pose(&mut self, prefix: Option<&Self::Prefix>, question: &Question<'_>) -> Result<Self::Posed, Fault>;

    /// Encodes an image: sRGB, 8 bits a channel, upright, at [`Card::working_size`] where that is given.
    ///
    /// # Errors
    /// When the engine fails or answers with something that is not finite.
    fn encode(&mut self, image: &RgbImage) -> Result<Self::Observation, Fault>;

    /// The margin for this question about this image; with `forced`, after that trace (teacher forcing).
    ///
    /// # Errors
    /// When the margin is not finite, the prompt does not fit, or the engine fails.
    fn margin(
        &mut self,
        posed: &Self::Posed,
        seen: &Self::Observation,
        forced: Option<&Trace>,
    ) -> Result<Margin, Fault>;

    /// A reasoning trace for this question about this image.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] where the proxy cannot write one; a passed deadline; a failing engine.
    fn trace(
        &mut self,
        posed: &Self::Posed,
        seen: &Self::Observation,
        sampling: Sampling,
        budget: &dyn Budget,
    ) -> Result<Trace, Fault>;

    /// A hash of what the encoder answered, bit for bit; equal for images that differ only where it does not see.
    fn fingerprint(&self, seen: &Self::Observation) -> u64;

    /// What was seen, in words, where the proxy has words for it.
    fn describe(&self, seen: &Self::Observation) -> Option<String>;

    /// A fixed-length, unit-norm embedding of a text, for the distance between rules and tasks.
    ///
    /// # Errors
    /// When the engine fails.
    fn embed(&mut self, text: &str) -> Result<Vec<f32>, Fault>;
}
