use super::*;

const ANYTHING: Admission = |_, _| Ok(());

#[test]
fn writes_are_collected_in_order_until_the_handler_has_returned() {
    let collected = Collected::new(Some(ANYTHING));
    collected.add(Write::new(1)).unwrap();
    collected.add(Write::new(2)).unwrap();
    let writes = collected.close();
    let bodies: Vec<_> = writes.iter().map(|write| write.body::<i32>()).collect();
    assert_eq!(bodies, [Some(&1), Some(&2)]);
    assert_eq!(collected.add(Write::new(3)), Err(WriteError::Closed));
    assert!(collected.close().is_empty());
}

#[test]
fn a_store_without_transactions_refuses_the_first_write() {
    let collected = Collected::new(None);
    assert_eq!(collected.add(Write::new(1)), Err(WriteError::NotSupported));
}

#[test]
fn the_answer_of_the_write_that_was_refused_comes_out_in_its_own_type() {
    let writes = vec![
        Write::new(1).or_else(|_| "first"),
        Write::new(2).or_else(|refusal| refusal.met::<u8>().copied().unwrap_or_default()),
    ];
    let refusal = Refusal::new(1, Some(Box::new(7_u8))).asked(writes);
    let refusal = refusal.into_answer::<&str>().unwrap_err();
    assert_eq!(refusal.index(), 1);
    assert_eq!(refusal.into_answer::<u8>().unwrap(), 7);
}

#[test]
fn a_write_without_an_answer_gives_the_refusal_itself() {
    let refusal = Refusal::new(0, None).asked(vec![Write::new(1)]);
    assert!(refusal.into_answer::<&str>().is_err());
}
