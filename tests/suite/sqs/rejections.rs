//! Messages that no retry will fix: reported, or taken by a hook.

use lambda_idempotency::InFlight;
use lambda_idempotency::batch::{BatchService, Order};
use lambda_idempotency::sqs::{Rejection, SqsEvent, SqsMessage};
use tokio::time::Instant;
use tower::util::ServiceFn;

use crate::secrets::Log;

use super::*;

/// The messages and rejections that a hook was given.
#[derive(Clone, Default)]
struct Parked(Arc<Mutex<Vec<(SqsMessage, Rejection)>>>);

impl Parked {
    fn park(&self, message: SqsMessage, why: Rejection) {
        self.0.lock().unwrap().push((message, why));
    }

    /// Since the last call, in the order of their ids.
    fn take(&self) -> Vec<(Rejection, String)> {
        let parked = std::mem::take(&mut *self.0.lock().unwrap());
        let named = |(message, why): (SqsMessage, _)| (why, message.message_id.unwrap());
        let mut parked: Vec<_> = parked.into_iter().map(named).collect();
        parked.sort_by(|(_, a), (_, b)| a.cmp(b));
        parked
    }
}

/// The layer, with a hook that takes everything.
fn parking(once: &Idempotency, parked: &Parked) -> BatchLayer<Payment, PaymentError> {
    let parked = parked.clone();
    charge(once)
        .permanent(|error| matches!(error, PaymentError::Declined))
        .on_rejected(move |message, why| {
            parked.park(message, why.rejection);
            async { Ok::<_, PaymentError>(()) }
        })
}

type Handler = fn(Message<Payment>) -> std::future::Ready<Result<(), PaymentError>>;

/// Amounts of zero are declined, odd ones meet a gateway that is out of reach.
fn paying(
    layer: BatchLayer<Payment, PaymentError>,
) -> BatchService<SqsEvent, Payment, PaymentError, ServiceFn<Handler>> {
    layer.handler(|message| {
        std::future::ready(match message.body.amount {
            0 => Err(PaymentError::Declined),
            odd if odd % 2 == 1 => Err(PaymentError::Unreachable),
            _ => Ok(()),
        })
    })
}

fn rejected<const N: usize>(expected: [(Rejection, &str); N]) -> Vec<(Rejection, String)> {
    expected.map(|(why, id)| (why, id.to_owned())).to_vec()
}

/// One of each kind, and two that are none.
fn all_kinds() -> [Value; 8] {
    let mut bare = payment("bare", "p-0", 2);
    bare["body"] = json!(null);
    [
        payment("good", "p-1", 2),
        bare,
        message("garbled", "not JSON"),
        payment("unkeyed", "", 2),
        payment("long", &"x".repeat(256), 2),
        payment("differs", "p-1", 4),
        payment("declined", "p-3", 0),
        payment("unreachable", "p-4", 1),
    ]
}

on_each_server!(without_a_hook_rejected_messages_are_reported_each_time);
async fn without_a_hook_rejected_messages_are_reported_each_time(server: Server) {
    let once = engine(&server).await;
    let mut worker =
        paying(charge(&once).permanent(|error| matches!(error, PaymentError::Declined)));
    for _ in 0..2 {
        let reported = [
            "bare",
            "garbled",
            "unkeyed",
            "long",
            "differs",
            "declined",
            "unreachable",
        ];
        assert_eq!(deliver(&mut worker, all_kinds()).await, reported);
    }
}

on_each_server!(a_hook_takes_rejected_messages_and_only_these);
async fn a_hook_takes_rejected_messages_and_only_these(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let mut worker = paying(parking(&once, &parked));
    assert_eq!(deliver(&mut worker, all_kinds()).await, ["unreachable"]);
    let bodies: Vec<_> = parked
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|(message, _)| message.body.clone())
        .collect();
    assert!(
        bodies.contains(&Some("not JSON".to_owned())) && bodies.contains(&None),
        "{bodies:?}"
    );
    let expected = rejected([
        (Rejection::Undecodable, "bare"),
        (Rejection::Failed, "declined"),
        (Rejection::Mismatch, "differs"),
        (Rejection::Undecodable, "garbled"),
        (Rejection::UnusableKey, "long"),
        (Rejection::KeyMissing, "unkeyed"),
    ]);
    assert_eq!(parked.take(), expected);
}

