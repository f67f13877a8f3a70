//! Steps of messages: a redelivered message goes on where its last attempt ended.

use std::sync::atomic::{AtomicBool, Ordering};

use lambda_idempotency::{OnCrash, Step, StepError};

use super::*;

on_each_server!(a_redelivered_message_repeats_no_confirmed_step);
async fn a_redelivered_message_repeats_no_confirmed_step(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let (charges, mails) = (Effects::default(), Effects::default());
    let outage = Arc::new(AtomicBool::new(true));
    let (paid, mailed, down) = (charges.clone(), mails.clone(), Arc::clone(&outage));
    let mut worker = charge_in_steps(&once).handler(move |message: Message<Payment>| {
        let (charges, mails, down) = (paid.clone(), mailed.clone(), Arc::clone(&down));
        async move {
            let Message { claim, .. } = &message;
            claim
                .step("charge", |_| async {
                    charges.of(&message);
                    Ok(message.body.amount)
                })
                .await?;
            claim
                .step("mail", |_| async {
                    if message.body.amount > 5 && down.load(Ordering::Relaxed) {
                        return Err(PaymentError::Unreachable);
                    }
                    mails.of(&message);
                    Ok(())
                })
                .await
        }
    });
    let messages = || (1..=9).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));
    proxy.take_total();

    reports(&mut worker, messages(), &["m-6", "m-7", "m-8", "m-9"]).await;
    assert_eq!((charges.take().len(), mails.take().len()), (9, 5));
    let counts = proxy.take_counts();
    // Notes leave one by one; of claims and endings, those that coincide leave together.
    assert!(counts["UpdateItem"] >= 4 * 9, "{counts:?}");
    assert!(counts.values().sum::<usize>() < (2 + 4) * 9, "{counts:?}");

    outage.store(false, Ordering::Relaxed);
    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!((charges.take().len(), mails.take().len()), (0, 4));
}

on_each_server!(a_message_with_an_interrupted_step_goes_back_and_its_neighbours_do_not);
async fn a_message_with_an_interrupted_step_goes_back_and_its_neighbours_do_not(server: Server) {
    let once = engine(&server).await;
    let effects = Effects::default();
    let fired = effects.clone();
    let mut worker = charge_in_steps(&once).handler(move |message: Message<Payment>| {
        let effects = fired.clone();
        async move {
            let step = Step::named("charge")
                .on_crash(OnCrash::Interrupt)
                .unsure_after(|_| true);
            message
                .claim
                .step(step, |_| async {
                    effects.of(&message);
                    if message.body.amount == 2 {
                        Err(PaymentError::Unreachable)
                    } else {
                        Ok(())
                    }
                })
                .await
        }
    });
    let messages = || (1..=3).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));
    assert_eq!(deliver(&mut worker, messages()).await, ["m-2"]);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-3"]);
    assert_eq!(deliver(&mut worker, messages()).await, ["m-2"]);
    assert_eq!(effects.take(), NOTHING, "it waits for an operator");
}

fn charge_in_steps(once: &Idempotency) -> BatchLayer<Payment, StepError<PaymentError>> {
    BatchLayer::new(once.clone())
        .operation("charge")
        .key(|payment: &Payment| payment.payment_id.clone())
}
