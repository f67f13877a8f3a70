//! The measuring program.
//!
//! | command | |
//! |---|---|
//! | `create-table ENDPOINT TABLE` | makes a table with the partition key `id` |
//! | `contender NAME ENDPOINT TABLE` | takes jobs from standard input, one a line |
//! | `paths` | the paths whose instructions are counted, and their units |
//! | `path NAME ROUNDS` | runs one of them, for callgrind |

use std::env;
use std::io::{self, BufRead, Write};

use benches::job::{Contender, Job};
use benches::{Error, dynamo, hot};
use mimalloc::MiMalloc;

/// Of all Rust contenders, the SDK by hand and the layer alike.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<(), Error> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["paths"] => {
            for (name, units) in hot::PATHS {
                println!("{name} {units}");
            }
            Ok(())
        }
        ["path", name, rounds] => path(name, rounds.parse()?),
        ["create-table", endpoint, table] => create_table(endpoint, table),
        ["contender", name, endpoint, table] => contender(name, endpoint, table),
        _ => Err("usage: see the top of src/main.rs".into()),
    }
}

/// Warm-up rounds are run, too, but not inside what is counted.
fn path(name: &str, rounds: usize) -> Result<(), Error> {
    let warm_up = rounds.min(2);
    let mut path = hot::path(name)?;
    for number in 0..warm_up {
        path(number)?()?;
    }
    for number in warm_up..warm_up + rounds {
        hot::measured(path(number)?)?;
    }
    Ok(())
}

/// The runtime of a Lambda function: one thread.
#[tokio::main(flavor = "current_thread")]
async fn create_table(endpoint: &str, table: &str) -> Result<(), Error> {
    let (client, _) = dynamo::connect(endpoint);
    dynamo::create_table(&client, table).await
}

#[tokio::main(flavor = "current_thread")]
async fn contender(name: &str, endpoint: &str, table: &str) -> Result<(), Error> {
    let mut contender = Contender::new(name, endpoint, table)?;
    for line in io::stdin().lock().lines() {
        let job: Job = serde_json::from_str(&line?)?;
        let report = contender.run(&job).await?;
        let mut output = io::stdout().lock();
        serde_json::to_writer(&mut output, &report)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}
