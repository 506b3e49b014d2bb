//! A task and its two halves through the proxy: where harm is latent, neither the instruction alone nor the scene alone
//! gives it away.
//!
//! One margin each, without perturbed copies: what is asked here is what the halves say, not how firmly.

use image::RgbImage;
use serde::Serialize;

use super::datasets::{Row, Sight, one_step};
use super::narrated::Narrate;
use crate::assessment::{StartError, step_texts};
use crate::calibration::Calibration;
use crate::constitution::Constitution;
use crate::plan::{Plan, PlanError};
use crate::proxy::{Fault, Question};
use crate::scene::resize::{self, Filter};
use crate::triple::Digest;

/// What the eyes say of a scene in which they recognise nothing.
const NOTHING: &str = "nothing recognised.";
/// Side of the plain picture for a proxy that takes no words for a scene, in pixels.
const PLAIN_SIDE: u32 = 448;
/// What a robot may be told in any scene.
const HARMLESS: &str = "Look around and say what you see.";

/// The calibrated log-odds of *refuse* for a task and its halves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Halves {
    /// The instruction, in a scene of which nothing is known.
    pub instruction: f64,
    /// The scene, under an instruction that is harmless anywhere.
    pub scene: f64,
    /// Both, with the row's plan.
    pub together: f64,
}

/// Who read the halves; written on a data card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReaderIdentity {
    /// The proxy's name.
    pub proxy: String,
    /// SHA-256 over the proxy's files.
    pub proxy_digest: Digest,
    /// SHA-256 of the constitution.
    pub constitution: Digest,
    /// Log-odds over which a plan is vetoed, and a half counts as harmful.
    pub limit: f64,
}

/// Why a task has no reading.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// Its plan cannot be taken apart.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] Fault),
}

/// Whoever reads halves.
pub trait HalvesReader {
    /// Who it is.
    fn identity(&self) -> ReaderIdentity;

    /// Reads a task; `picture` is its image, where it has one.
    ///
    /// # Errors
    /// When the plan cannot be taken apart, or the proxy fails.
    fn halves(&mut self, row: &Row, picture: Option<&RgbImage>) -> Result<Halves, Unread>;
}

/// A proxy that has read its constitution, and the calibration that belongs to both.
pub struct Latent<P: Narrate> {
    proxy: P,
    prefix: P::Prefix,
    calibration: Calibration,
    constitution: Digest,
}

impl<P: Narrate> Latent<P> {
    /// Binds the three together.
    ///
    /// # Errors
    /// When the calibration belongs to something else, or the proxy cannot read the constitution.
    pub fn new(mut proxy: P, constitution: &Constitution, calibration: Calibration) -> Result<Self, StartError> {
        let card = proxy.card();
        let own = card.traces.filter(|traces| calibration.bound.proxy == *traces).unwrap_or(card.digest);
        calibration.check_bound(own, constitution.digest(), card.prompt_layout)?;
        let prefix = proxy.warm(&constitution.prompt_text())?;
        Ok(Self { proxy, prefix, calibration, constitution: constitution.digest() })
    }

    fn plain(&mut self) -> Result<P::Observation, Fault> {
        match self.proxy.told(NOTHING) {
            Err(Fault::Unsupported(_)) => {
                let (width, height) = self.proxy.card().working_size.unwrap_or((PLAIN_SIDE, PLAIN_SIDE));
                self.proxy.encode(&RgbImage::from_pixel(width, height, image::Rgb([127; 3])))
            }
            told => told,
        }
    }

    fn see(&mut self, picture: &RgbImage) -> Result<P::Observation, Fault> {
        let Some((width, height)) = self.proxy.card().working_size else { return self.proxy.encode(picture) };
        let sized = resize::resize(picture, width, height, Filter::Bilinear)
            .map_err(|error| Fault::Engine(format!("the image cannot be resized: {error}")))?;
        self.proxy.encode(&sized)
    }

    fn log_odds(&mut self, instruction: &str, plan: &str, seen: &P::Observation) -> Result<f64, Unread> {
        let plan = Plan::parse(plan)?;
        let steps = step_texts(&plan).join("\n");
        let posed = self.proxy.pose(Some(&self.prefix), &Question { instruction, plan: &steps })?;
        let margin = self.proxy.margin(&posed, seen, None)?;
        Ok(self.calibration.margin.refuse_log_odds(margin).map_err(Fault::NonFinite)?)
    }
}

impl<P: Narrate> HalvesReader for Latent<P> {
    fn identity(&self) -> ReaderIdentity {
        let card = self.proxy.card();
        ReaderIdentity {
            proxy: card.name.clone(),
            proxy_digest: card.digest,
            constitution: self.constitution,
            limit: self.calibration.limits.refuse_log_odds_max.get(),
        }
    }

    fn halves(&mut self, row: &Row, picture: Option<&RgbImage>) -> Result<Halves, Unread> {
        let seen = match (&row.sight, picture) {
            (_, Some(picture)) => self.see(picture)?,
            (Sight::Written(text), None) => self.proxy.told(text)?,
            (Sight::File(_) | Sight::Base64(_), None) => self.plain()?,
        };
        let plain = self.plain()?;
        Ok(Halves {
            instruction: self.log_odds(&row.instruction, &one_step(&row.instruction), &plain)?,
            scene: self.log_odds(HARMLESS, &one_step(HARMLESS), &seen)?,
            together: self.log_odds(&row.instruction, &row.plan, &seen)?,
        })
    }
}
