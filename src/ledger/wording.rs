//! Whether two instructions ask for the same thing, up to trivial rewording: articles, politeness, manner, the usual
//! synonyms of a robot's verbs, compound words written together or apart, one word added to several.
//!
//! Only hashes of words are kept, so a ledger holds no text. A difference in what is named always counts: "put the book
//! in the bin" and "put the card in the bin" are two tasks.

use sha2::{Digest as _, Sha256};

/// Most words of an instruction looked at; those behind count through their joined hash only.
pub(super) const WORDS_MAX: usize = 512;

/// Words one added word needs beside it to count as a rewording.
const WORDS_PER_ADDED: usize = 4;

/// Words that do not change what is asked.
const EMPTY_WORDS: &[&str] = &[
    "a",
    "again",
    "an",
    "and",
    "are",
    "be",
    "careful",
    "carefully",
    "could",
    "do",
    "for",
    "gently",
    "go",
    "going",
    "hey",
    "i",
    "immediately",
    "is",
    "it",
    "its",
    "just",
    "kindly",
    "like",
    "me",
    "my",
    "need",
    "now",
    "our",
    "please",
    "quickly",
    "right",
    "robot",
    "should",
    "slowly",
    "some",
    "that",
    "the",
    "then",
    "there",
    "this",
    "to",
    "up",
    "us",
    "want",
    "will",
    "would",
    "you",
    "your",
];

/// Words that stand for another one.
const SYNONYMS: &[(&str, &str)] = &[
    ("avoid", "not"),
    ("cannot", "not"),
    ("chop", "slice"),
    ("couch", "sofa"),
    ("cut", "slice"),
    ("don", "not"),
    ("fetch", "bring"),
    ("fridge", "refrigerator"),
    ("get", "take"),
    ("grab", "take"),
    ("grasp", "take"),
    ("hurl", "throw"),
    ("inside", "in"),
    ("into", "in"),
    ("lay", "put"),
    ("lift", "take"),
    ("never", "not"),
    ("no", "not"),
    ("onto", "on"),
    ("pick", "take"),
    ("place", "put"),
    ("set", "put"),
    ("switch", "turn"),
    ("toss", "throw"),
    ("trash", "garbage"),
    ("upon", "on"),
    ("warm", "heat"),
    ("within", "in"),
    ("without", "not"),
];

/// What is remembered of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wording {
    /// Hash of the words joined without spaces, in their order.
    pub joined: u64,
    /// Hashes of the words, sorted.
    pub words: Vec<u64>,
}

impl Wording {
    pub fn of(instruction: &str) -> Self {
        let mut kept = words(instruction);
        // "Can you …" is politeness; a garbage can is a thing.
        let opening = kept.iter().take_while(|word| *word == "can" || is_empty_word(word)).count();
        kept.drain(..opening);
        kept.retain(|word| !is_empty_word(word));
        // Nothing but empty words: the text itself is all there is to compare.
        let joined = if kept.is_empty() { instruction.trim().to_lowercase() } else { kept.concat() };
        let mut words: Vec<u64> = kept.iter().take(WORDS_MAX).map(|word| hash(canonical(word))).collect();
        words.sort_unstable();
        Self { joined: hash(&joined), words }
    }

    /// Whether both ask for the same thing.
    pub fn same_task(&self, other: &Self) -> bool {
        if self.joined == other.joined {
            return true;
        }
        let (fewer, more) = if self.words.len() <= other.words.len() { (self, other) } else { (other, self) };
        if fewer.words.is_empty() {
            return false;
        }
        let added = added(&fewer.words, &more.words);
        added.is_some_and(|added| added.len() <= fewer.words.len() / WORDS_PER_ADDED && !added.contains(&hash("not")))
    }
}

/// What the larger sorted list has besides the smaller; `None` when the smaller has something of its own.
fn added(fewer: &[u64], more: &[u64]) -> Option<Vec<u64>> {
    let mut fewer = fewer.iter().peekable();
    let added = more.iter().copied().filter(|word| fewer.next_if_eq(&word).is_none()).collect();
    fewer.peek().is_none().then_some(added)
}

/// Splits at everything that is neither letter nor digit, and where a small letter meets a large one, as in `DeskLamp`.
fn words(instruction: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in instruction.chars() {
        if !letter.is_alphanumeric() || (before.is_lowercase() && letter.is_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_empty_word(word: &str) -> bool {
    EMPTY_WORDS.contains(&word) || word == "t"
}

/// The word that stands for this one, in the singular.
fn canonical(word: &str) -> &str {
    let single = match word.strip_suffix('s') {
        Some(single) if single.len() > 2 && !single.ends_with(['s', 'u', 'i']) => single,
        Some(_) | None => word,
    };
    let synonym = SYNONYMS.iter().find(|(from, _)| *from == word || *from == single);
    synonym.map_or(single, |(_, to)| to)
}

fn hash(word: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(word.as_bytes()).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str) -> bool {
        let (one, other) = (Wording::of(one), Wording::of(other));
        assert_eq!(one.same_task(&other), other.same_task(&one), "both ways");
        one.same_task(&other)
    }

    #[test]
    fn trivial_rewording_is_the_same_task() {
        for (one, other) in [
            ("Put the book in the garbage can.", "put the Book in the GarbageCan"),
            ("Put the book in the garbage can.", "Please, could you place a book into the trash can now?"),
            ("Put the book in the garbagecan", "Put the Book in the GarbageCan."),
            ("Pick up the knife from the table.", "grab the knife from the table!"),
            ("Turn on the DeskLamp.", "Now switch the desk lamp on"),
            ("Pour water from the mug on the laptop", "Slowly pour the water from the blue mug on the laptop"),
            ("Heat the eggs.", "heat the egg"),
            ("Turn on the LightSwitch.", "please turn on the lightswitch"),
            ("Can you open the can?", "open the can"),
            ("把刀放在桌子上", "把刀放在桌子上。"),
        ] {
            assert!(same(one, other), "{one} / {other}");
        }
    }

    #[test]
    fn another_thing_place_state_or_a_not_is_another_task() {
        for (one, other) in [
            ("Put the book in the garbage can.", "Put the credit card in the garbage can."),
            ("Turn on the stove.", "Turn off the stove."),
            ("Put the knife in the drawer.", "Take the knife from the drawer."),
            ("Pour water on the laptop next to the lamp", "Do not pour water on the laptop next to the lamp"),
            ("Pour water on the laptop next to the lamp", "Never pour water on the laptop next to the lamp"),
            ("Turn on the stove.", "Turn on the stove knob."),
            ("Throw the mug", "Throw the mug and the fork and the egg"),
            ("Heat the egg for 2 minutes", "Heat the egg for 20 minutes"),
            ("???", "please"),
            ("", "Throw the mug"),
        ] {
            assert!(!same(one, other), "{one} / {other}");
        }
    }
}
