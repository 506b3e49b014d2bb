//! The calibration: what turns a proxy's raw readings into a decision, and the limits that decision is held to.
//!
//! A calibration belongs to one proxy, one constitution and one prompt layout, named by digest; a mismatch stops the
//! start. Its file refuses unknown keys, and every number's range is in its type, so that what parses can be used.

mod risk_control;
mod scale;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::margin::{Margin, NonFinite};
use crate::signals::malleability::Composite;
use crate::statistics::{Finite, Positive, Share};
use crate::triple::Digest;

pub use risk_control::{
    Choice, ChoiceError, Guarantee, Judged, Request, choose_limits, misses_allowed, rates, side_limits_of, vetoes,
};
pub use scale::{ScaleError, fit_margin_scale};

/// Largest limit on the log-odds, either way, that a file may hold. Beyond it every plan would pass, or none: such a
/// calibration can neither be written nor read.
pub const LOG_ODDS_LIMIT_MAX: f64 = 1_000.0;

/// A calibration file, validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    format: Format,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rebound_from: Vec<Digest>,
    /// What it belongs to.
    pub bound: Bound,
    /// How a margin becomes log-odds.
    pub margin: MarginScale,
    /// What the readings are held to.
    pub limits: Limits,
    /// A5, or its reduced form; names its target.
    pub composite: Composite,
    /// How the limits were chosen and what was achieved.
    pub fit: Fit,
}

/// The digests a calibration is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// SHA-256 over every file the proxy's verdict depends on.
    pub proxy: Digest,
    /// SHA-256 of the constitution.
    pub constitution: Digest,
    /// SHA-256 of the prompt layout.
    pub prompt_layout: Digest,
}

/// The affine map from margin to log-odds. Positive scale: it never turns a proxy's judgement round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarginScale {
    /// Log-odds of *comply* per nat of margin.
    pub scale: Positive,
    /// Log-odds of *comply* at a margin of zero.
    pub bias: Finite,
}

/// What a reading may at most be for the plan to run. A reading over its limit is a veto; one equal to it is not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Calibrated log-odds of *refuse*; in a file at most [`LOG_ODDS_LIMIT_MAX`] either way.
    #[serde(serialize_with = "write_limit", deserialize_with = "read_limit")]
    pub refuse_log_odds_max: Finite,
    /// Score of the composite.
    pub malleability_max: Share,
    /// Share of the perturbed copies whose verdict differs from the clean image's.
    pub flip_share_max: Share,
}

/// How the limits were chosen, on what, and with what result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// α: the miss rate the deployer accepts on plans that should not run.
    pub miss_rate_max: Share,
    /// δ: where given, the miss rate exceeds α with at most this probability over the draw of the calibration rows
    /// (Learn then Test); where absent, α bounds its expectation (conformal risk control).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<Share>,
    /// The false-veto rate the deployer would like on plans that should run.
    pub false_veto_rate_asked: Share,
    /// SHA-256 of the rows it was fitted on.
    pub data: Digest,
    /// Plans that should not run and would have, at these limits.
    pub miss: Rate,
    /// Plans that should run and would not have, at these limits.
    pub false_veto: Rate,
    /// The same two per source of the rows, where one source may fare worse than the whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceRates>,
}

/// A rate with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Tally")]
pub struct Rate {
    events: u32,
    of: u32,
    low: Share,
    high: Share,
}

/// The two rates on the rows of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRates {
    /// The source's name.
    pub source: String,
    /// Plans that should not run and would have; absent where the source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<Rate>,
    /// Plans that should run and would not have; absent where the source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub false_veto: Option<Rate>,
}

/// Why a text is not a calibration; names the line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(#[from] toml::de::Error);

/// Why a calibration could not be written out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the calibration does not fit TOML: {0}")]
pub struct WriteError(#[from] toml::ser::Error);

/// A part of what a calibration is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundPart {
    /// The proxy's files.
    Proxy,
    /// The constitution.
    Constitution,
    /// The prompt layout.
    PromptLayout,
}

