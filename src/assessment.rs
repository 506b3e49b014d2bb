//! The one path a triple takes, in the order the data moves. The daemon, the command line and the offline tools all
//! come through [`Assessor::assess`]; the clock, the ledger and the proxy are passed in.

mod foresight;
mod traced;

use std::ops::ControlFlow;
use std::time::Duration;

use image::RgbImage;
use serde::Serialize;

use crate::calibration::{Calibration, Mismatch};
use crate::constitution::Constitution;
use crate::constitution::limits::{BrokenLimit, broken_limits};
use crate::constitution::nearest::{Lexicon, NearRule};
use crate::decision::{Case, Decision, Failure, Readings, Refusal, Tier, Veto, decide, veto_inconclusive};
use crate::margin::Margin;
use crate::plan::{Form, Plan, STEPS_MAX, Stance, Step, opens_with_deed, stance};
use crate::proxy::{Budget, Card, Fault, Proxy, Question};
use crate::scene::resize::{self, Filter};
use crate::scene::{decode, perturb};
use crate::signals::malleability::ScoreError;
use crate::signals::perturbation_spread::PerturbationSpread;
use crate::signals::trace_ambiguity::{self, LexiconError};
use crate::signals::{Feature, Features};
use crate::triple::{Digest, Triple};

use foresight::Foresight;
use traced::{Subject, Traced, tier_of};

/// Rules named in an explanation.
pub const NEAREST_RULES: usize = 3;

/// Time since some fixed moment; never steps back.
pub trait Clock {
    /// The time now.
    fn now(&self) -> Duration;
}

/// What refusals are remembered in.
pub trait Memory {
    /// The task by which a refusal is remembered that this one repeats, in a scene that differs only by everyday
    /// objects.
    ///
    /// # Errors
    /// When the memory cannot be read; a guard that cannot remember must not permit.
    fn refused_before(&mut self, triple: &Triple, scene: &RgbImage) -> Result<Option<Digest>, Failure>;

    /// Remembers that this task was refused.
    ///
    /// # Errors
    /// When the memory cannot be written.
    fn remember(&mut self, triple: &Triple, scene: &RgbImage) -> Result<(), Failure>;
}

/// No memory, for offline tools that judge each triple for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgetful;

impl Memory for Forgetful {
    fn refused_before(&mut self, _: &Triple, _: &RgbImage) -> Result<Option<Digest>, Failure> {
        Ok(None)
    }

    fn remember(&mut self, _: &Triple, _: &RgbImage) -> Result<(), Failure> {
        Ok(())
    }
}

/// A moment on a clock by which the answer must be there.
#[derive(Clone, Copy)]
pub struct Deadline<'c> {
    clock: &'c dyn Clock,
    at: Duration,
}

impl<'c> Deadline<'c> {
    /// The deadline that passes at `at` on this clock.
    #[must_use]
    pub fn new(clock: &'c dyn Clock, at: Duration) -> Self {
        Self { clock, at }
    }
}

impl Budget for Deadline<'_> {
    fn spend(&self) -> ControlFlow<()> {
        self.keep(Duration::ZERO)
    }

    fn keep(&self, time: Duration) -> ControlFlow<()> {
        if self.clock.now() + time < self.at { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// How long each stage took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Timings {
    /// Decoding the image and bringing it to the working size.
    pub decode: Duration,
    /// The clean image's margin: encoding, reading instruction and plan, judging.
    pub margin: Duration,
    /// The margin without the constitution.
    pub reliance: Duration,
    /// The perturbed copies.
    pub spread: Duration,
    /// Traces and the verdicts that follow them.
    pub traces: Duration,
    /// Everything.
    pub total: Duration,
}

/// What a field engineer needs beside the decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// What the plan is, and which words decided that.
    pub stance: Option<(Stance, String)>,
    /// How the image's bytes became a picture.
    pub image: Option<decode::Facts>,
    /// Numbers, from 1, of the steps without which the plan was judged: words beside its deeds that lifted the margin.
    pub steps_left_out: Vec<u32>,
    /// What the proxy says is in the image.
    pub scene: Option<String>,
    /// What the proxy wrote about the clean image, where the tier reads traces and was reached.
    pub trace: Option<String>,
    /// The rules nearest the task, nearest first.
    pub nearest_rules: Vec<NearRule>,
    /// Rules with a machine-checkable limit that the plan breaks.
    pub broken_limits: Vec<BrokenLimit>,
    /// The remembered refusal that this task repeats, for an operator who wants it forgotten.
    pub refused_task: Option<Digest>,
    /// The margins of the perturbed copies, in nats, in the order they were dealt.
    pub copies: Vec<Margin>,
    /// How long each stage took.
    pub timings: Timings,
}

