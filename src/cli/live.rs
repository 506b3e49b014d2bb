//! Talking to the running guard: `status`, `watch`, `explain`, `permit rotate`.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::{Ink, Outcome, Paper, settings};
use crate::intake::client::{Client, Event, Silence};

#[derive(Debug, clap::Args)]
pub(super) struct Bus {
    /// The bus to ask on, where it is not the configured one.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
}

impl Bus {
    fn talk<T>(&self, config: &Path, ask: impl AsyncFnOnce(Client) -> Result<T, Silence>) -> anyhow::Result<T> {
        let address = match &self.address {
            Some(address) => Some(address.clone()),
            None => settings(config)?.bus_address,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(async { ask(Client::connect(address.as_deref()).await?).await }) {
            Err(Silence::Refused(why)) => Err(anyhow::anyhow!(why)),
            other => other.context("no answer from the guard; is steadfastd running on this bus?"),
        }
    }

    pub(super) fn status(&self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let status = self.talk(config, async |client| client.status().await)?;
        print(&status, paper)
    }

    pub(super) fn explain(&self, config: &Path, check_id: &str, paper: Paper) -> anyhow::Result<Outcome> {
        let told = self.talk(config, async |client| client.explain(check_id).await)?;
        print(&told, paper)
    }

    pub(super) fn rotate_key(&self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        let key_id = self.talk(config, async |client| client.rotate_key().await)?;
        if paper.json {
            paper.value(&json!({ "key": key_id }))?;
        } else {
            paper.line(&format!("key {key_id} signs from now on"));
        }
        Ok(Outcome::Done)
    }

    pub(super) fn watch(&self, config: &Path, paper: Paper) -> anyhow::Result<Outcome> {
        self.talk(config, async |client| client.watch(|event| tell(&event, paper)).await)?;
        Ok(Outcome::Done)
    }
}

fn tell(event: &Event, paper: Paper) {
    match event {
        Event::Vetoed { check_id, reason, malleability } if paper.json => {
            paper.line(&json!({"vetoed": check_id, "reason": reason, "malleability": malleability}).to_string());
        }
        Event::Vetoed { check_id, reason, malleability } => {
            let read = if *malleability < 0.0 { "not read".to_owned() } else { format!("{malleability:.2}") };
            paper.line(&format!("{} {reason}  {check_id}  malleability {read}", paper.ink(Ink::Red, "VETO")));
        }
        Event::StateChanged(state) if paper.json => paper.line(&json!({"state": state}).to_string()),
        Event::StateChanged(state) => paper.line(&format!("{} {state}", paper.ink(Ink::Bold, "STATE"))),
    }
}

fn print(values: &Map<String, Value>, paper: Paper) -> anyhow::Result<Outcome> {
    if paper.json {
        paper.value(values)?;
        return Ok(Outcome::Done);
    }
    let width = values.keys().map(String::len).max().unwrap_or_default();
    for (name, value) in values {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        paper.line(&format!("{} {value}", paper.ink(Ink::Dim, &format!("{name:<width$}"))));
    }
    Ok(Outcome::Done)
}
