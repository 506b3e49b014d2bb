//! A benchmark's report: `metrics.json` for programs, and one HTML page for people that needs nothing from elsewhere.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::bench::Run;
use super::metrics::{Cell, Figure, Metrics};

/// The metrics' file in the output folder.
pub const METRICS: &str = "metrics.json";
/// The page's file in the output folder.
pub const REPORT: &str = "report.html";
/// Side of a chart, in pixels.
const SIDE: f64 = 260.0;

/// Everything a report is made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What judged what.
    pub run: Run,
    /// The judge's figures.
    pub metrics: Metrics,
    /// The same answers as the benchmark's own evaluator reads them; only where answers are text.
    pub compatible: Option<Metrics>,
    /// The text-only baseline's figures, on the rows it scored.
    pub text_baseline: Option<Metrics>,
    /// Why there is no baseline.
    pub no_baseline: Option<String>,
    /// What the last run took; absent where all was done before.
    pub took: Option<Cost>,
}

/// What a run took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Rows judged.
    pub rows: u64,
    /// Seconds of wall time for judging them.
    pub wall_s: f64,
    /// Share of it inside the inference engine, 0 to 1.
    pub engine_share: Option<f64>,
    /// The process's largest resident memory, in mebibytes.
    pub memory_peak_mib: Option<f64>,
}

impl Report {
    /// Writes both files.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join(METRICS), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(folder.join(REPORT), self.page())
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = String::from(HEAD);
        let name = escaped(&self.run.data.name);
        put(&mut page, &format!("<h1>Steadfast on {name}</h1>"));
        if self.run.uncalibrated {
            put(
                &mut page,
                "<p class=warn>Uncalibrated: the verdicts are the sign of the raw margin. These figures describe the \
                 margin, not a guard.</p>",
            );
        }
        put(&mut page, &self.facts());
        put(&mut page, "<h2>Figures</h2>");
        put(&mut page, &self.figures());
        put(&mut page, "<h2>Verdicts</h2>");
        put(&mut page, &verdicts(&self.metrics));
        put(&mut page, "<h2>Curves</h2><div class=row>");
        put(&mut page, &self.curves());
        put(&mut page, "</div>");
        if !self.metrics.categories.is_empty() {
            put(&mut page, "<h2>Hazard categories</h2>");
            put(&mut page, &categories(&self.metrics));
        }
        if !self.metrics.grades.is_empty() {
            put(&mut page, "<h2>Severity × likelihood</h2>");
            put(&mut page, &grades(&self.metrics));
        }
        put(&mut page, "</body></html>");
        page
    }

    fn facts(&self) -> String {
        let mut lines = Vec::new();
        let data = &self.run.data;
        lines.push(("data", format!("{} ({})", data.name, data.digest)));
        lines.extend(data.part.map(|part| ("part of the split", format!("{part:?}").to_lowercase())));
        if let Ok(serde_json::Value::Object(judge)) = serde_json::to_value(&self.run.judge) {
            for (name, key) in [
                ("judge", "kind"),
                ("proxy", "proxy"),
                ("model", "model"),
                ("proxy digest", "proxy_digest"),
                ("constitution", "constitution"),
                ("calibration", "calibration"),
                ("execution provider", "execution_provider"),
            ] {
                lines.extend(judge.get(key).and_then(|value| value.as_str()).map(|value| (name, value.to_owned())));
            }
        }
        let m = &self.metrics;
        let rows =
            format!("{} rows, {} without a verdict; {} pairs; {} scenes", m.rows, m.without_verdict, m.pairs, m.scenes);
        lines.push(("counted", rows));
        lines.push(("intervals", format!("95 %, percentile bootstrap by scene, {} resamples", m.resamples)));
        if let Some(cost) = &self.took {
            let mut text = format!("{} rows in {:.1} s", cost.rows, cost.wall_s);
            if let Some(share) = cost.engine_share {
                put(&mut text, &format!(", {:.1} % of it in the inference engine", 100.0 * share));
            }
            if let Some(peak) = cost.memory_peak_mib {
                put(&mut text, &format!(", {peak:.0} MiB at most"));
            }
            lines.push(("last run", text));
        }
        let rows = lines.iter().map(|(name, value)| format!("<tr><th>{name}<td>{}", escaped(value)));
        format!("<table class=facts>{}</table>", rows.collect::<String>())
    }

    fn columns(&self) -> Vec<(&'static str, &Metrics)> {
        let judge = std::iter::once(("this judge", &self.metrics));
        let compatible = self.compatible.iter().map(|metrics| ("as the benchmark reads answers", metrics));
        let baseline = self.text_baseline.iter().map(|metrics| ("text only (words, no image)", metrics));
        judge.chain(compatible).chain(baseline).collect()
    }

    fn figures(&self) -> String {
        let columns = self.columns();
        let mut table = String::from("<table><tr><th>");
        for (name, metrics) in &columns {
            put(&mut table, &format!("<th>{name}<br><small>{} rows</small>", metrics.rows));
        }
        for (at, (name, _)) in self.metrics.figures().iter().enumerate() {
            put(&mut table, &format!("<tr><th>{}", name.replace('_', " ")));
            for (_, metrics) in &columns {
                let shown = metrics.figures().get(at).map(|(_, figure)| shown(figure)).unwrap_or_default();
                put(&mut table, &format!("<td>{shown}"));
            }
        }
        put(&mut table, "</table>");
        if let Some(why) = &self.no_baseline {
            put(&mut table, &format!("<p>No text-only baseline: {}.</p>", escaped(why)));
        }
        table
    }

    fn curves(&self) -> String {
        let baseline = self.text_baseline.as_ref();
        let lines = |of: fn(&Metrics) -> &[(f64, f64)]| {
            let mut lines = vec![("#0a6", of(&self.metrics))];
            lines.extend(baseline.map(|metrics| ("#999", of(metrics))));
            lines
        };
        let reliability: Vec<(f64, f64)> =
            self.metrics.reliability.iter().map(|bin| (bin.stated, bin.observed)).collect();
        [
            chart("ROC", "false-veto rate", "unsafe rows vetoed", &lines(|metrics| &metrics.roc_curve), true),
            chart("Precision and recall", "recall", "precision", &lines(|metrics| &metrics.pr_curve), false),
            chart("Reliability", "stated probability of unsafe", "observed", &[("#0a6", &reliability)], true),
        ]
        .concat()
    }
}

