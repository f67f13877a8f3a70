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
    /// The server doesn't get the first message of the request, for which the client gets this answer.
    RefuseFirst(&'static [u8]),
}

/// What a server answers to a query that is cancelled: an error, and that it is in no transaction.
pub(super) const CANCELLED: &[u8] = b"E\0\0\0\x24SERROR\0VERROR\0C57014\0Mcanceled\0\0Z\0\0\0\x05I";

/// What a standby answers to `BEGIN ISOLATION LEVEL SERIALIZABLE`.
pub(super) const STANDBY: &[u8] =
    b"E\0\0\0\x49SERROR\0VERROR\0C0A000\0Mcannot use serializable mode in a hot standby\0\0Z\0\0\0\x05I";

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
    /// A fault, and the words of the request that meets it.
    planned: Mutex<Option<(&'static str, Fault)>>,
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
            planned: Mutex::default(),
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

    /// Sets the fault of the next request that has these words.
    pub(super) fn at_next(&self, words: &'static str, fault: Fault) {
        *self.wire.planned.lock().unwrap() = Some((words, fault));
    }

    /// Returns whether no request has met the planned fault yet.
    pub(super) fn is_planned(&self) -> bool {
        self.wire.planned.lock().unwrap().is_some()
    }

    /// The number of each fault until now.
    pub(super) fn met(&self) -> [(Fault, u32); 4] {
        [0, 1, 2, 3].map(|place| (FAULTS[place], self.wire.met[place].load(Relaxed)))
    }
}

impl Wire {
    fn fault(&self, request: &[u8]) -> Option<Fault> {
        let has = |words: &str| {
            let mut places = request.windows(words.len());
            places.any(|place| place == words.as_bytes())
        };
        let planned = {
            let mut planned = self.planned.lock().unwrap();
            planned
                .take_if(|(words, _)| has(words))
                .map(|(_, fault)| fault)
        };
        let mut rng = self.rng.lock().unwrap();
        let drawn = rng.u32(..1_000) < self.rate.load(Relaxed);
        let fault = planned.or_else(|| drawn.then(|| FAULTS[rng.usize(..4)]))?;
        if let Some(place) = FAULTS.iter().position(|one| *one == fault) {
            self.met[place].fetch_add(1, Relaxed);
        }
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
                    let mut request = &request[..read?];
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
                        Some(Fault::RefuseFirst(answer)) => {
                            client.write_all(answer).await?;
                            request = after_first(request);
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

/// The messages behind the query that comes first: its letter, its length, its text.
fn after_first(request: &[u8]) -> &[u8] {
    assert_eq!(request[0], b'Q');
    let length = u32::from_be_bytes(request[1..5].try_into().unwrap());
    &request[1 + usize::try_from(length).unwrap()..]
}
