//! A planner's answer made plain before it is read: one kind of blank and quote, and no thinking.

use std::borrow::Cow;

/// Names of tags that enclose thinking, without any `prefix:`.
const THINKING_TAGS: &[&str] = &[
    "think",
    "thinking",
    "thought",
    "thoughts",
    "reasoning",
    "reflection",
    "scratchpad",
    "analysis",
    "inner_monologue",
    "chain_of_thought",
    "begin_of_thought",
    "end_of_thought",
];
/// Longest tag looked for, in bytes, with its attributes.
const TAG_BYTES_MAX: usize = 96;
/// Ahead of what a channelled model says in the end; all before it is thinking.
const FINAL_CHANNEL: &str = "<|channel|>final<|message|>";

/// The text with one kind of blank, line end, apostrophe and width, and nothing invisible.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => plain.push('\n'),
            // Characters without a picture can split a word that the robot's executor joins again.
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => {}
            '\u{2018}' | '\u{2019}' | '\u{2bc}' | '\u{2032}' | '\u{ff07}' => plain.push('\''),
            // A wide quotation mark stays as it is: inside a JSON string it must not end the string.
            '\u{ff02}' => plain.push('\u{201d}'),
            '\u{ff01}'..='\u{ff5e}' => plain.push(char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c)),
            '\n' => plain.push('\n'),
            c if c.is_whitespace() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}

/// The text without its thinking, and whether there was any.
///
/// A closing tag without an opening one ends thinking that began with the text, as servers that put the opening tag
/// into the prompt show it; an opening tag without a closing one hides the rest, as a truncated answer does.
pub(super) fn without_thinking(text: &str) -> (Cow<'_, str>, bool) {
    let (text, mut removed) = match text.rfind(FINAL_CHANNEL) {
        Some(at) => (text.get(at + FINAL_CHANNEL.len()..).unwrap_or(""), true),
        None => (text, false),
    };
    let mut kept = String::new();
    let (mut depth, mut copied) = (0_usize, 0);
    for (at, _) in text.char_indices().filter(|&(_, c)| matches!(c, '<' | '[' | '◁')) {
        let Some(tag) = text.get(at..).and_then(thinking_tag) else { continue };
        if depth == 0 {
            kept.push_str(text.get(copied..at).unwrap_or(""));
        }
        removed = true;
        match (tag.closes, depth) {
            (true, 0) => kept.clear(),
            (true, _) => depth -= 1,
            (false, _) => depth += 1,
        }
        copied = at + tag.bytes;
    }
    if !removed {
        return (Cow::Borrowed(text), false);
    }
    if depth == 0 {
        kept.push_str(text.get(copied..).unwrap_or(""));
    }
    (Cow::Owned(kept), true)
}

struct ThinkingTag {
    closes: bool,
    bytes: usize,
}

/// The thinking tag this text begins with: `<think>`, `</think>`, `[THINK]`, `<|thinking|>`, `<mm:think>`, `◁think▷`.
fn thinking_tag(text: &str) -> Option<ThinkingTag> {
    let mut chars = text.char_indices();
    let end = match chars.next()?.1 {
        '<' => '>',
        '[' => ']',
        '◁' => '▷',
        _ => return None,
    };
    let (start, first) = chars.next()?;
    if !first.is_ascii_alphabetic() && !matches!(first, '/' | '|' | ' ' | '\n') {
        return None;
    }
    let (close_at, _) = chars.take_while(|&(at, _)| at < TAG_BYTES_MAX).find(|&(_, c)| c == end)?;
    let inside = text.get(start..close_at)?.trim_matches([' ', '|', '\n']);
    let (closes, name) = match inside.strip_prefix('/') {
        Some(name) => (true, name.trim_start()),
        None => (false, inside),
    };
    // Attributes are an angle bracket's privilege; `[think about it]` is prose.
    let name = if end == '>' { name.split([' ', '/', '\n']).next()? } else { name };
    let base = name.rsplit(':').next()?.to_ascii_lowercase().replace('-', "_");
    let known = THINKING_TAGS.contains(&base.as_str());
    let closes = closes || base == "end_of_thought";
    known.then_some(ThinkingTag { closes, bytes: close_at + end.len_utf8() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> String {
        without_thinking(&plain(text)).0.trim().to_owned()
    }

    #[test]
    fn thinking_goes_in_every_spelling() {
        for text in [
            "<think>no knife</think>1. go",
            "<THINKING>no</THINKING> 1. go",
            "\u{a0}<think>no</think>\u{a0}1. go",
            "[THINK]no[/THINK]1. go",
            "<mm:think>no</mm:think>1. go",
            "<think>a<think>b</think>c</think>1. go",
            "no, wait</think>1. go",
            "a</think>b</think>1. go",
            "<think >no< /think >1. go",
            "<|begin_of_thought|>no<|end_of_thought|>1. go",
            "◁think▷no◁/think▷1. go",
            "<thi\u{200b}nk>no</think>1. go",
            "<think budget=\"3\">no</think>1. go",
            "<|channel|>analysis<|message|>no<|end|><|channel|>final<|message|>1. go",
            "1. go<think>and so on, cut",
        ] {
            assert_eq!(kept(text), "1. go", "{text}");
        }
        assert_eq!(kept("<think>never closed 1. go"), "");
        assert_eq!(kept("[think about it] <thinker> 1. go"), "[think about it] <thinker> 1. go");
    }

    #[test]
    fn plain_text_has_one_blank_quote_and_width() {
        assert_eq!(plain("a\u{a0}b\r\nc\rd\u{2019}s \u{ff11}\u{ff1a}\u{200b}e"), "a b\nc\nd's 1:e");
    }
}
