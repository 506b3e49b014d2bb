//! Looking at what is there: the audit log, the constitution, the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;

use super::{Ink, Misconfigured, Outcome, Paper, constitution, settings};
use crate::audit::read::{Check, Entry, Filter, list, show};
use crate::audit::record::{Decided, Event, Finite, Stamp, Verdict};
use crate::audit::{export, verify};
use crate::config::settings::Settings;
use crate::constitution::Constitution;
use crate::decision::Reason;
use crate::permit::keys::{ARCHIVE_FILE, PublicKeys};

#[derive(Debug, Subcommand)]
pub(super) enum Log {
    /// List answers, oldest first.
    List {
        #[command(flatten)]
        folder: Folder,
        /// Only this verdict: permit, veto or refusal.
        #[arg(long, value_parser = verdict)]
        verdict: Option<Verdict>,
        /// Only vetoes for this reason.
        #[arg(long, value_parser = reason)]
        reason: Option<Reason>,
        /// Only answers of the last so many minutes.
        #[arg(long, value_name = "MINUTES")]
        since: Option<u64>,
    },
    /// Show all that is written about one check.
    Show {
        #[command(flatten)]
        folder: Folder,
        /// The check's id, or its first digits.
        check_id: String,
    },
    /// Verify the whole chain and its signatures; exit 1 when anything is wrong.
    Verify {
        #[command(flatten)]
        folder: Folder,
        /// The public keys; the archive beside the configured signing key unless given.
        #[arg(long, value_name = "FILE")]
        keys: Option<PathBuf>,
    },
    /// Write every record as a line of JSON.
    Export {
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Folder {
    /// The log's folder, where it is not the configured one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Folder {
    fn resolve(&self, config: &Path) -> anyhow::Result<PathBuf> {
        let folder = match &self.folder {
            Some(folder) => folder.clone(),
            None => settings(config)?.audit_folder,
        };
        anyhow::ensure!(folder.is_dir(), "there is no log in {}", folder.display());
        Ok(folder)
    }
}

fn verdict(word: &str) -> Result<Verdict, String> {
    Verdict::parse(word).ok_or_else(|| "one of permit, veto, refusal".to_owned())
}

fn reason(word: &str) -> Result<Reason, String> {
    let known = Reason::ALL.map(Reason::code).join(", ");
    Reason::ALL.into_iter().find(|reason| reason.code() == word).ok_or_else(|| format!("one of {known}"))
}

impl Log {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        match self {
            Self::List { folder, verdict, reason, since } => {
                let since_wall_ns = since.map(minutes_ago);
                let filter = Filter { verdict, reason, since_wall_ns };
                let folder = folder.resolve(config)?;
                for entry in list(&folder, filter)? {
                    print_answer(&entry?, paper)?;
                }
                Ok(Outcome::Done)
            }
            Self::Show { folder, check_id } => {
                let found = show(&folder.resolve(config)?, &check_id)?;
                anyhow::ensure!(!found.is_empty(), "nothing is recorded as {check_id}");
                for (_, check) in found {
                    print_check(&check, paper)?;
                }
                Ok(Outcome::Done)
            }
            Self::Verify { folder, keys } => verify_chain(&folder, keys, config, paper),
            Self::Export { folder } => {
                let mut out = std::io::BufWriter::new(std::io::stdout().lock());
                export::json_lines(&folder.resolve(config)?, |_| true, &mut out)?;
                Ok(Outcome::Done)
            }
        }
    }
}

fn minutes_ago(minutes: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the command line is an edge that owns its clock")]
    let now = std::time::SystemTime::now();
    let since = now.checked_sub(Duration::from_secs(minutes.saturating_mul(60))).unwrap_or(std::time::UNIX_EPOCH);
    let since = since.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn print_answer(entry: &Entry, paper: Paper) -> anyhow::Result<()> {
    let Some(record) = entry.record() else { return Ok(()) };
    if paper.json {
        return paper.value(record);
    }
    let Event::Decided(decided) = &record.event else { return Ok(()) };
    let ink = match decided.verdict {
        Verdict::Permit => Ink::Green,
        Verdict::Veto => Ink::Red,
        Verdict::Refusal => Ink::Yellow,
    };
    let word = paper.ink(ink, &format!("{:<7}", decided.verdict.code()));
    let (mode, reason) = (decided.mode, decided.reason.map_or("", Reason::code));
    paper.line(&format!("{}  {word}  {}  {mode}  {reason}{}", utc(&record.at), decided.check_id, numbers(decided)));
    Ok(())
}

fn numbers(decided: &Decided) -> String {
    let Some(readings) = &decided.readings else { return String::new() };
    let put = |name: &str, reading: Option<Finite>| {
        reading.map(|value| format!("  {name} {:+.2}", value.get())).unwrap_or_default()
    };
    put("margin", readings.margin) + &put("spread", readings.spread) + &put("reliance", readings.reliance)
}

fn print_check(check: &Check, paper: Paper) -> anyhow::Result<()> {
    let received = check.received.as_ref().map(|(entry, _)| entry);
    let decided = check.decided.as_ref().map(|(entry, _)| entry);
    for entry in received.into_iter().chain(decided).chain(&check.later) {
        let Some(record) = entry.record() else { continue };
        if paper.json {
            paper.value(record)?;
        } else {
            paper.line(&serde_json::to_string_pretty(record)?);
        }
    }
    Ok(())
}

fn verify_chain(folder: &Folder, keys: Option<PathBuf>, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
    let keys = match keys {
        Some(path) => PublicKeys::read_archive(&path)?,
        None => PublicKeys::read_archive(&settings(config)?.keys.join(ARCHIVE_FILE))
            .context("the public keys cannot be read; name them with --keys")?,
    };
    let keys: Vec<[u8; 32]> = keys.iter().map(|key| *key.as_bytes()).collect();
    let report = verify::verify(&folder.resolve(config)?, &keys)?;
    if paper.json {
        let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        paper.value(&serde_json::json!({
            "whole": report.is_whole(),
            "segments": report.segments,
            "records": report.records,
            "pruned": report.pruned,
            "dropped": report.dropped,
            "checkpoints": report.checkpoints,
            "unsigned": report.unsigned,
            "head": report.head,
            "sequence": report.sequence,
            "tail_bytes": report.tail.as_ref().map(|(bytes, _)| bytes),
            "faults": faults,
            "faults_more": report.faults_more,
        }))?;
    } else {
        let word = if report.is_whole() { paper.ink(Ink::Green, "whole") } else { paper.ink(Ink::Red, "NOT WHOLE") };
        let (records, segments, signed) = (report.records, report.segments, report.checkpoints);
        paper.line(&format!("{word}: {records} records in {segments} segments, {signed} signatures right"));
        paper.line(&format!("  {} records behind the last signature; head {}", report.unsigned, report.head));
        for fault in &report.faults {
            paper.line(&format!("  {fault}"));
        }
        if let Some((bytes, damage)) = &report.tail {
            paper.line(&format!("  {bytes} bytes at the end are no whole record: {damage}"));
        }
    }
    Ok(if report.is_whole() { Outcome::Done } else { Outcome::Failed })
}

/// Wall-clock time for a person: `2026-11-30T01:02:03Z`.
fn utc(stamp: &Stamp) -> String {
    let seconds = stamp.wall_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Days since 1970-01-01 as a date of the proleptic Gregorian calendar, counted in eras of 400 years from March on.
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let of_era_years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_years + of_era_years / 4 - of_era_years / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = of_era_years + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[derive(Debug, Subcommand)]
pub(super) enum ConstitutionCommand {
    /// Say what is doubtful about a constitution; exit 78 when it does not load, 1 when there is any doubt.
    Lint {
        /// The file, where it is not the configured one.
        file: Option<PathBuf>,
    },
    /// Print the rules as they are read to the proxy.
    Show {
        /// The file, where it is not the configured one.
        file: Option<PathBuf>,
    },
}

impl ConstitutionCommand {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let load = |file: Option<PathBuf>| -> anyhow::Result<Constitution> {
            match file {
                Some(file) => constitution(&file),
                None => constitution(&settings(config)?.constitution),
            }
        };
        match self {
            Self::Lint { file } => {
                let constitution = load(file)?;
                let findings = crate::constitution::lint::lint(&constitution);
                if paper.json {
                    paper.value(&findings)?;
                } else {
                    findings.iter().for_each(|finding| paper.line(&finding.to_string()));
                    paper.line(&format!("{} rules, {} findings", constitution.rules().len(), findings.len()));
                }
                Ok(if findings.is_empty() { Outcome::Done } else { Outcome::Failed })
            }
            Self::Show { file } => {
                let constitution = load(file)?;
                print_constitution(&constitution, paper)?;
                Ok(Outcome::Done)
            }
        }
    }
}

fn print_constitution(constitution: &Constitution, paper: Paper) -> anyhow::Result<()> {
    if paper.json {
        let rules: Vec<serde_json::Value> = constitution
            .rules()
            .iter()
            .map(|rule| {
                serde_json::json!({
                    "number": rule.number,
                    "category": rule.category.key(),
                    "text": rule.text,
                    "severity": rule.severity.get(),
                    "likelihood": rule.likelihood.get(),
                    "source": rule.source,
                })
            })
            .collect();
        return paper.value(&serde_json::json!({"digest": constitution.digest(), "rules": rules}));
    }
    paper.line(&constitution.prompt_text());
    paper.line(&paper.ink(Ink::Dim, &format!("SHA-256 {}", constitution.digest())));
    Ok(())
}

#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Check the configuration and every file it names without starting anything; exit 78 when one does not stand.
    Check,
}

impl Config {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let Self::Check = self;
        let settings: Settings = settings(config)?;
        let rules = crate::load::rules(&settings).map_err(Misconfigured)?;
        let bound = rules.calibration.bound.constitution;
        let found = rules.constitution.digest();
        if bound != found {
            let text = format!("the calibration is bound to the constitution {bound}, but this is {found}");
            return Err(Misconfigured(anyhow::anyhow!(text)).into());
        }
        if paper.json {
            paper.value(&settings)?;
        } else {
            paper.line(&format!("{}: valid", config.display()));
            paper.line(&format!("  {} rules, constitution {found}", rules.constitution.rules().len()));
            paper.line(&format!(
                "  calibration {} ({:?})",
                rules.calibration_digest,
                rules.calibration.composite.target()
            ));
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // date -u -d @SECONDS
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_000_461, "2026-11-30T01:01:01Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let stamp = Stamp { wall_ns: seconds * 1_000_000_000, boot_ns: 0, boot_id: String::new() };
            assert_eq!(utc(&stamp), date);
        }
    }
}
