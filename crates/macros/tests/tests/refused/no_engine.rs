#![allow(unused_imports)]

use lambda_idempotency::{Claim, Fingerprint, Idempotency, idempotent, store::MemoryStore};

#[idempotent(operation = "charge", key = 7, fingerprint = None)]
async fn charge() -> Result<u64, std::io::Error> {
    Ok(7)
}

fn main() {}
