//! `steadfast assess`: which of a team's tasks to look at first, before any planner is asked.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::bench::{judged, memory_peak_mib, with_guard};
use super::check::Stopwatch;
use super::{Ink, Outcome, Paper, settings};
use crate::offline::assess::{
    COMPOSITE, RANKING, Score, Scoreboard, Table, prevalence, read_known, scoreboard, write_ranking, write_scoreboard,
};
use crate::offline::bench::{Bench, PREDICTIONS, Run, Selection, check};
use crate::offline::datasets::DataSet;
use crate::signals::malleability::Composite;

/// Seed of the cross-validation's deals.
const SEED: u64 = 42;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The tasks: CSV or JSONL with uid, instruction and image (or a written observation), or any data that `bench` reads.
    #[arg(long, value_name = "PATH")]
    tasks: PathBuf,
    /// The folder for predictions.jsonl and ranking.csv, with --known scoreboard.json and composite.toml too; an unfinished
    /// run there is continued.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The folder that image paths in the list start from, where not the list's own.
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Name of the tasks' source, where they do not name it themselves.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Score A5 by this composite, as an earlier run with --known wrote it, instead of the calibration's.
    #[arg(long, value_name = "FILE")]
    composite: Option<PathBuf>,
    /// Malleabilities measured on the planner: malleability.csv of `measure`, or any CSV with uid and malleability (0 to 1).
    /// The rankings are scored against them, and A5, the composite of the signals, is fitted on them and scored on held-out
    /// folds, 5 × 5.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Read the signals without a calibration, which then has no A5 to rank by.
    #[arg(long)]
    uncalibrated: bool,
}

impl Arguments {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let composite = self.composite.as_deref().map(read_composite).transpose()?;
        let known = self.known.as_deref().map(read_known).transpose()?;
        let data = DataSet::open(&self.tasks, self.images.as_deref(), self.source.as_deref())?.of_tasks();
        let selection = Selection::default();
        let checked = check(&data, selection)?;
        let bench = Bench::new(&data, selection, &checked, &self.out);
        let clock = Stopwatch::start();
        let took = with_guard(&settings(config)?, self.uncalibrated, &clock, |guard, judge| {
            let run = Run { format: 1, uncalibrated: self.uncalibrated, data: bench.data_identity(), judge };
            judged(&run, guard, &bench, &clock)
        })?;
        let readings = self.out.join(PREDICTIONS);
        let kept = known.iter().flat_map(|known| known.keys().copied()).collect();
        let mut table = Table::read(&readings, composite.as_ref(), &kept)?;
        write_ranking(&mut table, &readings, composite.as_ref(), &self.out)?;
        let board = known.map(|known| scoreboard(&table, &known, SEED)).transpose()?;
        if let Some(board) = &board {
            write_scoreboard(board, &self.out)?;
        }
        let leading = table.leading().map_or("nothing", |signal| signal.name());
        let ranking = self.out.join(RANKING);
        if paper.json {
            paper.value(&json!({
                "tasks": checked.rows,
                "without_reading": table.without_reading,
                "ranked_by": leading,
                "ranking": ranking,
                "scoreboard": board,
                "memory_peak_mib": memory_peak_mib(),
            }))?;
            return Ok(Outcome::Done);
        }
        paper.line(&format!("{} tasks ranked by {leading}: {}", checked.rows, ranking.display()));
        if table.without_reading > 0 {
            paper.line(&format!(
                "{} tasks have no reading and rank last; see the column verdict",
                table.without_reading
            ));
        }
        if let Some(board) = &board {
            show(board, &self.out, paper);
        }
        let peak = memory_peak_mib().map(|peak| format!(", {peak:.0} MiB at most")).unwrap_or_default();
        paper.line(&format!("{} tasks read now in {:.1} s{peak}", took.rows, took.wall.as_secs_f64()));
        Ok(Outcome::Done)
    }
}

pub(super) fn read_composite(path: &Path) -> anyhow::Result<Composite> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is no composite", path.display()))
}

fn show(board: &Scoreboard, out: &Path, paper: Paper) {
    let Scoreboard { tasks, malleable, .. } = board;
    let rate = 100.0 * prevalence(board);
    paper.line(&format!("{malleable} of {tasks} tasks with a known malleability are malleable ({rate:.1} %)"));
    let head = format!("{:<22} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}", "", "ROC", "PR", "ρ", "ρ|words", "p@50", "p@100");
    paper.line(&paper.ink(Ink::Bold, &head));
    for (name, score) in &board.signals {
        paper.line(&line(name, score));
    }
    match (&board.a5, &board.no_a5) {
        (Some(a5), _) => {
            paper.line(&line("a5, 5 × 5-fold", &a5.held_out));
            paper.line(&format!("A5 fitted on these tasks: {}", out.join(COMPOSITE).display()));
        }
        (None, Some(why)) => paper.line(&format!("no A5 fitted: {why}")),
        (None, None) => {}
    }
}

fn line(name: &str, score: &Score) -> String {
    let Score { roc_auc, pr_auc, spearman, partial_spearman, precision_at_50, precision_at_100, .. } = *score;
    let figures = [roc_auc, pr_auc, spearman, partial_spearman, precision_at_50, precision_at_100];
    let figures = figures.map(|figure| figure.map_or_else(|| format!("{:>7}", "-"), |figure| format!("{figure:>7.3}")));
    format!("{name:<22} {}", figures.join(" "))
}
