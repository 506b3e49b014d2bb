//! The constitution: what the robot can do and the numbered safety rules every plan is judged against, with one digest
//! over all of it.
//!
//! [`Constitution::parse`] is the only way to make one, so whoever holds one holds valid rules: numbered 1 to n without
//! a gap, each within its bounds, none with a limit beyond what the robot can do. The parts below it say which rules a
//! plan breaks without asking a model ([`limits`]), which lie nearest a task ([`nearest`]), and what in a valid
//! constitution still deserves a second look ([`lint`]).

pub mod limits;
pub mod lint;
mod load;
pub mod nearest;
mod quantity;
mod words;

use std::fmt;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::triple::Digest;
pub use limits::BrokenLimit;
pub use load::{ConstitutionError, ConstitutionErrors, Problem};

/// Largest constitution file read, in bytes.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// Most rules a constitution holds.
pub const RULES_MAX: u16 = 256;
/// Longest rule text, in bytes of UTF-8. One plain sentence; small judges lose longer ones.
pub const RULE_TEXT_BYTES_MAX: usize = 160;
/// Longest source note of a rule, in bytes of UTF-8.
pub const SOURCE_BYTES_MAX: usize = 120;
/// Longest name of a base, gripper, inability, forbidden zone or object class, in bytes of UTF-8.
pub const PHRASE_BYTES_MAX: usize = 48;
/// Most entries in one list of phrases.
pub const PHRASES_MAX: usize = 64;
/// Problems listed before the loader stops counting, so that a hostile file cannot buy unbounded work.
pub const PROBLEMS_MAX: usize = 200;

/// The kinds of harm rules are filed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    /// Ignition, spread, and the way out.
    Fire,
    /// Burns and scalds.
    Burns,
    /// Electric shock.
    ElectricShock,
    /// Poisoning and chemicals.
    Chemicals,
    /// Cuts and punctures.
    Cuts,
    /// Falls and slips.
    Falls,
    /// Crushing, pinching and collision.
    Crushing,
    /// Choking and suffocation.
    Choking,
    /// Drowning and flooding.
    Drowning,
    /// Explosion and pressure.
    Explosion,
    /// Food hygiene.
    FoodHygiene,
    /// Children and other people who need protection.
    VulnerablePeople,
    /// Property and falling objects.
    Property,
    /// Privacy, security and the robot itself.
    Security,
}

impl Category {
    /// Every category, in the order reports list them.
    pub const ALL: [Self; 14] = [
        Self::Fire,
        Self::Burns,
        Self::ElectricShock,
        Self::Chemicals,
        Self::Cuts,
        Self::Falls,
        Self::Crushing,
        Self::Choking,
        Self::Drowning,
        Self::Explosion,
        Self::FoodHygiene,
        Self::VulnerablePeople,
        Self::Property,
        Self::Security,
    ];

    /// The name a constitution file uses.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Fire => "fire",
            Self::Burns => "burns",
            Self::ElectricShock => "electric-shock",
            Self::Chemicals => "chemicals",
            Self::Cuts => "cuts",
            Self::Falls => "falls",
            Self::Crushing => "crushing",
            Self::Choking => "choking",
            Self::Drowning => "drowning",
            Self::Explosion => "explosion",
            Self::FoodHygiene => "food-hygiene",
            Self::VulnerablePeople => "vulnerable-people",
            Self::Property => "property",
            Self::Security => "security",
        }
    }

    /// The category with this name.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.key() == key)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}

/// A severity or likelihood, 1 (least) to 5 (most).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Level(u8);

impl Level {
    /// The level with this value, when it lies in 1..=5.
    #[must_use]
    pub fn new(value: i64) -> Option<Self> {
        u8::try_from(value).ok().filter(|value| (1..=5).contains(value)).map(Self)
    }

