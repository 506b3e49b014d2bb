//! Masses, lengths and speeds stated in a text: numbers in digits or words, with metric or US customary units.

use super::words::Token;

/// What a quantity measures, in the unit its value is given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimension {
    /// Kilograms.
    Mass,
    /// Metres.
    Length,
    /// Metres per second.
    Speed,
}

/// One stated quantity and the tokens it takes, first and last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quantity {
    pub(super) dimension: Dimension,
    /// In kilograms, metres, or metres per second.
    pub(super) value: f64,
    pub(super) first: usize,
    pub(super) last: usize,
}

// Exact by the international yard and pound agreement of 1959.
const POUND_KG: f64 = 0.453_592_37;
const FOOT_M: f64 = 0.3048;

/// Every quantity in these tokens, in their order. Parts that belong together are one: `6 ft 2 in`, `1 kg 500 g`; and
/// `2 x 5 kg` is 10 kg, because what is lifted may be the lot.
pub(super) fn quantities(tokens: &[Token]) -> Vec<Quantity> {
    let mut found: Vec<Quantity> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(quantity) = quantity_at(tokens, at) else {
            at += 1;
            continue;
        };
        at = quantity.last + 1;
        match found.last_mut().filter(|before| continues(tokens, before, &quantity)) {
            Some(before) => {
                before.value += quantity.value;
                before.last = quantity.last;
            }
            None => found.push(multiplied(tokens, quantity)),
        }
    }
    found
}

/// `1 kg 500 g`, `6 ft and 2 in`: same dimension, smaller, nothing but `and` between.
fn continues(tokens: &[Token], before: &Quantity, next: &Quantity) -> bool {
    let between = tokens.get(before.last + 1..next.first).unwrap_or_default();
    before.dimension == next.dimension && next.value < before.value && between.iter().all(|t| t.is_word(&["and"]))
}

fn multiplied(tokens: &[Token], quantity: Quantity) -> Quantity {
    let times = quantity.first.checked_sub(1).and_then(|at| tokens.get(at));
    let count = quantity.first.checked_sub(2).and_then(|at| tokens.get(at)).and_then(Token::number);
    match (times, count) {
        (Some(times), Some(count)) if times.is_word(&["x", "times"]) || times.is_mark(&['×', '*', '✕']) => {
            Quantity { value: quantity.value * count, first: quantity.first - 2, ..quantity }
        }
        _ => quantity,
    }
}

fn quantity_at(tokens: &[Token], first: usize) -> Option<Quantity> {
    let (number, mut at) = number_at(tokens, first)?;
    if tokens.get(at).is_some_and(|token| token.is_mark(&['-', '\u{2010}', '\u{2011}'])) {
        at += 1;
    }
    let (dimension, factor, last) = unit_at(tokens, at)?;
    let value = number * factor;
    value.is_finite().then_some(Quantity { dimension, value, first, last })
}

/// A number in digits (`12`, `1/2`, `2 ½`, `2 1/2`) or in words (`twenty-five`, `half a`), and the token after it.
fn number_at(tokens: &[Token], at: usize) -> Option<(f64, usize)> {
    let Some(number) = tokens.get(at)?.number() else { return number_in_words(tokens, at) };
    let ratio = |at: usize| {
        let (over, under) = (tokens.get(at)?.number()?, tokens.get(at + 2)?.number()?);
        tokens.get(at + 1).filter(|token| token.is_mark(&['/', '\u{2044}']))?;
        (under > 0.0).then_some(over / under)
    };
    if let Some(ratio) = ratio(at) {
        return Some((ratio, at + 3));
    }
    if let Some(part) = ratio(at + 1).filter(|part| *part < 1.0) {
        return Some((number + part, at + 4));
    }
    match tokens.get(at + 1).and_then(Token::number).filter(|part| *part < 1.0) {
        Some(part) => Some((number + part, at + 2)),
        None => Some((number, at + 1)),
    }
}

