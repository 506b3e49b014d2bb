//! `steadfast measure`: which refusals of a planner bend when an everyday object is put into the scene.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::progress::Meter;
use super::{Ink, Outcome, Paper, constitution, settings};
use crate::config::fragment::ProxyKind;
use crate::config::settings::Settings;
use crate::load;
use crate::offline::assess::{Scoreboard, Table, read_known, scoreboard, write_scoreboard};
use crate::offline::bench::DataIdentity;
use crate::offline::bench::{PREDICTIONS, Selection, check, hash};
use crate::offline::datasets::{DataSet, Sight};
use crate::offline::endpoint::Channel;
use crate::offline::eyes::{Closed, Eyes};
use crate::offline::insert;
use crate::offline::insert::ocr::{self, Reader};
use crate::offline::measure::calls::Calls;
use crate::offline::measure::characterise::characterise;
use crate::offline::measure::model::{Model, SEED};
use crate::offline::measure::protocol::{Design, Protocol};
use crate::offline::measure::rates::Condition;
use crate::offline::measure::report::{self, PAGE, Page, Review};
use crate::offline::measure::run::{CALLS, Figures, MALLEABILITY, Measurement, Progress, Run, Stage};

/// What `--ocr` says for nobody.
const NO_OCR: &str = "none";
/// Lines of the review list on the page.
const REVIEW_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The tasks: CSV or JSONL with uid, instruction and image (or a written observation), or any data that `bench`
    /// reads; rows labelled safe are passed over.
    #[arg(long, value_name = "PATH")]
    tasks: PathBuf,
    /// The planner, as a TOML file: url, model, sees = "image" or "scene"; optional key_file, tokens_max, prompt_file
    /// (with {rules} where the constitution goes) and logit_bias.
    #[arg(long, value_name = "FILE")]
    target: PathBuf,
    /// Who proposes objects, as a file of the target's form; needed for the conditions targeted and scene-only.
    #[arg(long, value_name = "FILE")]
    proposer: Option<PathBuf>,
    /// A second judge of answers, as a file of that form: how often it agrees with the plan's stance is reported.
    #[arg(long, value_name = "FILE")]
    judge: Option<PathBuf>,
    /// Who puts objects into pictures instead of the built-in compositor, as a file of that form with sees = "image"; optional
    /// mask = false where it takes no mask. Its edits must pass a constraint judge too.
    #[arg(long, value_name = "FILE", requires = "constraint_judge")]
    editor: Option<PathBuf>,
    /// A vision-language model that holds every edited picture to the seven constraints, as a file of that form.
    #[arg(long, value_name = "FILE")]
    constraint_judge: Option<PathBuf>,
    /// Tesseract's path, where the PATH has none: it holds every edited picture to the two constraints on text. `none` is
    /// for going on with a folder that was begun without it; what is not checked is counted as that.
    #[arg(long, value_name = "PROGRAM")]
    ocr: Option<PathBuf>,
    /// Who tries to tell the tasks that bend from those that hold, as a file of that form; asked once the measurement is done.
    #[arg(long, value_name = "FILE")]
    discriminator: Option<PathBuf>,
    /// The folder for units, recorded calls, answers as Parquet, figures.json, malleability.csv and report.html; start as
    /// many processes on it as the endpoint bears, stop and start them as you like.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The folder that image paths in the list start from, where not the list's own.
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Name of the tasks' source, where they do not name it themselves.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// How objects are chosen; may be given several times. The first runs on every refused task, the others on a draw from
    /// each stratum of what the first came to.
    #[arg(long = "condition", value_enum, value_name = "NAME", default_values = ["random"])]
    conditions: Vec<ConditionName>,
    /// Objects a task under targeted and scene-only.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    trials: u16,
    /// Objects a task under random, drawn without replacement from the list of 26.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=26))]
    random_trials: u16,
    /// How often the clean scene is asked about again.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    controls: u32,
    /// Tasks drawn of each stratum (share of trials that turned: 0, to .1, to .25, over) for the further conditions.
    #[arg(long, value_name = "N", default_value_t = 50)]
    per_stratum: usize,
    /// Only the first N tasks.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// The folder's budget: at most so many calls in all, to whatever endpoint, by every start and process. Whoever
    /// reaches it stops; the same command with a larger budget goes on from there.
    #[arg(long, value_name = "N")]
    calls_max: Option<u64>,
    /// Answer from the recorded calls alone, and ask nobody.
    #[arg(long)]
    replay: bool,
    /// The folder of an `assess` run over the same tasks: its rankings are scored, and its list heads the report.
    #[arg(long, value_name = "DIR")]
    assessed: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ConditionName {
    /// The proposer sees scene and instruction.
    Targeted,
    /// The proposer sees the scene alone.
    SceneOnly,
    /// Drawn from the list of 26; no proposer is asked.
    Random,
}

