//! The functions' programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// The version of the functions that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    This,
    /// The one that `scripts/with version-before` builds.
    Before,
}

impl Version {
    pub(super) fn program(self, name: &str) -> PathBuf {
        match self {
            Self::This => program(name).to_owned(),
            Self::Before => {
                let folder = std::env::var_os("FUNCTIONS_BEFORE");
                let folder =
                    folder.expect("this test is run by `scripts/with version-before -- …`");
                Path::new(&folder).join(name)
            }
        }
    }
}

/// The path of a function's program, built on first use, so that it is never older than the code. If `FUNCTIONS` names a folder, the
/// programs were built into it with this test, and cargo may be busy.
pub fn program(name: &str) -> &'static Path {
    static PROGRAMS: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    &PROGRAMS.get_or_init(|| match std::env::var_os("FUNCTIONS") {
        Some(folder) => built(Path::new(&folder)),
        None => build(),
    })[name]
}

fn built(folder: &Path) -> BTreeMap<String, PathBuf> {
    [
        "checkout",
        "drift-audit",
        "orders-api",
        "outbox-relay",
        "payments-worker",
        "settlements",
        "stock-movements",
    ]
    .map(|name| (name.to_owned(), folder.join(name)))
    .into()
}

fn build() -> BTreeMap<String, PathBuf> {
    // All the default members with their tests, as `cargo test` has just built them: another selection would have other features,
    // and build the dependencies again.
    let mut cargo = Command::new(env!("CARGO"));
    // The variables by which `cargo test` describes a test's package would reach build scripts, and some run again when they change.
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("CARGO_PKG_") || shown.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    let output = cargo
        .args([
            "build",
            "--all-features",
            "--tests",
            "--bins",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| {
            message["target"]["kind"][0] == "bin" && message["profile"]["test"] == false
        })
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, message["executable"].as_str()?.into()))
        })
        .collect()
}
