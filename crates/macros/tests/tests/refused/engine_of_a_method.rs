#![allow(unused_imports)]

use lambda_idempotency::{Claim, Fingerprint, Idempotency, idempotent, store::MemoryStore};

struct Shop;

impl Shop {
    #[idempotent(operation = "charge", key = order, fingerprint = None)]
    async fn charge(&self, order: u64) -> Result<u64, std::io::Error> {
        Ok(order)
    }
}

fn main() {}
