//! Questions to an endpoint, each asked once: answers lie under the digest of what was asked, so that a run that was
//! killed, or repeated, or shared by processes, never pays for an answer twice.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::offline::endpoint::{Channel, Silence};
use crate::offline::write_whole;
use crate::triple::Digest;

/// Sampling fields that not every endpoint knows; one that an endpoint complains about is left out from then on.
const OPTIONAL: [&str; 3] = ["top_k", "seed", "logit_bias"];

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The folder's budget is spent.
    #[error("the folder's budget of {0} calls is spent; run the same command with a larger --calls-max to go on")]
    Budget(u64),
    /// A replay came to a question that was never answered.
    #[error("nothing is recorded under {0}; run without --replay to ask the endpoint")]
    NotRecorded(PathBuf),
    /// The endpoint did not answer.
    #[error(transparent)]
    Silence(#[from] Silence),
    /// The store of answers cannot be read or written.
    #[error("{path}: {source}")]
    Store {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// What is kept of a question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// What was asked, pictures as their digests.
    pub request: Value,
    /// Which asking of the same question it was, from 0.
    pub repeat: u32,
    /// Fields that the endpoint refused and that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What came back.
    pub answer: String,
}

/// An answer and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The digest it lies under.
    pub call: Digest,
}

/// An endpoint and the answers it has given.
#[derive(Debug)]
pub struct Calls {
    channel: Option<Channel>,
    folder: PathBuf,
    calls_max: Option<u64>,
    left_out: Vec<&'static str>,
    /// Questions that went to the endpoint now.
    pub asked: u64,
    /// Questions whose answer was there.
    pub reused: u64,
}

impl Calls {
    /// Answers from `folder`, and from the endpoint where there is none yet. Without a channel only what is there is
    /// answered: that is how a recording is replayed. `calls_max` bounds the questions that were ever asked with answers
    /// in this folder, by whatever process and of whatever endpoint; a question asked again while it may help is one.
    #[must_use]
    pub fn new(channel: Option<Channel>, folder: &Path, calls_max: Option<u64>) -> Self {
        Self { channel, folder: folder.to_owned(), calls_max, left_out: Vec::new(), asked: 0, reused: 0 }
    }

    /// The answer to the `repeat`th asking of a question.
    ///
    /// # Errors
    /// When the budget is spent, the endpoint stays silent, or the store fails.
    pub fn answer(&mut self, request: &Value, repeat: u32) -> Result<Answer, CallError> {
        // Requests are built in one order, so that the same question has the same bytes.
        let call = Digest::of(format!("{request}\n{repeat}").as_bytes());
        let name = call.to_string();
        let (head, rest) = name.split_at(2);
        let path = self.folder.join(head).join(format!("{rest}.json"));
        let failed = |source| CallError::Store { path: path.clone(), source };
        match std::fs::read(&path) {
            Ok(text) => {
                let kept: Kept = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
                self.reused += 1;
                return Ok(Answer { text: kept.answer, call });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let answer = self.ask(request, &path)?;
        let left_out = self.left_out.iter().filter(|field| request.get(**field).is_some());
        let kept = Kept {
            request: without_pictures(request),
            repeat,
            left_out: left_out.map(|field| (*field).to_owned()).collect(),
            answer,
        };
        let text = serde_json::to_vec(&kept).map_err(|error| failed(error.into()))?;
        write_whole(&path, &text).map_err(failed)?;
        Ok(Answer { text: kept.answer, call })
    }

    fn ask(&mut self, request: &Value, unrecorded: &Path) -> Result<String, CallError> {
        let Some(channel) = &self.channel else { return Err(CallError::NotRecorded(unrecorded.to_owned())) };
        if let Some(most) = self.calls_max {
            self.spend(most)?;
        }
        self.asked += 1;
        loop {
            let mut sent = request.clone();
            if let Value::Object(fields) = &mut sent {
                fields.retain(|name, _| !self.left_out.iter().any(|field| field == name));
            }
            match channel.ask(&sent) {
                Ok(answer) => return Ok(answer),
                Err(Silence::Status { status: status @ (400 | 422), body, retry_after }) => {
                    let unknown = OPTIONAL.iter().find(|field| body.contains(**field) && sent.get(**field).is_some());
                    match unknown {
                        Some(field) => self.left_out.push(field),
                        None => return Err(Silence::Status { status, body, retry_after }.into()),
                    }
                }
                Err(silence) => return Err(silence.into()),
            }
        }
    }

    /// Takes one call of the budget. The ledger beside the folder is as many bytes long as calls were taken, by every
    /// process that has a budget; what others asked, and what other folders brought, is counted once from the answers.
    fn spend(&self, most: u64) -> Result<(), CallError> {
        let path = self.folder.with_extension("spent");
        let failed = |source| CallError::Store { path: path.clone(), source };
        let ledger = File::options().create(true).append(true).open(&path).map_err(failed)?;
        ledger.lock().map_err(failed)?;
        let mut spent = ledger.metadata().map_err(failed)?.len();
        if self.asked == 0 {
            spent = spent.max(stored(&self.folder).map_err(failed)?);
        }
        if spent >= most {
            return Err(CallError::Budget(most));
        }
        ledger.set_len(spent + 1).map_err(failed)
    }
}

/// How many answers lie in a folder.
fn stored(folder: &Path) -> std::io::Result<u64> {
    let mut stored = 0;
    if folder.exists() {
        for head in std::fs::read_dir(folder)? {
            for answer in std::fs::read_dir(head?.path())? {
                stored += u64::from(answer?.path().extension().is_some_and(|extension| extension == "json"));
            }
        }
    }
    Ok(stored)
}

/// A request with each picture replaced by its digest: what is kept stays small and shows nobody's home.
fn without_pictures(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("data:image/") => {
            json!(format!("sha256:{}", Digest::of(text.as_bytes())))
        }
        Value::Array(items) => items.iter().map(without_pictures).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), without_pictures(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
