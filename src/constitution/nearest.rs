//! Constitution proximity: how near a task lies to the rules, and to which.
//!
//! Two measures, both cosines in −1..=1 where 1 is the same direction: [`by_embedding`] compares a proxy's embeddings,
//! [`Lexicon`] compares words alone and needs no model. Neither decides anything; they name the rules an answer shows
//! a person, and the greatest similarity goes into the record.

use std::collections::BTreeMap;

use serde::Serialize;

use super::words::{Token, stem, tokens};
use super::{Category, Constitution, Rule};

/// How far the squared norm of a unit-norm embedding may lie from 1: what half precision leaves.
pub const NORM_TOLERANCE: f64 = 5e-3;

/// A rule and how near a task lies to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NearRule {
    /// The rule's number.
    pub number: u16,
    /// Cosine similarity; greater is nearer.
    pub similarity: f64,
    /// The kind of harm the rule is about.
    pub category: Category,
    /// The rule's text.
    pub text: String,
}

impl NearRule {
    fn new(rule: &Rule, similarity: f64) -> Self {
        Self { number: rule.number, similarity, category: rule.category, text: rule.text.clone() }
    }
}

/// The rules nearest a task, nearest first; equally near ones by number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proximity {
    nearest: Vec<NearRule>,
}

impl Proximity {
    fn of(mut rules: Vec<NearRule>, count_max: usize) -> Self {
        rules.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(a.number.cmp(&b.number)));
        rules.truncate(count_max);
        Self { nearest: rules }
    }

    /// The rules, nearest first.
    #[must_use]
    pub fn nearest(&self) -> &[NearRule] {
        &self.nearest
    }

    /// The greatest similarity of any rule: constitution proximity. `None` where no rule is near at all.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.nearest.first().map(|near| near.similarity)
    }
}

/// Why embeddings cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ProximityError {
    /// Not one embedding a rule.
    #[error("{embeddings} embeddings for {rules} rules")]
    Count {
        /// Embeddings given.
        embeddings: usize,
        /// Rules there are.
        rules: usize,
    },
    /// Embeddings of different length, or of none.
    #[error("an embedding of rule {number} has {found} values; the task's has {expected}")]
    Dimensions {
        /// The rule's number.
        number: u16,
        /// Values of the rule's embedding.
        found: usize,
        /// Values of the task's embedding.
        expected: usize,
    },
    /// An embedding that is not of unit norm, or not finite.
    #[error("an embedding has squared norm {norm_squared}, not 1")]
    Norm {
        /// The squared norm found.
        norm_squared: f64,
    },
}

