//! The whole measurement over a folder: units of work that no two processes do twice, and what they come to.
//!
//! A unit is one task's part of a stage. Its result is a file that is there whole or not at all; while it is worked on,
//! its lock is held, and the kernel lets go of that when a process dies. Any number of processes may be started on one
//! folder, and any of them killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::characterise::Character;
use super::model::ModelIdentity;
use super::protocol::{Design, MeasureError, Protocol, StanceName, Unit};
use super::rates::{Condition, CountedShare, Rates, TaskTally, draw, rates};
use super::table::{ANSWERS, write_answers};
use crate::offline::bench::{DataIdentity, RUN, continue_run, hash};
use crate::offline::datasets::{DataSet, Row};
use crate::offline::write_whole;
use crate::statistics::{Label, Stratum};
use crate::triple::Digest;

/// Each refused task's malleability, in the output folder.
pub const MALLEABILITY: &str = "malleability.csv";
/// All figures.
pub const FIGURES: &str = "figures.json";
/// The recorded calls.
pub const CALLS: &str = "calls";
/// Pause before a look at units that other processes hold.
const PAUSE: Duration = Duration::from_millis(200);

/// What was measured on what; written to `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The file's format: 1.
    pub format: u32,
    /// The tasks.
    pub data: DataIdentity,
    /// Only the first so many tasks, where not all.
    pub tasks_max: Option<u64>,
    /// The planner.
    pub target: ModelIdentity,
    /// Who proposes objects.
    pub proposer: Option<ModelIdentity>,
    /// Who judges answers beside the plan's stance.
    #[serde(default)]
    pub judge: Option<ModelIdentity>,
    /// Who puts objects into pictures, where not the built-in compositor.
    #[serde(default)]
    pub editor: Option<ModelIdentity>,
    /// Who holds edits to the constraints, beside what can be computed.
    #[serde(default)]
    pub constraint_judge: Option<ModelIdentity>,
    /// Who reads text in edited pictures: name and version.
    #[serde(default)]
    pub ocr: Option<String>,
    /// SHA-256 of the constitution.
    pub constitution: Digest,
    /// The layout.
    pub design: Design,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Which tasks are refused, and the leading condition on those.
    Refusals,
    /// The further conditions on a stratified draw.
    Further,
}

impl Stage {
    const fn folder(self) -> &'static str {
        match self {
            Self::Refusals => "units/refusals",
            Self::Further => "units/further",
        }
    }
}

/// How far a stage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Units done, by whomever.
    pub done: u64,
    /// Units in all.
    pub of: u64,
}

/// What a measurement came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// What was measured on what.
    pub run: Run,
    /// Answers to the clean scene: complied, refused, inconclusive.
    pub clean: Clean,
    /// How the second judge takes the answers of the first stage; absent where there is none.
    pub agreement: Option<Agreement>,
    /// The rates over the refused tasks.
    pub rates: Rates,
    /// Objects that were not put in, by reason.
    pub not_inserted: BTreeMap<String, u32>,
    /// Trials in a picture where nobody was asked whether the object is text and whether readable text came in: these two
    /// constraints were not checked there.
    pub text_not_checked: usize,
    /// What sets the tasks that bend apart from those that hold; absent while the measurement is not done.
    pub character: Option<Character>,
    /// The distribution of mal(t) under the leading condition: (mal(t), share of tasks with at least that).
    pub distribution: Vec<(f64, f64)>,
}

/// Answers to the clean scenes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Clean {
    /// Tasks that were carried out outright.
    pub complied: u32,
    /// Tasks that were refused; the rates are over these.
    pub refused: u32,
    /// Answers that are neither; left out.
    pub inconclusive: u32,
}

/// The plan's stance against a second judge, over every answer of the first stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Answers that the two take for the same, of those that the second judge gave a verdict on.
    pub same: Option<CountedShare>,
    /// Answers on which the second judge gave no verdict that could be read.
    pub unread: u32,
    /// Answers by what the stance says, then by what the second judge says.
    pub table: BTreeMap<StanceName, BTreeMap<StanceName, u32>>,
}

impl Agreement {
    fn add(&mut self, unit: &Unit) {
        let trials = unit.trials.values().flatten().map(|trial| &trial.answered);
        for answered in std::iter::once(&unit.clean).chain(&unit.control).chain(trials) {
            match answered.second {
                Some(second) => *self.table.entry(answered.stance).or_default().entry(second).or_default() += 1,
                None => self.unread += 1,
            }
        }
    }

    fn finished(mut self) -> Result<Self, MeasureError> {
        let of = self.table.values().flat_map(BTreeMap::values).sum();
        let same = self.table.iter().filter_map(|(stance, row)| row.get(stance)).sum();
        self.same = CountedShare::new(same, of)?;
        Ok(self)
    }
}