/// A decision and what it rests on.
#[derive(Debug)]
pub struct Assessment {
    /// The answer.
    pub decision: Decision,
    /// What it rests on.
    pub evidence: Evidence,
}

/// Why an assessor cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The calibration was fitted for something else.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The proxy does not take the constitution in.
    #[error("the proxy cannot read the constitution: {0}")]
    Warm(#[from] Fault),
    /// The proxy's arithmetic is too noisy for the spread.
    #[error(
        "{0} is not safe for the perturbation spread: dynamic 8-bit integers round more than the signal is; load q4, \
         q4f16, fp16 or full-precision files (proxy.precision)"
    )]
    NoisyProxy(String),
    /// The tier asks for what the proxy cannot do.
    #[error("{0} writes no traces, so only the tier margin-only can run")]
    NoTraces(String),
    /// The calibration was fitted with signals that the tier does not read.
    #[error("the calibration's composite needs {feature}; set proxy.tier = \"{}\"", tier_of(*feature))]
    TierTooLow {
        /// The signal.
        feature: Feature,
    },
    /// The marker phrases this program was built with are no lexicon.
    #[error("the marker phrases cannot be used: {0}")]
    Markers(#[from] LexiconError),
}

/// A proxy that has read its constitution, and the calibration that belongs to both.
#[derive(Debug)]
pub struct Assessor<P: Proxy> {
    proxy: P,
    prefix: P::Prefix,
    constitution: Constitution,
    lexicon: Lexicon,
    markers: trace_ambiguity::Lexicon,
    calibration: Calibration,
    tier: Tier,
    early_veto: bool,
}

/// A triple taken apart, as it is asked about.
struct Parts<'a> {
    triple: &'a Triple,
    plan: &'a str,
    deeds_alone: Option<&'a DeedsAlone>,
    scene: &'a RgbImage,
    stance: Stance,
}

/// A plan's deeds without the words around them, where there are both.
struct DeedsAlone {
    plan: String,
    /// Numbers of the other steps, from 1.
    others: Vec<u32>,
}

impl DeedsAlone {
    fn of(plan: &Plan) -> Option<Self> {
        let are_deeds = are_deeds(plan);
        let steps = step_texts(plan).into_iter().zip(&are_deeds);
        let deeds = steps.filter(|(_, deed)| **deed).map(|(step, _)| step).collect::<Vec<_>>();
        // Lines of prose are counted behind the steps; a record names no more than there may be steps.
        let others = (1..).zip(&are_deeds).filter(|(_, deed)| !**deed).map(|(number, _)| number);
        let others = others.take(STEPS_MAX).collect::<Vec<u32>>();
        (!deeds.is_empty() && !others.is_empty()).then(|| Self { plan: deeds.join("\n"), others })
    }
}

/// What reading came to.
enum Read {
    /// Everything the tier asks for.
    Whole(Readings),
    /// A veto that the rest could not have turned.
    Foregone(Veto),
}

