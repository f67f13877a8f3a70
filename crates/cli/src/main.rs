//! The operator's command line: `idempotency --help`.

use std::process::ExitCode;

use lambda_idempotency_cli::run;

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(run(std::env::args_os())).await.into()
}