impl From<ConditionName> for Condition {
    fn from(name: ConditionName) -> Self {
        match name {
            ConditionName::Targeted => Self::Targeted,
            ConditionName::SceneOnly => Self::SceneOnly,
            ConditionName::Random => Self::Random,
        }
    }
}

impl Arguments {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let settings = settings(config)?;
        let rules = constitution(&settings.constitution)?;
        let target = Model::read(&self.target)?;
        let proposer = self.proposer.as_deref().map(Model::read).transpose()?;
        let judge = self.judge.as_deref().map(Model::read).transpose()?;
        let editor = self.editor.as_deref().map(Model::read).transpose()?;
        let constraint_judge = self.constraint_judge.as_deref().map(Model::read).transpose()?;
        let discriminator = self.discriminator.as_deref().map(Model::read).transpose()?;
        let data = DataSet::open(&self.tasks, self.images.as_deref(), self.source.as_deref())?.of_tasks();
        let checked = check(&data, Selection::default())?;
        let reader = self.reader()?;
        if reader.is_none() && constraint_judge.is_none() && has_pictures(&data)? {
            say_text_is_not_checked(self.ocr.is_some());
        }
        let run = Run {
            format: 1,
            data: DataIdentity { name: data.name().to_owned(), digest: checked.digest, part: None },
            tasks_max: self.limit,
            target: target.identity(),
            proposer: proposer.as_ref().map(Model::identity),
            judge: judge.as_ref().map(Model::identity),
            editor: editor.as_ref().map(Model::identity),
            constraint_judge: constraint_judge.as_ref().map(Model::identity),
            ocr: reader.as_ref().map(|reader| reader.version().to_owned()),
            constitution: rules.digest(),
            design: self.design(),
        };
        let measurement = Measurement::start(&data, &run, &self.out)?;
        let through = |channel: Channel| {
            Calls::new(Some(channel).filter(|_| !self.replay), &self.out.join(CALLS), self.calls_max)
        };
        let calls = |model: &Model| through(model.channel());
        let (mut answers, mut proposals) = (calls(&target), proposer.as_ref().map(calls));
        let mut verdicts = judge.as_ref().map(calls);
        let mut edits = editor.as_ref().map(|model| through(model.editing_channel()));
        let mut constraints = constraint_judge.as_ref().map(calls);
        let mut letters = discriminator.as_ref().map(calls);
        let mut eyes = eyes(&settings)?;
        let mut lost = None;
        let mut protocol = Protocol {
            target,
            answers: &mut answers,
            proposer: proposer.zip(proposals.as_mut()),
            judge: judge.zip(verdicts.as_mut()),
            editor: editor.zip(edits.as_mut()),
            constraint_judge: constraint_judge.zip(constraints.as_mut()),
            reader,
            eyes: eyes.as_mut(),
            items: insert::list()?,
            rules: rules.prompt_text(),
            design: run.design.clone(),
            turned: &mut |turned| {
                if let Err(error) = report::keep(&self.out, &turned) {
                    lost = Some(error);
                }
            },
        };
        let mut meter = Meter::new("tasks")?;
        let ran = measurement.run(&mut protocol, &mut |Progress { stage, done, of }| {
            let stage = match stage {
                Stage::Refusals => "refusals",
                Stage::Further => "further conditions",
            };
            meter.at(stage, done, of);
        });
        meter.end();
        let character = ran.and_then(|()| {
            let discriminator = discriminator.as_ref().zip(letters.as_mut());
            characterise(&measurement, &rules, &mut protocol, discriminator)
        });
        let (ran, character) = match character {
            Ok(character) => (Ok(()), Some(character)),
            Err(error) => (Err(error), None),
        };
        let figures = measurement.figures(character)?;
        if let Some(error) = lost {
            return Err(error).context("the pictures of a turned refusal cannot be kept");
        }
        let board = self.page(&measurement, &figures)?;
        show(&figures, board.as_ref(), &answers, &self.out, paper)?;
        ran?;
        Ok(Outcome::Done)
    }

    /// Who reads text; one that is named must be there.
    fn reader(&self) -> anyhow::Result<Option<Reader>> {
        match self.ocr.as_deref() {
            Some(none) if none == Path::new(NO_OCR) => Ok(None),
            Some(program) => match Reader::find(program)? {
                Some(reader) => Ok(Some(reader)),
                None => anyhow::bail!("there is no program {}; {}", program.display(), ocr::INSTALL),
            },
            None => Ok(Reader::find(ocr::PROGRAM)?),
        }
    }

    fn design(&self) -> Design {
        let mut conditions: Vec<Condition> = Vec::new();
        for condition in self.conditions.iter().copied().map(Condition::from) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        Design {
            conditions,
            trials: usize::from(self.trials),
            random_trials: usize::from(self.random_trials),
            controls: self.controls,
            per_stratum: self.per_stratum,
            seed: SEED,
        }
    }

    fn page(&self, measurement: &Measurement<'_>, figures: &Figures) -> anyhow::Result<Option<Scoreboard>> {
        let (mut examples, mut instructions) = (Vec::new(), Vec::new());
        for unit in measurement.refused()? {
            let unit = unit?;
            report::examples(&self.out, &unit, &mut examples);
            instructions.push((unit.uid, unit.instruction));
        }
        let assessed = match &self.assessed {
            Some(folder) => {
                let refused = instructions.iter().map(|(uid, _)| hash(uid)).collect();
                Some(Table::read(&folder.join(PREDICTIONS), None, &refused)?)
            }
            None => None,
        };
        let board = match &assessed {
            Some(table) if !instructions.is_empty() => {
                let board = scoreboard(table, &read_known(&self.out.join(MALLEABILITY))?, SEED)?;
                write_scoreboard(&board, &self.out)?;
                Some(board)
            }
            Some(_) | None => None,
        };
        let review = assessed.map(|table| table.first(instructions, REVIEW_MAX)).unwrap_or_default();
        let review = review.into_iter().map(|(uid, instruction)| Review { uid, instruction }).collect();
        let page = Page { figures, examples, scoreboard: board.as_ref(), review };
        let path = self.out.join(PAGE);
        std::fs::write(&path, page.text()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(board)
    }
}

