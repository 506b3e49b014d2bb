//! `steadfast model inspect`: what a folder with a vision-language model holds, and whether this machine and the
//! configured deadline hold it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::{Misconfigured, Outcome, Paper, constitution, settings};
use crate::decision::Tier;
use crate::load;
use crate::proxy::Proxy as _;
use crate::proxy::self_test::{GOLDEN_FILE, Golden, TOLERANCE_NATS, self_test};
use crate::proxy::vlm::{Demand, Vlm};
use crate::scene::perturb;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder: config.json, tokenizer.json, preprocessor_config.json and onnx/*.onnx, as public exports come.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Note the model's answer to the built-in question in DIR/steadfast_golden.json: do so where the model is known to
    /// work, and every start elsewhere is held to it.
    #[arg(long)]
    note_golden: bool,
}

impl Arguments {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let settings = settings(config)?;
        let rules = constitution(&settings.constitution)?;
        load::hold_memory(&self.folder, &settings.vlm)?;
        let engine = load::engine(&settings).map_err(Misconfigured)?;
        let demand = Demand {
            memory_bytes: load::memory_available().unwrap_or(u64::MAX),
            deadline: settings.deadline_default,
            copies: u32::try_from(perturb::COPIES)?,
            trace_tokens: if settings.tier == Tier::MarginOnly { 0 } else { settings.trace_tokens_max },
            constitution: &rules.prompt_text(),
        };
        let inspection = Vlm::inspect(&engine, &self.folder, &settings.vlm, &demand)
            .with_context(|| self.folder.display().to_string())?;
        if paper.json {
            paper.value(&inspection)?;
        } else {
            paper.line(&inspection.to_string());
        }
        if self.note_golden {
            let mut proxy = Vlm::load_with(&engine, &self.folder, &settings.vlm)?;
            let margin = self_test(&mut proxy, None)?.nats();
            let golden = Golden { proxy: proxy.card().digest, margin, tolerance: TOLERANCE_NATS };
            let path = self.folder.join(GOLDEN_FILE);
            std::fs::write(&path, format!("{}\n", json!(golden)))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let fits = inspection.fits_context && inspection.fits_memory && inspection.fits_deadline;
        Ok(if fits && inspection.card.safe_for_spread { Outcome::Done } else { Outcome::Failed })
    }
}
