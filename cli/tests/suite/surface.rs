//! What the command line shows of itself.

use crate::support::run;

#[tokio::test]
async fn each_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = run(&["completions", shell]).await.ended_with(0);
        assert!(said.out.contains("settle-step"), "{shell}");
    }
    run(&["completions", "csh"])
        .await
        .refused(2, "[possible values: bash");
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("idempotency-man-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    run(&["man", folder.to_str().unwrap()]).await.ended_with(0);
    let pages: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert!(pages.len() > 10, "{pages:?}");
    let page = std::fs::read_to_string(folder.join("idempotency-release.1")).unwrap();
    assert!(page.contains("while\\-live"), "{page}");
    std::fs::remove_dir_all(&folder).unwrap();
    run(&["man", "/nonexistent/folder"])
        .await
        .refused(2, "/nonexistent/folder");
}

#[tokio::test]
async fn colours_are_for_terminals() {
    let said = run(&["get", "any"]).await;
    assert!(!said.err.contains('\u{1b}'), "{said:?}");
}

/// `script` gives it a terminal to ask at, and types the answer.
#[tokio::test]
async fn at_a_terminal_it_asks_and_anything_but_yes_is_no() {
    use crate::support::{command, dynamodb_endpoint, table};
    let table = table().await;
    let endpoint = dynamodb_endpoint();
    for (answer, words) in [("yes", "0 of 0 records"), ("y", "not agreed to")] {
        let binary = env!("CARGO_BIN_EXE_idempotency");
        let line = format!("{binary} list --table {table} --endpoint-url {endpoint}");
        let mut terminal = tokio::process::Command::new("script");
        let mut copied = command(&[]);
        copied.env_clear();
        terminal
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .envs([
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_REGION", "eu-central-1"),
                ("TERM", "xterm"),
            ])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true);
        let mut child = terminal.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stdin, format!("{answer}\n").as_bytes())
            .await
            .unwrap();
        let said = child.wait_with_output().await.unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        drop(stdin);
        assert!(
            text.contains("Type `yes`") && text.contains(words),
            "{answer}: {text}"
        );
        assert!(text.contains('\u{1b}'), "no colour on a terminal: {text:?}");
    }
}
