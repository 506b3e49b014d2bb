//! What is in a picture, for tools that change pictures or tell a text-only planner about them.

use image::RgbImage;

use super::insert::Seen;
use crate::proxy::Fault;

/// Whatever can say what is in a picture.
pub trait Eyes {
    /// The scene in a sentence; `None` where there are no words for pictures.
    ///
    /// # Errors
    /// When looking fails.
    fn describe(&mut self, image: &RgbImage) -> Result<Option<String>, Fault>;

    /// The things in it, with boxes.
    ///
    /// # Errors
    /// When looking fails.
    fn things(&mut self, image: &RgbImage) -> Result<Vec<Seen>, Fault>;
}

/// No eyes: nothing is described, and nothing is kept clear of.
#[derive(Debug, Clone, Copy)]
pub struct Closed;

impl Eyes for Closed {
    fn describe(&mut self, _: &RgbImage) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    fn things(&mut self, _: &RgbImage) -> Result<Vec<Seen>, Fault> {
        Ok(Vec::new())
    }
}

#[cfg(feature = "onnx")]
mod compact {
    use image::RgbImage;

    use super::Eyes;
    use crate::offline::insert::Seen;
    use crate::proxy::compact::{Compact, Sighting};
    use crate::proxy::{Fault, Proxy as _};
    use crate::scene::resize::{self, Filter};

    impl Eyes for Compact {
        fn describe(&mut self, image: &RgbImage) -> Result<Option<String>, Fault> {
            let seen = self.encode(&at_working_size(self, image)?)?;
            Ok(crate::proxy::Proxy::describe(self, &seen))
        }

        fn things(&mut self, image: &RgbImage) -> Result<Vec<Seen>, Fault> {
            let sightings = self.sightings(&at_working_size(self, image)?)?;
            let seen = |Sighting { name, score, corners }: Sighting| Seen {
                name: name.to_owned(),
                score,
                corners: corners.map(f64::from),
            };
            Ok(sightings.into_iter().map(seen).collect())
        }
    }

    fn at_working_size(proxy: &Compact, image: &RgbImage) -> Result<RgbImage, Fault> {
        let Some((width, height)) = proxy.card().working_size else { return Ok(image.clone()) };
        resize::resize(image, width, height, Filter::Bilinear)
            .map_err(|error| Fault::Engine(format!("the image cannot be resized: {error}")))
    }
}
