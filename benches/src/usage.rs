//! The resources that this process has used so far.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::Error;

/// Processor time of this process, user and system, all threads.
pub fn cpu() -> Result<Duration, Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(duration(usage.user_time())? + duration(usage.system_time())?)
}

fn duration(time: TimeVal) -> Result<Duration, Error> {
    let seconds = u64::try_from(time.tv_sec())?;
    let micros = u64::try_from(time.tv_usec())?;
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// Lets the peak start anew from what is in use now.
pub fn forget_peak() -> Result<(), Error> {
    // See proc(5): 5 resets the peak of the resident set.
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// The most memory that was resident since the start or the last [`forget_peak`], in KiB.
pub fn peak() -> Result<u64, Error> {
    field("VmHWM:")
}

/// The memory that is resident now, in KiB.
pub fn resident() -> Result<u64, Error> {
    field("VmRSS:")
}

fn field(name: &str) -> Result<u64, Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("no such line in /proc/self/status")?;
    Ok(value.parse()?)
}
