//! The functions as Lambda runs them: their own processes, with deadlines, killed and stopped at the worst moments.
//!
//! The tests judge by the tables of DynamoDB Local afterwards, not by a reply.

mod checkout;
mod crash_points;
mod drift_audit;
mod managed_instances;
mod orders_api;
mod outbox;
mod payments_worker;
mod settlements;
mod start_up;
mod stock_movements;
mod tls;

use crate::support::lambda::Function;
use nix::errno::Errno;
use nix::sys::signal::kill;

#[tokio::test]
async fn a_test_that_fails_leaves_no_process_behind() {
    let function = Function::payments_worker().await;
    let (tell, told) = tokio::sync::oneshot::channel();
    let failing = tokio::spawn(async move {
        let sandbox = function.start().await;
        tell.send(sandbox.pid()).unwrap();
        sandbox.stop();
        panic!("on purpose");
    });
    let pid = told.await.unwrap();
    assert!(failing.await.unwrap_err().is_panic());

    assert_eq!(kill(pid, None), Err(Errno::ESRCH));
}
