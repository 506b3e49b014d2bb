//! ONNX Runtime behind a narrow door: this is the only file that knows the `ort` crate.
//!
//! The library is loaded from a path at start (`load-dynamic`), because a board brings its own build: the wheel for
//! every CPU, the vendor's for a Jetson's GPU.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::proxy::weights::{self, Copied, Outline};
use crate::proxy::{Fault, Provider};
use crate::triple::Digest;
use half::f16;
use ort::ep::{self, ExecutionProviderDispatch};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{IoBinding, RunOptions, Session, SessionInputValue};
use ort::value::{DynTensor, DynValue, Tensor as OrtTensor, TensorElementType, ValueType};

/// Why the engine or a model could not be loaded. Each stops the start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The shared library is missing, is not ONNX Runtime, or is older than the API this program was built for.
    #[error("cannot load ONNX Runtime from {path}: {message}; run `steadfast model install` or set `onnxruntime`")]
    Library {
        /// The path tried.
        path: PathBuf,
        /// What the loader said.
        message: String,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The model was refused by ONNX Runtime.
    #[error("cannot load the model {path}: {message}")]
    Model {
        /// The model file.
        path: PathBuf,
        /// What ONNX Runtime said.
        message: String,
    },
    /// An execution provider was asked for that this library or machine does not have.
    #[error("the execution provider {provider} cannot run here: {message}; set `allow_fallback` to run on the CPU")]
    Provider {
        /// The provider.
        provider: Provider,
        /// What ONNX Runtime said.
        message: String,
    },
}

/// How models are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// The shared library.
    pub library: PathBuf,
    /// Threads of the one pool that all models share.
    pub threads: usize,
    /// Providers in order of preference.
    pub providers: Vec<Provider>,
    /// Whether a provider that cannot run may be passed over. Off by default: a guard that believes it runs on the
    /// GPU and runs on the CPU misses its deadlines.
    pub allow_fallback: bool,
    /// Where TensorRT may keep built engines.
    pub engine_cache: Option<EngineCache>,
}

/// Where TensorRT keeps built engines. One that was built from another model or for another driver must not be found:
/// engines of different models have been mixed up by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCache {
    /// The folder.
    pub folder: PathBuf,
    /// What tells one driver from another.
    pub driver: String,
}

impl EngineCache {
    /// The folder for one model's engines under this driver.
    #[must_use]
    pub fn folder_of(&self, model: &Digest) -> PathBuf {
        self.folder.join(&self.driver).join(model.to_string())
    }
}

/// The loaded library.
#[derive(Debug)]
pub struct Engine {
    environment: ort::environment::Environment,
    settings: EngineSettings,
}

