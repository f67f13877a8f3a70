//! Tests of the module above.

use super::*;

const ANYTHING: Admission = |_, _| Ok(());

#[test]
fn writes_are_collected_in_order_until_the_handler_has_returned() {
    let collected = Collected::new(Some(ANYTHING), None);
    for (body, before) in [(1, 0), (2, 1)] {
        assert_eq!(collected.count(), before);
        collected.add(Write::new(body)).unwrap();
    }
    assert_eq!(collected.count(), 2);
    let writes = collected.close();
    let bodies: Vec<_> = writes.iter().map(|write| write.body::<i32>()).collect();
    assert_eq!(bodies, [Some(&1), Some(&2)]);
    assert_eq!(collected.add(Write::new(3)), Err(WriteError::Closed));
    assert!(collected.close().is_empty());
    assert_eq!(collected.count(), 0);
}

#[test]
fn a_store_without_transactions_refuses_the_first_write() {
    let collected = Collected::new(None, None);
    assert_eq!(collected.add(Write::new(1)), Err(WriteError::NotSupported));
}

#[test]
fn a_write_that_the_store_does_not_admit_does_not_join_the_others() {
    let one_at_most: Admission = |writes, _| match writes.len() {
        0 => Ok(()),
        _ => Err(WriteError::TooMany { max: 1 }),
    };
    let collected = Collected::new(Some(one_at_most), None);
    collected.add(Write::new(1)).unwrap();
    let second = collected.add(Write::new(2));
    assert_eq!(second, Err(WriteError::TooMany { max: 1 }));
    assert_eq!(collected.count(), 1);
}

#[test]
fn a_refusal_shows_what_its_condition_met_where_it_is_of_the_type_that_is_asked_for() {
    let refusal = Refusal::new(0, Some(Box::new(7_u8)));
    assert_eq!(refusal.met::<u8>(), Some(&7));
    assert_eq!(refusal.met::<u16>(), None);
    assert_eq!(Refusal::new(0, None).met::<u8>(), None);
}

#[test]
fn the_answer_of_the_write_that_was_refused_comes_out_in_its_own_type() {
    let writes = vec![
        Write::new(1).or_else(|_| "first"),
        Write::new(2).or_else(|refusal| refusal.met::<u8>().copied().unwrap_or_default()),
    ];
    let refusal = Refusal::new(1, Some(Box::new(7_u8))).asked(writes);
    let refusal = refusal.into_answer::<&str>().unwrap_err();
    assert_eq!(refusal.index, 1);
    assert!(refusal.unread_answer().to_string().contains("`u8`"));
    assert_eq!(refusal.into_answer::<u8>().unwrap(), 7);
}

#[test]
fn a_write_without_an_answer_and_one_whose_answer_panics_give_the_refusal_itself() {
    let panics = Write::new(1).or_else(|_| -> &'static str { panic!("boom") });
    for write in [Write::new(1), panics] {
        let refusal = Refusal::new(0, None).asked(vec![write]);
        let refusal = refusal.into_answer::<&str>().unwrap_err();
        assert_eq!(refusal.unread_answer().to_string(), "");
    }
}

#[tokio::test]
async fn a_store_without_transactions_rejects_a_commit() {
    use crate::store::{MemoryStore, Store, StoreError};

    let soon = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
    let store = MemoryStore::new();
    let rejected = store.commit(Commit::new("token", None, &[]), soon).await;
    assert_matches!(rejected, Err(StoreError::Rejected(_)));
}
