//! `steadfast permit`: whether a signed permit is good for these very bytes, here and now; and a new key to sign with.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;

use super::check::{read_bounded, read_plan};
use super::{Ink, Outcome, Paper, live, settings};
use crate::permit::keys::{PUBLIC_FILE, PublicKeys};
use crate::permit::verify::{Clock, Expectation, Parts, Verifier};
use crate::permit::{Moment, PERMIT_BYTES_MAX};
use crate::triple::IMAGE_BYTES_MAX;

#[derive(Debug, Subcommand)]
pub(super) enum Permit {
    /// Hold a permit to a triple, an audience and the clocks; exit 3 when it is not good.
    ///
    /// Nothing is spent: single use is kept by the executor's own nonce store, which this command does not touch.
    Verify {
        /// The permit, as `check --permit-out` writes it.
        #[arg(long, value_name = "FILE")]
        permit: PathBuf,
        /// Who is to execute the plan.
        #[arg(long, value_name = "NAME")]
        audience: String,
        /// The image, byte for byte as it was judged.
        #[arg(long, value_name = "FILE")]
        image: PathBuf,
        /// What the robot was told.
        #[arg(long, value_name = "TEXT")]
        instruction: String,
        /// The plan that is about to run: the text, @FILE, or - for standard input.
        #[arg(long, value_name = "TEXT|@FILE|-", allow_hyphen_values = true)]
        plan: String,
        /// The guard's public keys, where they are not the configured ones.
        #[arg(long, value_name = "FILE")]
        keys: Option<PathBuf>,
        /// The guard that must have signed, where it is not the configured one.
        #[arg(long, value_name = "NAME")]
        issuer: Option<String>,
    },
    /// Have the running guard take a new signing key into use; needs membership in steadfast-admin.
    ///
    /// Permits that the old key signed stay good for permit.key_overlap_s; the log stays verifiable for good. Verifiers
    /// need the new public key: `steadfast status` shows it, and public.json beside the signing key holds it.
    Rotate {
        #[command(flatten)]
        bus: live::Bus,
    },
}

impl Permit {
    pub(super) fn run(self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let (permit, audience, image, instruction, plan, keys, issuer) = match self {
            Self::Rotate { bus } => return bus.rotate_key(config, paper),
            Self::Verify { permit, audience, image, instruction, plan, keys, issuer } => {
                (permit, audience, image, instruction, plan, keys, issuer)
            }
        };
        let (keys, issuer) = match (keys, issuer) {
            (Some(keys), Some(issuer)) => (keys, issuer),
            (keys, issuer) => {
                let settings = settings(config)?;
                (keys.unwrap_or_else(|| settings.keys.join(PUBLIC_FILE)), issuer.unwrap_or(settings.issuer))
            }
        };
        let token = read_bounded(&permit, PERMIT_BYTES_MAX)?;
        let (image, plan) = (read_bounded(&image, IMAGE_BYTES_MAX)?, read_plan(&plan)?);
        let parts = Parts { instruction: instruction.as_bytes(), image: &image, plan: plan.as_bytes() };
        let clock = Clock::SameMachine(Moment::now().context("the clocks cannot be read")?);
        let expectation = Expectation::new(&issuer, &audience, clock);
        match Verifier::new(PublicKeys::read(&keys)?).examine(&token, parts, &expectation) {
            Ok(claims) => {
                if paper.json {
                    paper.value(&json!({
                        "good": true,
                        "check_id": claims.check_id,
                        "audience": claims.audience,
                        "expires_unix_s": claims.expires_unix_s,
                        "triple": claims.digests.triple,
                    }))?;
                } else {
                    let (good, check) = (paper.ink(Ink::Green, "GOOD"), &claims.check_id);
                    paper.line(&format!("{good}  check {check}, for {audience}, until {}", claims.expires_unix_s));
                }
                Ok(Outcome::Done)
            }
            Err(rejection) => {
                if paper.json {
                    paper.value(&json!({"good": false, "why": rejection.to_string()}))?;
                } else {
                    paper.line(&format!("{}: {rejection}", paper.ink(Ink::Red, "NOT GOOD")));
                }
                Ok(Outcome::Veto)
            }
        }
    }
}
