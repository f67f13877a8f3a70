//! The memory and the processor time of processes.

use std::fs;

/// Pages of 4 KiB, on every machine that this is run on.
const PAGE_KIB: u64 = 4;

/// The resident memory of these processes together, in KiB.
pub fn resident_kib(pids: &[u32]) -> u64 {
    let pages = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    pids.iter().filter_map(pages).sum::<u64>() * PAGE_KIB
}

/// The processor time that these processes took, in ticks of 10 ms.
pub fn cpu_ticks(pids: &[u32]) -> u64 {
    let ticks = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name, in brackets, may have spaces.
        let fields = text.rsplit(')').next()?.split_whitespace();
        // User and system: fields 14 and 15, of which two were the pid and the name.
        Some(
            fields
                .skip(11)
                .take(2)
                .filter_map(|field| field.parse::<u64>().ok())
                .sum::<u64>(),
        )
    };
    pids.iter().filter_map(ticks).sum()
}
