//! The table, with somebody who writes down each change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lambda_idempotency::RecordId;
use lambda_idempotency::StoreError;
use lambda_idempotency::packed::{LargeOutcome, Place};
use lambda_idempotency::record::{
    Amendment, Completion, Found, NewClaim, Owner, Record, Release, Renewal, Status, Takeover,
    Version,
};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::transaction::{Admission, Basis, Commit, Committed, Final, Refusal};
use tokio::time::Instant;

use crate::broken::Mutation;
use crate::scenario::{Books, Scenario};
use crate::world::{World, millis};

/// A write that applied.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: i64,
    pub id: RecordId,
    pub kind: Kind,
    /// Who sent it; `None` for TTL.
    pub by: Option<Owner>,
    pub before: Option<Record>,
    pub after: Option<Record>,
    /// Whether it is a transaction that arrived when nobody waited for its answer any more.
    pub late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Create,
    /// A takeover of what had expired.
    Replace,
    /// A takeover of what was released, or crashed.
    Resume,
    Complete,
    /// A completion with business writes, under the fence or in the claimless form.
    Commit,
    Renew,
    Amend,
    Release,
    Swept,
}

/// A business write: an entry in a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booking {
    /// The value of the execution that made it.
    pub value: usize,
    pub books: Books,
}

/// How a transaction comes to the table.
enum Passage {
    AtOnce,
    /// Its reply is lost, and it arrives only after so long.
    Late(Duration),
    /// It takes so long, and arrives even if its caller is dropped meanwhile.
    Slow(Duration),
    /// It is answered, and a copy of it arrives after so long.
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
struct Book {
    entries: Vec<(i64, Booking)>,
    /// Of the transactions that applied: the same request again is answered, and changes nothing. A record without bookings is
    /// no transaction, and has no token.
    tokens: Vec<String>,
    late: Vec<Late>,
    /// What was reached, by its name.
    reached: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug)]
pub struct Watched {
    table: MemoryStore,
    world: World,
    mutation: Mutation,
    book: Arc<Mutex<Book>>,
    dice: Arc<Mutex<fastrand::Rng>>,
    trouble: f64,
    season: i64,
    /// So late may a transaction be: a request's signature is refused long before a record expires.
    latest: i64,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Watched {
    pub fn new(world: World, mutation: Mutation, seed: u64, scenario: &Scenario) -> Self {
        Self {
            table: MemoryStore::new(),
            world,
            mutation,
            book: Arc::default(),
            dice: Arc::new(Mutex::new(fastrand::Rng::with_seed(!seed))),
            trouble: scenario.trouble,
            season: scenario.season,
            latest: scenario.retention.min(scenario.failure_retention),
            changes: Arc::default(),
        }
    }

    /// Every change, once.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut *self.changes.lock().expect("not poisoned"))
    }

    /// The bookings that stand, and what else was reached, once.
    pub fn take_book(&self) -> (Vec<(i64, Booking)>, BTreeMap<&'static str, u64>) {
        let book = std::mem::take(&mut *self.book());
        (book.entries, book.reached)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("not poisoned")
    }

    fn passage(&self) -> Passage {
        let mut dice = self.dice.lock().expect("not poisoned");
        if dice.f64() >= self.trouble {
            return Passage::AtOnce;
        }
        let later = millis(dice.i64(1..self.latest / 2));
        match dice.u8(0..4) {
            0 => Passage::Late(later),
            1 => Passage::Copied(later),
            2 => Passage::Slow(millis(dice.i64(1..2_000))),
            _ => Passage::AtOnce,
        }
    }

    fn reach(&self, what: &'static str) {
        *self.book().reached.entry(what).or_default() += 1;
    }

