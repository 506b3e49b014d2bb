//! The caller's end of the bus, for the command line: seals an image, asks, and takes silence for a veto.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use zbus::zvariant::{Fd, OwnedValue, Value};

use super::bus::{NAME, PATH};

/// The administrators' interface.
const ADMIN: &str = "org.steadfast.Guard1.Admin";

/// Time past the deadline after which silence is taken for a veto.
const GRACE: Duration = Duration::from_secs(1);

/// How long the bus and the guard may take to answer anything but a check.
const REPLY: Duration = Duration::from_secs(5);

/// What `Check` answers.
#[derive(Debug, Clone)]
pub struct Reply {
    /// `permit`, `veto` or `refusal`; `shadow-…` in shadow mode.
    pub verdict: String,
    /// The reason code of a veto, else empty.
    pub reason: String,
    /// The malleability, or −1 where it was not read.
    pub malleability: f64,
    /// The signed permit, empty but for an enforced permit.
    pub permit: Vec<u8>,
    /// Everything else.
    pub details: serde_json::Map<String, serde_json::Value>,
}

/// Why there is no reply. Each of these is a veto to the caller.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// The bus, the name or the call failed.
    #[error("{0}")]
    Bus(#[from] zbus::Error),
    /// The guard says why it does not do it.
    #[error("{0}")]
    Refused(String),
    /// Nothing came back in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The image could not be sealed.
    #[error("the image cannot be handed over: {0}")]
    Memfd(#[from] std::io::Error),
}

/// A connection to a bus on which a guard may serve.
#[derive(Debug, Clone)]
pub struct Client {
    connection: zbus::Connection,
}

impl Client {
    /// Connects to this address, or to the system bus.
    ///
    /// # Errors
    /// When the bus does not answer.
    pub async fn connect(address: Option<&str>) -> Result<Self, Silence> {
        let builder = match address {
            Some(address) => zbus::connection::Builder::address(address)?,
            None => zbus::connection::Builder::system()?,
        };
        let connection = soon(builder.build()).await??;
        Ok(Self { connection })
    }

    async fn call<B>(&self, member: &str, body: &B) -> Result<zbus::Message, Silence>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        Ok(self.connection.call_method(Some(NAME), PATH, Some(NAME), member, body).await?)
    }

    /// Asks for a verdict.
    ///
    /// # Errors
    /// When there is no answer; that is a veto.
    pub async fn check(
        &self,
        image: &[u8],
        instruction: &str,
        plan: &str,
        deadline: Duration,
        audience: Option<&str>,
    ) -> Result<Reply, Silence> {
        let memfd = sealed(image)?;
        let deadline_ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let mut options: HashMap<&str, Value<'_>> = HashMap::from([("deadline_ms", Value::from(deadline_ms))]);
        if let Some(audience) = audience {
            options.insert("audience", Value::from(audience));
        }
        let body = (Fd::from(&memfd), instruction, plan, options);
        let within = deadline + GRACE;
        let message =
            tokio::time::timeout(within, self.call("Check", &body)).await.map_err(|_| Silence::Timeout(within))??;
        let (verdict, reason, malleability, permit, details): (
            String,
            String,
            f64,
            Vec<u8>,
            HashMap<String, OwnedValue>,
        ) = message.body().deserialize()?;
        Ok(Reply { verdict, reason, malleability, permit, details: plain(details) })
    }

    /// The guard's `Status`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn status(&self) -> Result<serde_json::Map<String, serde_json::Value>, Silence> {
        let message = soon(self.call("Status", &())).await??;
        Ok(plain(message.body().deserialize::<HashMap<String, OwnedValue>>()?))
    }

    /// What is recorded of a check.
    ///
    /// # Errors
    /// When there is no answer, or nothing is recorded under that name.
    pub async fn explain(&self, check_id: &str) -> Result<serde_json::Map<String, serde_json::Value>, Silence> {
        let message = soon(self.call("Explain", &(check_id,))).await??;
        Ok(plain(message.body().deserialize::<HashMap<String, OwnedValue>>()?))
    }

    /// Has the guard take a new signing key into use, and gives its id. For members of `steadfast-admin`.
    ///
    /// # Errors
    /// When there is no answer, the caller may not, or the guard says why it is not done.
    pub async fn rotate_key(&self) -> Result<String, Silence> {
        let call = self.connection.call_method(Some(NAME), PATH, Some(ADMIN), "RotateKey", &());
        let message = match soon(call).await? {
            Err(zbus::Error::MethodError(name, Some(why), _)) if name == "org.freedesktop.DBus.Error.Failed" => {
                return Err(Silence::Refused(why));
            }
            answer => answer?,
        };
        Ok(message.body().deserialize()?)
    }

    /// Calls `each` for every `Vetoed` and `StateChanged` signal until the bus goes away.
    ///
    /// # Errors
    /// When the bus does not take the subscription.
    pub async fn watch(&self, mut each: impl FnMut(Event)) -> Result<(), Silence> {
        let rule =
            zbus::MatchRule::builder().msg_type(zbus::message::Type::Signal).interface(NAME)?.path(PATH)?.build();
        let mut stream = zbus::MessageStream::for_match_rule(rule, &self.connection, None).await?;
        while let Some(message) = next(&mut stream).await {
            let message = message?;
            match message.header().member().map(|member| member.as_str().to_owned()).as_deref() {
                Some("Vetoed") => {
                    let (check_id, reason, malleability) = message.body().deserialize()?;
                    each(Event::Vetoed { check_id, reason, malleability });
                }
                Some("StateChanged") => each(Event::StateChanged(message.body().deserialize::<(String,)>()?.0)),
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// A call without a deadline of its own would wait for a stopped guard for ever.
async fn soon<T>(answer: impl Future<Output = T>) -> Result<T, Silence> {
    tokio::time::timeout(REPLY, answer).await.map_err(|_| Silence::Timeout(REPLY))
}

/// What `watch` hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A plan was vetoed.
    Vetoed {
        /// The check.
        check_id: String,
        /// The reason code.
        reason: String,
        /// The malleability, or −1 where it was not read.
        malleability: f64,
    },
    /// The guard's state changed.
    StateChanged(String),
}

async fn next(stream: &mut zbus::MessageStream) -> Option<zbus::Result<zbus::Message>> {
    std::future::poll_fn(|context| {
        zbus::export::futures_core::Stream::poll_next(std::pin::Pin::new(&mut *stream), context)
    })
    .await
}

/// A memfd with these bytes that nobody can change any more.
fn sealed(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let memfd = memfd_create("steadfast-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(memfd);
    std::io::Write::write_all(&mut file, bytes)?;
    let memfd = OwnedFd::from(file);
    fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memfd)
}

/// D-Bus values as JSON, for printing.
fn plain(values: HashMap<String, OwnedValue>) -> serde_json::Map<String, serde_json::Value> {
    values.into_iter().map(|(name, value)| (name, plain_value(&value))).collect()
}

fn plain_value(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::U8(number) => (*number).into(),
        Value::I16(number) => (*number).into(),
        Value::U16(number) => (*number).into(),
        Value::I32(number) => (*number).into(),
        Value::U32(number) => (*number).into(),
        Value::I64(number) => (*number).into(),
        Value::U64(number) => (*number).into(),
        Value::F64(number) => (*number).into(),
        Value::Str(text) => text.as_str().into(),
        Value::Value(inner) => plain_value(inner),
        Value::Array(items) => items.iter().map(plain_value).collect(),
        Value::Structure(fields) => fields.fields().iter().map(plain_value).collect(),
        Value::Dict(entries) => {
            let entries = entries.iter().map(|(name, value)| {
                let name = plain_value(name);
                (name.as_str().map_or_else(|| name.to_string(), str::to_owned), plain_value(value))
            });
            serde_json::Value::Object(entries.collect())
        }
        Value::Signature(_) | Value::ObjectPath(_) | Value::Fd(_) => serde_json::Value::Null,
    }
}
