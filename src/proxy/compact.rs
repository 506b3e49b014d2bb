//! The default proxy, for any CPU: *eyes* (detector and tagger) put the scene into a sentence, a small language model
//! reads constitution, task and scene, and a trained verdict head on its hidden state gives the margin.
//!
//! It is not an end-to-end vision-language model: what the eyes have no word for, the judge cannot weigh.
//! `models/reference.py` defines every step exactly, and `tests/compact.rs` holds this file to its golden vectors.

mod eyes;
mod prompt;
mod tail;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use image::RgbImage;
use serde::Deserialize;

use crate::margin::Margin;
use crate::proxy::decoding;
use crate::proxy::onnx::{Engine, EngineError, Model, Tensor, sound};
use crate::proxy::{Budget, Card, Fault, Proxy, Question, Sampling, Trace, traces_digest};
use crate::triple::Digest;

use eyes::SIDE;
pub use eyes::Sighting;
use prompt::{Prompt, Speech, Task};
use tail::{States, Tail};

/// Longest prompt the judge accepts, in tokens; its rotary table ends here.
const CONTEXT_TOKENS: usize = 4096;
/// Tokens read at once: half the peak memory of reading a whole constitution in one run, and the same result.
const CHUNK_TOKENS: usize = 128;
/// Most sentences of an instruction. Each is read, so that without an end one request could keep all others waiting.
const SENTENCES_MAX: usize = 16;
/// Width of the judge's hidden state.
const WIDTH: usize = 576;
/// Blocks of the verdict head's feature.
const BLOCKS: usize = 4;
/// Tokens that close a turn after its content.
const TURN_END_TOKENS: usize = 2;
/// Key-value heads and their width.
const KV: (usize, usize) = (3, 64);

/// Why the folder does not hold a compact proxy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A model or the library could not be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The tokenizer could not be read, or lacks a role token.
    #[error("cannot use the tokenizer {path}: {message}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// The verdict head could not be read or does not fit the judge.
    #[error("cannot use the verdict head {path}: {message}")]
    Head {
        /// The file.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// The proxy failed while warming up.
    #[error("the proxy failed while warming up: {0}")]
    Warm(#[from] Fault),
}

/// The trained verdict head: `margin = bias + least share of the task's units + share of the suffix`. A share is weights times
/// two blocks of [`WIDTH`], the mean over the tokens and the last content token; the units are the whole plan and each step.
#[derive(Debug, Deserialize)]
struct Head {
    layer: usize,
    prompt_layout: Digest,
    weights: Vec<f32>,
    bias: f64,
    embedding_centre: Vec<f32>,
}

/// The compact proxy.
#[derive(Debug)]
pub struct Compact {
    card: Card,
    detector: Model,
    tagger: Model,
    trunk: Model,
    past_names: Vec<String>,
    present_names: Vec<String>,
    prompt: Prompt,
    head: Head,
    bare: Option<Rc<Part>>,
    speaker: Option<Speaker>,
}

/// What writes traces: the judge's upper layers, and where a trace ends and a verdict after it is read.
#[derive(Debug)]
struct Speaker {
    tail: Tail,
    speech: Speech,
}

/// A part of a prompt as the trunk has read it.
#[derive(Debug)]
struct Reading {
    cache: Vec<Tensor>,
    tokens: usize,
}

/// A part of a prompt as read, and its hidden states where the tail may want them.
#[derive(Debug)]
struct Part {
    reading: Reading,
    states: Option<Rc<States>>,
}

/// The constitution, read.
#[derive(Debug)]
pub struct Prefix(Rc<Part>);

/// An instruction and plan, after a constitution or after none.
#[derive(Debug)]
pub struct Posed {
    prefix: Rc<Part>,
    /// The instruction whole and by its sentences, each with the plan.
    tasks: Vec<Task>,
    /// The worst of them at the first scene that is asked about: the clean picture's, for the copies judge the same task.
    worst: OnceCell<Worst>,
    /// Perturbed copies often say the same sentence; the same sentence has the same margin.
    margins: RefCell<HashMap<String, Margin>>,
    /// Greedy traces by sentence and length allowed, and the margins after a trace by sentence and trace.
    traces: RefCell<HashMap<(String, usize), Trace>>,
    verdicts: RefCell<HashMap<(String, Vec<u32>), Margin>>,
}

/// The reading of an instruction that is judged.
#[derive(Debug)]
struct Worst {
    part: Part,
    /// What the text alone adds to the margin, by its worst step: the same for every image.
    task_share: f64,
}

/// What the eyes say.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    sentence: String,
    fingerprint: u64,
}

