//! A function's process.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;

use crate::support::server::unique;

/// A child that never outlives its test, and whose output is shown when the test fails.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    /// The number of bytes of the log that were read.
    read: u64,
}

impl Process {
    pub(super) fn start(mut command: Command, name: &str) -> Self {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique(name) + ".log");
        let output = File::create(&log).expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("a process");
        Self {
            child,
            log,
            read: 0,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id"))
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// The whole lines that it has written since the last call.
    pub(super) fn lines(&mut self) -> String {
        let mut log = File::open(&self.log).expect("its log");
        log.seek(SeekFrom::Start(self.read)).expect("its end");
        let mut new = Vec::new();
        log.read_to_end(&mut new).expect("its log");
        let whole = new
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        new.truncate(whole);
        self.read += whole as u64;
        String::from_utf8(new).expect("UTF-8")
    }

    pub(super) fn end(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        self.child.wait().expect("its exit code");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let output = fs::read(&self.log).unwrap_or_default();
            let output = String::from_utf8_lossy(&output);
            eprintln!("--- {}\n{output}", self.log.display());
        }
        let _ = fs::remove_file(&self.log);
    }
}
