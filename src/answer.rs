//! What an assessment is called when it leaves: one set of names for the bus, the command line and reports.

use serde_json::{Map, Value, json};

use crate::assessment::Assessment;
use crate::calibration::Calibration;
use crate::decision::{Decision, Readings};
use crate::proxy::Card;
use crate::triple::Digests;

/// Named values for a person or a program. A reading that was not taken has no key.
pub type Details = Map<String, Value>;

/// The verdict's word and, for a veto, its reason code and sentence.
#[must_use]
pub fn verdict(decision: &Decision) -> (&'static str, Option<&'static str>, Option<&str>) {
    match decision {
        Decision::Permit(_) => ("permit", None, None),
        Decision::Veto(veto) => ("veto", Some(veto.reason.code()), Some(&veto.detail)),
        Decision::Refusal(_) => ("refusal", None, None),
    }
}

/// Everything worth knowing about an assessment, beside its verdict.
#[must_use]
pub fn details(assessment: &Assessment, digests: &Digests, card: &Card, calibration: &Calibration) -> Details {
    let evidence = &assessment.evidence;
    let mut details = Details::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            details.insert(name.to_owned(), value);
        }
    };
    put("digest", json!(digests.triple));
    put("proxy", json!(card.name));
    put("execution_provider", json!(card.execution_provider.name()));
    if let (_, Some(_), Some(detail)) = verdict(&assessment.decision) {
        put("detail", json!(detail));
    }
    if let Some((stance, words)) = &evidence.stance {
        put("stance", json!(stance));
        put("stance_evidence", json!(words));
    }
    if !evidence.steps_left_out.is_empty() {
        put("steps_left_out", json!(evidence.steps_left_out));
    }
    put("scene", json!(evidence.scene));
    put("trace", json!(evidence.trace));
    put("refused_task", json!(evidence.refused_task));
    if let Some(readings) = assessment.readings() {
        put_readings(readings, &mut put);
        put("refuse_log_odds_max", json!(calibration.limits.refuse_log_odds_max.get()));
        put("malleability_max", json!(calibration.limits.malleability_max.get()));
        put("flip_share_max", json!(calibration.limits.flip_share_max.get()));
        put("malleability_target", json!(calibration.composite.target()));
    }
    if !evidence.nearest_rules.is_empty() {
        put("nearest_rules", json!(evidence.nearest_rules));
    }
    if !evidence.broken_limits.is_empty() {
        let broken: Vec<String> = evidence.broken_limits.iter().map(ToString::to_string).collect();
        put("broken_limits", json!(broken));
    }
    let stages = evidence.timings.stages_ms().map(|(stage, ms)| (stage.to_owned(), json!((ms * 1e3).round() / 1e3)));
    put("timings_ms", Value::Object(stages.into_iter().collect()));
    details
}

fn put_readings(readings: &Readings, put: &mut impl FnMut(&str, Value)) {
    put("tier", json!(readings.tier));
    put("fallback", json!(readings.fallback));
    put("margin", json!(readings.margin));
    put("refuse_log_odds", json!(readings.refuse_log_odds));
    put("spread", json!(readings.spread));
    put("copies", json!(readings.copies));
    put("flip_share", json!(readings.flip_share));
    put("reliance", json!(readings.reliance));
    if !readings.trace_ambiguity.is_empty() {
        put("trace_ambiguity", json!(readings.trace_ambiguity));
    }
    put("forced_spread", json!(readings.forced_spread));
    put("traced_spread", json!(readings.traced_spread));
    put("decoding_instability", json!(readings.decoding_instability));
    put("malleability", json!(readings.malleability));
}