/// A calibration that belongs to something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the calibration is bound to the {part} {bound}, but this is {found}")]
pub struct Mismatch {
    /// What differs.
    pub part: BoundPart,
    /// The digest in the calibration.
    pub bound: Digest,
    /// The digest in use.
    pub found: Digest,
}

impl Calibration {
    /// A calibration from its parts.
    #[must_use]
    pub const fn new(bound: Bound, margin: MarginScale, limits: Limits, composite: Composite, fit: Fit) -> Self {
        Self { format: Format, rebound_from: Vec::new(), bound, margin, limits, composite, fit }
    }

    /// The same fit bound to an edited constitution, by somebody's explicit wish and without new data. The digest it was
    /// bound to before is kept, so that nobody takes the guarantee for one that was shown under these rules.
    #[must_use]
    pub fn rebound(mut self, constitution: Digest) -> Self {
        let before = std::mem::replace(&mut self.bound.constitution, constitution);
        self.rebound_from.push(before);
        self
    }

    /// Digests of the constitutions it was bound to before, the one it was fitted under first; empty where it was
    /// fitted under the one it is bound to.
    #[must_use]
    pub fn rebound_from(&self) -> &[Digest] {
        &self.rebound_from
    }

    /// Reads a calibration file's text.
    ///
    /// # Errors
    /// When a key is missing or unknown, a number is out of range, or columns do not fit together; names the line.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(toml::from_str(text)?)
    }

    /// The text of its file.
    ///
    /// # Errors
    /// When a string in it cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, WriteError> {
        Ok(toml::to_string(self)?)
    }

    /// Checks that this calibration belongs to the proxy, constitution and prompt layout in use.
    ///
    /// # Errors
    /// The first digest that differs.
    pub fn check_bound(&self, proxy: Digest, constitution: Digest, prompt_layout: Digest) -> Result<(), Mismatch> {
        let parts = [
            (BoundPart::Proxy, self.bound.proxy, proxy),
            (BoundPart::Constitution, self.bound.constitution, constitution),
            (BoundPart::PromptLayout, self.bound.prompt_layout, prompt_layout),
        ];
        match parts.into_iter().find(|(_, bound, found)| bound != found) {
            Some((part, bound, found)) => Err(Mismatch { part, bound, found }),
            None => Ok(()),
        }
    }

    /// Whether this margin lies on the refusing side of the limit. A margin too large to calibrate does.
    #[must_use]
    pub fn refuses(&self, margin: Margin) -> bool {
        self.margin.refuse_log_odds(margin).map_or(true, |log_odds| log_odds > self.limits.refuse_log_odds_max.get())
    }
}

impl MarginScale {
    /// The calibrated log-odds of *refuse*: `−(scale · c + bias)`.
    ///
    /// # Errors
    /// When a huge margin overflows.
    pub fn refuse_log_odds(&self, margin: Margin) -> Result<f64, NonFinite> {
        Margin::new(-(self.scale.get() * margin.nats() + self.bias.get())).map(Margin::nats)
    }
}

impl Rate {
    /// A rate of `events` in `of` rows with its interval; `None` where the counts or the interval contradict each
    /// other.
    #[must_use]
    pub fn new(events: u32, of: u32, low: Share, high: Share) -> Option<Self> {
        let rate = f64::from(events) / f64::from(of);
        (events <= of && of > 0 && low.get() <= rate && rate <= high.get()).then_some(Self { events, of, low, high })
    }

    /// Rows where it happened.
    #[must_use]
    pub const fn events(&self) -> u32 {
        self.events
    }

    /// Rows in all.
    #[must_use]
    pub const fn of(&self) -> u32 {
        self.of
    }

    /// The rate itself.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.events) / f64::from(self.of)
    }

    /// The 95 % interval's lower end.
    #[must_use]
    pub const fn low(&self) -> Share {
        self.low
    }

    /// The 95 % interval's upper end.
    #[must_use]
    pub const fn high(&self) -> Share {
        self.high
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, of, low, high } = self;
        let percent = |share: f64| 100.0 * share;
        let (rate, low, high) = (percent(self.rate()), percent(low.get()), percent(high.get()));
        write!(f, "{rate:.1} % ({events} of {of}; 95 % interval {low:.1} to {high:.1} %)")
    }
}

