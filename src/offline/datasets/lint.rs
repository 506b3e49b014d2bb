//! Task sets whose harm is latent in the pair, looked over before anybody relies on them: every fault by its line, and a
//! card that says what is in the set.
//!
//! Latent means that neither half gives the harm away: the instruction is harmless where nothing is known of the scene, and
//! the scene is harmless under another instruction. Both are read by the proxy that guards ([`crate::offline::latent`]).

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;

use super::lists::{self, Entry};
use super::{DataError, DataSet, Format, Row, RowFault, Sight};
use crate::constitution::Constitution;
use crate::offline::latent::{HalvesReader, ReaderIdentity};
use crate::scene::decode;
use crate::statistics::{Label, mean};
use crate::triple::Digest;

/// What a card says where a row does not.
const UNSTATED: &str = "not stated";

/// What is wrong with a row.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is unfit, as any benchmark would say.
    #[error("{0}")]
    Row(#[from] RowFault),
    /// The same task again.
    #[error("the same instruction in the same scene as line {line} ({uid})")]
    Duplicate {
        /// The earlier line.
        line: u64,
        /// Its uid.
        uid: String,
    },
    /// No rule is cited.
    #[error("no rule is cited; name the number of the rule it breaks in the field `rule`")]
    NoRule,
    /// A rule that the constitution does not have.
    #[error("the constitution has no rule {0}")]
    UnknownRule(String),
    /// No label of the environment.
    #[error("no environment label; name the kind of place in the field `environment_label`")]
    NoEnvironment,
    /// Its pair is not one safe and one unsafe row.
    #[error("its pair {pair} has {safe} safe and {not_safe} unsafe rows; it needs one of each")]
    HalfPair {
        /// The pair.
        pair: String,
        /// Safe rows found.
        safe: u32,
        /// Unsafe rows found.
        not_safe: u32,
    },
    /// The instruction gives the harm away.
    #[error("not latent: the instruction alone is refused (log-odds {log_odds:.2}, limit {limit:.2})")]
    InstructionHarmful {
        /// The calibrated log-odds of *refuse*.
        log_odds: f64,
        /// The limit.
        limit: f64,
    },
    /// The scene gives the harm away.
    #[error("not latent: the scene alone is refused (log-odds {log_odds:.2}, limit {limit:.2})")]
    SceneHarmful {
        /// The calibrated log-odds of *refuse*.
        log_odds: f64,
        /// The limit.
        limit: f64,
    },
    /// The proxy has no reading of it.
    #[error("the proxy cannot read it: {0}")]
    Unread(String),
}

/// A fault and where it is.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The line of the file, from 1.
    pub line: u64,
    /// The row's uid, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// What is wrong.
    #[serde(serialize_with = "in_words")]
    pub fault: Fault,
}

fn in_words<S: serde::Serializer>(fault: &Fault, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(fault)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.uid {
            Some(uid) => write!(f, "line {}, row {uid}: {}", self.line, self.fault),
            None => write!(f, "line {}: {}", self.line, self.fault),
        }
    }
}

/// A half, or the whole, by the proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Rows over the limit.
    pub refused: usize,
    /// Rows read.
    pub of: usize,
    /// Their mean log-odds of *refuse*; absent where no row was read.
    pub log_odds_mean: Option<f64>,
}

/// What the proxy makes of the set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Who read.
    pub reader: ReaderIdentity,
    /// Unsafe rows' instructions alone.
    pub instruction_alone: Figure,
    /// Unsafe rows' scenes alone.
    pub scene_alone: Figure,
    /// Unsafe rows whole.
    pub unsafe_together: Figure,
    /// Safe rows whole.
    pub safe_together: Figure,
}

/// What is in a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataCard {
    /// Its name.
    pub name: String,
    /// Rows that could be read.
    pub rows: usize,
    /// Those that ought to be refused.
    pub not_safe: usize,
    /// Pairs, whole or not.
    pub pairs: usize,
    /// Rows by hazard category.
    pub categories: BTreeMap<String, usize>,
    /// Rows by environment.
    pub environments: BTreeMap<String, usize>,
    /// Unsafe rows by the rule they break.
    pub rules: BTreeMap<u16, usize>,
    /// Rows by the terms their pictures may be used under.
    pub licences: BTreeMap<String, usize>,
    /// What the proxy makes of it.
    pub proxy: Figures,
    /// Faults found; a set with any is not fit to be relied on.
    pub faults: usize,
}

/// A set looked over.
#[derive(Debug, Serialize)]
pub struct Linted {
    /// Every fault, in the order of the lines.
    pub findings: Vec<Finding>,
    /// What is in the set.
    pub card: DataCard,
}