on_each_server!(a_mismatch_or_a_failure_of_an_earlier_delivery_is_rejected_too);
async fn a_mismatch_or_a_failure_of_an_earlier_delivery_is_rejected_too(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let mut first =
        paying(charge(&once).permanent(|error| matches!(error, PaymentError::Declined)));
    deliver(
        &mut first,
        [payment("m-1", "p-1", 2), payment("m-2", "p-2", 0)],
    )
    .await;

    let mut worker = paying(parking(&once, &parked));
    let messages = [payment("m-3", "p-1", 4), payment("m-4", "p-2", 0)];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    let expected = rejected([(Rejection::Mismatch, "m-3"), (Rejection::Failed, "m-4")]);
    assert_eq!(parked.take(), expected);
}

on_each_server!(a_message_that_differs_from_one_that_failed_may_still_be_what_was_meant);
async fn a_message_that_differs_from_one_that_failed_may_still_be_what_was_meant(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let mut worker = paying(parking(&once, &parked));
    let messages = [payment("wrong", "p-1", 1), payment("corrected", "p-1", 2)];
    assert_eq!(deliver(&mut worker, messages).await, ["wrong", "corrected"]);
    assert_eq!(parked.take(), []);

    reports(&mut worker, [payment("corrected", "p-1", 2)], &[]).await;
    reports(&mut worker, [payment("wrong", "p-1", 1)], &[]).await;
    assert_eq!(parked.take(), rejected([(Rejection::Mismatch, "wrong")]));
}

on_each_server!(a_message_that_differs_from_one_that_runs_is_delivered_again);
async fn a_message_that_differs_from_one_that_runs_is_delivered_again(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let (runs, ends) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begun, over) = (Arc::clone(&runs), Arc::clone(&ends));
    let mut first = charge(&once).handler(move |_| {
        let (begun, over) = (Arc::clone(&begun), Arc::clone(&over));
        async move {
            begun.wait().await;
            over.wait().await;
            Err::<(), _>(PaymentError::Unreachable)
        }
    });
    let mut worker = paying(parking(&once, &parked));
    let corrected = || [payment("corrected", "p-1", 2)];
    let meanwhile = async {
        runs.wait().await;
        assert_eq!(deliver(&mut worker, corrected()).await, ["corrected"]);
        assert_eq!(parked.take(), []);
        ends.wait().await;
    };
    let wrong = deliver(&mut first, [payment("wrong", "p-1", 1)]);
    let both = async { tokio::join!(wrong, meanwhile) };
    let both = tokio::time::timeout(Duration::from_mins(1), both);
    let (wrong, ()) = both.await.expect("the second is not told to wait");
    assert_eq!(wrong, ["wrong"]);
    assert_eq!(deliver(&mut worker, corrected()).await, NOTHING);
    assert_eq!(parked.take(), []);
}

on_each_server!(a_message_that_differs_from_one_that_runs_waits_for_it_where_duplicates_wait);
async fn a_message_that_differs_from_one_that_runs_waits_for_it_where_duplicates_wait(
    server: Server,
) {
    let wait = InFlight::WaitUpTo(Duration::from_secs(10));
    let once = builder(server.store().await).in_flight(wait).build();
    let (once, effects) = (once.unwrap(), Effects::default());
    let runs = Arc::new(Barrier::new(2));
    let begun = Arc::clone(&runs);
    let mut first = charge(&once).handler(move |_| {
        let begun = Arc::clone(&begun);
        async move {
            begun.wait().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            Err::<(), _>(PaymentError::Unreachable)
        }
    });
    let mut second = charging(&once, &effects);
    let corrected = async {
        runs.wait().await;
        deliver(&mut second, [payment("corrected", "p-1", 2)]).await
    };
    let wrong = deliver(&mut first, [payment("wrong", "p-1", 1)]);
    let (wrong, corrected) = tokio::join!(wrong, corrected);
    assert_eq!(wrong, ["wrong"]);
    assert_eq!(corrected, NOTHING);
    assert_eq!(effects.take(), ["corrected"]);
}

