//! A1, trace ambiguity: how much the proxy's own reasoning wavers.
//!
//! Definition (first paper, signal A1): five marker-family densities, each `100 · matches / words`, and the length of
//! the trace in words: six features. Object ambiguity, conditional and hedge enter the composite; contrast and safety
//! mention are recorded beside them. Sign: never negative; more markers, more ambiguity. The lexicon is data
//! (`config/markers.toml`) with a version of its own; matches are checked on traces counted by hand in
//! `tests/signals.rs`.
//!
//! A word is a run of letters, digits and inner apostrophes; case does not matter. A phrase matches words that nothing
//! but blanks or hyphens separates. At each word the longest phrase of any family wins and its words are spent, so that
//! "not sure" is one hedge and not a negation besides.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Feature, Features};
use crate::statistics::count;

/// Longest phrase a lexicon may hold, in words.
pub const PHRASE_WORDS_MAX: usize = 8;
/// Most phrases a lexicon may hold.
pub const PHRASES_MAX: usize = 2_000;

/// A family of markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Which object is meant, or what it is, stays open.
    ObjectAmbiguity,
    /// Something holds only if something else does.
    Conditional,
    /// The writer does not commit.
    Hedge,
    /// Contrast and negation.
    Contrast,
    /// Safety, danger, rules.
    SafetyMention,
}

impl Family {
    /// All five.
    pub const ALL: [Self; 5] =
        [Self::ObjectAmbiguity, Self::Conditional, Self::Hedge, Self::Contrast, Self::SafetyMention];

    const fn feature(self) -> Feature {
        match self {
            Self::ObjectAmbiguity => Feature::ObjectAmbiguity,
            Self::Conditional => Feature::Conditional,
            Self::Hedge => Feature::Hedge,
            Self::Contrast => Feature::Contrast,
            Self::SafetyMention => Feature::SafetyMention,
        }
    }
}

/// The marker phrases of the five families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lexicon {
    version: u32,
    phrases: BTreeMap<Vec<String>, Family>,
}

/// Why a text is not a lexicon.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LexiconError {
    /// Not TOML, or a key is missing or unknown; names the line.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A phrase that is no sequence of words, or too long a one.
    #[error("the phrase {0:?} is not one to {PHRASE_WORDS_MAX} words without punctuation between them")]
    Phrase(String),
    /// A phrase given twice: its matches would belong to two families, or count double.
    #[error("the phrase {0:?} is given twice")]
    Duplicate(String),
    /// A family without phrases would have a density of zero whatever the trace says.
    #[error("a family has no phrases")]
    EmptyFamily,
    /// More phrases than the bound.
    #[error("{0} phrases; at most {PHRASES_MAX} are accepted")]
    TooMany(usize),
}

/// A trace without a single word has no densities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the trace has no words")]
pub struct NoWords;

/// A1: what was counted in one trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceAmbiguity {
    words: usize,
    matches: BTreeMap<Family, usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    object_ambiguity: Vec<String>,
    conditional: Vec<String>,
    hedge: Vec<String>,
    contrast: Vec<String>,
    safety_mention: Vec<String>,
}

/// The lexicon of this program.
const SHIPPED: &str = include_str!("../../config/markers.toml");

impl Lexicon {
    /// The six features, in the order records have them.
    pub const ORDER: [Feature; 6] = [
        Feature::ObjectAmbiguity,
        Feature::Conditional,
        Feature::Hedge,
        Feature::Contrast,
        Feature::SafetyMention,
        Feature::TraceWords,
    ];

    /// The lexicon this program was built with.
    ///
    /// # Errors
    /// When that file is no lexicon.
    pub fn shipped() -> Result<Self, LexiconError> {
        Self::parse(SHIPPED)
    }

