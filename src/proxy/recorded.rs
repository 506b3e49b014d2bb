//! A proxy that replays written-down answers and faults: for tests and benchmarks of everything but judgement.
//!
//! Only built with the hidden feature `__replay`; a release build of the daemon refuses to compile with it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::Duration;

use image::RgbImage;
use serde::Deserialize;

use crate::margin::Margin;
use crate::proxy::decoding::TRACE_TOKENS_MAX;
use crate::proxy::{Budget, Card, Fault, Provider, Proxy, Question, Sampling, Trace};
use crate::triple::Digest;

/// Side of the working image, in pixels; small, so that the rest is what a benchmark measures.
const SIDE: u32 = 16;

/// What is replayed for one instruction.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The margin with the constitution, in nats.
    pub margin: f64,
    /// The margin without it minus the margin with it, in nats.
    #[serde(default)]
    pub reliance: f64,
    /// How far the copies' margins wander around the clean one's, in nats.
    #[serde(default)]
    pub wobble: f64,
    /// What it writes when asked for a trace; without it, it writes none.
    #[serde(default)]
    pub trace: Option<String>,
    /// Tokens of a trace, one a letter, that the context has room for; without it, all.
    #[serde(default)]
    pub trace_room: Option<usize>,
    /// What goes wrong, if anything.
    #[serde(default)]
    pub fault: Option<Injected>,
}

/// A fault on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Injected {
    /// The margin is NaN.
    Nan,
    /// The margin is infinite.
    Infinite,
    /// A tensor is all zeros.
    AllZero,
    /// Only the perturbed copies' margins are NaN.
    NanCopies,
    /// The encoder answers alike to every image.
    Blind,
    /// The engine fails.
    Engine,
    /// The question is too long for the context.
    Context,
    /// The worker thread panics.
    Panic,
    /// Every margin takes 100 ms.
    Slow,
    /// Every trace takes 200 ms, the deadline asked every 10.
    SlowTrace,
    /// The worker hangs for a minute inside one call, deaf to the deadline.
    Hang,
}

/// The recording's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// Answers by instruction.
    pub answers: HashMap<String, Answer>,
    /// The answer to every other instruction; without it they are [`Fault::NotRecorded`].
    pub otherwise: Option<Answer>,
}

/// The replaying proxy.
#[derive(Debug)]
pub struct Recorded {
    card: Card,
    recording: Recording,
}

/// An image's hash.
pub type Observation = u64;

/// The answer that was looked up, and whether the constitution is there.
#[derive(Debug)]
pub struct Posed {
    answer: Answer,
    with_constitution: bool,
    clean: std::cell::Cell<Option<Observation>>,
}

impl Recorded {
    /// A proxy that replays this recording.
    #[must_use]
    pub fn new(recording: Recording, digest: Digest) -> Self {
        let mut answers = recording.answers.values().chain(&recording.otherwise);
        let traces = answers.any(|answer| answer.trace.is_some());
        let card = Card {
            name: "recorded".to_owned(),
            digest,
            prompt_layout: Digest::of(b"steadfast/recorded/1"),
            execution_provider: Provider::Cpu,
            traces: traces.then_some(digest),
            trace_tokens_max: TRACE_TOKENS_MAX,
            safe_for_spread: true,
            context_tokens: usize::MAX,
            working_size: Some((SIDE, SIDE)),
        };
        Self { card, recording }
    }

    /// Loads `recording.json` from a folder.
    ///
    /// # Errors
    /// When the file cannot be read or does not parse.
    pub fn load(folder: &Path) -> std::io::Result<Self> {
        let text = std::fs::read(folder.join("recording.json"))?;
        Ok(Self::new(serde_json::from_slice(&text)?, Digest::of(&text)))
    }
}

impl Proxy for Recorded {
    type Prefix = ();
    type Posed = Posed;
    type Observation = Observation;

    fn card(&self) -> &Card {
        &self.card
    }

    fn warm(&mut self, _: &str) -> Result<(), Fault> {
        Ok(())
    }