/// The `count_max` rules nearest the task by the cosine of unit-norm embeddings, `rules` in the constitution's order.
///
/// # Errors
/// When the embeddings do not match the rules or each other, or one is not finite and of unit norm.
pub fn by_embedding(
    constitution: &Constitution,
    rules: &[Vec<f32>],
    task: &[f32],
    count_max: usize,
) -> Result<Proximity, ProximityError> {
    if rules.len() != constitution.rules().len() {
        return Err(ProximityError::Count { embeddings: rules.len(), rules: constitution.rules().len() });
    }
    admit_norm(task)?;
    let near = constitution.rules().iter().zip(rules).map(|(rule, embedding)| {
        if embedding.len() != task.len() {
            let (found, expected) = (embedding.len(), task.len());
            return Err(ProximityError::Dimensions { number: rule.number, found, expected });
        }
        admit_norm(embedding)?;
        // Rounding can carry the cosine of equal vectors a hair past 1.
        Ok(NearRule::new(rule, dot(embedding, task).clamp(-1.0, 1.0)))
    });
    Ok(Proximity::of(near.collect::<Result<_, _>>()?, count_max))
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn admit_norm(embedding: &[f32]) -> Result<(), ProximityError> {
    let norm_squared = dot(embedding, embedding);
    // Written so that NaN, which compares false with everything, is refused.
    if (norm_squared - 1.0).abs() <= NORM_TOLERANCE { Ok(()) } else { Err(ProximityError::Norm { norm_squared }) }
}

/// The rules' words, weighed for comparison with a task's: TF-IDF with `tf = 1 + ln n` and
/// `idf = ln((1 + rules) / (1 + rules with the word)) + 1` (scikit-learn's `sublinear_tf` and `smooth_idf`), over
/// stemmed words without the function words every rule is made of. Words no rule has count for nothing.
#[derive(Debug, Clone)]
pub struct Lexicon {
    idf: BTreeMap<String, f64>,
    rules: Vec<(NearRule, BTreeMap<String, f64>)>,
}

impl Lexicon {
    /// The lexicon of a constitution.
    #[must_use]
    pub fn of(constitution: &Constitution) -> Self {
        let counted: Vec<BTreeMap<String, f64>> =
            constitution.rules().iter().map(|rule| count([rule.text.as_str()])).collect();
        let mut rules_with: BTreeMap<String, f64> = BTreeMap::new();
        for word in counted.iter().flat_map(BTreeMap::keys) {
            *rules_with.entry(word.clone()).or_default() += 1.0;
        }
        let rules: f64 = counted.iter().map(|_| 1.0).sum();
        let idf = rules_with.into_iter().map(|(word, with)| (word, ((1.0 + rules) / (1.0 + with)).ln() + 1.0));
        let idf: BTreeMap<String, f64> = idf.collect();
        let weighed = constitution.rules().iter().zip(counted);
        let rules = weighed.map(|(rule, counts)| (NearRule::new(rule, 0.0), weigh(&idf, &counts))).collect();
        Self { idf, rules }
    }

    /// The rules nearest these texts taken together (instruction, plan, words for the scene), at most `count_max`.
    /// Rules that share no word with them are left out.
    #[must_use]
    pub fn nearest<'t>(&self, texts: impl IntoIterator<Item = &'t str>, count_max: usize) -> Proximity {
        let task = weigh(&self.idf, &count(texts));
        let near = self.rules.iter().map(|(rule, words)| {
            let similarity = similarity(words, &task);
            NearRule { similarity, ..rule.clone() }
        });
        Proximity::of(near.filter(|near| near.similarity > 0.0).collect(), count_max)
    }

    /// The similarity of every pair of rules at least this near, by position in the constitution; earlier rule first.
    pub(super) fn pairs(&self, similarity_min: f64) -> impl Iterator<Item = (usize, usize, f64)> {
        let pairs = self.rules.iter().enumerate().flat_map(move |(a, (_, words))| {
            let later = self.rules.iter().enumerate().skip(a + 1);
            later.map(move |(b, (_, others))| (a, b, similarity(words, others)))
        });
        pairs.filter(move |(_, _, similarity)| *similarity >= similarity_min)
    }
}

/// How often each stem that says something occurs.
fn count<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for token in texts.into_iter().flat_map(tokens) {
        if let Some(word) = token.word().filter(|word| word.chars().count() > 1 && !FUNCTION_WORDS.contains(word)) {
            *counts.entry(stem(word)).or_default() += 1.0;
        }
    }
    counts
}

/// The share of a reference's words that occur in a text: stems, without function words, each counted once. `None`
/// where the reference has no such word.
#[must_use]
pub fn word_recall(reference: &str, text: &str) -> Option<f64> {
    let (wanted, held) = (count([reference]), count([text]));
    if wanted.is_empty() {
        return None;
    }
    let each = wanted.keys().map(|word| f64::from(u8::from(held.contains_key(word))));
    crate::statistics::mean(&each.collect::<Vec<_>>()).ok()
}

/// Whether the token is one that says what a sentence is about.
pub(super) fn is_content(token: &Token) -> bool {
    token.word().is_some_and(|word| !FUNCTION_WORDS.contains(&word))
}

/// A unit-norm TF-IDF vector; empty where no word is known.
fn weigh(idf: &BTreeMap<String, f64>, counts: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let weights = counts.iter().filter_map(|(word, n)| Some((word.clone(), (1.0 + n.ln()) * idf.get(word)?)));
    let mut weights: BTreeMap<String, f64> = weights.collect();
    let norm = weights.values().map(|weight| weight * weight).sum::<f64>().sqrt();
    weights.values_mut().for_each(|weight| *weight /= norm);
    weights
}

