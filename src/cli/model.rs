//! `steadfast model`: brings the models onto a machine and holds them to the manifest; `inspect` is in its own file.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Ink, Outcome, Paper};
use crate::offline::models::{Layout, Manifest, Row, State};

#[derive(Debug, Subcommand)]
pub(super) enum Model {
    /// Download, convert and check every model and the ONNX Runtime library; what is there and right stays.
    Install(Places),
    /// List the files, their licences and whether they are there.
    List(Places),
    /// Hold every installed file to its SHA-256; exit 1 when one is missing or wrong.
    Verify(Places),
    /// Say what a folder with a vision-language model holds: family, inputs and outputs, context, state, capabilities,
    /// and whether its context holds prompt and trace, and this machine's memory and limits.deadline_ms_default hold it;
    /// exit 1 when they do not.
    ///
    /// Example: steadfast model inspect /usr/share/steadfast/models/smolvlm-256m --json
    Inspect(super::inspect::Arguments),
}

#[derive(Debug, Args)]
pub(super) struct Places {
    /// The folder with manifest.toml and the converters.
    #[arg(long, value_name = "DIR", default_value = "models")]
    tools: PathBuf,
    /// The Python that has models/requirements.txt installed.
    #[arg(long, value_name = "FILE", default_value = "build/venv/bin/python")]
    python: PathBuf,
    /// Where models go, a folder a proxy.
    #[arg(long, value_name = "DIR", default_value = "build/models")]
    models: PathBuf,
    /// Where the ONNX Runtime library goes.
    #[arg(long, value_name = "DIR", default_value = "build/lib")]
    library: PathBuf,
    /// Where downloads are kept between runs.
    #[arg(long, value_name = "DIR", default_value = "build/cache")]
    cache: PathBuf,
    /// The processor to provision for.
    #[arg(long, value_name = "ARCH", default_value = std::env::consts::ARCH)]
    architecture: String,
}

impl Places {
    fn read(self) -> anyhow::Result<(Manifest, Layout)> {
        let Self { tools, python, models, library, cache, architecture } = self;
        let manifest = Manifest::read(&tools.join("manifest.toml"))?;
        Ok((manifest, Layout { tools, python, cache, models, library, architecture }))
    }
}

impl Model {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        match self {
            Self::Inspect(arguments) => arguments.run(config, paper),
            Self::Install(places) => install(places, paper),
            Self::List(places) => rows(places, paper).map(|_| Outcome::Done),
            Self::Verify(places) => {
                let whole = rows(places, paper)?.iter().all(|row| row.state == State::Verified);
                Ok(if whole { Outcome::Done } else { Outcome::Failed })
            }
        }
    }
}

fn install(places: Places, paper: Paper) -> anyhow::Result<Outcome> {
    let (manifest, layout) = places.read()?;
    let spinner = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    let seen = !spinner.is_hidden();
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    for artefact in manifest.artefacts(&layout.architecture) {
        if artefact.installed(&layout)? {
            paper.line(&format!("{}: there and verified", artefact.name));
            continue;
        }
        artefact.install(&layout, &mut |step| {
            spinner.set_message(step.to_owned());
            if !seen {
                paper.line(step);
            }
        })?;
        spinner.suspend(|| paper.line(&format!("{}: installed and verified", artefact.name)));
    }
    spinner.finish_and_clear();
    let copied = layout.models.join("compact");
    if copied.is_dir() {
        // The trained head is small and belongs to this source tree; the proxy loads everything from one folder.
        std::fs::copy(layout.tools.join("verdict_head.json"), copied.join("verdict_head.json"))?;
    }
    Ok(Outcome::Done)
}

fn rows(places: Places, paper: Paper) -> anyhow::Result<Vec<Row>> {
    let (manifest, layout) = places.read()?;
    let rows = manifest.rows(&layout)?;
    if paper.json {
        paper.value(&rows)?;
        return Ok(rows);
    }
    for row in &rows {
        let (ink, state) = match &row.state {
            State::Verified => (Ink::Green, "verified".to_owned()),
            State::Missing => (Ink::Yellow, "missing".to_owned()),
            State::Wrong { found } => (Ink::Red, format!("wrong: SHA-256 is {found}")),
        };
        let mebibytes = row.bytes / (1 << 20);
        let state = paper.ink(ink, &state);
        paper.line(&format!("{state}  {} ({mebibytes} MiB; {}; {})", row.path.display(), row.artefact, row.licence));
    }
    Ok(rows)
}
