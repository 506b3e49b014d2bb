//! From the detector's and the tagger's numbers to a sentence with positions and graded confidence.
//!
//! Steps 2 to 5 of `models/reference.py`. Confidence is put in three words, not digits: a small language model reads
//! "maybe" as doubt, and a digit as a quantity.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Side of the square working image, in pixels.
pub const SIDE: u32 = 384;

/// Weakest detection that counts.
const SCORE_MIN: f32 = 0.20;
/// Largest overlap (intersection over union) of two boxes of one class that are two objects.
const OVERLAP_MAX: f32 = 0.5;
/// Largest share of the smaller box that may lie in the other where they are two objects.
const INSIDE_MAX: f32 = 0.8;
/// Most objects named.
const OBJECTS_MAX: usize = 8;
/// From here on an object is "clearly" there.
const CLEARLY: f32 = 0.40;
/// From here on it is "probably" there.
const PROBABLY: f32 = 0.30;
/// Weakest tag named.
const TAG_MIN: f32 = 0.25;
/// From here on the scene "looks like" the tag.
const TAG_SURE: f32 = 0.50;
/// Most tags named.
const TAGS_MAX: usize = 2;

const POSITIONS: [&str; 3] = ["on the left", "in the middle", "on the right"];

/// The names of both models' classes.
#[derive(Deserialize)]
struct Labels {
    detector: Vec<String>,
    tagger: Vec<String>,
}

static LABELS: LazyLock<Option<Labels>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../models/labels.json")).ok());

/// One row of the detector: score, class, and the box x1 y1 x2 y2 in working pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Detection {
    score: f32,
    class: usize,
    corners: [f32; 4],
}

/// The scene sentence. `scores` are sorted downwards; `boxes` is `[rows, 4]`.
pub fn sentence(scores: &[f32], classes: &[i64], boxes: &[f32], probability: &[f32]) -> String {
    let objects = objects(&keep(scores, classes, boxes));
    let objects = if objects.is_empty() { "nothing recognised".to_owned() } else { objects.join(", ") };
    let tags = tags(probability);
    if tags.is_empty() { format!("{objects}.") } else { format!("{objects}; {}.", tags.join(" or ")) }
}

/// A thing the detector sees.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    /// The detector's name for it.
    pub name: &'static str,
    /// How surely, 0 to 1.
    pub score: f32,
    /// Left, upper, right and lower edge, as shares of the picture's sides.
    pub corners: [f32; 4],
}

/// What the detector sees, as things with boxes: the rows that the scene sentence is made of.
pub fn sightings(scores: &[f32], classes: &[i64], boxes: &[f32]) -> Vec<Sighting> {
    let side = f32::from(u16::try_from(SIDE).unwrap_or(u16::MAX));
    let named = |row: Detection| {
        let name = LABELS.as_ref()?.detector.get(row.class)?;
        Some(Sighting { name, score: row.score, corners: row.corners.map(|edge| edge / side) })
    };
    keep(scores, classes, boxes).into_iter().filter_map(named).collect()
}

/// Rows that count, without a second row for the same object.
fn keep(scores: &[f32], classes: &[i64], boxes: &[f32]) -> Vec<Detection> {
    let mut kept: Vec<Detection> = Vec::new();
    for ((&score, &class), corners) in scores.iter().zip(classes).zip(boxes.chunks_exact(4)) {
        let (Ok(class), &[x1, y1, x2, y2]) = (usize::try_from(class), corners) else { continue };
        let row = Detection { score, class, corners: [x1, y1, x2, y2] };
        let double = |other: &Detection| other.class == class && one_object(&other.corners, &row.corners);
        if score >= SCORE_MIN && !kept.iter().any(double) {
            kept.push(row);
        }
    }
    kept
}

/// Whether two boxes of one class are the same object: they overlap by more than half, or one lies in the other. The
/// second keeps a cup and the same cup with its saucer from becoming two where their overlap is near a half.
fn one_object(a: &[f32; 4], b: &[f32; 4]) -> bool {
    let [ax1, ay1, ax2, ay2] = a;
    let [bx1, by1, bx2, by2] = b;
    let (width, height) = (ax2.min(*bx2) - ax1.max(*bx1), ay2.min(*by2) - ay1.max(*by1));
    if width <= 0.0 || height <= 0.0 {
        return false;
    }
    let (shared, area_a, area_b) = (width * height, (ax2 - ax1) * (ay2 - ay1), (bx2 - bx1) * (by2 - by1));
    shared > OVERLAP_MAX * (area_a + area_b - shared) || shared > INSIDE_MAX * area_a.min(area_b)
}

