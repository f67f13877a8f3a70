//! A DynamoDB API in memory, in its own process, so that a client's CPU time is the client's alone.
//!
//! Prints its endpoint, and ends when its standard input does: whoever started it can't leave it behind.

use std::error::Error;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(dynoxide::server::serve_on(
        listener,
        dynoxide::Database::memory()?,
    ));
    let mut input = Vec::new();
    tokio::io::stdin().read_to_end(&mut input).await?;
    server.abort();
    Ok(())
}
