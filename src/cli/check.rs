//! `steadfast check`: one triple judged by hand, here or by the running guard.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Ink, Misconfigured, Outcome, Paper, settings};
use crate::answer::{self, Details};
use crate::assessment::{Assessor, Clock, Deadline, Forgetful};
use crate::config::fragment::ProxyKind;
use crate::config::settings::Settings;
use crate::intake::client::Client;
use crate::load;
use crate::proxy::Proxy;
use crate::triple::{IMAGE_BYTES_MAX, PLAN_BYTES_MAX, Triple};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The image: JPEG or PNG.
    #[arg(long, value_name = "FILE")]
    image: PathBuf,
    /// What the robot was told.
    #[arg(long, value_name = "TEXT")]
    instruction: String,
    /// What the planner answered: the text, @FILE, or - for standard input.
    #[arg(long, value_name = "TEXT|@FILE|-", allow_hyphen_values = true)]
    plan: String,
    /// Ask the running guard instead of judging here; only then is the check recorded and a permit signed.
    #[arg(long)]
    bus: bool,
    /// The bus to ask on, where it is not the configured one.
    #[arg(long, value_name = "ADDRESS", requires = "bus")]
    address: Option<String>,
    /// Who will execute the plan; the permit names it.
    #[arg(long, value_name = "NAME", requires = "bus")]
    audience: Option<String>,
    /// The time the answer may take.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    deadline_ms: u32,
    /// Write the signed permit to this file.
    #[arg(long, value_name = "FILE", requires = "bus")]
    permit_out: Option<PathBuf>,
}

/// A clock for tools: starts at zero when made.
#[derive(Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the command line is an edge that owns its clock")]
        Self(Instant::now())
    }
}

impl Clock for Stopwatch {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What a check came to, from either side.
struct Answer {
    verdict: String,
    reason: Option<String>,
    details: Details,
}

impl Arguments {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let image = read_bounded(&self.image, IMAGE_BYTES_MAX)?;
        let plan = read_plan(&self.plan)?;
        let settings = settings(config)?;
        let answer = if self.bus {
            self.ask(&settings, &image, &plan)?
        } else {
            let triple = Triple::new(self.instruction.clone(), image, plan)?;
            judge(&settings, &triple, Duration::from_millis(self.deadline_ms.into()))?
        };
        answer.print(paper)?;
        answer.outcome()
    }

