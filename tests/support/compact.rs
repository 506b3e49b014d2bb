//! The compact proxy with the installed models.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use image::RgbImage;
use steadfast::proxy::compact::{Compact, LoadError, Observation};
use steadfast::proxy::onnx::{Engine, EngineSettings};
use steadfast::proxy::{Provider, Proxy as _};
use steadfast::scene::resize;

/// The project's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn place(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| root().join(default), PathBuf::from)
}

/// The proxy as `load` loads it, or nothing, saying so, where the models are not installed.
pub fn loaded(load: fn(&Engine, &Path) -> Result<Compact, LoadError>) -> Option<Compact> {
    let models = place("STEADFAST_MODELS", "build/models/compact");
    let library = place("STEADFAST_ONNXRUNTIME", "build/lib/libonnxruntime.so.1.31.1");
    if !models.join("judge_trunk.onnx").exists() || !library.exists() {
        println!("skipped: the models are not installed; run `make models`");
        return None;
    }
    // One process may load the library once.
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let providers = vec![Provider::Cpu];
        let settings = EngineSettings { library, threads: 2, providers, allow_fallback: false, engine_cache: None };
        Engine::load(settings).expect("the library loads")
    });
    Some(load(engine, &models).expect("the proxy loads"))
}

/// What the proxy sees in a picture of any size.
pub fn look_at(proxy: &mut Compact, picture: &RgbImage) -> Observation {
    let (width, height) = proxy.card().working_size.expect("a working size");
    let working = resize::resize(picture, width, height, resize::Filter::Bilinear).expect("resized");
    proxy.encode(&working).expect("encoded")
}