impl Observation {
    /// A written observation in the place of the eyes', for data that comes without images.
    #[must_use]
    pub fn written(text: &str) -> Self {
        let sentence = prompt::clean(text);
        let mut hasher = DefaultHasher::new();
        sentence.hash(&mut hasher);
        Self { sentence, fingerprint: hasher.finish() }
    }
}

impl Compact {
    /// Loads the proxy from its folder: `detector.onnx`, `tagger.onnx`, `judge_trunk.onnx`, `tokenizer.json` and
    /// `verdict_head.json`, and runs it once.
    ///
    /// # Errors
    /// When a file is missing, does not load, or does not fit the others.
    pub fn load(engine: &Engine, folder: &Path) -> Result<Self, LoadError> {
        Self::load_parts(engine, folder, None)
    }

    /// Loads the proxy with `judge_tail.onnx` besides, so that it writes traces too, of so many tokens at most. Its
    /// margins and its digest stay the same.
    ///
    /// # Errors
    /// As [`Compact::load`], or when the tokenizer splits the answers.
    pub fn load_with_traces(engine: &Engine, folder: &Path, trace_tokens_max: usize) -> Result<Self, LoadError> {
        Self::load_parts(engine, folder, Some(trace_tokens_max))
    }

    fn load_parts(engine: &Engine, folder: &Path, trace_tokens_max: Option<usize>) -> Result<Self, LoadError> {
        let [detector, tagger, trunk] =
            ["detector.onnx", "tagger.onnx", "judge_trunk.onnx"].map(|file| engine.model(&folder.join(file)));
        let (detector, tagger, trunk) = (detector?, tagger?, trunk?);
        let (prompt, tokenizer) = Prompt::load(&folder.join("tokenizer.json"))?;
        let (head, head_digest) = Head::load(&folder.join("verdict_head.json"))?;
        let names = |outlets: &[crate::proxy::onnx::Outlet], start: &str| -> Vec<String> {
            outlets.iter().map(|outlet| outlet.name.clone()).filter(|name| name.starts_with(start)).collect()
        };
        let (past_names, present_names) = (names(trunk.inputs(), "past."), names(trunk.outputs(), "present."));
        if past_names.len() != 2 * head.layer || present_names.len() != past_names.len() {
            let message = format!("it was trained on layer {}, the trunk has {}", head.layer, past_names.len() / 2);
            return Err(LoadError::Head { path: folder.join("verdict_head.json"), message });
        }
        let parts = [
            *detector.digest(),
            *tagger.digest(),
            *trunk.digest(),
            tokenizer,
            head_digest,
            prompt::layout(),
            prompt::readings_rule(),
        ];
        let digest = Digest::of(&parts.map(|part| *part.as_bytes()).concat());
        let speaker = match trace_tokens_max {
            Some(_) => {
                let tail = Tail::new(engine.model(&folder.join("judge_tail.onnx"))?);
                Some(Speaker { tail, speech: prompt.speech(&folder.join("tokenizer.json"))? })
            }
            None => None,
        };
        let trace_tokens_max = trace_tokens_max.unwrap_or(decoding::TRACE_TOKENS_MAX);
        let with = |speaker: &Speaker| {
            let parts = [digest, *speaker.tail.model.digest(), prompt::speech_layout()];
            traces_digest(Digest::of(&parts.map(|part| *part.as_bytes()).concat()), trace_tokens_max)
        };
        let card = Card {
            name: "compact".to_owned(),
            digest,
            prompt_layout: prompt::layout(),
            execution_provider: trunk.provider(),
            traces: speaker.as_ref().map(with),
            trace_tokens_max,
            safe_for_spread: true,
            context_tokens: CONTEXT_TOKENS,
            working_size: Some((SIDE, SIDE)),
        };
        let bare = prompt.prefix(None).map_err(LoadError::Warm)?;
        let mut proxy =
            Self { card, detector, tagger, trunk, past_names, present_names, prompt, head, bare: None, speaker };
        let (reading, hidden) = proxy.read(None, &bare)?;
        proxy.bare = Some(Rc::new(proxy.part(None, reading, hidden)));
        Ok(proxy)
    }