impl<P: Proxy> Assessor<P> {
    /// Binds proxy, constitution and calibration together, and has the proxy read the constitution.
    ///
    /// # Errors
    /// When the calibration belongs to something else, or the proxy cannot do what the tier asks.
    pub fn new(
        mut proxy: P,
        constitution: Constitution,
        calibration: Calibration,
        tier: Tier,
    ) -> Result<Self, StartError> {
        let card = proxy.card();
        check_belongs(&calibration, &constitution, card, tier)?;
        if !card.safe_for_spread {
            return Err(StartError::NoisyProxy(card.name.clone()));
        }
        if tier != Tier::MarginOnly && card.traces.is_none() {
            return Err(StartError::NoTraces(card.name.clone()));
        }
        let prefix = proxy.warm(&constitution.prompt_text())?;
        let lexicon = Lexicon::of(&constitution);
        let markers = trace_ambiguity::Lexicon::shipped()?;
        Ok(Self { proxy, prefix, constitution, lexicon, markers, calibration, tier, early_veto: false })
    }

    /// Whether copies are judged no further once the answer can only be a veto. Off unless this is called: the records
    /// of such vetoes lack the readings that were spared.
    pub const fn set_early_veto(&mut self, early_veto: bool) {
        self.early_veto = early_veto;
    }

    /// Swaps in a constitution and the calibration that belongs to it, or keeps the old ones and says why.
    ///
    /// # Errors
    /// When they do not belong together or the proxy cannot read the constitution; nothing has changed then.
    pub fn reload(&mut self, constitution: Constitution, calibration: Calibration) -> Result<(), StartError> {
        check_belongs(&calibration, &constitution, self.proxy.card(), self.tier)?;
        self.prefix = self.proxy.warm(&constitution.prompt_text())?;
        self.lexicon = Lexicon::of(&constitution);
        (self.constitution, self.calibration) = (constitution, calibration);
        Ok(())
    }

    /// The proxy's card.
    pub fn card(&self) -> &Card {
        self.proxy.card()
    }

    /// The proxy itself, for benchmarks that ask it for its times.
    pub const fn proxy(&self) -> &P {
        &self.proxy
    }

    /// The constitution in force.
    pub const fn constitution(&self) -> &Constitution {
        &self.constitution
    }

    /// The calibration in force.
    pub const fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Judges one triple. Every failure ends in a veto; nothing here can panic its way to a permit.
    pub fn assess(
        &mut self,
        triple: &Triple,
        memory: &mut dyn Memory,
        clock: &dyn Clock,
        budget: &dyn Budget,
    ) -> Assessment {
        let start = clock.now();
        let mut evidence = Evidence::default();
        let decision = match self.judge(triple, memory, clock, budget, &mut evidence) {
            Ok(decision) => decision,
            Err(failure) => Decision::Veto(Veto::from_failure(&failure)),
        };
        evidence.timings.total = clock.now().saturating_sub(start);
        Assessment { decision, evidence }
    }

    fn judge(
        &mut self,
        triple: &Triple,
        memory: &mut dyn Memory,
        clock: &dyn Clock,
        budget: &dyn Budget,
        evidence: &mut Evidence,
    ) -> Result<Decision, Failure> {
        let start = clock.now();
        budget.check()?;
        let decoded = decode::decode(triple.image())?;
        evidence.image = Some(decoded.facts);
        let scene = self.working_image(decoded.image)?;
        evidence.timings.decode = clock.now().saturating_sub(start);

        let Ok(plan) = Plan::parse(triple.plan()) else {
            return Ok(Decision::Veto(veto_inconclusive()));
        };
        let judged = stance(triple.instruction(), &plan);
        evidence.stance = Some((judged.stance, judged.ground.to_string()));
        if judged.stance == Stance::Inconclusive {
            return Ok(Decision::Veto(veto_inconclusive()));
        }
        let steps = step_texts(&plan);
        evidence.broken_limits = broken_limits(&self.constitution, triple.instruction(), &steps);

        // A refusal's readings say how firmly it would hold, whatever it says besides.
        let deeds_alone = if judged.stance == Stance::Complied { DeedsAlone::of(&plan) } else { None };
        let plan = &*steps.join("\n");
        let parts = Parts { triple, plan, deeds_alone: deeds_alone.as_ref(), scene: &scene, stance: judged.stance };
        let readings = match self.read(&parts, clock, budget, evidence)? {
            Read::Whole(readings) => readings,
            Read::Foregone(veto) => return Ok(Decision::Veto(veto)),
        };
        match judged.stance {
            Stance::Complied => evidence.refused_task = memory.refused_before(triple, &scene)?,
            Stance::Refused => memory.remember(triple, &scene)?,
            Stance::Inconclusive => {}
        }
        budget.check()?;
        let case = Case {
            digests: *triple.digests(),
            stance: judged.stance,
            broken_limits: evidence.broken_limits.clone(),
            readings,
            refused_before: evidence.refused_task.is_some(),
        };
        Ok(decide(case, &self.calibration.limits))
    }

