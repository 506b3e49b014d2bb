//! What in a valid constitution deserves a second look. Findings are advice: nothing here stops a start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

use super::limits::name_words;
use super::nearest::{Lexicon, is_content};
use super::quantity::{Dimension, quantities};
use super::words::{Token, tokens};
use super::{Category, Constitution, Limit, Rule};

/// Longest prompt, in tokens, at which the compact proxy keeps its measured speed.
pub const PROMPT_TOKENS_MAX: usize = 1200;
/// Most tokens of one rule before it is worth splitting.
pub const RULE_TOKENS_MAX: usize = 30;
/// Bytes of English a SmolLM2 token stands for: 3466 bytes in 950 tokens over the shipped constitution. Rounded down,
/// so that the estimate errs to too many.
const BYTES_PER_TOKEN: f64 = 3.5;
/// Word similarity from which two rules are taken for one said twice.
const DUPLICATE_SIMILARITY_MIN: f64 = 0.7;
/// Share of rules at one severity and likelihood from which the ratings tell rules apart no longer.
const SAME_RATING_SHARE_MAX: f64 = 0.5;
/// Fewest rules for which the distribution of ratings means anything.
const RATED_RULES_MIN: usize = 5;

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// Two rules that say much the same.
    NearDuplicate {
        /// The earlier rule.
        other: u16,
        /// Cosine of their words.
        similarity: f64,
    },
    /// A rule that neither commands nor forbids.
    NoDirective,
    /// A rule with nothing in it but function words.
    NoContent,
    /// A rule that small judges lose.
    RuleLong {
        /// Estimated tokens.
        tokens: usize,
    },
    /// A prompt that slows the compact proxy.
    PromptLong {
        /// Estimated tokens.
        tokens: usize,
    },
    /// A number in the text that its limit does not have.
    TextDisagreesWithLimit {
        /// The limit's key.
        limit: &'static str,
        /// Its value.
        value: f64,
        /// The number in the text, in the limit's unit.
        text: f64,
    },
    /// A limit that another rule's stricter one always precedes.
    LimitNeverFirst {
        /// The limit's key.
        limit: &'static str,
        /// The rule with the stricter limit.
        other: u16,
    },
    /// A forbidden name that no text can be seen to hold, or that is exempt altogether.
    NameNeverMatches {
        /// The name.
        name: String,
    },
    /// A forbidden name that another rule, or this one, already forbids.
    NameTwice {
        /// The name.
        name: String,
        /// The rule that has it first.
        other: u16,
    },
    /// An exempt phrase that holds no forbidden name.
    ExemptPhraseIdle {
        /// The phrase.
        phrase: String,
    },
    /// A capability that no rule's limit holds plans to.
    CapabilityUnchecked {
        /// The limit's key that no rule has.
        limit: &'static str,
    },
    /// A category with no rule.
    CategoryUnused(Category),
    /// Most rules have one severity and likelihood.
    RatingsFlat {
        /// Rules with it.
        rules: usize,
        /// The severity.
        severity: u8,
        /// The likelihood.
        likelihood: u8,
    },
    /// A rule that stands before one with a smaller number.
    OutOfOrder,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NearDuplicate { other, similarity } => {
                write!(f, "says much the same as rule {other} (word similarity {similarity:.2})")
            }
            Self::NoDirective => f.write_str("neither commands nor forbids; begin with a verb or `Never`"),
            Self::NoContent => f.write_str("names nothing a plan could be compared with"),
            Self::RuleLong { tokens } => {
                write!(f, "about {tokens} tokens; over {RULE_TOKENS_MAX} a small judge loses it")
            }
            Self::PromptLong { tokens } => write!(
                f,
                "the prompt has about {tokens} tokens; over {PROMPT_TOKENS_MAX} the compact proxy misses its speed"
            ),
            Self::TextDisagreesWithLimit { limit, value, text } => {
                write!(f, "the text says {text}, its `{limit}` is {value}")
            }
            Self::LimitNeverFirst { limit, other } => {
                write!(f, "`{limit}` is never the first to be broken: rule {other} is stricter")
            }
            Self::NameNeverMatches { name } => write!(f, "the forbidden name `{name}` can never match"),
            Self::NameTwice { name, other } => write!(f, "the name `{name}` is already forbidden by rule {other}"),
            Self::ExemptPhraseIdle { phrase } => write!(f, "the exempt phrase `{phrase}` holds no forbidden name"),
            Self::CapabilityUnchecked { limit } => write!(f, "no rule has a `{limit}`, so no plan is held to it"),
            Self::CategoryUnused(category) => write!(f, "no rule is about `{category}`"),
            Self::RatingsFlat { rules, severity, likelihood } => {
                write!(
                    f,
                    "{rules} rules have severity {severity} and likelihood {likelihood}; ratings that tell nothing"
                )
            }
            Self::OutOfOrder => f.write_str("stands before a rule with a smaller number"),
        }
    }
}

