//! One request with its key in Redis, by hand and by the library, in turns on one server: `bench-redis ADDRESS ROUNDS REQUESTS`.
//!
//! It prints JSON about each contender: for each round the time, and the processor time of this process and of the server together, for one
//! request in microseconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lambda_idempotency::{Fingerprint, Idempotency, Key};
use lambda_idempotency_redis::RedisStore;
use nix::sys::resource::{UsageWho, getrusage};
use redis::aio::ConnectionManager;
use redis::cmd;
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Contender {
    /// `SET NX EX`, the work, `SET EX`: no fence, no fingerprint.
    ByHand,
    ByHandAgain,
    Library,
    LibraryAgain,
}

impl Contender {
    const ALL: [Self; 4] = [
        Self::ByHand,
        Self::Library,
        Self::ByHandAgain,
        Self::LibraryAgain,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ByHand => "by hand",
            Self::ByHandAgain => "by hand, duplicate",
            Self::Library => "library",
            Self::LibraryAgain => "library, duplicate",
        }
    }
}

struct Bench {
    connection: ConnectionManager,
    once: Idempotency,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, rounds, requests] = arguments.as_slice() else {
        return Err("usage: bench-redis ADDRESS ROUNDS REQUESTS".into());
    };
    let client = redis::Client::open(address.as_str())?;
    let bench = Bench {
        connection: client.get_connection_manager().await?,
        once: Idempotency::builder(RedisStore::connect(address).await?)
            .namespace("bench")
            .build()?,
    };
    println!(
        "{}",
        bench.measure(rounds.parse()?, requests.parse()?).await?
    );
    Ok(())
}

impl Bench {
    async fn request(&self, contender: Contender, number: u64) -> Result<(), Error> {
        let token = format!("order-{number}");
        match contender {
            Contender::Library | Contender::LibraryAgain => {
                let fingerprint = Fingerprint::of(&token)?;
                let handler = async |_| Ok::<_, std::io::Error>(number);
                self.once
                    .run(Key::new("order", token), fingerprint, handler)
                    .await?;
            }
            Contender::ByHand | Contender::ByHandAgain => {
                let mut connection = self.connection.clone();
                let mut claim = cmd("SET");
                claim
                    .arg(&token)
                    .arg("INPROGRESS")
                    .arg("NX")
                    .arg("EX")
                    .arg(60);
                let claimed: Option<String> = claim.query_async(&mut connection).await?;
                if claimed.is_none() {
                    let stored: String =
                        cmd("GET").arg(&token).query_async(&mut connection).await?;
                    let _: u64 = serde_json::from_str(&stored)?;
                    return Ok(());
                }
                let outcome = serde_json::to_string(&number)?;
                let mut complete = cmd("SET");
                complete.arg(&token).arg(outcome).arg("EX").arg(86_400);
                complete.query_async::<()>(&mut connection).await?;
            }
        }
        Ok(())
    }

    async fn measure(&self, rounds: u64, requests: u64) -> Result<Value, Error> {
        let mut taken: BTreeMap<Contender, Vec<[f64; 2]>> = BTreeMap::new();
        for round in 0..=rounds {
            for contender in Contender::ALL {
                let (before, began) = (self.cpu().await?, Instant::now());
                for request in 0..requests {
                    self.request(contender, round * requests + request).await?;
                }
                #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
                let of_one = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
                let wall = began.elapsed();
                let measured = [wall, self.cpu().await?.saturating_sub(before)].map(of_one);
                // The first round warms up.
                if round > 0 {
                    taken.entry(contender).or_default().push(measured);
                }
            }
        }
        let report = taken.into_iter().map(|(contender, rounds)| {
            let column = |place: usize| -> Vec<f64> {
                rounds
                    .iter()
                    .filter_map(|round| round.get(place))
                    .copied()
                    .collect()
            };
            let figures = json!({"wall_us": column(0), "all_us": column(1)});
            (contender.name().to_owned(), figures)
        });
        Ok(Value::Object(report.collect()))
    }

    /// The processor time of this process and of the server.
    async fn cpu(&self) -> Result<Duration, Error> {
        let mut connection = self.connection.clone();
        let info: String = cmd("INFO").arg("cpu").query_async(&mut connection).await?;
        let mut server = 0.0;
        for line in info.lines() {
            if let Some((name, seconds)) = line.split_once(':')
                && ["used_cpu_sys", "used_cpu_user"].contains(&name)
            {
                server += seconds.trim().parse::<f64>()?;
            }
        }
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let of =
            |time: nix::sys::time::TimeVal| -> Result<Duration, Error> {
                let seconds = u64::try_from(time.tv_sec())?;
                Ok(Duration::from_secs(seconds)
                    + Duration::from_micros(u64::try_from(time.tv_usec())?))
            };
        Ok(of(usage.user_time())? + of(usage.system_time())? + Duration::from_secs_f64(server))
    }
}