on_each_server!(a_duplicate_of_a_rejected_message_shares_its_fate);
async fn a_duplicate_of_a_rejected_message_shares_its_fate(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let mut worker = paying(parking(&once, &parked));
    let twice = [payment("m-1", "p-1", 0), payment("m-2", "p-1", 0)];
    assert_eq!(deliver(&mut worker, twice).await, NOTHING);
    assert_eq!(parked.take(), rejected([(Rejection::Failed, "m-1")]));
}

on_each_server!(a_rejected_message_does_not_overtake_a_reported_one_of_its_group);
async fn a_rejected_message_does_not_overtake_a_reported_one_of_its_group(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let mut worker = paying(parking(&once, &parked));
    let fifo = |id: &str, body: Value| {
        let mut message = payment(id, id, 2);
        message["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:payments.fifo");
        message["attributes"]["MessageGroupId"] = json!("a");
        message["body"] = body;
        message
    };
    let unreachable = || fifo("m-1", json!(body("m-1", 1)));
    let poison = || fifo("m-2", json!("not JSON"));
    let declined = || fifo("m-3", json!(body("m-3", 0)));
    let all = [unreachable(), poison(), declined()];
    assert_eq!(deliver(&mut worker, all).await, ["m-1", "m-2", "m-3"]);
    assert_eq!(parked.take(), []);

    // What is behind a rejected message has its turn when that one is taken.
    let sound = fifo("m-4", json!(body("m-4", 2)));
    let behind = [poison(), declined(), sound];
    assert_eq!(deliver(&mut worker, behind).await, NOTHING);
    let taken = [(Rejection::Undecodable, "m-2"), (Rejection::Failed, "m-3")];
    assert_eq!(parked.take(), rejected(taken));
}

on_each_server!(a_taken_message_keeps_no_other_from_its_end_where_a_batch_fails_as_a_whole);
async fn a_taken_message_keeps_no_other_from_its_end_where_a_batch_fails_as_a_whole(
    server: Server,
) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let layer = parking(&once, &parked).settings(|settings| {
        settings.order = Order::Groups;
        settings.without_item_failures = true;
    });
    let mut worker = paying(layer);
    reports(&mut worker, [payment("m-0", "p-0", 2)], &[]).await;
    let batch = [
        // Each differs from the message before it: from one that failed, and from one whose key has an outcome.
        payment("m-1", "p-1", 0),
        payment("m-2", "p-1", 4),
        payment("m-3", "p-0", 6),
        payment("m-4", "p-0", 2),
    ];
    assert_eq!(deliver(&mut worker, batch).await, NOTHING);
    let taken = [
        (Rejection::Failed, "m-1"),
        (Rejection::Mismatch, "m-2"),
        (Rejection::Mismatch, "m-3"),
    ];
    assert_eq!(parked.take(), rejected(taken));
}

