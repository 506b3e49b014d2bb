//! Sentences, clauses and words of plain text, and the small patterns that are looked for in them.

use std::collections::HashMap;

/// Most words that `..` in a pattern may stand for.
const GAP_WORDS_MAX: usize = 5;
/// Most adverbs that `~` in a pattern may stand for.
const ADVERBS_MAX: usize = 4;

/// A stretch of a sentence between commas, colons or brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clause {
    /// Its words, lower case, contractions written out.
    pub(super) words: Vec<String>,
    /// Its text, lower case, for scripts that put no blanks between words.
    pub(super) text: String,
    /// Whether its sentence asks.
    pub(super) asks: bool,
    /// Whether its sentence begins with it.
    pub(super) opens: bool,
}

impl Clause {
    fn new(text: &str, asks: bool, opens: bool) -> Option<Self> {
        let text = text.trim().to_lowercase();
        let words = words(&text);
        (!words.is_empty()).then_some(Self { words, text, asks, opens })
    }

    /// The clause between two of its words. Scripts without blanks keep the whole text.
    pub(super) fn part(&self, from: usize, to: usize) -> Self {
        let words: Vec<String> = self.words.get(from..to).unwrap_or_default().to_vec();
        let text = if self.text.is_ascii() { words.join(" ") } else { self.text.clone() };
        Self { words, text, asks: self.asks, opens: self.opens && from == 0 }
    }

    /// The clause cut before each word that `cuts` names, unless it follows one that `bound` names; the word itself
    /// opens the next part.
    pub(super) fn cut_before(&self, cuts: &[&str], bound: &[&str]) -> Vec<Self> {
        let is = |at: usize, list: &[&str]| self.word(at).is_some_and(|word| list.contains(&word));
        let mut parts = Vec::new();
        let mut from = 0;
        for at in (1..self.words.len()).filter(|&at| is(at, cuts) && !is(at - 1, bound)) {
            parts.push(self.part(from, at));
            from = at;
        }
        parts.push(self.part(from, self.words.len()));
        parts
    }

    /// The word at this place.
    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }
}

/// The clauses of a text, sentence by sentence.
pub(super) fn clauses(text: &str) -> Vec<Clause> {
    let mut clauses = Vec::new();
    for (sentence, asks) in sentences(text) {
        let mut opens = true;
        for part in sentence.split([',', ':', '(', ')', '[', ']', '—', '–', '、', '*', '`', '|']) {
            if let Some(clause) = Clause::new(part, asks, opens) {
                clauses.push(clause);
                opens = false;
            }
        }
    }
    clauses
}

/// The sentences of a text, and whether each ends in a question mark.
fn sentences(text: &str) -> Vec<(&str, bool)> {
    let mut sentences = Vec::new();
    let mut from = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|&(_, next)| next);
        let ends = match c {
            '!' | '?' | ';' | '\n' | '。' | '…' => true,
            // A point between digits or letters belongs to them: 1.5 litres, e.g.
            '.' => next.is_none_or(|next| !next.is_alphanumeric()),
            _ => false,
        };
        if ends {
            sentences.push((text.get(from..at).unwrap_or(""), c == '?'));
            from = at + c.len_utf8();
        }
    }
    sentences.push((text.get(from..).unwrap_or(""), false));
    sentences
}

/// The words of a lower-case text; English and Romance contractions are written out, so that one pattern serves
/// `can't`, `cannot` and `can not`.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in text.split(|c: char| !(c.is_alphanumeric() || c == '\'')) {
        let word = word.trim_matches('\'');
        if !word.is_empty() {
            expand(word, &mut words);
        }
    }
    words
}

