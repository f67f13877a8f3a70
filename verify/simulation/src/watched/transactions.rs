//! Transactions of records with bookings, on their own wire.

use std::collections::BTreeMap;
use std::time::Duration;

use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::record::{Final, Found, RecordWrite, Status, Version};
use lambda_idempotency::store::Store;
use lambda_idempotency::store::transaction::{Commit, Committed, Refusal};
use tokio::time::Instant;

use super::{Kind, Watched};
use crate::broken::Mutation;
use crate::scenario::Books;
use crate::world::millis;

/// A business write: an entry in a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booking {
    /// The value of the execution that made it.
    pub value: usize,
    pub books: Books,
}

/// The way of a transaction to the table.
enum Passage {
    AtOnce,
    /// Its reply is lost, and it arrives only after so long.
    Late(Duration),
    /// It takes so long, and arrives even if its caller is dropped meanwhile.
    Slow(Duration),
    /// It is answered, and a copy of it arrives after so long where it applied. One that was refused has no copy: the store sends
    /// a commit once for each call, and the network delivers a request at most once.
    Copied(Duration),
}

/// A transaction that arrives when nobody waits for its answer.
#[derive(Clone, Debug)]
struct Late {
    at: Instant,
    token: String,
    record: Final,
    bookings: Vec<Booking>,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) entries: Vec<(i64, Booking)>,
    /// Of the transactions that applied: the same request again is answered, and changes nothing. A record without bookings is
    /// no transaction, and has no token.
    tokens: Vec<String>,
    late: Vec<Late>,
    /// The number of times that each event was reached, by its name.
    pub(super) reached: BTreeMap<&'static str, u64>,
}

/// A transaction between its caller and the table. Dropped with its caller, or past the deadline, it arrives all the same.
struct UnderWay<'a>(&'a Watched, Option<Late>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(late) = self.1.take() {
            self.0.reach("a transaction whose caller is gone");
            self.0.book().late.push(late);
        }
    }
}

impl Watched {
    fn passage(&self) -> Passage {
        let mut dice = self.dice.lock().expect("not poisoned");
        if dice.f64() >= self.trouble && !self.mutation.loses_replies() {
            return Passage::AtOnce;
        }
        let later = millis(dice.i64(1..self.latest / 2));
        if self.mutation.loses_replies() {
            return Passage::Late(later);
        }
        match dice.u8(0..4) {
            0 => Passage::Late(later),
            1 => Passage::Copied(later),
            2 => Passage::Slow(millis(dice.i64(1..2_000))),
            _ => Passage::AtOnce,
        }
    }

    /// Returns whether a booking's condition holds now.
    fn holds(&self, booking: &Booking) -> bool {
        match booking.books {
            Books::Refused => false,
            Books::Seasonal => (self.world.elapsed() / self.season) % 2 == 0,
            Books::Entry | Books::Nothing => true,
        }
    }

    /// Transactions that are due by now arrive.
    pub async fn arrivals(&self) {
        let now = Instant::now();
        let due: Vec<_> = self
            .book()
            .late
            .extract_if(.., |late| late.at <= now)
            .collect();
        for late in due {
            // One that nobody carried in time is lost: a request's signature is refused long before its record would expire.
            if self.world.now() >= late.record.completion.expiration.to_millis().0 {
                continue;
            }
            let late = (&late.token, &late.record, &late.bookings);
            if let Committed::Refused(_) = self.apply(late.0, late.1, late.2, true).await {
                self.reach("a late transaction whose condition fails");
            }
        }
    }

    fn enter(&self, token: &str, bookings: &[Booking]) {
        let now = self.world.now();
        let mut book = self.book();
        book.tokens.push(token.to_owned());
        book.entries
            .extend(bookings.iter().map(|booking| (now, *booking)));
    }

    /// Makes a write, and tells whether it applied.
    async fn force(&self, write: impl Into<RecordWrite>) -> bool {
        let far = Instant::now() + Duration::from_secs(1);
        let answer = self.table.write(&write.into(), far).await;
        answer.is_ok_and(|answer| answer.is_applied())
    }

    /// All or nothing: nobody comes between, since nothing in memory waits.
    async fn apply(
        &self,
        token: &str,
        record: &Final,
        bookings: &[Booking],
        late: bool,
    ) -> Committed {
        let is_known = |book: &Book| book.tokens.iter().any(|known| known == token);
        if !bookings.is_empty() && is_known(&self.book()) {
            return Committed::Applied;
        }
        let completion = &record.completion;
        let (id, me) = (&completion.id, &completion.owner);
        let before = self.record(id).await;
        let stands = match (&record.claim, &before) {
            (None, Some(record)) if self.mutation.spares_fence(late) => {
                record.status == Status::InProgress
            }
            (None, Some(record)) => {
                record.status == Status::InProgress && record.owner.as_ref() == Some(me)
            }
            (Some(RecordWrite::Create(_)), None) => true,
            (Some(RecordWrite::TakeOver { seen, .. }), Some(record)) => {
                Version::of(record) == *seen
            }
            _ => false,
        };
        if !stands {
            return Committed::Fenced(before.map(Found::readable));
        }
        let refused = bookings.iter().position(|booking| !self.holds(booking));
        if let Some(index) = refused
            && self.mutation != Mutation::RefusedAndWritten
        {
            return Committed::Refused(Refusal::new(index, None));
        }
        let claimed = match &record.claim {
            Some(claim) => self.force(claim.clone()).await,
            None => true,
        };
        let mut sent = completion.clone();
        if let Some(record) = self.record(id).await {
            sent.owner = record.owner.expect("a claim of ours");
        }
        assert!(claimed && self.force(sent).await, "it was checked before");
        self.enter(token, bookings);
        if late {
            self.reach("a late transaction that applies");
        }
        let after = self.record(id).await;
        self.note(id, Kind::Commit, Some(me), before, after, late);
        match refused {
            Some(index) => Committed::Refused(Refusal::new(index, None)),
            None => Committed::Applied,
        }
    }

    /// Brings a transaction to the table, as the dice want it.
    pub(super) async fn carry(
        &self,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let record = commit.record.expect("every run here is protected");
        let bookings: Vec<_> = commit
            .writes
            .iter()
            .map(|write| *write.body::<Booking>().expect("a booking"))
            .collect();
        let late = |pause| Late {
            at: Instant::now() + pause,
            token: commit.token.to_owned(),
            record: record.clone(),
            bookings: bookings.clone(),
        };
        let mut copy = None;
        match self.passage() {
            Passage::AtOnce => {}
            Passage::Late(pause) => {
                self.book().late.push(late(pause));
                // Sent again before the engine hears of it.
                if self.mutation != Mutation::HiddenRetries {
                    return Err(StoreError::Timeout);
                }
            }
            Passage::Copied(pause) => copy = Some(late(pause)),
            Passage::Slow(pause) => {
                let mut under_way = UnderWay(self, Some(late(pause)));
                tokio::time::sleep(pause.min(deadline - Instant::now())).await;
                if Instant::now() >= deadline {
                    return Err(StoreError::Timeout);
                }
                under_way.1 = None;
                self.arrivals().await;
            }
        }
        let committed = self.apply(commit.token, record, &bookings, false).await;
        if matches!(committed, Committed::Applied) {
            self.book().late.extend(copy);
        }
        if let Committed::Refused(refusal) = &committed
            && bookings[refusal.index].books == Books::Seasonal
        {
            self.reach("a transaction out of season");
        }
        Ok(committed)
    }
}
