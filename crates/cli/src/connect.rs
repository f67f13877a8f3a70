//! Connects to the store of the records.

use std::sync::Arc;
use std::time::Duration;

use aws_config::default_provider::region::DefaultRegionChain;
use aws_config::profile::{ProfileFileCredentialsProvider, load};
use aws_config::provider_config::ProviderConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::Client;
use lambda_idempotency::dynamodb::{DynamoDbStore, TableLayout};
use lambda_idempotency::store::DynStore;
use lambda_idempotency::{EpochMillis, RecordId, StoreError};
use lambda_idempotency_postgres::{DEFAULT_TABLE, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection as _, Row};

use crate::args::{Global, Layout};
use crate::clock::Clock;
use crate::context::{Context, now, now_behind};
use crate::failure::Failure;
use crate::output::{WARNING, note};
use crate::records::explain::SKEW_MARGIN;
use crate::redis::{Redis, is_address};
use crate::time;

/// The store of the records, by its own API and by the library's contract.
#[derive(Clone)]
pub(crate) struct Records {
    /// By the contract: what reads and writes a record.
    pub(crate) store: Arc<dyn DynStore>,
    /// By its own API: what reads all of them.
    pub(crate) place: Place,
}

/// The place of the records.
#[derive(Clone)]
pub(crate) enum Place {
    /// In a DynamoDB table.
    DynamoDb(Box<Table>),
    /// In a table of PostgreSQL.
    Postgres(PostgresStore<PgPool>),
    /// In Redis or Valkey.
    Redis(Redis),
}

impl Place {
    /// Names the place for an operator, without a password.
    pub(crate) fn words(&self, context: &Context) -> String {
        match self {
            Self::DynamoDb(table) => {
                let region = table.client.config().region();
                let region = region.map_or("", AsRef::as_ref);
                let of = context.global().endpoint_url.as_deref().unwrap_or(region);
                let profile = context.global().profile.as_ref();
                let by = profile.map(|profile| format!(" (profile {profile})"));
                format!("the table {} of {of}{}", table.name, by.unwrap_or_default())
            }
            Self::Postgres(store) => {
                let options = store.pool().connect_options();
                let socket = options.get_socket();
                let socket = socket.map(|socket| socket.display().to_string());
                let host = socket.as_deref().unwrap_or(options.get_host());
                let (table, port) = (context.global().postgres_table(), options.get_port());
                let database = options.get_database().unwrap_or(options.get_username());
                format!("the table {table} of {host}:{port}/{database}")
            }
            Self::Redis(redis) => format!("the keys {} of {}", redis.prefix, redis.place),
        }
    }
}

/// A DynamoDB table.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) layout: TableLayout,
    /// The attributes of its key.
    pub(crate) keys: Vec<String>,
    /// The time by which this machine's clock is ahead of the table's.
    pub(crate) clock: Clock,
}

/// A clock that differs by less may be a reply that was slow: nobody is told of it.
const TOLD: Duration = Duration::from_secs(2);

impl Records {
    /// The time now, by the store's clock where this machine's differs: by a clock that is ahead, an
    /// attempt that runs looks dead; by one that is behind, a record is kept for too short. DynamoDB's
    /// last reply tells it; it is asked where there is none yet.
    ///
    /// # Errors
    ///
    /// When the server doesn't answer.
    pub(crate) async fn now(&self, context: &Context) -> Result<EpochMillis, Failure> {
        Ok(now_behind(self.ahead(context).await?))
    }