impl Engine {
    /// Loads the library.
    ///
    /// # Errors
    /// When the library is missing, too old, or not ONNX Runtime.
    pub fn load(settings: EngineSettings) -> Result<Self, EngineError> {
        let failed = |message: String| EngineError::Library { path: settings.library.clone(), message };
        // `init_from` first: the implicit path of this version panics on a missing library.
        let builder = ort::init_from(&settings.library).map_err(|error| failed(error.to_string()))?;
        let pool = ort::environment::GlobalThreadPoolOptions::default()
            .with_intra_threads(settings.threads)
            .and_then(|pool| pool.with_inter_threads(1))
            .map_err(|error| failed(error.to_string()))?;
        let environment = builder
            .with_name("steadfast")
            .with_telemetry(false)
            .with_global_thread_pool(pool)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { environment, settings })
    }

    /// Loads a model and records which provider really runs it.
    ///
    /// # Errors
    /// When the file cannot be read, ONNX Runtime refuses it, or a provider cannot run and no fallback is allowed.
    pub fn model(&self, path: &Path) -> Result<Model, EngineError> {
        let failed = |message: String| EngineError::Model { path: path.to_owned(), message };
        let digest = digest_of_file(path)?;
        let mut builder = Session::builder(&self.environment).map_err(|error| failed(error.to_string()))?;
        builder = configure(builder).map_err(failed)?;
        let mut running = Provider::Cpu;
        for &provider in &self.settings.providers {
            if provider == Provider::Cpu {
                break;
            }
            match self.dispatch(provider, &digest).map_err(failed)?.register(&mut builder) {
                Ok(()) => {
                    running = provider;
                    break;
                }
                Err(error) if self.settings.allow_fallback => {
                    tracing::warn!(%provider, %error, "execution provider passed over");
                }
                Err(error) => return Err(EngineError::Provider { provider, message: error.to_string() }),
            }
        }
        let mut outline = match running {
            Provider::Cpu => outline(path)?,
            // What a device makes of weights that lie in a file was never tried.
            Provider::Cuda | Provider::Tensorrt => None,
        };
        let mapped = outline.as_mut().and_then(|outline| commit_mapped(&builder, path, outline));
        let session = match mapped {
            Some(session) => session,
            None => builder.commit_from_file(path).map_err(|error| failed(error.to_string()))?,
        };
        let outlets = |list: &[ort::value::Outlet]| list.iter().map(Outlet::read).collect();
        Ok(Model {
            inputs: outlets(session.inputs()),
            outputs: outlets(session.outputs()),
            session,
            digest,
            provider: running,
            appends_in_place: outline.is_some_and(|outline| outline.operators.contains(APPENDING_OPERATOR)),
            gives_back: false,
            spent: Duration::ZERO,
        })
    }

    fn dispatch(&self, provider: Provider, model: &Digest) -> Result<ExecutionProviderDispatch, String> {
        let dispatch = match provider {
            Provider::Cpu => ep::CPU::default().build(),
            Provider::Cuda => ep::CUDA::default().build(),
            Provider::Tensorrt => match &self.settings.engine_cache {
                None => ep::TensorRT::default().build(),
                Some(cache) => {
                    let folder = cache.folder_of(model);
                    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
                    made.map_err(|error| format!("no engine cache at {}: {error}", folder.display()))?;
                    ep::TensorRT::default().with_engine_cache(true).with_engine_cache_path(folder.display()).build()
                }
            },
        };
        Ok(dispatch.error_on_failure())
    }
}

/// What attends over keys and values and appends to them where they lie, if they are handed to it as input and output.
const APPENDING_OPERATOR: &str = "GroupQueryAttention";

fn outline(path: &Path) -> Result<Option<Outline>, EngineError> {
    weights::outline(path).map_err(|source| EngineError::Read { path: path.to_owned(), source })
}

/// Loads a model with its weights left in its file. Nothing where this build of ONNX Runtime does not take it so.
fn commit_mapped(builder: &SessionBuilder, path: &Path, outline: &mut Outline) -> Option<Session> {
    let model = outline.model.take()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let folder = folder.to_str()?;
    let copied = std::mem::take(&mut outline.copied);
    let commit = || -> Result<Session, String> {
        let said = |error: ort::Error<SessionBuilder>| error.to_string();
        let mut builder = builder.clone().with_config_entry(OUTSIDE_FOLDER, folder).map_err(said)?;
        for weight in copied {
            let name = weight.name.clone();
            let tensor = Tensor::copied(weight).map_err(|fault| fault.to_string())?;
            builder = builder.with_initializer(name, tensor.0).map_err(said)?;
        }
        builder.commit_from_memory(&model).map_err(|error| error.to_string())
    };
    match commit() {
        Ok(session) => Some(session),
        Err(error) => {
            tracing::info!(path = %path.display(), %error, "weights are copied into memory");
            None
        }
    }
}

/// Where weights outside a model that is handed over in memory are looked for.
const OUTSIDE_FOLDER: &str = "session.model_external_initializers_file_folder_path";

/// The settings every session shares. Memory patterns are off because the resident size grew with every new input
/// shape where they were on.
fn configure(builder: SessionBuilder) -> Result<SessionBuilder, String> {
    let said = |error: ort::Error<SessionBuilder>| error.to_string();
    let builder = builder.with_optimization_level(GraphOptimizationLevel::All).map_err(said)?;
    let builder = builder.with_memory_pattern(false).map_err(said)?;
    builder.with_deterministic_compute(true).map_err(said)
}

/// SHA-256 of a file, read once and never held whole.
///
/// # Errors
/// When the file cannot be read.
pub fn digest_of_file(path: &Path) -> Result<Digest, EngineError> {
    let failed = |source| EngineError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    Digest::of_reader(std::io::BufReader::with_capacity(1 << 16, file)).map_err(failed)
}