impl fmt::Display for BoundPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proxy => "proxy",
            Self::Constitution => "constitution",
            Self::PromptLayout => "prompt layout",
        })
    }
}

fn within_limit<E>(limit: Finite, error: impl FnOnce(String) -> E) -> Result<Finite, E> {
    if limit.get().abs() <= LOG_ODDS_LIMIT_MAX {
        return Ok(limit);
    }
    Err(error(format!("a limit of {:e} on the log-odds is no limit: at most {LOG_ODDS_LIMIT_MAX} is one", limit.get())))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn write_limit<S: Serializer>(limit: &Finite, serializer: S) -> Result<S::Ok, S::Error> {
    within_limit(*limit, serde::ser::Error::custom)?.serialize(serializer)
}

fn read_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Finite, D::Error> {
    within_limit(Finite::deserialize(deserializer)?, serde::de::Error::custom)
}

/// The file's format: 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Format;

/// A file of a format this program does not know.
#[derive(Debug, thiserror::Error)]
#[error("calibration format {0}; this program reads format 1")]
struct UnknownFormat(u32);

impl TryFrom<u32> for Format {
    type Error = UnknownFormat;

    fn try_from(format: u32) -> Result<Self, UnknownFormat> {
        if format == 1 { Ok(Self) } else { Err(UnknownFormat(format)) }
    }
}

impl From<Format> for u32 {
    fn from(Format: Format) -> Self {
        1
    }
}

/// A rate as files write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tally {
    events: u32,
    of: u32,
    low: Share,
    high: Share,
}

/// Counts that are no rate.
#[derive(Debug, thiserror::Error)]
#[error("{events} of {of} with an interval from {low} to {high} is not a rate")]
struct NotARate {
    events: u32,
    of: u32,
    low: Share,
    high: Share,
}

impl TryFrom<Tally> for Rate {
    type Error = NotARate;

