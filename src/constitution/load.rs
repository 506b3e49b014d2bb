//! Reading a constitution from TOML: every problem at once, each with its line and column.
//!
//! The document is walked by hand, not deserialised, because a deserialiser stops at the first problem and a person
//! who edits sixty rules wants them all.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Serialize, Serializer};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::{
    Capabilities, Category, FILE_BYTES_MAX, Level, Limit, PHRASE_BYTES_MAX, PHRASES_MAX, PROBLEMS_MAX,
    RULE_TEXT_BYTES_MAX, RULES_MAX, Rule, SOURCE_BYTES_MAX,
};

/// What is wrong at one place of a constitution file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The file is larger than is read.
    #[error("the file has {bytes} bytes; at most {FILE_BYTES_MAX} are read")]
    FileTooLarge {
        /// How large it is, in bytes.
        bytes: usize,
    },
    /// The text is not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A key this version does not know.
    #[error("unknown key `{key}` in {table}")]
    UnknownKey {
        /// Where it stands.
        table: &'static str,
        /// The key as written.
        key: String,
    },
    /// A key that must be there.
    #[error("{table} lacks `{key}`")]
    MissingKey {
        /// Where it is missing.
        table: &'static str,
        /// Its name.
        key: &'static str,
    },
    /// A value of another type.
    #[error("`{key}` must be {expected}, not {found}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What was expected.
        expected: &'static str,
        /// The TOML type found.
        found: &'static str,
    },
    /// A number outside its range.
    #[error("`{key}` is {value}; it must lie in {min} to {max}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The number as written.
        value: String,
        /// Least value accepted.
        min: f64,
        /// Greatest value accepted.
        max: f64,
    },
    /// A category that does not exist.
    #[error("unknown category `{0}`")]
    UnknownCategory(String),
    /// A text with nothing in it.
    #[error("`{0}` is empty")]
    EmptyText(&'static str),
    /// A text longer than its limit.
    #[error("`{key}` has {bytes} bytes; at most {bytes_max} are accepted")]
    TextTooLong {
        /// The key.
        key: &'static str,
        /// Its length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// A text that begins or ends with white space, which nobody sees and every digest does.
    #[error("`{0}` begins or ends with white space")]
    Untrimmed(&'static str),
    /// A character that is invisible, or that could end the text or its line early.
    #[error("`{key}` holds the control or invisible character U+{code:04X}")]
    ForbiddenCharacter {
        /// The key.
        key: &'static str,
        /// The character's code point.
        code: u32,
    },
    /// A piece of text that a chat template could take for a change of speaker or an image.
    #[error("`{key}` holds `{token}`, which a model could take for a role or control token")]
    RoleToken {
        /// The key.
        key: &'static str,
        /// What was found.
        token: &'static str,
    },
    /// A list with nothing in it where something must be, or an empty limit.
    #[error("`{0}` has no entries")]
    EmptyList(&'static str),
    /// A list longer than its limit.
    #[error("`{key}` has {entries} entries; at most {entries_max} are accepted")]
    ListTooLong {
        /// The key.
        key: &'static str,
        /// Its length.
        entries: usize,
        /// The limit.
        entries_max: usize,
    },
    /// The same phrase twice in one list.
    #[error("`{key}` lists `{phrase}` twice")]
    DuplicatePhrase {
        /// The key.
        key: &'static str,
        /// The phrase.
        phrase: String,
    },
    /// Two rules with one number.
    #[error("rule number {number} is already used on line {first_line}")]
    DuplicateNumber {
        /// The number.
        number: u16,
        /// The line of the rule that used it first.
        first_line: usize,
    },
    /// A gap in the numbering.
    #[error("there is no rule number {number}, though the numbers go up to {last}")]
    MissingNumber {
        /// The number that is missing.
        number: u16,
        /// The greatest number used.
        last: u16,
    },
    /// A limit that allows more than the robot can do.
    #[error("`{limit}` is {value}, but the robot's own `{capability}` is {robot}")]
    LimitBeyondRobot {
        /// The limit's key.
        limit: &'static str,
        /// Its value.
        value: f64,
        /// The capability's key.
        capability: &'static str,
        /// The capability's value.
        robot: f64,
    },
    /// More problems than are listed.
    #[error("more than {PROBLEMS_MAX} problems; the rest is not listed")]
    TooMany,
}

/// One problem and where it is.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ConstitutionError {
    /// Line of the file, from 1.
    pub line: usize,
    /// Column of the line, from 1, in characters.
    pub column: usize,
    /// What is wrong there; written out in words.
    #[serde(serialize_with = "in_words")]
    pub problem: Problem,
}

fn in_words<S: Serializer>(problem: &Problem, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(problem)
}

/// Every problem of a file, in the order of its text. Never empty.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ConstitutionErrors(Vec<ConstitutionError>);

impl ConstitutionErrors {
    /// The problems, in the order of the text.
    #[must_use]
    pub fn as_slice(&self) -> &[ConstitutionError] {
        &self.0
    }
}

impl fmt::Display for ConstitutionErrors {
    /// One problem a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConstitutionErrors {}

/// Reads capabilities and rules, or says everything that is wrong.
pub(super) fn load(text: &str) -> Result<(Capabilities, Vec<Rule>), ConstitutionErrors> {
    let mut reader = Reader::new(text);
    if text.len() > FILE_BYTES_MAX {
        reader.refuse(0, Problem::FileTooLarge { bytes: text.len() });
        return Err(reader.into_errors());
    }
    let (document, faults) = DeTable::parse_recoverable(text);
    for fault in &faults {
        reader.refuse(fault.span().unwrap_or_default().start, Problem::Syntax(fault.message().to_owned()));
    }
    // What a recovered document seems to lack may only be what the parser skipped.
    if !faults.is_empty() {
        return Err(reader.into_errors());
    }
    let constitution = reader.constitution(document.get_ref());
    match constitution {
        Some(constitution) if reader.problems.is_empty() => Ok(constitution),
        _ => Err(reader.into_errors()),
    }
}

/// A table of the document, with its name for messages and the place to point at when a key is missing.
#[derive(Clone, Copy)]
struct Section<'d, 't> {
    name: &'static str,
    at: usize,
    table: &'d DeTable<'t>,
}

impl<'d, 't> Section<'d, 't> {
    fn get(&self, key: &str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.table.get(key)
    }
}

struct Reader<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
    problems: Vec<(usize, Problem)>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
        Self { text, line_starts, problems: Vec::new() }
    }

    fn refuse(&mut self, at: usize, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push((at, problem));
        } else if self.problems.len() == PROBLEMS_MAX {
            self.problems.push((self.text.len(), Problem::TooMany));
        }
    }

    /// Line from 1, and the byte it starts at.
    fn line(&self, at: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        (line, self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0))
    }

    fn into_errors(mut self) -> ConstitutionErrors {
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by_key(|(at, _)| *at);
        let errors = problems.into_iter().map(|(at, problem)| {
            let (line, start) = self.line(at);
            let column = 1 + self.text.get(start..at).map_or(0, |before| before.chars().count());
            ConstitutionError { line, column, problem }
        });
        ConstitutionErrors(errors.collect())
    }

    // ---- the document ----

    fn constitution(&mut self, document: &DeTable<'t>) -> Option<(Capabilities, Vec<Rule>)> {
        let section = Section { name: "the constitution", at: 0, table: document };
        self.refuse_unknown(section, &["robot", "rule"]);
        let robot = self.robot(section);
        let rules = self.rules(section);
        let (robot, rules) = (robot?, rules?);
        Some((robot, rules))
    }

    fn robot(&mut self, document: Section<'_, 't>) -> Option<Capabilities> {
        let section = self.table(document, "robot", "[robot]")?;
        self.refuse_unknown(section, ROBOT_KEYS);
        let base = self.text(section, "base", PHRASE_BYTES_MAX);
        let arms = self.small(section, "arms", 4);
        let arm_dof = self.small(section, "arm_dof", 12);
        let gripper = self.text(section, "gripper", PHRASE_BYTES_MAX);
        let payload_kg = self.required_number(section, "payload_kg");
        let reach_m = self.required_number(section, "reach_m");
        let lift_height_m = self.required_number(section, "lift_height_m");
        let speed_m_per_s = self.required_number(section, "speed_m_per_s");
        // A robot that can do everything is a robot nobody has thought about; but an empty list is the owner's word.
        let cannot = self.required(section, "cannot").and_then(|_| self.phrases(section, "cannot"));
        Some(Capabilities {
            base: base?,
            arms: arms?,
            arm_dof: arm_dof?,
            gripper: gripper?,
            payload_kg: payload_kg?,
            reach_m: reach_m?,
            lift_height_m: lift_height_m?,
            speed_m_per_s: speed_m_per_s?,
            cannot: cannot?,
        })
    }

    fn rules(&mut self, document: Section<'_, 't>) -> Option<Vec<Rule>> {
        let value = self.required(document, "rule")?;
        let array = self.array(value, "rule")?;
        let at = value.span().start;
        if array.is_empty() {
            self.refuse(at, Problem::EmptyList("rule"));
        }
        if array.len() > usize::from(RULES_MAX) {
            let (key, entries, entries_max) = ("rule", array.len(), usize::from(RULES_MAX));
            self.refuse(at, Problem::ListTooLong { key, entries, entries_max });
        }
        // The robot's own figures, read leniently: their own problems are reported where they stand.
        let robot = document.get("robot").and_then(|robot| robot.get_ref().as_table());
        let rules: Vec<Option<Rule>> = array.iter().map(|rule| self.rule(rule, robot)).collect();
        self.check_numbering(array);
        rules.into_iter().collect()
    }

    fn rule(&mut self, value: &Spanned<DeValue<'t>>, robot: Option<&DeTable<'t>>) -> Option<Rule> {
        let at = value.span().start;
        let table = self.as_table(value, "rule")?;
        let section = Section { name: "this rule", at, table };
        self.refuse_unknown(section, RULE_KEYS);
        let number = self.integer(section, "number", 1, RULES_MAX).and_then(|n| u16::try_from(n).ok());
        let category = self.category(section);
        let text = self.text(section, "text", RULE_TEXT_BYTES_MAX);
        let severity = self.integer(section, "severity", 1, 5).and_then(Level::new);
        let likelihood = self.integer(section, "likelihood", 1, 5).and_then(Level::new);
        let source = self.text(section, "source", SOURCE_BYTES_MAX);
        let limit = if section.get("limit").is_some() { self.limit(section, robot) } else { Some(Limit::default()) };
        Some(Rule {
            number: number?,
            category: category?,
            text: text?,
            severity: severity?,
            likelihood: likelihood?,
            source: source?,
            limit: limit?,
            line: self.line(at).0,
        })
    }

    fn category(&mut self, section: Section<'_, 't>) -> Option<Category> {
        let value = self.required(section, "category")?;
        let key = self.str(value, "category")?;
        let category = Category::from_key(key);
        if category.is_none() {
            self.refuse(value.span().start, Problem::UnknownCategory(key.to_owned()));
        }
        category
    }

    fn limit(&mut self, rule: Section<'_, 't>, robot: Option<&DeTable<'t>>) -> Option<Limit> {
        let section = self.table(rule, "limit", "this limit")?;
        self.refuse_unknown(section, LIMIT_KEYS);
        if section.table.is_empty() {
            self.refuse(section.at, Problem::EmptyList("limit"));
        }
        let mut read = |key, capability| -> Option<Option<f64>> {
            let Some(value) = section.get(key) else { return Some(None) };
            let number = self.number(value, key)?;
            let able = robot.and_then(|robot| as_number(robot.get(capability)?.get_ref()));
            if let Some(able) = able.filter(|able| number > *able) {
                let problem = Problem::LimitBeyondRobot { limit: key, value: number, capability, robot: able };
                self.refuse(value.span().start, problem);
            }
            Some(Some(number))
        };
        let payload_kg_max = read("payload_kg_max", "payload_kg");
        let reach_m_max = read("reach_m_max", "reach_m");
        let height_m_max = read("height_m_max", "lift_height_m");
        let speed_m_per_s_max = read("speed_m_per_s_max", "speed_m_per_s");
        let forbidden_zones = self.forbidden(section, "forbidden_zones");
        let forbidden_objects = self.forbidden(section, "forbidden_objects");
        let exempt_phrases = self.forbidden(section, "exempt_phrases");
        Some(Limit {
            payload_kg_max: payload_kg_max?,
            reach_m_max: reach_m_max?,
            height_m_max: height_m_max?,
            speed_m_per_s_max: speed_m_per_s_max?,
            forbidden_zones: forbidden_zones?,
            forbidden_objects: forbidden_objects?,
            exempt_phrases: exempt_phrases?,
        })
    }

    /// A limit's list with nothing in it is a mistake: the key was written for something.
    fn forbidden(&mut self, section: Section<'_, 't>, key: &'static str) -> Option<Vec<String>> {
        let Some(value) = section.get(key) else { return Some(Vec::new()) };
        let phrases = self.phrases(section, key)?;
        if phrases.is_empty() {
            self.refuse(value.span().start, Problem::EmptyList(key));
        }
        Some(phrases)
    }

    /// Numbers must be 1 to n, each once, in whatever order. Rules whose number could not be read are left out.
    fn check_numbering(&mut self, rules: &DeArray<'t>) {
        let mut first_use: BTreeMap<u16, usize> = BTreeMap::new();
        let mut readable = true;
        for rule in rules.iter() {
            let value = rule.get_ref().as_table().and_then(|table| table.get("number"));
            let number = value.and_then(|value| as_integer(value.get_ref())).and_then(|n| u16::try_from(n).ok());
            let number = number.filter(|number| (1..=RULES_MAX).contains(number));
            let Some((value, number)) = value.zip(number) else {
                readable = false;
                continue;
            };
            let at = value.span().start;
            if let Some(first) = first_use.get(&number) {
                let first_line = self.line(*first).0;
                self.refuse(at, Problem::DuplicateNumber { number, first_line });
            } else {
                first_use.insert(number, at);
            }
        }
        // With one number unreadable a gap may be that very rule: one mistake, one message.
        let Some((&last, &at)) = first_use.last_key_value().filter(|_| readable) else { return };
        for number in (1..last).filter(|number| !first_use.contains_key(number)) {
            self.refuse(at, Problem::MissingNumber { number, last });
        }
    }

    // ---- values ----

    fn refuse_unknown(&mut self, section: Section<'_, 't>, known: &[&str]) {
        for key in section.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let problem = Problem::UnknownKey { table: section.name, key: key.get_ref().to_string() };
            self.refuse(key.span().start, problem);
        }
    }

    fn required<'d>(&mut self, section: Section<'d, 't>, key: &'static str) -> Option<&'d Spanned<DeValue<'t>>> {
        let value = section.get(key);
        if value.is_none() {
            self.refuse(section.at, Problem::MissingKey { table: section.name, key });
        }
        value
    }

    fn wrong_type<T>(&mut self, value: &Spanned<DeValue<'t>>, key: &'static str, expected: &'static str) -> Option<T> {
        let found = value.get_ref().type_str();
        self.refuse(value.span().start, Problem::WrongType { key, expected, found });
        None
    }

    fn table<'d>(
        &mut self,
        section: Section<'d, 't>,
        key: &'static str,
        name: &'static str,
    ) -> Option<Section<'d, 't>> {
        let value = self.required(section, key)?;
        let table = self.as_table(value, key)?;
        Some(Section { name, at: value.span().start, table })
    }

    fn as_table<'d>(&mut self, value: &'d Spanned<DeValue<'t>>, key: &'static str) -> Option<&'d DeTable<'t>> {
        value.get_ref().as_table().or_else(|| self.wrong_type(value, key, "a table"))
    }

    fn array<'d>(&mut self, value: &'d Spanned<DeValue<'t>>, key: &'static str) -> Option<&'d DeArray<'t>> {
        value.get_ref().as_array().or_else(|| self.wrong_type(value, key, "a list"))
    }

    fn str<'d>(&mut self, value: &'d Spanned<DeValue<'t>>, key: &'static str) -> Option<&'d str> {
        value.get_ref().as_str().or_else(|| self.wrong_type(value, key, "a text"))
    }

    fn integer(&mut self, section: Section<'_, 't>, key: &'static str, min: u16, max: u16) -> Option<i64> {
        let value = self.required(section, key)?;
        if !value.get_ref().is_integer() {
            return self.wrong_type(value, key, "a whole number");
        }
        let number = as_integer(value.get_ref());
        let within = number.filter(|number| (i64::from(min)..=i64::from(max)).contains(number));
        if within.is_none() {
            self.refuse_range(value, key, (f64::from(min), f64::from(max)));
        }
        within
    }

    fn small(&mut self, section: Section<'_, 't>, key: &'static str, max: u16) -> Option<u8> {
        self.integer(section, key, 1, max).and_then(|number| u8::try_from(number).ok())
    }

    fn required_number(&mut self, section: Section<'_, 't>, key: &'static str) -> Option<f64> {
        let value = self.required(section, key)?;
        self.number(value, key)
    }

    /// A positive physical quantity in [`QUANTITY`]'s range; NaN and the infinities lie in no range.
    fn number(&mut self, value: &Spanned<DeValue<'t>>, key: &'static str) -> Option<f64> {
        if !value.get_ref().is_integer() && !value.get_ref().is_float() {
            return self.wrong_type(value, key, "a number");
        }
        let within = as_number(value.get_ref()).filter(|number| (QUANTITY.0..=QUANTITY.1).contains(number));
        if within.is_none() {
            self.refuse_range(value, key, QUANTITY);
        }
        within
    }

    fn refuse_range(&mut self, value: &Spanned<DeValue<'t>>, key: &'static str, (min, max): (f64, f64)) {
        let Range { start, end } = value.span();
        let value = self.text.get(start..end).unwrap_or_default().chars().take(24).collect();
        self.refuse(start, Problem::OutOfRange { key, value, min, max });
    }

    fn phrases(&mut self, section: Section<'_, 't>, key: &'static str) -> Option<Vec<String>> {
        let value = section.get(key)?;
        let array = self.array(value, key)?;
        if array.len() > PHRASES_MAX {
            let problem = Problem::ListTooLong { key, entries: array.len(), entries_max: PHRASES_MAX };
            self.refuse(value.span().start, problem);
            return None;
        }
        let mut phrases: Vec<String> = Vec::new();
        let mut complete = true;
        for entry in array.iter() {
            let Some(phrase) = self.admit_text(entry, key, PHRASE_BYTES_MAX) else {
                complete = false;
                continue;
            };
            if phrases.contains(&phrase) {
                self.refuse(entry.span().start, Problem::DuplicatePhrase { key, phrase: phrase.clone() });
            }
            phrases.push(phrase);
        }
        complete.then_some(phrases)
    }

    fn text(&mut self, section: Section<'_, 't>, key: &'static str, bytes_max: usize) -> Option<String> {
        let value = self.required(section, key)?;
        self.admit_text(value, key, bytes_max)
    }

    /// A text that may stand in a prompt: of bounded length, on one line, with nothing invisible and no role token.
    fn admit_text(&mut self, value: &Spanned<DeValue<'t>>, key: &'static str, bytes_max: usize) -> Option<String> {
        let text = self.str(value, key)?;
        let problem = if text.trim().is_empty() {
            Problem::EmptyText(key)
        } else if text.len() > bytes_max {
            Problem::TextTooLong { key, bytes: text.len(), bytes_max }
        } else if let Some(character) = text.chars().find(|character| is_invisible(*character)) {
            Problem::ForbiddenCharacter { key, code: u32::from(character) }
        } else if let Some(token) = role_token(text) {
            Problem::RoleToken { key, token }
        } else if text.trim().len() != text.len() {
            Problem::Untrimmed(key)
        } else {
            return Some(text.to_owned());
        };
        self.refuse(value.span().start, problem);
        None
    }
}