    /// Returns the milliseconds by which this machine's clock is ahead of the store's, negative where it
    /// is behind; zero where a lease's margin covers it: DynamoDB tells its time in whole seconds, so that
    /// less can't be told from none.
    pub(crate) async fn ahead(&self, context: &Context) -> Result<i64, Failure> {
        let ahead = match &self.place {
            Place::DynamoDb(table) => {
                if table.clock.ahead_millis().is_none() {
                    // Any reply has the time, also one to a role that may read other ids alone.
                    let id = RecordId::stored("time")?;
                    let asked = self.store.load(&id, context.deadline()).await;
                    if table.clock.ahead_millis().is_none() {
                        asked?;
                    }
                }
                table.clock.ahead_millis().unwrap_or(0)
            }
            Place::Postgres(store) => {
                let asked = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
                // A query of one message: a proxy may share connections.
                let asked = sqlx::raw_sql(asked).fetch_one(store.pool());
                let row = tokio::time::timeout(context.global().timeout, asked).await;
                let theirs = row
                    .map_err(|_| StoreError::Timeout)?
                    .and_then(|row| row.try_get::<i64, _>(0))
                    .map_err(|error| Failure::service("read PostgreSQL's clock", &error))?;
                now().0.saturating_sub(theirs)
            }
            Place::Redis(redis) => now().0.saturating_sub(redis.now().await?),
        };
        let differs = Duration::from_millis(ahead.unsigned_abs());
        if differs <= SKEW_MARGIN {
            return Ok(0);
        }
        if differs > TOLD {
            let by = time::length(Duration::from_secs(differs.as_secs()));
            let way = if ahead > 0 { "ahead of" } else { "behind" };
            note(format_args!(
                "{WARNING}this machine's clock is {by} {way} the store's: times are by the store's{WARNING:#}"
            ));
        }
        Ok(ahead)
    }
}

impl Global {
    /// Returns the table of the records in PostgreSQL.
    pub(crate) fn postgres_table(&self) -> &str {
        self.table.as_deref().unwrap_or(DEFAULT_TABLE)
    }
}

impl Context {
    /// Refuses `--store`, for the reason in `why`: what was asked is of DynamoDB alone.
    ///
    /// # Errors
    ///
    /// When another store is named.
    pub(crate) fn without_store(&self, why: &str) -> Result<(), Failure> {
        match self.global().store {
            Some(_) => Err(Failure::usage(format!(
                "{why}: leave --store and IDEMPOTENCY_STORE out"
            ))),
            None => Ok(()),
        }
    }

    /// The configuration of AWS's clients: from the flags, else as the AWS CLI finds it.
    ///
    /// # Errors
    ///
    /// When `--profile` names none.
    pub(crate) async fn aws(&self) -> Result<SdkConfig, Failure> {
        let Global {
            endpoint_url,
            profile,
            region,
            timeout,
            ..
        } = self.global();
        let version = BehaviorVersion::v2026_01_12();
        let timeouts = TimeoutConfig::builder().operation_timeout(*timeout).build();
        let mut loader = aws_config::defaults(version).timeout_config(timeouts);
        if let Some(url) = endpoint_url {
            loader = loader.endpoint_url(url);
        }
        if let Some(profile) = profile {
            look_for_profile(profile).await?;
            loader = loader.profile_name(profile);
        }
        // As by the AWS CLI, a profile that is named goes before the environment's credentials.
        let from_environment = std::env::var_os("AWS_ACCESS_KEY_ID").is_some();
        if let Some(profile) = profile.as_ref().filter(|_| from_environment) {
            let regions = DefaultRegionChain::builder().profile_name(profile).build();
            let region = match region {
                Some(region) => Some(Region::new(region.clone())),
                None => regions.region().await,
            };
            let place = ProviderConfig::default().with_region(region);
            let credentials = ProfileFileCredentialsProvider::builder()
                .configure(&place.with_behavior_version(Some(version)))
                .profile_name(profile)
                .build();
            loader = loader.credentials_provider(credentials);
        }
        if let Some(region) = region {
            loader = loader.region(Region::new(region.clone()));
        }
        Ok(loader.load().await)
    }

    /// The DynamoDB table that `--table` names.
    ///
    /// # Errors
    ///
    /// When no table or no region is named.
    pub(crate) async fn table(&self) -> Result<Table, Failure> {
        let global = self.global();
        let name = global.table.clone().ok_or_else(|| {
            Failure::usage(
                "name the table of the records: --table, or the variable IDEMPOTENCY_TABLE",
            )
        })?;
        let config = self.aws().await?;
        if config
            .region()
            .is_none_or(|region| region.as_ref().is_empty())
        {
            return Err(Failure::usage(
                "no AWS region: give --region, or set AWS_REGION or a profile's region",
            ));
        }
        let clock = Clock::default();
        let config = aws_sdk_dynamodb::config::Builder::from(&config).interceptor(clock.clone());
        Ok(Table {
            client: Client::from_conf(config.build()),
            name,
            clock,
            layout: layout(&global.layout),
            keys: std::iter::once(global.layout.partition_key.clone())
                .chain(global.layout.sort_key.clone())
                .collect(),
        })
    }