/// Looks a task list over, row by row.
///
/// # Errors
/// When the set is no list, or its file cannot be read. What is wrong with a row is a finding.
pub fn lint(
    data: &DataSet,
    constitution: &Constitution,
    reader: &mut dyn HalvesReader,
    progress: &mut dyn FnMut(u64),
) -> Result<Linted, DataError> {
    let Format::List = data.format else {
        let message = "only task lists in CSV or JSONL say which rule a row breaks".to_owned();
        return Err(DataError::Format { path: data.path.clone(), message });
    };
    let mut look = Look::new(constitution, reader.identity());
    for (entry, at) in lists::entries(&data.path)?.zip(1..) {
        look.entry(entry?, data, reader);
        progress(at);
    }
    Ok(look.finished(data.name()))
}

/// A row that was read, for what only shows once all are.
struct Kept {
    line: u64,
    uid: String,
    label: Label,
    pairs: Vec<String>,
}

/// Log-odds as they come in.
#[derive(Default)]
struct Readings {
    instruction: Vec<f64>,
    scene: Vec<f64>,
    not_safe: Vec<f64>,
    safe: Vec<f64>,
}

struct Look<'c> {
    constitution: &'c Constitution,
    reader: ReaderIdentity,
    findings: Vec<Finding>,
    rows: Vec<Kept>,
    uids: HashMap<String, u64>,
    tasks: HashMap<Digest, (u64, String)>,
    categories: BTreeMap<String, usize>,
    environments: BTreeMap<String, usize>,
    rules: BTreeMap<u16, usize>,
    licences: BTreeMap<String, usize>,
    readings: Readings,
}

impl<'c> Look<'c> {
    fn new(constitution: &'c Constitution, reader: ReaderIdentity) -> Self {
        Self {
            constitution,
            reader,
            findings: Vec::new(),
            rows: Vec::new(),
            uids: HashMap::new(),
            tasks: HashMap::new(),
            categories: BTreeMap::new(),
            environments: BTreeMap::new(),
            rules: BTreeMap::new(),
            licences: BTreeMap::new(),
            readings: Readings::default(),
        }
    }

    fn entry(&mut self, Entry { line, fields }: Entry, data: &DataSet, reader: &mut dyn HalvesReader) {
        let fields = match fields {
            Ok(fields) => fields,
            Err(fault) => return self.findings.push(Finding { line, uid: None, fault: fault.into() }),
        };
        let uid = fields.uid();
        let row = match data.list().read(&fields) {
            Ok(row) => row,
            Err(fault) => return self.findings.push(Finding { line, uid, fault: fault.into() }),
        };
        let mut faults = Vec::new();
        if self.uids.insert(row.uid.clone(), line).is_some() {
            faults.push(RowFault::DuplicateUid.into());
        }
        let environment = fields.place();
        if environment.is_none() {
            faults.push(Fault::NoEnvironment);
        }
        if row.label == Label::Unsafe {
            faults.extend(self.cited(&fields.rules()));
        }
        for (counts, named) in [
            (&mut self.categories, row.category.clone()),
            (&mut self.environments, environment),
            (&mut self.licences, fields.licence()),
        ] {
            *counts.entry(named.unwrap_or_else(|| UNSTATED.to_owned())).or_default() += 1;
        }
        if let Err(fault) = self.scene(line, &row, reader, &mut faults) {
            faults.push(fault.into());
        }
        let Row { uid, label, pairs, .. } = row;
        self.findings.extend(faults.into_iter().map(|fault| Finding { line, uid: Some(uid.clone()), fault }));
        self.rows.push(Kept { line, uid, label, pairs });
    }

    /// Counts the rules that are cited, and names what is wrong with them.
    fn cited(&mut self, cited: &[String]) -> Vec<Fault> {
        let mut faults = Vec::new();
        for rule in cited {
            let number = rule.trim_start_matches(['r', 'R', '#']).parse();
            match number.ok().filter(|number| self.constitution.rule(*number).is_some()) {
                Some(number) => *self.rules.entry(number).or_default() += 1,
                None => faults.push(Fault::UnknownRule(rule.clone())),
            }
        }
        if cited.is_empty() {
            faults.push(Fault::NoRule);
        }
        faults
    }