    /// Reads a lexicon file's text.
    ///
    /// # Errors
    /// When a key is missing or unknown, a family is empty, or a phrase is no phrase or given twice.
    pub fn parse(text: &str) -> Result<Self, LexiconError> {
        let file: File = toml::from_str(text)?;
        let families = [
            (Family::ObjectAmbiguity, file.object_ambiguity),
            (Family::Conditional, file.conditional),
            (Family::Hedge, file.hedge),
            (Family::Contrast, file.contrast),
            (Family::SafetyMention, file.safety_mention),
        ];
        let total = families.iter().map(|(_, phrases)| phrases.len()).sum();
        if total > PHRASES_MAX {
            return Err(LexiconError::TooMany(total));
        }
        let mut phrases = BTreeMap::new();
        for (family, list) in families {
            if list.is_empty() {
                return Err(LexiconError::EmptyFamily);
            }
            for phrase in list {
                if phrases.insert(words_of_phrase(&phrase)?, family).is_some() {
                    return Err(LexiconError::Duplicate(phrase));
                }
            }
        }
        Ok(Self { version: file.version, phrases })
    }

    /// The lexicon's own version; densities of different versions do not compare.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Counts the markers of a trace.
    ///
    /// # Errors
    /// When the trace has no words.
    pub fn measure(&self, trace: &str) -> Result<TraceAmbiguity, NoWords> {
        let mut counted = TraceAmbiguity { words: 0, matches: Family::ALL.map(|family| (family, 0)).into() };
        for run in runs(trace) {
            counted.words += run.len();
            let mut rest = run.as_slice();
            while let Some((_, after_first)) = rest.split_first() {
                rest = match self.longest(rest) {
                    None => after_first,
                    Some((family, spent)) => {
                        *counted.matches.entry(family).or_default() += 1;
                        rest.get(spent..).unwrap_or_default()
                    }
                };
            }
        }
        if counted.words == 0 { Err(NoWords) } else { Ok(counted) }
    }

    /// The longest phrase these words begin with, and its length.
    fn longest(&self, words: &[String]) -> Option<(Family, usize)> {
        let lengths = (1..=PHRASE_WORDS_MAX.min(words.len())).rev();
        lengths.filter_map(|length| Some((*self.phrases.get(words.get(..length)?)?, length))).next()
    }
}

impl TraceAmbiguity {
    /// Length of the trace in words; at least 1.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.words
    }

    /// Markers of this family found.
    #[must_use]
    pub fn matches(&self, family: Family) -> usize {
        self.matches.get(&family).copied().unwrap_or_default()
    }

    /// Markers of this family per 100 words.
    #[must_use]
    pub fn density(&self, family: Family) -> f64 {
        100.0 * count(self.matches(family)) / count(self.words)
    }

    /// The six features.
    #[must_use]
    pub fn features(&self) -> Features {
        let densities = Family::ALL.map(|family| (family.feature(), self.density(family)));
        densities.into_iter().chain([(Feature::TraceWords, count(self.words))]).collect()
    }
}

/// The words of a text, case folded, in runs that nothing but blanks and hyphens interrupts.
fn runs(text: &str) -> Vec<Vec<String>> {
    // Typographic apostrophes are what models write; folding them makes "can’t" and "can't" one word.
    let folded = text.replace(['\u{2018}', '\u{2019}'], "'").to_lowercase();
    let between = |c: char| c.is_whitespace() || matches!(c, '-' | '\u{2010}' | '\u{2011}');
    let interrupts = |c: char| !(c.is_alphanumeric() || c == '\'' || between(c));
    let words = |run: &str| -> Vec<String> {
        let words = run.split(between).map(|word| word.trim_matches('\''));
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    folded.split(interrupts).map(words).collect()
}

fn words_of_phrase(phrase: &str) -> Result<Vec<String>, LexiconError> {
    match <[_; 1]>::try_from(runs(phrase)) {
        Ok([words]) if (1..=PHRASE_WORDS_MAX).contains(&words.len()) => Ok(words),
        _ => Err(LexiconError::Phrase(phrase.to_owned())),
    }
}