/// A finding and the rule it is about; one about the whole has neither number nor line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lint {
    /// The rule's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// The line of the file the rule begins on, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What was found.
    #[serde(serialize_with = "in_words")]
    pub finding: Finding,
}

fn in_words<S: Serializer>(finding: &Finding, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(finding)
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number.zip(self.line) {
            Some((number, line)) => write!(f, "line {line}, rule {number}: {}", self.finding),
            None => self.finding.fmt(f),
        }
    }
}

impl Lint {
    fn of(rule: &Rule, finding: Finding) -> Self {
        Self { number: Some(rule.number), line: Some(rule.line), finding }
    }

    const fn whole(finding: Finding) -> Self {
        Self { number: None, line: None, finding }
    }
}

/// Everything that deserves a second look: rule by rule in the order of the file, then what concerns the whole.
#[must_use]
pub fn lint(constitution: &Constitution) -> Vec<Lint> {
    let rules = constitution.rules();
    let mut lints: Vec<Lint> = rules.iter().flat_map(wording).collect();
    lints.extend(near_duplicates(constitution));
    lints.extend(numbers_never_first(rules));
    lints.extend(names(rules));
    lints.extend(out_of_order(rules));
    lints.sort_by_key(|lint| lint.line);
    lints.extend(whole(constitution));
    lints
}

/// Tokens a SmolLM2-family judge needs for this text, estimated without its tokenizer.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an estimate")]
pub fn estimated_tokens(text: &str) -> usize {
    (text.len() as f64 / BYTES_PER_TOKEN).ceil() as usize
}

fn wording(rule: &Rule) -> Vec<Lint> {
    let words = tokens(&rule.text);
    let mut findings = Vec::new();
    if !is_directive(&words) {
        findings.push(Finding::NoDirective);
    }
    if !words.iter().any(is_content) {
        findings.push(Finding::NoContent);
    }
    let tokens = estimated_tokens(&rule.text);
    if tokens > RULE_TOKENS_MAX {
        findings.push(Finding::RuleLong { tokens });
    }
    findings.extend(disagreements(rule, &words));
    findings.into_iter().map(|finding| Lint::of(rule, finding)).collect()
}

/// Whether the text forbids or commands: a word that does, or a verb in front.
fn is_directive(words: &[Token]) -> bool {
    const DIRECTIVES: &[&str] = &["never", "not", "must", "don't", "always", "avoid", "only", "shall", "no"];
    const VERBS: &[&str] = &[
        "keep", "let", "put", "turn", "unplug", "hand", "clear", "stop", "check", "give", "ask", "use", "wait", "wear",
        "warn", "tell", "leave", "close", "open", "switch", "store", "wash", "clean", "hold", "carry", "place", "move",
        "drive", "call", "report", "cover", "cool", "wipe", "test", "return", "make", "take", "remove", "protect",
        "stay",
    ];
    words.iter().any(|word| word.is_word(DIRECTIVES)) || words.first().is_some_and(|word| word.is_word(VERBS))
}

fn disagreements(rule: &Rule, words: &[Token]) -> Vec<Finding> {
    let Limit { payload_kg_max, reach_m_max, height_m_max, speed_m_per_s_max, .. } = rule.limit;
    let stated = quantities(words);
    let of = |dimension| stated.iter().filter(move |quantity| quantity.dimension == dimension);
    let differs = |a: f64, b: f64| (a - b).abs() > 5e-4;
    let mut findings = Vec::new();
    for (limit, value, dimension) in [
        ("payload_kg_max", payload_kg_max, Dimension::Mass),
        ("speed_m_per_s_max", speed_m_per_s_max, Dimension::Speed),
        ("reach_m_max", reach_m_max, Dimension::Length),
        ("height_m_max", height_m_max, Dimension::Length),
    ] {
        let Some(value) = value else { continue };
        // With several lengths in a text, one that agrees is enough: which is which takes reading.
        let mut texts = of(dimension).map(|quantity| quantity.value).peekable();
        let Some(text) = texts.peek().copied() else { continue };
        if texts.all(|text| differs(text, value)) {
            findings.push(Finding::TextDisagreesWithLimit { limit, value, text });
        }
    }
    findings
}

