//! Text cut into words, numbers and marks, and those into clauses: what [`super::limits`] and [`super::nearest`] read.
//!
//! Nothing here fails: whatever the text, tokens come out, and each keeps the bytes it came from.

use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A run of letters, lower case; apostrophes inside it are kept.
    Word(String),
    /// A number written in digits, fractions such as ½ included.
    Number(f64),
    /// Any other visible character, and the line break.
    Mark(char),
}

/// One token and the bytes of the text it stands for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) bytes: Range<usize>,
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            Kind::Number(_) | Kind::Mark(_) => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self.kind {
            Kind::Number(number) => Some(number),
            Kind::Word(_) | Kind::Mark(_) => None,
        }
    }

    pub(super) fn is_word(&self, words: &[&str]) -> bool {
        self.word().is_some_and(|word| words.contains(&word))
    }

    pub(super) fn is_mark(&self, marks: &[char]) -> bool {
        matches!(self.kind, Kind::Mark(mark) if marks.contains(&mark))
    }
}

/// Cuts a text into tokens.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut scanner = Scanner { text, at: 0, tokens: Vec::new() };
    while let Some(character) = scanner.peek() {
        let start = scanner.at;
        let kind = scanner.token(character);
        if let Some(kind) = kind {
            scanner.tokens.push(Token { kind, bytes: start..scanner.at });
        }
    }
    scanner.tokens
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<Token>,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next().map(narrow)
    }

    fn peek_second(&self) -> Option<char> {
        self.rest().chars().nth(1).map(narrow)
    }

    fn advance(&mut self) {
        self.at += self.rest().chars().next().map_or(0, char::len_utf8);
    }

    fn token(&mut self, character: char) -> Option<Kind> {
        let point_before_digit = character == '.' && self.peek_second().is_some_and(|next| next.is_ascii_digit());
        if character.is_ascii_digit() || point_before_digit {
            return Some(Kind::Number(self.number()));
        }
        if character.is_alphabetic() {
            return Some(Kind::Word(self.word()));
        }
        self.advance();
        if let Some(unit) = squared_unit(character) {
            return Some(Kind::Word(unit.to_owned()));
        }
        if let Some(fraction) = fraction(character) {
            return Some(Kind::Number(fraction));
        }
        (!character.is_whitespace() || character == '\n').then_some(Kind::Mark(character))
    }

    /// Letters up to the next other character, or to a capital after small letters: `WineBottle` is two words.
    fn word(&mut self) -> String {
        let mut word = String::new();
        let mut small_before = 0;
        while let Some(character) = self.peek() {
            let letter = character.is_alphabetic();
            let inner_apostrophe = is_apostrophe(character) && self.peek_second().is_some_and(char::is_alphabetic);
            if !(letter || inner_apostrophe) || (character.is_uppercase() && small_before >= 2) {
                break;
            }
            small_before = if character.is_lowercase() { small_before + 1 } else { 0 };
            if inner_apostrophe {
                word.push('\'')
            } else {
                word.extend(character.to_lowercase())
            }
            self.advance();
        }
        word
    }

    /// Digits with decimal or grouping separators between them.
    fn number(&mut self) -> f64 {
        let mut digits = String::new();
        while let Some(character) = self.peek() {
            let separates = matches!(character, '.' | ',' | '\u{a0}' | '\u{202f}' | '\u{2009}');
            if character.is_ascii_digit() {
                digits.push(character);
            } else if separates && self.separator_holds(character) {
                digits.push(if character.is_whitespace() { ' ' } else { character });
            } else {
                break;
            }
            self.advance();
        }
        read_number(&digits)
    }

    /// A point or comma belongs to a number when a digit follows; a hard or thin space when exactly three do.
    fn separator_holds(&self, separator: char) -> bool {
        let following = self.rest().chars().skip(1).map(narrow).take_while(char::is_ascii_digit).take(4).count();
        if separator.is_whitespace() { following == 3 } else { following > 0 }
    }
}

/// Reads digits with separators, as people of either custom write them. With both a comma and a point, the last is
/// the decimal mark. A lone comma before exactly three digits groups thousands unless a zero leads: `1,500` could be
/// either, and the larger reading is the safe one. A lone point is a decimal mark.
fn read_number(digits: &str) -> f64 {
    let (commas, points) = (digits.matches(',').count(), digits.matches('.').count());
    let comma_groups = || {
        let (whole, decimals) = digits.split_once(',').unwrap_or((digits, ""));
        commas > 1 || (decimals.len() == 3 && !whole.starts_with('0') && !whole.is_empty())
    };
    let decimal = match (commas, points) {
        (0, 0) => None,
        (0, 1) => Some('.'),
        (0, _) => None,
        (_, 0) => (!comma_groups()).then_some(','),
        _ => digits.chars().rev().find(|character| matches!(character, ',' | '.')),
    };
    let plain: String = digits
        .chars()
        .filter_map(|character| match character {
            digit if digit.is_ascii_digit() => Some(digit),
            mark if Some(mark) == decimal => Some('.'),
            _ => None,
        })
        .collect();
    // Two decimal marks (`1,5.2,3`) are nobody's number: read the part before the second.
    let plain = plain.match_indices('.').nth(1).and_then(|(second, _)| plain.get(..second)).unwrap_or(&plain);
    plain.parse().unwrap_or(0.0)
}

