//! Runs that are dropped while their transaction is on its way.

use lambda_idempotency::Outcome;

use super::Form::Transaction;
use super::{Bench, Failed, key, payload};
use crate::on_each_server;
use crate::support::crash::drop_when;
use crate::support::{Fault, Server};

on_each_server!(a_transaction_that_is_dropped_on_its_way_has_applied_once_or_not_at_all);
async fn a_transaction_that_is_dropped_on_its_way_has_applied_once_or_not_at_all(server: Server) {
    for applies in [true, false] {
        let bench = Bench::on(&server).await;
        let once = bench.once();
        let park = Fault::Park { applies };
        bench.proxy.inject("TransactWriteItems", park);
        let dropped = Transaction.place(&bench, &once, 1);
        drop_when(bench.proxy.parked(), dropped).await;
        let next = Transaction.place(&bench, &once, 2).await.unwrap();
        assert_eq!(next.is_replayed(), applies);
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server!(a_transaction_that_arrives_after_its_run_was_dropped_and_released_is_refused);
async fn a_transaction_that_arrives_after_its_run_was_dropped_and_released_is_refused(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    // The first send is withheld; the next one waits for the test, which drops the run then.
    bench.proxy.inject("TransactWriteItems", Fault::Withhold);
    bench
        .proxy
        .inject("TransactWriteItems", Fault::Park { applies: false });
    let kept = std::sync::Mutex::new(None);
    let deposit = once.run(key(), payload(), async |claim| {
        claim.write(bench.deposit(5))?;
        *kept.lock().unwrap() = Some(claim);
        Ok::<_, Failed>(1)
    });
    drop_when(bench.proxy.parked(), deposit).await;
    assert!(kept.into_inner().unwrap().unwrap().is_over());
    let next = once.run(key(), payload(), async |_| {
        assert_eq!(bench.proxy.deliver().await, [400]);
        Ok::<_, Failed>("second".to_owned())
    });
    assert_eq!(next.await.unwrap(), Outcome::Executed("second".to_owned()));
    assert_eq!(bench.balance().await, 0);
}