    fn pose(&mut self, prefix: Option<&()>, question: &Question<'_>) -> Result<Posed, Fault> {
        let recording = &self.recording;
        let answer = recording.answers.get(question.instruction).or(recording.otherwise.as_ref()).cloned();
        let answer = answer.ok_or(Fault::NotRecorded)?;
        Ok(Posed { answer, with_constitution: prefix.is_some(), clean: None.into() })
    }

    fn encode(&mut self, image: &RgbImage) -> Result<Observation, Fault> {
        let mut hasher = DefaultHasher::new();
        image.as_raw().hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn margin(&mut self, posed: &Posed, seen: &Observation, forced: Option<&Trace>) -> Result<Margin, Fault> {
        let answer = &posed.answer;
        let copy = posed.clean.get().is_some_and(|clean| clean != *seen);
        if posed.clean.get().is_none() {
            posed.clean.set(Some(*seen));
        }
        match answer.fault {
            Some(Injected::Nan) => return Ok(Margin::new(f64::NAN)?),
            Some(Injected::NanCopies) if copy => return Ok(Margin::new(f64::NAN)?),
            Some(Injected::Infinite) => return Ok(Margin::new(f64::INFINITY)?),
            Some(Injected::AllZero) => return Err(Fault::AllZero { tensor: "hidden".to_owned() }),
            Some(Injected::Blind) => return Err(Fault::Blind),
            Some(Injected::Engine) => return Err(Fault::Engine("injected".to_owned())),
            Some(Injected::Context) => return Err(Fault::ContextExceeded { tokens: 5000, tokens_max: 4096 }),
            #[expect(clippy::panic, reason = "the injected fault is a panic")]
            Some(Injected::Panic) => panic!("injected"),
            Some(Injected::Slow) => std::thread::sleep(Duration::from_millis(100)),
            Some(Injected::Hang) => std::thread::sleep(Duration::from_secs(60)),
            Some(Injected::NanCopies | Injected::SlowTrace) | None => {}
        }
        if let Some(trace) = forced {
            let mut hasher = DefaultHasher::new();
            (seen, &trace.tokens).hash(&mut hasher);
            return Ok(Margin::new(answer.margin + answer.wobble * wander(hasher.finish()))?);
        }
        let reliance = if posed.with_constitution { 0.0 } else { answer.reliance };
        let wobble = if copy { answer.wobble * wander(*seen) } else { 0.0 };
        Ok(Margin::new(answer.margin + reliance + wobble)?)
    }

    fn trace(
        &mut self,
        posed: &Posed,
        _: &Observation,
        sampling: Sampling,
        budget: &dyn Budget,
    ) -> Result<Trace, Fault> {
        let text = posed.answer.trace.clone().ok_or(Fault::Unsupported("write a trace"))?;
        if posed.answer.fault == Some(Injected::SlowTrace) {
            for _ in 0..20 {
                budget.check()?;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let mut tokens: Vec<u32> = text.chars().map(u32::from).take(sampling.tokens_max).collect();
        let finished = posed.answer.trace_room.is_none_or(|room| tokens.len() < room);
        tokens.truncate(posed.answer.trace_room.unwrap_or(usize::MAX));
        if sampling.temperature > 0.0 && finished {
            tokens.extend(u32::try_from(sampling.seed % 1000));
        }
        Ok(Trace { text, tokens, finished })
    }

    fn fingerprint(&self, seen: &Observation) -> u64 {
        *seen
    }

    fn describe(&self, _: &Observation) -> Option<String> {
        None
    }

    fn embed(&mut self, _: &str) -> Result<Vec<f32>, Fault> {
        Err(Fault::Unsupported("embed a text"))
    }
}

/// A number in [−1, 1) from a hash.
fn wander(hash: u64) -> f64 {
    let high = u32::try_from(hash >> 32).unwrap_or(u32::MAX);
    f64::from(high) / f64::from(u32::MAX) * 2.0 - 1.0
}
