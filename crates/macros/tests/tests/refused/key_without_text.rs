#![allow(unused_imports)]

use lambda_idempotency::{Claim, Fingerprint, Idempotency, idempotent, store::MemoryStore};

#[idempotent(operation = "charge", key = order, fingerprint = Fingerprint::bytes(&order))]
async fn charge(once: &Idempotency, order: Vec<u8>) -> Result<u64, std::io::Error> {
    Ok(7)
}

fn main() {}
