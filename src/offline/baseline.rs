//! The text-only baseline: what words alone give away, to be printed beside every figure.
//!
//! Word 1- and 2-grams of instruction and plan, present or not, in an L2-regularised logistic regression. Rows are
//! scored by a model that has not seen their scene: trained on the other parts of the split where one is being
//! judged, else by cross-validation grouped by scene.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::datasets::{DataError, DataSet, Part, Row};
use crate::statistics::{Label, Line, Regression, Undefined, logistic_regression, stratified_folds};
use crate::triple::Digest;

/// Most rows it learns from, and most it scores, drawn by hash.
pub const ROWS_MAX: usize = 2_000;
/// Most n-grams, the commonest first.
const GRAMS_MAX: usize = 1_500;
/// Rows an n-gram must occur in.
const OCCURRENCES_MIN: usize = 2;
/// λ of the regression: scikit-learn's C = 1.
const PENALTY: f64 = 1.0;
/// Folds where no part is being judged.
const FOLDS: usize = 5;

struct Text {
    uid: String,
    scene: String,
    positive: bool,
    grams: HashSet<String>,
}

/// Scores by uid, in log-odds of *unsafe*; rows that were not drawn have none.
///
/// # Errors
/// When the data cannot be read.
pub fn scores(
    data: &DataSet,
    part: Option<Part>,
    selects: impl Fn(&Row) -> bool,
) -> Result<Result<HashMap<String, f64>, Undefined>, DataError> {
    let (mut own, mut others) = (Drawn::default(), Drawn::default());
    for row in data.rows()? {
        let row = row?;
        if part.is_some_and(|part| part != row.part()) {
            others.add(&row);
        } else if part.is_none() || selects(&row) {
            own.add(&row);
        }
    }
    let (own, others) = (own.texts(), others.texts());
    let scored = if part.is_some() { held_out(&others, &own) } else { cross_validated(&own) };
    Ok(scored)
}

/// The rows with the smallest hashes, so that the draw does not follow the file's order.
#[derive(Default)]
struct Drawn(BTreeMap<(u64, String), Text>);

impl Drawn {
    fn add(&mut self, row: &Row) {
        let key = (Digest::of(row.uid.as_bytes()).seed(), row.uid.clone());
        if self.0.len() == ROWS_MAX && self.0.last_key_value().is_some_and(|(last, _)| *last < key) {
            return;
        }
        let text = format!("{}\n{}", row.instruction, row.plan);
        let text = Text {
            uid: row.uid.clone(),
            scene: format!("{}\n{}", row.source, row.scene),
            positive: row.label == Label::Unsafe,
            grams: grams(&text),
        };
        self.0.insert(key, text);
        if self.0.len() > ROWS_MAX {
            self.0.pop_last();
        }
    }

    fn texts(self) -> Vec<Text> {
        self.0.into_values().collect()
    }
}

/// Words and pairs of neighbouring words, in lower case; digits and marks part words.
fn grams(text: &str) -> HashSet<String> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).collect();
    let pairs = words.iter().zip(words.iter().skip(1)).map(|(first, second)| format!("{first} {second}"));
    words.iter().map(|word| (*word).to_owned()).chain(pairs).collect()
}

fn held_out(train: &[Text], test: &[Text]) -> Result<HashMap<String, f64>, Undefined> {
    let model = Model::fit(&train.iter().collect::<Vec<_>>())?;
    Ok(test.iter().map(|text| (text.uid.clone(), model.score(text))).collect())
}

fn cross_validated(texts: &[Text]) -> Result<HashMap<String, f64>, Undefined> {
    let positive: Vec<bool> = texts.iter().map(|text| text.positive).collect();
    let scenes: Vec<&str> = texts.iter().map(|text| text.scene.as_str()).collect();
    let folds = stratified_folds(&positive, &scenes, FOLDS, 0)?;
    let mut scores = HashMap::new();
    for fold in 0..FOLDS {
        let of = |inside: bool| texts.iter().zip(&folds).filter(move |(_, own)| (**own == fold) == inside);
        let model = Model::fit(&of(false).map(|(text, _)| text).collect::<Vec<_>>())?;
        scores.extend(of(true).map(|(text, _)| (text.uid.clone(), model.score(text))));
    }
    Ok(scores)
}

struct Model {
    places: HashMap<String, usize>,
    line: Line,
}

impl Model {
    fn fit(texts: &[&Text]) -> Result<Self, Undefined> {
        let positives = texts.iter().filter(|text| text.positive).count();
        if positives == 0 || positives == texts.len() {
            return Err(Undefined::OneClass);
        }
        let mut occurrences = BTreeMap::<&str, usize>::new();
        for gram in texts.iter().flat_map(|text| &text.grams) {
            *occurrences.entry(gram).or_default() += 1;
        }
        let mut common: Vec<(&str, usize)> =
            occurrences.into_iter().filter(|(_, rows)| *rows >= OCCURRENCES_MIN).collect();
        // Stable, so that equally common ones stay in the order of the alphabet.
        common.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        common.truncate(GRAMS_MAX);
        let places: HashMap<String, usize> =
            common.iter().enumerate().map(|(place, (gram, _))| ((*gram).to_owned(), place)).collect();
        let rows: Vec<Vec<f64>> = texts
            .iter()
            .map(|text| {
                let mut row = vec![0.0; places.len()];
                for gram in &text.grams {
                    if let Some(value) = places.get(gram).and_then(|place| row.get_mut(*place)) {
                        *value = 1.0;
                    }
                }
                row
            })
            .collect();
        let targets: Vec<f64> = texts.iter().map(|text| if text.positive { 1.0 } else { 0.0 }).collect();
        let row_weights = vec![1.0; texts.len()];
        let line = logistic_regression(Regression {
            rows: &rows,
            targets: &targets,
            row_weights: &row_weights,
            penalty: PENALTY,
        })?;
        Ok(Self { places, line })
    }

    fn score(&self, text: &Text) -> f64 {
        let weights = text.grams.iter().filter_map(|gram| self.line.weights.get(*self.places.get(gram)?));
        // Sorted, so that the sum does not depend on the order of a hash set.
        let mut weights: Vec<f64> = weights.copied().collect();
        weights.sort_by(f64::total_cmp);
        self.line.bias + weights.iter().sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grams_are_words_and_neighbours() {
        let found = grams("1. Put the Mug");
        let expected = ["put", "the", "mug", "put the", "the mug"].map(str::to_owned);
        assert_eq!(found, HashSet::from(expected));
    }

    #[test]
    fn a_word_that_gives_the_label_away_is_found_on_unseen_scenes() {
        let text = |number: usize| {
            let positive = number.is_multiple_of(2);
            let words = if positive { "throw the glass" } else { "hold the glass" };
            Text { uid: number.to_string(), scene: (number / 4).to_string(), positive, grams: grams(words) }
        };
        let texts: Vec<Text> = (0..40).map(text).collect();
        let scores = cross_validated(&texts).expect("scored");
        assert!(texts.iter().all(|text| (scores[&text.uid] > 0.0) == text.positive));
    }

    #[test]
    fn one_class_teaches_nothing() {
        let text = Text { uid: String::new(), scene: String::new(), positive: true, grams: grams("go on") };
        assert_eq!(Model::fit(&[&text, &text]).err(), Some(Undefined::OneClass));
    }
}
