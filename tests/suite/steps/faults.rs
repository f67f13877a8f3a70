//! Steps when the wire or the table fails, through the real SDK, and what they cost.

use aws_sdk_dynamodb::types::AttributeValue::{self, M, N, S};
use lambda_idempotency::StoreError;
use lambda_idempotency::Unrecorded;

use super::*;
use crate::on_each_server;
use crate::support::{self, Fault, Server};

pub(super) struct Wire {
    bench: support::Bench,
    fired: Arc<AtomicUsize>,
}

impl Wire {
    pub(super) async fn to(server: &Server) -> Self {
        Self {
            bench: support::Bench::on(server).await,
            fired: Arc::default(),
        }
    }

    pub(super) fn once(&self) -> Idempotency {
        self.bench.once()
    }

    pub(super) fn effect(
        &self,
    ) -> impl Future<Output = std::result::Result<usize, Provider>> + use<> {
        std::future::ready(Ok(self.fired.fetch_add(1, Ordering::Relaxed) + 1))
    }

    pub(super) fn fired(&self) -> usize {
        self.fired.load(Ordering::Relaxed)
    }

    /// A run whose handler has one step, and then succeeds or fails.
    pub(super) async fn charge(
        &self,
        once: &Idempotency,
        succeeds: bool,
    ) -> std::result::Result<Outcome<usize>, Error<StepError<Provider>>> {
        once.run(Key::raw("order", ID), payload(), |claim| async move {
            let number = claim.step("charge", |_| self.effect()).await?;
            if succeeds {
                return Ok(number);
            }
            Err(StepError::Effect(Provider::Declined))
        })
        .await
    }
}

on_each_server!(a_step_costs_two_requests_and_a_skipped_one_none);
async fn a_step_costs_two_requests_and_a_skipped_one_none(server: Server) {
    let wire = &Wire::to(&server).await;
    let once = wire.once();
    wire.charge(&once, false).await.unwrap_err();
    assert_eq!(
        wire.bench.proxy.take_total(),
        4,
        "claim, pending, confirmed, release"
    );
    assert_eq!(
        wire.charge(&once, true).await.unwrap(),
        Outcome::Executed(1)
    );
    assert_eq!(
        wire.bench.proxy.take_total(),
        3,
        "a claim that fails, the takeover, the completion"
    );
}

on_each_server!(a_note_whose_reply_is_lost_ends_as_if_it_had_come);
async fn a_note_whose_reply_is_lost_ends_as_if_it_had_come(server: Server) {
    let wire = &Wire::to(&server).await;
    let once = wire.once();
    wire.bench.proxy.inject("UpdateItem", Fault::LoseReply);
    wire.bench.proxy.inject("UpdateItem", Fault::LoseReply);
    assert_eq!(
        wire.charge(&once, true).await.unwrap(),
        Outcome::Executed(1)
    );
    let M(entry) = &wire.bench.item(ID).await["step:charge"] else {
        panic!("a map")
    };
    assert_eq!(entry["state"], S("CONFIRMED".into()));
    assert_eq!(entry["result"], S("1".into()));
    assert_eq!(entry["tries"], N("1".into()));
}

on_each_server!(a_step_that_cannot_be_recorded_does_not_fire);
async fn a_step_that_cannot_be_recorded_does_not_fire(server: Server) {
    let wire = &Wire::to(&server).await;
    let once = wire.once();
    wire.bench.proxy.inject("UpdateItem", Fault::DENY);
    let error = wire.charge(&once, true).await.unwrap_err();
    assert_matches!(
        &error,
        Error::Handler(StepError::Store(StoreError::Denied(_)))
    );
    assert_eq!(wire.fired(), 0);
    // It says so, and a retry begins it, under every policy.
    assert_eq!(
        wire.charge(&once, true).await.unwrap(),
        Outcome::Executed(1)
    );
}

on_each_server!(a_note_that_applied_without_a_reply_is_taken_back_if_its_effect_does_not_fire);
async fn a_note_that_applied_without_a_reply_is_taken_back_if_its_effect_does_not_fire(
    server: Server,
) {
    let wire = &Wire::to(&server).await;
    let once = wire.once();
    wire.bench.proxy.repeat("UpdateItem", Fault::LoseReply, 3);
    let error = wire.charge(&once, true).await.unwrap_err();
    assert_matches!(&error, Error::Handler(StepError::Store(_)));
    let M(entry) = &wire.bench.item(ID).await["step:charge"] else {
        panic!("a map")
    };
    assert_eq!(
        (&entry["state"], &entry["last_error"]),
        (&S("FAILED".into()), &S("not begun".into()))
    );
    assert_eq!(wire.fired(), 0);
}

