//! The audit itself.

use futures_util::{Stream, StreamExt, pin_mut};
use lambda_idempotency::{EpochMillis, RecordId};

use crate::AuditError;
use crate::effects::{Asked, Effects};
use crate::key::EffectKey;
use crate::record::Completed;
use crate::sample::Sample;
use crate::tally::Tally;

/// The records that are compared.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Only those of this namespace. A raw id tells no namespace: its record may be another service's,
    /// and is left out. `None` takes the records of all namespaces, and raw ids, but none of an engine
    /// that observes, whose handler runs for each delivery.
    pub namespace: Option<String>,
    /// Only those of this operation. A raw id tells none.
    pub operation: Option<String>,
    /// Completed at this time or later.
    pub since: Option<EpochMillis>,
    /// Completed before this time: an effect may take a while to be seen.
    pub before: EpochMillis,
    /// Not expired at this time, which is now: each duplicate of an expired record runs again.
    pub now: EpochMillis,
    /// At most so many, drawn with this seed; `None` compares all.
    pub sample: Option<(usize, u64)>,
    /// The number of ids of each kind that are kept, to be shown: all may be too many.
    pub shown: usize,
}

impl Selection {
    fn takes(&self, record: &Completed) -> bool {
        // As ids have it: cut at 255 bytes.
        let cut = |operation: &str| operation.floor_char_boundary(255);
        let is_of = |of: &String| record.operation() == of.get(..cut(of));
        let is_in = |namespace: &String| record.namespace() == Some(namespace);
        let in_time =
            |at: EpochMillis| self.since.is_none_or(|since| at >= since) && at < self.before;
        let is_protected = || RecordId::observed_in(&record.id).is_none();
        self.namespace.as_ref().map_or_else(is_protected, is_in)
            && self.operation.as_ref().is_none_or(is_of)
            && record.completed_at.is_none_or(in_time)
            && record.expiration.to_millis() > self.now
    }
}

/// The number of records that are compared together.
const TOGETHER: usize = 500;

/// Compares the records with their effects.
///
/// # Errors
///
/// When the records can't be read, or the effects can't be counted. Earlier findings are lost.
pub async fn audit(
    records: impl Stream<Item = Result<Vec<Completed>, AuditError>>,
    effects: &mut impl Effects,
    key: &EffectKey,
    selection: &Selection,
) -> Result<Tally, AuditError> {
    let mut tally = Tally::showing(selection.shown);
    let mut sample = selection.sample.map(|(size, seed)| Sample::new(size, seed));
    pin_mut!(records);
    while let Some(page) = records.next().await {
        let page = page?.into_iter().filter(|record| selection.takes(record));
        match &mut sample {
            Some(sample) => page.for_each(|record| sample.offer(record)),
            None => compare(page.collect(), effects, key, &mut tally).await?,
        }
    }
    if let Some(sample) = sample {
        compare(sample.into_records(), effects, key, &mut tally).await?;
    }
    Ok(tally)
}