/// A measurement in a folder.
#[derive(Debug)]
pub struct Measurement<'a> {
    data: &'a DataSet,
    run: &'a Run,
    out: &'a Path,
}

impl<'a> Measurement<'a> {
    /// Starts in a folder, or goes on where another start of the same left off.
    ///
    /// # Errors
    /// When the folder holds another run, or cannot be written.
    pub fn start(data: &'a DataSet, run: &'a Run, out: &'a Path) -> Result<Self, MeasureError> {
        continue_run(&out.join(RUN), run)?;
        Ok(Self { data, run, out })
    }

    /// Where it lies.
    #[must_use]
    pub const fn folder(&self) -> &Path {
        self.out
    }

    /// Both stages, every unit that is not done.
    ///
    /// # Errors
    /// When an endpoint is silent, the budget is spent, or a task cannot be shown. What was answered is kept.
    pub fn run(&self, protocol: &mut Protocol<'_>, progress: &mut dyn FnMut(Progress)) -> Result<(), MeasureError> {
        self.stage(Stage::Refusals, None, protocol, progress)?;
        if self.run.design.conditions.len() > 1 {
            let drawn = self.drawn()?.into_values().flatten().collect();
            self.stage(Stage::Further, Some(&drawn), protocol, progress)?;
        }
        Ok(())
    }

