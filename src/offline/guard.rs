//! The guard as a judge of labelled rows: the very assessment that runs on the robot, without memory or deadline.

use std::time::Duration;

use image::RgbImage;

use super::bench::{Judge, JudgeIdentity, Judgement};
use super::datasets::{Row, Sight};
use super::narrated::{Narrate, Narrated, Told};
use crate::answer;
use crate::assessment::{Assessment, Assessor, Clock, Forgetful, StartError};
use crate::calibration::{Bound, Calibration, Fit, Limits, MarginScale, Rate};
use crate::constitution::Constitution;
use crate::decision::{Decision, Reason, Tier};
use crate::proxy::{Proxy as _, Unbounded};
use crate::signals::Feature;
use crate::signals::malleability::{Composite, CompositeError, Target, Term};
use crate::statistics::{Finite, Label, NotInRange, Positive, Share};
use crate::triple::{Digest, Triple};

/// Side of the picture that stands in where the observation is written, in pixels.
const PLACEHOLDER_SIDE: u32 = 32;

/// Why the guard cannot judge.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Proxy, constitution and calibration do not go together.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The picture that stands in for a written observation cannot be encoded.
    #[error("the placeholder cannot be encoded: {0}")]
    Placeholder(#[from] image::ImageError),
    /// A number of the open calibration is out of range.
    #[error(transparent)]
    Number(#[from] NotInRange),
    /// The composite of the open calibration does not stand.
    #[error(transparent)]
    Composite(#[from] CompositeError),
}

/// The guard over a data set.
pub struct Guard<'c, P: Narrate> {
    assessor: Assessor<Narrated<P>>,
    told: Told,
    placeholder: Vec<u8>,
    clock: &'c dyn Clock,
    calibration: Option<Digest>,
    tier: Tier,
}

impl<'c, P: Narrate> Guard<'c, P> {
    /// A guard with its calibration and that file's digest; with `None`, one that only measures. The tier says which
    /// signals it reads.
    ///
    /// # Errors
    /// When the parts do not belong together.
    pub fn new(
        proxy: P,
        constitution: Constitution,
        calibration: Option<(Calibration, Digest)>,
        tier: Tier,
        clock: &'c dyn Clock,
    ) -> Result<Self, GuardError> {
        let (proxy, told) = Narrated::new(proxy);
        let (calibration, digest) = match calibration {
            Some((calibration, digest)) => (calibration, Some(digest)),
            None => (open(&proxy, &constitution)?, None),
        };
        let assessor = Assessor::new(proxy, constitution, calibration, tier)?;
        let mut placeholder = std::io::Cursor::new(Vec::new());
        RgbImage::from_pixel(PLACEHOLDER_SIDE, PLACEHOLDER_SIDE, image::Rgb([127; 3]))
            .write_to(&mut placeholder, image::ImageFormat::Png)?;
        let placeholder = placeholder.into_inner();
        Ok(Self { assessor, told, placeholder, clock, calibration: digest, tier })
    }

    /// Who judges.
    #[must_use]
    pub fn identity(&self) -> JudgeIdentity {
        let card = self.assessor.card();
        JudgeIdentity::Guard {
            proxy: card.name.clone(),
            // What is fitted on traces belongs to what writes them.
            proxy_digest: card.traces.filter(|_| self.tier > Tier::MarginOnly).unwrap_or(card.digest),
            prompt_layout: card.prompt_layout,
            constitution: self.assessor.constitution().digest(),
            calibration: self.calibration,
            execution_provider: card.execution_provider.name().to_owned(),
        }
    }

    fn judgement(&self, assessment: &Assessment, told: bool) -> Judgement {
        let (verdict, reason, detail) = answer::verdict(&assessment.decision);
        let judged = counts_as(&assessment.decision);
        let mut judgement = Judgement {
            verdict: verdict.to_owned(),
            judged,
            reason: reason.map(str::to_owned),
            // Words only where something went wrong; a plain veto's would swell the file.
            answer: detail.filter(|_| judged.is_none()).map(str::to_owned),
            total_ms: assessment.evidence.timings.total.as_secs_f64() * 1e3,
            ..Judgement::default()
        };
        let Some(readings) = assessment.readings() else { return judgement };
        judgement.margin = Some(readings.margin.nats());
        judgement.refuse_log_odds = Some(readings.refuse_log_odds);
        judgement.reliance = readings.reliance;
        judgement.traced = readings.traced();
        if !told {
            judgement.spread = readings.spread;
            judgement.copies = assessment.evidence.copies.iter().map(|copy| copy.nats()).collect();
        }
        if self.calibration.is_some() {
            judgement.flip_share = readings.flip_share.filter(|_| !told);
            judgement.malleability = readings.malleability;
        } else if judgement.verdict == "permit" {
            // Nothing is held to a limit here: the sign of the margin is all there is to go by.
            let comply = readings.margin.nats() > 0.0;
            judgement.judged = Some(if comply { Label::Safe } else { Label::Unsafe });
        }
        judgement
    }
}

impl<P: Narrate> Judge for Guard<'_, P> {
    fn judge(&mut self, row: &Row, image: Option<Vec<u8>>) -> Judgement {
        let written = match &row.sight {
            Sight::Written(text) => Some(text.clone()),
            Sight::File(_) | Sight::Base64(_) => None,
        };
        let told = written.is_some();
        let image = image.unwrap_or_else(|| self.placeholder.clone());
        let triple = match Triple::new(row.instruction.clone(), image, row.plan.clone()) {
            Ok(triple) => triple,
            Err(error) => {
                return Judgement {
                    verdict: "error".to_owned(),
                    reason: Some(error.to_string()),
                    ..Judgement::default()
                };
            }
        };
        self.told.replace(written);
        let assessment = self.assessor.assess(&triple, &mut Forgetful, self.clock, &Unbounded);
        self.judgement(&assessment, told)
    }

    fn engine_time(&self) -> Option<Duration> {
        Some(self.assessor.proxy().inner().engine_time())
    }
}

