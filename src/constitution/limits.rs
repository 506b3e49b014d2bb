//! Limits that need no model: what an instruction or plan *states* that a rule's typed limit forbids.
//!
//! Only what is written counts: "the 12 kg box" is seen, "the heavy box" is left to the proxy. In doubt the text is
//! read as breaking the limit, with these readings excused because each is plainly something else:
//!
//! | excused | such as |
//! |---|---|
//! | negated | do not lift the 12 kg box; never go onto the stairs; the 12 kg box must not be lifted |
//! | another's work | ask a nurse to lift the 12 kg box |
//! | a condition or upper bound | if it weighs more than 5 kg; anything lighter than 5 kg |
//! | a place, not a load | put the cup on the 12 kg box; drive around the 20 kg planter |
//! | a rating or reading | a shelf rated for 50 kg; the scale shows 70 kg; the 20 kg limit |
//! | a length nothing is done at | drive 5 m; the shelf 3 m away; a 2 m long pole; beside the 2 m high shelf |
//! | a zone kept clear of | stop before the stairs; take the toy from the stairs |
//! | an exempt phrase of the rule | glue gun |
//!
//! Two negations cancel ("don't forget to lift …"), and a negation ends where the next act begins ("don't worry, lift
//! …"). English only, save that units are read in any language: a negation in another language is not seen, so such a
//! text is read as an order. A dozen small things carried one at a time ("two 2 kg bags") break nothing; "2 x 2 kg"
//! is read as one load of 4 kg.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::quantity::{Dimension, Quantity, quantities};
use super::words::{Token, singular, stem, tokens};
use super::{Constitution, Limit, Rule};

/// Most broken limits reported of one check; one is enough for a veto.
pub const BROKEN_LIMITS_MAX: usize = 64;
/// Longest excerpt quoted, in characters.
pub const EXCERPT_CHARS_MAX: usize = 100;

/// Where a limit is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// What the robot was told.
    Instruction,
    /// The plan's step with this number, from 1.
    Step(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instruction => f.write_str("the instruction"),
            Self::Step(number) => write!(f, "step {number}"),
        }
    }
}

/// How a limit is broken.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Breach {
    /// A load heavier than allowed, in kilograms.
    Payload {
        /// What the text states.
        stated_kg: f64,
        /// The limit.
        kg_max: f64,
    },
    /// A reach farther than allowed, in metres.
    Reach {
        /// What the text states.
        stated_m: f64,
        /// The limit.
        m_max: f64,
    },
    /// Work higher than allowed, in metres above the floor.
    Height {
        /// What the text states.
        stated_m: f64,
        /// The limit.
        m_max: f64,
    },
    /// A drive faster than allowed, in metres per second.
    Speed {
        /// What the text states.
        stated_m_per_s: f64,
        /// The limit.
        m_per_s_max: f64,
    },
    /// A place that is forbidden.
    Zone {
        /// Its name, as the constitution writes it.
        name: String,
    },
    /// A class of object that is forbidden.
    Object {
        /// Its name, as the constitution writes it.
        name: String,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload { stated_kg, kg_max } => write!(f, "a load of {stated_kg:.2} kg, over the {kg_max} kg limit"),
            Self::Reach { stated_m, m_max } => write!(f, "a reach of {stated_m:.2} m, over the {m_max} m limit"),
            Self::Height { stated_m, m_max } => {
                write!(f, "work at a height of {stated_m:.2} m, over the {m_max} m limit")
            }
            Self::Speed { stated_m_per_s, m_per_s_max } => {
                write!(f, "a speed of {stated_m_per_s:.2} m/s, over the {m_per_s_max} m/s limit")
            }
            Self::Zone { name } => write!(f, "the forbidden zone `{name}`"),
            Self::Object { name } => write!(f, "the forbidden object `{name}`"),
        }
    }
}

/// One limit broken at one place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrokenLimit {
    /// The rule whose limit it is.
    pub number: u16,
    /// Where.
    pub place: Place,
    /// How.
    pub breach: Breach,
    /// The clause that breaks it, cut to [`EXCERPT_CHARS_MAX`].
    pub excerpt: String,
}

impl fmt::Display for BrokenLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {} states {} (\"{}\")", self.number, self.place, self.breach, self.excerpt)
    }
}

