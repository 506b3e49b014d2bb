//! The judge's upper layers and its vocabulary. Margins do without them; they are loaded where traces are wanted.
//!
//! The trunk's hidden states go in, the next token's logits come out, and the tail has keys and values of its own. A
//! prompt's states are kept until the tail is first asked to speak after it, and are read only then: a check that wants
//! no trace pays nothing.

use std::cell::OnceCell;
use std::rc::Rc;

use super::{CHUNK_TOKENS, KV, WIDTH};
use crate::proxy::Fault;
use crate::proxy::onnx::{Model, Tensor, sound};

/// Hidden states of a part of a prompt, and the tail's keys and values once it has read them.
#[derive(Debug)]
pub struct States {
    before: Option<Rc<States>>,
    hidden: Vec<f32>,
    cache: OnceCell<Rc<Vec<Tensor>>>,
}

/// The tail.
#[derive(Debug)]
pub struct Tail {
    /// The session.
    pub model: Model,
    past_names: Vec<String>,
    present_names: Vec<String>,
}

impl States {
    /// The states of a part that follows another, not read by the tail yet.
    pub fn new(before: Option<Rc<Self>>, hidden: Vec<f32>) -> Rc<Self> {
        Rc::new(Self { before, hidden, cache: OnceCell::new() })
    }
}

impl Tail {
    /// Takes the session's names for its keys and values.
    pub fn new(model: Model) -> Self {
        let names = |outlets: &[crate::proxy::onnx::Outlet], start: &str| -> Vec<String> {
            outlets.iter().map(|outlet| outlet.name.clone()).filter(|name| name.starts_with(start)).collect()
        };
        let (past_names, present_names) = (names(model.inputs(), "past."), names(model.outputs(), "present."));
        Self { model, past_names, present_names }
    }

    /// Keys and values after these states, read now where they were not before.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn cache(&mut self, states: &States) -> Result<Rc<Vec<Tensor>>, Fault> {
        if let Some(cache) = states.cache.get() {
            return Ok(Rc::clone(cache));
        }
        let before = match &states.before {
            Some(before) => self.cache(before)?,
            None => {
                let nothing = |_| Tensor::f32(&[1, KV.0, 0, KV.1], Vec::new());
                Rc::new((0..self.past_names.len()).map(nothing).collect::<Result<Vec<_>, _>>()?)
            }
        };
        let (cache, _) = self.read(&before, &states.hidden)?;
        Ok(Rc::clone(states.cache.get_or_init(|| Rc::new(cache))))
    }

    /// Reads hidden states after what was read before; gives the new keys and values and the next token's logits.
    ///
    /// # Errors
    /// When there is nothing to read, the engine fails, or a logit is not finite or all are zero.
    pub fn read(&mut self, before: &[Tensor], hidden: &[f32]) -> Result<(Vec<Tensor>, Vec<f32>), Fault> {
        let mut read: Option<(Vec<Tensor>, Vec<f32>)> = None;
        for chunk in hidden.chunks(CHUNK_TOKENS * WIDTH) {
            let past = read.as_ref().map_or(before, |(cache, _)| cache.as_slice());
            read = Some(self.step(past, chunk)?);
        }
        let (cache, row) = read.ok_or_else(|| Fault::Engine("nothing to read".to_owned()))?;
        sound("logits", &row)?;
        Ok((cache, row))
    }

    fn step(&mut self, past: &[Tensor], chunk: &[f32]) -> Result<(Vec<Tensor>, Vec<f32>), Fault> {
        let before = past.first().and_then(|keys| keys.shape().get(2).copied()).unwrap_or(0);
        let length = chunk.len() / WIDTH;
        let hidden = Tensor::f32(&[1, length, WIDTH], chunk.to_vec())?;
        let mask = Tensor::i64(&[1, before + length], vec![1; before + length])?;
        let past = self.past_names.iter().map(String::as_str).zip(past);
        let inputs = [("hidden", &hidden), ("attention_mask", &mask)].into_iter().chain(past);
        let wanted: Vec<&str> =
            std::iter::once("logits").chain(self.present_names.iter().map(String::as_str)).collect();
        let mut answered = self.model.run(inputs, &wanted)?.into_iter();
        let logits = answered.next().ok_or_else(|| Fault::Engine("the tail gave no logits".to_owned()))?;
        Ok((answered.collect(), logits.last_row()?))
    }
}
