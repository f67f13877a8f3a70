use std::time::Duration;

use aws_durable_execution_sdk::{BoxError, DurableContext};
use lambda_idempotency::{Fingerprint, Idempotency, Key};
use serde::{Deserialize, Serialize};

use crate::Gateway;

#[derive(Clone, Deserialize, Serialize)]
pub struct Order {
    pub id: String,
    pub amount: u64,
}

/// The durable handler: it charges, and confirms a day later.
pub async fn serve(
    once: Idempotency,
    gateway: Gateway,
    order: Order,
    ctx: DurableContext,
) -> Result<String, BoxError> {
    // Not bound to the invocation: a bound claim lasts until its deadline, and isn't renewed.
    let charge = ctx.step(move |_| charge(once, gateway, order));
    let payment = charge.name("charge").await?;
    // No claim is held here: the execution suspends, and is replayed in another invocation.
    ctx.wait(Duration::from_hours(24)).name("a day").await?;
    Ok(format!("{payment} confirmed"))
}

/// The claim begins and ends inside the step.
async fn charge(once: Idempotency, gateway: Gateway, order: Order) -> Result<String, BoxError> {
    let request = Fingerprint::of(&order)?;
    let charged = once.run(Key::new("charge", order.id), request, |claim| async move {
        gateway
            .charge(order.amount, claim.derive_key("gateway"))
            .await
    });
    Ok(charged.await?.into_inner())
}
