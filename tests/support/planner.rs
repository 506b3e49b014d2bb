//! A planner that asks the guard over the bus, and says in one short text what came back.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use steadfast::intake::boot_clock;
use steadfast::intake::bus::{NAME, PATH};
use zbus::zvariant::{DynamicType, Fd, OwnedValue, Value};

use crate::guard::{GOOD, PLAN, SOON, repository};

pub type Options<'a> = HashMap<&'a str, Value<'a>>;
type Tail = (String, String, f64, Vec<u8>, HashMap<String, OwnedValue>);

/// One option.
pub fn options<'a>(name: &'a str, value: impl Into<Value<'a>>) -> Options<'a> {
    Options::from([(name, value.into())])
}

pub struct Planner {
    connection: zbus::Connection,
    /// Rest before each call: a planner's pace, just under the 50 checks a second that one client may ask for.
    rest: Duration,
    /// The checks that were answered, with the verdict each had.
    checks: Mutex<Vec<(String, String)>>,
    /// The permits that came with answers.
    permits: Mutex<Vec<Vec<u8>>>,
    /// The text details of the last answer.
    last: Mutex<BTreeMap<String, String>>,
}

impl Planner {
    pub async fn new(address: &str) -> Self {
        let connection = zbus::connection::Builder::address(address)
            .expect("an address")
            .method_timeout(SOON)
            .build()
            .await
            .expect("a connection");
        let rest = Duration::from_millis(20);
        Self { connection, rest, checks: Mutex::default(), permits: Mutex::default(), last: Mutex::default() }
    }

    /// One that does not rest.
    pub async fn hurried(address: &str) -> Self {
        Self { rest: Duration::ZERO, ..Self::new(address).await }
    }

    /// Asks about this triple: `permit`, `veto REASON`, `refusal`, `error NAME`, or `silence`.
    pub async fn check(&self, image: impl AsFd, instruction: &str, plan: &str, options: Options<'_>) -> String {
        self.call("Check", &(Fd::from(image.as_fd()), instruction, plan, options)).await
    }

    /// Asks about a good instruction and plan with this image.
    pub async fn image(&self, image: impl AsFd) -> String {
        self.check(image, GOOD, PLAN, Options::new()).await
    }

    /// The same, with the image in the message.
    pub async fn inline(&self, image: &[u8]) -> String {
        self.call("CheckInline", &(image, GOOD, PLAN, Options::new())).await
    }

    /// Asks about a good triple.
    pub async fn good(&self) -> String {
        let image = std::fs::read(repository().join("tests/reference/scene/images/rgb.png")).expect("readable");
        self.image(crate::bus::sealed(&image)).await
    }

    /// Calls a method of the guard's first interface.
    pub async fn call<B: serde::Serialize + DynamicType>(&self, member: &str, body: &B) -> String {
        // Even a rest of nothing would last until the timer's next millisecond.
        if !self.rest.is_zero() {
            tokio::time::sleep(self.rest).await;
        }
        let message = match self.connection.call_method(Some(NAME), PATH, Some(NAME), member, body).await {
            Ok(message) => message,
            Err(error) => return self.failed(&error),
        };
        let Ok((verdict, reason, _, permit, details)) = message.body().deserialize::<Tail>() else {
            return "an answer that is none".to_owned();
        };
        let check_id = details.get("check_id").and_then(|id| <&str>::try_from(id).ok()).unwrap_or_default();
        self.checks.lock().expect("checks").push((check_id.to_owned(), verdict.clone()));
        let texts =
            details.iter().filter_map(|(name, value)| Some((name.clone(), <&str>::try_from(value).ok()?.to_owned())));
        *self.last.lock().expect("last") = texts.collect();
        if !permit.is_empty() {
            self.permits.lock().expect("permits").push(permit.clone());
        }
        match (verdict.as_str(), permit.is_empty()) {
            ("permit", true) => "permit without a permit".to_owned(),
            ("permit", false) | (_, true) => format!("{verdict} {reason}").trim_end().to_owned(),
            (_, false) => format!("{verdict} with a permit"),
        }
    }

    /// Calls a method and gives the whole reply as text, for looking a word up in it.
    pub async fn told<B: serde::Serialize + DynamicType>(&self, member: &str, body: &B) -> String {
        let message = self.connection.call_method(Some(NAME), PATH, Some(NAME), member, body).await;
        let reply = message.expect("an answer").body().deserialize::<HashMap<String, OwnedValue>>();
        format!("{:?}", reply.expect("a dictionary"))
    }