    /// Time spent inside ONNX Runtime since loading.
    #[must_use]
    pub fn engine_time(&self) -> Duration {
        let tail = self.speaker.as_ref().map(|speaker| speaker.tail.model.spent()).unwrap_or_default();
        self.detector.spent() + self.tagger.spent() + self.trunk.spent() + tail
    }

    /// What the detector alone sees in a picture at the working size, with boxes.
    ///
    /// # Errors
    /// When the picture has another size, or the engine fails.
    pub fn sightings(&mut self, image: &RgbImage) -> Result<Vec<Sighting>, Fault> {
        let found = self.detector.run([("image", &working(image)?)], &["score", "class", "box"])?;
        let [scores, classes, boxes] = found.as_slice() else {
            return Err(Fault::Engine("the detector gave too few outputs".to_owned()));
        };
        Ok(eyes::sightings(scores.as_f32()?, classes.as_i64()?, boxes.as_f32()?))
    }

    /// Runs the trunk over `tokens` after what was read before; gives the new reading and the hidden states, row-major
    /// `[tokens, WIDTH]`.
    fn read(&mut self, before: Option<&Reading>, tokens: &[i64]) -> Result<(Reading, Vec<f32>), Fault> {
        let start = before.map_or(0, |before| before.tokens);
        if start + tokens.len() > CONTEXT_TOKENS {
            return Err(Fault::ContextExceeded { tokens: start + tokens.len(), tokens_max: CONTEXT_TOKENS });
        }
        let mut hidden = Vec::with_capacity(tokens.len() * WIDTH);
        let mut reading: Option<Reading> = None;
        for chunk in tokens.chunks(CHUNK_TOKENS) {
            let after = self.step(reading.as_ref().or(before), chunk, &mut hidden)?;
            reading = Some(after);
        }
        let reading = reading.ok_or_else(|| Fault::Engine("nothing to read".to_owned()))?;
        sound("hidden", &hidden)?;
        Ok((reading, hidden))
    }

    fn step(&mut self, before: Option<&Reading>, chunk: &[i64], hidden: &mut Vec<f32>) -> Result<Reading, Fault> {
        let empty;
        let (cache, start) = match before {
            Some(before) => (&before.cache, before.tokens),
            None => {
                let nothing = |_| Tensor::f32(&[1, KV.0, 0, KV.1], Vec::new());
                empty = (0..self.past_names.len()).map(nothing).collect::<Result<Vec<_>, _>>()?;
                (&empty, 0)
            }
        };
        let tokens = start + chunk.len();
        let ids = Tensor::i64(&[1, chunk.len()], chunk.to_vec())?;
        let mask = Tensor::i64(&[1, tokens], vec![1; tokens])?;
        let past = self.past_names.iter().map(String::as_str).zip(cache);
        let inputs = [("input_ids", &ids), ("attention_mask", &mask)].into_iter().chain(past);
        let wanted: Vec<&str> =
            std::iter::once("hidden").chain(self.present_names.iter().map(String::as_str)).collect();
        let mut answered = self.trunk.run(inputs, &wanted)?.into_iter();
        let states = answered.next().ok_or_else(|| Fault::Engine("the trunk gave no hidden states".to_owned()))?;
        hidden.extend_from_slice(states.as_f32()?);
        Ok(Reading { cache: answered.collect(), tokens })
    }

    /// Keeps hidden states only where there is a tail to read them.
    fn part(&self, before: Option<&Part>, reading: Reading, hidden: Vec<f32>) -> Part {
        let before = before.and_then(|part| part.states.clone());
        Part { reading, states: self.speaker.is_some().then(|| States::new(before, hidden)) }
    }

