//! The command line: one question asked by hand, the records read, the models brought, the offline tools run.
//!
//! Words for people go to standard output, complaints to standard error, and the exit code says what a script needs.

mod assess;
mod bench;
mod calibrate;
mod check;
mod dataset;
mod inspect;
mod live;
mod measure;
mod model;
mod permit;
mod progress;
mod rationale;
mod show;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::settings::Settings;
use crate::constitution::Constitution;

/// What a command comes to, as exit codes that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Done, or permit.
    Done = 0,
    /// Any other failure.
    Failed = 1,
    /// The words are off; given by the parser of arguments.
    Usage = 2,
    /// Veto.
    Veto = 3,
    /// Refusal.
    Refusal = 4,
    /// The configuration does not stand.
    Configuration = 78,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

/// A failure that is the configuration's: exit 78, so that a supervisor does not restart in vain.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Misconfigured(anyhow::Error);

/// The guard's command line.
///
/// Exit codes: 0 permit or done, 3 veto, 4 refusal, 2 wrong usage, 78 bad configuration, 1 any other failure.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version, max_term_width = 100)]
pub struct Arguments {
    /// The configuration; drop-ins are read from FILE.d/*.toml.
    #[arg(long, global = true, value_name = "FILE", default_value = "/etc/steadfast/steadfast.toml")]
    config: PathBuf,
    /// Print JSON instead of words.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Judge one instruction, image and plan.
    ///
    /// Example: steadfast check --image scene.jpg --instruction "Bring the cup" --plan "1. Grasp the cup"
    Check(check::Arguments),
    /// Show how the running guard fares.
    Status(live::Bus),
    /// Follow the running guard's vetoes and state, a line each.
    Watch(live::Bus),
    /// Show what is recorded of one check.
    Explain {
        #[command(flatten)]
        bus: live::Bus,
        /// The check's id, as every answer carries it.
        check_id: String,
    },
    /// Read the audit log.
    #[command(subcommand)]
    Log(show::Log),
    /// Look at a constitution.
    #[command(subcommand)]
    Constitution(show::ConstitutionCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(show::Config),
    /// Look at a signed permit, or rotate the key they are signed with.
    #[command(subcommand)]
    Permit(permit::Permit),
    /// Measure the guard on labelled data; an interrupted run continues where it stopped.
    ///
    /// Example: steadfast bench --data sabench --split test --out runs/sabench
    Bench(bench::Arguments),
    /// Rank tasks by how easily their refusals may bend, without asking the planner.
    ///
    /// Which signals they are ranked by follows from `proxy.tier`: those of traces need trace-once or full.
    /// They are read at leisure: the deadline of `limits` is for checks alone.
    ///
    /// Example: steadfast assess --tasks tasks.csv --images photos --out runs/review
    Assess(assess::Arguments),
    /// Measure which refusals of a planner bend when an everyday object is put into the scene.
    ///
    /// Example: steadfast measure --tasks tasks.csv --images photos --target planner.toml --out runs/planner
    Measure(measure::Arguments),
    /// Choose scale and limits from a benchmark's predictions, for the miss rate you accept.
    ///
    /// Example: steadfast calibrate --predictions runs/*/predictions.jsonl --alpha 0.1 --false-veto 0.1 --out calibration.toml
    Calibrate(calibrate::Arguments),
    /// Audit answers against reference rationales: the first stage of the reasoning that is not met.
    ///
    /// Example: steadfast rationale --answers answers.jsonl --out runs/rationale
    Rationale(rationale::Arguments),
    /// Look over task sets.
    #[command(subcommand)]
    Dataset(dataset::Dataset),
    /// Bring, list, verify or inspect models.
    #[command(subcommand)]
    Model(model::Model),
}

/// Where words go, and whether they may be coloured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paper {
    json: bool,
    colour: bool,
}

/// An ANSI colour, used only on a terminal.
#[derive(Debug, Clone, Copy)]
enum Ink {
    Green = 32,
    Red = 31,
    Yellow = 33,
    Dim = 2,
    Bold = 1,
}

impl Paper {
    /// Writes one line of words; a closed pipe ends the program's words, not the program.
    fn line(self, text: &str) {
        use std::io::Write as _;
        let written = writeln!(std::io::stdout(), "{text}");
        drop(written);
    }

    /// Writes a value as one line of JSON.
    fn value(self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        self.line(&serde_json::to_string(value)?);
        Ok(())
    }

    fn ink(self, ink: Ink, text: &str) -> String {
        if self.colour { format!("\x1b[{}m{text}\x1b[0m", ink as u8) } else { text.to_owned() }
    }
}

/// Reads the command line and runs it.
#[must_use]
pub fn main() -> ExitCode {
    run(<Arguments as Parser>::parse())
}

/// Runs the command line and gives its exit code.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let paper = Paper { json: arguments.json, colour };
    match dispatch(arguments, paper) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            use std::io::Write as _;
            let written = writeln!(std::io::stderr(), "steadfast: {error:#}");
            drop(written);
            if error.is::<Misconfigured>() { Outcome::Configuration.into() } else { Outcome::Failed.into() }
        }
    }
}

fn dispatch(arguments: Arguments, paper: Paper) -> anyhow::Result<Outcome> {
    let config = arguments.config;
    match arguments.command {
        Command::Check(check) => check.run(&config, paper),
        Command::Status(bus) => bus.status(&config, paper),
        Command::Watch(bus) => bus.watch(&config, paper),
        Command::Explain { bus, check_id } => bus.explain(&config, &check_id, paper),
        Command::Log(log) => log.run(&config, paper),
        Command::Constitution(constitution) => constitution.run(&config, paper),
        Command::Config(show) => show.run(&config, paper),
        Command::Permit(permit) => permit.run(&config, paper),
        Command::Bench(bench) => bench.run(&config, paper),
        Command::Measure(measure) => measure.run(&config, paper),
        Command::Assess(assess) => assess.run(&config, paper),
        Command::Calibrate(calibrate) => calibrate.run(&config, paper),
        Command::Rationale(rationale) => rationale.run(paper),
        Command::Dataset(dataset) => dataset.run(&config, paper),
        Command::Model(model) => model.run(&config, paper),
    }
}

fn settings(config: &Path) -> anyhow::Result<Settings> {
    Settings::read(config).map_err(|error| Misconfigured(error.into()).into())
}

fn constitution(path: &Path) -> anyhow::Result<Constitution> {
    let text = crate::config::read_trusted(path).map_err(|error| Misconfigured(error.into()))?;
    Constitution::parse(&text).map_err(|errors| Misconfigured(anyhow::anyhow!("{}:\n{errors}", path.display())).into())
}