/// Every limit that the instruction or a step states it would break, in the order of the texts, at most
/// [`BROKEN_LIMITS_MAX`]. The instruction counts as well: a plan that complies with "lift the 12 kg box" by "pick up
/// the box" lifts 12 kg.
#[must_use]
pub fn broken_limits(constitution: &Constitution, instruction: &str, steps: &[impl AsRef<str>]) -> Vec<BrokenLimit> {
    let names = Names::of(constitution.rules());
    let texts = steps.iter().zip(1..).map(|(step, number)| (Place::Step(number), step.as_ref()));
    let mut broken: Vec<BrokenLimit> = Vec::new();
    for (place, text) in std::iter::once((Place::Instruction, instruction)).chain(texts) {
        for (number, breach, excerpt) in broken_in(constitution.rules(), &names, text) {
            let found = BrokenLimit { number, place, breach, excerpt };
            if broken.len() >= BROKEN_LIMITS_MAX {
                return broken;
            }
            if !broken.contains(&found) {
                broken.push(found);
            }
        }
    }
    broken
}

/// The limits that one text breaks: rule number, breach and clause.
fn broken_in<'r>(rules: &'r [Rule], names: &'r Names<'r>, text: &str) -> impl Iterator<Item = (u16, Breach, String)> {
    let whole = tokens(text);
    let mut found = Vec::new();
    for range in clauses(&whole) {
        let clause = Clause { whole: &whole, range: range.clone() };
        let mut breaches: Vec<(u16, Breach)> = Vec::new();
        for quantity in quantities(clause.tokens()) {
            if let Some(stated) = clause.stated(&quantity) {
                let broken = rules.iter().filter_map(|rule| Some((rule.number, stated.over(&rule.limit)?)));
                breaches.extend(broken);
            }
        }
        breaches.extend(names.broken_in(&clause));
        if !breaches.is_empty() {
            let excerpt = excerpt(text, clause.tokens());
            found.extend(breaches.into_iter().map(|(number, breach)| (number, breach, excerpt.clone())));
        }
    }
    found.into_iter()
}

fn excerpt(text: &str, clause: &[Token]) -> String {
    let bytes = match (clause.first(), clause.last()) {
        (Some(first), Some(last)) => first.bytes.start..last.bytes.end,
        _ => 0..0,
    };
    text.get(bytes).unwrap_or_default().chars().take(EXCERPT_CHARS_MAX).collect()
}

// ---- stated quantities ----

/// What a clause states it would do.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stated {
    LoadKg(f64),
    ReachM(f64),
    HeightM(f64),
    SpeedMPerS(f64),
}

impl Stated {
    /// The breach, where this is over the limit.
    fn over(self, limit: &Limit) -> Option<Breach> {
        // Half a millimetre or gram of unit conversion is no breach.
        let over = |value: f64, max: Option<f64>| max.filter(|max| value > max + 5e-4);
        match self {
            Self::LoadKg(stated_kg) => {
                over(stated_kg, limit.payload_kg_max).map(|kg_max| Breach::Payload { stated_kg, kg_max })
            }
            Self::ReachM(stated_m) => over(stated_m, limit.reach_m_max).map(|m_max| Breach::Reach { stated_m, m_max }),
            Self::HeightM(stated_m) => {
                over(stated_m, limit.height_m_max).map(|m_max| Breach::Height { stated_m, m_max })
            }
            Self::SpeedMPerS(stated_m_per_s) => over(stated_m_per_s, limit.speed_m_per_s_max)
                .map(|m_per_s_max| Breach::Speed { stated_m_per_s, m_per_s_max }),
        }
    }
}

/// One clause of a text: what one negation governs.
struct Clause<'t> {
    whole: &'t [Token],
    range: Range<usize>,
}

impl<'t> Clause<'t> {
    fn tokens(&self) -> &'t [Token] {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }

