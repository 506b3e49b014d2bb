//! The options of a check: read strictly, because an option that is misspelt and silently dropped is a limit the
//! client believes in and nobody keeps.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use zbus::zvariant::{Signature, Type, Value};

use super::limits::Limits;
use crate::decision::Failure;
use crate::permit::claims::NAME_BYTES_MAX;

/// Longest `plan_id` or `planner`, in bytes of UTF-8. An `audience` must fit a permit: [`NAME_BYTES_MAX`].
pub const OPTION_TEXT_BYTES_MAX: usize = 256;

/// What a client may ask beside the triple itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `plan_id s`: the client's own name for the plan, at most 256 bytes; recorded.
    pub plan_id: Option<String>,
    /// `planner s`: which planner wrote it, at most 256 bytes; recorded.
    pub planner: Option<String>,
    /// `audience s`: who will execute it, at most 128 bytes; the permit names it.
    pub audience: Option<String>,
    /// `image_stamp_ns t`: when the image was taken, on the boot clock.
    pub image_stamp: Option<Duration>,
    /// `deadline_ms u`: the time the answer may take, or the default.
    pub deadline: Duration,
}

/// How a client misuses the options: a fault in its code, answered as a D-Bus error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// No option has this name.
    #[error("unknown option {0:?}")]
    Unknown(String),
    /// Which of the two counts would be a guess.
    #[error("option {0} is given twice")]
    Twice(&'static str),
    /// A value of another type than the option's.
    #[error("option {name} has type {found}, not {expected}")]
    Kind {
        /// The option.
        name: &'static str,
        /// Its D-Bus type.
        expected: &'static str,
        /// The type that came.
        found: String,
    },
}

/// Why the options are not taken.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionsError {
    /// The client's code is wrong.
    Misuse(Misuse),
    /// The client's values are.
    Failure(Failure),
}

impl From<Misuse> for OptionsError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

/// The options as they lie in the message: pairs, because a map would drop all but the last of two equal names.
#[derive(Debug, Default)]
pub struct Pairs<'a>(Vec<(&'a str, Value<'a>)>);

impl Type for Pairs<'_> {
    const SIGNATURE: &'static Signature = <std::collections::HashMap<&str, Value<'_>> as Type>::SIGNATURE;
}

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary of options")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Pairs::default();
                while let Some(pair) = map.next_entry()? {
                    // One past all known names is enough to find what is wrong with them.
                    if pairs.0.len() <= NAMES.len() {
                        pairs.0.push(pair);
                    }
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

const NAMES: [&str; 5] = ["plan_id", "planner", "audience", "image_stamp_ns", "deadline_ms"];

impl Pairs<'_> {
    /// The options these pairs spell.
    ///
    /// # Errors
    /// When a name is unknown or comes twice, or a value has the wrong type or is out of its bounds.
    pub fn read(&self, limits: &Limits) -> Result<Options, OptionsError> {
        let mut given = Given::default();
        for (name, value) in &self.0 {
            match *name {
                "plan_id" => once("plan_id", &mut given.plan_id, text("plan_id", value, OPTION_TEXT_BYTES_MAX)?)?,
                "planner" => once("planner", &mut given.planner, text("planner", value, OPTION_TEXT_BYTES_MAX)?)?,
                "audience" => once("audience", &mut given.audience, text("audience", value, NAME_BYTES_MAX)?)?,
                "image_stamp_ns" => {
                    let Value::U64(stamp_ns) = value else { return Err(kind("image_stamp_ns", "t", value)) };
                    once("image_stamp_ns", &mut given.image_stamp_ns, *stamp_ns)?;
                }
                "deadline_ms" => {
                    let Value::U32(deadline_ms) = value else { return Err(kind("deadline_ms", "u", value)) };
                    once("deadline_ms", &mut given.deadline_ms, *deadline_ms)?;
                }
                unknown => return Err(Misuse::Unknown(unknown.chars().take(64).collect()).into()),
            }
        }
        let deadline = limits.deadline(given.deadline_ms).map_err(OptionsError::Failure)?;
        Ok(Options {
            plan_id: given.plan_id,
            planner: given.planner,
            audience: given.audience,
            image_stamp: given.image_stamp_ns.map(Duration::from_nanos),
            deadline,
        })
    }
}

#[derive(Default)]
struct Given {
    plan_id: Option<String>,
    planner: Option<String>,
    audience: Option<String>,
    image_stamp_ns: Option<u64>,
    deadline_ms: Option<u32>,
}

