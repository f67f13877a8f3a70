//! Waits for another attempt, before a claim or before a commit without one.

use crate::engine::error::{Error, Obstacle};
use crate::engine::persist::Wait;
use crate::engine::places::Place;
use crate::engine::settings::InFlight;
use crate::engine::{Engine, Request};
use crate::protocol::record::Found;

impl Engine {
    /// Returns the wait for another attempt, as long as this request may wait from now on; `None` where it
    /// may not.
    pub(super) fn wait(&self, request: &Request) -> Option<Wait> {
        match self.settings.in_flight {
            InFlight::FailFast => None,
            InFlight::WaitUpTo(limit) => Some(Wait::up_to(self.longest_wait(request, limit))),
        }
    }

    /// Waits for the attempt that is the obstacle, without this place, before it looks at its record again;
    /// `None` where there is no more waiting.
    pub(super) async fn look_again(
        &self,
        request: &Request,
        obstacle: &Obstacle,
        wait: &mut Option<Wait>,
        place: Option<&Place>,
    ) -> Option<Option<Found>> {
        let wait = wait.as_mut();
        let wait = wait.filter(|_| matches!(obstacle, Error::InFlight { .. }))?;
        // Boxed here, so that nothing is made where nothing is waited for.
        Box::pin(async {
            if let Some(place) = place {
                place.leave_to_wait();
            }
            // Nothing is claimed yet, and the caller that would get the outcome may have gone.
            if !wait.pause().await || request.options.caller_has_gone() {
                return None;
            }
            // The other attempt may be a run of this process, and dropped meanwhile.
            self.send_unsent(request).await;
            // A store that fails meanwhile changes nothing: another attempt holds the claim.
            self.look(request).await.ok()
        })
        .await
    }
}
