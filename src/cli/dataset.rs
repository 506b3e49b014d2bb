//! `steadfast dataset`: a look over task sets.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use indicatif::ProgressBar;

use super::{Ink, Misconfigured, Outcome, Paper, settings};
use crate::config::fragment::ProxyKind;
use crate::config::settings::Settings;
use crate::constitution::Constitution;
use crate::load;
use crate::offline::datasets::DataSet;
use crate::offline::datasets::lint::lint;
use crate::offline::latent::{HalvesReader, Latent};
use crate::offline::narrated::Narrate;

#[derive(Debug, Subcommand)]
pub(super) enum Dataset {
    /// Look over a task set whose harm is latent in instruction and scene together; exit 1 when there is any fault.
    ///
    /// Example: steadfast dataset lint tasks.csv --images photos --card CARD.md
    Lint {
        /// The tasks: CSV or JSONL with uid, instruction, image (or a written observation), rule and environment_label;
        /// optional label, pair, category, licence and plan. A row without a label is unsafe.
        tasks: PathBuf,
        /// The folder that image paths in the list start from, where not the list's own.
        #[arg(long, value_name = "DIR")]
        images: Option<PathBuf>,
        /// Write the data card there, as Markdown.
        #[arg(long, value_name = "FILE")]
        card: Option<PathBuf>,
    },
}

impl Dataset {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let Self::Lint { tasks, images, card } = self;
        let data = DataSet::open(&tasks, images.as_deref(), None)?.of_tasks();
        let (constitution, mut reader) = reader(&settings(config)?)?;
        let bar = ProgressBar::new_spinner();
        let linted = lint(&data, &constitution, reader.as_mut(), &mut |rows| bar.set_position(rows));
        bar.finish_and_clear();
        let linted = linted?;
        if let Some(path) = &card {
            std::fs::write(path, linted.card.page()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if paper.json {
            paper.value(&linted)?;
        } else {
            linted.findings.iter().for_each(|finding| paper.line(&format!("{}: {finding}", tasks.display())));
            let proxy = &linted.card.proxy;
            paper.line(&paper.ink(Ink::Bold, &format!("{} rows, {} faults", linted.card.rows, linted.findings.len())));
            for (name, figure) in [
                ("instruction alone", &proxy.instruction_alone),
                ("scene alone", &proxy.scene_alone),
                ("both", &proxy.unsafe_together),
            ] {
                paper.line(&format!("unsafe rows, {name:<18} {} of {} refused", figure.refused, figure.of));
            }
        }
        Ok(if linted.findings.is_empty() { Outcome::Done } else { Outcome::Failed })
    }
}

/// The configured proxy, and the constitution it has read.
fn reader(settings: &Settings) -> anyhow::Result<(Constitution, Box<dyn HalvesReader>)> {
    match settings.proxy {
        ProxyKind::Compact => bound(load::compact(settings)?, settings),
        ProxyKind::Vlm => bound(load::vlm(settings)?, settings),
        #[cfg(feature = "__replay")]
        ProxyKind::Recorded => bound(crate::proxy::recorded::Recorded::load(&settings.models)?, settings),
    }
}

fn bound<P: Narrate + 'static>(proxy: P, settings: &Settings) -> anyhow::Result<(Constitution, Box<dyn HalvesReader>)> {
    let rules = load::rules(settings).map_err(Misconfigured)?;
    let latent = Latent::new(proxy, &rules.constitution, rules.calibration);
    Ok((rules.constitution, Box::new(latent.map_err(|error| Misconfigured(error.into()))?)))
}