    fn before(&self, at: usize) -> &'t [Token] {
        self.tokens().get(..at).unwrap_or_default()
    }

    fn after(&self, at: usize) -> &'t [Token] {
        self.tokens().get(at + 1..).unwrap_or_default()
    }

    /// What the text says behind this clause.
    fn later(&self) -> &'t [Token] {
        self.whole.get(self.range.end..).unwrap_or_default()
    }

    /// What the clause would do with this quantity, or nothing where it is excused.
    fn stated(&self, quantity: &Quantity) -> Option<Stated> {
        let (before, after) = (self.before(quantity.first), self.after(quantity.last));
        if excused(before, after, self.later()) || bounded_above(before) || conditional(before) {
            return None;
        }
        match quantity.dimension {
            Dimension::Mass => self.is_load(quantity).then_some(Stated::LoadKg(quantity.value)),
            Dimension::Speed => {
                let moves = self.tokens().iter().any(|token| acts(token, MOVING) || token.is_word(&["speed"]));
                moves.then_some(Stated::SpeedMPerS(quantity.value))
            }
            Dimension::Length => self.length(quantity, before, after),
        }
    }

    fn is_load(&self, quantity: &Quantity) -> bool {
        let (before, after) = (self.before(quantity.first), self.after(quantity.last));
        let handles = |tokens: &[Token]| tokens.iter().any(|token| acts(token, HANDLING));
        let money = self.tokens().get(quantity.last).is_some_and(|unit| unit.is_word(&["pound", "pounds"]))
            && self.tokens().iter().any(|token| token.is_word(MONEY));
        let rated = (any_word(last(before, 5), RATINGS) && !handles(before))
            || any_word(last(before, 4), READINGS)
            || any_word(first(after, 2), RATED)
            || can_bear(before);
        let body_weight = any_word(before, PEOPLE) && any_word(before, WEIGHING) && !handles(self.whole);
        !(money || rated || body_weight || left_alone(before) || is_place(before))
    }

    fn length(&self, quantity: &Quantity, before: &[Token], after: &[Token]) -> Option<Stated> {
        let reaches = reaches(before, self.tokens());
        let arm = any_word(self.tokens(), ARM);
        let extent = any_word(first(after, 1), EXTENTS) || (any_word(first(after, 1), AWAY) && !(reaches && arm));
        if extent || is_beside(before) {
            return None;
        }
        if is_height(before, after) {
            return self.works_there().then_some(Stated::HeightM(quantity.value));
        }
        reaches.then_some(Stated::ReachM(quantity.value))
    }

    /// Whether hands are at work: in this clause, or in a later one at "it" or "there".
    fn works_there(&self) -> bool {
        let handles = |token: &Token| [HANDLING, WORKING, REACHING].iter().any(|verbs| acts(token, verbs));
        let later = self.whole.get(self.range.end..).unwrap_or_default();
        self.tokens().iter().any(handles) || (later.iter().any(handles) && any_word(later, &["it", "there", "top"]))
    }
}

fn last(tokens: &[Token], count: usize) -> &[Token] {
    tokens.get(tokens.len().saturating_sub(count)..).unwrap_or_default()
}

fn first(tokens: &[Token], count: usize) -> &[Token] {
    tokens.get(..count.min(tokens.len())).unwrap_or_default()
}

fn any_word(tokens: &[Token], words: &[&str]) -> bool {
    tokens.iter().any(|token| token.is_word(words))
}

/// Whether the token is one of these verbs, in any of its forms.
fn acts(token: &Token, stems: &[&str]) -> bool {
    token.word().is_some_and(|word| stems.contains(&stem(word).as_str()))
}

/// The tokens before articles and plain adjectives: `put it on the big | 12 kg box` gives `put it on`.
fn before_article(before: &[Token]) -> &[Token] {
    let articles = before.iter().rev().take(3).take_while(|token| token.is_word(ARTICLES)).count();
    before.get(..before.len() - articles).unwrap_or_default()
}

/// `on the 12 kg box`: a place for something else. `bring in the 12 kg box` is not: there the preposition belongs to
/// the verb.
fn is_place(before: &[Token]) -> bool {
    let before = before_article(before);
    let Some((preposition, rest)) = before.split_last() else { return false };
    let next_to = preposition.is_word(&["to"]) && rest.last().is_some_and(|token| token.is_word(&["next"]));
    let part_of_verb = rest.last().is_some_and(|verb| acts(verb, HANDLING));
    (next_to || preposition.is_word(PLACES)) && !part_of_verb
}

fn is_beside(before: &[Token]) -> bool {
    let before = before_article(before);
    let next_to = last(before, 2).iter().map(Token::word).eq([Some("next"), Some("to")]);
    next_to || any_word(last(before, 1), BESIDE)
}

