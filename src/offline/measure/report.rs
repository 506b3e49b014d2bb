//! A measurement's page: one HTML file that needs nothing from elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use image::RgbImage;
use image::imageops::thumbnail;

use super::calls::Kept;
use super::characterise::{Character, Discriminated, ProximityGap, ToldApart};
use super::protocol::{StanceName, Turned, Unit};
use super::rates::{Comparison, Condition, ConditionRates, CountedShare, StratumRates};
use super::run::{CALLS, Figures};
use crate::offline::assess::{Score, Scoreboard};
use crate::offline::report::{HEAD, chart, escaped, put};
use crate::triple::Digest;

/// The page's file.
pub const PAGE: &str = "report.html";
/// Where pictures of turned refusals are kept.
const EXAMPLES: &str = "examples";
/// Most turned refusals kept as pictures, two files each.
const EXAMPLES_MAX: usize = 12;
/// Most turned refusals shown.
const SHOWN_MAX: usize = 8;
/// Width of a picture on the page, in pixels.
const PICTURE_PX: u32 = 320;
/// Longest answer shown, in characters.
const ANSWER_CHARACTERS_MAX: usize = 700;
/// Height of a bar of 100 %, in pixels.
const BAR_PX: f64 = 160.0;

/// One line of the review list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The task.
    pub uid: String,
    /// What the robot is told.
    pub instruction: String,
}

/// Everything the page is made of.
#[derive(Debug)]
pub struct Page<'a> {
    /// The figures.
    pub figures: &'a Figures,
    /// Refusals that turned, and the planner's words before and after.
    pub examples: Vec<Example>,
    /// How good the rankings were, where tasks were assessed.
    pub scoreboard: Option<&'a Scoreboard>,
    /// The top of the review list, where tasks were assessed.
    pub review: Vec<Review>,
}

/// A refusal that turned.
#[derive(Debug, Clone)]
pub struct Example {
    uid: String,
    instruction: String,
    object: String,
    condition: Condition,
    before: String,
    after: String,
    pictures: Option<[String; 2]>,
}

/// Keeps the pictures of a turned refusal, small, and only so many.
///
/// # Errors
/// When a file cannot be written.
pub fn keep(out: &Path, turned: &Turned<'_>) -> std::io::Result<()> {
    let folder = out.join(EXAMPLES);
    std::fs::create_dir_all(&folder)?;
    if std::fs::read_dir(&folder)?.count() >= 2 * EXAMPLES_MAX {
        return Ok(());
    }
    for (picture, which) in [(turned.clean, "clean"), (turned.edited, "edited")] {
        let height = (u64::from(picture.height()) * u64::from(PICTURE_PX)).div_ceil(u64::from(picture.width().max(1)));
        let small: RgbImage = thumbnail(picture, PICTURE_PX, u32::try_from(height).unwrap_or(PICTURE_PX).max(1));
        small.save(picture_path(out, turned.call, which)).map_err(std::io::Error::other)?;
    }
    Ok(())
}

fn picture_path(out: &Path, call: &Digest, which: &str) -> PathBuf {
    out.join(EXAMPLES).join(format!("{call}-{which}.png"))
}

/// The refusals of a unit that turned, those with pictures first where there is room for few.
pub fn examples(out: &Path, unit: &Unit, found: &mut Vec<Example>) {
    for (condition, trials) in &unit.trials {
        let turned = trials.iter().filter(|trial| trial.answered.stance == StanceName::Complied);
        for trial in turned {
            if found.len() >= SHOWN_MAX {
                return;
            }
            let call = &trial.answered.call;
            let picture = |which| {
                let bytes = std::fs::read(picture_path(out, call, which)).ok()?;
                Some(base64::engine::general_purpose::STANDARD.encode(bytes))
            };
            let pictures = picture("clean").zip(picture("edited")).map(|(clean, edited)| [clean, edited]);
            // A trial in a picture without its picture says less than the next one with it.
            if trial.region.is_some() && pictures.is_none() {
                continue;
            }
            found.push(Example {
                uid: unit.uid.clone(),
                instruction: unit.instruction.clone(),
                object: trial.object.clone(),
                condition: *condition,
                before: answer(out, &unit.clean.call),
                after: answer(out, call),
                pictures,
            });
        }
    }
}

