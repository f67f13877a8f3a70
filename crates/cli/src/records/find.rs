//! Finds the record that an operator means: by its id, by its key, or by the hash of a log line.

use clap::Args;
use lambda_idempotency::protocol::record::Found;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Key, RecordId};

use crate::connect::Records;
use crate::context::Context;
use crate::failure::Failure;
use crate::records::search;

/// The record: by its id, by its key, or by the hash of a log line.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which record")]
pub struct Which {
    /// The record's id, as the table has it.
    #[arg(
        conflicts_with_all = ["operation", "token", "scope", "hash"],
        required_unless_present_any = ["token", "hash"]
    )]
    pub id: Option<String>,
    /// The operation of the key. With the whole --hash it makes a scan needless.
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// The token of the key.
    #[arg(long, requires = "operation", value_name = "TOKEN")]
    pub token: Option<String>,
    /// The scope of the key: the tenant.
    #[arg(long, requires = "token", value_name = "SCOPE")]
    pub scope: Option<String>,
    /// The hash of a log line (`key`), or how it begins.
    #[arg(long, conflicts_with_all = ["token", "scope"], value_name = "HEX", value_parser = hash)]
    pub hash: Option<String>,
}

impl Which {
    /// The words on where else a record may be of which no more than its key or its hash is known.
    pub(crate) fn or_elsewhere(&self) -> &'static str {
        match self.operation {
            Some(_) => {
                ", or it is under an id of your own: give that, or `--hash` alone, which scans"
            }
            None => "",
        }
    }
}

const HASH_DIGITS: usize = 64;

fn hash(text: &str) -> Result<String, String> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || !(6..=HASH_DIGITS).contains(&text.len()) {
        return Err("a hash has 6 to 64 hex digits, as `key` in a log line".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

/// A record, as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) id: RecordId,
    pub(crate) found: Option<Found>,
}

/// Reads the record that is meant, strongly consistent.
pub(crate) async fn find(
    which: &Which,
    records: &Records,
    context: &Context,
) -> Result<Target, Failure> {
    let namespace = context.global().namespace.as_deref();
    let id = match (&which.id, &which.operation, &which.token, &which.hash) {
        (Some(id), ..) => RecordId::stored(id)?,
        (_, Some(operation), Some(token), _) => {
            let mut key = Key::new(operation, token);
            if let Some(scope) = &which.scope {
                key = key.scope(scope);
            }
            id_of(&key, needed(namespace, "the id of a token")?)?
        }
        (_, Some(operation), _, Some(hash)) if hash.len() == HASH_DIGITS => {
            let namespace = needed(namespace, "the id of a hash and an operation")?;
            id_of_hash(namespace, operation, hash)?
        }
        (_, operation, _, Some(hash)) => {
            search::by_hash(hash, operation.as_deref(), records, context).await?
        }
        _ => {
            return Err(Failure::usage(
                "say which record: its id, --operation and --token, or --hash",
            ));
        }
    };
    let found = records.store.load(&id, context.deadline()).await?;
    Ok(Target { id, found })
}

pub(super) fn needed<'a>(namespace: Option<&'a str>, of: &str) -> Result<&'a str, Failure> {
    namespace.ok_or_else(|| {
        Failure::usage(format!(
            "{of} begins with the engine's namespace: give --namespace, or set IDEMPOTENCY_NAMESPACE"
        ))
    })
}

/// The id of a key, as an engine of this namespace makes it.
fn id_of(key: &Key, namespace: &str) -> Result<RecordId, Failure> {
    let engine = Idempotency::builder(MemoryStore::new())
        .namespace(namespace)
        .settings(|settings| settings.max_token_chars = usize::MAX)
        .build()
        .map_err(|error| Failure::usage(error.to_string()))?;
    Ok(engine.record_id(key)?)
}

/// Any token's id of this operation, with the hash instead of the token's own.
fn id_of_hash(namespace: &str, operation: &str, hash: &str) -> Result<RecordId, Failure> {
    let id = id_of(&Key::new(operation, "any"), namespace)?;
    let id = id.as_str().strip_suffix(id.hash()).unwrap_or_default();
    Ok(RecordId::stored(format!("{id}{hash}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_and_its_operation_give_the_id() {
        let long = "o".repeat(300);
        for operation in ["charge", "a#b", long.as_str()] {
            let id = id_of(&Key::new(operation, "order-17").scope("t"), "payments").unwrap();
            let again = id_of_hash("payments", operation, id.hash()).unwrap();
            assert_eq!(again, id);
        }
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        assert_eq!(hash("ABCDEF"), Ok("abcdef".to_owned()));
        for text in ["", "abc", "payments#charge", &"a".repeat(65)] {
            assert!(hash(text).is_err(), "{text}");
        }
    }
}