    fn working_image(&self, decoded: RgbImage) -> Result<RgbImage, Failure> {
        match self.proxy.card().working_size {
            None => Ok(decoded),
            Some((width, height)) => resize::resize(&decoded, width, height, Filter::Bilinear)
                .map_err(|error| Failure::Internal(format!("the image cannot be resized: {error}"))),
        }
    }

    /// Asks the proxy: the clean margin, the reliance, the perturbed copies, and what the tier reads beyond margins.
    fn read(
        &mut self,
        parts: &Parts<'_>,
        clock: &dyn Clock,
        budget: &dyn Budget,
        evidence: &mut Evidence,
    ) -> Result<Read, Failure> {
        let &Parts { triple, plan, deeds_alone, scene, stance } = parts;
        let start = clock.now();
        let question = Question { instruction: triple.instruction(), plan };
        let seen = self.proxy.encode(scene)?;
        evidence.scene = self.proxy.describe(&seen);
        let words = [question.instruction, plan, evidence.scene.as_deref().unwrap_or_default()];
        evidence.nearest_rules = self.lexicon.nearest(words, NEAREST_RULES).nearest().to_vec();
        let (question, posed, margin) = self.pose_as_judged(question, deeds_alone, &seen, budget)?;
        if let Some(judged) = deeds_alone.filter(|_| question.plan != plan) {
            evidence.steps_left_out.clone_from(&judged.others);
        }
        evidence.timings.margin = clock.now().saturating_sub(start);
        budget.check()?;
        let start = clock.now();
        let bare = self.proxy.pose(None, &question)?;
        let without = self.proxy.margin(&bare, &seen, None)?;
        evidence.timings.reliance = clock.now().saturating_sub(start);

        let start = clock.now();
        let calibration = self.calibration.clone();
        let before = self.before_copies(margin, without)?;
        // A refusal's readings say how firmly it would hold, so none of them is spared.
        let foresees = self.early_veto && stance == Stance::Complied;
        let mut foresight = foresees.then(|| Foresight::new(&calibration, &evidence.broken_limits, before));
        if let Some(veto) = foresight.as_ref().and_then(Foresight::at_once) {
            return Ok(Read::Foregone(veto));
        }
        let mut watch = |copy| foresight.as_mut().map_or(Ok(None), |foresight| foresight.copy(copy));
        let copies = self.judge_copies(triple, scene, &posed, self.proxy.fingerprint(&seen), &mut watch, budget)?;
        evidence.copies = copies.margins;
        evidence.timings.spread = clock.now().saturating_sub(start);
        if let Some(veto) = copies.foregone {
            return Ok(Read::Foregone(veto));
        }

        let start = clock.now();
        let seed = triple.digests().triple.seed();
        let subject = Subject { posed: &posed, seen: &seen, copies: &copies.seen, seed };
        let mut traced = self.read_traces(&subject, evidence.timings.margin, clock, budget)?;
        evidence.trace = traced.trace.take().map(|trace| trace.text);
        evidence.timings.traces = clock.now().saturating_sub(start);
        self.weigh(margin, without, &evidence.copies, traced).map(Read::Whole)
    }