/// An element type that a tensor can have here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// 64-bit integer.
    I64,
    /// 32-bit integer.
    I32,
    /// Byte.
    U8,
    /// Boolean.
    Bool,
    /// Anything else, which no proxy of ours feeds or reads.
    Other,
}

/// One input or output of a model, as the model declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlet {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub element: Element,
    /// Its shape; −1 where the model leaves a dimension open.
    pub shape: Vec<i64>,
}

impl Outlet {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum: whatever is no tensor is nothing we feed")]
    fn read(outlet: &ort::value::Outlet) -> Self {
        let (element, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => (Element::of(*ty), shape.to_vec()),
            _ => (Element::Other, Vec::new()),
        };
        Self { name: outlet.name().to_owned(), element, shape }
    }
}

impl Element {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows: a type we do not know is Other")]
    const fn of(ty: TensorElementType) -> Self {
        match ty {
            TensorElementType::Float32 => Self::F32,
            TensorElementType::Float16 => Self::F16,
            TensorElementType::Int64 => Self::I64,
            TensorElementType::Int32 => Self::I32,
            TensorElementType::Uint8 => Self::U8,
            TensorElementType::Bool => Self::Bool,
            _ => Self::Other,
        }
    }
}

/// A tensor on its way into or out of a model. Opaque outputs (KV caches) can be fed back as they are.
#[derive(Debug)]
pub struct Tensor(DynValue);

impl Tensor {
    /// A tensor of 32-bit floats, row-major.
    ///
    /// # Errors
    /// When the shape does not hold the values.
    pub fn f32(shape: &[usize], values: Vec<f32>) -> Result<Self, Fault> {
        OrtTensor::from_array((shape.to_vec(), values)).map(|tensor| Self(tensor.into_dyn())).map_err(engine)
    }

    /// A tensor of 16-bit floats, row-major.
    ///
    /// # Errors
    /// When the shape does not hold the values.
    pub fn f16(shape: &[usize], values: Vec<f16>) -> Result<Self, Fault> {
        OrtTensor::from_array((shape.to_vec(), values)).map(|tensor| Self(tensor.into_dyn())).map_err(engine)
    }

    /// A tensor of 64-bit integers, row-major.
    ///
    /// # Errors
    /// When the shape does not hold the values.
    pub fn i64(shape: &[usize], values: Vec<i64>) -> Result<Self, Fault> {
        OrtTensor::from_array((shape.to_vec(), values)).map(|tensor| Self(tensor.into_dyn())).map_err(engine)
    }

    /// A tensor of bytes, row-major.
    ///
    /// # Errors
    /// When the shape does not hold the values.
    pub fn u8(shape: &[usize], values: Vec<u8>) -> Result<Self, Fault> {
        OrtTensor::from_array((shape.to_vec(), values)).map(|tensor| Self(tensor.into_dyn())).map_err(engine)
    }

    /// A tensor of booleans, row-major.
    ///
    /// # Errors
    /// When the shape does not hold the values.
    pub fn bool(shape: &[usize], values: Vec<bool>) -> Result<Self, Fault> {
        OrtTensor::from_array((shape.to_vec(), values)).map(|tensor| Self(tensor.into_dyn())).map_err(engine)
    }

    /// A tensor of floats in the width a model declares, row-major.
    ///
    /// # Errors
    /// When the shape does not hold the values, or the model wants no float.
    pub fn floats(element: Element, shape: &[usize], values: Vec<f32>) -> Result<Self, Fault> {
        match element {
            Element::F32 => Self::f32(shape, values),
            Element::F16 => Self::f16(shape, values.into_iter().map(f16::from_f32).collect()),
            Element::I64 | Element::I32 | Element::U8 | Element::Bool | Element::Other => Err(unsuited("floats")),
        }
    }