/// The planner's words, as recorded.
fn answer(out: &Path, call: &Digest) -> String {
    let name = call.to_string();
    let (head, rest) = name.split_at(2);
    let text = std::fs::read(out.join(CALLS).join(head).join(format!("{rest}.json"))).ok();
    let kept: Option<Kept> = text.and_then(|text| serde_json::from_slice(&text).ok());
    kept.map(|kept| kept.answer.chars().take(ANSWER_CHARACTERS_MAX).collect()).unwrap_or_default()
}

impl Page<'_> {
    /// The page.
    #[must_use]
    pub fn text(&self) -> String {
        let mut page = HEAD.replace("Steadfast benchmark", "Steadfast measurement");
        let figures = self.figures;
        put(&mut page, &format!("<h1>Which refusals of {} bend</h1>", escaped(&figures.run.target.model)));
        put(&mut page, &self.facts());
        put(&mut page, "<h2>Rates</h2>");
        put(&mut page, &conditions(&figures.rates.conditions, figures.rates.control));
        put(&mut page, &differences(&figures.rates.differences));
        put(&mut page, "<h2>Distribution of malleability</h2>");
        let curve: Vec<(f64, f64)> = figures.distribution.iter().map(|(share, tasks)| (*tasks, *share)).collect();
        put(
            &mut page,
            &chart("Tasks sorted by malleability", "share of refused tasks", "mal(t)", &[("#a30", &curve)], false),
        );
        if figures.run.design.conditions.len() > 1 {
            put(&mut page, "<h2>Conditions by stratum</h2>");
            put(&mut page, &bars(&figures.rates.strata, &figures.run.design.conditions));
        }
        if let Some(character) = &figures.character {
            put(&mut page, "<h2>What sets those that bend apart</h2>");
            put(&mut page, &apart(character));
        }
        put(&mut page, "<h2>Refusals that turned</h2>");
        put(&mut page, &self.pairs());
        if let Some(board) = self.scoreboard {
            put(&mut page, "<h2>How well the signals find them</h2>");
            put(&mut page, &scoreboard(board));
        }
        if !self.review.is_empty() {
            put(&mut page, "<h2>Review first</h2><ol>");
            for Review { uid, instruction } in &self.review {
                put(&mut page, &format!("<li>{} <small>{}</small>", escaped(instruction), escaped(uid)));
            }
            put(&mut page, "</ol>");
        }
        put(&mut page, "</body></html>");
        page
    }

    fn facts(&self) -> String {
        let Figures { run, clean, rates, not_inserted, text_not_checked, .. } = self.figures;
        let design = &run.design;
        let mut lines = vec![
            ("tasks", format!("{} ({})", run.data.name, run.data.digest)),
            (
                "clean scene",
                format!("{} refused, {} complied, {} inconclusive", clean.refused, clean.complied, clean.inconclusive),
            ),
            ("constitution", run.constitution.to_string()),
            ("target sees", format!("{:?}", run.target.sees).to_lowercase()),
            (
                "layout",
                format!(
                    "{} objects a task, {} under random; {} clean re-queries; up to {} tasks a stratum; seed {}",
                    design.trials, design.random_trials, design.controls, design.per_stratum, design.seed
                ),
            ),
            (
                "left out",
                format!(
                    "{} re-queries and {} trials inconclusive",
                    rates.control_inconclusive,
                    rates.conditions.iter().map(|condition| condition.inconclusive).sum::<u32>()
                ),
            ),
        ];
        if *text_not_checked > 0 {
            let what = "not checked whether the object is text and whether readable text came in";
            lines.push(("text", format!("{what}, in {text_not_checked} trials in pictures")));
        } else if let Some(reader) = &run.ocr {
            lines.push(("text", format!("read in edited pictures by {reader}")));
        }
        if let Some(agreement) = &self.figures.agreement {
            let same = agreement.same.map_or_else(|| "–".to_owned(), |same| format!("{}/{}", same.events, same.of));
            lines.push(("second judge", format!("agrees on {same} answers; {} unread", agreement.unread)));
        }
        if !run.target.logit_bias.is_empty() {
            lines.push(("bias on the target's tokens", format!("{:?}", run.target.logit_bias)));
        }
        if !not_inserted.is_empty() {
            let reasons: Vec<String> = not_inserted.iter().map(|(reason, times)| format!("{reason} {times}")).collect();
            lines.push(("objects not put in", reasons.join(", ")));
        }
        let rows: String = lines.iter().map(|(name, value)| format!("<tr><th>{name}<td>{}", escaped(value))).collect();
        format!("<table class=facts>{rows}</table>")
    }

    fn pairs(&self) -> String {
        if self.examples.is_empty() {
            return "<p>None did.</p>".to_owned();
        }
        let mut text = String::new();
        for example in &self.examples {
            let Example { uid, instruction, object, condition, before, after, pictures } = example;
            put(
                &mut text,
                &format!(
                    "<h3>{} <small>{}, {}</small></h3><table><tr>",
                    escaped(instruction),
                    escaped(uid),
                    condition.name()
                ),
            );
            let [clean, edited] = match pictures {
                Some(pictures) => {
                    pictures.clone().map(|png| format!("<img src=\"data:image/png;base64,{png}\" alt=scene><br>"))
                }
                None => [const { String::new() }; 2],
            };
            put(
                &mut text,
                &format!(
                    "<td style=\"text-align:left;vertical-align:top\">{clean}<b>as it was</b><pre style=\"white-space:pre-wrap\">{}</pre>\
                 <td style=\"text-align:left;vertical-align:top\">{edited}<b>with {}</b><pre style=\"white-space:pre-wrap\">{}</pre></table>",
                    escaped(before),
                    escaped(object),
                    escaped(after)
                ),
            );
        }
        text
    }
}

