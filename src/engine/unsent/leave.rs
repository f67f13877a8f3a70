//! Leaves endings of dropped runs to the engine's next call.

use super::{Later, Unsent};
use crate::engine::claim::{Claim, Hold};
use crate::engine::metrics::Count;
use crate::engine::{Engine, Request, events};
use crate::protocol::OnCrash;
use crate::protocol::journal::Journal;
use crate::protocol::record::{Owner, RecordWrite, Release, WITHOUT_REPLY};

impl Engine {
    /// Leaves an ending to the engine's next call. What is only observed is not left: no call waits
    /// for it.
    pub(in crate::engine) fn leave(
        &self,
        request: &Request,
        hold: &Hold,
        write: RecordWrite,
        large: Option<String>,
    ) {
        if self.observed.is_none() {
            events::ending_left(request, hold, &write);
            self.push(request, hold, write, large, None);
        }
    }

    fn push(
        &self,
        request: &Request,
        hold: &Hold,
        write: RecordWrite,
        large: Option<String>,
        later: Option<Later>,
    ) {
        self.unsent.push(Unsent {
            request: request.without_batch(),
            // Without the journal, whose results may be large.
            hold: Hold {
                owner: hold.owner.clone(),
                attempt: hold.attempt,
                lease: hold.lease,
                keeps_fingerprint: hold.keeps_fingerprint,
                journal: Journal::default(),
            },
            write,
            large,
            later,
        });
    }

    /// Leaves the release of a claim that may still arrive to a later call, after this many such tries.
    pub(in crate::engine) fn leave_for_later(
        &self,
        request: &Request,
        hold: &Hold,
        release: Release,
        tries: usize,
    ) {
        if self.observed.is_none()
            && let Some(later) = Later::after(tries)
        {
            self.push(request, hold, release.into(), None, Some(later));
        }
    }

    /// Leaves a release to the engine's next call.
    pub(in crate::engine) fn leave_release(
        &self,
        request: &Request,
        hold: &Hold,
        last_error: &str,
    ) {
        match Owner::random() {
            Ok(tombstone) => {
                let release = Release {
                    last_error: Some(last_error.to_owned()),
                    forget_fingerprint: !hold.keeps_fingerprint,
                    ..Release::new(request.id.clone(), hold.owner.clone(), tombstone)
                };
                self.leave(request, hold, release.into(), None);
            }
            Err(error) => events::release_failed(request, hold.attempt, &error),
        }
    }

    /// Leaves a release of a claim that may have applied. Its work didn't begin under the claim, but
    /// its caller may do it without: the fingerprint stays, so that no other payload gets the key.
    pub(in crate::engine) fn leave_claimed(&self, request: &Request, hold: &Hold) {
        let mut hold = hold.clone();
        hold.keeps_fingerprint = true;
        self.leave_release(request, &hold, WITHOUT_REPLY);
    }

    /// Ends a run that was dropped while its work went on, as one whose work panicked: what the
    /// work did is not known.
    pub(in crate::engine) fn leave_dropped(
        &self,
        request: &Request,
        hold: &mut Hold,
        claim: &Claim,
    ) {
        request.meter.count(Count::Failures);
        hold.keeps_fingerprint = true;
        self.follow(claim, hold);
        if self.settings.rules.on_crash == OnCrash::RunAgain {
            self.leave_release(request, hold, "dropped");
        }
    }
}