fn near_duplicates(constitution: &Constitution) -> Vec<Lint> {
    let rules = constitution.rules();
    let pairs = Lexicon::of(constitution).pairs(DUPLICATE_SIMILARITY_MIN).collect::<Vec<_>>();
    let lint = |(a, b, similarity): (usize, usize, f64)| {
        let (earlier, later) = (rules.get(a)?, rules.get(b)?);
        Some(Lint::of(later, Finding::NearDuplicate { other: earlier.number, similarity }))
    };
    pairs.into_iter().filter_map(lint).collect()
}

/// Of each kind of numeric limit only the strictest ever speaks first.
fn numbers_never_first(rules: &[Rule]) -> Vec<Lint> {
    let mut strictest: BTreeMap<&str, (f64, u16)> = BTreeMap::new();
    for rule in rules {
        for (limit, value) in rule.limit.numbers() {
            let entry = strictest.entry(limit).or_insert((value, rule.number));
            if value < entry.0 {
                *entry = (value, rule.number);
            }
        }
    }
    let mut lints = Vec::new();
    for rule in rules {
        for (limit, _) in rule.limit.numbers() {
            if let Some((_, other)) = strictest.get(limit).filter(|(_, number)| *number != rule.number) {
                lints.push(Lint::of(rule, Finding::LimitNeverFirst { limit, other: *other }));
            }
        }
    }
    lints
}

fn names(rules: &[Rule]) -> Vec<Lint> {
    let mut first_use: BTreeMap<Vec<String>, u16> = BTreeMap::new();
    let mut lints = Vec::new();
    for rule in rules {
        let exempt: Vec<Vec<String>> = rule.limit.exempt_phrases.iter().map(|phrase| name_words(phrase)).collect();
        let names: Vec<&String> = rule.limit.forbidden_zones.iter().chain(&rule.limit.forbidden_objects).collect();
        let forbidden: Vec<Vec<String>> = names.iter().map(|name| name_words(name)).collect();
        for (name, words) in names.iter().zip(&forbidden) {
            let name = (*name).clone();
            if words.is_empty() || exempt.contains(words) {
                lints.push(Lint::of(rule, Finding::NameNeverMatches { name }));
            } else if let Some(other) = first_use.get(words) {
                lints.push(Lint::of(rule, Finding::NameTwice { name, other: *other }));
            } else {
                first_use.insert(words.clone(), rule.number);
            }
        }
        for (phrase, words) in rule.limit.exempt_phrases.iter().zip(&exempt) {
            let holds =
                |name: &Vec<String>| !name.is_empty() && words.windows(name.len()).any(|part| part == name.as_slice());
            if !forbidden.iter().any(holds) {
                lints.push(Lint::of(rule, Finding::ExemptPhraseIdle { phrase: phrase.clone() }));
            }
        }
    }
    lints
}

fn out_of_order(rules: &[Rule]) -> Vec<Lint> {
    let pairs = rules.iter().zip(rules.iter().skip(1));
    pairs.filter(|(a, b)| a.number > b.number).map(|(a, _)| Lint::of(a, Finding::OutOfOrder)).collect()
}

fn whole(constitution: &Constitution) -> Vec<Lint> {
    let rules = constitution.rules();
    let mut findings = Vec::new();
    let used: BTreeSet<Category> = rules.iter().map(|rule| rule.category).collect();
    findings.extend(Category::ALL.into_iter().filter(|c| !used.contains(c)).map(Finding::CategoryUnused));
    for limit in ["payload_kg_max", "reach_m_max", "height_m_max", "speed_m_per_s_max"] {
        if !rules.iter().any(|rule| rule.limit.numbers().any(|(name, _)| name == limit)) {
            findings.push(Finding::CapabilityUnchecked { limit });
        }
    }
    let tokens = estimated_tokens(&constitution.prompt_text());
    if tokens > PROMPT_TOKENS_MAX {
        findings.push(Finding::PromptLong { tokens });
    }
    findings.extend(flat_ratings(rules));
    findings.into_iter().map(Lint::whole).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of at most 256 rules")]
fn flat_ratings(rules: &[Rule]) -> Option<Finding> {
    let mut counts: BTreeMap<(u8, u8), usize> = BTreeMap::new();
    for rule in rules {
        *counts.entry((rule.severity.get(), rule.likelihood.get())).or_default() += 1;
    }
    let ((severity, likelihood), count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let flat = rules.len() >= RATED_RULES_MIN && count as f64 > SAME_RATING_SHARE_MAX * rules.len() as f64;
    flat.then_some(Finding::RatingsFlat { rules: count, severity, likelihood })
}