fn counted(share: Option<CountedShare>) -> String {
    share.map_or_else(
        || "–".to_owned(),
        |CountedShare { events, of, share, low, high }| {
            format!("{:.1} % <small>{events}/{of}; {:.1}–{:.1}</small>", 100.0 * share, 100.0 * low, 100.0 * high)
        },
    )
}

fn compared(comparison: &Comparison) -> String {
    let test = comparison.test.map_or_else(
        || "every difference is the same".to_owned(),
        |test| format!("{:+.3} to {:+.3}, p = {:.2e}", test.low, test.high, test.p_greater),
    );
    format!("{:+.3} <small>{test}; {} tasks</small>", comparison.difference, comparison.tasks)
}

fn conditions(rates: &[ConditionRates], control: Option<CountedShare>) -> String {
    let mut table = String::from(
        "<table><tr><th>condition<th>tasks<th>malleable tasks<th>trials that complied<th>mean mal(t)<th>over the clean re-query",
    );
    for rate in rates {
        let mean = rate.mean_malleability.map_or_else(|| "–".to_owned(), |mean| format!("{mean:.3}"));
        let over = rate.over_control.as_ref().map_or_else(|| "–".to_owned(), compared);
        put(
            &mut table,
            &format!(
                "<tr><th>{}<td>{}<td>{}<td>{}<td>{mean}<td>{over}",
                rate.condition.name(),
                rate.tasks,
                counted(rate.malleable),
                counted(rate.trials)
            ),
        );
    }
    put(&mut table, &format!("<tr><th>clean re-query<td><td><td>{}<td><td></table>", counted(control)));
    table.push_str("<p>Intervals are 95 %: Wilson's for shares, Student's t for paired differences, one-sided p.</p>");
    table
}

fn differences(differences: &[(Condition, Condition, Comparison)]) -> String {
    let lines = differences.iter().map(|(first, second, comparison)| {
        format!("<p>{} over {}: {}</p>", first.name(), second.name(), compared(comparison))
    });
    lines.collect()
}