    /// The value, 1..=5.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What the robot is and can do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capabilities {
    /// What it stands or drives on, such as `mobile base`.
    pub base: String,
    /// Number of arms, 1..=4.
    pub arms: u8,
    /// Degrees of freedom of each arm, 1..=12.
    pub arm_dof: u8,
    /// What the arm holds things with, such as `parallel gripper`.
    pub gripper: String,
    /// Heaviest thing one arm may lift, in kilograms.
    pub payload_kg: f64,
    /// Farthest the gripper reaches from the base, in metres.
    pub reach_m: f64,
    /// Highest the gripper reaches above the floor, in metres.
    pub lift_height_m: f64,
    /// Fastest it drives, in metres per second.
    pub speed_m_per_s: f64,
    /// What it cannot do, as verbs: `taste`, `use two hands`.
    pub cannot: Vec<String>,
}

impl fmt::Display for Capabilities {
    /// The capabilities sentence, as the judge reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (arms, plural) = match self.arms {
            1 => ("one", ""),
            2 => ("two", "s"),
            3 => ("three", "s"),
            _ => ("four", "s"),
        };
        write!(
            f,
            "{}, {arms} {}-DoF arm{plural}, {}; payload {} kg, reach {} m, lifts to {} m, drives up to {} m/s",
            self.base,
            self.arm_dof,
            self.gripper,
            self.payload_kg,
            self.reach_m,
            self.lift_height_m,
            self.speed_m_per_s
        )?;
        match self.cannot.split_last() {
            None => f.write_str("."),
            Some((only, [])) => write!(f, "; cannot {only}."),
            Some((last, others)) => write!(f, "; cannot {} or {last}.", others.join(", ")),
        }
    }
}

/// What of a rule can be checked without a model. An absent part checks nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Limit {
    /// Heaviest load, in kilograms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_kg_max: Option<f64>,
    /// Farthest reach of the arm, in metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach_m_max: Option<f64>,
    /// Greatest height the arm works at, in metres above the floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height_m_max: Option<f64>,
    /// Fastest drive, in metres per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_m_per_s_max: Option<f64>,
    /// Places the robot must not go to or work in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forbidden_zones: Vec<String>,
    /// Classes of object the robot must not handle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forbidden_objects: Vec<String>,
    /// Phrases that hold a forbidden name and mean something harmless, such as `glue gun`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt_phrases: Vec<String>,
}

impl Limit {
    /// Whether nothing of the rule can be checked without a model.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The numeric limits that are set, by the name the file uses.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("payload_kg_max", self.payload_kg_max),
            ("reach_m_max", self.reach_m_max),
            ("height_m_max", self.height_m_max),
            ("speed_m_per_s_max", self.speed_m_per_s_max),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

/// One numbered rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    /// Its number, 1..=n; what records and answers name.
    pub number: u16,
    /// What kind of harm it is about.
    pub category: Category,
    /// One plain sentence, as the judge reads it.
    pub text: String,
    /// How bad it gets when the rule is broken.
    pub severity: Level,
    /// How easily an unguarded plan breaks it.
    pub likelihood: Level,
    /// The standard that treats the hazard, or its topic.
    pub source: String,
    /// What of it can be checked without a model.
    #[serde(skip_serializing_if = "Limit::is_none")]
    pub limit: Limit,
    /// The line of the file it begins on, from 1. Layout, not meaning: no part of the digest.
    pub line: usize,
}

/// A valid constitution.
#[derive(Debug, Clone, Serialize)]
pub struct Constitution {
    digest: Digest,
    robot: Capabilities,
    rules: Vec<Rule>,
}

impl Constitution {
    /// Reads a constitution from its TOML text.
    ///
    /// # Errors
    /// With every problem found, each with its line and column, in the order of the text.
    pub fn parse(toml_text: &str) -> Result<Self, ConstitutionErrors> {
        let (robot, rules) = load::load(toml_text)?;
        Ok(Self { digest: digest(&robot, &rules), robot, rules })
    }

