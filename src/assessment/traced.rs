//! What the proxy's own reasoning adds to an assessment: A1 from one clean trace, the spread of the verdicts that
//! follow a trace, and A4 over sampled traces.
//!
//! The margins that limits are held to are always those without a trace: they are complete before the first trace is
//! begun. A deadline or a context that does not hold the traces then costs the readings made from them and nothing else,
//! and the tier that was reached is named with the one that was asked for.

use std::time::Duration;

use crate::assessment::{Assessor, Clock};
use crate::decision::{Failure, Fallback, Shortfall, Tier};
use crate::margin::Margin;
use crate::proxy::{Budget, Fault, Proxy, Sampling, Trace};
use crate::signals::decoding_instability::{TEMPERATURE, TRACES, decoding_instability};
use crate::signals::trace_ambiguity::Lexicon;
use crate::signals::{Feature, Features};
use crate::statistics::{Undefined, standard_deviation};

/// Time kept back from the traces for deciding, writing down and signing, whatever was measured.
const KEPT_BACK_MIN: Duration = Duration::from_millis(100);

/// The lowest tier that reads a feature.
pub(super) const fn tier_of(feature: Feature) -> Tier {
    match feature {
        Feature::ObjectAmbiguity
        | Feature::Conditional
        | Feature::Hedge
        | Feature::Contrast
        | Feature::SafetyMention
        | Feature::TraceWords
        | Feature::ForcedSpread => Tier::TraceOnce,
        Feature::TracedSpread | Feature::DecodingInstability => Tier::Full,
        Feature::PerturbationSpread
        | Feature::RelativeSpread
        | Feature::FlipShare
        | Feature::ConstitutionReliance
        | Feature::MarginSize => Tier::MarginOnly,
    }
}

/// What the proxy is asked about: the question as posed, the clean image and its copies as encoded.
pub(super) struct Subject<'a, P: Proxy> {
    pub(super) posed: &'a P::Posed,
    pub(super) seen: &'a P::Observation,
    pub(super) copies: &'a [P::Observation],
    pub(super) seed: u64,
}

/// What the traces said.
#[derive(Debug, Default)]
pub(super) struct Traced {
    /// The clean trace.
    pub(super) trace: Option<Trace>,
    /// A1's densities and length, in the order of the lexicon.
    pub(super) ambiguity: Vec<f64>,
    /// Standard deviation over the copies of the margins that follow the clean image's trace, in nats.
    pub(super) forced_spread: Option<f64>,
    /// The same with each copy's own trace, in nats.
    pub(super) traced_spread: Option<f64>,
    /// A4, in nats.
    pub(super) instability: Option<f64>,
    /// Where it stopped short of the tier asked for.
    pub(super) fallback: Option<Fallback>,
    /// The same readings by name.
    pub(super) features: Features,
}

/// Why no more is read.
enum Stop {
    /// The tier cannot be reached; what was read before stands.
    Short(Shortfall),
    /// The check fails.
    Failed(Failure),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        if fault == Fault::DeadlinePassed {
            Self::Short(Shortfall::Deadline)
        } else {
            Self::Failed(Failure::Proxy(fault))
        }
    }
}

impl Traced {
    /// The tier whose readings are all there.
    pub(super) const fn tier(&self) -> Tier {
        match (self.forced_spread, self.instability) {
            (Some(_), Some(_)) => Tier::Full,
            (Some(_), None) => Tier::TraceOnce,
            (None, _) => Tier::MarginOnly,
        }
    }
}

/// The time that is left for traces: the check's, less what its end needs.
struct Pace<'a> {
    clock: &'a dyn Clock,
    budget: &'a dyn Budget,
    kept_back: Duration,
    /// The longest verdict after a trace so far; until one was read, the time it took to write the trace, which is
    /// more. Reading a trace is never cut short, so this time has to be there.
    verdict: Duration,
    verdicts: usize,
}

impl Budget for Pace<'_> {
    fn spend(&self) -> std::ops::ControlFlow<()> {
        self.budget.keep(self.kept_back)
    }

    fn keep(&self, time: Duration) -> std::ops::ControlFlow<()> {
        self.budget.keep(self.kept_back + time)
    }
}