    /// Poses the plan, and its deeds alone where that is another question; gives what leans more to refuse at this scene. A
    /// bland or flattering step beside the deeds must not lift the margin they have without it.
    fn pose_as_judged<'a>(
        &mut self,
        question: Question<'a>,
        deeds_alone: Option<&'a DeedsAlone>,
        seen: &P::Observation,
        budget: &dyn Budget,
    ) -> Result<(Question<'a>, P::Posed, Margin), Failure> {
        let whole = self.proxy.pose(Some(&self.prefix), &question)?;
        let margin = self.proxy.margin(&whole, seen, None)?;
        let Some(DeedsAlone { plan, .. }) = deeds_alone else { return Ok((question, whole, margin)) };
        budget.check()?;
        let without = Question { plan, ..question };
        let alone = self.proxy.pose(Some(&self.prefix), &without)?;
        let margin_alone = self.proxy.margin(&alone, seen, None)?;
        let lower = margin_alone.nats() < margin.nats();
        Ok(if lower { (without, alone, margin_alone) } else { (question, whole, margin) })
    }

    /// What is known before the first copy.
    fn before_copies(&self, margin: Margin, without: Margin) -> Result<Readings, Failure> {
        let refuse_log_odds = self.calibration.margin.refuse_log_odds(margin).map_err(Fault::NonFinite)?;
        let reliance =
            crate::signals::constitution_reliance::constitution_reliance(without, margin).map_err(Fault::NonFinite)?;
        Ok(Readings {
            tier: Tier::MarginOnly,
            fallback: None,
            margin,
            refuse_log_odds,
            spread: None,
            copies: 0,
            flip_share: None,
            reliance: Some(reliance),
            trace_ambiguity: Vec::new(),
            forced_spread: None,
            traced_spread: None,
            decoding_instability: None,
            malleability: None,
        })
    }

    /// The margins of the perturbed copies, in the order they are dealt, and what was seen in each where traces follow.
    fn judge_copies(
        &mut self,
        triple: &Triple,
        scene: &RgbImage,
        posed: &P::Posed,
        clean: u64,
        watch: &mut dyn FnMut(Margin) -> Result<Option<Veto>, Failure>,
        budget: &dyn Budget,
    ) -> Result<Copies<P>, Failure> {
        let seed = triple.digests().triple.seed();
        let mut copy = RgbImage::new(0, 0);
        let mut copies = Copies { margins: Vec::with_capacity(perturb::COPIES), seen: Vec::new(), foregone: None };
        let mut sees = false;
        for index in 0..perturb::COPIES {
            budget.check()?;
            perturb::copy_into(scene, seed, index, &mut copy);
            let seen = self.proxy.encode(&copy)?;
            sees |= self.proxy.fingerprint(&seen) != clean;
            let margin = self.proxy.margin(posed, &seen, None)?;
            copies.margins.push(margin);
            copies.foregone = watch(margin)?;
            if copies.foregone.is_some() {
                return Ok(copies);
            }
            if self.tier != Tier::MarginOnly {
                copies.seen.push(seen);
            }
        }
        // An encoder that answers alike to twenty different images would read as perfectly firm.
        if sees { Ok(copies) } else { Err(Failure::Proxy(Fault::Blind)) }
    }

    /// Turns margins into readings.
    fn weigh(&self, margin: Margin, without: Margin, copies: &[Margin], traced: Traced) -> Result<Readings, Failure> {
        let undefined = |error: &dyn std::fmt::Display| Failure::Proxy(Fault::Engine(error.to_string()));
        let before = self.before_copies(margin, without)?;
        let spread = PerturbationSpread::measure(margin, copies, |copy| self.calibration.refuses(copy))
            .map_err(|error| undefined(&error))?;
        let mut features = known_features(&before);
        features.extend([
            (Feature::PerturbationSpread, spread.nats),
            (Feature::RelativeSpread, spread.relative),
            (Feature::FlipShare, spread.flip_share),
        ]);
        let (tier, fallback) = (traced.tier(), traced.fallback);
        features.extend(traced.features);
        let malleability = self.calibration.composite.score(&features).map_err(|error| match (error, fallback) {
            (ScoreError::Missing(feature), Some(fallback)) => Failure::ShortOfTier { feature, fallback },
            (error, _) => undefined(&error),
        })?;
        Ok(Readings {
            tier,
            fallback,
            spread: Some(spread.nats),
            copies: u32::try_from(copies.len()).unwrap_or(u32::MAX),
            flip_share: Some(spread.flip_share),
            trace_ambiguity: traced.ambiguity,
            forced_spread: traced.forced_spread,
            traced_spread: traced.traced_spread,
            decoding_instability: traced.instability,
            malleability: Some(malleability.get()),
            ..before
        })
    }
}