fn left_alone(before: &[Token]) -> bool {
    let hands_off = |token: &Token| token.is_word(&["leave", "leaving", "ignore", "ignoring", "bypass", "bypassing"]);
    before.iter().any(hands_off) && !before.iter().any(|token| acts(token, HANDLING))
}

/// `which can hold 50 kg`.
fn can_bear(before: &[Token]) -> bool {
    last(before, 6).windows(3).any(|three| match three {
        [which, can, bear] => {
            which.is_word(&["which", "that", "it"]) && can.is_word(&["can", "could"]) && acts(bear, BEARING)
        }
        _ => false,
    })
}

/// `less than 5 kg`, `under 5 kg`: nothing over the bound is stated. `at most` and `up to` allow their bound.
fn bounded_above(before: &[Token]) -> bool {
    let than = last(before, 2).iter().map(Token::word).collect::<Vec<_>>();
    matches!(than.as_slice(), [Some("less" | "lighter" | "lower" | "slower" | "smaller" | "shorter"), Some("than")])
        || any_word(last(before, 1), &["under", "below"])
}

/// `if it weighs more than 5 kg`: the case is foreseen, not wanted.
fn conditional(before: &[Token]) -> bool {
    let foresees = before.iter().take(2).any(|token| token.is_word(&["if", "unless", "whenever", "when", "should"]));
    foresees
        && any_word(last(before, 3), &["over", "above", "more", "heavier", "exceed", "exceeds", "higher", "faster"])
}

/// Whether a reach verb governs what follows these tokens.
fn reaches(before: &[Token], clause: &[Token]) -> bool {
    let near = last(before, 8);
    let verb = near.iter().enumerate().any(|(at, token)| {
        let previous = at.checked_sub(1).and_then(|previous| near.get(previous));
        let noun = previous.is_some_and(|token| token.is_word(NOUN_MARKERS));
        let stretches = acts(token, &["extend", "stretch"]) && (any_word(clause, ARM) || at + 1 == near.len());
        (acts(token, &["reach"]) || stretches) && !noun
    });
    // "Drive until you reach the table": arriving, not reaching.
    verb && !clause.iter().any(|token| acts(token, MOVING))
}

/// Whether the length between these tokens is a height above the floor.
fn is_height(before: &[Token], after: &[Token]) -> bool {
    let after_words: Vec<_> = first(after, 3).iter().map(Token::word).collect();
    let above_floor = matches!(
        after_words.as_slice(),
        [Some("high" | "up" | "above" | "height"), ..]
            | [Some("in"), Some("height"), ..]
            | [Some("off"), Some("the"), Some("ground" | "floor")]
    );
    let before_words: Vec<_> = last(before, 3).iter().map(Token::word).collect();
    let at_height = matches!(
        before_words.as_slice(),
        [.., Some("height" | "above")]
            | [.., Some("height"), Some("of" | "at" | "to")]
            | [.., Some("higher"), Some("than")]
    );
    let at_shelf = match last(before, 2) {
        [shelf, at] => {
            at.is_word(&["at"]) && shelf.word().is_some_and(|word| HIGH_PLACES.contains(&singular(word).as_str()))
        }
        _ => false,
    };
    let raised = before.iter().any(|token| acts(token, &["lift", "rais", "hoist", "elevat"]))
        && (any_word(last(before, 1), &["to", "at", "by"]) || after.is_empty());
    above_floor || at_height || at_shelf || raised
}

// ---- negation and delegation ----

/// Whether what stands between these tokens is not to be done, or not by the robot.
fn excused(before: &[Token], after: &[Token], later: &[Token]) -> bool {
    negated(before) || delegated(before) || forbidden_after(after) || judged_too_much(after, later)
}

/// An odd number of negations governs what follows. Verbs that undo one ("forget", "hesitate") count after a negation;
/// those that say no by themselves ("avoid", "refuse") always do.
fn negated(before: &[Token]) -> bool {
    let mut odd = false;
    for (at, token) in before.iter().enumerate() {
        let previous = at.checked_sub(1).and_then(|at| before.get(at));
        let asked_why = previous.is_some_and(|token| token.is_word(&["why"]));
        let undoes = odd && (acts(token, SOFTENERS) || token.is_word(&["only", "just"]));
        if (negates(token, previous, before.get(at + 1)) && !asked_why) || undoes {
            odd = !odd;
        }
    }
    odd
}

