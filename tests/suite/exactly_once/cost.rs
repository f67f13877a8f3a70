//! The cost of each form: requests at the wire, and capacity units as the server counts them. `docs/recipes/transactions.md` has the table.

use super::{Bench, Failed, Form, key, payload, string};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(requests_and_capacity_units_are_those_in_the_documentation);
async fn requests_and_capacity_units_are_those_in_the_documentation(server: Server) {
    for (form, requests, units) in [
        // The handler itself writes the item, beside the record.
        (None, 3, 3.0),
        (Some(Form::Transaction), 2, 5.0),
        (Some(Form::Claimless), 1, 4.0),
        (Some(Form::Alone), 1, 1.0),
    ] {
        let bench = Bench::on(&server).await;
        let once = bench.once();
        let run = async || {
            if let Some(form) = form {
                return form.place(&bench, &once, 1).await;
            }
            let client = bench.proxy.server().client();
            let put = client.put_item().table_name(&bench.business);
            let put = put.item("id", string("order"));
            once.run(key(), payload(), async |_| {
                put.send().await.unwrap();
                Ok::<_, Failed>(1)
            })
            .await
        };
        bench.proxy.take_units();
        run().await.unwrap();
        let counted = (bench.proxy.take_total(), bench.proxy.take_units());
        assert_eq!(counted, (requests, units), "{form:?}");
        run().await.unwrap();
        assert_eq!(bench.proxy.take_total(), 1, "{form:?}, replayed");
    }
}