    fn bare(&self) -> Result<Rc<Part>, Fault> {
        self.bare.clone().ok_or_else(|| Fault::Engine("the proxy has not warmed up".to_owned()))
    }

    /// The margin for a scene sentence, eyes' or written.
    fn judge(&mut self, posed: &Posed, sentence: &str) -> Result<Margin, Fault> {
        let worst = self.worst(posed, sentence)?;
        if let Some(margin) = posed.margins.borrow().get(sentence) {
            return Ok(*margin);
        }
        let suffix_share = self.suffix_share(&worst.part.reading, sentence)?;
        let margin = Margin::new(self.head.bias + worst.task_share + suffix_share)?;
        posed.margins.borrow_mut().insert(sentence.to_owned(), margin);
        Ok(margin)
    }

    /// Reads the task, the first time, and of its readings keeps the one that leans most to refuse at this scene.
    fn worst<'a>(&mut self, posed: &'a Posed, sentence: &str) -> Result<&'a Worst, Fault> {
        if let Some(worst) = posed.worst.get() {
            return Ok(worst);
        }
        let mut least: Option<(Margin, f64, Reading, Vec<f32>)> = None;
        for task in &posed.tasks {
            let (reading, hidden) = self.read(Some(&posed.prefix.reading), &task.tokens)?;
            let task_share = self.head.task_share(&hidden, task);
            let margin = Margin::new(self.head.bias + task_share + self.suffix_share(&reading, sentence)?)?;
            if least.as_ref().is_none_or(|(least, ..)| margin.nats() < least.nats()) {
                least = Some((margin, task_share, reading, hidden));
            }
        }
        let (margin, task_share, reading, hidden) =
            least.ok_or_else(|| Fault::Engine("there is nothing to read".to_owned()))?;
        posed.margins.borrow_mut().insert(sentence.to_owned(), margin);
        let part = self.part(Some(&posed.prefix), reading, hidden);
        Ok(posed.worst.get_or_init(|| Worst { part, task_share }))
    }

    /// What a scene sentence and the question add to the margin after this task.
    fn suffix_share(&mut self, task: &Reading, sentence: &str) -> Result<f64, Fault> {
        let suffix = self.prompt.suffix(sentence)?;
        let (_, hidden) = self.read(Some(task), &suffix)?;
        let last = hidden.chunks_exact(WIDTH).next_back().unwrap_or_default();
        let [_, _, mean_weights, last_weights] = self.head.blocks();
        Ok(dot(mean_weights, &mean_of_rows(hidden.chunks_exact(WIDTH))) + dot(last_weights, last))
    }
}

/// Where a trace stands: trunk and tail each with their own keys and values.
struct Voice {
    trunk: Reading,
    tail: Rc<Vec<Tensor>>,
}

impl Compact {
    /// Reads scene and question, and `more`, after the task with trunk and tail; gives the next token's logits.
    fn speak(&mut self, posed: &Posed, sentence: &str, more: &[i64]) -> Result<(Voice, Vec<f32>), Fault> {
        let part = &self.worst(posed, sentence)?.part;
        let (Some(speaker), Some(states)) = (&mut self.speaker, &part.states) else {
            return Err(Fault::Unsupported("write or read a trace: its tail is not loaded"));
        };
        let tail = speaker.tail.cache(states)?;
        let tokens = [self.prompt.suffix(sentence)?.as_slice(), more].concat();
        self.say(&part.reading, &tail, &tokens)
    }

    fn say(&mut self, trunk: &Reading, tail: &[Tensor], tokens: &[i64]) -> Result<(Voice, Vec<f32>), Fault> {
        let (trunk, hidden) = self.read(Some(trunk), tokens)?;
        let speaker = self.speaker.as_mut().ok_or(Fault::Unsupported("write a trace"))?;
        let (tail, row) = speaker.tail.read(tail, &hidden)?;
        Ok((Voice { trunk, tail: Rc::new(tail) }, row))
    }

    fn speech(&self) -> Result<Speech, Fault> {
        let speaker = self.speaker.as_ref();
        speaker.map(|speaker| speaker.speech.clone()).ok_or(Fault::Unsupported("write or read a trace"))
    }

