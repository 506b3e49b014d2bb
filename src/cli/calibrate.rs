//! `steadfast calibrate`: limits for the miss rate somebody accepts, or an old calibration bound to edited rules.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::assess::read_composite;
use super::{Ink, Outcome, Paper, constitution, settings};
use crate::calibration::{Calibration, SourceRates};
use crate::offline::bench::{predictions, read_run};
use crate::offline::calibrate::{Calibrated, Coverage, Gathered, Wish, calibrate, coverage};
use crate::signals::malleability::Target;
use crate::statistics::Share;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Predictions of benchmark runs over the calibration part; each with its run.json beside it.
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "rebind")]
    predictions: Vec<PathBuf>,
    /// α: the miss rate you accept on plans that should not run, 0 to 1.
    #[arg(long, value_name = "A", required_unless_present = "rebind", value_parser = share)]
    alpha: Option<Share>,
    /// δ: let the miss rate exceed α for at most this share of calibration sets; without it α holds on average.
    #[arg(long, value_name = "D", value_parser = share)]
    delta: Option<Share>,
    /// The false-veto rate you would like on plans that should run, 0 to 1.
    #[arg(long, value_name = "F", required_unless_present = "rebind", value_parser = share)]
    false_veto: Option<Share>,
    /// The share of the false-veto rate that flip share and malleability may each spend, 0 to 0.5; at 0 they veto only what
    /// exceeds every safe row.
    #[arg(long, value_name = "S", default_value = "0", value_parser = share)]
    side_share: Share,
    /// Seed of the deal into a half to learn from and a half to choose limits on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Score malleability by this composite, as `assess --known` wrote it, instead of learning one from wrong verdicts.
    #[arg(long, value_name = "FILE", conflicts_with = "rebind")]
    composite: Option<PathBuf>,
    /// Bind this calibration to the configured constitution without new data. Its guarantee was shown under other rules.
    #[arg(long, value_name = "OLD", conflicts_with_all = ["predictions", "alpha", "delta", "false_veto"])]
    rebind: Option<PathBuf>,
    /// Where the calibration goes.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn share(text: &str) -> Result<Share, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text} is not a number"))?;
    Share::new(value).map_err(|error| error.to_string())
}

impl Arguments {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        match (&self.rebind, self.alpha, self.false_veto) {
            (Some(old), _, _) => rebind(old, &self.out, config, paper),
            (None, Some(alpha), Some(false_veto)) => {
                let wish = Wish {
                    miss_rate_max: alpha,
                    delta: self.delta,
                    false_veto_rate_asked: false_veto,
                    side_share: self.side_share,
                    seed: self.seed,
                };
                self.fit(wish, paper)
            }
            (None, _, _) => anyhow::bail!("--alpha and --false-veto are needed"),
        }
    }

    fn fit(&self, wish: Wish, paper: Paper) -> anyhow::Result<Outcome> {
        let mut gathered = Gathered::default();
        for path in &self.predictions {
            let folder = path.parent().unwrap_or(Path::new("."));
            gathered.run(&path.display().to_string(), &read_run(folder)?)?;
            for prediction in predictions(path)? {
                gathered.row(prediction?)?;
            }
        }
        if let Some(file) = &self.composite {
            gathered.score_by(read_composite(file)?);
        }
        let calibrated = calibrate(&gathered, wish)?;
        let coverage = coverage(&gathered, wish)?;
        write(&self.out, &calibrated.calibration)?;
        show(&calibrated, coverage, wish, &self.out, paper)?;
        Ok(Outcome::Done)
    }
}

fn write(path: &Path, calibration: &Calibration) -> anyhow::Result<()> {
    std::fs::write(path, calibration.to_toml()?).with_context(|| format!("cannot write {}", path.display()))
}

