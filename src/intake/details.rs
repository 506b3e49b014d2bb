//! Named values on their way to the bus: JSON in, `a{sv}` out.

use std::collections::HashMap;

use serde_json::Value as Json;
use zbus::zvariant::Value;

use super::Details;

/// How deep objects and lists may lie in each other; D-Bus itself allows 32 of each.
const DEPTH_MAX: usize = 16;

/// The dictionary these details travel as. What is null, or nested deeper than D-Bus could carry, is left out.
pub(super) fn dictionary(details: &Details) -> HashMap<String, Value<'static>> {
    nested(details, DEPTH_MAX)
}

fn nested(details: &Details, depth: usize) -> HashMap<String, Value<'static>> {
    details.iter().filter_map(|(key, json)| Some((key.clone(), variant(json, depth)?))).collect()
}

fn variant(json: &Json, depth: usize) -> Option<Value<'static>> {
    let depth = depth.checked_sub(1)?;
    Some(match json {
        Json::Null => return None,
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => Value::from(whole),
            (None, Some(whole)) => Value::from(whole),
            (None, None) => Value::from(number.as_f64()?),
        },
        Json::String(text) => Value::from(plain(text)),
        Json::Array(items) => list(items, depth),
        Json::Object(object) => Value::from(nested(object, depth)),
    })
}

/// A list of one kind travels as that kind, which most clients can read without unwrapping each item.
fn list(items: &[Json], depth: usize) -> Value<'static> {
    let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(plain)).collect();
    if let Some(texts) = texts {
        return Value::from(texts);
    }
    let numbers: Option<Vec<f64>> = items.iter().map(Json::as_f64).collect();
    match numbers {
        Some(numbers) => Value::from(numbers),
        None => Value::from(items.iter().filter_map(|item| variant(item, depth)).collect::<Vec<_>>()),
    }
}

/// D-Bus ends the connection of whoever sends a text with a NUL in it.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use zbus::zvariant::serialized::Context;
    use zbus::zvariant::{LE, to_bytes};

    use super::*;

    fn signature(json: Json) -> Option<String> {
        variant(&json, DEPTH_MAX).map(|value| value.value_signature().to_string())
    }

    #[test]
    fn each_kind_travels_as_documented() {
        for (json, expected) in [
            (json!("text"), "s"),
            (json!(true), "b"),
            (json!(7), "t"),
            (json!(-7), "x"),
            (json!(0.5), "d"),
            (json!(["a", "b"]), "as"),
            (json!([]), "as"),
            (json!([1, 2.5]), "ad"),
            (json!([1, "a", null]), "av"),
            (json!({"a": 1}), "a{sv}"),
        ] {
            assert_eq!(signature(json.clone()).as_deref(), Some(expected), "{json}");
        }
        assert_eq!(signature(Json::Null), None);
        assert_eq!(variant(&json!("a\0b"), 2), Some(Value::from("a\u{fffd}b")));
    }

    #[test]
    fn what_is_nested_too_deep_is_left_out_and_the_rest_still_travels() {
        let mut deep = json!("bottom");
        for _ in 0..100 {
            deep = json!({ "down": deep });
        }
        let Json::Object(details) = json!({"deep": deep, "check_id": "c"}) else { panic!("an object") };
        let dictionary = dictionary(&details);
        assert_eq!(dictionary.get("check_id"), Some(&Value::from("c")));
        to_bytes(Context::new_dbus(LE, 0), &dictionary).expect("D-Bus can carry it");
    }
}