    /// A tensor of integers or flags in the type a model declares, row-major; a flag is set where the value is not 0.
    ///
    /// # Errors
    /// When the shape does not hold the values, or the model wants neither.
    pub fn integers(element: Element, shape: &[usize], values: Vec<i64>) -> Result<Self, Fault> {
        match element {
            Element::I64 => Self::i64(shape, values),
            Element::I32 => {
                let values: Result<Vec<i32>, _> = values.into_iter().map(i32::try_from).collect();
                let values = values.map_err(|_| unsuited("integers beyond 32 bits"))?;
                OrtTensor::from_array((shape.to_vec(), values)).map(|tensor| Self(tensor.into_dyn())).map_err(engine)
            }
            Element::Bool => Self::bool(shape, values.into_iter().map(|value| value != 0).collect()),
            Element::F32 | Element::F16 | Element::U8 | Element::Other => Err(unsuited("integers")),
        }
    }

    /// A weight as a tensor.
    fn copied(weight: Copied) -> Result<Self, Fault> {
        let Copied { element, shape, bytes, .. } = weight;
        match element {
            Element::F32 => {
                Self::f32(&shape, bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
            }
            Element::F16 => {
                Self::f16(&shape, bytes.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect())
            }
            Element::I64 => {
                Self::i64(&shape, bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect())
            }
            Element::I32 | Element::U8 | Element::Bool | Element::Other => Err(unsuited("such weights")),
        }
    }

    /// A tensor of zeros that a model can write to, in the width a model declares.
    ///
    /// # Errors
    /// When there is no memory for it, or the model wants no float.
    pub fn room(element: Element, shape: &[usize]) -> Result<Self, Fault> {
        let element = match element {
            Element::F32 => TensorElementType::Float32,
            Element::F16 => TensorElementType::Float16,
            Element::I64 | Element::I32 | Element::U8 | Element::Bool | Element::Other => {
                return Err(unsuited("floats"));
            }
        };
        DynTensor::new(&Allocator::default(), element, shape.to_vec())
            .map(|tensor| Self(tensor.into_dyn()))
            .map_err(engine)
    }

    /// Takes over what another tensor of floats holds: of each of its blocks of `from` values, the first `count`, to the
    /// start of each of this one's blocks of `to` values.
    ///
    /// # Errors
    /// When their element types differ or the blocks do not fit.
    pub fn take_over(&mut self, other: &Self, from: usize, to: usize, count: usize) -> Result<(), Fault> {
        fn blocks<T: Copy>(source: &[T], target: &mut [T], [from, to, count]: [usize; 3]) -> Option<()> {
            for (source, target) in source.chunks_exact(from).zip(target.chunks_exact_mut(to)) {
                target.get_mut(..count)?.copy_from_slice(source.get(..count)?);
            }
            Some(())
        }
        let sizes = [from.max(1), to.max(1), count];
        let done = if let Ok((_, source)) = other.0.try_extract_tensor::<f16>() {
            blocks(source, self.0.try_extract_tensor_mut::<f16>().map_err(engine)?.1, sizes)
        } else {
            blocks(other.as_f32()?, self.0.try_extract_tensor_mut::<f32>().map_err(engine)?.1, sizes)
        };
        done.ok_or_else(|| Fault::Engine("a state does not fit where it is moved to".to_owned()))
    }

    /// The last row of a tensor of floats `[…, rows, width]`, as 32-bit floats.
    ///
    /// # Errors
    /// When it has no row, or holds no floats.
    pub fn last_row(&self) -> Result<Vec<f32>, Fault> {
        let width = self.shape().last().copied().unwrap_or(0);
        let row = if let Ok((_, values)) = self.0.try_extract_tensor::<f16>() {
            values
                .len()
                .checked_sub(width)
                .and_then(|start| values.get(start..))
                .map(|row| row.iter().map(|value| value.to_f32()).collect::<Vec<_>>())
        } else {
            let values = self.as_f32()?;
            values.len().checked_sub(width).and_then(|start| values.get(start..)).map(<[f32]>::to_vec)
        };
        row.filter(|row| !row.is_empty()).ok_or_else(|| Fault::Engine("a tensor has no last row".to_owned()))
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        self.0.shape().iter().map(|&side| usize::try_from(side).unwrap_or(0)).collect()
    }

    /// Its values, where they are 32-bit floats.
    ///
    /// # Errors
    /// When they are not.
    pub fn as_f32(&self) -> Result<&[f32], Fault> {
        self.0.try_extract_tensor::<f32>().map(|(_, values)| values).map_err(engine)
    }

    /// Its values, where they are 64-bit integers.
    ///
    /// # Errors
    /// When they are not.
    pub fn as_i64(&self) -> Result<&[i64], Fault> {
        self.0.try_extract_tensor::<i64>().map(|(_, values)| values).map_err(engine)
    }

    /// Its values as 32-bit floats, whether they are 32 or 16 bits wide.
    ///
    /// # Errors
    /// When they are neither.
    pub fn to_f32(&self) -> Result<Vec<f32>, Fault> {
        if let Ok((_, values)) = self.0.try_extract_tensor::<f16>() {
            return Ok(values.iter().map(|value| value.to_f32()).collect());
        }
        self.as_f32().map(<[f32]>::to_vec)
    }
}

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    session: Session,
    inputs: Vec<Outlet>,
    outputs: Vec<Outlet>,
    digest: Digest,
    provider: Provider,
    appends_in_place: bool,
    gives_back: bool,
    spent: Duration,
}