fn similarity(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> f64 {
    a.iter().filter_map(|(word, weight)| Some(weight * b.get(word)?)).sum::<f64>().clamp(0.0, 1.0)
}

const FUNCTION_WORDS: &[&str] = &[
    "a", "an", "the", "and", "or", "of", "to", "in", "on", "at", "by", "for", "from", "with", "without", "into",
    "onto", "off", "out", "over", "up", "is", "are", "be", "been", "was", "were", "it", "its", "this", "that", "these",
    "those", "as", "if", "then", "than", "so", "not", "no", "never", "do", "does", "don't", "must", "should", "can",
    "cannot", "may", "will", "i", "you", "your", "my", "we", "them", "they", "their", "there", "where", "when",
    "while", "which", "who", "whom", "what", "only", "keep", "let", "other", "some", "any", "all", "one", "near",
    "away", "step", "robot", "please", "now", "after", "before", "once", "more", "has", "have",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that are their own stems, so that any TF-IDF sees the same tokens.
    const SMALL: &str = r#"
[robot]
base = "mobile base"
arms = 1
arm_dof = 7
gripper = "parallel gripper"
payload_kg = 3
reach_m = 0.9
lift_height_m = 1.6
speed_m_per_s = 1.0
cannot = []
[[rule]]
number = 1
category = "fire"
text = "metal foil oven metal"
severity = 1
likelihood = 1
source = "none"
[[rule]]
number = 2
category = "burns"
text = "hot oil oven"
severity = 1
likelihood = 1
source = "none"
[[rule]]
number = 3
category = "cuts"
text = "sharp blad cup"
severity = 1
likelihood = 1
source = "none"
"#;

    fn small() -> Constitution {
        Constitution::parse(SMALL).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn word_similarity_equals_scikit_learn() {
        // tests/reference/lexicon.py
        let proximity = Lexicon::of(&small()).nearest(["hot metal", "oven oven cup zebra"], 3);
        let found: Vec<(u16, f64)> = proximity.nearest().iter().map(|near| (near.number, near.similarity)).collect();
        let expected = include!("../../tests/reference/lexicon.in");
        assert_eq!(found.len(), expected.len());
        for ((number, similarity), (expected_number, expected_similarity)) in found.into_iter().zip(expected) {
            assert_eq!(number, expected_number);
            assert!((similarity - expected_similarity).abs() < 1e-12, "{number}: {similarity}");
        }
    }

    #[test]
    fn a_task_without_a_known_word_is_near_nothing() {
        let proximity = Lexicon::of(&small()).nearest(["zebra", "", "😀"], 3);
        assert_eq!((proximity.max(), proximity.nearest()), (None, &[][..]));
    }

    #[test]
    fn embeddings_are_ranked_by_cosine_and_ties_by_number() {
        let rules = [vec![0.6, 0.8], vec![1.0, 0.0], vec![0.6, 0.8]];
        let proximity = by_embedding(&small(), &rules, &[0.0, 1.0], 2).expect("unit norm");
        let numbers: Vec<u16> = proximity.nearest().iter().map(|near| near.number).collect();
        assert_eq!(numbers, [1, 3]);
        assert!((proximity.max().expect("some") - 0.8).abs() < 1e-6);
        let opposite = by_embedding(&small(), &rules, &[-1.0, 0.0], 3).expect("unit norm");
        assert!((opposite.max().expect("some") + 0.6).abs() < 1e-6, "all away, still a maximum");
    }

    #[test]
    fn embeddings_that_cannot_be_compared_are_refused() {
        let unit = vec![1.0, 0.0];
        let rules = |last: Vec<f32>| [unit.clone(), unit.clone(), last];
        let refused = |rules: &[Vec<f32>], task: &[f32]| by_embedding(&small(), rules, task, 1).expect_err("refused");
        assert_eq!(refused(&rules(unit.clone())[..2], &unit), ProximityError::Count { embeddings: 2, rules: 3 });
        let short = ProximityError::Dimensions { number: 3, found: 1, expected: 2 };
        assert_eq!(refused(&rules(vec![1.0]), &unit), short);
        for bad in [[f32::NAN, 0.0], [0.0, 0.0], [f32::INFINITY, 0.0], [1.0, 1.0]] {
            assert!(matches!(refused(&rules(bad.to_vec()), &unit), ProximityError::Norm { .. }));
            assert!(matches!(refused(&rules(unit.clone()), &bad), ProximityError::Norm { .. }));
        }
        assert!(matches!(refused(&rules(unit.clone()), &[]), ProximityError::Norm { .. }));
    }
}
