//! Every step a planner's answer holds, whichever way it is written, in the order written.

mod calls;
mod enumeration;
mod objects;

use super::json::{self, Found, Json};
use super::{Argument, Form, Plan, PlanError, Step, source};
use crate::triple::PLAN_BYTES_MAX;

/// Most steps a plan may have.
pub const STEPS_MAX: usize = 256;
/// Most bytes looked at, over all tries, in search of JSON.
pub const JSON_SCAN_BYTES_MAX: usize = 16 * PLAN_BYTES_MAX;
/// How often a text inside JSON may hold a plan in turn; deeper text is prose.
const TEXT_NESTING_MAX: usize = 3;
/// How far before a bracket a call's opening parenthesis is looked for, in bytes.
const CALL_LOOK_BACK_BYTES: usize = 128;
/// Labels ahead of steps that carry no number.
const STEP_LABELS: &[&str] =
    &["action", "actions", "next action", "command", "commands", "plan", "final plan", "steps"];

/// What [`Plan::parse`] does.
pub(super) fn parse(text: &str) -> Result<Plan, PlanError> {
    if text.len() > PLAN_BYTES_MAX {
        return Err(PlanError::TooLarge { bytes: text.len(), bytes_max: PLAN_BYTES_MAX });
    }
    let plain = source::plain(text);
    let (spoken, thinking_removed) = source::without_thinking(&plain);
    let mut reader = Reader::default();
    reader.text(unquoted(spoken.trim()), 0)?;
    let form = reader.form.unwrap_or(Form::Prose);
    let Reader { steps, prose, declines, empty_list, .. } = reader;
    Ok(Plan { steps, prose: prose.trim().to_owned(), form, declines, empty_list, thinking_removed })
}

/// An answer put into quotation marks as a whole, without them.
fn unquoted(text: &str) -> &str {
    let inside = text.strip_prefix(['"', '“']).and_then(|text| text.strip_suffix(['"', '”']));
    inside.filter(|inside| !inside.contains(['"', '“', '”'])).unwrap_or(text)
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    prose: String,
    form: Option<Form>,
    declines: Vec<String>,
    empty_list: bool,
    scanned_bytes: usize,
}

impl Reader {
    /// Reads a text: the JSON in it as JSON, the rest line by line.
    fn text(&mut self, text: &str, nesting: usize) -> Result<(), PlanError> {
        let (mut read_to, mut at) = (0, 0);
        while let Some(open) = text.get(at..).and_then(|rest| rest.find(['{', '['])).map(|offset| at + offset) {
            at = open + 1;
            if inside_call(text, open) {
                continue;
            }
            let (value, bytes) = match json::find(text.get(open..).unwrap_or(""))? {
                Found::Value(value, bytes) => (Some(value), bytes),
                Found::Nothing(bytes) => (None, bytes),
            };
            self.spend(bytes)?;
            if value.is_none() && begins_like_json(text.get(at..).unwrap_or("")) {
                return Err(PlanError::BrokenJson);
            }
            let Some(value) = value.filter(|value| says_something(value, stands_alone(text, open, bytes))) else {
                continue;
            };
            self.lines(text.get(read_to..open).unwrap_or(""))?;
            self.json(&value, nesting)?;
            read_to = open + bytes;
            at = read_to;
        }
        self.lines(text.get(read_to..).unwrap_or(""))
    }

    fn spend(&mut self, bytes: usize) -> Result<(), PlanError> {
        self.scanned_bytes = self.scanned_bytes.saturating_add(bytes);
        if self.scanned_bytes > JSON_SCAN_BYTES_MAX { Err(PlanError::Tangled) } else { Ok(()) }
    }

    /// Reads text without JSON.
    fn lines(&mut self, text: &str) -> Result<(), PlanError> {
        let mut open: Option<OpenItem> = None;
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let line = line.trim();
            if line.is_empty() || is_fence(line) {
                continue;
            }
            let (line, bullet) = without_marks(line);
            let found = enumeration::items(line);
            if !found.items.is_empty() {
                self.close(&mut open)?;
                self.say(found.before);
                for text in found.items {
                    self.close(&mut open)?;
                    open = Some(OpenItem { text: text.to_owned(), form: Form::Numbered, indent });
                }
            } else if let Some(item) = open.as_mut().filter(|item| item.takes(indent)) {
                item.text.push('\n');
                item.text.push_str(line);
            } else {
                self.close(&mut open)?;
                if bullet {
                    open = Some(OpenItem { text: line.to_owned(), form: Form::Bulleted, indent });
                } else {
                    self.plain_line(line)?;
                }
            }
        }
        self.close(&mut open)
    }

    /// A line that is neither numbered nor a bullet: labelled steps, calls, or prose.
    fn plain_line(&mut self, line: &str) -> Result<(), PlanError> {
        if let Some(labelled) = after_step_label(line) {
            for text in labelled.split([';', '→']).flat_map(|part| part.split("->")) {
                self.item(text, Form::Numbered)?;
            }
            return Ok(());
        }
        let found = calls::calls(line);
        for call in found.calls {
            self.push(call, Form::CodeCalls)?;
        }
        self.say(&found.around);
        Ok(())
    }

    fn close(&mut self, open: &mut Option<OpenItem>) -> Result<(), PlanError> {
        open.take().map_or(Ok(()), |item| self.item(&item.text, item.form))
    }

    /// A step given as text, which may be a call.
    fn item(&mut self, text: &str, form: Form) -> Result<(), PlanError> {
        let text = text.trim().trim_matches(['*', '`', '_']).trim();
        if text.is_empty() {
            return Ok(());
        }
        let found = calls::calls(text);
        if found.calls.is_empty() || !found.around.is_empty() {
            return self.push(Step { text: text.to_owned(), action: None, arguments: Vec::new() }, form);
        }
        found.calls.into_iter().try_for_each(|call| self.push(call, form))
    }

    fn push(&mut self, step: Step, form: Form) -> Result<(), PlanError> {
        if self.steps.len() >= STEPS_MAX {
            return Err(PlanError::TooManySteps { steps_max: STEPS_MAX });
        }
        self.form = Some(match self.form {
            Some(before) if before != form => Form::Mixed,
            _ => form,
        });
        self.steps.push(step);
        Ok(())
    }

    fn say(&mut self, prose: &str) {
        let prose = prose.trim();
        if !prose.is_empty() {
            self.prose.push_str(prose);
            self.prose.push('\n');
        }
    }
}