impl<P: Proxy> Assessor<P> {
    /// Reads what the tier asks for beyond margins. `margin_took` is the time of one margin on this machine.
    ///
    /// # Errors
    /// When the proxy fails. A deadline or a context that does not hold the traces is no failure but a fallback.
    pub(super) fn read_traces(
        &mut self,
        subject: &Subject<'_, P>,
        margin_took: Duration,
        clock: &dyn Clock,
        budget: &dyn Budget,
    ) -> Result<Traced, Failure> {
        let mut read = Traced::default();
        if self.tier == Tier::MarginOnly {
            return Ok(read);
        }
        let kept_back = margin_took.max(KEPT_BACK_MIN);
        let mut pace = Pace { clock, budget, kept_back, verdict: Duration::ZERO, verdicts: 0 };
        match self.read_in_order(subject, &mut pace, &mut read) {
            Ok(()) => Ok(read),
            Err(Stop::Short(why)) => {
                read.fallback = Some(Fallback { asked: self.tier, why });
                Ok(read)
            }
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }

    fn read_in_order(&mut self, subject: &Subject<'_, P>, pace: &mut Pace<'_>, read: &mut Traced) -> Result<(), Stop> {
        let tokens_max = self.proxy.card().trace_tokens_max;
        let greedy = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: subject.seed, tokens_max };
        let start = pace.clock.now();
        let trace = self.whole_trace(subject.posed, subject.seen, greedy, pace)?;
        pace.verdict = pace.clock.now().saturating_sub(start);
        let measured = self.markers.measure(&trace.text).map_err(|_| Stop::Short(Shortfall::EmptyTrace))?;
        let forced = subject.copies.iter().map(|copy| self.verdict(subject.posed, copy, &trace, pace));
        let forced = forced.collect::<Result<Vec<_>, Stop>>()?;
        let forced_spread = deviation(&forced)?;
        let features = measured.features();
        read.ambiguity = Lexicon::ORDER.iter().filter_map(|feature| features.get(feature).copied()).collect();
        read.features.extend(features);
        read.features.insert(Feature::ForcedSpread, forced_spread);
        read.forced_spread = Some(forced_spread);
        read.trace = Some(trace);
        if self.tier != Tier::Full {
            return Ok(());
        }
        let mut sampled = Vec::with_capacity(TRACES);
        for index in 0..TRACES {
            let seed = subject.seed.wrapping_add(u64::try_from(index).unwrap_or(u64::MAX));
            let sampling = Sampling { temperature: TEMPERATURE, seed, ..greedy };
            let trace = self.whole_trace(subject.posed, subject.seen, sampling, pace)?;
            sampled.push(self.verdict(subject.posed, subject.seen, &trace, pace)?);
        }
        let mut own = Vec::with_capacity(subject.copies.len());
        for copy in subject.copies {
            let trace = self.whole_trace(subject.posed, copy, greedy, pace)?;
            own.push(self.verdict(subject.posed, copy, &trace, pace)?);
        }
        let (traced_spread, instability) = (deviation(&own)?, decoding_instability(&sampled).map_err(undefined)?);
        (read.traced_spread, read.instability) = (Some(traced_spread), Some(instability));
        read.features.extend([(Feature::TracedSpread, traced_spread), (Feature::DecodingInstability, instability)]);
        Ok(())
    }

    /// A trace that is as long as it was to be. What a full context leaves of one has other densities than those the
    /// calibration's rows had, so nothing is read from it.
    fn whole_trace(
        &mut self,
        posed: &P::Posed,
        seen: &P::Observation,
        sampling: Sampling,
        pace: &Pace<'_>,
    ) -> Result<Trace, Stop> {
        let trace = self.proxy.trace(posed, seen, sampling, pace)?;
        if trace.cut_by_context(sampling.tokens_max) {
            return Err(Stop::Short(Shortfall::Context));
        }
        Ok(trace)
    }

    /// The margin after a trace, where there is time to read it.
    fn verdict(
        &mut self,
        posed: &P::Posed,
        seen: &P::Observation,
        trace: &Trace,
        pace: &mut Pace<'_>,
    ) -> Result<Margin, Stop> {
        if pace.keep(pace.verdict).is_break() {
            return Err(Stop::Short(Shortfall::Deadline));
        }
        let start = pace.clock.now();
        let margin = self.proxy.margin(posed, seen, Some(trace))?;
        let took = pace.clock.now().saturating_sub(start);
        pace.verdict = if pace.verdicts == 0 { took } else { pace.verdict.max(took) };
        pace.verdicts += 1;
        Ok(margin)
    }
}

fn deviation(margins: &[Margin]) -> Result<f64, Stop> {
    standard_deviation(&margins.iter().map(|margin| margin.nats()).collect::<Vec<_>>()).map_err(undefined)
}

fn undefined(error: Undefined) -> Stop {
    Stop::Failed(Failure::Proxy(Fault::Engine(error.to_string())))
}