fn once<T>(name: &'static str, place: &mut Option<T>, value: T) -> Result<(), OptionsError> {
    if place.replace(value).is_some() {
        return Err(Misuse::Twice(name).into());
    }
    Ok(())
}

fn text(name: &'static str, value: &Value<'_>, bytes_max: usize) -> Result<String, OptionsError> {
    let Value::Str(text) = value else {
        return Err(kind(name, "s", value));
    };
    if text.len() > bytes_max {
        let detail = format!("option {name} has {} bytes; at most {bytes_max} are accepted", text.len());
        return Err(OptionsError::Failure(Failure::Input(detail)));
    }
    Ok(text.as_str().to_owned())
}

fn kind(name: &'static str, expected: &'static str, found: &Value<'_>) -> OptionsError {
    Misuse::Kind { name, expected, found: found.value_signature().to_string() }.into()
}

impl Serialize for Options {
    /// As the client wrote them, for the record.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(None)?;
        for (name, text) in [("plan_id", &self.plan_id), ("planner", &self.planner), ("audience", &self.audience)] {
            if let Some(text) = text {
                map.serialize_entry(name, text)?;
            }
        }
        if let Some(stamp) = self.image_stamp {
            map.serialize_entry("image_stamp_ns", &u64::try_from(stamp.as_nanos()).unwrap_or(u64::MAX))?;
        }
        map.serialize_entry("deadline_ms", &u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use zbus::zvariant::serialized::Context;
    use zbus::zvariant::{LE, to_bytes};

    use super::*;

    fn read(pairs: Vec<(&str, Value<'_>)>) -> Result<Options, OptionsError> {
        Pairs(pairs).read(&Limits::default())
    }

    #[test]
    fn every_option_is_read_and_written_back_as_given() {
        let options = read(vec![
            ("plan_id", "p-1".into()),
            ("planner", "vlm".into()),
            ("audience", "arm".into()),
            ("image_stamp_ns", 5_u64.into()),
            ("deadline_ms", 700_u32.into()),
        ])
        .expect("options");
        assert_eq!(options.image_stamp, Some(Duration::from_nanos(5)));
        assert_eq!(options.deadline, Duration::from_millis(700));
        let written = serde_json::to_value(&options).expect("json");
        let expected = serde_json::json!({"plan_id": "p-1", "planner": "vlm", "audience": "arm",
            "image_stamp_ns": 5, "deadline_ms": 700});
        assert_eq!(written, expected);
    }

    #[test]
    fn what_is_not_an_option_is_an_error() {
        let misuse = |pairs| match read(pairs) {
            Err(OptionsError::Misuse(misuse)) => misuse,
            other => panic!("{other:?}"),
        };
        assert_eq!(misuse(vec![("deadline", 1_u32.into())]), Misuse::Unknown("deadline".to_owned()));
        assert_eq!(misuse(vec![("planner", "a".into()), ("planner", "a".into())]), Misuse::Twice("planner"));
        let wrong = Misuse::Kind { name: "deadline_ms", expected: "u", found: "t".to_owned() };
        assert_eq!(misuse(vec![("deadline_ms", 700_u64.into())]), wrong);
    }

    #[test]
    fn texts_hold_at_their_edge_and_one_past_it() {
        for (name, bytes_max) in
            [("plan_id", OPTION_TEXT_BYTES_MAX), ("planner", OPTION_TEXT_BYTES_MAX), ("audience", NAME_BYTES_MAX)]
        {
            let edge = "x".repeat(bytes_max);
            assert!(read(vec![(name, edge.as_str().into())]).is_ok(), "{name}");
            let past = "x".repeat(bytes_max + 1);
            assert!(matches!(read(vec![(name, past.as_str().into())]), Err(OptionsError::Failure(_))), "{name}");
        }
    }

    #[test]
    fn equal_names_survive_the_wire() {
        // Written as an array of dictionary entries, which is what a{sv} is on the wire.
        struct Doubled;
        impl Type for Doubled {
            const SIGNATURE: &'static Signature = Pairs::SIGNATURE;
        }
        impl Serialize for Doubled {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map([("planner", Value::from("a")), ("planner", Value::from("b"))])
            }
        }
        let bytes = to_bytes(Context::new_dbus(LE, 0), &Doubled).expect("bytes");
        let (pairs, _) = bytes.deserialize::<Pairs<'_>>().expect("pairs");
        assert_eq!(pairs.read(&Limits::default()), Err(Misuse::Twice("planner").into()));
    }
}
