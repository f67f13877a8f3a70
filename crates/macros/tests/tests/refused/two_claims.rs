#![allow(unused_imports)]

use lambda_idempotency::{Claim, Fingerprint, Idempotency, idempotent, store::MemoryStore};

#[idempotent(operation = "charge", key = order, fingerprint = None)]
async fn charge(once: &Idempotency, one: Claim, other: Claim, order: u64) -> Result<u64, std::io::Error> {
    Ok(order)
}

fn main() {}
