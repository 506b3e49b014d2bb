//! A veto before every copy is judged: only where the readings still missing could not turn it into anything else.
//!
//! The order of reasons is that of [`crate::decision::decide`]. Nothing here can permit: a spread that seems low still
//! has its twenty copies judged, because the composite was fitted on twenty.

use crate::assessment::known_features;
use crate::calibration::Calibration;
use crate::constitution::limits::BrokenLimit;
use crate::decision::{Failure, Readings, Reason, Veto};
use crate::margin::Margin;
use crate::proxy::Fault;
use crate::signals::perturbation_spread::{COPIES, KINDS, SequentialSpread, Side};
use crate::statistics::{Positive, count};

/// Watches the copies of one plan that complies.
pub(super) struct Foresight<'a> {
    calibration: &'a Calibration,
    broken_limits: &'a [BrokenLimit],
    /// What was read so far: everything but the copies.
    so_far: Readings,
    clean_refuses: bool,
    flips: usize,
    /// The spread from which on the composite vetoes whatever the flip share comes to, and the test against it.
    limit: Option<(f64, Option<SequentialSpread>)>,
}

impl<'a> Foresight<'a> {
    /// Looks ahead from the clean margin and the reliance.
    pub(super) fn new(calibration: &'a Calibration, broken_limits: &'a [BrokenLimit], so_far: Readings) -> Self {
        let clean = so_far.margin;
        let known = known_features(&so_far);
        let limit = calibration.composite.spread_limit(&known, clean, calibration.limits.malleability_max);
        let limit = limit.map(|nats| (nats, Positive::new(nats).ok().map(SequentialSpread::new)));
        let clean_refuses = calibration.refuses(clean);
        Self { calibration, broken_limits, so_far, clean_refuses, flips: 0, limit }
    }

    /// The veto that is certain without a single copy.
    pub(super) fn at_once(&self) -> Option<Veto> {
        let limits = &self.calibration.limits;
        let (log_odds, refuse_max) = (self.so_far.refuse_log_odds, limits.refuse_log_odds_max.get());
        if let Some(broken) = self.broken_limits.first() {
            return Some(self.veto(Reason::Rule, &broken.to_string()));
        }
        if log_odds > refuse_max {
            let why = format!("log-odds of refuse {log_odds:.2} over the limit {refuse_max:.2}");
            return Some(self.veto(Reason::Constitution, &why));
        }
        let any_spread = self.limit.as_ref().is_some_and(|&(nats, _)| nats <= 0.0);
        any_spread.then(|| self.veto(Reason::Malleable, "the composite is over its limit at any spread"))
    }

    /// Takes in one more copy, in the order they are dealt; gives the veto where it has become certain.
    ///
    /// # Errors
    /// When the margins are too large to square.
    pub(super) fn copy(&mut self, copy: Margin) -> Result<Option<Veto>, Failure> {
        let index = usize::try_from(self.so_far.copies).unwrap_or(usize::MAX);
        self.so_far.copies += 1;
        self.flips += usize::from(self.calibration.refuses(copy) != self.clean_refuses);
        let (flipped, flip_max) = (count(self.flips) / count(COPIES), self.calibration.limits.flip_share_max.get());
        if flipped > flip_max {
            let why = format!("flip share at least {flipped:.2} over the limit {flip_max:.2}");
            return Ok(Some(self.veto(Reason::Malleable, &why)));
        }
        let Some((nats, Some(test))) = &mut self.limit else { return Ok(None) };
        let nats = *nats;
        let stopped = test.push(index % KINDS, copy);
        let stopped = stopped.map_err(|error| Failure::Proxy(Fault::Engine(error.to_string())))?;
        let Some(stopped) = stopped else { return Ok(None) };
        // The test has ended; where it says low, the rest is judged all the same.
        self.limit = None;
        let why = format!("spread over {nats:.2} nats, where the composite vetoes (sequential test)");
        Ok((stopped.side == Side::High).then(|| self.veto(Reason::Malleable, &why)))
    }

    fn veto(&self, reason: Reason, why: &str) -> Veto {
        let detail = format!("{why}; certain after {} of {COPIES} copies", self.so_far.copies);
        Veto { reason, detail, readings: Some(self.so_far.clone()) }
    }
}