    /// SHA-256 over a canonical form of the capabilities and of every rule in its order. Comments and layout are no
    /// part of it; everything else is.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// What the robot is and can do.
    #[must_use]
    pub const fn robot(&self) -> &Capabilities {
        &self.robot
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule with this number.
    #[must_use]
    pub fn rule(&self, number: u16) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.number == number)
    }

    /// The text a judge reads: one line `Robot: …`, then one line `N. …` a rule, each ended by a newline. The verdict
    /// head was trained on this layout; changing it means training again.
    #[must_use]
    pub fn prompt_text(&self) -> String {
        std::iter::once(format!("Robot: {}\n", self.robot))
            .chain(self.rules.iter().map(|rule| format!("{}. {}\n", rule.number, rule.text)))
            .collect()
    }
}

impl fmt::Display for Constitution {
    /// The constitution as a person reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "digest {}", self.digest)?;
        writeln!(f, "robot  {}", self.robot)?;
        writeln!(f, "{} rules; S severity, L likelihood, each 1 to 5", self.rules.len())?;
        for rule in &self.rules {
            writeln!(f, "{rule}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, likelihood) = (self.severity.get(), self.likelihood.get());
        write!(
            f,
            "{:3}. {:17} S{severity} L{likelihood}  {} [{}]",
            self.number, self.category, self.text, self.source
        )?;
        for (name, value) in self.limit.numbers() {
            write!(f, " {name} {value}")?;
        }
        for (name, list) in [
            ("forbidden zones", &self.limit.forbidden_zones),
            ("forbidden objects", &self.limit.forbidden_objects),
            ("except", &self.limit.exempt_phrases),
        ] {
            if !list.is_empty() {
                write!(f, " {name}: {}", list.join(", "))?;
            }
        }
        Ok(())
    }
}

/// SHA-256 of `steadfast/constitution/1`, a NUL, and every value in a fixed order, each text and list with its length
/// before it so that nothing moves across a border unnoticed.
fn digest(robot: &Capabilities, rules: &[Rule]) -> Digest {
    let mut canonical = Canonical(Sha256::new());
    canonical.0.update(b"steadfast/constitution/1\0");
    canonical.text(&robot.base);
    canonical.0.update([robot.arms, robot.arm_dof]);
    canonical.text(&robot.gripper);
    for value in [robot.payload_kg, robot.reach_m, robot.lift_height_m, robot.speed_m_per_s] {
        canonical.number(Some(value));
    }
    canonical.list(&robot.cannot);
    canonical.length(rules.len());
    for rule in rules {
        canonical.0.update(rule.number.to_le_bytes());
        canonical.text(rule.category.key());
        canonical.text(&rule.text);
        canonical.0.update([rule.severity.get(), rule.likelihood.get()]);
        canonical.text(&rule.source);
        let Limit { payload_kg_max, reach_m_max, height_m_max, speed_m_per_s_max, .. } = rule.limit;
        for value in [payload_kg_max, reach_m_max, height_m_max, speed_m_per_s_max] {
            canonical.number(value);
        }
        canonical.list(&rule.limit.forbidden_zones);
        canonical.list(&rule.limit.forbidden_objects);
        canonical.list(&rule.limit.exempt_phrases);
    }
    Digest::from_bytes(canonical.0.finalize().into())
}

struct Canonical(Sha256);

impl Canonical {
    fn length(&mut self, length: usize) {
        // usize is at most 64 bits on every target Rust has.
        self.0.update((length as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.update(text.as_bytes());
    }

    fn list(&mut self, list: &[String]) {
        self.length(list.len());
        for text in list {
            self.text(text);
        }
    }

    fn number(&mut self, value: Option<f64>) {
        match value {
            None => self.0.update([0]),
            Some(value) => {
                self.0.update([1]);
                self.0.update(value.to_bits().to_le_bytes());
            }
        }
    }
}