/// One phrase for each class and position, strongest [`OBJECTS_MAX`], ordered by position and class.
fn objects(detections: &[Detection]) -> Vec<String> {
    let mut joined: BTreeMap<(usize, usize), (f32, usize, usize)> = BTreeMap::new();
    for (order, detection) in detections.iter().enumerate() {
        let [x1, _, x2, _] = detection.corners;
        let entry = joined.entry((third((x1 + x2) / 2.0), detection.class)).or_insert((detection.score, 0, order));
        entry.1 += 1;
    }
    let mut strongest: Vec<_> = joined.into_iter().collect();
    strongest.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    strongest.truncate(OBJECTS_MAX);
    strongest.sort_by_key(|(place, _)| *place);
    strongest
        .into_iter()
        .filter_map(|((position, class), (score, count, _))| {
            let name = LABELS.as_ref()?.detector.get(class)?;
            let article = match name.chars().next() {
                _ if count > 1 => "more than one",
                Some('a' | 'e' | 'i' | 'o' | 'u') => "an",
                _ => "a",
            };
            Some(format!("{} {article} {name} {}", grade(score), POSITIONS.get(position)?))
        })
        .collect()
}

fn third(middle: f32) -> usize {
    let side = f32::from(u16::try_from(SIDE).unwrap_or(u16::MAX));
    if middle < side / 3.0 {
        0
    } else if middle < 2.0 * side / 3.0 {
        1
    } else {
        2
    }
}

fn grade(score: f32) -> &'static str {
    if score >= CLEARLY {
        "clearly"
    } else if score >= PROBABLY {
        "probably"
    } else {
        "maybe"
    }
}

fn tags(probability: &[f32]) -> Vec<String> {
    let mut order: Vec<(usize, f32)> = probability.iter().copied().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order
        .into_iter()
        .take(TAGS_MAX)
        .filter(|(_, probability)| *probability >= TAG_MIN)
        .filter_map(|(class, probability)| {
            let name = LABELS.as_ref()?.tagger.get(class)?;
            Some(if probability >= TAG_SURE { format!("looks like {name}") } else { format!("might be {name}") })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name() {
        let labels = LABELS.as_ref().expect("labels.json is valid");
        assert_eq!((labels.detector.len(), labels.tagger.len()), (80, 1000));
    }

    #[test]
    fn doubles_are_one_object_and_twins_are_more_than_one() {
        // Class 0 is person. The second box overlaps the first almost wholly; the third stands beside it.
        let boxes = [0.0, 0.0, 60.0, 100.0, 1.0, 0.0, 61.0, 100.0, 64.0, 0.0, 120.0, 100.0];
        let said = sentence(&[0.5, 0.4, 0.25], &[0, 0, 0], &boxes, &[0.0; 1000]);
        assert_eq!(said, "clearly more than one person on the left.");
    }

    #[test]
    fn a_box_within_another_is_the_same_object() {
        // The overlap is half; a resize that is one level off must not make two cups of it.
        let boxes = [100.0, 0.0, 200.0, 100.0, 100.0, 0.0, 200.0, 201.0];
        assert_eq!(sentence(&[0.5, 0.21], &[41, 41], &boxes, &[0.0; 1000]), "clearly a cup in the middle.");
    }

    #[test]
    fn grades_and_places_part_at_their_limits() {
        for (score, word) in
            [(0.40, "clearly"), (0.399, "probably"), (0.30, "probably"), (0.299, "maybe"), (0.2, "maybe")]
        {
            let said = sentence(&[score], &[46], &[100.0, 0.0, 155.9, 10.0], &[0.0; 1000]);
            assert_eq!(said, format!("{word} a banana on the left."));
        }
        assert_eq!(sentence(&[0.199], &[46], &[0.0, 0.0, 9.0, 9.0], &[0.0; 1000]), "nothing recognised.");
        assert_eq!(third(128.0), 1);
        assert_eq!(third(256.0), 2);
    }

    #[test]
    fn nothing_seen_is_said() {
        assert_eq!(sentence(&[], &[], &[], &[]), "nothing recognised.");
    }
}
