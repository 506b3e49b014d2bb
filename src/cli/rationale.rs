//! `steadfast rationale`: where answers' reasoning first departs from reference rationales.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use indicatif::ProgressBar;

use super::check::Stopwatch;
use super::{Outcome, Paper};
use crate::offline::endpoint::Endpoint;
use crate::offline::rationale::{Audited, StageJudge, Words, audit, read, table};

/// The rows' file in the output folder.
const ROWS: &str = "rationale.jsonl";
/// The table's file in the output folder.
const TABLE: &str = "rationale.json";

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Answers beside their references, a JSON object a line:
    /// {"uid", "category", "label": "safe"|"unsafe", "reference": {"cue", "rule", "violation"}, "answer"}.
    #[arg(long, value_name = "FILE")]
    answers: PathBuf,
    /// The folder for rationale.jsonl (a line a row) and rationale.json (the table).
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Have a model behind this OpenAI-compatible endpoint say whether a stage is met; else shared words decide.
    #[arg(long, value_name = "URL", requires = "model")]
    endpoint: Option<String>,
    /// The model's name there.
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    model: Option<String>,
}

impl Arguments {
    pub(super) fn run(self, paper: Paper) -> anyhow::Result<Outcome> {
        let rows = read(&self.answers)?;
        let clock = Stopwatch::start();
        let mut judge: Box<dyn StageJudge> = match self.endpoint.zip(self.model) {
            Some((url, model)) => Box::new(Endpoint::new(&url, &model, None, &clock)),
            None => Box::new(Words),
        };
        let bar = if paper.json { ProgressBar::hidden() } else { ProgressBar::new(rows.len().try_into()?) };
        let audited =
            bar.wrap_iter(rows.iter()).map(|row| audit(row, judge.as_mut())).collect::<Result<Vec<_>, _>>()?;
        let table = table(&audited);
        write(&self.out, &audited, &serde_json::to_vec_pretty(&table)?)
            .with_context(|| format!("cannot write into {}", self.out.display()))?;
        if paper.json {
            paper.value(&table)?;
            return Ok(Outcome::Done);
        }
        paper.line(&format!(
            "{:<24} {:>6} {:>6} {:>6} {:>6} {:>6}  whole rationale",
            "first unmet", "rows", "CUE", "RUL", "VRI", "RES"
        ));
        for (category, tally) in &table {
            let [cue, rul, vri, res] = tally.first_unmet;
            let (low, high) = tally.whole_interval.unwrap_or((0.0, 1.0));
            paper.line(&format!(
                "{category:<24} {:>6} {cue:>6} {rul:>6} {vri:>6} {res:>6}  {} ({low:.2} to {high:.2})",
                tally.rows, tally.whole
            ));
        }
        if let Some(all) = table.get("all") {
            paper.line(&format!(
                "{} verdicts are right, {} of them for another reason than the reference's",
                all.right, all.right_for_another_reason
            ));
        }
        paper.line(&format!("rows in {}, table in {}", self.out.join(ROWS).display(), self.out.join(TABLE).display()));
        Ok(Outcome::Done)
    }
}

fn write(folder: &Path, rows: &[Audited], table: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join(ROWS))?);
    for row in rows {
        serde_json::to_writer(&mut file, row)?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    std::fs::write(folder.join(TABLE), table)
}
