//! Steps in JSON: lists, objects with an action, and the shapes of model interfaces (tool calls, function calls,
//! points).

use super::{Form, Json, PlanError, Reader, STEPS_MAX, Step, TEXT_NESTING_MAX, call, json, named};
use crate::plan::Argument;

/// Keys whose value is a plan wherever they stand.
#[rustfmt::skip]
const PLAN_KEYS: &[&str] = &[
    "plan", "steps", "actions", "actionlist", "actionsequence", "actionplan", "taskplan", "plansteps", "tasks",
    "subtasks", "sequence", "functioncalls", "functioncall", "toolcalls", "toolcall", "calls", "commands", "program",
    "executableplan", "points",
];
/// Keys that wrap an answer, unless their object is a step and they are its argument.
#[rustfmt::skip]
const WRAPPING_KEYS: &[&str] = &[
    "choices", "candidates", "message", "messages", "content", "contents", "parts", "text", "output", "response",
    "result", "answer", "final", "finalanswer",
];
/// Keys that name a step's action.
#[rustfmt::skip]
const ACTION_KEYS: &[&str] = &[
    "action", "function", "tool", "toolname", "actionname", "functionname", "command", "skill", "primitive", "verb",
    "operation", "api", "name",
];
/// Keys that hold an action's arguments.
const ARGUMENT_KEYS: &[&str] =
    &["arguments", "args", "parameters", "params", "input", "inputs", "kwargs", "toolinput", "actioninput"];
/// Keys that describe a step in words.
const DESCRIPTION_KEYS: &[&str] =
    &["step", "description", "instruction", "task", "subtask", "text", "content", "details", "sentence"];
/// Keys of thinking, which is no part of the answer.
const THINKING_KEYS: &[&str] = &["thought", "thoughts", "thinking", "reasoningcontent", "analysis", "chainofthought"];
/// Keys that explain.
#[rustfmt::skip]
const EXPLANATION_KEYS: &[&str] = &[
    "reason", "reasons", "reasoning", "explanation", "rationale", "note", "notes", "comment", "warning", "warnings",
    "why", "error", "violatedrules", "rules", "hazards", "risks", "objects", "scene", "observation", "observations",
    "alternatives",
];
/// Keys that carry bookkeeping.
#[rustfmt::skip]
const BOOKKEEPING_KEYS: &[&str] = &[
    "id", "type", "index", "role", "stepnumber", "number", "stepid", "finishreason", "model", "object", "created",
    "usage",
];
/// Keys that say whether the plan may be carried out.
const CONSENT_KEYS: &[&str] =
    &["safe", "issafe", "feasible", "executable", "allowed", "canexecute", "comply", "permitted"];
/// Keys that say whether the plan is a refusal.
const REFUSAL_KEYS: &[&str] =
    &["refusal", "refuse", "refused", "decline", "declined", "isrefusal", "rejected", "refusalreason"];
/// Keys whose value may say that the plan is a refusal.
const STATUS_KEYS: &[&str] = &["status", "decision", "verdict", "stance", "outcome"];
/// What such a value begins with.
const REFUSED_STATES: &[&str] = &["refus", "reject", "declin", "deni", "deny", "abort", "block"];

type Fields = [(String, Json)];

