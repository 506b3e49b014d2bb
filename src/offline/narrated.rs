//! A proxy that can be told what is there to see, for data that comes with a written observation and no image.
//!
//! Rows of either kind then go through the same assessment. A told row has no spread: its copies all say the same.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::Duration;

use image::RgbImage;

use crate::margin::Margin;
use crate::proxy::{Budget, Card, Fault, Proxy, Question, Sampling, Trace};

/// A proxy that takes a written observation in the place of an image.
pub trait Narrate: Proxy {
    /// What this text says is there to see.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] where the proxy only looks at pictures.
    fn told(&self, text: &str) -> Result<Self::Observation, Fault>;

    /// Time spent inside the inference engine since loading.
    fn engine_time(&self) -> Duration;
}

/// What the next rows are told; `None` while there is an image to look at.
pub type Told = Rc<RefCell<Option<String>>>;

/// A proxy that is told what to see whenever [`Told`] holds something.
#[derive(Debug)]
pub struct Narrated<P> {
    proxy: P,
    told: Told,
}

/// What was seen or told.
#[derive(Debug)]
pub struct Observation<O> {
    inner: O,
    /// Hash of the placeholder, so that the copies of a told row count as different images.
    told: Option<u64>,
}

impl<P: Narrate> Narrated<P> {
    /// Wraps a proxy; the second part is where it is told what to see.
    pub fn new(proxy: P) -> (Self, Told) {
        let told = Told::default();
        (Self { proxy, told: Rc::clone(&told) }, told)
    }

    /// The proxy inside.
    pub const fn inner(&self) -> &P {
        &self.proxy
    }
}

impl<P: Narrate> Proxy for Narrated<P> {
    type Prefix = P::Prefix;
    type Posed = P::Posed;
    type Observation = Observation<P::Observation>;

    fn card(&self) -> &Card {
        self.proxy.card()
    }

    fn warm(&mut self, constitution: &str) -> Result<P::Prefix, Fault> {
        self.proxy.warm(constitution)
    }

    fn pose(&mut self, prefix: Option<&P::Prefix>, question: &Question<'_>) -> Result<P::Posed, Fault> {
        self.proxy.pose(prefix, question)
    }

    fn encode(&mut self, image: &RgbImage) -> Result<Self::Observation, Fault> {
        if let Some(text) = self.told.borrow().as_deref() {
            let mut hasher = DefaultHasher::new();
            image.as_raw().hash(&mut hasher);
            return Ok(Observation { inner: self.proxy.told(text)?, told: Some(hasher.finish()) });
        }
        Ok(Observation { inner: self.proxy.encode(image)?, told: None })
    }

    fn margin(&mut self, posed: &P::Posed, seen: &Self::Observation, forced: Option<&Trace>) -> Result<Margin, Fault> {
        self.proxy.margin(posed, &seen.inner, forced)
    }

    fn trace(
        &mut self,
        posed: &P::Posed,
        seen: &Self::Observation,
        sampling: Sampling,
        budget: &dyn Budget,
    ) -> Result<Trace, Fault> {
        self.proxy.trace(posed, &seen.inner, sampling, budget)
    }

    fn fingerprint(&self, seen: &Self::Observation) -> u64 {
        seen.told.unwrap_or_else(|| self.proxy.fingerprint(&seen.inner))
    }

    fn describe(&self, seen: &Self::Observation) -> Option<String> {
        self.proxy.describe(&seen.inner)
    }

    fn embed(&mut self, text: &str) -> Result<Vec<f32>, Fault> {
        self.proxy.embed(text)
    }
}

#[cfg(feature = "onnx")]
impl Narrate for crate::proxy::compact::Compact {
    fn told(&self, text: &str) -> Result<Self::Observation, Fault> {
        Ok(crate::proxy::compact::Observation::written(text))
    }

    fn engine_time(&self) -> Duration {
        Self::engine_time(self)
    }
}

#[cfg(feature = "onnx")]
impl Narrate for crate::proxy::vlm::Vlm {
    fn told(&self, _: &str) -> Result<Self::Observation, Fault> {
        Err(Fault::Unsupported("judge a written observation: it needs the picture itself"))
    }

    fn engine_time(&self) -> Duration {
        Self::engine_time(self)
    }
}

#[cfg(feature = "__replay")]
impl Narrate for crate::proxy::recorded::Recorded {
    fn told(&self, text: &str) -> Result<Self::Observation, Fault> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn engine_time(&self) -> Duration {
        Duration::ZERO
    }
}
