use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{Put, Update};
use lambda_idempotency::store::transaction::{Write, WriteError};
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestDynamoDb};
use lambda_idempotency::{Claim, Error, Idempotency, Key, Outcome};

// The function, in your `src/`.

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("sold out")]
    SoldOut,
    #[error(transparent)]
    Write(#[from] WriteError),
}

async fn place(claim: Claim) -> Result<String, OrderError> {
    let order_id = claim.derive_uuid("order");
    let order = Put::builder()
        .table_name("orders")
        .item("order_id", S(order_id.clone()))
        .condition_expression("attribute_not_exists(order_id)");
    claim.write(order)?;
    let take = Update::builder()
        .table_name("stock")
        .key("sku", S("tea".into()))
        .update_expression("ADD pieces :minus_one")
        .condition_expression("pieces >= :one")
        .expression_attribute_values(":one", N("1".into()))
        .expression_attribute_values(":minus_one", N("-1".into()));
    claim.write(Write::from(take).or_else(|_refusal| OrderError::SoldOut))?;
    Ok(order_id)
}

async fn order(once: &Idempotency, token: &str) -> Result<Outcome<String>, Error<OrderError>> {
    once.run(Key::new("place", token), None, place).await
}

// The tests.

type TestResult = Result<(), Box<dyn std::error::Error>>;

struct Shop {
    dynamodb: TestDynamoDb,
    store: FaultyStore,
    once: Idempotency,
    clock: ManualClock,
}

impl Shop {
    /// Opens a shop with this many pieces of tea.
    async fn open(pieces: u32) -> Result<Self, Box<dyn std::error::Error>> {
        let dynamodb = TestDynamoDb::start().await?;
        dynamodb.create_table("orders", &["order_id"]).await?;
        dynamodb.create_table("stock", &["sku"]).await?;
        let tea = dynamodb.client().put_item().table_name("stock");
        let tea = tea.item("sku", S("tea".into()));
        tea.item("pieces", N(pieces.to_string())).send().await?;

        let clock = ManualClock::default();
        let store = FaultyStore::new(dynamodb.store().await?);
        let once = Idempotency::builder(store.clone())
            .namespace("shop")
            .clock(clock.clone())
            .build()?;
        Ok(Self {
            dynamodb,
            store,
            once,
            clock,
        })
    }

    async fn orders(&self) -> Result<i32, Box<dyn std::error::Error>> {
        let orders = self.dynamodb.client().scan().table_name("orders");
        Ok(orders.send().await?.count())
    }
}

#[tokio::test]
async fn an_order_takes_one_piece_once() -> TestResult {
    let shop = Shop::open(5).await?;

    assert!(!order(&shop.once, "cart-17").await?.is_replayed());
    assert!(order(&shop.once, "cart-17").await?.is_replayed());

    let tea = shop.dynamodb.client().get_item().table_name("stock");
    let tea = tea.key("sku", S("tea".into())).send().await?;
    assert_eq!(tea.item.unwrap()["pieces"], N("4".into()));
    assert_eq!(shop.orders().await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_is_sold_out_leaves_no_order() -> TestResult {
    let shop = Shop::open(0).await?;

    let refused = order(&shop.once, "cart-17").await;

    assert!(matches!(refused, Err(Error::Handler(OrderError::SoldOut))));
    assert_eq!(shop.orders().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_crash_before_the_commit_leaves_nothing() -> TestResult {
    let shop = Shop::open(5).await?;

    let dies = order(&shop.once, "cart-17");
    shop.store.crash_before(Call::Commit).cut_off(dies).await?;
    assert_eq!(shop.orders().await?, 0);

    shop.clock.pass_lease(&shop.once);
    assert!(!order(&shop.once, "cart-17").await?.is_replayed());
    assert_eq!(shop.orders().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_crash_after_the_commit_is_not_repeated() -> TestResult {
    let shop = Shop::open(5).await?;

    let dies = order(&shop.once, "cart-17");
    shop.store.crash_after(Call::Commit).cut_off(dies).await?;

    assert!(order(&shop.once, "cart-17").await?.is_replayed());
    assert_eq!(shop.orders().await?, 1);
    Ok(())
}