/// Full-width forms as their ordinary twins.
fn narrow(character: char) -> char {
    let code = u32::from(character);
    let ordinary = if (0xff01..=0xff5e).contains(&code) { char::from_u32(code - 0xfee0) } else { None };
    ordinary.unwrap_or(character)
}

fn is_apostrophe(character: char) -> bool {
    matches!(character, '\'' | '\u{2019}')
}

fn squared_unit(character: char) -> Option<&'static str> {
    match character {
        '㎏' => Some("kg"),
        '㎎' => Some("mg"),
        '㎝' => Some("cm"),
        '㎜' => Some("mm"),
        '㎞' => Some("km"),
        _ => None,
    }
}

fn fraction(character: char) -> Option<f64> {
    match character {
        '½' => Some(0.5),
        '¼' => Some(0.25),
        '¾' => Some(0.75),
        '⅓' => Some(1.0 / 3.0),
        '⅔' => Some(2.0 / 3.0),
        _ => None,
    }
}

/// A word's singular, for matching names: `stairs` → `stair`, `batteries` → `battery`.
pub(super) fn singular(word: &str) -> String {
    let word = word.strip_suffix("'s").unwrap_or(word);
    if let Some(base) = word.strip_suffix("ies").filter(|base| base.len() > 2) {
        return format!("{base}y");
    }
    let sibilant = ["sses", "xes", "ches", "shes", "zzes"].iter().any(|end| word.ends_with(end));
    if sibilant && word.len() > 4 {
        return word.strip_suffix("es").unwrap_or(word).to_owned();
    }
    let plural = word.ends_with('s') && word.len() > 3 && !["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    if plural { word.strip_suffix('s').unwrap_or(word).to_owned() } else { word.to_owned() }
}

/// A word's stem, for comparing texts: the singular without `-ing` or `-ed`, a doubled last letter and a final `e`.
/// Coarser than a dictionary on purpose: rules and plans only need `pours`, `pouring` and `poured` to meet.
pub(super) fn stem(word: &str) -> String {
    let word = match word {
        "knives" => "knife",
        "children" => "child",
        "people" | "persons" => "person",
        "shelves" => "shelf",
        "leaves" => "leave",
        "heating" => "heat",
        other => other,
    };
    let word = singular(word);
    let has_vowel = |base: &str| base.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    let cut = ["ing", "ed"]
        .into_iter()
        .find_map(|end| word.strip_suffix(end).filter(|base| base.chars().count() >= 3 && has_vowel(base)));
    let base = cut.unwrap_or(&word);
    let mut last_two = base.chars().rev();
    let doubled = match (last_two.next(), last_two.next()) {
        (Some(last), Some(before)) => cut.is_some() && last == before && !matches!(last, 'l' | 's' | 'z'),
        _ => false,
    };
    let base = if doubled { base.char_indices().next_back().map_or(base, |(end, _)| &base[..end]) } else { base };
    base.strip_suffix('e').filter(|short| short.chars().count() >= 3).unwrap_or(base).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(text: &str) -> Vec<f64> {
        tokens(text).iter().filter_map(Token::number).collect()
    }

    #[test]
    fn numbers_are_read_in_either_custom() {
        for (text, number) in [
            ("12", 12.0),
            ("2.5", 2.5),
            ("2,5", 2.5),
            ("0,250", 0.25),
            ("1,500", 1500.0),
            ("1.500", 1.5),
            ("1,234.5", 1234.5),
            ("1.234,5", 1234.5),
            ("1.000.000", 1_000_000.0),
            ("1\u{202f}000", 1000.0),
            (".5", 0.5),
            ("½", 0.5),
            ("１２", 12.0),
            ("12.", 12.0),
        ] {
            assert_eq!(numbers(text), [number], "{text}");
        }
        assert_eq!(numbers("3 500"), [3.0, 500.0], "a plain space does not group");
    }

    #[test]
    fn words_are_cut_where_their_kind_changes() {
        let words = |text: &str| tokens(text).iter().filter_map(|t| t.word().map(str::to_owned)).collect::<Vec<_>>();
        assert_eq!(
            words("Put the WineBottle down, don’t pick_up(box)"),
            ["put", "the", "wine", "bottle", "down", "don't", "pick", "up", "box"]
        );
        assert_eq!(words("2x5kg ㎏ ＫＧ"), ["x", "kg", "kg", "kg"]);
    }

    #[test]
    fn inflected_forms_meet() {
        for group in [
            &["pour", "pours", "poured", "pouring"][..],
            &["battery", "batteries"],
            &["drop", "dropped", "dropping"],
            &["place", "placing", "placed", "places"],
            &["knife", "knives"],
            &["glass", "glasses"],
        ] {
            let stems: Vec<String> = group.iter().map(|word| stem(word)).collect();
            assert!(stems.windows(2).all(|pair| pair[0] == pair[1]), "{stems:?}");
        }
        assert_ne!(stem("bed"), stem("b"), "a short word keeps its ending");
    }

    proptest! {
        #[test]
        fn every_text_gives_ordered_tokens_within_it(text in any::<String>()) {
            let mut end = 0;
            for token in tokens(&text) {
                prop_assert!(token.bytes.start >= end && token.bytes.end > token.bytes.start);
                prop_assert!(text.get(token.bytes.clone()).is_some());
                end = token.bytes.end;
                if let Some(word) = token.word() {
                    let _ = (singular(word), stem(word));
                }
            }
        }
    }
}