const ROBOT_KEYS: &[&str] =
    &["base", "arms", "arm_dof", "gripper", "payload_kg", "reach_m", "lift_height_m", "speed_m_per_s", "cannot"];
const RULE_KEYS: &[&str] = &["number", "category", "text", "severity", "likelihood", "source", "limit"];
const LIMIT_KEYS: &[&str] = &[
    "payload_kg_max",
    "reach_m_max",
    "height_m_max",
    "speed_m_per_s_max",
    "forbidden_zones",
    "forbidden_objects",
    "exempt_phrases",
];
/// Least and greatest kilograms, metres or metres per second a capability or limit may state: a gram, and far more
/// than any robot this guard fits on.
const QUANTITY: (f64, f64) = (0.001, 1000.0);

fn as_integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn as_number(value: &DeValue<'_>) -> Option<f64> {
    match value.as_float() {
        Some(float) => float.as_str().parse().ok(),
        None => as_integer(value).and_then(|integer| i32::try_from(integer).ok()).map(f64::from),
    }
}

/// Control characters (NUL and line breaks among them) and the format characters that hide or reorder text.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The first thing in the text that some chat template reads as more than text. Angle brackets are refused whole:
/// every family writes its special tokens with them, and no plain rule needs one.
fn role_token(text: &str) -> Option<&'static str> {
    ["<|", "|>", "<", ">", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[IMG]", "{{", "{%"]
        .into_iter()
        .find(|token| text.contains(token))
}
