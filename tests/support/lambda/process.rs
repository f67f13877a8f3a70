//! A function's process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;

use crate::support::server::unique;

/// A child that never outlives its test, and whose output is shown when the test fails.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
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
        Self { child, log }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id"))
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    pub(super) fn log(&self) -> String {
        let log = fs::read(&self.log).expect("its log");
        // A process that was killed may have stopped within a character.
        String::from_utf8_lossy(&log).into_owned()
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
