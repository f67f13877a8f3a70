//! Outcomes that no item takes, in a bucket. The bucket is a small server of these tests; S3 itself was not asked.

use lambda_idempotency::Builder;

use super::*;
use crate::support::{Bucket, builder_on};

/// Compressed, it is larger than an item may be.
const LARGE: usize = 700_000;

struct WithBucket {
    bench: Bench,
    bucket: Bucket,
}

impl WithBucket {
    async fn on(server: &Server) -> Self {
        Self {
            bench: Bench::on(server).await,
            bucket: Bucket::new().await,
        }
    }

    fn once(&self) -> Idempotency {
        self.builder_on(Bucket::NAME).build().unwrap()
    }

    fn builder_on(&self, name: &str) -> Builder {
        let store = self.bench.store();
        builder_on(
            store.outcome_bucket(self.bucket.client(), name, "kept/"),
            "oversize",
        )
    }
}

on_each_server!(an_outcome_that_no_item_takes_is_an_object);
async fn an_outcome_that_no_item_takes_is_an_object(server: Server) {
    let with = WithBucket::on(&server).await;
    let (once, large) = (with.once(), noise(LARGE));
    assert_eq!(
        run(&once, &large).await.unwrap(),
        Outcome::Executed(large.clone())
    );
    assert_eq!(with.bench.proxy.take_total(), 2);
    assert_eq!(replay(&once).await.unwrap(), large);
    assert_eq!(with.bench.proxy.take_total(), 1);

    let (record, beside) = with.bench.items().await;
    assert_eq!(beside, None);
    let objects = with.bucket.objects();
    let [(key, _)] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    let owner = record["owner"].as_s().unwrap();
    assert!(
        key.starts_with("kept/") && key.ends_with(&format!("/{owner}")),
        "{key}"
    );
    assert!(
        !key.contains(ID),
        "an id that a caller chose may hold a secret"
    );
}

on_each_server!(what_fits_an_item_is_no_object);
async fn what_fits_an_item_is_no_object(server: Server) {
    let with = WithBucket::on(&server).await;
    run(&with.once(), &noise(20_000)).await.unwrap();
    assert_eq!(with.bucket.objects(), []);
    assert_eq!(replay(&with.once()).await.unwrap(), noise(20_000));
}

on_each_server!(an_object_that_is_damaged_or_gone_is_never_replaced_by_a_second_run);
async fn an_object_that_is_damaged_or_gone_is_never_replaced_by_a_second_run(server: Server) {
    let with = WithBucket::on(&server).await;
    run(&with.once(), &noise(LARGE)).await.unwrap();
    with.bucket.change(|object| Some(object.slice(1..)));
    assert_eq!(omitted(&with.once()).await, Omission::Damaged);
    with.bucket.change(|_| None);
    assert_eq!(omitted(&with.once()).await, Omission::Lost);

    // Neither does a function that was deployed without its bucket run again, and it is told why.
    let error = replay(&with.bench.once()).await.unwrap_err();
    assert_matches!(&error, Error::Store(StoreError::Misconfigured(_)));
    assert!(error.to_string().contains("`outcome_bucket`"), "{error}");
}

on_each_server!(a_bucket_that_refuses_leaves_a_marker_and_says_why_to_a_replay);
async fn a_bucket_that_refuses_leaves_a_marker_and_says_why_to_a_replay(server: Server) {
    let with = WithBucket::on(&server).await;
    with.bucket.refuse(Some((403, "AccessDenied")));
    assert_matches!(
        run(&with.once(), &noise(LARGE)).await,
        Ok(Outcome::Executed(_))
    );
    assert_eq!(omitted(&with.once()).await, Omission::NotKept);
}

on_each_server!(a_replay_that_may_not_read_is_told_what_to_allow);
async fn a_replay_that_may_not_read_is_told_what_to_allow(server: Server) {
    let with = WithBucket::on(&server).await;
    run(&with.once(), &noise(LARGE)).await.unwrap();
    for (status, code, said) in [
        (403, "AccessDenied", "s3:GetObject"),
        (404, "NoSuchBucket", "does not exist"),
        (400, "InvalidRequest", "InvalidRequest"),
        (503, "SlowDown", "throttled"),
        (500, "InternalError", "could not be reached"),
    ] {
        with.bucket.refuse(Some((status, code)));
        let once = with.builder_on(Bucket::NAME);
        let once = once.settings(|settings| settings.store_timeout = Duration::from_secs(3));
        let error = replay(&once.build().unwrap()).await.unwrap_err();
        assert_matches!(error, Error::Store(_), "{code}");
        assert!(error.to_string().contains(said), "{code}: {error}");
    }
    with.bucket.refuse(None);
    assert_eq!(replay(&with.once()).await.unwrap(), noise(LARGE));
}
