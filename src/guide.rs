//! Pages of the book that are longer than the documentation of one item. They exist in the documentation alone.
//!
//! The book has more of them, on sources, operations and the protocol:
//! [`docs/`](https://docs.rs/crate/lambda-idempotency/latest/source/docs/) in the package. Links of these pages to the others lead there.

/// A page of `docs/`. Its links to other pages of `docs/` are by reference, and the page's own definitions come last: those that are given
/// here come first, so they are the ones that count.
macro_rules! page {
    ($name:ident, $page:literal $(, $label:literal => $target:expr)* $(,)?) => {
        $(#[doc = concat!("[", $label, "]: ", $target)])*
        #[doc = ""]
        // `Readme` compiles the examples of the pages.
        #[cfg_attr(not(doctest), doc = include_str!(concat!("../docs/", $page)))]
        pub mod $name {}
    };
}

/// A page of `docs/` that isn't here, as docs.rs shows the package's files.
macro_rules! packaged {
    ($page:literal) => {
        concat!(
            "https://docs.rs/crate/lambda-idempotency/latest/source/docs/",
            $page
        )
    };
}

/// A diagram, within the page.
macro_rules! diagram {
    ($name:literal) => {
        concat!(
            "data:image/svg+xml,",
            include_str!(concat!("../docs/diagrams/", $name, ".uri"))
        )
    };
}

page!(
    choose,
    "choose.md",
    "diagrams/choose-form" => diagram!("choose-form"),
    "diagrams/choose-key" => diagram!("choose-key"),
    "recipes/durable" => packaged!("recipes/durable.md"),
    "recipes/effects#derived-keys" => "crate::guide::effects#derived-keys",
    "recipes/effects#steps" => "crate::guide::effects#steps",
    "recipes/guards" => "crate::guide::guards",
    "recipes/inbox" => packaged!("recipes/inbox.md"),
    "recipes/outbox" => packaged!("recipes/outbox.md"),
    "recipes/postgres" => packaged!("recipes/postgres.md"),
    "recipes/redis" => packaged!("recipes/redis.md"),
    "recipes/saga" => packaged!("recipes/saga.md"),
    "recipes/tenants" => packaged!("recipes/tenants.md"),
    "recipes/transactions" => "crate::guide::transactions",
    "recipes/transactions#claimless" => "crate::guide::transactions#claimless",
    "sources/invoke#how-long-answers-are-kept" => packaged!("sources/invoke.md"),
    "recipes/window" => packaged!("recipes/window.md"),
    "reference/settings" => packaged!("reference/settings.md"),
    "why" => packaged!("why.md"),
);
page!(
    effects,
    "recipes/effects.md",
    "choose" => "crate::guide::choose",
    "diagrams/steps" => diagram!("steps"),
    "operations/alarms#sideeffectduplicates" => "crate::guide::alarms#sideeffectduplicates",
    "operations/cli" => packaged!("operations/cli.md"),
    "operations/records" => packaged!("operations/records.md"),
);
page!(
    transactions,
    "recipes/transactions.md",
    "diagrams/transaction" => diagram!("transaction"),
    "sources/http" => packaged!("sources/http.md"),
    "why" => packaged!("why.md"),
);
page!(guards, "recipes/guards.md");
page!(
    testing,
    "testing.md",
    "local#your-own-function-or-server" => packaged!("local.md"),
);
page!(
    observe,
    "recipes/observe.md",
    "reference/iam" => packaged!("reference/iam.md"),
    "reference/metrics" => "crate::guide::metrics",
);
page!(
    alarms,
    "operations/alarms.md",
    "faq#a-message-is-delivered-repeatedly" => packaged!("faq.md"),
    "operations/audit" => packaged!("operations/audit.md"),
    "operations/audit#read-the-result" => packaged!("operations/audit.md"),
    "operations/cli" => packaged!("operations/cli.md"),
    "operations/records#a-request-that-waits-for-an-operator" => packaged!("operations/records.md"),
    "operations/records#a-step-that-waits-for-an-operator" => packaged!("operations/records.md"),
    "operations/records#the-outbox" => packaged!("operations/records.md"),
    "operations/scale" => packaged!("operations/scale.md"),
    "operations/table#when-something-is-wrong-with-the-table" => packaged!("operations/table.md"),
    "reference/errors#failed" => "crate::guide::errors#failed",
    "reference/errors#lease-lost" => "crate::guide::errors#lease-lost",
    "reference/errors#mismatch" => "crate::guide::errors#mismatch",
    "reference/errors#the-store" => "crate::guide::errors#the-store",
    "reference/log-events" => "crate::guide::log_events",
    "sources/kinesis#key-reply-order-retention" => packaged!("sources/kinesis.md"),
);
page!(
    errors,
    "reference/errors.md",
    "faq#409-while-nothing-runs" => packaged!("faq.md"),
    "operations/cli" => packaged!("operations/cli.md"),
    "operations/records#a-request-that-waits-for-an-operator" => packaged!("operations/records.md"),
    "operations/records#the-outbox" => packaged!("operations/records.md"),
    "operations/scale#what-else-has-a-limit" => packaged!("operations/scale.md"),
    "recipes/durable#inside-a-durable-function" => packaged!("recipes/durable.md"),
    "recipes/managed-instances#the-setting" => packaged!("recipes/managed-instances.md"),
    "reference/iam" => packaged!("reference/iam.md"),
    "reference/settings#environment-variables" => packaged!("reference/settings.md"),
);
page!(
    log_events,
    "reference/log-events.md",
    "internals/verification#secrets" => packaged!("internals/verification.md"),
    "local#what-differs-from-lambda" => packaged!("local.md"),
    "operations/alarms" => "crate::guide::alarms",
    "operations/records" => packaged!("operations/records.md"),
    "operations/records#a-request-that-waits-for-an-operator" => packaged!("operations/records.md"),
    "recipes/managed-instances" => packaged!("recipes/managed-instances.md"),
    "recipes/servers" => packaged!("recipes/servers.md"),
    "reference/errors" => "crate::guide::errors",
);
page!(
    metrics,
    "reference/metrics.md",
    "crates/emf/README" => "https://docs.rs/lambda-idempotency-emf",
    "recipes/window" => packaged!("recipes/window.md"),
    "operations/alarms" => "crate::guide::alarms",
);
