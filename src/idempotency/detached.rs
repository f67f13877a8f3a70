//! Runs requests in tasks of their own, which a caller that goes away doesn't cut off.

use std::future::Future;
use std::panic::resume_unwind;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::engine::Caller;
use crate::engine::claim::Claim;
use crate::engine::error::{Error, Obstacle};
use crate::idempotency::Idempotency;
use crate::idempotency::outcome::{Outcome, Verdict};
use crate::protocol::causes::HandlerError;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::store::StoreError;

impl Idempotency {
    /// Runs the handler as [`run`](Self::run) does, in a task of its own that the caller joins: for
    /// servers, where the caller may go away meanwhile.
    ///
    /// Claim, handler and completion go on when the returned future is dropped, so that a retry is
    /// given the outcome. At most [`detached_limit`](crate::Builder::detached_limit) runs go on at
    /// a time. A server calls [`drain`](Self::drain) before its process ends.
    ///
    /// The task has the caller's tracing span and subscriber; task-locals stay behind. An engine
    /// that is bound to an invocation's [deadline](Self::deadline) spawns nothing where work
    /// [ends](crate::AtDeadline::End) with it, since Lambda freezes what goes on after the reply:
    /// there it is [`run`](Self::run).
    ///
    /// ```
    /// use lambda_idempotency::{Fingerprint, Idempotency, Key, store::MemoryStore};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let charge = || {
    ///     once.run_detached(Key::new("charge", "A-17"), Fingerprint::json(b"{}"), |_claim| async {
    ///         tokio::time::sleep(Duration::from_millis(50)).await;
    ///         Ok::<_, std::io::Error>("receipt 1".to_owned())
    ///     })
    /// };
    /// // The caller gives up before the handler has ended.
    /// assert!(tokio::time::timeout(Duration::from_millis(10), charge()).await.is_err());
    ///
    /// let left = once.drain(Duration::from_secs(5)).await;
    /// assert_eq!(left, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); and [`Error::Overloaded`] where the limit is reached or the engine
    /// drains. [`Error::Unrecorded`] where the runtime shut down and cut the task off.
    ///
    /// # Panics
    ///
    /// When the handler panics, as [`run`](Self::run) does; and outside of a tokio runtime.
    ///
    /// # Cancellation
    ///
    /// The run goes on; one that still [waits](crate::InFlight::WaitUpTo) for another attempt ends
    /// within about a second. A future that was never polled has started nothing.
    pub async fn run_detached<T, E, M, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: HandlerError<M> + Send,
        M: 'static,
        F: FnOnce(Claim) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.run_detached_with(key, fingerprint, handler, Verdict::of)
            .await
    }

    /// Runs the handler as [`run_detached`](Self::run_detached) does, and lets `verdict` decide as
    /// [`run_with`](Self::run_with) does.
    ///
    /// # Errors
    ///
    /// As [`run_detached`](Self::run_detached).
    pub async fn run_detached_with<T, E, M, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict + Send + 'static,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: HandlerError<M> + Send,
        M: 'static,
        F: FnOnce(Claim) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (key, fingerprint) = (key.into(), fingerprint.into());
        let run = async move |once: Self| once.run_with(key, fingerprint, handler, verdict).await;
        if self.ends_with_invocation() {
            return run(self.clone()).await;
        }
        self.detach(run).await.map_err(Obstacle::widen)?
    }

    /// Waits until the detached runs of this engine have ended, and returns the number of those
    /// that have not when `timeout` is over: 0 is a clean end. From the call on, no other one
    /// begins: it is answered with [`Error::Overloaded`].
    ///
    /// A server calls it when it has stopped to accept connections, and then ends its process. A
    /// run that is left is cut off with the process: its effect may have happened, its outcome is
    /// not stored, and its key is free when its lease is over. The log then has the event
    /// `drain_timed_out`, with the number in `left`. Drain for longer, or give handlers a shorter
    /// timeout than this one.
    #[must_use = "the number of runs that were left, which end with the process before their outcomes are stored: log it, and drain for longer where it isn't 0"]
    pub async fn drain(&self, timeout: Duration) -> u32 {
        let left = self.engine.detached.drain(timeout).await;
        if left > 0 {
            tracing::warn!(
                event = "drain_timed_out",
                left,
                detail = format!(
                    "{left} detached runs have not ended in {timeout:?}: if the process ends now, they are cut off before their outcomes are stored, and a retry runs again when the lease is over; drain for longer, or give handlers a shorter timeout"
                ),
                "idempotency"
            );
        }
        left
    }

    /// Tells whether the engine is bound to the deadline of an invocation that ends its work.
    pub(crate) fn ends_with_invocation(&self) -> bool {
        self.options.deadline.is_some() && !self.goes_on()
    }

    /// Runs this in a task of its own, and joins it.
    pub(crate) async fn detach<T, Fut>(&self, run: impl FnOnce(Self) -> Fut) -> Result<T, Obstacle>
    where
        T: Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let Some(admitted) = self.engine.detached.admit() else {
            tracing::warn!(event = "overloaded", "idempotency");
            return Err(Error::Overloaded);
        };
        let caller = Caller::default();
        let run = run(self.with(|options| {
            options.called_by = caller.called_by();
            options.place = Some(admitted.place());
        }));
        let task = async move {
            let _admitted = admitted;
            run.await
        };
        let task = tokio::spawn(task.in_current_span().with_current_subscriber());
        let joined = task.await;
        drop(caller);
        joined.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(cancelled) => Error::Unrecorded(StoreError::Unavailable(cancelled.into())),
        })
    }
}