async fn compare(
    records: Vec<Completed>,
    effects: &mut impl Effects,
    key: &EffectKey,
    tally: &mut Tally,
) -> Result<(), AuditError> {
    let mut asked = Vec::new();
    for record in records {
        match key.of(&record) {
            // Without its time, nobody can tell whether its effect can be seen yet.
            Some(key) if record.completed_at.is_some() => asked.push(Asked { record, key }),
            _ => tally.add_not_judged(),
        }
    }
    for few in asked.chunks(TOGETHER) {
        let counts = effects.count(few).await?;
        if counts.len() != few.len() {
            return Err(AuditError::Effects(format!(
                "{} records were asked for, and {} counts came",
                few.len(),
                counts.len()
            )));
        }
        for (asked, count) in few.iter().zip(counts) {
            if count == 0 && asked.record.may_be_refused {
                tally.add_not_judged();
            } else {
                tally.add(&asked.record, count);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use lambda_idempotency::EpochSeconds;

    use super::*;

    /// Effects by the last digit of their name: 0 has none, 1 has two, the others one.
    struct ByDigit;

    impl Effects for ByDigit {
        async fn count(&mut self, asked: &[Asked]) -> Result<Vec<u64>, AuditError> {
            let count = |asked: &Asked| match asked.key.chars().last() {
                Some('0') => 0,
                Some('1') => 2,
                _ => 1,
            };
            Ok(asked.iter().map(count).collect())
        }
    }

    fn record(number: i64) -> Completed {
        let operation = if number < 50 { "pay" } else { "refund" };
        Completed {
            completed_at: Some(EpochMillis(number)),
            ..Completed::example(format!("n#{operation}#{number:064}"))
        }
    }

    fn all() -> Selection {
        Selection {
            namespace: None,
            operation: None,
            since: None,
            before: EpochMillis(1_000),
            now: EpochMillis(1_000),
            sample: None,
            shown: 3,
        }
    }

    async fn run(selection: &Selection) -> Tally {
        let pages = (0..10).map(|page| Ok((0..10).map(|one| record(page * 10 + one)).collect()));
        let pages = stream::iter(pages);
        let tally = audit(pages, &mut ByDigit, &EffectKey::Hash, selection).await;
        tally.unwrap()
    }

    /// Compares one page.
    async fn compared(page: Vec<Completed>, key: &EffectKey, selection: &Selection) -> Tally {
        let pages = stream::iter([Ok(page)]);
        audit(pages, &mut ByDigit, key, selection).await.unwrap()
    }

    #[tokio::test]
    async fn missing_and_double_effects_are_found() {
        let tally = run(&all()).await;
        let counts = (tally.missing_rate().count, tally.double_rate().count);
        assert_eq!((tally.checked(), counts), (100, (10, 10)));
        assert!(tally.found_any() && tally.missing().contains(&format!("n#pay#{:064}", 0)));
        // Those that are shown.
        assert_eq!((tally.missing().len(), tally.double().len()), (3, 3));
    }

    #[tokio::test]
    async fn a_selection_leaves_the_others_out() {
        type Change = fn(&mut Selection);
        let selections: [(Change, u64); 4] = [
            (|it| it.operation = Some("pay".to_owned()), 50),
            (|it| it.since = Some(EpochMillis(90)), 10),
            (|it| it.before = EpochMillis(5), 5),
            (|it| it.sample = Some((30, 7)), 30),
        ];
        for (change, checked) in selections {
            let mut selection = all();
            change(&mut selection);
            let tally = run(&selection).await;
            assert_eq!(tally.checked(), checked, "{selection:?}");
        }
    }

    #[tokio::test]
    async fn a_record_that_has_expired_is_left_out() {
        for (expiration, checked) in [(1, 0), (2, 1)] {
            let kept = Completed {
                expiration: EpochSeconds(expiration),
                ..record(1)
            };
            let tally = compared(vec![kept], &EffectKey::Hash, &all()).await;
            assert_eq!(tally.checked(), checked, "{expiration}");
        }
    }

    #[tokio::test]
    async fn a_record_that_does_not_tell_its_effect_or_its_time_is_not_judged() {
        let without_time = Completed {
            completed_at: None,
            ..record(1)
        };
        for (record, key) in [
            (record(1), EffectKey::Outcome("/id".parse().unwrap())),
            (without_time, EffectKey::Hash),
        ] {
            let tally = compared(vec![record], &key, &all()).await;
            assert_eq!((tally.checked(), tally.not_judged()), (0, 1), "{key:?}");
        }
    }

    #[tokio::test]
    async fn of_a_request_that_may_have_been_refused_no_effect_is_missing() {
        for (may_be_refused, number, expected) in [
            (true, 0, (0, 0, 1)),
            (true, 2, (1, 0, 0)),
            (false, 0, (1, 1, 0)),
        ] {
            let record = Completed {
                id: format!("n#POST /orders#{number:064}"),
                may_be_refused,
                ..record(1)
            };
            let tally = compared(vec![record], &EffectKey::Hash, &all()).await;
            let missing = tally.missing_rate().count;
            let counts = (tally.checked(), missing, tally.not_judged());
            assert_eq!(counts, expected, "{may_be_refused}, {number}");
        }
    }

    #[tokio::test]
    async fn raw_and_observed_ids_are_taken_as_far_as_they_tell_their_namespace() {
        let hash = "0a".repeat(32);
        for (namespace, operation, counts) in [
            (None, None, (2, 0)),
            (Some("n"), None, (0, 0)),
            (Some("m"), None, (1, 0)),
            (None, Some("pay"), (1, 0)),
            // Its engine only observes.
            (Some("n.observed"), None, (0, 1)),
        ] {
            let ids = [
                "order-17".to_owned(),
                format!("n.observed#{hash}"),
                format!("n.observed#pay#{hash}"),
                format!("m#pay#{:064}", 2),
            ];
            let records = ids.map(|id| Completed { id, ..record(1) });
            let selection = Selection {
                namespace: namespace.map(str::to_owned),
                operation: operation.map(str::to_owned),
                ..all()
            };
            let tally = compared(records.into(), &EffectKey::Id, &selection).await;
            let found = (tally.checked(), tally.not_judged());
            assert_eq!(found, counts, "{selection:?}");
        }
    }
}
