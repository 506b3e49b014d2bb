//! From next-token rows to a reasoning trace: greedy or sampled, until a stop token, a limit or the deadline.
//!
//! Sampling follows the usual order: temperature, then the `top_k` most likely tokens, then the smallest set of most
//! likely tokens whose mass reaches `top_p`. Draws come from a ChaCha8 keystream, so that a seed names one trace.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::proxy::{Budget, Fault, Sampling};

/// Longest trace any proxy writes, in tokens, whatever a caller asks for.
pub const TRACE_TOKENS_MAX: usize = 2048;

/// Marks that reasoning models put around what they think. They are no part of the reasoning.
const THINKING_TAGS: [&str; 10] = [
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
    "<reasoning>",
    "</reasoning>",
    "<mm:think>",
    "</mm:think>",
    "[think]",
    "[/think]",
];

/// What was decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The tokens, without the stop token.
    pub tokens: Vec<u32>,
    /// Whether a stop token ended them, not a limit.
    pub finished: bool,
}

/// Decodes from the row after the prompt. `step` reads one token and gives the row after it; it is not called for the
/// last token.
///
/// # Errors
/// [`Fault::DeadlinePassed`] once the budget is spent, a row without a usable token, or whatever `step` failed with.
pub fn decode(
    mut row: Vec<f32>,
    sampling: Sampling,
    stops: &[u32],
    budget: &dyn Budget,
    mut step: impl FnMut(u32) -> Result<Vec<f32>, Fault>,
) -> Result<Decoded, Fault> {
    let tokens_max = sampling.tokens_max.min(TRACE_TOKENS_MAX);
    let mut sampler = Sampler::new(sampling);
    let mut tokens = Vec::new();
    while tokens.len() < tokens_max {
        budget.check()?;
        let token = sampler.draw(&row)?;
        if stops.contains(&token) {
            return Ok(Decoded { tokens, finished: true });
        }
        tokens.push(token);
        if tokens.len() < tokens_max {
            row = step(token)?;
        }
    }
    Ok(Decoded { tokens, finished: false })
}

/// Draws one token after another.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    stream: ChaCha8Rng,
    /// The last draw's [`keep`]: a row's worth of memory that is not asked of the system anew for each token.
    kept: Vec<(u32, f64)>,
}

impl Sampler {
    /// A sampler at the start of its seed's keystream.
    #[must_use]
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, stream: ChaCha8Rng::seed_from_u64(sampling.seed), kept: Vec::new() }
    }

    /// The next token. Greedy decoding takes the first of the highest logits and draws nothing from the keystream.
    ///
    /// # Errors
    /// When the row holds a value that is not finite, or nothing.
    pub fn draw(&mut self, row: &[f32]) -> Result<u32, Fault> {
        if row.iter().any(|logit| !logit.is_finite()) {
            return Err(Fault::NonFiniteTensor { tensor: "logits".to_owned() });
        }
        if self.sampling.temperature <= 0.0 {
            return greedy(row).ok_or_else(no_token);
        }
        keep(row, &self.sampling, &mut self.kept);
        // 53 random bits make every multiple of 2⁻⁵³ in [0, 1) equally likely.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let mut mass = (self.stream.next_u64() >> 11) as f64 * f64::exp2(-53.0);
        for &(token, probability) in &self.kept {
            mass -= probability;
            if mass < 0.0 {
                return Ok(token);
            }
        }
        // Rounding can leave a last crumb of mass.
        self.kept.last().map(|&(token, _)| token).ok_or_else(no_token)
    }
}

fn no_token() -> Fault {
    Fault::Engine("the model gave no next token".to_owned())
}

/// The first of the highest logits.
#[must_use]
pub fn greedy(row: &[f32]) -> Option<u32> {
    let mut best: Option<(usize, f32)> = None;
    for (index, &logit) in row.iter().enumerate() {
        if best.is_none_or(|(_, most)| logit > most) {
            best = Some((index, logit));
        }
    }
    best.and_then(|(index, _)| u32::try_from(index).ok())
}

