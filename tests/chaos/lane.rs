//! A function on a bad wire, with everything that tells afterwards what it did.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Key, RecordId};
use serde_json::Value;

use crate::crossing::Crossings;
use crate::defect::Defect;
use crate::history::{self, Histories};
use crate::night::Night;
use crate::pool::Pool;
use crate::support::Proxy;
use crate::support::lambda::{Function, Version};
use crate::wire::Wire;

/// The function's tables, by name.
#[derive(Clone, Debug)]
pub struct Tables {
    pub records: String,
    pub effects: String,
}

pub struct Lane {
    pub name: &'static str,
    /// On a wire that is good.
    pub function: Function,
    pub wire: Arc<Wire>,
    pub pool: Arc<Pool>,
    pub logs: Arc<Logs>,
    names: Idempotency,
    /// Whether a broken promise is explained by the logs; one that breaks on purpose needs no explanation.
    explains: bool,
}

impl Lane {
    pub async fn open(
        night: &Arc<Night>,
        name: &'static str,
        namespace: &str,
        function: Function,
        defect: Defect,
        environments: usize,
    ) -> Self {
        let tables = Tables {
            records: function.records_table().to_owned(),
            effects: function.effects_table().to_owned(),
        };
        function.server().follow(&tables.records).await;
        let wire = Arc::new(Wire::new(night, name, tables, defect));
        let proxy = Proxy::meddled_with(function.server(), Arc::clone(&wire) as _).await;
        let logs = Arc::new(Logs::new(night));
        let troubled = function
            .behind(&proxy)
            .timeout(crate::pool::TIMEOUT)
            .with("RUST_LOG", "info,lambda_idempotency=debug")
            .with("IDEMPOTENCY_DISABLED", &defect.switches_off().to_string());
        let pool = Pool::of(night, name, &troubled, Arc::clone(&logs), environments).await;
        let names = Idempotency::builder(MemoryStore::new()).namespace(namespace);
        Self {
            name,
            function,
            wire,
            pool,
            logs,
            explains: defect == Defect::None,
            names: names.build().expect("a namespace"),
        }
    }

    /// The record that stands for a key.
    pub fn record_id(&self, key: &Key) -> RecordId {
        self.names.record_id(key).expect("a key")
    }

    /// Returns all changes of its records.
    pub async fn histories(&self) -> Histories {
        history::read(self.function.server(), self.function.records_table()).await
    }

    /// Returns each broken promise with the names of lane and record, by which an operator finds it.
    pub fn tell(&self, id: &RecordId, broken: Vec<String>) -> Vec<String> {
        let tell = |what| {
            if self.explains {
                println!("{}", self.logs.of(id).join("\n"));
            }
            format!("{}: {id}: {what}", self.name)
        };
        broken.into_iter().map(tell).collect()
    }
}

pub const PANICKED: &str = "a function panicked";

/// The logs of the functions' own decisions.
pub struct Logs {
    night: Arc<Night>,
    /// By the key's hash.
    lines: Mutex<HashMap<String, Vec<String>>>,
    crossings: Mutex<Crossings>,
}

impl Logs {
    fn new(night: &Arc<Night>) -> Self {
        Self {
            night: Arc::clone(night),
            lines: Mutex::default(),
            crossings: Mutex::default(),
        }
    }

    /// Takes in what a process of this version has written.
    pub fn read(&self, version: Version, log: &str) {
        let mut lines = self.lines.lock().expect("not poisoned");
        for line in log.lines() {
            // The metrics are JSON too.
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                if line.contains("panicked at") {
                    self.night.report.count(PANICKED);
                }
                continue;
            };
            let fields = &event["fields"];
            if let Some(decision) = fields["event"].as_str()
                && fields["message"] == "idempotency"
            {
                self.night.report.count(&format!("decision: {decision}"));
                let key = fields["key"].as_str().unwrap_or_default();
                let mut crossings = self.crossings.lock().expect("not poisoned");
                for crossing in crossings.told(version, key, decision) {
                    self.night.report.count(crossing);
                }
            }
            if let Some(key) = fields["key"].as_str() {
                let told = format!(
                    "{} {fields}",
                    event["timestamp"].as_str().unwrap_or_default()
                );
                lines.entry(key.to_owned()).or_default().push(told);
            }
        }
    }

    /// Returns the attempts of a key whose logs have this decision.
    pub fn attempts(&self, id: &RecordId, decision: &str) -> Vec<i64> {
        let told = self.of(id).into_iter().filter_map(|line| {
            let (_, fields) = line.split_once(' ')?;
            let fields: Value = serde_json::from_str(fields).ok()?;
            (fields["event"] == decision).then(|| fields["attempt"].as_i64())?
        });
        told.collect()
    }

    /// Returns the log lines of a key, in the order of time.
    fn of(&self, id: &RecordId) -> Vec<String> {
        let lines = self.lines.lock().expect("not poisoned");
        // Each begins with its time.
        let mut lines = lines.get(&id.to_string()).cloned().unwrap_or_default();
        lines.sort_unstable();
        lines
    }
}