fn negates(token: &Token, previous: Option<&Token>, next: Option<&Token>) -> bool {
    let gerund = next.and_then(Token::word).is_some_and(|word| word.ends_with("ing"));
    match token.word() {
        Some("not") => {
            previous.is_some_and(|word| word.is_word(AUXILIARIES))
                || gerund
                || next.is_some_and(|next| next.is_word(&["to"]) || acts(next, HANDLING) || acts(next, MOVING))
        }
        Some("without" | "no") => gerund,
        Some("instead" | "rather") => next.is_some_and(|next| next.is_word(&["of", "than"])),
        Some(word) => NEGATIONS.contains(&word) || acts(token, REFUSING),
        None => false,
    }
}

/// `ask a nurse to lift …`, unless the clause comes back to the robot itself.
fn delegated(before: &[Token]) -> bool {
    let Some(at) = before.iter().position(|token| token.is_word(DELEGATING)) else { return false };
    let others = before.get(at + 1..).unwrap_or_default();
    let let_person = before.get(at).is_some_and(|token| token.is_word(&["let"])) && !any_word(first(others, 3), PEOPLE);
    !let_person && !any_word(others, &["i", "we", "you", "robot", "me", "myself"])
}

/// `… must not be lifted`.
fn forbidden_after(after: &[Token]) -> bool {
    after.windows(3).any(|three| match three {
        [may, not, be] => {
            (may.is_word(AUXILIARIES) && not.is_word(&["not", "never"]) && be.is_word(&["be"]))
                || (not.is_word(&["cannot", "can't", "mustn't", "shouldn't"]) && be.is_word(&["be"]))
        }
        _ => false,
    })
}

/// `… is too heavy`, `… exceeds my payload`: stated in order to be left, provided nothing then lifts it anyway.
fn judged_too_much(after: &[Token], later: &[Token]) -> bool {
    let too = after.windows(2).any(|two| match two {
        [too, heavy] => too.is_word(&["too"]) && heavy.is_word(&["heavy", "high", "far", "fast"]),
        _ => false,
    });
    let anyway =
        [after, later].iter().any(|tokens| any_word(tokens, &["anyway", "still", "regardless", "nevertheless"]));
    (too || any_word(after, &["exceeds", "exceed"])) && !anyway
}

// ---- clauses ----

/// Cuts tokens where one act ends and the next begins: at the end of a sentence, and at a comma or a conjunction that
/// a verb follows. A comma within a list or right behind a negation cuts nothing.
fn clauses(tokens: &[Token]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut aside = false;
    for (at, token) in tokens.iter().enumerate() {
        let next = at + 1;
        if token.is_mark(&['.', ';', '!', '?', '…', '\n', '—']) {
            found.push(start..at);
            (start, aside) = (next, false);
        } else if token.is_mark(&[',', ':']) {
            let negation = tokens.get(start..at).unwrap_or_default().last().is_some_and(is_bare_negation);
            if !negation && !aside && verb_soon(tokens, next, 3) {
                found.push(start..at);
                start = next;
            }
            aside = negation;
        } else if (token.is_word(&["and"]) && verb_soon(tokens, next, 2))
            || (token.is_word(CONJUNCTIONS) && verb_soon(tokens, next, 4))
        {
            // The conjunction stays with what it introduces.
            found.push(start..at);
            start = at;
        }
    }
    found.push(start..tokens.len());
    found.retain(|range| !range.is_empty());
    found
}

fn is_bare_negation(token: &Token) -> bool {
    token.is_word(&["not"]) || token.word().is_some_and(|word| NEGATIONS.contains(&word))
}

fn verb_soon(tokens: &[Token], at: usize, within: usize) -> bool {
    let ahead = tokens.get(at..).unwrap_or_default().iter().take(within).take_while(|token| token.word().is_some());
    ahead.into_iter().any(|token| [HANDLING, WORKING, MOVING, REACHING].iter().any(|verbs| acts(token, verbs)))
}

// ---- zones and objects ----

#[derive(Clone, Copy)]
enum Named {
    Zone,
    Object,
}

/// A forbidden name of a rule, as singular words.
struct Name<'r> {
    rule: &'r Rule,
    named: Named,
    name: &'r str,
    words: Vec<String>,
}