/// Puts into `kept` the tokens that temperature, `top_k` and `top_p` leave, with their probabilities, which sum to 1. In token
/// order where nothing is left out, else from most to least likely; the temperature must be positive.
fn keep(row: &[f32], sampling: &Sampling, kept: &mut Vec<(u32, f64)>) {
    let temperature = f64::from(sampling.temperature);
    let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weigh = |(token, &logit): (u32, &f32)| (token, (f64::from(logit - highest) / temperature).exp());
    kept.clear();
    kept.extend((0..).zip(row).map(weigh));
    let cut = (sampling.top_k > 0 && sampling.top_k < kept.len()) || sampling.top_p < 1.0;
    if cut {
        kept.sort_unstable_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        if sampling.top_k > 0 {
            kept.truncate(sampling.top_k);
        }
        let whole: f64 = kept.iter().map(|&(_, weight)| weight).sum();
        let nucleus = whole * f64::from(sampling.top_p);
        let mut before = 0.0;
        let enough = kept.iter().position(|&(_, weight)| {
            before += weight;
            before >= nucleus
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
    let whole: f64 = kept.iter().map(|&(_, weight)| weight).sum();
    kept.iter_mut().for_each(|(_, weight)| *weight /= whole);
}

/// The text without thinking tags, in any case, and without white space at its ends. What stands between the tags stays:
/// it is the reasoning.
#[must_use]
pub fn without_thinking_tags(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some(letter) = rest.chars().next() {
        let tag =
            THINKING_TAGS.iter().find(|tag| rest.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)));
        match tag {
            Some(tag) => rest = rest.get(tag.len()..).unwrap_or_default(),
            None => {
                plain.push(letter);
                rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            }
        }
    }
    plain.trim().to_owned()
}

/// Whether a text ends inside a thinking block: its last opening tag has no closing one after it.
#[must_use]
pub fn ends_thinking(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let last = |closing: bool| {
        let of_kind = |tag: &&&str| (tag.starts_with("</") || tag.starts_with("[/")) == closing;
        THINKING_TAGS.iter().filter(of_kind).filter_map(|tag| lower.rfind(*tag)).max()
    };
    match (last(false), last(true)) {
        (Some(opened), Some(closed)) => opened > closed,
        (opened, _) => opened.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Unbounded;
    use std::cell::Cell;
    use std::ops::ControlFlow;

    const SAMPLING: Sampling = Sampling { temperature: 0.7, top_p: 1.0, top_k: 0, seed: 7, tokens_max: 8 };

    #[test]
    fn kept_tokens_equal_an_independent_computation() {
        // numpy: softmax of x / 0.7, sorted, cut to 4, renormalised, cut at a mass of 0.8, renormalised.
        let row = [1.0, 3.0, 2.5, -1.0, 2.0, 0.5];
        let mut kept = vec![(9, 0.5)];
        keep(&row, &Sampling { top_k: 4, top_p: 0.8, ..SAMPLING }, &mut kept);
        let expected = [(1, 0.671_347_453), (2, 0.328_652_547)];
        assert_eq!(kept.len(), expected.len(), "{kept:?}");
        for ((token, probability), (expected_token, expected_probability)) in kept.into_iter().zip(expected) {
            assert_eq!(token, expected_token);
            assert!((probability - expected_probability).abs() < 1e-6, "{probability}");
        }
    }

    #[test]
    fn a_seed_names_one_trace_and_frequencies_follow_the_distribution() {
        let row = [0.0, 1.0, 2.0];
        let draws = |seed| {
            let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed, ..SAMPLING });
            (0..4000).map(|_| sampler.draw(&row).expect("finite")).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        let mut used = Sampler::new(Sampling { temperature: 1.0, seed: 1, ..SAMPLING });
        used.draw(&[5.0; 40]).expect("finite");
        let shorter: Vec<u32> = (0..100).map(|_| used.draw(&row).expect("finite")).collect();
        assert!(shorter.iter().all(|&token| token < 3), "no token of a row before: {shorter:?}");
        let most = draws(3).iter().filter(|&&token| token == 2).count();
        assert!((2500..2820).contains(&most), "softmax gives token 2 a share of .665: {most}");
    }

    #[test]
    fn decoding_stops_at_stop_tokens_limits_and_deadlines() {
        let row_for = |token: u32| (0..5).map(|index| f32::from(u8::from(index == token))).collect::<Vec<f32>>();
        let greedy = Sampling { temperature: 0.0, ..SAMPLING };
        let counted = |token: u32| Ok(row_for((token + 1) % 5));
        let ended = decode(row_for(1), greedy, &[4], &Unbounded, counted).expect("decodes");
        assert_eq!(ended, Decoded { tokens: vec![1, 2, 3], finished: true });
        let cut = decode(row_for(1), greedy, &[], &Unbounded, counted).expect("decodes");
        assert_eq!((cut.tokens.len(), cut.finished), (8, false));

        struct Three(Cell<u32>);
        impl Budget for Three {
            fn spend(&self) -> ControlFlow<()> {
                self.0.set(self.0.get() + 1);
                if self.0.get() > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        }
        let late = decode(row_for(1), greedy, &[], &Three(Cell::new(0)), counted);
        assert_eq!(late, Err(Fault::DeadlinePassed));
        let broken = decode(vec![0.0, f32::NAN], greedy, &[], &Unbounded, counted);
        assert_eq!(broken, Err(Fault::NonFiniteTensor { tensor: "logits".to_owned() }));
    }

    #[test]
    fn thinking_tags_go_and_reasoning_stays() {
        for (text, plain) in [
            ("<think>maybe hot</think> no", "maybe hot no"),
            ("<THINK>\nmaybe\n</Think>", "maybe"),
            ("[THINK]if[/THINK]", "if"),
            ("orphan</think>", "orphan"),
            ("a < b", "a < b"),
            ("é<think>", "é"),
        ] {
            assert_eq!(without_thinking_tags(text), plain);
        }
        assert!(ends_thinking("<think>so"));
        assert!(!ends_thinking("<think>so</think>"));
        assert!(ends_thinking("<think>so</think><think>"));
        assert!(!ends_thinking("so"));
    }
}