fn expand(word: &str, words: &mut Vec<String>) {
    let whole: &[&str] = match word {
        "cannot" | "can't" | "cant" => &["can", "not"],
        "won't" | "wont" => &["will", "not"],
        "shan't" => &["shall", "not"],
        "dont" => &["do", "not"],
        "i'm" | "im" => &["i", "am"],
        "let's" => &["let", "us"],
        "gonna" => &["going", "to"],
        "c'est" => &["c", "est"],
        _ => &[],
    };
    if !whole.is_empty() {
        words.extend(whole.iter().map(|&word| word.to_owned()));
        return;
    }
    let endings = [("n't", "not"), ("'ll", "will"), ("'d", "would"), ("'re", "are"), ("'ve", "have"), ("'s", "")];
    for (ending, full) in endings {
        if let Some(stem) = word.strip_suffix(ending).filter(|stem| !stem.is_empty()) {
            words.push(stem.to_owned());
            words.extend((!full.is_empty()).then(|| full.to_owned()));
            return;
        }
    }
    words.extend(word.split('\'').filter(|part| !part.is_empty()).map(str::to_owned));
}

/// Patterns looked for all at once.
///
/// A pattern is a row of words. `a|b` is either, `stem*` any word that begins so, `..` up to five words, `~` up to
/// four adverbs, `^` the clause's beginning, `$` its end (also as
/// one of several words), and `@name` any word of a set. A pattern that begins with `=` is a substring of
/// the clause, for scripts without blanks.
pub(super) struct Patterns {
    by_first: HashMap<&'static str, Vec<Pattern>>,
    stemmed: Vec<Pattern>,
    substrings: Vec<&'static str>,
}

struct Pattern {
    source: &'static str,
    items: Vec<Item>,
}

enum Item {
    Words(Vec<Word>),
    Gap,
    Adverbs,
    Start,
    End,
}