/// A list item whose end has not been seen.
struct OpenItem {
    text: String,
    form: Form,
    indent: usize,
}

impl OpenItem {
    /// Whether a line indented so far still belongs to it.
    fn takes(&self, indent: usize) -> bool {
        indent > self.indent || self.text.is_empty()
    }
}

/// Whether a call's parenthesis is open here, so that the bracket belongs to its arguments.
fn inside_call(text: &str, at: usize) -> bool {
    let before = text.bytes().take(at).rev().take(CALL_LOOK_BACK_BYTES);
    let mut before = before.skip_while(|byte| !b"()\n".contains(byte));
    before.next() == Some(b'(') && before.next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether what follows a bracket shows that JSON was meant.
fn begins_like_json(inside: &str) -> bool {
    inside.trim_start_matches([' ', '\n', '{', '[']).starts_with(['"', '\''])
}

/// Whether the value is all there is on its lines.
fn stands_alone(text: &str, open: usize, bytes: usize) -> bool {
    let before = text.get(..open).unwrap_or("").trim_end_matches(' ');
    let after = text.get(open + bytes..).unwrap_or("").trim_start_matches(' ');
    (before.is_empty() || before.ends_with('\n')) && (after.is_empty() || after.starts_with('\n'))
}

/// Whether a value can carry a plan or say that there is none; `[1]` in prose does not.
fn says_something(value: &Json, alone: bool) -> bool {
    match value {
        Json::List(values) if values.is_empty() => alone,
        Json::List(values) => {
            values.iter().any(|value| matches!(value, Json::Text(_) | Json::Object(_) | Json::List(_)))
        }
        Json::Object(fields) => alone || !fields.is_empty(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => false,
    }
}

fn is_fence(line: &str) -> bool {
    let info = line.trim_start_matches(['`', '~']);
    line.len() >= info.len() + 3 && info.len() <= 24 && !info.contains([' ', '(', '{', '['])
}

/// A line without heading, quotation and emphasis marks, and whether a bullet stood ahead of it.
fn without_marks(line: &str) -> (&str, bool) {
    let line = line.trim_start_matches(['#', '>', ' ']).trim_start_matches("```");
    let bulleted = ["- ", "* ", "• ", "+ ", "– ", "▪ ", "◦ ", "‣ ", "・", "·"];
    match bulleted.iter().find_map(|bullet| line.strip_prefix(bullet)) {
        Some(item) => (item.trim(), true),
        None => (line.strip_prefix('•').unwrap_or(line).trim(), line.starts_with('•')),
    }
}

fn after_step_label(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(['*', '_']);
    let (label, rest) = line.split_once([':', '：'])?;
    let label = label.trim_end_matches(['*', '_', ' ']);
    let rest = rest.trim_start_matches(['*', '_', ' ']);
    let known = label.len() <= 16 && STEP_LABELS.contains(&label.to_lowercase().as_str());
    (known && !rest.is_empty()).then_some(rest)
}

/// An argument given by name.
fn named(name: &str, value: String) -> Argument {
    Argument { name: Some(name.to_owned()), value }
}

/// A step that calls an action.
fn call(action: &str, arguments: Vec<Argument>) -> Step {
    let shown: Vec<_> = arguments
        .iter()
        .map(|argument| match &argument.name {
            Some(name) => format!("{name}={}", argument.value),
            None => argument.value.clone(),
        })
        .collect();
    let text = match (action.contains(' '), shown.is_empty()) {
        // Some planners write whole sentences where an action's name belongs.
        (true, true) => action.to_owned(),
        (true, false) => format!("{action} ({})", shown.join(", ")),
        (false, _) => format!("{action}({})", shown.join(", ")),
    };
    Step { text, action: Some(action.to_owned()), arguments }
}