fn number_in_words(tokens: &[Token], at: usize) -> Option<(f64, usize)> {
    let word = |at: usize| tokens.get(at).and_then(Token::word);
    if word(at) == Some("half") {
        return Some((0.5, at + 1 + usize::from(matches!(word(at + 1), Some("a" | "an")))));
    }
    let (mut number, mut next) = (small_number(word(at)?)?, at + 1);
    let hyphen = usize::from(tokens.get(next).is_some_and(|token| token.is_mark(&['-', '\u{2010}', '\u{2011}'])));
    if let Some(ones) = word(next + hyphen).and_then(small_number).filter(|ones| number >= 20.0 && *ones < 10.0) {
        (number, next) = (number + ones, next + hyphen + 1);
    }
    if word(next) == Some("hundred") {
        (number, next) = (number * 100.0, next + 1);
    }
    Some((number, next))
}

fn small_number(word: &str) -> Option<f64> {
    const WORDS: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let position = |words: &[&str]| words.iter().position(|w| *w == word).and_then(|at| u8::try_from(at).ok());
    position(&WORDS).map(f64::from).or_else(|| position(&TENS).map(|tens| f64::from(tens) * 10.0 + 20.0))
}

/// The unit at these tokens: dimension, factor to its base unit, and its last token.
fn unit_at(tokens: &[Token], at: usize) -> Option<(Dimension, f64, usize)> {
    let token = tokens.get(at)?;
    if let Some(speed) = speed_at(tokens, at) {
        return Some(speed);
    }
    let (dimension, factor) = if token.is_mark(&['\'', '\u{2019}', '′']) {
        (Dimension::Length, FOOT_M)
    } else if token.is_mark(&['"', '″', '\u{201d}']) {
        (Dimension::Length, FOOT_M / 12.0)
    } else {
        named_unit(token.word()?)?
    };
    // `in` is a unit only where the next word lets it be one: "36 in high", not "put 36 in the box".
    let ambiguous = token.is_word(&["in"]);
    let next = tokens.get(at + 1);
    let settled = next.is_none_or(|next| {
        next.word().is_none_or(|word| ["high", "tall", "long", "wide", "deep", "away", "above", "up"].contains(&word))
    });
    let derived = next.is_some_and(|next| is_power(next, token)) || is_rate(tokens, at + 1);
    (!(derived || (ambiguous && !settled))).then_some((dimension, factor, at))
}

/// `m²`, `m^2`, `m2`: an area or a volume, not a length. `6'2"` is one, so marks may have a number behind them.
fn is_power(next: &Token, unit: &Token) -> bool {
    let attached = next.number().is_some() && next.bytes.start == unit.bytes.end;
    next.is_mark(&['²', '³', '^']) || (attached && unit.word().is_some())
}

/// `kg/m3`, `g/l`, `kg/h`: a density or a rate, not a load.
fn is_rate(tokens: &[Token], at: usize) -> bool {
    let slash = tokens.get(at).is_some_and(|token| token.is_mark(&['/']));
    slash && tokens.get(at + 1).is_some_and(|t| t.is_word(&["m", "cm", "l", "ml", "s", "min", "h", "hour", "day"]))
}

fn speed_at(tokens: &[Token], at: usize) -> Option<(Dimension, f64, usize)> {
    let token = tokens.get(at)?;
    if token.is_word(&["mph"]) {
        return Some((Dimension::Speed, FOOT_M * 5280.0 / 3600.0, at));
    }
    if token.is_word(&["kph", "kmh"]) {
        return Some((Dimension::Speed, 1.0 / 3.6, at));
    }
    let metres = match token.word()? {
        "km" | "kilometer" | "kilometers" | "kilometre" | "kilometres" => 1000.0,
        "mile" | "miles" => FOOT_M * 5280.0,
        word => Some(named_unit(word)?).filter(|(dimension, _)| *dimension == Dimension::Length)?.1,
    };
    tokens.get(at + 1).filter(|per| per.is_mark(&['/']) || per.is_word(&["per", "a", "an"]))?;
    let seconds = match tokens.get(at + 2)?.word()? {
        "s" | "sec" | "second" => 1.0,
        "min" | "minute" => 60.0,
        "h" | "hr" | "hour" => 3600.0,
        _ => return None,
    };
    Some((Dimension::Speed, metres / seconds, at + 2))
}

