#![allow(unused_imports)]

use lambda_idempotency::{Claim, Fingerprint, Idempotency, idempotent, store::MemoryStore};

#[idempotent(operation = "charge", key = order, fingerprint = None)]
async fn charge(once: &Idempotency, order: u64) -> u64 {
    order
}

fn main() {}
