//! A failed attempt binds its payload to the key where an effect may exist; and what a claim tells.

use std::sync::OnceLock;

use super::*;
use crate::Claim;
use crate::engine::Begun;
use crate::engine::claim::steps::StepError;
use crate::protocol::record::RecordWrite;
use crate::store::transaction::WriteError;

/// Returns whether a failed attempt that did this binds its payload to the key.
async fn is_bound_by(attempt: impl AsyncFn(&Claim)) -> bool {
    let once = engine(Replies::default());
    let handler = async |claim: Claim| {
        attempt(&claim).await;
        Err::<i32, _>("down")
    };
    let failed = once.run(key(), payload(), handler).await;
    assert_matches!(failed, Err(Error::Handler("down")));
    let other = Fingerprint::bytes(b"another payload");
    match once
        .run(key(), other, async |_| Ok::<_, Infallible>(2))
        .await
    {
        Ok(Outcome::Executed(2)) => false,
        Err(Error::Mismatch) => true,
        ended => panic!("{ended:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_may_exist_binds_the_payload_to_the_key() {
    assert!(is_bound_by(async |claim| assert_eq!(claim.derive_key("charge").len(), 64)).await);
    assert!(is_bound_by(async |claim| assert_eq!(claim.derive_uuid("charge").len(), 36)).await);
    let step = async |claim: &Claim| {
        let failed = claim
            .step("charge", async |_| Err::<i32, _>("declined"))
            .await;
        assert_matches!(failed, Err(StepError::Effect("declined")));
    };
    assert!(is_bound_by(step).await);
}

#[tokio::test(start_paused = true)]
async fn what_leaves_no_effect_binds_nothing() {
    assert!(!is_bound_by(async |_| {}).await);
    assert!(
        !is_bound_by(async |claim| assert_eq!(claim.event_id("placed", "order-1", "").len(), 36))
            .await
    );
    let write = async |claim: &Claim| claim.write(Write::new("a business write")).unwrap();
    assert!(!is_bound_by(write).await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_tells_its_time_and_its_writes() {
    let once = engine(Replies::default());
    let handler = async |claim: Claim| {
        let began = claim.now();
        assert_eq!(claim.remaining(), Some(LEASE));
        sleep(Duration::from_secs(7)).await;
        assert_eq!(claim.now(), began + Duration::from_secs(7));
        assert_eq!(
            claim.remaining(),
            Some(LEASE.saturating_sub(Duration::from_secs(7)))
        );
        assert_eq!(claim.deadline(), Some((began + LEASE).into()));
        assert_eq!(claim.collected().count(), 0);
        claim.write(Write::new("a business write")).unwrap();
        claim.write(Write::new("another")).unwrap();
        assert_eq!(claim.collected().count(), 2);
        assert!(claim.is_protected());
        assert_eq!((claim.operation(), claim.attempt()), ("charge", 1));
        Err::<i32, _>("done")
    };
    let ended = once.run(key(), payload(), handler).await;
    assert_matches!(ended, Err(Error::Handler("done")));
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_note_may_have_been_written_binds_the_payload_although_it_did_not_fire() {
    let once = engine(Replies::default().on_write(|write| {
        matches!(write, RecordWrite::Amend { .. })
            .then(|| Err(StoreError::Unavailable("no reply".into())))
    }));
    let run = once.run(key(), payload(), async |claim| {
        let fires = async |_| -> Result<i32, &str> { panic!("it has fired") };
        claim.step("charge", fires).await
    });
    let failed = run.await;
    assert_matches!(failed, Err(Error::Handler(StepError::Store(_))));
    assert!(record(&once).await.unwrap().fingerprint.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_work_that_did_not_return_has_spawned_is_told_and_its_writes_are_refused() {
    for has_panicked in [false, true] {
        let claimed = engine(Replies::default());
        let claimless = claimed.claimless();
        let observing = bench(Replies::default(), |builder| builder.observe(true));
        let disabled = bench(Replies::default(), |builder| builder.disabled(true));
        for once in [claimed, claimless, observing, disabled] {
            let Begun::Run(run) = once.begin(key(), payload()).await.unwrap() else {
                panic!("it is new")
            };
            let claim = run.claim().clone();
            if has_panicked {
                run.panicked().await;
            } else {
                drop(run);
            }
            let late = claim.write(Write::new("a business write"));
            assert_eq!(late, Err(WriteError::Closed));
            assert_eq!(claim.is_over(), claim.is_protected());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_has_spawned_is_told_unless_its_run_has_committed() {
    for (is_claimless, succeeds, commits) in [
        (true, true, true),
        (true, true, false),
        (true, false, true),
        (false, true, true),
        (false, true, false),
        (false, false, true),
    ] {
        let answer = move || {
            let applied = commits.then_some(Committed::Applied);
            applied.ok_or_else(|| StoreError::Rejected("no".into()))
        };
        let once = engine(Replies::default().on_commit(answer));
        let once = if is_claimless { once.claimless() } else { once };
        let kept = OnceLock::new();
        let run = once.run(key(), payload(), async |claim| {
            claim.write(Write::new("a business write")).unwrap();
            kept.set(claim).unwrap();
            succeeds.then_some(1).ok_or("down")
        });
        let is_done = run.await.is_ok();
        assert_eq!(is_done, succeeds && commits);
        assert_eq!(kept.get().unwrap().is_over(), !is_done);
    }
}