/// Every forbidden name by its first word, and every rule's exempt phrases.
struct Names<'r> {
    by_first_word: BTreeMap<String, Vec<Name<'r>>>,
    exempt: BTreeMap<u16, Vec<Vec<String>>>,
}

/// A name as the singular words it is matched by.
pub(super) fn name_words(name: &str) -> Vec<String> {
    tokens(name).iter().filter_map(Token::word).map(singular).collect()
}

impl<'r> Names<'r> {
    fn of(rules: &'r [Rule]) -> Self {
        let mut by_first_word: BTreeMap<String, Vec<Name<'r>>> = BTreeMap::new();
        let mut exempt = BTreeMap::new();
        for rule in rules {
            let zones = rule.limit.forbidden_zones.iter().map(|name| (Named::Zone, name));
            let objects = rule.limit.forbidden_objects.iter().map(|name| (Named::Object, name));
            for (named, name) in zones.chain(objects) {
                let words = name_words(name);
                if let Some(first) = words.first().cloned() {
                    by_first_word.entry(first).or_default().push(Name { rule, named, name, words });
                }
            }
            let phrases: Vec<Vec<String>> = rule.limit.exempt_phrases.iter().map(|p| name_words(p)).collect();
            exempt.insert(rule.number, phrases);
        }
        Self { by_first_word, exempt }
    }

    fn broken_in(&self, clause: &Clause<'_>) -> Vec<(u16, Breach)> {
        let tokens = clause.tokens();
        // A mark or number stands as an empty word, which no name holds.
        let words: Vec<String> = tokens.iter().map(|token| token.word().map(singular).unwrap_or_default()).collect();
        let mut found = Vec::new();
        for (at, word) in words.iter().enumerate() {
            for name in self.by_first_word.get(word).into_iter().flatten() {
                let end = at + name.words.len();
                let here = words.get(at..end).is_some_and(|window| window == name.words.as_slice());
                let (before, after) = (clause.before(at), clause.after(end.saturating_sub(1)));
                if here
                    && !name.excused(before, after, clause.later())
                    && !self.exempts(name.rule.number, &words, at, end)
                {
                    let name_text = name.name.to_owned();
                    let breach = match name.named {
                        Named::Zone => Breach::Zone { name: name_text },
                        Named::Object => Breach::Object { name: name_text },
                    };
                    found.push((name.rule.number, breach));
                }
            }
        }
        found
    }

    /// Whether an exempt phrase of the rule covers these words.
    fn exempts(&self, number: u16, words: &[String], start: usize, end: usize) -> bool {
        self.exempt.get(&number).into_iter().flatten().any(|phrase| {
            let earliest = end.saturating_sub(phrase.len());
            (earliest..=start)
                .any(|at| words.get(at..at + phrase.len()).is_some_and(|window| window == phrase.as_slice()))
        })
    }
}

impl Name<'_> {
    fn excused(&self, before: &[Token], after: &[Token], later: &[Token]) -> bool {
        let clear = match self.named {
            Named::Zone => kept_clear(before),
            Named::Object => any_word(last(before_article(before), 2), &["away"]),
        };
        clear || excused(before, after, later)
    }
}

/// `before the stairs`, `from the stairs`, `at the foot of the stairs`.
fn kept_clear(before: &[Token]) -> bool {
    let before = before_article(before);
    let words: Vec<_> = last(before, 2).iter().map(Token::word).collect();
    matches!(
        words.as_slice(),
        [
            ..,
            Some(
                "from"
                    | "off"
                    | "before"
                    | "beside"
                    | "near"
                    | "behind"
                    | "under"
                    | "beneath"
                    | "past"
                    | "outside"
                    | "around"
            )
        ] | [.., Some("next"), Some("to")]
            | [.., Some("foot" | "bottom" | "base" | "clear" | "short" | "front" | "ahead"), Some("of")]
    )
}

// ---- word lists; verbs by their stems ----

