//! Makes a handler of Amazon MQ batches of a handler of one message: [`activemq`] and [`rabbitmq`],
//! each with an example.
//!
//! Lambda has no partial replies for [Amazon MQ][page]: where one message of a batch fails, the
//! invocation fails, and every message of the batch is delivered again. The layer replays those that
//! succeeded; without it, each of them would take effect again. Where a message must be delivered again,
//! the invocation fails with [`BatchError::Incomplete`].
//!
//! # Which key
//!
//! | | default key | survives | is missing where |
//! |---|---|---|---|
//! | [`activemq`] | broker, queue and `messageID`, which ActiveMQ gives | a failed batch, a redelivery | never |
//! | [`rabbitmq`] | broker, queue and `basicProperties.messageId`, which the producer sets | the same, and a producer that sends twice with one id | the producer sets none |
//!
//! A RabbitMQ message without an id is reported as a message without a key
//! ([`OnMissingKey`](crate::OnMissingKey)), and its handler doesn't run, unless the layer takes the key
//! from the body ([`key`](crate::batch::BatchLayer::key)) or from a header
//! ([`key_attribute`](crate::batch::BatchLayer::key_attribute)).
//!
//! # Poison messages
//!
//! One message that never succeeds keeps its whole batch coming back: take what no retry will fix
//! with [`on_rejected`](crate::batch::BatchLayer::on_rejected), which gets it again each time that its
//! batch comes back for another message. A [permanent](crate::batch::BatchLayer::permanent) failure is
//! kept as long as an outcome then, and without the hook for
//! [an hour](crate::Settings::failure_retention). Lambda's redelivery policy for
//! ActiveMQ is fixed at [six redeliveries][errors]; then the message goes to the broker's
//! dead-letter queue.
//!
//! The flag `redelivered` makes the layer read a message's record before it tries a claim.
//!
//! [page]: https://docs.aws.amazon.com/lambda/latest/dg/with-mq.html
//! [errors]: https://docs.aws.amazon.com/lambda/latest/dg/services-mq-errors.html

pub mod activemq;
pub mod rabbitmq;

pub use crate::batch::{BatchError, Order, Rejected, Rejection};