on_each_server!(a_message_that_follows_one_of_the_second_round_waits_for_it);
async fn a_message_that_follows_one_of_the_second_round_waits_for_it(server: Server) {
    let (once, parked) = (engine(&server).await, Parked::default());
    let mut worker = paying(parking(&once, &parked));
    let fifo = |id: &str, payment_id: &str, amount: u64, group: &str| {
        let mut message = payment(id, payment_id, amount);
        message["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:payments.fifo");
        message["attributes"]["MessageGroupId"] = json!(group);
        message
    };
    let batch = [
        fifo("m-1", "p-1", 0, "a"),
        // Of the same key, with another body, and equal to each other: m-3 has more behind it, and leads.
        fifo("m-2", "p-1", 2, "b"),
        fifo("m-3", "p-1", 2, "c"),
        fifo("m-4", "p-4", 2, "b"),
        fifo("m-5", "p-5", 2, "c"),
        fifo("m-6", "p-6", 2, "c"),
        // The longest group begins first.
        fifo("m-7", "p-7", 2, "a"),
        fifo("m-8", "p-8", 2, "a"),
        fifo("m-9", "p-9", 2, "a"),
    ];
    assert_eq!(deliver(&mut worker, batch).await, NOTHING);
    let taken = [(Rejection::Failed, "m-1"), (Rejection::Mismatch, "m-3")];
    assert_eq!(parked.take(), rejected(taken));
}

on_each_server!(a_permanent_failure_is_rejected_under_the_kill_switch_too);
async fn a_permanent_failure_is_rejected_under_the_kill_switch_too(server: Server) {
    let once = builder(server.store().await)
        .disabled(true)
        .build()
        .unwrap();
    let parked = Parked::default();
    let mut worker = paying(parking(&once, &parked));
    reports(&mut worker, [payment("m-1", "p-1", 0)], &[]).await;
    assert_eq!(parked.take(), rejected([(Rejection::Failed, "m-1")]));
}

on_each_server!(a_message_that_the_hook_did_not_take_is_reported);
async fn a_message_that_the_hook_did_not_take_is_reported(server: Server) {
    let once = engine(&server).await;
    let failing = charge(&once).on_rejected(|_, _| async { Err(PaymentError::Unreachable) });
    let panicking = charge(&once).on_rejected(|message, _| {
        assert_eq!(message.message_id.as_deref(), Some("late"), "at once");
        async { panic!("later") as Result<(), PaymentError> }
    });
    let picky = charge(&once).on_rejected(|message, _| async move {
        (message.message_id.as_deref() == Some("early"))
            .then_some(())
            .ok_or(PaymentError::Declined)
    });
    for (layer, reported) in [
        (failing, vec!["early", "late"]),
        (panicking, vec!["early", "late"]),
        (picky, vec!["late"]),
    ] {
        let messages = [
            message("early", "not JSON"),
            payment("good", "p-1", 2),
            message("late", "nor this"),
        ];
        assert_eq!(deliver(&mut paying(layer), messages).await, reported);
    }
}

on_each_server!(a_hook_that_hangs_is_given_up_before_the_invocation_ends);
async fn a_hook_that_hangs_is_given_up_before_the_invocation_ends(server: Server) {
    let once = engine(&server).await;
    let hanging =
        charge(&once).on_rejected(|_, _| std::future::pending::<Result<(), PaymentError>>());
    let mut event = batch([message("m-1", "not JSON"), payment("good", "p-1", 2)]);
    event.context.deadline = VirtualClock::deadline(Duration::from_secs(6));
    let end = Instant::now() + Duration::from_secs(6);

    let reply = paying(hanging).call(event).await.unwrap();
    assert!(Instant::now() < end, "the reply is in time");
    assert_eq!(reply.batch_item_failures.len(), 1);
    assert_eq!(reply.batch_item_failures[0].item_identifier, "m-1");
}

on_each_server!(rejected_messages_are_counted_and_named_in_the_log_but_not_quoted);
async fn rejected_messages_are_counted_and_named_in_the_log_but_not_quoted(server: Server) {
    let (log, _capture) = Log::capture();
    let once = engine(&server).await;
    let layer = charge(&once).on_rejected(|message, _| async move {
        let taken = message.message_id.as_deref() == Some("taken");
        taken.then_some(()).ok_or("secret-excuse")
    });
    let messages = [
        message("taken", "secret-1"),
        message("refused", "secret-2"),
        payment("good", "p-1", 2),
    ];
    assert_eq!(deliver(&mut paying(layer), messages).await, ["refused"]);
    let log = log.text();
    for said in [
        "\"rejected\"",
        "\"hook_failed\"",
        "\"reported\"",
        "messages=3 rejected=2 reported=1",
    ] {
        assert!(log.contains(said), "{said} in {log}");
    }
    assert!(!log.contains("secret-"), "{log}");
}

