//! The documents of an invocation are written when it ends, whatever the end.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use metrics::counter;
use tokio::time::timeout;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::Written;

/// Counts when it is dropped, as an engine does that gives its claim up.
struct LastCount;

impl Drop for LastCount {
    fn drop(&mut self) {
        counter!("dropped").increment(1);
    }
}

#[tokio::test]
async fn the_documents_are_written_when_the_answer_is_there_and_each_count_in_one_of_them() {
    let written = Written::new();
    let recorder = written.exporter.recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    counter!("at_start").increment(1);
    let handler = service_fn(async |event: u64| {
        counter!("orders").increment(event);
        Ok::<_, Infallible>(())
    });
    let mut handler = written.exporter.layer(handler);
    for event in [3, 4] {
        handler.ready().await.unwrap().call(event).await.unwrap();
        let documents = written.documents();
        assert_eq!(documents.len(), 1);
        assert_eq!(documents[0]["orders"], event);
        assert_eq!(documents[0].get("at_start").is_some(), event == 3);
    }
    assert!(written.flushed().is_empty());
}

#[tokio::test]
async fn a_handler_that_fails_panics_or_is_dropped_leaves_no_count_behind() {
    let written = Written::new();
    let recorder = written.exporter.recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let handler = service_fn(async |end: &str| {
        let _last = LastCount;
        counter!("orders").increment(1);
        match end {
            "an error" => Err(()),
            "a panic" => panic!("as the test wants"),
            _ => pending().await,
        }
    });
    let handler: BoxCloneService<_, (), ()> = BoxCloneService::new(handler);
    let handler = written.exporter.layer(handler);

    handler.clone().oneshot("an error").await.unwrap_err();
    let counted = written.documents();
    assert_eq!(
        (&counted[0]["orders"], &counted[0]["dropped"]),
        (&1.into(), &1.into())
    );

    let panicked = tokio::spawn(handler.clone().oneshot("a panic"));
    assert!(panicked.await.unwrap_err().is_panic());
    let counted = written.documents();
    assert_eq!(
        (&counted[0]["orders"], &counted[0]["dropped"]),
        (&1.into(), &1.into())
    );

    {
        let hangs = pin!(handler.oneshot("a timeout"));
        timeout(Duration::ZERO, hangs).await.unwrap_err();
        assert!(written.documents().is_empty());
    }
    let counted = written.documents();
    assert_eq!(
        (&counted[0]["orders"], &counted[0]["dropped"]),
        (&1.into(), &1.into())
    );
}
