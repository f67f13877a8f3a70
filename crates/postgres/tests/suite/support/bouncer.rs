//! `PgBouncer` in transaction mode, which gives each transaction the next connection. The tests of the
//! command line have it, too.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Starts it before the server of this URL, with fewer connections to the server than there are clients, and returns the URL
/// through it.
pub(crate) async fn bouncer(url: &str) -> (Child, String) {
    bouncer_with(url, "").await
}

/// The same, with more settings: the last of a name counts.
pub(crate) async fn bouncer_with(url: &str, more: &str) -> (Child, String) {
    let program = std::env::var("PGBOUNCER")
        .expect("run the tests with `scripts/with postgres pgbouncer -- …` before the command");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let (role, place) = url.split_once('@').unwrap();
    let (server, database) = place.split_once('/').unwrap();
    let (host, server_port) = server.split_once(':').unwrap();
    let settings = format!("pgbouncer_{:016x}.ini", fastrand::u64(..));
    let settings = std::env::temp_dir().join(settings);
    let text = format!(
        "[databases]\n* = host={host} port={server_port} user=postgres\n[pgbouncer]\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\nadmin_users = postgres\n\
         pool_mode = transaction\ndefault_pool_size = 3\nignore_startup_parameters = extra_float_digits\n{more}\n"
    );
    std::fs::write(&settings, text).unwrap();
    let mut command = Command::new(program);
    // It refuses to run as root.
    if Path::new("/proc/self").metadata().unwrap().uid() == 0 {
        command.arg("--user=postgres");
    }
    let mut child = command
        .arg("--quiet")
        .arg(&settings)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // It listens when it has read its settings.
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        assert_eq!(child.try_wait().unwrap(), None, "PgBouncer ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(settings).unwrap();
    (child, format!("{role}@127.0.0.1:{port}/{database}"))
}
