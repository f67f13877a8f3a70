//! `load (server|function) (protected|bare) PROGRAM ORDERS_PER_SECOND SECONDS` drives the program of a server, or of `orders-api`
//! in eight environments, and prints what became of the requests, in JSON.

use std::env;
use std::path::Path;
use std::time::Duration;

use load::Error;
use load::job::{Job, Which};

const ENVIRONMENTS: usize = 8;
const AGAIN: f64 = 0.2;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let [which, protection, program, per_second, seconds] = arguments.as_slice() else {
        return Err(
            "usage: load (server|function) (protected|bare) PROGRAM ORDERS_PER_SECOND SECONDS"
                .into(),
        );
    };
    let job = Job {
        which: match *which {
            "server" => Which::Server,
            "function" => Which::Function(ENVIRONMENTS),
            other => return Err(format!("neither `server` nor `function`: {other}").into()),
        },
        program: Path::new(program),
        is_bare: match *protection {
            "protected" => false,
            "bare" => true,
            other => return Err(format!("neither `protected` nor `bare`: {other}").into()),
        },
        per_second: per_second.parse()?,
        lasting: Duration::from_secs(seconds.parse()?),
        again: AGAIN,
        seed: 17,
    };
    println!("{}", serde_json::to_string(&job.run().await?)?);
    Ok(())
}