pub(super) const HEAD: &str = "<!doctype html><html lang=en><head><meta charset=utf-8><title>Steadfast benchmark</title><style>\
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:.5rem 0}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}\
th{font-weight:600;text-align:left}.facts td{text-align:left;font-family:ui-monospace,monospace;font-size:13px}\
.row{display:flex;flex-wrap:wrap;gap:1.5rem}small{color:#666;font-weight:400}.warn{background:#fe9;padding:.6rem 1rem}\
svg text{font:11px system-ui,sans-serif;fill:#444}p{color:#444}</style></head><body>";

/// Adds to a page.
pub(super) fn put(text: &mut String, more: &str) {
    // Writing to a string cannot fail.
    let written = text.write_str(more);
    debug_assert!(written.is_ok());
}

/// Text that cannot become markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn shown(figure: &Figure) -> String {
    match (figure.value, figure.low, figure.high) {
        (Some(value), Some(low), Some(high)) => format!("{value:.3} <small>{low:.3}–{high:.3}</small>"),
        (Some(value), _, _) => format!("{value:.3}"),
        (None, _, _) => "–".to_owned(),
    }
}

fn verdicts(metrics: &Metrics) -> String {
    let t = &metrics.confusion;
    let p = &metrics.flips;
    format!(
        "<div class=row><table><tr><th><th>judged safe<th>judged unsafe<th>no verdict\
         <tr><th>safe rows<td>{}<td>{}<td>{}<tr><th>unsafe rows<td>{}<td>{}<td>{}</table>\
         <table><tr><th>pairs<th>{}<tr><th>correct flip<td>{}<tr><th>wrong flip<td>{}<tr><th>only the safe row right<td>{}\
         <tr><th>only the unsafe row right<td>{}<tr><th>both wrong, no flip<td>{}</table></div>",
        t.safe_right,
        t.safe_wrong,
        t.safe_missing,
        t.unsafe_wrong,
        t.unsafe_right,
        t.unsafe_missing,
        p.pairs(),
        p.correct_flip,
        p.wrong_flip,
        p.only_safe_right,
        p.only_unsafe_right,
        p.both_wrong_no_flip
    )
}

fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

fn categories(metrics: &Metrics) -> String {
    let rows = metrics.categories.iter().map(|(name, Cell { rows, accuracy, safety, utility })| {
        let (accuracy, safety, utility) = (rate(*accuracy), rate(*safety), rate(*utility));
        format!("<tr><th>{}<td>{rows}<td>{accuracy}<td>{safety}<td>{utility}", escaped(name))
    });
    let rows: String = rows.collect();
    format!("<table><tr><th>category<th>rows<th>accuracy<th>safety<th>utility{rows}</table>")
}

/// Rows by severity, columns by likelihood; the shade is the risk R = S·L.
fn grades(metrics: &Metrics) -> String {
    let mut table = String::from("<table><tr><th>severity ↓ likelihood →<th>1<th>2<th>3<th>4<th>5");
    for (line, severity) in metrics.grades.iter().zip(1_u32..) {
        put(&mut table, &format!("<tr><th>{severity}"));
        for (cell, likelihood) in line.iter().zip(1_u32..) {
            let risk = severity * likelihood;
            let shade = 255 - 4 * risk;
            let text = if cell.rows == 0 {
                "–".to_owned()
            } else {
                format!("{} <small>{} rows, R {risk}</small>", rate(cell.accuracy), cell.rows)
            };
            put(&mut table, &format!("<td style=\"background:rgb(255,{shade},{shade})\">{text}"));
        }
    }
    table.push_str("</table><p>Share judged rightly; R is severity times likelihood.</p>");
    table
}

/// A square chart of lines in the unit square, as inline SVG.
pub(super) fn chart(title: &str, x: &str, y: &str, lines: &[(&str, &[(f64, f64)])], diagonal: bool) -> String {
    let (left, top) = (34.0, 20.0);
    let place = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", left + x * SIDE, top + (1.0 - y) * SIDE);
    let (width, height) = (left + SIDE + 10.0, top + SIDE + 36.0);
    let mut svg = format!(
        "<svg width={width} height={height} role=img aria-label=\"{title}\"><text x={left} y=12>{title}</text>\
         <rect x={left} y={top} width={SIDE} height={SIDE} fill=none stroke=\"#bbb\"/>"
    );
    if diagonal {
        let (from, to) = (place(&(0.0, 0.0)), place(&(1.0, 1.0)));
        put(&mut svg, &format!("<polyline points=\"{from} {to}\" stroke=\"#ddd\" fill=none />"));
    }
    for (colour, points) in lines {
        let points: Vec<String> = points.iter().map(place).collect();
        let points = points.join(" ");
        put(&mut svg, &format!("<polyline points=\"{points}\" stroke=\"{colour}\" stroke-width=2 fill=none />"));
    }
    for tick in [0.0, 0.5, 1.0] {
        let (across, down) = (left + tick * SIDE, top + (1.0 - tick) * SIDE + 4.0);
        put(&mut svg, &format!("<text x={across} y={} text-anchor=middle>{tick}</text>", top + SIDE + 14.0));
        put(&mut svg, &format!("<text x={} y={down} text-anchor=end>{tick}</text>", left - 4.0));
    }
    let (centre, middle) = (left + SIDE / 2.0, top + SIDE / 2.0);
    put(&mut svg, &format!("<text x={centre} y={} text-anchor=middle>{x}</text>", top + SIDE + 30.0));
    put(
        &mut svg,
        &format!("<text x=10 y={middle} text-anchor=middle transform=\"rotate(-90 10 {middle})\">{y}</text></svg>"),
    );
    svg
}
