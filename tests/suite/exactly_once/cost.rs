//! The cost of each form: requests at the wire, and capacity units as the server counts them. `docs/recipes/transactions.md` has the table.

use lambda_idempotency::Key;

use super::{Bench, Failed, key, payload, string};
use crate::on_each_server;
use crate::support::Server;

/// The effect in each form: one item of less than a kilobyte.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Written by the handler itself, beside the record.
    Claim,
    Transaction,
    Claimless,
    /// Without any effect: the outcome alone.
    Outcome,
}

async fn run(bench: &Bench, form: Form, key: Key) {
    let once = bench.once();
    let client = bench.proxy.server().client();
    let handler = async |claim: lambda_idempotency::Claim| {
        if let Form::Claim = form {
            let put = client
                .put_item()
                .table_name(&bench.business)
                .item("id", string("order"));
            put.send().await.unwrap();
        } else if !matches!(form, Form::Outcome) {
            claim.write(bench.put("order"))?;
        }
        Ok::<_, Failed>(())
    };
    let once = match form {
        Form::Claimless | Form::Outcome => once.claimless(),
        _ => once,
    };
    once.run(key, payload(), handler).await.unwrap();
}

on_each_server!(requests_and_capacity_units_are_those_in_the_documentation);
async fn requests_and_capacity_units_are_those_in_the_documentation(server: Server) {
    for (form, requests, units, replay) in [
        (Form::Claim, 3, 3.0, 1),
        (Form::Transaction, 2, 5.0, 1),
        (Form::Claimless, 1, 4.0, 1),
        (Form::Outcome, 1, 1.0, 1),
    ] {
        let bench = Bench::on(&server).await;
        bench.proxy.take_units();
        run(&bench, form, key()).await;
        let counted = (bench.proxy.take_total(), bench.proxy.take_units());
        assert_eq!(counted, (requests, units), "{form:?}");
        run(&bench, form, key()).await;
        assert_eq!(bench.proxy.take_total(), replay, "{form:?}, replayed");
    }
}