on_each_server!(an_error_of_the_hook_is_named_by_its_type_and_by_its_text_where_texts_are_logged);
async fn an_error_of_the_hook_is_named_by_its_type_and_by_its_text_where_texts_are_logged(
    server: Server,
) {
    for (log_errors, said) in [
        (false, "error=\"alloc::string::String\""),
        (true, "error=\"the lot is full\""),
    ] {
        let (log, _capture) = Log::capture();
        let once = builder(server.store().await)
            .settings(|settings| settings.log_errors = log_errors)
            .build();
        let full = |_, _| async { Err("the lot is full".to_owned()) };
        let mut worker = paying(charge(&once.unwrap()).on_rejected(full));
        reports(&mut worker, [message("m-1", "not JSON")], &["m-1"]).await;
        let log = log.text();
        assert!(
            log.contains("\"hook_failed\"") && log.contains(said),
            "{log}"
        );
        assert_eq!(log.contains("full"), log_errors, "{log}");
    }
}

/// The texts that the hook gets for a payment that is declined, now and in an earlier delivery; and what is logged.
async fn declined(once: Idempotency) -> (Vec<String>, String) {
    let (log, _capture) = Log::capture();
    let texts = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&texts);
    let mut worker = paying(
        charge(&once)
            .permanent(|error| matches!(error, PaymentError::Declined))
            .on_rejected(move |_, why| {
                noted.lock().unwrap().push(why.to_string());
                async { Ok::<_, PaymentError>(()) }
            }),
    );
    for id in ["m-1", "m-2"] {
        let message = payment(id, "p-1", 0);
        assert_eq!(deliver(&mut worker, [message]).await, NOTHING);
    }
    let texts = texts.lock().unwrap().clone();
    (texts, log.text())
}

on_each_server!(the_hook_gets_the_type_of_an_error_and_its_text_where_the_log_has_it);
async fn the_hook_gets_the_type_of_an_error_and_its_text_where_the_log_has_it(server: Server) {
    let (texts, log) = declined(engine(&server).await).await;
    let kind = std::any::type_name::<PaymentError>();
    assert_eq!(
        texts,
        [format!("failed: {kind}"), format!("failed: {kind}")]
    );
    assert_eq!(
        log.matches(&format!("detail=\"{kind}\"")).count(),
        2,
        "{log}"
    );
    assert!(!log.contains("card declined"), "{log}");

    let once = builder(server.store().await)
        .settings(|settings| settings.log_errors = true)
        .build();
    let (texts, log) = declined(once.unwrap()).await;
    assert_eq!(texts, ["failed: card declined", "failed: card declined"]);
    assert_eq!(log.matches("detail=\"card declined\"").count(), 2, "{log}");
}

on_each_server!(the_hook_gets_the_code_and_the_detail_of_what_is_logged);
async fn the_hook_gets_the_code_and_the_detail_of_what_is_logged(server: Server) {
    let (log, _capture) = Log::capture();
    let (once, whys) = (engine(&server).await, Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&whys);
    let mut worker = paying(charge(&once).on_rejected(move |_, why| {
        noted.lock().unwrap().push(why);
        async { Ok::<_, PaymentError>(()) }
    }));
    reports(&mut worker, all_kinds(), &["declined", "unreachable"]).await;
    let whys = whys.lock().unwrap();
    let mut codes: Vec<_> = whys.iter().map(|why| why.reason).collect();
    codes.sort_unstable();
    let expected = [
        "key_missing",
        "key_too_long",
        "mismatch",
        "no_body",
        "undecodable_body",
    ];
    assert_eq!(codes, expected);
    for why in whys.iter() {
        let logged = format!("detail={:?}", why.detail);
        assert!(log.text().contains(&logged), "{logged} in {}", log.text());
    }
}