    /// The margin after a trace: the judge's own yes against its own no. It is not the trained head's margin, which has
    /// never seen a trace, and no limit is held against it.
    fn judge_after(&mut self, posed: &Posed, sentence: &str, trace: &Trace) -> Result<Margin, Fault> {
        let key = (sentence.to_owned(), trace.tokens.clone());
        if let Some(margin) = posed.verdicts.borrow().get(&key) {
            return Ok(*margin);
        }
        let speech = self.speech()?;
        let said: Vec<i64> =
            trace.tokens.iter().copied().map(i64::from).chain(speech.verdict.iter().copied()).collect();
        let (_, row) = self.speak(posed, sentence, &said)?;
        let side = |numbers: &[u32]| {
            let logit = |number: &u32| usize::try_from(*number).ok().and_then(|index| row.get(index)).copied();
            numbers.iter().map(logit).collect::<Option<Vec<f32>>>()
        };
        let (Some(comply), Some(refuse)) = (side(&speech.comply), side(&speech.refuse)) else {
            return Err(Fault::Engine("the row is shorter than the vocabulary".to_owned()));
        };
        let margin = Margin::from_logits(comply, refuse)?;
        posed.verdicts.borrow_mut().insert(key, margin);
        Ok(margin)
    }
}

impl Head {
    fn load(path: &Path) -> Result<(Self, Digest), LoadError> {
        let failed = |message: String| LoadError::Head { path: path.to_owned(), message };
        let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let head: Self = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if head.weights.len() != BLOCKS * WIDTH || head.embedding_centre.len() != WIDTH {
            return Err(failed(format!("it has {} weights, not {}", head.weights.len(), BLOCKS * WIDTH)));
        }
        if !head.bias.is_finite() || head.weights.iter().any(|weight| !weight.is_finite()) {
            return Err(failed("a weight is not finite".to_owned()));
        }
        if head.prompt_layout != prompt::layout() {
            return Err(failed("it was trained for another prompt layout".to_owned()));
        }
        Ok((head, Digest::of(&text)))
    }

    /// The least share of the task's units, given its hidden states: a plan is as dangerous as its worst step, and bland
    /// steps around that one must not hide it.
    fn task_share(&self, hidden: &[f32], task: &Task) -> f64 {
        let [mean_weights, last_weights, _, _] = self.blocks();
        let row = |token: usize| hidden.get(token * WIDTH..(token + 1) * WIDTH).unwrap_or_default();
        let tokens = task.tokens.len();
        let content = tokens - TURN_END_TOKENS;
        // The head is linear, so a mean's share is the mean of shares: one product a token, however many steps.
        let shares: Vec<f64> = (0..tokens).map(|token| dot(mean_weights, row(token))).collect();
        let share = |ranges: &[Range<usize>]| {
            let parts = || ranges.iter().filter_map(|range| shares.get(range.clone()));
            let (sum, count) = (parts().flatten().sum::<f64>(), parts().map(<[f64]>::len).sum::<usize>());
            let last = ranges.iter().rev().nth(1).map_or(content, |range| range.end).saturating_sub(1);
            sum / f64::from(u32::try_from(count).unwrap_or(u32::MAX).max(1)) + dot(last_weights, row(last))
        };
        let whole = share(&[0..content, content..tokens]);
        let steps = task.steps.iter().filter(|_| task.steps.len() > 1);
        steps.map(|step| share(&[0..task.opening, step.clone(), content..tokens])).fold(whole, f64::min)
    }

    /// The weights of each block of the feature.
    fn blocks(&self) -> [&[f32]; BLOCKS] {
        let (task, suffix) = self.weights.split_at(2 * WIDTH);
        let ((task_mean, task_last), (suffix_mean, suffix_last)) = (task.split_at(WIDTH), suffix.split_at(WIDTH));
        [task_mean, task_last, suffix_mean, suffix_last]
    }
}

impl Proxy for Compact {
    type Prefix = Prefix;
    type Posed = Posed;
    type Observation = Observation;

    fn card(&self) -> &Card {
        &self.card
    }

