//! Rules of a stream's mapping.

use super::function::{each_mapping, update};
use super::{Verdict, danger, kept, minutes_beyond, warning};
use crate::doctor::facts::{Deployment, Function, Mapping, Source, Stream};
use crate::time::length;

/// The seconds of a function's timeout for which a mapping needs one retry more. AWS doesn't tell how soon
/// a retry follows; the 100 that the pages advise are for 15 minutes.
const SECONDS_OF_A_RETRY: u64 = 9;

fn each(
    deployment: &Deployment,
    rule: impl Fn(&Function, &Mapping, &Stream) -> Option<Verdict>,
) -> Vec<Verdict> {
    each_mapping(deployment, |function, mapping| match &mapping.source {
        Source::Stream(stream) => rule(function, mapping, stream),
        _ => None,
    })
}

pub(super) fn tumbling_window(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |_, mapping, stream| {
        let window = stream.tumbling_window?;
        Some((!window.is_zero()).then(|| {
            let what = format!("its mapping has a tumbling window of {}", length(window));
            let why = "The layer refuses its events: Lambda would take each reply, which has no `state`, for a failure.";
            let fix = update(deployment, mapping, "--tumbling-window-in-seconds 0");
            danger(&stream.name, what, why, fix)
        }))
    })
}

pub(super) fn bisect(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |_, mapping, stream| {
        Some((!stream.bisects?).then(|| {
            let why = "What is discarded in the end is a whole batch, with records that never ran.";
            let fix = update(deployment, mapping, "--bisect-batch-on-function-error");
            warning(&stream.name, "a batch that fails isn't split", why, fix)
        }))
    })
}

pub(super) fn record_age(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function, mapping, stream| {
        let (retries, age, timeout) = (stream.retries?, stream.max_age?, function.timeout);
        let least = timeout.map_or(0, |timeout| timeout.as_secs().div_ceil(SECONDS_OF_A_RETRY));
        let bounds = format!(
            "--maximum-retry-attempts {} --maximum-record-age-in-seconds 21600",
            least.max(100)
        );
        let fix = update(deployment, mapping, &bounds);
        if retries.is_none() && age.is_none() {
            let what = "neither retries nor age are bounded";
            let why = "A record that can't be done stops its shard until the stream forgets it, and all behind it with it.";
            return Some(Some(danger(&stream.name, what, why, fix)));
        }
        let timeout = timeout?;
        let is_short = retries.is_some_and(|retries| u64::from(retries) < least)
            || age.is_some_and(|age| age <= timeout);
        Some(is_short.then(|| {
            let what = format!(
                "its retries may end before a dead attempt's lease, which lasts for the timeout of {}: {}",
                function.name,
                length(timeout)
            );
            let why = "Lambda discards the record, and all behind it in the batch, although a later retry would run.";
            warning(&stream.name, what, why, fix)
        }))
    })
}

pub(super) fn on_failure(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |_, mapping, stream| {
        let destination = stream.on_failure.as_ref()?;
        Some(destination.is_none().then(|| {
            let why = "Records that are given up leave no trace.";
            let to = "--destination-config 'OnFailure={Destination=QUEUE_ARN}'";
            let fix = update(deployment, mapping, to);
            danger(
                &stream.name,
                "records that are given up go nowhere",
                why,
                fix,
            )
        }))
    })
}

/// A stream's records may be older than the library's own `failure_retention`, which only matters to code
/// that has permanent failures: it is compared where it is given.
pub(super) fn failure_retention(deployment: &Deployment) -> Vec<Verdict> {
    let given = deployment.settings.failure_retention;
    each(deployment, |_, _, stream| {
        // Without a bound, until the stream forgets them.
        let (kept, age) = (given?, stream.max_age?.or(stream.retention)?);
        Some((kept <= age).then(|| {
            let what = format!(
                "permanent failures are kept for {}, and its records are retried until they are {} old",
                length(kept),
                length(age)
            );
            let why =
                "A record that failed permanently runs again within its mapping's own retries.";
            let minutes = minutes_beyond(age);
            let fix = format!(
                "settings.failure_retention = Duration::from_mins({minutes}) in the code, and --failure-retention {minutes}min here"
            );
            warning(&stream.name, what, why, fix)
        }))
    })
}

pub(super) fn retention(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function, _, stream| {
        let (kept, words) = kept(deployment, function)?;
        let theirs = stream.retention?;
        Some((kept <= theirs).then(|| {
            let what = format!(
                "it keeps records for {}, and outcomes are kept no longer: for {words}",
                length(theirs)
            );
            let why = "A batch that is read again after its outcomes have expired runs again.";
            let hours = theirs.as_secs() / 3_600 + 1;
            let fix = format!(
                ".retention(Duration::from_hours({hours})) in the code, and --retention {hours}h here"
            );
            danger(&stream.name, what, why, fix)
        }))
    })
}