    /// The store of the records.
    ///
    /// # Errors
    ///
    /// When a flag is missing, or the server can't be reached.
    pub(crate) async fn records(&self) -> Result<Records, Failure> {
        if !self.global().layout.is_default() {
            self.without_store(
                "--partition-key, --sort-key and --attribute describe a DynamoDB table",
            )?;
        }
        if let Some(url) = self.global().store.as_ref().filter(|url| is_address(url)) {
            let redis = Redis::connect(url, self.global()).await?;
            return Ok(Records {
                store: Arc::new(redis.store.clone()),
                place: Place::Redis(redis),
            });
        }
        if let Some(url) = &self.global().store {
            let store = postgres(url, self.global()).await?;
            return Ok(Records {
                store: Arc::new(store.clone()),
                place: Place::Postgres(store),
            });
        }
        let table = self.table().await?;
        let store = DynamoDbStore::new(table.client.clone(), table.name.clone());
        Ok(Records {
            store: Arc::new(store.layout(|layout| layout.clone_from(&table.layout))),
            place: Place::DynamoDb(Box::new(table)),
        })
    }
}

/// Refuses a profile that is in none of AWS's files: its clients would look for credentials elsewhere.
async fn look_for_profile(name: &str) -> Result<(), Failure> {
    // The types are of crates that this one doesn't name.
    fn own<T: Default>() -> T {
        T::default()
    }
    let profiles = load(&own(), &own(), &own(), None).await;
    let profiles = profiles.map_err(|error| Failure::service("read AWS's profiles", &error))?;
    if profiles.get_profile(name).is_some() {
        return Ok(());
    }
    let file = |variable: &str, otherwise: &str| {
        std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
    };
    Err(Failure::usage(format!(
        "there is no profile `{name}` in {} or {}: look at --profile",
        file("AWS_CONFIG_FILE", "~/.aws/config"),
        file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    )))
}

async fn postgres(url: &str, global: &Global) -> Result<PostgresStore<PgPool>, Failure> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(Failure::usage(
            "--store takes a URL of PostgreSQL or Redis, such as postgres://operator@127.0.0.1/shop or redis://127.0.0.1. For DynamoDB, leave it out and give --table",
        ));
    }
    let options: PgConnectOptions = url
        .parse()
        .map_err(|error: sqlx::Error| Failure::usage(format!("--store: {error}")))?;
    let connect = PgConnection::connect_with(&options);
    // Once without the pool, which tries again and again, and then tells of its own timeout alone.
    match tokio::time::timeout(global.timeout, connect).await {
        // An error of the close is of no use to anybody.
        Ok(Ok(first)) => drop(first.close().await),
        Ok(Err(error)) => return Err(Failure::service("connect to PostgreSQL", &error)),
        Err(_) => return Err(Failure::no_answer("connect to PostgreSQL", global.timeout)),
    }
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .acquire_timeout(global.timeout)
        .connect_lazy_with(options);
    PostgresStore::with_table(pool, global.postgres_table())
        .map_err(|error| Failure::usage(error.to_string()))
}

/// The layout that the flags describe.
pub(crate) fn layout(names: &Layout) -> TableLayout {
    let mut layout = TableLayout::default();
    layout.key(&names.partition_key);
    if let (Some(sort), Some(value)) = (&names.sort_key, &names.partition_value) {
        layout.composite_key(&names.partition_key, value, sort);
    }
    if let Some(spread) = names.spread {
        layout.spread = spread;
    }
    for (of, name) in &names.attribute {
        let attribute = match of.as_str() {
            "status" => &mut layout.status,
            "expiration" => &mut layout.expiration,
            "in_progress_expiration" => &mut layout.in_progress_expiration,
            "data" => &mut layout.data,
            _ => &mut layout.validation,
        };
        attribute.clone_from(name);
    }
    layout
}
