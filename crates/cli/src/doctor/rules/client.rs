//! Rules of the client: its TLS stack, its clock.

use super::{Verdict, warning};
use crate::doctor::facts::Deployment;

pub(super) fn tls_stack(deployment: &Deployment) -> Vec<Verdict> {
    let Some(second) = &deployment.second_tls else {
        return Vec::new();
    };
    vec![(!second.is_empty()).then(|| {
        let why = "A second TLS stack is linked: a larger program, a slower cold start, one more thing to keep patched.";
        let fix = "aws-sdk-dynamodb = { version = \"1\", default-features = false, features = [\"rt-tokio\"] }\n\
                    The same for each other SDK crate: `cargo tree -i rustls@0.21` names who pulls it";
        warning("Cargo.lock", second.join(", "), why, fix)
    })]
}

pub(super) fn clock(deployment: &Deployment) -> Vec<Verdict> {
    let Some(ahead) = deployment.clock_ahead_millis else {
        return Vec::new();
    };
    let margin = i64::try_from(deployment.settings.skew_margin.as_millis()).unwrap_or(i64::MAX);
    // The header has whole seconds.
    let off = ahead.abs().saturating_sub(1_000);
    vec![(off > margin).then(|| {
        let what = format!(
            "it is {} ms off DynamoDB's, and the margin is {margin} ms",
            ahead.abs()
        );
        let why = "Two machines that differ by more than the margin may both hold a key: each counts the other's lease as over.";
        warning(
            "this machine's clock",
            what,
            why,
            "timedatectl set-ntp true, or raise skew_margin",
        )
    })]
}