/// Mean mal(t) of the drawn tasks, a group of bars a stratum.
fn bars(strata: &[StratumRates], conditions: &[Condition]) -> String {
    let colours: BTreeMap<Condition, &str> = conditions.iter().copied().zip(["#a30", "#37a", "#999"]).collect();
    let mut svg = format!("<svg width=640 height={} role=img aria-label=\"mean mal(t) by stratum\">", BAR_PX + 60.0);
    let mut x = 20.0_f64;
    for stratum in strata {
        let name = format!("{:?}", stratum.stratum).to_lowercase();
        put(
            &mut svg,
            &format!("<text x={x} y={}>{name}: {} of {} tasks</text>", BAR_PX + 40.0, stratum.drawn, stratum.tasks),
        );
        for condition in conditions {
            let Some(mean) = stratum.mean_malleability.get(condition) else { continue };
            let (height, colour) = (mean * BAR_PX, colours.get(condition).copied().unwrap_or("#000"));
            put(
                &mut svg,
                &format!(
                    "<rect x={x} y={:.1} width=34 height={height:.1} fill=\"{colour}\"/><text x={x} y={:.1}>{mean:.2}</text>",
                    BAR_PX + 20.0 - height,
                    BAR_PX + 16.0 - height
                ),
            );
            x += 40.0;
        }
        x = ((x / 155.0).floor() + 1.0) * 155.0 + 20.0;
    }
    svg.push_str("</svg><p>");
    for (condition, colour) in colours {
        put(&mut svg, &format!("<span style=\"color:{colour}\">■</span> {} ", condition.name()));
    }
    svg.push_str("</p>");
    svg
}

/// The zero group against the high one.
fn apart(character: &Character) -> String {
    let mut text = format!(
        "<p>{} tasks never bend, {} bend in more than a quarter of the trials.</p>",
        character.zero, character.high
    );
    if let Some(ProximityGap { high, zero, difference, low, upper, p }) = character.proximity {
        put(
            &mut text,
            &format!(
                "<p>Nearness of the instruction to the nearest rule, by words: {high:.3} where they bend, {zero:.3} where \
                 they do not; difference {difference:+.3} <small>{low:+.3} to {upper:+.3} (95 %, Welch), p = {p:.2e}</small></p>"
            ),
        );
    }
    let Some(ToldApart { model, each, by }) = &character.told_apart else {
        text.push_str("<p>No model was asked to tell the two apart.</p>");
        return text;
    };
    put(
        &mut text,
        &format!(
            "<p>{} was shown examples of both under opaque letters, and {each} tasks of each one by one. Half is chance.</p>\
             <table><tr><th>shown<th>right<th>no letter named<th>p, one-sided",
            escaped(&model.model)
        ),
    );
    for Discriminated { shown, right, unread, p_better } in by {
        put(&mut text, &format!("<tr><th>{}<td>{}<td>{unread}<td>{p_better:.2e}", shown.name(), counted(*right)));
    }
    text.push_str("</table>");
    text
}

fn scoreboard(board: &Scoreboard) -> String {
    let mut table = String::from(
        "<table><tr><th>signal<th>ROC-AUC<th>PR-AUC<th>ρ<th>ρ, trace length held<th>precision@50<th>precision@100<th>lift@50<th>lift@100",
    );
    let mut line = |name: &str, score: &Score| {
        let cells = score
            .figures()
            .map(|figure| figure.map_or_else(|| "<td>–".to_owned(), |figure| format!("<td>{figure:.3}")));
        put(&mut table, &format!("<tr><th>{}{}", escaped(name), cells.concat()));
    };
    for (name, score) in &board.signals {
        line(name, score);
    }
    if let Some(a5) = &board.a5 {
        line("a5, fitted here, 5 × 5-fold", &a5.held_out);
    }
    let prevalence = 100.0 * crate::offline::assess::prevalence(board);
    put(
        &mut table,
        &format!("</table><p>{} of {} tasks are malleable ({prevalence:.1} %).", board.malleable, board.tasks),
    );
    if let Some(a5) = &board.a5 {
        let names: Vec<&str> = a5.features.iter().map(|feature| feature.name()).collect();
        let deviation = a5.roc_auc_deviation.map_or_else(String::new, |deviation| {
            format!("; its ROC-AUC has a standard deviation of {deviation:.3} over the repeats")
        });
        put(&mut table, &format!(" A5 is fitted over {}{deviation}.", escaped(&names.join(", "))));
    }
    if let Some(why) = &board.no_a5 {
        put(&mut table, &format!(" No A5 could be fitted: {}.", escaped(why)));
    }
    table.push_str("</p>");
    table
}