/// What a decision counts as. A fault, a plan that cannot be read and a planner's own refusal are no verdict on the
/// row, and so count as wrong whatever the row is.
fn counts_as(decision: &Decision) -> Option<Label> {
    match decision {
        Decision::Permit(_) => Some(Label::Safe),
        Decision::Refusal(_) => None,
        Decision::Veto(veto) => match veto.reason {
            Reason::Constitution | Reason::Malleable | Reason::FlippedRefusal | Reason::Rule => Some(Label::Unsafe),
            Reason::InconclusivePlan
            | Reason::ImageInvalid
            | Reason::ImageStale
            | Reason::InputLimit
            | Reason::Deadline
            | Reason::Overload
            | Reason::ProxyFault
            | Reason::AuditUnavailable
            | Reason::NotReady
            | Reason::Internal => None,
        },
    }
}

/// What an assessor is given where there is no calibration yet: margins pass through and nothing is held to a limit.
/// It stays in this file, and no calibration file can hold it: its limit lies beyond what such a file may say.
fn open<P: Narrate>(proxy: &Narrated<P>, constitution: &Constitution) -> Result<Calibration, GuardError> {
    let card = proxy.card();
    let bound = Bound { proxy: card.digest, constitution: constitution.digest(), prompt_layout: card.prompt_layout };
    let zero = Finite::new(0.0)?;
    let limits = Limits {
        refuse_log_odds_max: Finite::new(f64::MAX)?,
        malleability_max: Share::ONE,
        flip_share_max: Share::ONE,
    };
    let term = Term { feature: Feature::MarginSize, mean: zero, scale: Positive::new(1.0)?, weight: zero };
    let composite = Composite::new(Target::WrongVerdict, vec![term], zero)?;
    let nothing = Rate::new(0, 1, Share::ZERO, Share::ONE);
    let nothing = nothing.ok_or(NotInRange { value: 0.0, range: "a rate" })?;
    let fit = Fit {
        miss_rate_max: Share::ONE,
        delta: None,
        false_veto_rate_asked: Share::ZERO,
        data: Digest::of(b""),
        miss: nothing,
        false_veto: nothing,
        sources: Vec::new(),
    };
    let margin = MarginScale { scale: Positive::new(1.0)?, bias: zero };
    Ok(Calibration::new(bound, margin, limits, composite, fit))
}
