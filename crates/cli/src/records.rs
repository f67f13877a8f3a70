//! Records: to look at them, and to end what waits for an operator.

mod acts;
pub mod complete;
pub mod explain;
mod explanation;
pub mod fail;
pub(crate) mod find;
pub mod get;
pub mod list;
mod open;
pub mod operate;
mod order;
mod outcome;
pub mod redact;
pub mod release;
pub mod rerun;
mod scan;
mod search;
pub mod settle_step;
mod view;

pub use acts::{Act, OPERATOR_STEP};
pub use explanation::{Answer, Explanation};
pub use order::{OrderArgs, Report};
pub use rerun::Line as Rerun;
pub(crate) use scan::pages;
pub(crate) use search::classify;
pub use view::RecordView;