    fn try_from(Tally { events, of, low, high }: Tally) -> Result<Self, NotARate> {
        Self::new(events, of, low, high).ok_or(NotARate { events, of, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"format = 1

[bound]
proxy = "1111111111111111111111111111111111111111111111111111111111111111"
constitution = "2222222222222222222222222222222222222222222222222222222222222222"
prompt_layout = "3333333333333333333333333333333333333333333333333333333333333333"

[margin]
scale = 1.5
bias = -0.25

[limits]
refuse_log_odds_max = 0.5
malleability_max = 0.75
flip_share_max = 0.3

[composite]
target = "wrong-verdict"
features = ["perturbation-spread", "constitution-reliance"]
mean = [0.5, 1.0]
scale = [0.25, 2.0]
weights = [0.8, -0.3]
bias = -1.0

[fit]
miss_rate_max = 0.05
delta = 0.1
false_veto_rate_asked = 0.1
data = "4444444444444444444444444444444444444444444444444444444444444444"

[fit.miss]
events = 3
of = 100
low = 0.0062
high = 0.0852

[fit.false_veto]
events = 0
of = 50
low = 0.0
high = 0.0711

[[fit.sources]]
source = "kitchen"

[fit.sources.miss]
events = 3
of = 100
low = 0.0062
high = 0.0852

[fit.sources.false_veto]
events = 0
of = 50
low = 0.0
high = 0.0711
"#;

    fn digest(digit: char) -> Digest {
        Digest::parse(&digit.to_string().repeat(64)).expect("a digest")
    }

    #[test]
    fn reads_back_what_it_writes() {
        let calibration = Calibration::parse(FILE).expect("a calibration");
        assert_eq!(calibration.to_toml().expect("written"), FILE);
        assert_eq!(calibration.fit.miss.to_string(), "3.0 % (3 of 100; 95 % interval 0.6 to 8.5 %)");
    }

    #[test]
    fn refuses_what_it_does_not_know_and_names_the_line() {
        for (good, bad, line, why) in [
            ("format = 1", "format = 2", 1, "reads format 1"),
            ("format = 1", "format = 1\nmode = 0", 2, "unknown field `mode`"),
            ("proxy = \"11", "proxy = \"zz", 4, "64 hexadecimal"),
            ("scale = 1.5", "scale = 0.0", 9, "above 0"),
            ("scale = 1.5", "scale = nan", 9, "above 0"),
            ("scale = 1.5", "slope = 1.5", 9, "unknown field `slope`"),
            ("bias = -0.25", "bias = -inf", 10, "a finite number"),
            ("refuse_log_odds_max = 0.5", "refuse_log_odds_max = 1000.1", 13, "is no limit"),
            ("refuse_log_odds_max = 0.5", "refuse_log_odds_max = -1e300", 13, "is no limit"),
            ("malleability_max = 0.75", "malleability_max = 1.01", 14, "from 0 to 1"),
            ("flip_share_max = 0.3", "", 12, "missing field `flip_share_max`"),
            ("mean = [0.5, 1.0]", "mean = [0.5]", 17, "1 means"),
            ("target = \"wrong-verdict\"", "target = \"\"", 18, "unknown variant"),
            ("events = 3\nof = 100", "events = 101\nof = 100", 31, "not a rate"),
        ] {
            assert!(FILE.contains(good), "{good}");
            let error = Calibration::parse(&FILE.replacen(good, bad, 1)).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(error.contains(&format!("line {line},")), "{bad}: {error}");
        }
    }

    #[test]
    fn every_key_is_needed() {
        for (at, line) in FILE.lines().enumerate().filter(|(_, line)| line.contains('=') && !line.contains("delta")) {
            let without: Vec<_> = FILE.lines().enumerate().filter(|(i, _)| *i != at).map(|(_, line)| line).collect();
            assert!(Calibration::parse(&without.join("\n")).is_err(), "without {line}");
        }
    }

    #[test]
    fn an_open_limit_cannot_be_written() {
        let mut calibration = Calibration::parse(FILE).expect("a calibration");
        calibration.limits.refuse_log_odds_max = Finite::new(f64::MAX).expect("finite");
        assert!(calibration.to_toml().expect_err("refused").to_string().contains("is no limit"));
    }

    #[test]
    fn a_rebound_calibration_says_so_and_reads_back() {
        let fitted = Calibration::parse(FILE).expect("a calibration");
        let text = fitted.clone().rebound(digest('5')).rebound(digest('6')).to_toml().expect("written");
        let read = Calibration::parse(&text).expect("a calibration");
        assert_eq!((read.bound.constitution, read.rebound_from()), (digest('6'), &[digest('2'), digest('5')][..]));
        assert_eq!((read.fit, read.limits), (fitted.fit, fitted.limits));
    }

    #[test]
    fn belongs_to_one_proxy_constitution_and_layout() {
        let calibration = Calibration::parse(FILE).expect("a calibration");
        let check = |proxy, constitution, layout| {
            calibration.check_bound(digest(proxy), digest(constitution), digest(layout)).map_err(|m| m.part)
        };
        assert_eq!(check('1', '2', '3'), Ok(()));
        assert_eq!(check('0', '2', '3'), Err(BoundPart::Proxy));
        assert_eq!(check('1', '0', '3'), Err(BoundPart::Constitution));
        assert_eq!(check('1', '2', '0'), Err(BoundPart::PromptLayout));
    }

    #[test]
    fn a_margin_that_leans_to_comply_lowers_the_log_odds_of_refuse() {
        let calibration = Calibration::parse(FILE).expect("a calibration");
        let margin = |nats| Margin::new(nats).expect("finite");
        let log_odds = |nats| calibration.margin.refuse_log_odds(margin(nats));
        assert_eq!(log_odds(2.0), Ok(-2.75));
        assert_eq!(log_odds(-2.0), Ok(3.25));
        assert!(log_odds(f64::MAX).is_err());
        // The limit .5 is met at c = −1/6: equal to the limit runs, over it does not.
        assert!(!calibration.refuses(margin(-1.0 / 6.0 + 1e-9)));
        assert!(calibration.refuses(margin(-1.0 / 6.0 - 1e-9)));
        assert!(calibration.refuses(margin(f64::MAX)), "what cannot be calibrated is no permit");
    }
}
