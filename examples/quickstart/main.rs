//! Real duplicates through the real SQS and HTTP layers, against a DynamoDB API in this process. Nothing to install:
//!
//! ```sh
//! cargo run --example quickstart
//! ```
//!
//! Each scene counts its deliveries, the runs of the handler, the replays, the refusals and the requests to the store. The exit
//! code is 0 only if every figure is what the protocol says it must be.
#![allow(unreachable_pub, reason = "a program has no public interface")]

mod api;
mod database;
mod table;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use database::Database;
use table::Table;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let database = Database::start().await?;
    let mut table = Table::default();
    worker::scenes(&database, &mut table).await?;
    api::scenes(&database, &mut table).await?;
    println!("{table}");
    if table.is_right() {
        println!("Every figure is right: each request took effect once.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("Some figures are wrong: see the lines marked with !");
    Ok(ExitCode::FAILURE)
}