    fn warm(&mut self, constitution: &str) -> Result<Prefix, Fault> {
        let tokens = self.prompt.prefix(Some(constitution))?;
        let (reading, hidden) = self.read(None, &tokens)?;
        Ok(Prefix(Rc::new(self.part(None, reading, hidden))))
    }

    fn pose(&mut self, prefix: Option<&Prefix>, question: &Question<'_>) -> Result<Posed, Fault> {
        let prefix = match prefix {
            Some(Prefix(part)) => Rc::clone(part),
            None => self.bare()?,
        };
        let readings = prompt::readings(question.instruction);
        // The whole, and its sentences.
        if readings.len() > 1 + SENTENCES_MAX {
            return Err(Fault::Unsupported("judge an instruction of more than 16 sentences or lines"));
        }
        let (mut tasks, mut tokens) = (Vec::with_capacity(readings.len()), prefix.reading.tokens);
        for instruction in readings {
            let task = self.prompt.task(&instruction, question.plan)?;
            tokens += task.tokens.len();
            // A long plan beside many sentences takes no longer than the longest prompt.
            if tokens > CONTEXT_TOKENS {
                return Err(Fault::ContextExceeded { tokens, tokens_max: CONTEXT_TOKENS });
            }
            tasks.push(task);
        }
        let (margins, traces, verdicts) = (RefCell::default(), RefCell::default(), RefCell::default());
        Ok(Posed { prefix, tasks, worst: OnceCell::new(), margins, traces, verdicts })
    }

    fn encode(&mut self, image: &RgbImage) -> Result<Observation, Fault> {
        let tensor = working(image)?;
        let found = self.detector.run([("image", &tensor)], &["score", "class", "box"])?;
        let tagged = self.tagger.run([("image", &tensor)], &["probability"])?;
        let ([scores, classes, boxes], [probability]) = (found.as_slice(), tagged.as_slice()) else {
            return Err(Fault::Engine("the eyes gave too few outputs".to_owned()));
        };
        let (scores, boxes, probability) = (scores.as_f32()?, boxes.as_f32()?, probability.as_f32()?);
        sound("score", scores)?;
        sound("box", boxes)?;
        sound("probability", probability)?;
        let mut hasher = DefaultHasher::new();
        for value in scores.iter().chain(boxes).chain(probability) {
            value.to_bits().hash(&mut hasher);
        }
        let sentence = eyes::sentence(scores, classes.as_i64()?, boxes, probability);
        Ok(Observation { sentence, fingerprint: hasher.finish() })
    }

    fn margin(&mut self, posed: &Posed, seen: &Observation, forced: Option<&Trace>) -> Result<Margin, Fault> {
        match forced {
            None => self.judge(posed, &seen.sentence),
            Some(trace) => self.judge_after(posed, &seen.sentence, trace),
        }
    }

    fn trace(
        &mut self,
        posed: &Posed,
        seen: &Observation,
        sampling: Sampling,
        budget: &dyn Budget,
    ) -> Result<Trace, Fault> {
        // Perturbed copies often say the same sentence; the same sentence has the same greedy trace.
        let key = (seen.sentence.clone(), sampling.tokens_max);
        let greedy = sampling.temperature <= 0.0;
        if let Some(trace) = posed.traces.borrow().get(&key).filter(|_| greedy) {
            return Ok(trace.clone());
        }
        let speech = self.speech()?;
        budget.check()?;
        let (mut voice, row) = self.speak(posed, &seen.sentence, &[])?;
        // Room for the verdict after the trace.
        let room = CONTEXT_TOKENS.saturating_sub(voice.trunk.tokens + speech.verdict.len());
        let sampling = Sampling { tokens_max: sampling.tokens_max.min(room), ..sampling };
        let decoded = decoding::decode(row, sampling, &speech.stops, budget, |token| {
            let (after, row) = self.say(&voice.trunk, &voice.tail, &[i64::from(token)])?;
            voice = after;
            Ok(row)
        })?;
        let text = decoding::without_thinking_tags(&self.prompt.decode(&decoded.tokens)?);
        let trace = Trace { text, tokens: decoded.tokens, finished: decoded.finished };
        if greedy {
            posed.traces.borrow_mut().insert(key, trace.clone());
        }
        Ok(trace)
    }

