//! Calls as code writes them, `pick(knife)`, alone on a line or inside prose.

use super::{Argument, Step, call, named};

/// Names before a parenthesis that are a language's own and do nothing.
const NOT_CALLS: &[&str] =
    &["if", "for", "while", "elif", "and", "or", "not", "in", "return", "range", "len", "str", "int", "list", "def"];
/// What may stand around calls without being prose.
const GLUE: &[&str] = &["await", "return", "then", "and", "robot", "self", "def", "if", "else", "for", "while", "in"];

/// The calls of one line, and what else it says.
pub(super) struct Calls {
    /// The calls, in order, outermost only.
    pub(super) calls: Vec<Step>,
    /// The line without its calls; empty where only punctuation was left. The whole line where it has no call.
    pub(super) around: String,
}

/// Finds the calls of a text.
pub(super) fn calls(text: &str) -> Calls {
    let mut found = Calls { calls: Vec::new(), around: String::new() };
    let mut read_to = 0;
    for (open, close) in parentheses(text) {
        let Some(before) = text.get(read_to..open) else { continue };
        let name = name_at_end(before);
        let inside = text.get(open + 1..close).unwrap_or("");
        if !is_call(name, before, inside) {
            continue;
        }
        found.around.push_str(before.get(..before.len() - name.len()).unwrap_or(""));
        found.around.push(' ');
        found.calls.push(call(name.rsplit('.').next().unwrap_or(name), arguments(inside)));
        read_to = close + 1;
    }
    found.around.push_str(text.get(read_to..).unwrap_or(""));
    let only_glue = !found.calls.is_empty() && is_glue(&found.around);
    if only_glue {
        found.around.clear();
    }
    found
}

fn is_call(name: &str, before: &str, inside: &str) -> bool {
    let declared = before.strip_suffix(name).is_some_and(|before| before.trim_end().ends_with("def"));
    // A one-letter name is a formula, and `object(s)` a plural.
    let named = name.len() >= 2 && name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    named && !declared && !NOT_CALLS.contains(&name) && !matches!(inside, "s" | "es" | "n" | "en" | "e" | "r")
}

/// The identifier, with its dots, that a text ends in.
fn name_at_end(text: &str) -> &str {
    let named = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    let name = text.trim_end_matches(named);
    text.get(name.len()..).unwrap_or("").trim_start_matches(|c: char| !(c.is_alphabetic() || c == '_'))
}

fn is_glue(text: &str) -> bool {
    let text = text.split_once(" #").or_else(|| text.split_once("//")).map_or(text, |(code, _)| code);
    // What is assigned to is a name, not prose.
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ';' | ',' | ')' | '(' | ':' | '`' | '.' | '>'));
    let mut words = words.filter(|word| word.contains(|c: char| c.is_alphabetic())).peekable();
    let assigned = text.contains('=');
    if assigned {
        return words.count() <= 2;
    }
    words.all(|word| GLUE.contains(&word))
}

/// Outermost pairs of parentheses on one line, in order. One pass: an unclosed parenthesis costs nothing more.
fn parentheses(text: &str) -> Vec<(usize, usize)> {
    let (mut pairs, mut opens): (Vec<(usize, usize)>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open && before != '\\' => quote = None,
            // A quotation does not run over the line's end; what looked like one was an apostrophe.
            (Some(_), '\n') => quote = None,
            (Some(_), _) => {}
            (None, '"') if !opens.is_empty() => quote = Some('"'),
            (None, '\'') if !opens.is_empty() && matches!(before, '(' | ',' | '=' | '[' | ' ') => quote = Some('\''),
            (None, '(') => opens.push(at),
            (None, ')') => {
                if let Some(open) = opens.pop() {
                    // Pairs that this one encloses were pushed last.
                    while pairs.last().is_some_and(|&(inner, _)| inner > open) {
                        pairs.pop();
                    }
                    pairs.push((open, at));
                }
            }
            (None, _) => {}
        }
        before = c;
    }
    pairs
}

/// The arguments between a call's parentheses.
fn arguments(inside: &str) -> Vec<Argument> {
    let (mut arguments, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_usize, None);
    for (at, c) in inside.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                arguments.extend(argument(inside.get(from..at).unwrap_or("")));
                from = at + 1;
            }
            (None, _) => {}
        }
    }
    arguments.extend(argument(inside.get(from..).unwrap_or("")));
    arguments
}

fn argument(text: &str) -> Option<Argument> {
    let text = text.trim();
    if let Some((name, value)) = text.split_once('=') {
        let name = name.trim();
        if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Some(named(name, bare(value)));
        }
    }
    (!text.is_empty()).then(|| Argument { name: None, value: bare(text) })
}

fn bare(value: &str) -> String {
    value.trim().trim_matches(['"', '\'', '`']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> (Vec<String>, String) {
        let found = calls(text);
        (found.calls.into_iter().map(|step| step.text).collect(), found.around.trim().to_owned())
    }

    fn expect(text: &str, calls: &[&str], around: &str) {
        assert_eq!(shown(text), (calls.iter().map(|&call| call.to_owned()).collect(), around.to_owned()), "{text}");
    }

    #[test]
    fn calls_are_told_from_prose() {
        expect("pick(knife); place(\"knife\", on='table')", &["pick(knife)", "place(knife, on=table)"], "");
        expect("robot.say(\"it's (very) hot\")  # warn", &["say(it's (very) hot)"], "");
        expect("knife = robot.find('knife')", &["find(knife)"], "");
        expect("put(find(knife), [1, 2])", &["put(find(knife), [1, 2])"], "");
        expect("the object(s) (two) f(x)", &[], "the object(s) (two) f(x)");
        expect("Then pick_up(knife) please", &["pick_up(knife)"], "Then   please");
        expect("def plan():", &[], "def plan():");
        expect("stop()", &["stop()"], "");
    }

    #[test]
    fn parentheses_that_lead_nowhere_cost_one_pass() {
        expect(&"ab(".repeat(20_000), &[], &"ab(".repeat(20_000));
    }
}