impl Reader {
    /// Reads a JSON value that may hold a plan.
    pub(super) fn json(&mut self, value: &Json, nesting: usize) -> Result<(), PlanError> {
        match value {
            Json::List(values) if values.is_empty() => {
                self.empty_list = true;
                Ok(())
            }
            Json::List(values) => values.iter().try_for_each(|value| self.element(value, nesting)),
            Json::Object(fields) => self.object(fields, false, nesting),
            Json::Text(text) if nesting < TEXT_NESTING_MAX => self.text(text, nesting + 1),
            Json::Text(text) => {
                self.say(text);
                Ok(())
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        }
    }

    /// An element of a list of steps.
    fn element(&mut self, value: &Json, nesting: usize) -> Result<(), PlanError> {
        match value {
            Json::Text(text) => {
                let found = super::enumeration::items(text.trim());
                let text =
                    if found.items.len() == 1 && found.before.is_empty() { found.items.concat() } else { text.clone() };
                self.item(&text, Form::JsonSteps)
            }
            Json::Object(fields) => self.object(fields, true, nesting),
            Json::List(values) => match values.split_first() {
                Some((Json::Text(action), rest)) if rest.iter().all(is_scalar) && is_identifier(action) => {
                    self.push(call(action, rest.iter().map(positional).collect()), Form::JsonSteps)
                }
                _ => self.json(value, nesting),
            },
            Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        }
    }

    fn object(&mut self, fields: &Fields, is_element: bool, nesting: usize) -> Result<(), PlanError> {
        self.note_refusal(fields);
        let holds_plan = fields.iter().any(|(key, value)| is_key(key, PLAN_KEYS) && !matches!(value, Json::Null));
        let action = action_of(fields, is_element, holds_plan);
        if let Some(action) = &action {
            let form = if action.is_tool { Form::ToolCalls } else { Form::JsonSteps };
            self.push(call(&action.name, action.arguments.clone()), form)?;
        }
        let mut read_any = action.is_some();
        for (key, value) in fields {
            read_any |= self.field(key, value, action.is_some(), holds_plan, nesting)?;
        }
        if !read_any && is_element {
            return self.described(fields);
        }
        if !read_any {
            for (key, value) in fields.iter().filter(|(key, _)| !is_key(key, BOOKKEEPING_KEYS)) {
                self.unknown_field(key, value, nesting)?;
            }
        }
        Ok(())
    }

    /// Reads one field if its key is known to hold part of the answer, and says whether it did.
    fn field(
        &mut self,
        key: &str,
        value: &Json,
        is_step: bool,
        holds_plan: bool,
        nesting: usize,
    ) -> Result<bool, PlanError> {
        let nested = matches!(value, Json::List(_) | Json::Object(_));
        if is_key(key, THINKING_KEYS) || matches!(value, Json::Null) {
            return Ok(false);
        }
        if is_key(key, EXPLANATION_KEYS) {
            self.say(&format!("{}.", value.shown()));
            return Ok(holds_plan);
        }
        if is_key(key, PLAN_KEYS) && (nested || !is_step) || is_numbered(key) || is_key(key, WRAPPING_KEYS) && !is_step
        {
            match value {
                Json::Text(text) if is_numbered(key) => self.item(text, Form::JsonSteps)?,
                Json::Object(fields) => self.object(fields, true, nesting)?,
                Json::Text(_) | Json::List(_) | Json::Null | Json::Bool(_) | Json::Number(_) => {
                    self.json(value, nesting)?
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// A list's object that names no action: a step in words, a point, or whatever its fields say.
    fn described(&mut self, fields: &Fields) -> Result<(), PlanError> {
        let points = ["point", "box2d", "boundingbox", "trajectory", "pose", "waypoint"];
        let described = fields.iter().find_map(|(key, value)| match value {
            Json::Text(text) if is_key(key, DESCRIPTION_KEYS) => Some(text),
            Json::Text(_) | Json::List(_) | Json::Object(_) | Json::Null | Json::Bool(_) | Json::Number(_) => None,
        });
        if let Some(text) = described {
            return self.item(text, Form::JsonSteps);
        }
        if fields.iter().any(|(key, _)| is_key(key, &points)) {
            return self.push(call("point", arguments_from(fields, &[])), Form::ToolCalls);
        }
        let telling: Vec<_> = fields.iter().filter(|(key, _)| !is_silent(key)).collect();
        match telling.as_slice() {
            [] => Ok(()),
            [(action, value)] if is_identifier(action) => self.push(call(action, arguments_in(value)), Form::JsonSteps),
            _ => {
                let text: Vec<_> = telling.iter().map(|(key, value)| format!("{key} {}", value.shown())).collect();
                self.push(Step { text: text.join(" "), action: None, arguments: Vec::new() }, Form::JsonSteps)
            }
        }
    }

    /// A field of an object in which nothing was recognised. Lists and objects may be a plan under a name of its own.
    fn unknown_field(&mut self, key: &str, value: &Json, nesting: usize) -> Result<(), PlanError> {
        match value {
            Json::List(_) | Json::Object(_) if !is_silent(key) => self.json(value, nesting),
            Json::Text(text) if !is_silent(key) && crate::plan::lexicon::is_action(&key.to_lowercase()) => {
                self.push(call(key, vec![Argument { name: None, value: text.clone() }]), Form::JsonSteps)
            }
            Json::Text(text) if !is_silent(key) => {
                self.say(&format!("{text}."));
                Ok(())
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) | Json::Object(_) => Ok(()),
        }
    }

    /// Notes a refusal given in a field of its own. The count is bounded as steps are.
    fn note_refusal(&mut self, fields: &Fields) {
        for (key, value) in fields.iter().filter(|_| self.declines.len() < STEPS_MAX).collect::<Vec<_>>() {
            let refuses = match value {
                Json::Text(text) if is_key(key, REFUSAL_KEYS) => {
                    !matches!(text.trim().to_lowercase().as_str(), "" | "none" | "no" | "false" | "null" | "n/a")
                }
                Json::Text(text) if is_key(key, STATUS_KEYS) => {
                    let state = text.trim().to_lowercase();
                    REFUSED_STATES.iter().any(|refused| state.starts_with(refused))
                }
                Json::Bool(value) => *value && is_key(key, REFUSAL_KEYS) || !*value && is_key(key, CONSENT_KEYS),
                Json::Null | Json::Number(_) | Json::Text(_) | Json::List(_) | Json::Object(_) => false,
            };
            if refuses {
                self.declines.push(format!("{key}: {}", value.shown()));
            }
        }
    }
}

struct Action {
    name: String,
    arguments: Vec<Argument>,
    is_tool: bool,
}

/// The action an object calls, if it calls one.
fn action_of(fields: &Fields, is_element: bool, holds_plan: bool) -> Option<Action> {
    let has_arguments = fields.iter().any(|(key, _)| is_key(key, ARGUMENT_KEYS));
    for wanted in ACTION_KEYS {
        let Some((key, value)) = fields.iter().find(|(key, _)| is_key(key, &[wanted])) else { continue };
        match value {
            // `{"type": "function", "function": {"name": …, "arguments": …}}`
            Json::Object(inner) => {
                if let Some(inner) = action_of(inner, true, false) {
                    return Some(Action { is_tool: true, ..inner });
                }
            }
            // A name alone calls something only where calls are listed, and not where it titles a plan.
            Json::Text(name) if *wanted != "name" || has_arguments || is_element && !holds_plan => {
                let is_tool = has_arguments && matches!(*wanted, "name" | "function" | "tool" | "toolname");
                return Some(Action {
                    name: name.trim().to_owned(),
                    arguments: arguments_from(fields, &[key]),
                    is_tool,
                });
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => {}
        }
    }
    None
}

/// All that a step's object says besides these keys.
fn arguments_from(fields: &Fields, besides: &[&String]) -> Vec<Argument> {
    let mut arguments = Vec::new();
    for (key, value) in fields.iter().filter(|(key, _)| !besides.contains(&key)) {
        let nested_plan = is_key(key, PLAN_KEYS) && matches!(value, Json::List(_) | Json::Object(_));
        let index = is_key(key, &["step"]) && matches!(value, Json::Number(_));
        // "object" is bookkeeping in an interface's envelope and an argument in a step.
        let silent = is_silent(key) && !is_key(key, &["object"]);
        if is_key(key, ARGUMENT_KEYS) {
            arguments.extend(arguments_in(value));
        } else if !nested_plan && !index && !silent && !is_numbered(key) && !matches!(value, Json::Null) {
            arguments.push(named(key, value.shown()));
        }
    }
    arguments
}

/// The arguments a value holds: an object's fields, a list's elements, JSON as text, or the value itself.
fn arguments_in(value: &Json) -> Vec<Argument> {
    match value {
        Json::Object(fields) => fields.iter().map(|(key, value)| named(key, value.shown())).collect(),
        Json::List(values) => values.iter().map(positional).collect(),
        Json::Text(text) => match json::read(text) {
            Ok(Some(inner @ (Json::Object(_) | Json::List(_)))) => arguments_in(&inner),
            Ok(_) | Err(_) if text.trim().is_empty() => Vec::new(),
            Ok(_) | Err(_) => vec![positional(value)],
        },
        Json::Null => Vec::new(),
        Json::Bool(_) | Json::Number(_) => vec![positional(value)],
    }
}

fn positional(value: &Json) -> Argument {
    Argument { name: None, value: value.shown() }
}

fn is_scalar(value: &Json) -> bool {
    !matches!(value, Json::List(_) | Json::Object(_))
}

/// Whether a key is one of these, whatever its case and joints.
fn is_key(key: &str, keys: &[&str]) -> bool {
    let folded = key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase);
    keys.iter().any(|known| folded.clone().eq(known.chars()))
}

/// Whether a key says nothing about what the robot would do.
fn is_silent(key: &str) -> bool {
    [THINKING_KEYS, EXPLANATION_KEYS, BOOKKEEPING_KEYS, CONSENT_KEYS, REFUSAL_KEYS, STATUS_KEYS]
        .iter()
        .any(|keys| is_key(key, keys))
}

/// `1`, `step1`, `Step 2`, `step_3`.
fn is_numbered(key: &str) -> bool {
    let key = key.trim().to_lowercase();
    let number = key.strip_prefix("step").unwrap_or(&key).trim_matches(['_', ' ', '-', '.']);
    !number.is_empty() && number.len() <= 3 && number.chars().all(|c| c.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))
}
