//! `cold-starts ENDPOINT STARTS PROGRAM…` starts each function in turns, hands it one message over a Runtime API of its own,
//! and takes the time from before the process is made until its answer has arrived. Prints JSON: for each program, the
//! microseconds of each start on the wall (`wall_us`) and on the processor (`cpu_us`). The value of `COLD_SSL_CERT_FILE`
//! is handed to them as `SSL_CERT_FILE`.
#![allow(
    clippy::indexing_slicing,
    reason = "a measurement that panics has its own mistake"
)]

mod runtime_api;

use std::env;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use runtime_api::answer;

type Error = Box<dyn std::error::Error>;

const TEMPLATE: &str = include_str!("../../../message.json");
/// Names a file of certificates to trust instead of the system's. Not the variable itself, which a machine may have set.
const CERTIFICATES: &str = "COLD_SSL_CERT_FILE";
/// Not counted: they fill the page cache.
const WARM_UP: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [endpoint, starts, programs @ ..] = arguments.as_slice() else {
        return Err("usage: cold-starts ENDPOINT STARTS PROGRAM…".into());
    };
    let starts: usize = starts.parse()?;
    let mut walls = vec![Vec::with_capacity(starts); programs.len()];
    let mut cpus = walls.clone();
    for round in 0..WARM_UP + starts {
        for turn in 0..programs.len() {
            // Each program is first, second, … equally often.
            let which = (round + turn) % programs.len();
            let id = format!("{which}-{round:05}-{}", std::process::id());
            let (wall, cpu) = start(&programs[which], endpoint, &id).await?;
            if round >= WARM_UP {
                walls[which].push(wall);
                cpus[which].push(cpu);
            }
        }
    }
    let report: Vec<_> = programs
        .iter()
        .zip(walls.iter().zip(cpus))
        .map(|(program, (wall, cpu))| json!({ "program": program, "wall_us": wall, "cpu_us": cpu }))
        .collect();
    println!("{}", json!(report));
    Ok(())
}

/// One start: its time on the wall, and on the processor.
async fn start(program: &str, endpoint: &str, id: &str) -> Result<(u64, u64), Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let event = TEMPLATE.replace("{id}", id).replace("{receives}", "1");
    let event = format!(r#"{{"Records":[{event}]}}"#);
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs([
            ("AWS_ACCESS_KEY_ID", "bench"),
            ("AWS_SECRET_ACCESS_KEY", "bench"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_LAMBDA_FUNCTION_NAME", "cold"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1769"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "cold"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "cold"),
            ("IDEMPOTENCY_TABLE", "records"),
            ("LEDGER_TABLE", "ledger"),
        ])
        .env("AWS_LAMBDA_RUNTIME_API", listener.local_addr()?.to_string())
        .envs(env::var_os(CERTIFICATES).map(|file| ("SSL_CERT_FILE", file)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let used = children()?;
    let begin = Instant::now();
    let mut child = command.spawn()?;
    let reply = tokio::time::timeout(PATIENCE, answer(listener, event)).await??;
    let wall = begin.elapsed();
    child.kill().await?;
    if reply != r#"{"batchItemFailures":[]}"# {
        return Err(format!("{program} answered {reply}").into());
    }
    let cpu = children()?.saturating_sub(used);
    Ok((wall.as_micros().try_into()?, cpu.as_micros().try_into()?))
}

/// Processor time of all children that have ended.
fn children() -> Result<Duration, Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let mut total = Duration::ZERO;
    for time in [usage.user_time(), usage.system_time()] {
        total += Duration::from_secs(time.tv_sec().try_into()?);
        total += Duration::from_micros(time.tv_usec().try_into()?);
    }
    Ok(total)
}