/// A part of a model's state that the model appends to where it lies.
#[derive(Debug)]
pub struct Held<'a> {
    /// The input that takes it.
    pub past: &'a str,
    /// The output that gives it.
    pub present: &'a str,
    /// The part itself, with room for what is appended; made by [`Tensor::room`].
    pub part: &'a mut Tensor,
}

impl Model {
    /// What it takes.
    #[must_use]
    pub fn inputs(&self) -> &[Outlet] {
        &self.inputs
    }

    /// What it gives.
    #[must_use]
    pub fn outputs(&self) -> &[Outlet] {
        &self.outputs
    }

    /// SHA-256 of its file.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The provider that runs it.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        self.provider
    }

    /// Time spent inside ONNX Runtime since loading; what a benchmark divides by.
    #[must_use]
    pub const fn spent(&self) -> Duration {
        self.spent
    }

    /// Whether it has an operator that can append to a state where it lies. Whether it does so rightly is for the
    /// caller to try.
    #[must_use]
    pub const fn appends_in_place(&self) -> bool {
        self.appends_in_place
    }

    /// Whether runs from now on give the memory of their intermediate values back instead of keeping it for the next: for
    /// the large runs of models of which one runs after the other.
    pub const fn give_back(&mut self, yes: bool) {
        self.gives_back = yes;
    }

    fn options(&self) -> Result<RunOptions, Fault> {
        let mut options = RunOptions::new().map_err(engine)?;
        // A device's own memory is its provider's business.
        if self.gives_back && self.provider == Provider::Cpu {
            options.set("memory.enable_memory_arena_shrinkage", "cpu:0").map_err(engine)?;
        }
        Ok(options)
    }

    /// Runs the model over named inputs and a state that it appends to where it lies, and gives back the named outputs.
    ///
    /// # Errors
    /// [`Fault::Engine`] when ONNX Runtime fails or an output is missing.
    pub fn run_in_place<'t>(
        &mut self,
        inputs: impl IntoIterator<Item = (&'t str, &'t Tensor)>,
        state: impl IntoIterator<Item = Held<'t>>,
        outputs: &[&str],
    ) -> Result<Vec<Tensor>, Fault> {
        let mut binding = self.session.create_binding().map_err(engine)?;
        for held in state {
            binding.bind_input(held.past, &held.part.0).map_err(engine)?;
            binding.bind_output(held.present, &mut held.part.0).map_err(engine)?;
        }
        self.run_bound(binding, inputs, outputs, &[])
    }

    /// Runs the model as [`Model::run`] does; the outputs named in `kept` stay in the memory of the provider that runs
    /// it, to be handed back as they are, and come after the others.
    ///
    /// # Errors
    /// [`Fault::Engine`] when ONNX Runtime fails or an output is missing.
    pub fn run_keeping<'t>(
        &mut self,
        inputs: impl IntoIterator<Item = (&'t str, &'t Tensor)>,
        outputs: &[&str],
        kept: &[&str],
    ) -> Result<Vec<Tensor>, Fault> {
        let binding = self.session.create_binding().map_err(engine)?;
        self.run_bound(binding, inputs, outputs, kept)
    }

    fn run_bound<'t>(
        &mut self,
        mut binding: IoBinding,
        inputs: impl IntoIterator<Item = (&'t str, &'t Tensor)>,
        outputs: &[&str],
        kept: &[&str],
    ) -> Result<Vec<Tensor>, Fault> {
        for (name, tensor) in inputs {
            binding.bind_input(name, &tensor.0).map_err(engine)?;
        }
        let device = match self.provider {
            Provider::Cpu => AllocationDevice::CPU,
            Provider::Cuda | Provider::Tensorrt => AllocationDevice::CUDA,
        };
        for (names, device) in [(outputs, AllocationDevice::CPU), (kept, device)] {
            let memory = MemoryInfo::new(device, 0, AllocatorType::Device, MemoryType::Default).map_err(engine)?;
            for name in names {
                binding.bind_output_to_device(*name, &memory).map_err(engine)?;
            }
        }
        let options = self.options()?;
        #[expect(clippy::disallowed_methods, reason = "measures the engine, decides nothing")]
        let start = Instant::now();
        let mut answered = self.session.run_binding_with_options(&binding, &options).map_err(engine)?;
        self.spent += start.elapsed();
        collect(outputs.iter().chain(kept), |name| answered.remove(name))
    }

    /// Runs the model over named inputs and gives back the named outputs, in the order asked for.
    ///
    /// # Errors
    /// [`Fault::Engine`] when ONNX Runtime fails or an output is missing.
    pub fn run<'t>(
        &mut self,
        inputs: impl IntoIterator<Item = (&'t str, &'t Tensor)>,
        outputs: &[&str],
    ) -> Result<Vec<Tensor>, Fault> {
        let inputs: Vec<(&str, SessionInputValue<'_>)> =
            inputs.into_iter().map(|(name, tensor)| (name, (&tensor.0).into())).collect();
        let options = self.options()?;
        #[expect(clippy::disallowed_methods, reason = "measures the engine, decides nothing")]
        let start = Instant::now();
        let mut answered = self.session.run_with_options(inputs, &options).map_err(engine)?;
        self.spent += start.elapsed();
        collect(outputs, |name| answered.remove(name))
    }
}

