//! Reports by users of other libraries, and their end here: `tests/suite/peers.md` is the table, most of its tests are in other modules.

use std::io::Error as HandlerError;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{Error, Key};

use crate::on_each_server;
use crate::support::Server;
use crate::support::pages::named_tests;
use crate::support::{Fault, Proxy, builder_on};

#[test]
fn each_test_that_the_page_names_exists() {
    let page = include_str!("peers.md");
    let named = ["tests/suite", "tests/verify"].map(|folder| named_tests(page, folder));
    assert!(named.into_iter().sum::<usize>() > 60, "{named:?}");
}

#[test]
fn the_versions_that_the_pages_name_are_those_that_are_pinned() {
    let pinned = include_str!("../../benches/peers/requirements.txt");
    let python = pinned
        .lines()
        .find_map(|line| line.strip_prefix("aws_lambda_powertools=="))
        .unwrap();
    let pinned: serde_json::Value =
        serde_json::from_str(include_str!("../../benches/peers/package.json")).unwrap();
    let typescript = pinned["dependencies"]["@aws-lambda-powertools/idempotency"]
        .as_str()
        .unwrap();
    let page = include_str!("peers.md");
    assert!(
        page.contains(&format!("Python {python}, TypeScript {typescript}")),
        "{python}, {typescript}"
    );
    assert!(
        include_str!("../../docs/recipes/powertools.md").contains(&format!("version {python}")),
        "{python}"
    );
}

#[test]
#[should_panic(expected = "engine::what_nobody_wrote is named, and isn't there")]
fn a_test_that_a_page_names_and_nobody_wrote_is_found_out() {
    named_tests(
        "`sqs::Visibility`, `engine::what_nobody_wrote`",
        "tests/suite",
    );
}

on_each_server!(an_operation_inside_another_completes_its_own_record);
async fn an_operation_inside_another_completes_its_own_record(server: Server) {
    let once = builder_on(server.store().await, "peers").build().unwrap();
    let inner = || {
        once.run(Key::new("inner", "o-1"), None, |_| async {
            Ok::<_, HandlerError>("inner".to_owned())
        })
    };
    let outer = || {
        once.run(Key::new("outer", "o-1"), None, |_| async {
            let inner = inner().await.map_err(HandlerError::other)?;
            Ok::<_, HandlerError>(format!("outer with {}", inner.into_inner()))
        })
    };
    let first = outer().await.unwrap();
    assert_eq!(
        (first.is_replayed(), first.get().as_str()),
        (false, "outer with inner")
    );
    for _ in 0..2 {
        let (inner, outer) = (inner().await.unwrap(), outer().await.unwrap());
        assert!(inner.is_replayed() && outer.is_replayed());
        assert_eq!(
            [inner.into_inner(), outer.into_inner()],
            ["inner", "outer with inner"]
        );
    }
}

on_each_server!(a_renamed_function_knows_what_it_has_done);
async fn a_renamed_function_knows_what_it_has_done(server: Server) {
    let store = server.store().await;
    let engine = || builder_on(store.clone(), "payments").build().unwrap();
    let charge = |_| async { Ok::<_, HandlerError>("receipt".to_owned()) };
    engine()
        .run(Key::new("charge", "o-1"), None, charge)
        .await
        .unwrap();
    // Another function, in another release: nothing of it is in the key.
    let renamed = |_| async { Err::<String, _>(HandlerError::other("it ran again")) };
    let replayed = engine().run(Key::new("charge", "o-1"), None, renamed).await;
    assert_eq!(replayed.unwrap().into_inner(), "receipt");
}

on_each_server!(a_handlers_error_reaches_its_caller_though_the_release_fails);
async fn a_handlers_error_reaches_its_caller_though_the_release_fails(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let once = builder_on(store, "peers").build().unwrap();
    proxy.inject("UpdateItem", Fault::DENY);
    let failed = once.run(Key::new("charge", "o-1"), None, |_| async {
        Err::<(), _>(HandlerError::other("card declined"))
    });
    let Err(Error::Handler(error)) = failed.await else {
        panic!("another error")
    };
    assert_eq!(error.to_string(), "card declined");
    // The claim stands until its lease is over.
    let retry = once.run(Key::new("charge", "o-1"), None, |_| async {
        Ok::<_, HandlerError>(())
    });
    assert_matches!(retry.await, Err(Error::InFlight { .. }));
}
