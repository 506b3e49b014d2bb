//! JSON found inside prose: balanced values, keys in order, a key named twice refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::PlanError;

/// Deepest nesting of JSON that is read.
pub const JSON_DEPTH_MAX: usize = 32;
/// How a key named twice travels through serde's error, which carries text only.
const DUPLICATE_MARK: &str = "\u{1}twice\u{1}";

/// A JSON value that keeps its keys in order. `serde_json::Value` would let a later key replace an earlier one unseen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value as an argument shows it: text without quotes, all else as JSON.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Text(value) => value.clone(),
            Self::List(values) => {
                let values: Vec<_> = values.iter().map(Self::shown).collect();
                format!("[{}]", values.join(", "))
            }
            Self::Object(fields) => {
                let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key}: {}", value.shown())).collect();
                format!("{{{}}}", fields.join(", "))
            }
        }
    }
}

/// What looking for a JSON value at one place came to.
pub(super) enum Found {
    /// A value, and how many bytes it took.
    Value(Json, usize),
    /// None; so many bytes were looked at.
    Nothing(usize),
}

/// Looks for a JSON value that begins with this text's first bracket.
///
/// Python's spelling of the same (`'a'`, `True`, `None`) and a comma too many are read as well: planners write them,
/// and an executor may accept them.
pub(super) fn find(text: &str) -> Result<Found, PlanError> {
    let mut looked_at = 0;
    for quotes in ["\"", "\"'"] {
        let bytes = match balanced(text, quotes)? {
            Balance::Closed(bytes) => bytes,
            Balance::Open(bytes) => {
                looked_at += bytes;
                continue;
            }
        };
        looked_at += bytes;
        let Some(slice) = text.get(..bytes) else { continue };
        if let Some(value) = read(slice)? {
            return Ok(Found::Value(value, bytes));
        }
        if let Some(value) = read(&rewritten(slice))? {
            return Ok(Found::Value(value, bytes));
        }
    }
    Ok(Found::Nothing(looked_at))
}

/// Reads a whole text as JSON: `None` where it is not.
pub(super) fn read(text: &str) -> Result<Option<Json>, PlanError> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let error = error.to_string();
            let mut parts = error.split(DUPLICATE_MARK);
            match (parts.next(), parts.next()) {
                (Some(_), Some(key)) => Err(PlanError::DuplicateKey { key: key.to_owned() }),
                _ => Ok(None),
            }
        }
    }
}

enum Balance {
    /// The first bracket's partner ends after so many bytes.
    Closed(usize),
    /// It has none; so many bytes were looked at.
    Open(usize),
}

fn balanced(text: &str, quotes: &str) -> Result<Balance, PlanError> {
    let mut expected = Vec::new();
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        if let Some(open) = quote {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\n' => return Ok(Balance::Open(at)),
                c if c == open => quote = None,
                _ => {}
            }
            continue;
        }
        match c {
            '{' => expected.push('}'),
            '[' => expected.push(']'),
            '}' | ']' => {
                if expected.pop() != Some(c) {
                    return Ok(Balance::Open(at));
                }
                if expected.is_empty() {
                    return Ok(Balance::Closed(at + 1));
                }
            }
            c if quotes.contains(c) => quote = Some(c),
            _ => {}
        }
        if expected.len() > JSON_DEPTH_MAX {
            return Err(PlanError::TooDeep { depth_max: JSON_DEPTH_MAX });
        }
    }
    Ok(Balance::Open(text.len()))
}

/// Python's spelling rewritten as JSON's; a comma before a closing bracket dropped.
fn rewritten(slice: &str) -> String {
    let mut json = String::with_capacity(slice.len() + 8);
    let mut chars = slice.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' | '\'' => {
                json.push('"');
                copy_string(&mut json, &mut chars, c);
            }
            ',' => {
                while chars.next_if(|c| c.is_whitespace()).is_some() {}
                if !matches!(chars.peek(), Some('}' | ']')) {
                    json.push(',');
                }
            }
            c if c.is_ascii_alphabetic() => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(char::is_ascii_alphanumeric) {
                    word.push(c);
                }
                json.push_str(match word.as_str() {
                    "True" => "true",
                    "False" => "false",
                    "None" => "null",
                    other => other,
                });
            }
            c => json.push(c),
        }
    }
    json
}

/// Copies a quoted string's rest, its own quotes escaped as JSON wants them.
fn copy_string(json: &mut String, chars: &mut impl Iterator<Item = char>, quote: char) {
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\'') => json.push('\''),
                Some(next) => json.extend(['\\', next]),
                None => {}
            },
            c if c == quote => break,
            '"' => json.push_str("\\\""),
            c => json.push(c),
        }
    }
    json.push('"');
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Json::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, Json>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom(format!("{DUPLICATE_MARK}{key}{DUPLICATE_MARK}")));
            }
            fields.push((key, value));
        }
        Ok(Json::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<String> {
        match find(text).expect("within the limits") {
            Found::Value(value, bytes) => Some(format!("{}|{}", value.shown(), &text[bytes..])),
            Found::Nothing(_) => None,
        }
    }

    #[test]
    fn a_value_ends_where_its_bracket_does() {
        assert_eq!(value(r#"{"a": "}"} and {"b": 1}"#).as_deref(), Some(r#"{a: }}| and {"b": 1}"#));
        assert_eq!(value("[\"`{`\", \"\\\"]\"] x").as_deref(), Some("[`{`, \"]]| x"));
        assert_eq!(value("[1, 2"), None);
        assert_eq!(value("[see {\"a\": 1}]"), None);
    }

    #[test]
    fn pythons_spelling_is_read() {
        let python = r#"[{'action': 'say', 'text': "it's hot", 'now': True, 'why': None,},]"#;
        assert_eq!(value(python).as_deref(), Some("[{action: say, text: it's hot, now: true, why: null}]|"));
    }

    #[test]
    fn depth_holds_at_its_edge_and_one_past_it() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(find(&nested(JSON_DEPTH_MAX)).is_ok());
        assert!(matches!(find(&nested(JSON_DEPTH_MAX + 1)), Err(PlanError::TooDeep { .. })));
    }

    #[test]
    fn a_key_named_twice_is_refused_at_any_depth() {
        let twice = r#"[{"plan": {"action": "refuse", "action": "pick"}}]"#;
        assert!(matches!(find(twice), Err(PlanError::DuplicateKey { key }) if key == "action"));
    }
}