    /// Calls a method of the administrators' interface: `done` or `error NAME`.
    pub async fn admin<B: serde::Serialize + DynamicType>(&self, member: &str, body: &B) -> String {
        let interface = format!("{NAME}.Admin");
        match self.connection.call_method(Some(NAME), PATH, Some(interface.as_str()), member, body).await {
            Ok(_) => "done".to_owned(),
            Err(error) => self.failed(&error),
        }
    }

    /// The permit that a person's release comes with.
    pub async fn released(&self, check_id: &str, note: &str) -> Vec<u8> {
        let interface = format!("{NAME}.Admin");
        let body = (check_id, note);
        let message = self.connection.call_method(Some(NAME), PATH, Some(interface.as_str()), "Release", &body).await;
        message.expect("released").body().deserialize().expect("bytes")
    }

    /// A text in the guard's status, empty where there is none.
    pub async fn status(&self, name: &str) -> String {
        let message = self.connection.call_method(Some(NAME), PATH, Some(NAME), "Status", &()).await;
        let mut status: HashMap<String, OwnedValue> =
            message.expect("a status").body().deserialize().expect("a dictionary");
        status.remove(name).and_then(|value| String::try_from(value).ok()).unwrap_or_default()
    }

    fn failed(&self, error: &zbus::Error) -> String {
        let zbus::Error::MethodError(name, text, _) = error else { return "silence".to_owned() };
        let name = name.strip_prefix("org.freedesktop.DBus.Error.").unwrap_or(name);
        if matches!(name, "NoReply" | "Disconnected" | "ServiceUnknown" | "NameHasNoOwner") {
            return "silence".to_owned();
        }
        let recorded = text.as_deref().and_then(|text| text.split_once("(recorded as check "));
        match recorded.and_then(|(_, id)| id.strip_suffix(')')) {
            Some(id) => {
                self.checks.lock().expect("checks").push((id.to_owned(), "error".to_owned()));
                format!("error {name}, recorded")
            }
            None => format!("error {name}"),
        }
    }

    /// The id of the last check that was answered.
    pub fn last_check(&self) -> String {
        self.checks.lock().expect("checks").last().expect("a check").0.clone()
    }

    /// A text among the details of the last answer.
    pub fn last_detail(&self, name: &str) -> String {
        self.last.lock().expect("last").get(name).cloned().unwrap_or_default()
    }

    /// The checks that were answered, with the verdict each had.
    pub fn answered(&self) -> Vec<(String, String)> {
        self.checks.lock().expect("checks").clone()
    }

    /// Its unique name on the bus, for which permits are where no audience is given.
    pub fn name(&self) -> String {
        self.connection.unique_name().expect("a name").to_string()
    }

    /// The last permit that came with an answer.
    pub fn last_permit(&self) -> Vec<u8> {
        self.permits.lock().expect("permits").last().cloned().unwrap_or_default()
    }

    /// Forgets the checks that were answered.
    pub fn forget(&self) {
        self.permits.lock().expect("permits").clear();
        self.checks.lock().expect("checks").clear();
    }

    /// `twice each` where every answered check is in the log as received and as decided; else those that are not.
    pub fn unrecorded(&self, records: &[serde_json::Value]) -> String {
        let mut halves = BTreeMap::<&str, u32>::new();
        for event in records.iter().map(|record| &record["record"]["event"]) {
            if matches!(event["kind"].as_str(), Some("received" | "decided")) {
                *halves.entry(event["check_id"].as_str().unwrap_or_default()).or_default() += 1;
            }
        }
        let answered = self.answered();
        let missing: Vec<&(String, String)> =
            answered.iter().filter(|(id, _)| halves.get(id.as_str()) != Some(&2)).collect();
        if missing.is_empty() { "twice each".to_owned() } else { format!("not so: {missing:?}") }
    }

    /// A text property, empty where there is none.
    pub async fn property(&self, name: &str) -> String {
        let body = (NAME, name);
        let interface = Some("org.freedesktop.DBus.Properties");
        let message = self.connection.call_method(Some(NAME), PATH, interface, "Get", &body).await;
        let value = message.ok().and_then(|message| message.body().deserialize::<OwnedValue>().ok());
        value.and_then(|value| String::try_from(value).ok()).unwrap_or_default()
    }

    /// Waits until this many checks wait or run.
    pub async fn wait_for_waiting(&self, checks: u64) {
        let end = boot_clock() + SOON;
        while boot_clock() < end {
            let message = self.connection.call_method(Some(NAME), PATH, Some(NAME), "Status", &()).await;
            let status: HashMap<String, OwnedValue> =
                message.expect("a status").body().deserialize().expect("a dictionary");
            if status.get("checks_waiting").and_then(|value| u64::try_from(value).ok()) == Some(checks) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{checks} checks never waited");
    }
}