    /// Looks at the scene: whether it is there, was there before, and gives the harm away.
    fn scene(
        &mut self,
        line: u64,
        row: &Row,
        reader: &mut dyn HalvesReader,
        faults: &mut Vec<Fault>,
    ) -> Result<(), RowFault> {
        let image = row.image()?;
        row.check(image.as_deref())?;
        let written = match &row.sight {
            Sight::Written(text) => text.as_bytes(),
            Sight::File(_) | Sight::Base64(_) => &[],
        };
        let content = Digest::of(image.as_deref().unwrap_or(written));
        let words: Vec<&str> = row.instruction.split_whitespace().collect();
        let task = Digest::of(format!("{content}\n{}", words.join(" ").to_lowercase()).as_bytes());
        match self.tasks.get(&task) {
            Some((line, uid)) => faults.push(Fault::Duplicate { line: *line, uid: uid.clone() }),
            None => drop(self.tasks.insert(task, (line, row.uid.clone()))),
        }
        let picture = image.as_deref().map(decode::decode).transpose()?;
        let halves = match reader.halves(row, picture.as_ref().map(|decoded| &decoded.image)) {
            Ok(halves) => halves,
            Err(unread) => {
                faults.push(Fault::Unread(unread.to_string()));
                return Ok(());
            }
        };
        if row.label == Label::Safe {
            self.readings.safe.push(halves.together);
            return Ok(());
        }
        let limit = self.reader.limit;
        if halves.instruction > limit {
            faults.push(Fault::InstructionHarmful { log_odds: halves.instruction, limit });
        }
        if halves.scene > limit {
            faults.push(Fault::SceneHarmful { log_odds: halves.scene, limit });
        }
        self.readings.instruction.push(halves.instruction);
        self.readings.scene.push(halves.scene);
        self.readings.not_safe.push(halves.together);
        Ok(())
    }

    fn finished(mut self, name: &str) -> Linted {
        let mut pairs = BTreeMap::<&str, (u32, u32)>::new();
        for row in &self.rows {
            for pair in &row.pairs {
                let (safe, not_safe) = pairs.entry(pair).or_default();
                match row.label {
                    Label::Safe => *safe += 1,
                    Label::Unsafe => *not_safe += 1,
                }
            }
        }
        for row in &self.rows {
            for pair in &row.pairs {
                let (safe, not_safe) = pairs.get(pair.as_str()).copied().unwrap_or_default();
                if (safe, not_safe) != (1, 1) {
                    let fault = Fault::HalfPair { pair: pair.clone(), safe, not_safe };
                    self.findings.push(Finding { line: row.line, uid: Some(row.uid.clone()), fault });
                }
            }
        }
        self.findings.sort_by_key(|finding| finding.line);
        let limit = self.reader.limit;
        let figure = |log_odds: &[f64]| Figure {
            refused: log_odds.iter().filter(|odds| **odds > limit).count(),
            of: log_odds.len(),
            log_odds_mean: mean(log_odds).ok(),
        };
        let card = DataCard {
            name: name.to_owned(),
            rows: self.rows.len(),
            not_safe: self.rows.iter().filter(|row| row.label == Label::Unsafe).count(),
            pairs: pairs.len(),
            categories: self.categories,
            environments: self.environments,
            rules: self.rules,
            licences: self.licences,
            proxy: Figures {
                reader: self.reader,
                instruction_alone: figure(&self.readings.instruction),
                scene_alone: figure(&self.readings.scene),
                unsafe_together: figure(&self.readings.not_safe),
                safe_together: figure(&self.readings.safe),
            },
            faults: self.findings.len(),
        };
        Linted { findings: self.findings, card }
    }
}

impl DataCard {
    /// The card as a page of Markdown.
    #[must_use]
    pub fn page(&self) -> String {
        let Self { name, rows, not_safe, pairs, faults, proxy, .. } = self;
        let rules = self.rules.iter().map(|(rule, rows)| (rule.to_string(), *rows)).collect();
        let mut page = format!(
            "# {name}\n\n{rows} rows, {not_safe} of them ought to be refused; {pairs} pairs. Faults found: {faults}.\n"
        );
        for (head, counts) in [
            ("Hazard category", &self.categories),
            ("Environment", &self.environments),
            ("Rule broken", &rules),
            ("Licence", &self.licences),
        ] {
            page.push_str(&table(head, counts));
        }
        let ReaderIdentity { proxy: reader, proxy_digest, constitution, limit } = &proxy.reader;
        page.push_str(&format!(
            "\n## By the proxy\n\nProxy {reader} ({proxy_digest}), constitution {constitution}. Refused is what has \
             calibrated log-odds of *refuse* over {limit:.3}.\n\n| | refused | of | mean log-odds |\n|---|---|---|---|\n"
        ));
        for (name, figure) in [
            ("instruction alone", &proxy.instruction_alone),
            ("scene alone", &proxy.scene_alone),
            ("both, unsafe rows", &proxy.unsafe_together),
            ("both, safe rows", &proxy.safe_together),
        ] {
            let mean = figure.log_odds_mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.2}"));
            page.push_str(&format!("| {name} | {} | {} | {mean} |\n", figure.refused, figure.of));
        }
        page
    }
}

fn table(head: &str, counts: &BTreeMap<String, usize>) -> String {
    let rows = counts.iter().map(|(name, rows)| format!("| {} | {rows} |\n", name.replace('|', "\\|")));
    format!("\n| {head} | rows |\n|---|---|\n{}", rows.collect::<String>())
}
