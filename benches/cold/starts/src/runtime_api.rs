//! As much of Lambda's Runtime API as one invocation needs:
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Hands out one event, and returns the answer to it.
pub(crate) async fn answer(listener: TcpListener, event: String) -> io::Result<String> {
    let (events, mut answers) = mpsc::channel(1);
    loop {
        tokio::select! {
            connection = listener.accept() => {
                tokio::spawn(serve(connection?.0, event.clone(), events.clone()));
            }
            Some(answer) = answers.recv() => return Ok(answer),
        }
    }
}

/// A connection may be used for several requests, and a request may come on any connection.
async fn serve(
    connection: TcpStream,
    event: String,
    answers: mpsc::Sender<String>,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    while let Some((head, body)) = request(&mut connection).await? {
        if head.starts_with("GET ") {
            let deadline = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                + Duration::from_secs(30);
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLambda-Runtime-Aws-Request-Id: {}\r\n\
                 Lambda-Runtime-Deadline-Ms: {}\r\n\
                 Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:eu-central-1:123456789012:function:cold\r\n\
                 Content-Length: {}\r\n\r\n{event}",
                "00000000-0000-4000-8000-000000000001",
                deadline.as_millis(),
                event.len()
            );
            connection.get_mut().write_all(reply.as_bytes()).await?;
        } else {
            // An answer, or an error: whoever waits for it tells them apart.
            let _ = answers
                .send(String::from_utf8_lossy(&body).into_owned())
                .await;
            let reply = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
            connection.get_mut().write_all(reply.as_bytes()).await?;
        }
    }
    Ok(())
}

/// The first line of a request, and its body; `None` at the end of the connection.
async fn request(connection: &mut BufReader<TcpStream>) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut first = String::new();
    if connection.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        chunked |= line == "transfer-encoding: chunked";
    }
    if !chunked {
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await?;
        return Ok(Some((first, body)));
    }
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        connection.read_line(&mut size).await?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + size + 2, 0);
        connection.read_exact(&mut body[start..]).await?;
        body.truncate(start + size);
        if size == 0 {
            return Ok(Some((first, body)));
        }
    }
}
