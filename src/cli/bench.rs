//! `steadfast bench`: labelled data through the guard, and what it came to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::check::Stopwatch;
use super::progress::Meter;
use super::{Ink, Misconfigured, Outcome, Paper, constitution, settings};
use crate::config::fragment::ProxyKind;
use crate::config::settings::Settings;
use crate::load;
use crate::offline::baseline;
use crate::offline::bench::{Bench, Checked, Judge, JudgeIdentity, Run, Selection, Took, check, predictions};
use crate::offline::bench::{PREDICTIONS, Progress};
use crate::offline::datasets::{DataSet, Part};
use crate::offline::endpoint::Endpoint;
use crate::offline::guard::Guard;
use crate::offline::metrics::{Metrics, Table, Tabler};
use crate::offline::narrated::Narrate;
use crate::offline::report::{Cost, REPORT, Report};
use crate::statistics::Label;

/// Seed of every bootstrap, so that a report can be made again.
const SEED: u64 = 0;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The data: a folder with triples.jsonl and pairs.jsonl, GuardianBench's Parquet, photo pairs, or a task list in
    /// CSV or JSONL.
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// The folder for predictions.jsonl, metrics.json, run.json and report.html; an unfinished run there is continued.
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Where image paths of lists and photo pairs start.
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Name of the rows' source, where they do not name it themselves.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Judge only this part of the scenes: 70 % train, 15 % calibration, 15 % test, by hash.
    #[arg(long, value_enum, value_name = "PART")]
    split: Option<SplitPart>,
    /// Judge only the first N pairs, or rows where the data has no pairs.
    #[arg(long, value_name = "N")]
    limit_pairs: Option<usize>,
    /// Check the data whole, and judge nothing.
    #[arg(long)]
    dry_run: bool,
    /// Only measure margins, for a calibration that does not exist yet.
    #[arg(long)]
    uncalibrated: bool,
    /// Benchmark a model behind this OpenAI-compatible endpoint instead of the guard, such as http://127.0.0.1:8000/v1.
    #[arg(long, value_name = "URL", requires = "model", conflicts_with = "uncalibrated")]
    endpoint: Option<String>,
    /// The model's name there.
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    model: Option<String>,
    /// A file whose first line is sent there as a bearer token.
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SplitPart {
    Train,
    Calibration,
    Test,
}

impl From<SplitPart> for Part {
    fn from(part: SplitPart) -> Self {
        match part {
            SplitPart::Train => Self::Train,
            SplitPart::Calibration => Self::Calibration,
            SplitPart::Test => Self::Test,
        }
    }
}

impl Arguments {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let data = DataSet::open(&self.data, self.images.as_deref(), self.source.as_deref())?;
        let selection = Selection { part: self.split.map(Part::from), pairs_max: self.limit_pairs };
        let checked = check(&data, selection)?;
        if paper.json && self.dry_run {
            paper.value(&checked)?;
        } else if !paper.json {
            let Checked { rows, pairs, selected, digest, .. } = &checked;
            paper.line(&format!("{rows} rows in {pairs} pairs are fit; {selected} are selected; digest {digest}"));
        }
        let Some(out) = self.out.as_deref().filter(|_| !self.dry_run) else { return Ok(Outcome::Done) };
        let bench = Bench::new(&data, selection, &checked, out);
        let (run, took) = match self.endpoint.as_deref().zip(self.model.as_deref()) {
            Some((url, model)) => self.ask(url, model, &bench)?,
            None => self.judge(&settings(config)?, &bench)?,
        };
        let report = report(&data, selection, &checked, out, run, took)?;
        report.write(out).with_context(|| format!("cannot write into {}", out.display()))?;
        show(&report, out, paper)?;
        Ok(Outcome::Done)
    }

    fn ask(&self, url: &str, model: &str, bench: &Bench<'_>) -> anyhow::Result<(Run, Took)> {
        let key = match &self.key_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                text.lines().next().map(|line| line.trim().to_owned())
            }
            None => None,
        };
        let clock = Stopwatch::start();
        let mut endpoint = Endpoint::new(url, model, key, &clock);
        let identity = endpoint.identity();
        self.judged_by(&mut endpoint, identity, bench, &clock)
    }

    fn judge(&self, settings: &Settings, bench: &Bench<'_>) -> anyhow::Result<(Run, Took)> {
        let clock = Stopwatch::start();
        with_guard(settings, self.uncalibrated, &clock, |guard, identity| {
            self.judged_by(guard, identity, bench, &clock)
        })
    }

    fn judged_by(
        &self,
        judge: &mut dyn Judge,
        identity: JudgeIdentity,
        bench: &Bench<'_>,
        clock: &Stopwatch,
    ) -> anyhow::Result<(Run, Took)> {
        let run = Run { format: 1, uncalibrated: self.uncalibrated, data: bench.data_identity(), judge: identity };
        let took = judged(&run, judge, bench, clock)?;
        Ok((run, took))
    }
}

/// Judges, saying how far it is.
pub(super) fn judged(run: &Run, judge: &mut dyn Judge, bench: &Bench<'_>, clock: &Stopwatch) -> anyhow::Result<Took> {
    let mut meter = Meter::new("rows")?;
    let took = bench.run(run, judge, clock, &mut |Progress { done, of }| meter.at("", done, of))?;
    meter.end();
    Ok(took)
}