fn rebind(old: &Path, out: &Path, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
    let text = std::fs::read_to_string(old).with_context(|| format!("cannot read {}", old.display()))?;
    let calibration = Calibration::parse(&text).with_context(|| old.display().to_string())?;
    let rules = constitution(&settings(config)?.constitution)?;
    if calibration.bound.constitution == rules.digest() {
        paper.line("the calibration belongs to this constitution already; nothing was written");
        return Ok(Outcome::Done);
    }
    let rebound = calibration.rebound(rules.digest());
    write(out, &rebound)?;
    if paper.json {
        paper.value(&json!({ "rebound_from": rebound.rebound_from(), "constitution": rules.digest() }))?;
        return Ok(Outcome::Done);
    }
    paper.line(&paper.ink(Ink::Red, "RE-BOUND WITHOUT NEW DATA"));
    paper.line(&format!(
        "  fitted under  {}",
        rebound.rebound_from().first().map(ToString::to_string).unwrap_or_default()
    ));
    paper.line(&format!("  now bound to  {}", rules.digest()));
    paper.line(
        "  The miss rate it promises was shown under the rules it was fitted with, not under these. The file says so.",
    );
    paper.line("  Run steadfast bench and steadfast calibrate under the new rules before you rely on it.");
    Ok(Outcome::Done)
}

fn show(found: &Calibrated, held: Coverage, wish: Wish, out: &Path, paper: Paper) -> anyhow::Result<()> {
    let Calibration { margin, limits, fit, .. } = &found.calibration;
    if paper.json {
        return paper.value(&json!({
            "fit": fit, "limits": limits, "margin": margin, "miss_rate_for_asked": found.miss_rate_for_asked,
            "composite_auc": found.composite_auc, "spread_auc": found.spread_auc,
            "coverage": { "splits": held.splits, "held": held.held, "not_achievable": held.not_achievable, "miss_rate_mean": held.miss_rate_mean },
        }));
    }
    let ((learnt, chosen), (inconclusive, faults)) = (found.rows, found.left_out);
    paper.line(&format!("learnt on {learnt} rows, limits chosen on {chosen} others"));
    paper.line(&format!(
        "left out: {inconclusive} with an inconclusive plan, vetoed whatever the limits, and {faults} with a fault"
    ));
    paper.line(&format!("log-odds of comply = {:.4} × margin {:+.4}", margin.scale, margin.bias));
    match (found.composite_auc, found.spread_auc) {
        _ if found.calibration.composite.target() == Target::Malleable => {
            paper.line("malleability is scored by the composite that was given, not by one learnt on these rows")
        }
        (Some(composite), Some(spread)) => paper.line(&format!(
            "a wrong verdict is foretold with AUC {composite:.3} by the composite (held out), {spread:.3} by the relative spread alone"
        )),
        _ => paper.line("too few wrong verdicts to learn a composite from: it scores every row alike and vetoes none"),
    }
    paper.line(&format!(
        "limits: log-odds of refuse {:.3}, flip share {:.2}, malleability {:.3}",
        limits.refuse_log_odds_max, limits.flip_share_max, limits.malleability_max
    ));
    paper.line(&format!("missed        {}", fit.miss));
    paper.line(&format!("falsely vetoed {}", fit.false_veto));
    let asked = wish.false_veto_rate_asked;
    paper.line(&match found.miss_rate_for_asked {
        Some(alpha) if alpha <= wish.miss_rate_max.get() => {
            format!("a false-veto rate of {asked} is met; it would be down to α = {alpha:.4}")
        }
        Some(alpha) => format!("a false-veto rate of {asked} would need α = {alpha:.4} on these rows"),
        None => format!("no α below 1 gives a false-veto rate of {asked} on these rows"),
    });
    for SourceRates { source, miss, false_veto } in &fit.sources {
        let shown =
            |rate: &Option<crate::calibration::Rate>| rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string());
        paper.line(&format!("  {source:<12} missed {}; falsely vetoed {}", shown(miss), shown(false_veto)));
    }
    let Coverage { splits, held, not_achievable, miss_rate_mean } = held;
    let tried = splits - not_achievable;
    paper.line(&format!(
        "on {tried} of {splits} random splits with limits, the other half's miss rate stayed within α on {held}; its mean is {}",
        miss_rate_mean.map_or_else(|| "none".to_owned(), |mean| format!("{mean:.3}"))
    ));
    paper.line(&format!("written to {}", out.display()));
    Ok(())
}