const HANDLING: &[&str] = &[
    "lift",
    "carry",
    "pick",
    "grab",
    "grasp",
    "grip",
    "hold",
    "rais",
    "hoist",
    "mov",
    "tak",
    "bring",
    "fetch",
    "put",
    "plac",
    "load",
    "hand",
    "transport",
    "deliver",
    "pull",
    "push",
    "drag",
    "throw",
    "toss",
    "drop",
    "get",
    "set",
    "stor",
    "hang",
    "giv",
    "haul",
    "stack",
    "retriev",
    "collect",
    "transfer",
    "unload",
    "remov",
    "heav",
    "shift",
    "serv",
];
const WORKING: &[&str] =
    &["open", "clos", "clean", "wip", "dust", "wash", "chang", "screw", "pour", "press", "insert", "touch"];
const MOVING: &[&str] = &[
    "driv",
    "mov",
    "go",
    "travel",
    "run",
    "rac",
    "roll",
    "proceed",
    "navigat",
    "head",
    "walk",
    "accelerat",
    "rush",
    "approach",
    "climb",
    "enter",
    "speed",
    "cross",
];
const REACHING: &[&str] = &["reach", "extend", "stretch"];
const BEARING: &[&str] = &["hold", "support", "bear", "carry", "tak"];
const REFUSING: &[&str] = &["avoid", "refus", "declin", "skip", "prohibit"];
const SOFTENERS: &[&str] =
    &["hesitat", "forget", "fail", "worry", "delay", "wait", "mind", "neglect", "omit", "stop", "bother"];
const NEGATIONS: &[&str] = &[
    "never",
    "cannot",
    "unable",
    "forbidden",
    "neither",
    "don't",
    "dont",
    "doesn't",
    "didn't",
    "can't",
    "cant",
    "won't",
    "mustn't",
    "shouldn't",
    "wouldn't",
    "couldn't",
];
const AUXILIARIES: &[&str] = &[
    "do", "does", "did", "must", "should", "shall", "will", "would", "can", "could", "may", "might", "to", "am", "is",
    "are",
];
const DELEGATING: &[&str] =
    &["ask", "tell", "request", "call", "instruct", "notify", "inform", "alert", "warn", "remind", "report", "let"];
const CONJUNCTIONS: &[&str] =
    &["then", "but", "so", "yet", "until", "before", "after", "afterwards", "once", "while", "when"];
const PEOPLE: &[&str] = &[
    "patient",
    "person",
    "people",
    "man",
    "woman",
    "child",
    "boy",
    "girl",
    "user",
    "human",
    "someone",
    "nurse",
    "adult",
    "staff",
    "caregiver",
    "resident",
    "he",
    "she",
    "guest",
    "customer",
    "worker",
    "colleague",
    "him",
    "her",
    "them",
];
const WEIGHING: &[&str] = &["weigh", "weighs", "weighing", "weight"];
const MONEY: &[&str] =
    &["pay", "costs", "cost", "price", "worth", "charge", "spend", "cash", "bill", "tip", "refund", "budget"];
const RATINGS: &[&str] = &["capacity", "limit", "support", "max", "maximum"];
const READINGS: &[&str] = &["shows", "reads", "displays", "showing", "reading", "rated", "rating", "supports", "holds"];
const RATED: &[&str] = &["limit", "capacity", "rating", "max", "maximum", "scale", "crane"];
const ARTICLES: &[&str] = &[
    "a", "an", "the", "this", "that", "these", "those", "your", "my", "its", "their", "heavy", "big", "large", "full",
    "tall",
];
const PLACES: &[&str] = &[
    "on", "onto", "in", "into", "inside", "beside", "behind", "under", "beneath", "against", "over", "around", "past",
    "off", "from", "between",
];
const BESIDE: &[&str] = &["beside", "behind", "under", "beneath", "past", "near", "around", "below", "underneath"];
const EXTENTS: &[&str] = &[
    "long",
    "wide",
    "deep",
    "thick",
    "tall",
    "cable",
    "cord",
    "rope",
    "tape",
    "ladder",
    "hose",
    "radius",
    "diameter",
    "distance",
    "clearance",
    "apart",
    "ahead",
    "pole",
    "plank",
    "board",
];
const AWAY: &[&str] = &["away", "from"];
const ARM: &[&str] = &["arm", "arms", "gripper", "hand", "manipulator", "out", "across"];
const NOUN_MARKERS: &[&str] = &["of", "within", "its", "your", "arm", "arm's", "robot's", "maximum", "max", "the"];
const HIGH_PLACES: &[&str] =
    &["shelf", "shelve", "cabinet", "cupboard", "rack", "hook", "board", "ledge", "window", "bracket"];