    /// Tasks that ought to be refused, in the data's order.
    pub(super) fn tasks(&self) -> Result<impl Iterator<Item = Result<Row, MeasureError>> + '_, MeasureError> {
        let most = self.run.tasks_max.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let rows = self.data.rows()?.filter(|row| row.as_ref().map_or(true, |row| row.label == Label::Unsafe));
        Ok(rows.take(most).map(|row| row.map_err(MeasureError::from)))
    }

    fn stage(
        &self,
        stage: Stage,
        only: Option<&BTreeSet<u64>>,
        protocol: &mut Protocol<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), MeasureError> {
        let wanted = |row: &Row| only.is_none_or(|only| only.contains(&hash(&row.uid)));
        let mut of = 0;
        for row in self.tasks()? {
            of += u64::from(wanted(&row?));
        }
        loop {
            let (mut done, mut held) = (0, 0);
            for row in self.tasks()? {
                let row = row?;
                if !wanted(&row) {
                    continue;
                }
                if self.unit(stage, &row, protocol)? {
                    done += 1
                } else {
                    held += 1
                }
                progress(Progress { stage, done, of });
            }
            if held == 0 {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Does a unit unless it is done; `false` where another process is at it.
    fn unit(&self, stage: Stage, row: &Row, protocol: &mut Protocol<'_>) -> Result<bool, MeasureError> {
        let path = self.path(stage, &row.uid);
        if path.exists() {
            return Ok(true);
        }
        let lock = path.with_extension("lock");
        let failed = |source| MeasureError::Output { path: lock.clone(), source };
        std::fs::create_dir_all(self.out.join(stage.folder())).map_err(failed)?;
        let file = File::create(&lock).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Somebody may have finished it between the look and the lock.
        if !path.exists() {
            let unit = match stage {
                Stage::Refusals => protocol.refusal(row)?,
                Stage::Further => protocol.further(row)?,
            };
            let output = |source| MeasureError::Output { path: path.clone(), source };
            let text = serde_json::to_vec(&unit).map_err(|error| output(error.into()))?;
            write_whole(&path, &text).map_err(output)?;
        }
        Ok(true)
    }

    fn path(&self, stage: Stage, uid: &str) -> PathBuf {
        self.out.join(stage.folder()).join(format!("{}.json", Digest::of(uid.as_bytes())))
    }

    fn read(&self, stage: Stage, uid: &str) -> Result<Option<Unit>, MeasureError> {
        let path = self.path(stage, uid);
        let failed = |source| MeasureError::Output { path: path.clone(), source };
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The refused tasks that the further conditions run on, by stratum, as hashes of their uids.
    fn drawn(&self) -> Result<BTreeMap<Stratum, BTreeSet<u64>>, MeasureError> {
        let (mut uids, mut tallies) = (Vec::new(), Vec::new());
        for unit in self.refused()? {
            let unit = unit?;
            uids.push(hash(&unit.uid));
            tallies.push(unit.tally());
        }
        let Some(&leading) = self.run.design.conditions.first() else { return Ok(BTreeMap::new()) };
        let drawn = draw(&tallies, leading, self.run.design.per_stratum, self.run.design.seed);
        let hashes = |tasks: BTreeSet<usize>| tasks.into_iter().filter_map(|at| uids.get(at).copied()).collect();
        Ok(drawn.into_iter().map(|(stratum, tasks)| (stratum, hashes(tasks))).collect())
    }

    /// The refused tasks' units so far, both stages in one.
    ///
    /// # Errors
    /// When a task cannot be read; a unit that cannot is an error in its place.
    pub fn refused(&self) -> Result<impl Iterator<Item = Result<Unit, MeasureError>> + '_, MeasureError> {
        let refused = |unit: &Unit| unit.clean.stance == StanceName::Refused;
        Ok(self.units()?.filter(move |unit| unit.as_ref().map_or(true, refused)))
    }

    /// Every task's units so far, both stages in one.
    fn units(&self) -> Result<impl Iterator<Item = Result<Unit, MeasureError>> + '_, MeasureError> {
        let units = self.tasks()?.map(|row| {
            let uid = row?.uid;
            let Some(mut unit) = self.read(Stage::Refusals, &uid)? else { return Ok(None) };
            if let Some(further) = self.read(Stage::Further, &uid)? {
                unit.trials.extend(further.trials);
                for (reason, times) in further.not_inserted {
                    *unit.not_inserted.entry(reason).or_default() += times;
                }
            }
            Ok(Some(unit))
        });
        Ok(units.filter_map(Result::transpose))
    }

    /// Counts everything and writes [`FIGURES`], [`MALLEABILITY`] and the answers as a table; `character` where the
    /// measurement is done.
    ///
    /// # Errors
    /// When a unit cannot be read or a file cannot be written.
    pub fn figures(&self, character: Option<Character>) -> Result<Figures, MeasureError> {
        let (mut clean, mut agreement) = (Clean::default(), Agreement::default());
        for row in self.tasks()? {
            let Some(unit) = self.read(Stage::Refusals, &row?.uid)? else { continue };
            agreement.add(&unit);
            let counter = match unit.clean.stance {
                StanceName::Complied => &mut clean.complied,
                StanceName::Refused => &mut clean.refused,
                StanceName::Inconclusive => &mut clean.inconclusive,
            };
            *counter += 1;
        }
        let (mut tallies, mut uids, mut not_inserted) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut text_not_checked = 0;
        for unit in self.refused()? {
            let unit = unit?;
            tallies.push(unit.tally());
            text_not_checked += unit.text_not_checked();
            uids.push(unit.uid);
            for (reason, times) in unit.not_inserted {
                *not_inserted.entry(reason).or_default() += times;
            }
        }
        let conditions = &self.run.design.conditions;
        let leading = conditions.first().copied();
        let drawn = match leading {
            Some(leading) => draw(&tallies, leading, self.run.design.per_stratum, self.run.design.seed),
            None => BTreeMap::new(),
        };
        let figures = Figures {
            run: self.run.clone(),
            clean,
            agreement: self.run.judge.as_ref().map(|_| agreement.finished()).transpose()?,
            rates: rates(&tallies, conditions, &drawn)?,
            not_inserted,
            text_not_checked,
            character,
            distribution: leading.map(|leading| super::rates::distribution(&tallies, leading)).unwrap_or_default(),
        };
        self.write_malleability(&uids, &tallies, conditions)?;
        write_answers(self.units()?, &self.out.join(ANSWERS))?;
        let path = self.out.join(FIGURES);
        let failed = |source| MeasureError::Output { path: path.clone(), source };
        let text = serde_json::to_vec_pretty(&figures).map_err(|error| failed(error.into()))?;
        write_whole(&path, &text).map_err(failed)?;
        Ok(figures)
    }

    fn write_malleability(
        &self,
        uids: &[String],
        tallies: &[TaskTally],
        conditions: &[Condition],
    ) -> Result<(), MeasureError> {
        let path = self.out.join(MALLEABILITY);
        let mut writer = csv::Writer::from_writer(Vec::new());
        let failed = |source| MeasureError::Output { path: path.clone(), source };
        let broken = |error: csv::Error| failed(error.into());
        let head = ["uid", "malleability"].into_iter().map(str::to_owned);
        let columns = conditions.iter().flat_map(|condition| {
            let name = condition.name();
            [format!("{name}_complied"), format!("{name}_refused"), format!("{name}_inconclusive")]
        });
        writer.write_record(head.chain(columns)).map_err(broken)?;
        for (uid, tally) in uids.iter().zip(tallies) {
            let leading = conditions.first().and_then(|leading| tally.malleability(*leading));
            let share = leading.map(|share| share.to_string()).unwrap_or_default();
            let counts = conditions.iter().flat_map(|condition| match tally.conditions.get(condition) {
                Some(t) => [t.complied, t.refused, t.inconclusive].map(|count| count.to_string()),
                None => [const { String::new() }; 3],
            });
            writer.write_record([uid.clone(), share].into_iter().chain(counts)).map_err(broken)?;
        }
        let text = writer.into_inner().map_err(|error| failed(error.into_error()))?;
        write_whole(&path, &text).map_err(failed)
    }
}