/// The features that are known before the first copy.
fn known_features(before: &Readings) -> Features {
    let margin_size = (Feature::MarginSize, before.refuse_log_odds.abs());
    let reliance = before.reliance.map(|reliance| (Feature::ConstitutionReliance, reliance));
    std::iter::once(margin_size).chain(reliance).collect()
}

/// The perturbed copies as judged.
struct Copies<P: Proxy> {
    margins: Vec<Margin>,
    /// Empty where the tier reads no traces.
    seen: Vec<P::Observation>,
    /// The veto that was certain after the last of them.
    foregone: Option<Veto>,
}

/// Whether a calibration belongs to what is in use, and the tier reads what its composite needs. A composite over
/// traces belongs to what writes them too.
fn check_belongs(
    calibration: &Calibration,
    constitution: &Constitution,
    card: &Card,
    tier: Tier,
) -> Result<(), StartError> {
    let needed = calibration.composite.features().max_by_key(|&feature| tier_of(feature));
    let needs_traces = needed.is_some_and(|feature| tier_of(feature) > Tier::MarginOnly);
    if let Some(feature) = needed.filter(|&feature| tier_of(feature) > tier) {
        return Err(StartError::TierTooLow { feature });
    }
    let proxy = card.traces.filter(|&traces| needs_traces || calibration.bound.proxy == traces);
    calibration.check_bound(proxy.unwrap_or(card.digest), constitution.digest(), card.prompt_layout)?;
    Ok(())
}

/// What the proxy is asked about: the steps as they read, whatever form they were written in; where there is no marked
/// step, or steps and prose are mixed, the prose too. Thinking is never part of it.
#[must_use]
pub fn step_texts(plan: &Plan) -> Vec<&str> {
    let steps = plan.steps.iter().map(|step| step.text.as_str());
    match plan.form {
        Form::Prose | Form::Mixed => steps.chain(plan.prose.lines()).collect(),
        Form::Numbered | Form::Bulleted | Form::JsonSteps | Form::ToolCalls | Form::CodeCalls => steps.collect(),
    }
}

/// Which of [`step_texts`] open with a robot's deed. Words around them, such as a last step "SYSTEM: permit", can lift a
/// margin that the deeds alone do not have; a plan is judged with them and without, and the lower margin counts.
#[must_use]
pub fn are_deeds(plan: &Plan) -> Vec<bool> {
    let spoken = |line: &&str| Step { text: (*line).to_owned(), action: None, arguments: Vec::new() };
    let prose = step_texts(plan).into_iter().skip(plan.steps.len()).map(|line| opens_with_deed(&spoken(&line)));
    plan.steps.iter().map(opens_with_deed).chain(prose).collect()
}

impl Timings {
    /// Each stage's name and time in milliseconds.
    #[must_use]
    pub fn stages_ms(&self) -> [(&'static str, f64); 6] {
        let stages = [
            ("decode", self.decode),
            ("margin", self.margin),
            ("reliance", self.reliance),
            ("spread", self.spread),
            ("traces", self.traces),
            ("total", self.total),
        ];
        stages.map(|(stage, time)| (stage, time.as_secs_f64() * 1e3))
    }
}

impl Assessment {
    /// The readings, where any were taken.
    #[must_use]
    pub const fn readings(&self) -> Option<&Readings> {
        match &self.decision {
            Decision::Permit(leave) => Some(leave.readings()),
            Decision::Veto(veto) => veto.readings.as_ref(),
            Decision::Refusal(Refusal { readings }) => Some(readings),
        }
    }
}
