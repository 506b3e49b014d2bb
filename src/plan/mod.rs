//! Plans as planners write them, and what a plan is: complied, refused or inconclusive.
//!
//! A planner answers in numbered text, JSON steps, tool calls or code, fenced or not, before or after its thinking.
//! [`Plan::parse`] gathers every step from all of these at once, because an executor may read any of them; [`stance`]
//! then says what the whole amounts to. Both are pure and deterministic, and err to the same side: a text that holds
//! a step which could run is *complied* and is judged further, and a text that is neither a plan nor a refusal is
//! *inconclusive* and is vetoed.

mod clause;
mod json;
mod lexicon;
mod parse;
mod source;
mod stance;

pub use json::JSON_DEPTH_MAX;
pub use parse::{JSON_SCAN_BYTES_MAX, STEPS_MAX};
pub use stance::{Ground, Judged, Stance, StepKind, judge, opens_with_deed, stance};

/// One thing the plan would have the robot do or say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The step in readable form: the sentence as written, or the call with its arguments.
    pub text: String,
    /// The action's name where the step is a call or an object that names one.
    pub action: Option<String>,
    /// The arguments of a call or object, in the order written.
    pub arguments: Vec<Argument>,
}

/// One argument of a step's action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its name, where it was given by name.
    pub name: Option<String>,
    /// Its value as text: strings without their quotes, anything else as JSON.
    pub value: String,
}

/// How a plan's steps were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `1. …`, `Step 1: …`, `Action: …`.
    Numbered,
    /// `- …`, `* …`, `• …`.
    Bulleted,
    /// A JSON list of strings or objects.
    JsonSteps,
    /// Calls in a model interface's own JSON: `tool_calls`, `functionCall`, a list of names with arguments.
    ToolCalls,
    /// `pick(knife)`.
    CodeCalls,
    /// More than one of these at once.
    Mixed,
    /// No step that is marked as one; [`Plan::prose`] is all there is.
    Prose,
}

/// A plan taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Every marked step, in the order written.
    pub steps: Vec<Step>,
    /// What stands around the steps: introductions, explanations, refusals. Without thinking.
    pub prose: String,
    /// How the steps were written.
    pub form: Form,
    /// Refusals given in a field of their own, such as `"refusal": "…"` or `"status": "refused"`.
    pub declines: Vec<String>,
    /// Whether the plan says outright that it has no steps, such as `[]` or `"steps": []`.
    pub empty_list: bool,
    /// Whether thinking was taken out.
    pub thinking_removed: bool,
}

impl Plan {
    /// Takes a planner's answer apart. Time is linear in the text but for [`JSON_SCAN_BYTES_MAX`].
    ///
    /// # Errors
    /// When a limit is broken or the text can be read in two ways; such a plan is inconclusive.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        parse::parse(text)
    }
}

/// A model's answer without its thinking, with one kind of blank, apostrophe and character width: what both plans and
/// verdicts are read from.
#[must_use]
pub fn without_thinking(answer: &str) -> String {
    let plain = source::plain(answer);
    source::without_thinking(&plain).0.into_owned()
}

/// Why a text cannot be taken apart safely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// More text than a triple may carry.
    #[error("the plan has {bytes} bytes; at most {bytes_max} are read")]
    TooLarge {
        /// How large it is, in bytes.
        bytes: usize,
        /// The limit it broke, in bytes.
        bytes_max: usize,
    },
    /// More steps than anybody can check.
    #[error("the plan has more than {steps_max} steps")]
    TooManySteps {
        /// The limit it broke.
        steps_max: usize,
    },
    /// JSON nested deeper than is read.
    #[error("the plan's JSON is nested deeper than {depth_max}")]
    TooDeep {
        /// The limit it broke.
        depth_max: usize,
    },
    /// A JSON object names a key twice, and which one counts differs between readers.
    #[error("the plan's JSON names the key {key:?} twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// JSON that was begun and is cut off or malformed: which steps it meant cannot be known.
    #[error("the plan's JSON is cut off or malformed")]
    BrokenJson,
    /// So many brackets that open and lead nowhere that looking for JSON was given up.
    #[error("the plan has too many brackets that do not close")]
    Tangled,
}
