//! A wire between the store and the server that delays, cuts and goes silent, as its seed says.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::MINUTE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Delay,
    /// The request doesn't reach the server.
    CutBefore,
    /// The server gets the request, and the client no reply.
    CutAfter,
    /// Both ends stay open, and nothing passes any more for a while.
    HalfOpen,
}

const FAULTS: [Fault; 4] = [
    Fault::Delay,
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::HalfOpen,
];

#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    wire: Arc<Wire>,
}

#[derive(Debug)]
struct Wire {
    server: String,
    rng: Mutex<Rng>,
    /// Faults in a thousand requests.
    rate: AtomicU32,
    /// The time that each request takes to the server, in milliseconds.
    latency: AtomicU32,
    /// The fault that the next `COMMIT` meets.
    commit: Mutex<Option<Fault>>,
    met: [AtomicU32; 4],
}

impl Proxy {
    pub(super) async fn before(server: String, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Arc::new(Wire {
            server,
            rng: Mutex::new(Rng::with_seed(seed)),
            rate: AtomicU32::new(0),
            latency: AtomicU32::new(0),
            commit: Mutex::default(),
            met: Default::default(),
        });
        let of_task = Arc::clone(&wire);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let wire = Arc::clone(&of_task);
                // Each error is an end that closed.
                tokio::spawn(async move { Box::pin(wire.carry(client)).await.ok() });
            }
        });
        Self { port, wire }
    }

    /// Sets the faults in a thousand requests; 0 heals it.
    pub(super) fn set_rate(&self, rate: u32) {
        self.wire.rate.store(rate, Relaxed);
    }

    pub(super) fn set_latency(&self, millis: u32) {
        self.wire.latency.store(millis, Relaxed);
    }

    pub(super) fn at_next_commit(&self, fault: Fault) {
        *self.wire.commit.lock().unwrap() = Some(fault);
    }

    /// The number of each fault until now.
    pub(super) fn met(&self) -> [(Fault, u32); 4] {
        [0, 1, 2, 3].map(|place| (FAULTS[place], self.wire.met[place].load(Relaxed)))
    }
}

impl Wire {
    fn fault(&self, request: &[u8]) -> Option<Fault> {
        let is_commit = request.windows(7).any(|bytes| bytes == b"COMMIT\0");
        let planned = is_commit
            .then(|| self.commit.lock().unwrap().take())
            .flatten();
        let mut rng = self.rng.lock().unwrap();
        let drawn = rng.u32(..1_000) < self.rate.load(Relaxed);
        let fault = planned.or_else(|| drawn.then(|| FAULTS[rng.usize(..4)]))?;
        let place = FAULTS.iter().position(|one| *one == fault).unwrap();
        self.met[place].fetch_add(1, Relaxed);
        Some(fault)
    }

    async fn carry(&self, mut client: TcpStream) -> io::Result<()> {
        let mut server = TcpStream::connect(&self.server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (mut request, mut reply) = (vec![0; 16_384], vec![0; 16_384]);
        loop {
            tokio::select! {
                read = client.read(&mut request) => {
                    let request = &request[..read?];
                    if request.is_empty() {
                        return Ok(());
                    }
                    let latency = self.latency.load(Relaxed);
                    sleep(Duration::from_millis(latency.into())).await;
                    match self.fault(request) {
                        None => {}
                        Some(Fault::Delay) => sleep(Duration::from_millis(30)).await,
                        Some(Fault::CutBefore) => return Ok(()),
                        Some(Fault::CutAfter) => {
                            server.write_all(request).await?;
                            let _ = timeout(MINUTE, server.read(&mut reply)).await;
                            return Ok(());
                        }
                        Some(Fault::HalfOpen) => {
                            if request.len() % 2 == 0 {
                                server.write_all(request).await?;
                            }
                            sleep(Duration::from_millis(700)).await;
                            return Ok(());
                        }
                    }
                    server.write_all(request).await?;
                }
                read = server.read(&mut reply) => {
                    let reply = &reply[..read?];
                    if reply.is_empty() {
                        return Ok(());
                    }
                    client.write_all(reply).await?;
                }
            }
        }
    }
}