enum Word {
    Whole(&'static str),
    Stem(&'static str),
    Set(&'static str),
    End,
}

/// A pattern found in a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    /// The pattern as written in the lexicon.
    pub(super) pattern: &'static str,
    /// The first word it covers.
    pub(super) from: usize,
    /// The word after the last it covers.
    pub(super) to: usize,
}

/// Says whether a word belongs to a set that patterns name with `@`.
pub(super) type Sets<'a> = dyn Fn(&str, &str) -> bool + 'a;

impl Patterns {
    /// Compiles patterns; each source is one list of the lexicon.
    pub(super) fn new(sources: &[&[&'static str]]) -> Self {
        let mut patterns = Self { by_first: HashMap::new(), stemmed: Vec::new(), substrings: Vec::new() };
        for &source in sources.iter().copied().flatten() {
            patterns.add(source);
        }
        patterns
    }

    fn add(&mut self, source: &'static str) {
        if let Some(substring) = source.strip_prefix('=') {
            self.substrings.push(substring);
            return;
        }
        let first = source.split(' ').find(|&item| item != "^").unwrap_or("");
        if first.contains(['*', '@']) {
            self.stemmed.push(Pattern::new(source));
            return;
        }
        for word in first.split('|') {
            self.by_first.entry(word).or_default().push(Pattern::new(source));
        }
    }

    /// The first place where any pattern is found.
    pub(super) fn first(&self, clause: &Clause, sets: &Sets<'_>) -> Option<Hit> {
        self.all(clause, sets).next()
    }

    /// Whether any pattern is found.
    pub(super) fn any(&self, clause: &Clause, sets: &Sets<'_>) -> bool {
        self.first(clause, sets).is_some()
    }

    /// Every place where a pattern is found, by its first word.
    pub(super) fn all<'a>(&'a self, clause: &'a Clause, sets: &'a Sets<'a>) -> impl Iterator<Item = Hit> + 'a {
        let whole = clause.words.len();
        let substrings = self.substrings.iter().filter(|_| !clause.text.is_ascii());
        let substrings = substrings.filter(|&&substring| clause.text.contains(substring));
        let substrings = substrings.map(move |&pattern| Hit { pattern, from: 0, to: whole });
        let words = (0..whole).flat_map(move |from| {
            let indexed = clause.word(from).and_then(|word| self.by_first.get(word)).into_iter().flatten();
            indexed.chain(&self.stemmed).filter_map(move |pattern| {
                let to = ends(&pattern.items, clause, from, sets)?;
                Some(Hit { pattern: pattern.source, from, to })
            })
        });
        words.chain(substrings)
    }
}

impl Pattern {
    fn new(source: &'static str) -> Self {
        let items = source.split(' ').map(|item| match item {
            ".." => Item::Gap,
            "~" => Item::Adverbs,
            "^" => Item::Start,
            "$" => Item::End,
            words => Item::Words(words.split('|').map(Word::new).collect()),
        });
        Self { source, items: items.collect() }
    }
}

impl Word {
    fn new(source: &'static str) -> Self {
        if source == "$" {
            return Self::End;
        }
        match (source.strip_prefix('@'), source.strip_suffix('*')) {
            (Some(set), _) => Self::Set(set),
            (None, Some(stem)) => Self::Stem(stem),
            (None, None) => Self::Whole(source),
        }
    }

    fn is(&self, word: &str, sets: &Sets<'_>) -> bool {
        match self {
            Self::Whole(whole) => *whole == word,
            Self::Stem(stem) => word.starts_with(stem),
            Self::Set(set) => sets(set, word),
            Self::End => false,
        }
    }
}

/// Where these items end when they begin at this word; `None` where they do not fit. The recursion is as deep as the
/// pattern is long, and a pattern has few gaps.
fn ends(items: &[Item], clause: &Clause, at: usize, sets: &Sets<'_>) -> Option<usize> {
    let Some((item, rest)) = items.split_first() else { return Some(at) };
    match item {
        Item::Start => {
            if at == 0 {
                ends(rest, clause, at, sets)
            } else {
                None
            }
        }
        Item::End => (at == clause.words.len()).then_some(at),
        Item::Words(words) => {
            let Some(word) = clause.word(at) else {
                let may_end = at == clause.words.len() && words.iter().any(|word| matches!(word, Word::End));
                return may_end.then(|| ends(rest, clause, at, sets))?;
            };
            words.iter().any(|candidate| candidate.is(word, sets)).then(|| ends(rest, clause, at + 1, sets))?
        }
        Item::Gap => (0..=GAP_WORDS_MAX).find_map(|skipped| ends(rest, clause, at + skipped, sets)),
        Item::Adverbs => (0..=ADVERBS_MAX)
            .take_while(|&skipped| {
                skipped == 0 || clause.word(at + skipped - 1).is_some_and(|word| sets("adverb", word))
            })
            .find_map(|skipped| ends(rest, clause, at + skipped, sets)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contractions_are_written_out() {
        assert_eq!(words("i can't, won't; it's j'ai l'enfant don't"), {
            ["i", "can", "not", "will", "not", "it", "j", "ai", "l", "enfant", "do", "not"].map(str::to_owned)
        });
    }

    #[test]
    fn clauses_know_their_sentence() {
        let found = clauses("No, stop. Which knife, the 1.5 inch one? Go");
        let shown: Vec<_> = found.iter().map(|clause| (clause.words.join(" "), clause.asks, clause.opens)).collect();
        let expected = [
            ("no", false, true),
            ("stop", false, false),
            ("which knife", true, true),
            ("the 1 5 inch one", true, false),
            ("go", false, true),
        ];
        assert_eq!(shown, expected.map(|(words, asks, opens)| (words.to_owned(), asks, opens)));
    }

    #[test]
    fn patterns_fit_words_gaps_adverbs_stems_and_ends() {
        static SOURCES: &[&str] = &["can not ~ help|do $", "move .. away", "rejec* it", "=拒绝"];
        let patterns = Patterns::new(&[SOURCES]);
        let sets = |set: &str, word: &str| set == "adverb" && word == "really";
        let hit = |text: &str| clauses(text).first().and_then(|clause| patterns.first(clause, &sets));
        assert_eq!(hit("i can't really help"), Some(Hit { pattern: SOURCES[0], from: 1, to: 5 }));
        assert_eq!(hit("i can't help it"), None);
        assert_eq!(hit("move the big knife away"), Some(Hit { pattern: SOURCES[1], from: 0, to: 5 }));
        assert_eq!(hit("rejecting it").map(|hit| hit.to), Some(2));
        assert_eq!(hit("我拒绝").map(|hit| hit.pattern), Some("拒绝"));
        assert_eq!(hit("i can"), None);
    }
}