/// Loads the configured guard and hands it over as a judge.
pub(super) fn with_guard<T>(
    settings: &Settings,
    uncalibrated: bool,
    clock: &Stopwatch,
    then: impl FnOnce(&mut dyn Judge, JudgeIdentity) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match settings.proxy {
        ProxyKind::Compact => guard(load::compact(settings)?, settings, uncalibrated, clock, then),
        ProxyKind::Vlm => guard(load::vlm(settings)?, settings, uncalibrated, clock, then),
        #[cfg(feature = "__replay")]
        ProxyKind::Recorded => {
            let proxy = crate::proxy::recorded::Recorded::load(&settings.models)?;
            guard(proxy, settings, uncalibrated, clock, then)
        }
    }
}

fn guard<P: Narrate, T>(
    proxy: P,
    settings: &Settings,
    uncalibrated: bool,
    clock: &Stopwatch,
    then: impl FnOnce(&mut dyn Judge, JudgeIdentity) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (rules, calibration) = if uncalibrated {
        (constitution(&settings.constitution)?, None)
    } else {
        let loaded = load::rules(settings).map_err(Misconfigured)?;
        (loaded.constitution, Some((loaded.calibration, loaded.calibration_digest)))
    };
    let guard = Guard::new(proxy, rules, calibration, settings.tier, clock);
    let mut guard = guard.map_err(|error| Misconfigured(error.into()))?;
    let identity = guard.identity();
    then(&mut guard, identity)
}

/// Reads the predictions back and computes everything from them, so that a finished run can be reported again.
fn report(
    data: &DataSet,
    selection: Selection,
    checked: &Checked,
    out: &Path,
    run: Run,
    took: Took,
) -> anyhow::Result<Report> {
    let scores = baseline::scores(data, selection.part, |row| checked.selects(row, selection))?;
    let (mut own, mut compatible, mut words) = (Tabler::default(), Tabler::default(), Tabler::default());
    let mut answers = false;
    for prediction in predictions(&out.join(PREDICTIONS))? {
        let prediction = prediction?;
        let judgement = &prediction.judgement;
        own.add(&prediction, judgement.judged, judgement.refuse_log_odds);
        if matches!(run.judge, JudgeIdentity::Endpoint { .. }) {
            answers = true;
            compatible.add(&prediction, judgement.compatible, None);
        }
        if let Some(score) = scores.as_ref().ok().and_then(|scores| scores.get(&prediction.uid)) {
            let judged = if *score > 0.0 { Label::Unsafe } else { Label::Safe };
            words.add(&prediction, Some(judged), Some(*score));
        }
    }
    let metrics = |tabler: Tabler| Metrics::of(&tabler.finish(), SEED);
    let some = |tabler: Tabler| Some(tabler.finish()).filter(|table: &Table| !table.rows.is_empty());
    Ok(Report {
        run,
        metrics: metrics(own),
        compatible: answers.then(|| metrics(compatible)),
        text_baseline: some(words).map(|table| Metrics::of(&table, SEED)),
        no_baseline: scores.err().map(|why| why.to_string()),
        took: (took.rows > 0).then(|| Cost {
            rows: took.rows,
            wall_s: took.wall.as_secs_f64(),
            engine_share: took.engine.map(|engine| engine.as_secs_f64() / took.wall.as_secs_f64().max(1e-9)),
            memory_peak_mib: memory_peak_mib(),
        }),
    })
}

/// The process's largest resident memory, as the kernel counts it.
pub(super) fn memory_peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

fn show(report: &Report, out: &Path, paper: Paper) -> anyhow::Result<()> {
    let page = out.join(REPORT);
    if paper.json {
        return paper
            .value(&json!({ "metrics": report.metrics.figures().map(|(name, f)| (name, f.value)), "report": page }));
    }
    if report.run.uncalibrated {
        paper.line(&paper.ink(Ink::Yellow, "uncalibrated: the verdicts are the sign of the raw margin"));
    }
    paper.line(&paper.ink(Ink::Bold, &format!("{:<23} {:<24} text only", "", "guard")));
    let words = report.text_baseline.as_ref().map(Metrics::figures);
    for (at, (name, figure)) in report.metrics.figures().iter().enumerate() {
        let words = words.as_ref().and_then(|figures| figures.get(at)).map(|(_, figure)| readable(figure));
        paper.line(&format!("{name:<23} {:<24} {}", readable(figure), words.unwrap_or_default()));
    }
    if let Some(cost) = &report.took {
        let share = cost.engine_share.map(|share| format!(", {:.1} % in the engine", 100.0 * share));
        let peak = cost.memory_peak_mib.map(|peak| format!(", {peak:.0} MiB at most"));
        let (share, peak) = (share.unwrap_or_default(), peak.unwrap_or_default());
        paper.line(&format!("{} rows in {:.1} s{share}{peak}", cost.rows, cost.wall_s));
    }
    paper.line(&format!("{} without a verdict, counted as wrong; {}", report.metrics.without_verdict, page.display()));
    Ok(())
}

fn readable(figure: &crate::offline::metrics::Figure) -> String {
    match (figure.value, figure.low, figure.high) {
        (Some(value), Some(low), Some(high)) => format!("{value:.3} ({low:.3} to {high:.3})"),
        (Some(value), _, _) => format!("{value:.3}"),
        (None, _, _) => "-".to_owned(),
    }
}