on_each_server!(a_confirmation_is_tried_again_while_there_is_time);
async fn a_confirmation_is_tried_again_while_there_is_time(server: Server) {
    let wire = &Wire::to(&server).await;
    let once = wire.once();
    let run = once.run(Key::raw("order", ID), payload(), |claim| async move {
        claim
            .step("charge", |_| async {
                for fault in [
                    Fault::INTERNAL,
                    Fault::THROTTLE,
                    Fault::LoseRequest,
                    Fault::CONFLICT,
                ] {
                    wire.bench.proxy.inject("UpdateItem", fault);
                }
                wire.effect().await
            })
            .await
    });
    assert_eq!(run.await.unwrap(), Outcome::Executed(1));
    let M(entry) = &wire.bench.item(ID).await["step:charge"] else {
        panic!("a map")
    };
    assert_eq!(entry["state"], S("CONFIRMED".into()));
}

on_each_server!(
    an_effect_whose_result_cannot_be_recorded_is_given_to_the_handler_unless_told_otherwise
);
async fn an_effect_whose_result_cannot_be_recorded_is_given_to_the_handler_unless_told_otherwise(
    server: Server,
) {
    for (policy, reported) in [(Unrecorded::Return, false), (Unrecorded::Fail, true)] {
        let wire = &Wire::to(&server).await;
        let once = wire
            .bench
            .once_with(|once| once.settings(|settings| settings.unrecorded = policy));
        let run = once.run(Key::raw("order", ID), payload(), |claim| async move {
            let result = claim
                .step("charge", |_| async {
                    wire.bench.proxy.inject("UpdateItem", Fault::DENY);
                    wire.effect().await
                })
                .await;
            assert_eq!(
                matches!(result, Err(StepError::Unrecorded(_))),
                reported,
                "{result:?}"
            );
            result
        });
        assert_eq!(run.await.is_err(), reported);
    }
}

on_each_server!(a_malformed_journal_is_left_alone);
async fn a_malformed_journal_is_left_alone(server: Server) {
    let wire = &Wire::to(&server).await;
    let once = wire.once();
    wire.charge(&once, false).await.unwrap_err();
    let sound = wire.bench.item(ID).await;
    let M(entry) = sound["step:charge"].clone() else {
        panic!("a map")
    };
    let with = |name: &str, value: Option<AttributeValue>| {
        let mut entry = entry.clone();
        match value {
            Some(value) => entry.insert(name.into(), value),
            None => entry.remove(name),
        };
        M(entry)
    };
    let broken = [
        S("CONFIRMED".into()),
        with("state", None),
        with("state", Some(S("DONE".into()))),
        with("revision", None),
        with("revision", Some(N("-1".into()))),
        with("tries", Some(N("1.5".into()))),
        with("at", Some(S("now".into()))),
        with("result", None),
        with("result", Some(N("1".into()))),
        with("last_error", Some(N("1".into()))),
    ];
    for step in broken {
        let mut item = sound.clone();
        item.insert("step:charge".into(), step.clone());
        wire.bench.put(ID, item.clone()).await;
        let error = wire.charge(&once, true).await.unwrap_err();
        assert_matches!(error, Error::Unreadable(_), "{step:?}");
        assert_eq!(wire.bench.item(ID).await, item);
    }
    assert_eq!(wire.fired(), 1);
}

on_each_server!(an_interrupted_step_that_an_operator_settles_goes_on);
async fn an_interrupted_step_that_an_operator_settles_goes_on(server: Server) {
    // Once as "it happened", once as "it didn't".
    for (happened, expected) in [(true, 41), (false, 2)] {
        let wire = &Wire::to(&server).await;
        let once = wire.once();
        let step = || {
            Step::named("charge")
                .on_crash(OnCrash::Interrupt)
                .unsure_after(|_| true)
        };
        let run = |fails: bool| {
            once.run(Key::raw("order", ID), payload(), {
                move |claim| async move {
                    claim
                        .step(step(), |_| async {
                            let number = wire.effect().await?;
                            if fails {
                                Err(Provider::TimedOut)
                            } else {
                                Ok(number)
                            }
                        })
                        .await
                }
            })
        };
        run(true).await.unwrap_err();
        assert_matches!(run(false).await, Err(Error::Interrupted { .. }));

        let seen = wire.bench.item(ID).await["owner"].clone();
        let update = wire
            .bench
            .direct
            .client()
            .update_item()
            .table_name(&wire.bench.table)
            .key("id", S(ID.into()))
            .condition_expression("#owner = :seen AND #lease = :zero AND #step.#state = :pending")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#lease", "in_progress_expiration")
            .expression_attribute_names("#step", "step:charge")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":seen", seen)
            .expression_attribute_values(":zero", N("0".into()))
            .expression_attribute_values(":pending", S("PENDING".into()));
        let update = if happened {
            update.update_expression("SET #step.#state = :confirmed, #step.#result = :result ADD #step.#revision :one")
                .expression_attribute_names("#result", "result")
                .expression_attribute_names("#revision", "revision")
                .expression_attribute_values(":confirmed", S("CONFIRMED".into()))
                .expression_attribute_values(":result", S("41".into()))
                .expression_attribute_values(":one", N("1".into()))
        } else {
            update.update_expression("REMOVE #step")
        };
        update.send().await.unwrap();
        assert_eq!(run(false).await.unwrap(), Outcome::Executed(expected));
        assert_eq!(wire.fired(), if happened { 1 } else { 2 });
    }
}