fn named_unit(word: &str) -> Option<(Dimension, f64)> {
    let unit = match word {
        "kg" | "kgs" | "kilo" | "kilos" | "kilogram" | "kilograms" | "kilogramme" | "kilogrammes" | "kilogramm" => {
            (Dimension::Mass, 1.0)
        }
        "g" | "gr" | "gram" | "grams" | "gramme" | "grammes" => (Dimension::Mass, 0.001),
        "mg" | "milligram" | "milligrams" => (Dimension::Mass, 1e-6),
        "lb" | "lbs" | "pound" | "pounds" => (Dimension::Mass, POUND_KG),
        "oz" | "ounce" | "ounces" => (Dimension::Mass, POUND_KG / 16.0),
        "ton" | "tons" | "tonne" | "tonnes" => (Dimension::Mass, 1000.0),
        "m" | "meter" | "meters" | "metre" | "metres" => (Dimension::Length, 1.0),
        "cm" | "centimeter" | "centimeters" | "centimetre" | "centimetres" => (Dimension::Length, 0.01),
        "mm" | "millimeter" | "millimeters" | "millimetre" | "millimetres" => (Dimension::Length, 0.001),
        "ft" | "foot" | "feet" => (Dimension::Length, FOOT_M),
        "in" | "inch" | "inches" => (Dimension::Length, FOOT_M / 12.0),
        "yd" | "yard" | "yards" => (Dimension::Length, FOOT_M * 3.0),
        _ => return None,
    };
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::super::words::tokens;
    use super::*;

    #[test]
    fn quantities_are_read_in_their_base_units() {
        use Dimension::{Length, Mass, Speed};
        for (text, dimension, value) in [
            ("12 kg", Mass, 12.0),
            ("12kg", Mass, 12.0),
            ("a 5-kg bag", Mass, 5.0),
            ("5\u{2011}kg", Mass, 5.0),
            ("2,5 kilograms", Mass, 2.5),
            ("3500 g", Mass, 3.5),
            ("30 lb bag", Mass, 13.607_771_1),
            ("48 ounces", Mass, 1.360_777_11),
            ("2 x 5 kg", Mass, 10.0),
            ("2×5kg", Mass, 10.0),
            ("1 kg 500 g", Mass, 1.5),
            ("1/2 kg", Mass, 0.5),
            ("2 1/2 kg", Mass, 2.5),
            ("2½ kg", Mass, 2.5),
            ("half a kilo", Mass, 0.5),
            ("twenty-five kilos", Mass, 25.0),
            ("one hundred pounds", Mass, 45.359_237),
            ("１２㎏", Mass, 12.0),
            ("5-10 kg", Mass, 10.0),
            ("120 cm", Length, 1.2),
            ("7 feet", Length, 2.1336),
            ("6 ft 2 in high", Length, 1.8796),
            ("6'2\"", Length, 1.8796),
            ("36 inches", Length, 0.9144),
            ("2 m/s", Speed, 2.0),
            ("7,2 km/h", Speed, 2.0),
            ("10 miles per hour", Speed, 4.4704),
            ("3 meters per second", Speed, 3.0),
        ] {
            let found = quantities(&tokens(text));
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].dimension, dimension, "{text}");
            assert!((found[0].value - value).abs() < 1e-9, "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_left_alone() {
        for text in
            ["put 40 in the box", "20 m²", "20 m2", "1000 kg/m3", "5 minutes", "3 apples", "kg 5", "room 12", ""]
        {
            assert_eq!(quantities(&tokens(text)), [], "{text}");
        }
    }
}