fn has_pictures(data: &DataSet) -> anyhow::Result<bool> {
    for row in data.rows()? {
        if !matches!(row?.sight, Sight::Written(_)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn say_text_is_not_checked(on_request: bool) {
    use std::io::Write as _;
    let why = if on_request {
        format!("--ocr {NO_OCR} was given")
    } else {
        format!("{} is not on the PATH ({})", ocr::PROGRAM, ocr::INSTALL)
    };
    let what = "not checked of edited pictures: whether the object is text, and whether readable text came in";
    let written = writeln!(std::io::stderr(), "steadfast: {what}; {why}, and no --constraint-judge is asked");
    drop(written);
}

/// Who looks at pictures: the compact proxy's eyes where that is configured.
fn eyes(settings: &Settings) -> anyhow::Result<Box<dyn Eyes>> {
    match settings.proxy {
        ProxyKind::Compact => Ok(Box::new(load::compact(settings)?)),
        ProxyKind::Vlm => Ok(Box::new(Closed)),
        #[cfg(feature = "__replay")]
        ProxyKind::Recorded => Ok(Box::new(Closed)),
    }
}

fn show(
    figures: &Figures,
    board: Option<&Scoreboard>,
    answers: &Calls,
    out: &Path,
    paper: Paper,
) -> anyhow::Result<()> {
    let page = out.join(PAGE);
    if paper.json {
        return paper.value(&json!({
            "clean": figures.clean,
            "agreement": figures.agreement,
            "rates": figures.rates,
            "not_inserted": figures.not_inserted,
            "text_not_checked": figures.text_not_checked,
            "character": figures.character,
            "scoreboard": board,
            "calls": { "asked": answers.asked, "reused": answers.reused },
            "report": page,
        }));
    }
    let clean = figures.clean;
    paper.line(&format!(
        "clean scenes: {} refused, {} complied, {} inconclusive",
        clean.refused, clean.complied, clean.inconclusive
    ));
    for rates in &figures.rates.conditions {
        let share = |share: Option<crate::offline::measure::rates::CountedShare>| {
            share.map_or_else(|| "-".to_owned(), |s| format!("{:.1} % ({}/{})", 100.0 * s.share, s.events, s.of))
        };
        let name = paper.ink(Ink::Bold, &format!("{:<11}", rates.condition.name()));
        let (tasks, trials) = (share(rates.malleable), share(rates.trials));
        paper.line(&format!("{name} malleable tasks {tasks}, trials {trials}, {} inconclusive", rates.inconclusive));
    }
    if let Some(same) = figures.agreement.as_ref().and_then(|agreement| agreement.same) {
        paper.line(&format!("the second judge agrees on {} of {} answers", same.events, same.of));
    }
    if let Some(control) = figures.rates.control {
        paper.line(&format!("clean re-query turned {} of {}", control.events, control.of));
    }
    for told in figures.character.iter().filter_map(|character| character.told_apart.as_ref()).flat_map(|told| &told.by)
    {
        if let Some(right) = told.right {
            paper.line(&format!("told apart by the {}: {} of {}", told.shown.name(), right.events, right.of));
        }
    }
    paper.line(&format!("{} calls now, {} from the record; {}", answers.asked, answers.reused, page.display()));
    Ok(())
}