    /// Whether a booking's condition holds now.
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
        // One that nobody carried in time is lost.
        let fresh = due
            .into_iter()
            .filter(|late| now < late.at + millis(self.latest / 2));
        for late in fresh {
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
        let stands = match (&record.basis, &before) {
            (Basis::Claimed, Some(record)) if self.mutation.spares_fence(late) => {
                record.status == Status::InProgress
            }
            (Basis::Claimed, Some(record)) => {
                record.status == Status::InProgress && record.owner.as_ref() == Some(me)
            }
            (Basis::Absent(_), None) => true,
            (Basis::Version { seen, .. }, Some(record)) => Version::of(record) == *seen,
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
        let far = Instant::now() + Duration::from_secs(1);
        let claimed = match &record.basis {
            Basis::Absent(claim) => self.table.create(claim, far).await.is_ok(),
            Basis::Version { seen, mode, claim } => {
                self.table.take_over(seen, claim, *mode, far).await.is_ok()
            }
            _ => true,
        };
        let mut sent = completion.clone();
        if let Some(record) = self.record(id).await {
            sent.owner = record.owner.expect("a claim of ours");
        }
        let completed = self.table.complete(&sent, far).await;
        assert!(
            claimed && matches!(completed, Ok(Answer::Applied(()))),
            "the basis was checked"
        );
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

    pub async fn record(&self, id: &RecordId) -> Option<Record> {
        let far = Instant::now() + std::time::Duration::from_secs(1);
        let found = self.table.load(id, far).await.expect("a table in memory");
        found.map(|found| *found.content.expect("a record that this crate wrote"))
    }

    /// TTL comes by.
    pub async fn sweep(&self, ids: &[RecordId]) {
        let mut before = Vec::new();
        for id in ids {
            before.push(self.record(id).await);
        }
        self.table
            .sweep(lambda_idempotency::EpochMillis(self.world.now()));
        for (id, before) in ids.iter().zip(before) {
            if before.is_some() && self.record(id).await.is_none() {
                self.note(id, Kind::Swept, None, before, None, false);
            }
        }
    }

    fn note(
        &self,
        id: &RecordId,
        kind: Kind,
        by: Option<&Owner>,
        before: Option<Record>,
        after: Option<Record>,
        late: bool,
    ) {
        self.changes.lock().expect("not poisoned").push(Change {
            at: self.world.now(),
            id: id.clone(),
            kind,
            by: by.cloned(),
            before,
            after,
            late,
        });
    }

    async fn watch<T>(
        &self,
        id: &RecordId,
        kind: Kind,
        by: &Owner,
        write: impl Future<Output = Result<Answer<T>, StoreError>>,
    ) -> Result<Answer<T>, StoreError> {
        self.arrivals().await;
        // Nothing in memory waits, so nobody comes between.
        let before = self.record(id).await;
        let answer = write.await?;
        if matches!(answer, Answer::Applied(_)) {
            let after = self.record(id).await;
            self.note(id, kind, Some(by), before, after, false);
        }
        Ok(answer)
    }
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

impl Store for Watched {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let sent = self.mutation.claim(claim);
        let write = self.table.create(&sent, deadline);
        self.watch(&claim.id, Kind::Create, &claim.owner, write)
            .await
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let kind = match mode {
            Takeover::Fresh => Kind::Replace,
            _ => Kind::Resume,
        };
        let current = self.record(&claim.id).await;
        let (seen, sent) = self.mutation.takeover(seen, claim, current.as_ref());
        let mode = match self.mutation {
            Mutation::JournalForgotten => Takeover::Fresh,
            _ => mode,
        };
        let write = self.table.take_over(&seen, &sent, mode, deadline);
        self.watch(&claim.id, kind, &claim.owner, write).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if self.mutation == Mutation::CompletionForgotten {
            return Ok(Answer::Applied(()));
        }
        let current = self.record(&completion.id).await;
        let sent = self.mutation.completion(completion, current.as_ref());
        let write = self.table.complete(&sent, deadline);
        self.watch(&completion.id, Kind::Complete, &completion.owner, write)
            .await
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        let write = self.table.renew(renewal, deadline);
        self.watch(&renewal.id, Kind::Renew, &renewal.owner, write)
            .await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        let write = self.table.amend(amendment, deadline);
        self.watch(&amendment.id, Kind::Amend, &amendment.owner, write)
            .await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let current = self.record(&release.id).await;
        let sent = self.mutation.release(release, current.as_ref());
        let write = self.table.release(&sent, deadline);
        self.watch(&release.id, Kind::Release, &release.owner, write)
            .await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.arrivals().await;
        self.table.load(id, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        self.arrivals().await;
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
        match self.passage() {
            Passage::AtOnce => {}
            Passage::Late(pause) => {
                self.book().late.push(late(pause));
                return Err(StoreError::Timeout);
            }
            Passage::Copied(pause) => self.book().late.push(late(pause)),
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
        if let Committed::Refused(refusal) = &committed
            && bookings[refusal.index()].books == Books::Seasonal
        {
            self.reach("a transaction out of season");
        }
        Ok(committed)
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.table.keep(outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.table.fetch(id, place, deadline).await
    }
}