    fn fingerprint(&self, seen: &Observation) -> u64 {
        seen.fingerprint
    }

    fn describe(&self, seen: &Observation) -> Option<String> {
        Some(seen.sentence.clone())
    }

    fn embed(&mut self, text: &str) -> Result<Vec<f32>, Fault> {
        let (tokens, run) = self.prompt.bare_text(text)?;
        let bare = self.bare()?;
        let (_, hidden) = self.read(Some(&bare.reading), &tokens)?;
        let mut mean = mean_of_rows(hidden.chunks_exact(WIDTH).take(run.end).skip(run.start));
        for (value, centre) in mean.iter_mut().zip(&self.head.embedding_centre) {
            *value -= centre;
        }
        let norm = mean.iter().map(|value| value * value).sum::<f32>().sqrt();
        if !(norm.is_finite() && norm > 0.0) {
            return Err(Fault::NonFiniteTensor { tensor: "embedding".to_owned() });
        }
        Ok(mean.into_iter().map(|value| value / norm).collect())
    }
}

fn working(image: &RgbImage) -> Result<Tensor, Fault> {
    if image.dimensions() != (SIDE, SIDE) {
        return Err(Fault::Engine(format!("the working image is not {SIDE}×{SIDE}")));
    }
    let side = SIDE as usize;
    Tensor::u8(&[1, side, side, 3], image.as_raw().clone())
}

/// The mean of rows of [`WIDTH`]; zeros where there is none.
fn mean_of_rows<'a>(rows: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
    let (mut sum, mut count) = (vec![0.0_f32; WIDTH], 0.0_f32);
    for row in rows {
        for (total, value) in sum.iter_mut().zip(row) {
            *total += value;
        }
        count += 1.0;
    }
    sum.into_iter().map(|total| total / count.max(1.0)).collect()
}

fn dot(weights: &[f32], values: &[f32]) -> f64 {
    weights.iter().zip(values).map(|(&weight, &value)| f64::from(weight) * f64::from(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_weighs_what_its_worst_step_weighs() {
        // The mean counts a token's first value, the end its second.
        let mut weights = vec![0.0; BLOCKS * WIDTH];
        (weights[0], weights[WIDTH + 1]) = (1.0, 1.0);
        let head =
            Head { layer: 0, prompt_layout: prompt::layout(), weights, bias: 0.0, embedding_centre: vec![0.0; WIDTH] };
        // Opening of two tokens; steps of two, one and two with a newline between; the turn's end.
        let task = Task { tokens: vec![0; 11], opening: 2, steps: vec![2..4, 5..6, 7..9] };
        let firsts = [1.0, 1.0, 4.0, 4.0, 9.0, -5.0, 9.0, 6.0, 6.0, 1.0, 1.0];
        let seconds = [0.0, 0.0, 0.0, 0.5, 9.0, -2.0, 9.0, 0.0, 0.25, 9.0, 9.0];
        let hidden: Vec<f32> = firsts
            .iter()
            .zip(seconds)
            .flat_map(|(&first, second)| [first, second].into_iter().chain(vec![0.0; WIDTH - 2]))
            .collect();
        let share = |task: &Task| head.task_share(&hidden, task);
        // The second step: mean of 1, 1, −5, 1, 1 and −2 at its end.
        assert!((share(&task) - (-0.2 - 2.0)).abs() < 1e-6, "{}", share(&task));
        // One step, or none, is the whole: mean of all, and the last content token's end.
        for only in [Some(2..9), None] {
            let whole = Task { steps: only.into_iter().collect(), tokens: vec![0; 11], opening: 2 };
            assert!((share(&whole) - (37.0 / 11.0 + 0.25)).abs() < 1e-6, "{}", share(&whole));
        }
    }

    #[test]
    fn means_are_over_rows() {
        let mut rows = vec![1.0; 2 * WIDTH];
        rows[WIDTH..].fill(3.0);
        assert!(mean_of_rows(rows.chunks_exact(WIDTH)).iter().all(|value| (value - 2.0).abs() < f32::EPSILON));
        assert_eq!(mean_of_rows(std::iter::empty()).len(), WIDTH);
    }
}