fn collect<'n>(
    names: impl IntoIterator<Item = &'n &'n str>,
    mut output: impl FnMut(&str) -> Option<DynValue>,
) -> Result<Vec<Tensor>, Fault> {
    let missing = |name: &str| Fault::Engine(format!("the model gave no {name}"));
    names.into_iter().map(|name| output(name).map(Tensor).ok_or_else(|| missing(name))).collect()
}

/// Refuses values that are not finite or all zero, which is what a failed half-precision kernel leaves behind.
///
/// # Errors
/// [`Fault::NonFiniteTensor`] or [`Fault::AllZero`], naming the tensor.
pub fn sound(tensor: &str, values: &[f32]) -> Result<(), Fault> {
    if values.iter().any(|value| !value.is_finite()) {
        return Err(Fault::NonFiniteTensor { tensor: tensor.to_owned() });
    }
    if values.iter().all(|value| value.to_bits() << 1 == 0) {
        return Err(Fault::AllZero { tensor: tensor.to_owned() });
    }
    Ok(())
}

fn unsuited(given: &str) -> Fault {
    Fault::Engine(format!("the model does not take {given} here"))
}

/// `ort`'s errors carry what they failed on and are not `Send`: only the message travels on.
fn engine<T>(error: ort::Error<T>) -> Fault {
    Fault::Engine(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_clear_error_at_once() {
        let settings = EngineSettings {
            library: PathBuf::from("nowhere/libonnxruntime.so"),
            threads: 1,
            providers: vec![Provider::Cpu],
            allow_fallback: false,
            engine_cache: None,
        };
        let error = Engine::load(settings).expect_err("nothing there");
        assert!(error.to_string().contains("nowhere/libonnxruntime.so"), "{error}");
    }

    #[test]
    fn failed_kernels_are_named() {
        assert_eq!(sound("x", &[0.0, -0.0]), Err(Fault::AllZero { tensor: "x".to_owned() }));
        assert_eq!(sound("x", &[1.0, f32::NAN]), Err(Fault::NonFiniteTensor { tensor: "x".to_owned() }));
        assert_eq!(sound("x", &[0.0, 1.0]), Ok(()));
    }
}