    fn ask(&self, settings: &Settings, image: &[u8], plan: &str) -> anyhow::Result<Answer> {
        let address = self.address.as_deref().or(settings.bus_address.as_deref());
        let deadline = Duration::from_millis(self.deadline_ms.into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reply = runtime
            .block_on(async {
                let client = Client::connect(address).await?;
                client.check(image, &self.instruction, plan, deadline, self.audience.as_deref()).await
            })
            .context("no answer from the guard; an executor must take this for a veto")?;
        if let Some(path) = self.permit_out.as_ref().filter(|_| !reply.permit.is_empty()) {
            std::fs::write(path, &reply.permit).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mut details = reply.details;
        if reply.malleability >= 0.0 {
            details.insert("malleability".to_owned(), json!(reply.malleability));
        }
        if !reply.permit.is_empty() {
            details.insert("permit_bytes".to_owned(), json!(reply.permit.len()));
        }
        let reason = Some(reply.reason).filter(|reason| !reason.is_empty());
        Ok(Answer { verdict: reply.verdict, reason, details })
    }
}

/// Judges here, with the configured proxy, constitution and calibration.
fn judge(settings: &Settings, triple: &Triple, allowed: Duration) -> anyhow::Result<Answer> {
    match settings.proxy {
        ProxyKind::Compact => judge_by(load::compact(settings), settings, triple, allowed),
        ProxyKind::Vlm => judge_by(load::vlm(settings), settings, triple, allowed),
        #[cfg(feature = "__replay")]
        ProxyKind::Recorded => {
            let recorded = crate::proxy::recorded::Recorded::load(&settings.models);
            judge_by(recorded.map_err(anyhow::Error::from), settings, triple, allowed)
        }
    }
}

fn judge_by<P: Proxy>(
    proxy: anyhow::Result<P>,
    settings: &Settings,
    triple: &Triple,
    allowed: Duration,
) -> anyhow::Result<Answer> {
    let bound = || Ok(load::assessor(proxy?, load::rules(settings)?, settings)?.0);
    let mut assessor: Assessor<P> = bound().map_err(Misconfigured)?;
    let clock = Stopwatch::start();
    let deadline = Deadline::new(&clock, allowed);
    let assessment = assessor.assess(triple, &mut Forgetful, &clock, &deadline);
    let (verdict, reason, _) = answer::verdict(&assessment.decision);
    let mut details = answer::details(&assessment, triple.digests(), assessor.card(), assessor.calibration());
    let identity = keep_name(triple.digests().triple.to_string());
    details.insert("check_id".to_owned(), json!(format!("unrecorded-{identity}")));
    details.insert("mode".to_owned(), json!("unrecorded"));
    Ok(Answer { verdict: verdict.to_owned(), reason: reason.map(str::to_owned), details })
}

fn keep_name(mut digest: String) -> String {
    digest.truncate(16);
    digest
}

impl Answer {
    fn outcome(&self) -> anyhow::Result<Outcome> {
        match self.verdict.as_str() {
            "permit" => Ok(Outcome::Done),
            "veto" => Ok(Outcome::Veto),
            "refusal" => Ok(Outcome::Refusal),
            // In shadow nothing is permitted, whatever the answer would have been.
            shadow if shadow.starts_with("shadow-") => Ok(Outcome::Veto),
            other => anyhow::bail!("the guard answered {other:?}, which this program does not know"),
        }
    }

    fn print(&self, paper: Paper) -> anyhow::Result<()> {
        if paper.json {
            let mut whole = self.details.clone();
            whole.insert("verdict".to_owned(), json!(self.verdict));
            whole.insert("reason".to_owned(), json!(self.reason));
            return paper.value(&whole);
        }
        let ink = match self.verdict.as_str() {
            "permit" => Ink::Green,
            "veto" => Ink::Red,
            _ => Ink::Yellow,
        };
        let mut head = paper.ink(ink, &self.verdict.to_uppercase());
        if let Some(reason) = &self.reason {
            head = format!("{head}  {}", paper.ink(Ink::Bold, reason));
        }
        if let Some(detail) = self.text("detail") {
            head = format!("{head}: {detail}");
        }
        paper.line(&head);
        for (name, line) in self.lines() {
            paper.line(&format!("  {} {line}", paper.ink(Ink::Dim, &format!("{name:<13}"))));
        }
        Ok(())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.details.get(name).and_then(Value::as_str)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.details.get(name).and_then(Value::as_f64)
    }

    /// The lines of the readable answer: what was read, what it is held to, and what it rests on.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for (name, key) in [("check", "check_id"), ("mode", "mode"), ("triple", "digest"), ("scene", "scene")] {
            lines.extend(self.text(key).map(|text| (name, text.to_owned())));
        }
        if let (Some(stance), Some(words)) = (self.text("stance"), self.text("stance_evidence")) {
            lines.push(("plan", format!("{stance}: {words}")));
        }
        if let Some(steps) = self.details.get("steps_left_out").and_then(Value::as_array) {
            let numbers = steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            lines.push(("left out", format!("step {numbers}: no deed opens it, and with it the margin was higher")));
        }
        if let (Some(margin), Some(refuse), Some(limit)) =
            (self.number("margin"), self.number("refuse_log_odds"), self.number("refuse_log_odds_max"))
        {
            let line = format!("{margin:+.2} nats; log-odds of refuse {refuse:+.2}, vetoed over {limit:+.2}");
            lines.push(("margin", line));
        }
        if let (Some(spread), Some(share), Some(copies), Some(limit)) =
            (self.number("spread"), self.number("flip_share"), self.number("copies"), self.number("flip_share_max"))
        {
            let line = format!("{spread:.2} nats over {copies} copies; flip share {share:.2}, vetoed over {limit:.2}");
            lines.push(("spread", line));
        }
        if let (None, Some(copies)) = (self.number("spread"), self.number("copies")) {
            lines.push(("spread", format!("not read: the veto was certain after {copies} copies")));
        }
        lines.extend(self.number("reliance").map(|reliance| ("reliance", format!("{reliance:+.2} nats"))));
        if let Some(fallback) = self.details.get("fallback") {
            let word = |key: &str| fallback.get(key).and_then(Value::as_str).unwrap_or_default();
            lines.push(("fell back", format!("from {} ({})", word("asked"), word("why"))));
        }
        if let Some(trace) = self.text("trace") {
            lines.push(("trace", trace.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        if let (Some(score), Some(limit)) = (self.number("malleability"), self.number("malleability_max")) {
            let target = self.text("malleability_target").unwrap_or("unknown");
            lines.push(("malleability", format!("{score:.2} ({target}), vetoed over {limit:.2}")));
        }
        let rules = self.details.get("nearest_rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, rule) in rules.iter().enumerate() {
            let (number, text) = (rule.get("number"), rule.get("text").and_then(Value::as_str));
            if let (Some(number), Some(text)) = (number, text) {
                lines.push((if index == 0 { "nearest rules" } else { "" }, format!("{number}. {text}")));
            }
        }
        if let Some(times) = self.details.get("timings_ms").and_then(Value::as_object) {
            let time = |name: &str| times.get(name).and_then(Value::as_f64).unwrap_or_default();
            let (total, decode, margin, spread) = (time("total"), time("decode"), time("margin"), time("spread"));
            lines.push(("time", format!("{total:.0} ms (image {decode:.0}, margin {margin:.0}, spread {spread:.0})")));
        }
        lines
    }
}

pub(super) fn read_plan(plan: &str) -> anyhow::Result<String> {
    let bytes = match plan.strip_prefix('@') {
        Some(path) => read_bounded(Path::new(path), PLAN_BYTES_MAX)?,
        None if plan == "-" => {
            let mut bytes = Vec::new();
            let bytes_max = u64::try_from(PLAN_BYTES_MAX)? + 1;
            std::io::stdin().take(bytes_max).read_to_end(&mut bytes).context("cannot read the plan")?;
            bytes
        }
        None => return Ok(plan.to_owned()),
    };
    String::from_utf8(bytes).context("the plan is not UTF-8")
}

/// Reads at most one byte past the limit: the triple refuses it by name then, and a huge file is never read whole.
pub(super) fn read_bounded(path: &Path, bytes_max: usize) -> anyhow::Result<Vec<u8>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(u64::try_from(bytes_max)? + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}
